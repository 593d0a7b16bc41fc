// Which view is shown, and what stands above all of them.

import { token } from "./api.js";
import { diff } from "./diff.js";
import { changes, directory } from "./directory.js";
import { el, link, problem } from "./dom.js";
import { events } from "./events.js";
import { files } from "./files.js";
import { jobs } from "./jobs.js";
import { leases } from "./leases.js";
import { login, whoami } from "./login.js";
import { closeNotices } from "./notices.js";
import { operations } from "./operations.js";
import { storage } from "./storage.js";
import { subject } from "./subject.js";
import { subjects } from "./subjects.js";

const VIEWS = { "": subjects, directory, changes, subject, files, diff, leases, operations, storage, jobs, events };
const main = document.getElementById("main");
const header = document.getElementById("top");
let who = null;
let leaving = new AbortController();

function route() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...rest] = path.split("/").map(decodeURIComponent);
  return { view, rest, fields: Object.fromEntries(new URLSearchParams(search)) };
}

function top(view) {
  const entry = (name, href, label) => el("a", { href, "aria-current": view === name ? "page" : null }, label);
  header.replaceChildren(
    link("#/", el("span", { class: "brand" }, "Stasis")),
    ...(who ? [
      el("nav", { "aria-label": "Views" }, 
        who.directory ? entry("directory", "#/directory", "Timeline") : null,
        entry("", "#/", "Subjects"), entry("leases", "#/leases", "Leases"), entry("operations", "#/operations", "Operations"), entry("storage", "#/storage", "Storage"),
        who.scope === "admin" ? entry("jobs", "#/jobs", "Jobs") : null, entry("events", "#/events", "Events")),
      el("span", { class: "who" }, `${who.tenant} · ${who.scope}`),
      token.get() ? el("button", { type: "button", onclick: () => leave() }, "Sign out") : null,
    ].filter(Boolean) : []));
}

function leave(because) {
  token.clear();
  who = null;
  leaving.abort();
  closeNotices();
  top();
  document.title = "Sign in · Stasis";
  main.replaceChildren(login({ because, entered: (one) => { who = one; show(); } }));
  document.getElementById("token").focus();
}

/** Which control of which row has the focus: it has it again in the same view, made anew. */
function spot() {
  const row = document.activeElement?.closest("tr[id]");
  return row && { row: row.id, at: [...row.querySelectorAll("a, button, input")].indexOf(document.activeElement) };
}

function focusOn({ row, at }) {
  const controls = [...(document.getElementById(row)?.querySelectorAll("a, button, input") ?? [])];
  controls[Math.min(at, controls.length - 1)]?.focus({ preventScroll: true });
}

async function show({ keep = false } = {}) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  try {
    who ??= await whoami(signal);
    // Whoever began with one directory sees that first.
    if (who.directory && !location.hash) history.replaceState(null, "", "#/directory");
    const { view, rest, fields } = route();
    top(view);
    if (!VIEWS[view]) throw { title: "There is no such view", detail: location.hash };
    if (!keep) main.replaceChildren(el("p", { class: "loading", role: "status" }, "Loading …"));
    const made = await VIEWS[view]({ rest, fields, who, signal, reload: () => show({ keep: true }) });
    if (signal.aborted) return;
    const focused = keep && spot();
    main.replaceChildren(made);
    if (focused) focusOn(focused);
    const title = main.querySelector("h1");
    document.title = `${title?.textContent ?? view} · Stasis`;
    // What had the focus is gone with the view before.
    if (title && document.activeElement === document.body && !main.querySelector("input[type=search]")) {
      title.tabIndex = -1;
      title.focus({ preventScroll: true });
    }
    if (!keep) scrollTo(0, 0);
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) leave(token.get() ? "The token does not count any more. Sign in again." : null);
    else {
      document.title = "Problem · Stasis";
      main.replaceChildren(el("h1", { class: "hidden" }, "Problem"), problem(error, () => show()));
    }
  }
}

/**
 * The address that `stasis ui` prints has a token behind its `#`: it is taken out of it, and stays in this tab. Of a service for many a link
 * must not sign anybody in: he would work as somebody else, and not know it.
 */
async function enter() {
  const [, given] = /^#token=(\w+)$/.exec(location.hash) ?? [];
  if (!given) return;
  history.replaceState(null, "", location.pathname);
  const before = token.get();
  token.set(given);
  const shown = await whoami().catch(() => null);
  if (shown?.directory) who = shown;
  else if (before) token.set(before);
  else token.clear();
}

addEventListener("hashchange", async () => {
  if (location.hash === "#main") return;
  await enter();
  if (who || token.get()) show();
  else leave();
});
addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const search = document.querySelector("input[type=search]");
  if (search) search.focus();
  else location.hash = "#/";
});
await enter();
show();
