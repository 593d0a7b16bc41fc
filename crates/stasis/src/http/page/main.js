// Which view is shown, and what stands above all of them.

import { token } from "./api.js";
import { diff } from "./diff.js";
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

const VIEWS = { "": subjects, subject, files, diff, leases, operations, storage, jobs, events };
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
  const { view, rest, fields } = route();
  try {
    who ??= await whoami(signal);
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

addEventListener("hashchange", () => location.hash !== "#main" && (who || token.get() ? show() : leave()));
addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const search = document.querySelector("input[type=search]");
  if (search) search.focus();
  else location.hash = "#/";
});
show();
