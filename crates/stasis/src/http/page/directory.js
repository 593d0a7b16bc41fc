// The directory that `stasis ui` was started for: what each prompt changed, and the way back.

import { get, getAll, query, send } from "./api.js";
import { freshKey, show } from "./actions.js";
import { TONES, sideBySide } from "./diff.js";
import { ago, badge, button, code, count, el, empty, facts, link, place, problem, say, short, size, table, words } from "./dom.js";
import { follow } from "./live.js";
import { timeline } from "./timeline.js";

const DIFF = "/v1/directory/diff";
const UNDO = "/v1/directory/undo";
const restorePath = (snapshot) => `/v1/directory/snapshots/${encodeURIComponent(snapshot)}/restore`;

const isMoment = (item) => item.kind === "checkpoint" || item.kind === "snapshot";
const promptsOf = (item) => (item.agent_events ?? []).filter((one) => one.event === "prompt");

/** What stands for a time in a list: a prompt, a command, a save. */
function named(item) {
  const first = item.agent_events?.[0];
  if (item.kind === "snapshot") return [badge("saved", "good"), " ", item.labels?.message ?? item.message ?? words(item.reason ?? "")];
  if (item.kind === "undo") return [badge("undo"), ` before the ${item.act} of ${item.path ?? item.checkpoint}`];
  if (item.kind === "restore") return [badge("restored"), " ", code(item.snapshot)];
  if (item.kind === "fork") return [badge("fork"), " ", el("code", {}, item.name ?? item.snapshot)];
  if (item.kind === "gap") return [badge("gap", "warn"), ` ${count(item.missed, "change was", "changes were")} not seen as they happened`];
  if (item.name) return [badge(item.origin), " ", item.name];
  if (first?.event === "command") return [badge("command"), " before ", el("code", {}, first.text ?? "a command")];
  if (first?.event === "edit") return [badge("edit"), " before an edit of ", el("code", {}, first.text ?? "a file")];
  if (first) return [badge(first.event), " before ", first.text ?? `a ${first.event}`];
  return [badge(item.origin ?? "checkpoint")];
}

function tally(changed) {
  if (!changed) return el("span", { class: "quiet" }, "–");
  const { created, edited, deleted, total } = changed;
  if (!total) return el("span", { class: "quiet" }, "nothing");
  const said = [[created, "added"], [edited, "changed"], [deleted, "removed"]].filter(([number]) => number);
  return el("span", {}, said.map(([number, word]) => `${number} ${word}`).join(", "));
}

/** The files that differ between two moments, fetched when somebody wants to see them. */
function changesOf(label, { before, after }, signal) {
  const body = el("div", {});
  const load = async () => {
    body.replaceChildren(el("p", { class: "quiet", role: "status" }, "Comparing …"));
    try {
      const found = await get(query(DIFF, { before, after, limit: 200 }), { signal });
      const rows = found.items.map((row) => el("li", {}, badge(words(row.change), TONES[row.change]), " ", link(place(["changes"], { before, after, path: row.path }), row.path)));
      const more = found.differing - rows.length;
      body.replaceChildren(rows.length ? el("ul", { class: "bare" }, rows) : el("p", { class: "quiet" }, "Nothing differs."),
        more > 0 ? el("p", {}, link(place(["changes"], { before, after }), `and ${more} more`)) : "");
    } catch (error) {
      if (error.name !== "AbortError") body.replaceChildren(problem(error, load));
    }
  };
  const details = el("details", { class: "changes" }, el("summary", {}, label), body);
  details.addEventListener("toggle", () => { if (details.open && !body.childElementCount) load(); });
  return details;
}

/** How an operation ended: what it answered. */
async function answered(path, body, { signal, key }) {
  const asked = await send("POST", path, body, { key });
  const row = await follow(asked.body.operation_id, { signal, heard: () => {} });
  if (row.state === "done") return row.answer ?? { items: [], done: true, is_cut: true };
  throw row.problem ?? { title: "It was interrupted", detail: "The service ended meanwhile. Look at the directory for what it did." };
}

const ACTS = { added: ["comes back", "good"], removed: ["goes", "danger"] };

/** What is done to the Git repository, as far as anybody can tell. */
function gitText(git) {
  if (!git?.moves?.length) return null;
  const leaving = git.commits_leaving === null || git.commits_leaving === undefined
    ? "nobody can tell how many commits leave" : `${count(git.commits_leaving, "commit leaves", "commits leave")} ${git.branch ?? "it"}`;
  const branch = git.branch !== git.branch_then ? `, and the branch is ${git.branch_then ?? "none"} then` : "";
  return ["Git", badge("look here", "warn"), ` ${git.moves.join(", ")} moves: ${leaving}${branch}`,
    git.commits?.length ? el("ul", {}, git.commits.map((one) => el("li", {}, code(one.id), " ", one.subject))) : null];
}

const listed = (title, all) => (all?.length ? [title, all.join(", ")] : null);

function planText(plan) {
  const rows = plan.items.map((row) => el("li", {}, badge(...(ACTS[row.change] ?? ["changes"])), " ", row.path));
  const all = plan.creates + plan.replaces + plan.deletes;
  return el("div", { role: "status" }, facts([
    ...[["Goes", plan.deletes], ["Changes", plan.replaces], ["Comes back", plan.creates]]
      .map(([name, number]) => (number ? [name, count(number, "entry", "entries")] : null)),
    gitText(plan.git), listed("Stays as it is", plan.left_alone),
  ]), ...(plan.warnings ?? []).map((text) => el("p", { class: "note warn" }, text)),
  el("ul", { class: "bare plan", tabindex: "0", "aria-label": "What is done to each entry" }, rows),
  all > rows.length ? el("p", { class: "quiet" }, `and ${all - rows.length} more`) : null);
}

/** What was done, where that is not all that there is to say. */
function remarks(changed) {
  const rows = [listed("Stayed as it is", changed.left_alone), listed("Changed by others meanwhile", changed.changed_meanwhile)].filter(Boolean);
  const warnings = [...(changed.warnings ?? []), changed.can_be_undone || changed.is_cut ? null : "Nothing can be undone of it.", changed.done ? null : "It was taken back: something was not well afterwards."].filter(Boolean);
  return rows.length || warnings.length ? el("div", {}, warnings.map((text) => el("p", { class: "note warn" }, text)), facts(rows)) : null;
}

/** Shows what a change would do, and does that and nothing else when somebody agrees. */
function askChange(view, { path, body: asked = {}, title, verb, done, evenNothing }) {
  const closing = new AbortController();
  const [body, said] = [el("div", {}), el("div", {})];
  const go = el("button", { type: "button", class: "primary", disabled: true }, verb);
  const cancel = el("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const key = freshKey();
  let plan = null;
  const failed = (error) => {
    if (closing.signal.aborted) return;
    said.replaceChildren(problem(error, () => { said.replaceChildren(); look(); }, "Look again"));
    body.replaceChildren();
  };
  const look = async () => {
    go.disabled = true;
    body.replaceChildren(el("p", { class: "quiet", role: "status" }, "Looking at what would change …"));
    try {
      plan = await answered(path, asked, { signal: closing.signal });
      if (plan.is_cut) throw { title: "The plan is too long to be shown", detail: "Nothing was changed. The command line shows it: stasis restore --dry-run, stasis undo --dry-run." };
      const nothing = !(plan.creates + plan.replaces + plan.deletes);
      body.replaceChildren(nothing ? el("p", {}, evenNothing ?? "The directory is like that already: nothing would change.") : planText(plan));
      go.disabled = nothing && !evenNothing;
    } catch (error) { failed(error); }
  };
  const act = async () => {
    go.disabled = true;
    cancel.disabled = true;
    // What was begun comes to its end, whatever is looked at meanwhile.
    const ending = new AbortController();
    try {
      const changed = await answered(path, { ...asked, agreed: plan.digest }, { signal: ending.signal, key: `${key}-${plan.digest}` });
      const left = remarks(changed);
      cancel.disabled = false;
      say(changed.done ? done : "The directory is as it was before.");
      if (!left) {
        dialog.close();
        view.reload();
        return;
      }
      // It is read before the timeline is made anew, which would take it away.
      dialog.addEventListener("close", () => view.reload());
      body.replaceChildren(left);
      cancel.textContent = "Close";
      go.hidden = true;
      hint.hidden = true;
    } catch (error) {
      cancel.disabled = false;
      if (dialog.isConnected) failed(error);
      else say(error.detail ?? String(error));
    }
  };
  go.addEventListener("click", act);
  const hint = el("p", { class: "quiet" }, "What is there now is kept: Undo brings it back.");
  const dialog = el("dialog", { "aria-labelledby": "ask", onclose: () => closing.abort(), oncancel: (event) => { if (cancel.disabled) event.preventDefault(); } },
    el("h2", { id: "ask" }, title), body, hint, said,
    el("div", { class: "bar end" }, cancel, go));
  show(dialog, view, cancel);
  look();
}

const askBack = (view, item, what) => askChange(view, {
  path: restorePath(item.snapshot), body: { made_at_ms: item.at_ms }, title: `Go back to ${what}`, verb: "Go back", done: `The directory is what it was in ${short(item.snapshot)}.`,
});

const HEADS = [{ name: "When" }, { name: "What" }, { name: "Changed" }, { name: "Actions" }];

/** The moments of a part of the time, the newest first. */
function moments(view, items, caption) {
  const rows = items.map((item) => ({
    id: isMoment(item) ? `row-${item.snapshot}` : null,
    cells: [
      ago(item.at_ms), [isMoment(item) ? code(item.snapshot) : "", " ", ...named(item)].flat(), tally(item.changed),
      el("span", { class: "acts" }, isMoment(item) ? [
        item.before ? link(place(["changes"], { before: item.before, after: item.snapshot }), "Changes") : null,
        link(place(["changes"], { before: item.snapshot }), "Since then"),
        view.may ? button("Go back …", () => askBack(view, item, short(item.snapshot)), "small") : null,
      ].filter(Boolean).flatMap((one) => [one, " "]) : ""),
    ],
  }));
  return table(caption, HEADS, rows);
}

/** What followed a prompt until the next one, and the prompt itself. */
function promptPanel(view, { item, prompt, steps, after }, signal) {
  const text = prompt.text ?? `Prompt ${prompt.prompt ?? ""}`;
  return el("section", { class: "panel prompt", "aria-label": `Prompt: ${text}` },
    el("div", { class: "bar" }, el("h3", {}, "❯ ", text), badge(prompt.agent), prompt.prompt ? el("span", { class: "quiet small" }, `prompt ${prompt.prompt}`) : null, el("span", { class: "quiet small" }, ago(prompt.timestamp_ms))),
    prompt.late_ms ? el("p", { class: "quiet small" }, `Its checkpoint was complete ${prompt.late_ms} ms after the prompt: what the agent did meanwhile may be in it.`) : null,
    changesOf(after ? "What it changed" : "What it changed until now", { before: item.snapshot, after: after?.snapshot }, signal),
    steps.length === 0 ? null : el("details", { open: steps.length > 1 && steps.length < 6 }, el("summary", {}, count(steps.length, "moment")), moments(view, steps, `After the prompt ${text}`)),
    view.may ? el("div", { class: "bar" }, button("Go back to before this prompt …", () => askBack(view, item, "before this prompt"))) : null);
}

/**
 * Groups what happened by the prompts that it followed; what happened before the first is a group without one. A checkpoint may be that of several
 * prompts, when nothing changed between them, or when somebody went back to it: each prompt counts once, when it was asked.
 */
export function byPrompts(items) {
  const asked = new Map();
  for (const item of [...items].reverse()) {
    for (const prompt of promptsOf(item)) {
      const name = prompt.prompt ?? `${prompt.turn_id} ${prompt.timestamp_ms}`;
      if (!asked.has(name)) asked.set(name, { item, prompt, steps: [] });
    }
  }
  const groups = [...asked.values()].sort((one, other) => other.prompt.timestamp_ms - one.prompt.timestamp_ms);
  groups.forEach((group, at) => { group.after = groups[at - 1]?.item; });
  const rest = { steps: [] };
  for (const item of items) {
    // A prompt's own checkpoint may be complete a moment after it.
    const own = groups.findLast((group) => group.item === item);
    const group = own ?? groups.find(({ prompt }) => prompt.timestamp_ms <= item.at_ms);
    (group ?? rest).steps.push(item);
  }
  return rest.steps.length ? [...groups, rest] : groups;
}

/** The moments as the picture has them. */
const bars = (items) => items.filter(isMoment).map((item) => ({
  snapshot: item.snapshot, bytes: item.bytes, at_ms: item.at_ms, active: item.active, pinned: item.pinned,
  labels: { message: item.name ?? item.labels?.message }, prompt: promptsOf(item).map((one) => one.text ?? `prompt ${one.prompt}`).join(", "),
}));

export async function directory({ who, signal, reload }) {
  const shown = await get(query("/v1/directory", { limit: 500 }), { signal });
  const view = { who, signal, reload, may: who.scope !== "read" };
  const all = shown.items.filter(isMoment);
  all.forEach((item, at) => { item.before = all[at + 1]?.snapshot; });
  const undoable = shown.items.some((item) => item.kind === "undo" || (item.kind === "restore" && item.is_next_undo));
  const groups = byPrompts(shown.items);
  const undo = () => askChange(view, { path: UNDO, title: "Undo the last change", verb: "Undo", done: "The last change was taken back; another undo takes that back.", evenNothing: "Nothing differs from before the last change any more: going on lets go of it, and the next undo takes back the one before." });
  const newest = all[0];
  const chosen = (name) => {
    const row = document.getElementById(`row-${name}`);
    const folded = row?.closest("details");
    if (folded) folded.open = true;
    row?.scrollIntoView({ block: "center" });
    row?.querySelector("a, button")?.focus();
  };
  const hints = [
    shown.hook_warning ? el("p", { class: "note warn" }, shown.hook_warning) : null,
    shown.is_protected ? null : el("p", { class: "note warn" }, "No checkpoints are made here: ", el("code", {}, "stasis protect"), " makes one before every prompt, command and edit of an agent."),
    shown.unreadable?.length ? el("section", { class: "note warn" }, el("h2", {}, "Cannot be read"), el("ul", {}, shown.unreadable.map((one) => el("li", {}, `${one.checkpoint}: ${one.why}`)))) : null,
  ];
  return el("div", {},
    el("div", { class: "bar" }, el("h1", {}, shown.name), badge("directory"), button("Refresh", reload, "small"), undoable && view.may ? button("Undo the last change …", undo, "small") : null),
    el("p", { class: "crumbs" }, shown.path),
    ...hints.filter(Boolean),
    newest ? el("section", { class: "panel" }, el("h2", {}, "Since the last moment"), el("p", {}, code(newest.snapshot), " is of ", ago(newest.at_ms), `, ${size(newest.bytes)} in ${count(newest.files_count ?? newest.entries ?? 0, newest.files_count === undefined ? "entry" : "file", newest.files_count === undefined ? "entries" : "files")}.`), changesOf("What changed since", { before: newest.snapshot }, signal)) : null,
    el("section", { class: "panel" }, el("h2", {}, "Timeline"), all.length ? timeline(bars(shown.items), [], { whyNot: () => null, forked: () => null, chosen }) : empty("Nothing yet", "A save or a checkpoint begins the timeline.")),
    groups.some((group) => group.prompt) ? el("h2", {}, "What each prompt changed") : null,
    ...groups.map((group) => (group.prompt ? promptPanel(view, group, signal) : el("section", {}, el("h2", {}, groups.length > 1 ? "Before the first prompt" : "Moments"), moments(view, group.steps, "Moments without a prompt")))),
    shown.older ? el("p", { class: "quiet" }, `${shown.older} older ones are not shown; `, el("code", {}, "stasis log --all"), " lists them.") : null);
}

/** What differs between two moments, or between one and now; of one file side by side. */
export async function changes({ fields, signal }) {
  const { before, after, path } = fields;
  const found = path
    ? await get(query(DIFF, { before, after, path, patch: true }), { signal })
    : await getAll(DIFF, { before, after }, { signal, pages: 5 });
  const here = (more) => place(["changes"], { before, after, ...more });
  const rows = found.items.map((row) => ({ cells: [badge(words(row.change), TONES[row.change]), path ? row.path : link(here({ path: row.path }), row.path)] }));
  const tables = (found.tables ?? []).map((row) => ({ cells: [row.path, el("code", {}, row.table), String(row.before ?? "–"), String(row.after ?? "–")] }));
  const gaps = (found.not_in_patch ?? []).map((gap) => el("li", {}, gap.path, ": ", typeof gap.why === "string" ? words(gap.why) : JSON.stringify(gap.why)));
  const uncounted = (found.uncounted ?? []).map((one) => el("li", {}, `${one.path}: ${one.why}`));
  const now = found.after ? code(found.after) : "now";
  return el("div", {},
    el("nav", { class: "crumbs", "aria-label": "Path" }, link("#/directory", "Timeline"), " / ", path ? [link(here({}), "changes"), " / ", path] : "changes"),
    el("h1", {}, path ? path.split("/").at(-1) : "Changes"),
    el("p", { class: "quiet" }, "From ", code(found.before), " to ", now, `: ${count(found.differing ?? found.items.length, "entry differs", "entries differ")}`),
    found.patch ? sideBySide(found.patch) : path && found.items.length ? empty("No text to compare", "What differs is not text: see below.") : null,
    gaps.length ? el("section", {}, el("h2", {}, "Not shown as text"), el("ul", {}, gaps)) : null,
    tables.length ? el("section", {}, el("h2", {}, "Tables"), table("Tables", [{ name: "Database" }, { name: "Table" }, { name: "Rows before", number: true }, { name: "Rows after", number: true }], tables)) : null,
    uncounted.length ? el("section", { class: "note warn" }, el("h2", {}, "Rows that could not be counted"), el("ul", {}, uncounted)) : null,
    rows.length && !found.patch ? el("section", {}, el("h2", {}, "Files"), table("Files", [{ name: "Change" }, { name: "Path" }], rows)) : null,
    found.next_cursor ? el("p", { class: "quiet" }, `The first ${rows.length} are shown.`) : null,
    rows.length ? null : empty("Nothing differs", "Both have the same content."));
}
