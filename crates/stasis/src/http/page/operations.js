// What was asked for in the last day and takes longer than a request, or was asked for with a key.

import { getAll } from "./api.js";
import { ago, badge, button, code, count, el, empty, place, size, subjectLink, table, took, words } from "./dom.js";
import { ending, progressOf } from "./notices.js";
import { follow, keepFresh } from "./live.js";

const FRESH = 5000;
const SHOWN = 200;
const TONES = { running: "warn", done: "good", failed: "danger", interrupted: "danger" };
const HEADS = [{ name: "Operation" }, { name: "State" }, { name: "Begun" }, { name: "Took", number: true }, { name: "By" }, { name: "Result" }];
// As the service calls its routes, and as somebody at the page would.
const WHAT = {
  fork_subject: "Fork a profile", wake_session: "Wake a session", sleep_session: "Sleep a session",
  roll_back_subject: "Roll back", rollback_profile: "Roll back", force_unlock_subject: "Force-unlock", force_unlock_profile: "Force-unlock",
  pin_snapshot: "Pin a snapshot", unpin_snapshot: "Unpin a snapshot", acquire_lease: "Acquire a lease", renew_lease: "Renew a lease",
  restore_snapshot: "Restore to a directory", save_subject: "Save a directory",
  release_lease: "Release a lease", beat_session: "Heartbeat of a session",
};

function answered({ answer }) {
  const subject = answer?.subject ?? (answer?.session && `session:${answer.session}`);
  if (!answer) return el("span", { class: "quiet" }, "This token does not see the answer, or it was too long to be kept");
  if (answer.applied === false && answer.entries !== undefined) return el("span", {}, `a plan: would write ${count(answer.entries, "entry", "entries")}, ${size(answer.bytes)}`);
  if (answer.applied && answer.files !== undefined) return el("span", {}, `wrote ${count(answer.files, "file")}, ${size(answer.bytes)}, of `, code(answer.snapshot));
  if (!subject) return el("span", { class: "quiet" }, "–");
  return [subjectLink(subject), answer.forked_from ? [" from ", subjectLink(answer.forked_from)] : [], answer.outcome ? `: ${words(String(answer.outcome))}` : ""].flat();
}

function failed(row) {
  const [title, detail] = ending(row);
  return [el("strong", {}, title), detail ? el("span", { class: "small block" }, detail) : null].filter(Boolean);
}

function rowOf(row, progress) {
  const result = { running: () => progress.shown, done: () => answered(row) }[row.state] ?? (() => failed(row));
  return {
    tone: row.state === "running" ? "current" : null,
    cells: [[el("strong", {}, WHAT[row.route] ?? words(row.route)), " ", code(row.operation_id)], badge(row.state, TONES[row.state]), ago(row.begun_at_ms),
      row.ended_at ? took(Date.parse(row.ended_at) - row.begun_at_ms) : "–", row.by || "unknown", result()],
  };
}

export async function operations({ fields, signal, reload }) {
  const ask = () => getAll("/v1/operations", {}, { signal, pages: 5 });
  let all = await ask();
  const states = el("select", { id: "state" }, el("option", { value: "" }, "All states"),
    Object.keys(TONES).map((state) => el("option", { value: state, selected: fields.state === state }, state)));
  const list = el("div", {});
  const said = el("p", { class: "quiet", role: "status" });
  // Each one that runs is followed once, however often the list is drawn; a list that was asked for before its end does not undo it.
  const followed = new Map();
  const ended = new Map();

  const watch = (row) => {
    if (followed.has(row.operation_id)) return followed.get(row.operation_id);
    const progress = progressOf(row.begun_at_ms, signal);
    progress.heard(row.progress);
    followed.set(row.operation_id, progress);
    follow(row.operation_id, { signal, heard: progress.heard }).then((end) => {
      ended.set(end.operation_id, end);
      draw(all);
    }).catch(() => {});
    return progress;
  };
  const draw = (got) => {
    all = { ...got, items: got.items.map((row) => ended.get(row.operation_id) ?? row) };
    const chosen = states.value;
    const found = all.items.filter((row) => !chosen || row.state === chosen);
    const tally = Object.keys(TONES).map((state) => [state, all.items.filter((row) => row.state === state).length]).filter(([, many]) => many);
    said.textContent = [count(all.items.length, "operation"), ...tally.map(([state, many]) => `${many} ${state}`), all.truncated || all.next_cursor || found.length > SHOWN ? "not all of them are shown" : null].filter(Boolean).join(", ");
    const none = all.items.length
      ? empty("Nothing matches", `No operation of the last day is ${chosen}. `, button("Show all", () => { states.value = ""; draw(all); states.focus(); }))
      : empty("No operations in the last day", "What takes longer than a request is listed here, with how far it has come: a restore, a fork of a profile, a session that sleeps or wakes.");
    list.replaceChildren(found.length ? table("Operations, the newest first", HEADS, found.slice(0, SHOWN).map((row) => rowOf(row, row.state === "running" ? watch(row) : null))) : none);
    history.replaceState(null, "", place(["operations"], { state: chosen }));
  };
  states.addEventListener("change", () => draw(all));
  draw(all);
  const stale = keepFresh(list, { every: FRESH, signal, reload, ask, draw });
  return el("div", {},
    el("div", { class: "bar" }, el("h1", {}, "Operations"), button("Refresh", reload, "small")),
    el("div", { class: "bar" }, el("label", { for: "state", class: "hidden" }, "State"), states),
    stale, said, list);
}
