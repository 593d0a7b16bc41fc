// Operations that this page began: each has a notice in the corner, whatever is looked at meanwhile.

import { now } from "./api.js";
import { badge, button, count, el, facts, size, span, subjectLink } from "./dom.js";
import { follow } from "./live.js";

let leaving = new AbortController();

/** How far an operation has come: a bar, and numbers that say the same; the time where there are none. */
export function progressOf(since, signal) {
  const bar = el("progress", { max: "1", "aria-label": "Progress" });
  const said = el("span", { class: "quiet small" });
  let reached = "";
  const tick = () => { said.textContent = reached || `for ${span(now() - since)}`; };
  const heard = ({ files, bytes, files_expected, bytes_expected }) => {
    const [done, all] = bytes_expected ? [bytes, bytes_expected] : [files, files_expected];
    if (all) bar.value = Math.min(1, done / all);
    if (bytes) reached = bytes_expected ? `${size(bytes)} of ${size(bytes_expected)}` : size(bytes);
    else if (files) reached = files_expected ? `${files} of ${count(files_expected, "file")}` : count(files, "file");
    tick();
  };
  const timer = setInterval(tick, 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
  tick();
  return { heard, shown: el("span", { class: "progress" }, bar, said) };
}

/** What is said of an operation that is over and has no answer. */
export const ending = (row) => (row.state === "failed"
  ? [row.problem?.title ?? "It failed", row.problem?.detail]
  : ["It was interrupted", "Its server is gone. Look at the subject for what it did."]);

/** Follows an operation, and says how it ended. `done` is what is true then, of which subject. */
export function notice({ id, doing, done, subject }) {
  const { signal } = leaving;
  const closing = new AbortController();
  const progress = progressOf(now(), closing.signal);
  const said = el("p", { role: "status" }, el("strong", {}, doing));
  const body = el("div", {}, progress.shown);
  const close = () => { closing.abort(); shown.remove(); };
  const shown = el("section", { class: "notice", "aria-label": doing }, said, body,
    el("div", { class: "bar end" }, el("a", { href: "#/operations" }, "Operations"), button("Dismiss", close, "small")));
  signal.addEventListener("abort", close);
  document.getElementById("notices").append(shown);
  const over = (tone, word, words, ...more) => {
    shown.classList.add(tone);
    said.replaceChildren(badge(word, tone), " ", el("strong", {}, words));
    body.replaceChildren(...more);
  };
  follow(id, { signal: closing.signal, heard: progress.heard }).then((row) => {
    if (row.state === "done") return over("good", "done", done, el("p", {}, "Open ", subjectLink(subject)));
    const tone = row.state === "failed" ? "danger" : "warn";
    return over(tone, row.state, doing, ...ending(row).filter(Boolean).map((text) => el("p", {}, text)), facts([["Operation", el("code", {}, id)]]));
  }).catch((error) => {
    if (!closing.signal.aborted) over("warn", "not known", doing, el("p", {}, error.detail ?? String(error)));
  });
}

/** Nothing of one token is shown to the next. */
export function closeNotices() {
  leaving.abort();
  leaving = new AbortController();
}
