// A snapshot is written to a new directory of the server's host: where to, what the server would do, and then the name of the subject.

import { send, subjectPath } from "./api.js";
import { freshKey, show } from "./actions.js";
import { ago, code, count, el, facts, problem, short, size } from "./dom.js";
import { follow } from "./live.js";
import { notice } from "./notices.js";

/** What a directory could be called: notes-1a2b3c4d beneath the first root. */
const proposed = (view, row) => `${view.who.roots[0].replace(/\/$/, "")}/${view.id.replace(/[^\w.-]+/g, "-")}-${short(row.snapshot)}`;

/** How the plan ended, which is an operation as well: it reads what lies at the place. */
async function planned(path, to, signal) {
  const { body } = await send("POST", path, { to });
  const row = await follow(body.operation_id, { signal, heard: () => {} });
  if (row.state === "done" && row.answer) return row.answer;
  throw row.problem ?? { title: "There is no plan", detail: "The server ended while it looked. Nothing was written." };
}

/** Where to, and the text that says where that may be. */
function destination(view, row) {
  const roots = view.who.roots.flatMap((root, at) => [at ? ", " : "", el("code", {}, root)]);
  return [
    el("label", { for: "to" }, "New directory on the server’s host"),
    el("input", { id: "to", autocomplete: "off", spellcheck: "false", required: true, value: proposed(view, row), "aria-describedby": "to-hint" }),
    el("p", { id: "to-hint", class: "quiet small" }, "Beneath ", ...roots, ". It must not be there yet, or be empty. What is written belongs to the user that the server runs as."),
  ];
}

export function askRestore(view, row) {
  const path = subjectPath(view.kind, view.id, "snapshots", row.snapshot, "restore");
  const closing = new AbortController();
  const where = destination(view, row);
  const [, to] = where;
  const typed = el("input", { id: "typed", autocomplete: "off", spellcheck: "false" });
  const [plan, said] = [el("div", {}), el("div", {})];
  const agree = el("div", { class: "fields", hidden: true }, el("label", { for: "typed" }, "Type ", el("code", {}, view.id), " to confirm"), typed);
  const go = el("button", { type: "submit", class: "primary" }, "Show the plan");
  let agreed = null;
  let key = freshKey();

  const check = () => { go.disabled = agreed ? typed.value !== view.id : !to.value.trim(); };
  const forget = () => {
    [agreed, key] = [null, freshKey()];
    plan.replaceChildren();
    said.replaceChildren();
    agree.hidden = true;
    typed.value = "";
    go.textContent = "Show the plan";
    check();
  };
  const look = async () => {
    const wanted = to.value.trim();
    plan.replaceChildren(el("p", { class: "quiet", role: "status" }, "Looking at the place …"));
    const found = await planned(path, wanted, closing.signal);
    // Somebody went on typing meanwhile.
    if (to.value.trim() !== wanted) { plan.replaceChildren(); return; }
    agreed = wanted;
    plan.replaceChildren(el("div", { role: "status" }, facts([["Writes", `${count(found.entries, "entry", "entries")}, ${size(found.bytes)}`], ["To", el("code", {}, wanted)], ["Replaces", "nothing"]])));
    agree.hidden = false;
    go.textContent = "Restore";
    typed.focus();
  };
  const restore = async () => {
    const { body } = await send("POST", path, { to: agreed, confirm: true }, { key });
    dialog.close();
    notice({ id: body.operation_id, doing: `Restoring ${short(row.snapshot)} of ${view.id} to ${agreed}`, done: `${agreed} has ${short(row.snapshot)} of ${view.id}.`, subject: view.whole });
  };
  const submit = async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    said.replaceChildren();
    try {
      await (agreed ? restore() : look());
    } catch (error) {
      if (closing.signal.aborted) return;
      // A refusal is kept under its key; a connection that failed may have begun it, and asks again with the same one.
      if (error.status) key = freshKey();
      if (!agreed) plan.replaceChildren();
      said.replaceChildren(problem(error));
    }
    check();
  };
  const dialog = el("dialog", { "aria-labelledby": "ask", onclose: () => closing.abort() },
    el("h2", { id: "ask" }, "Restore to a new directory"),
    facts([["Snapshot", code(row.snapshot), ", saved ", ago(row.at_ms), `, ${size(row.bytes)}`, row.labels?.message ? `, “${row.labels.message}”` : ""]]),
    el("form", { onsubmit: submit, oninput: (event) => (event.target === to ? forget() : check()) },
      ...where, plan, agree, said,
      el("div", { class: "bar end" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go)));
  show(dialog, view, to);
  to.select();
}
