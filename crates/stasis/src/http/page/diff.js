// What differs between two snapshots: files, tables, cookies; and the text of one file, side by side.

import { get, getAll, now, query, subjectPath } from "./api.js";
import { badge, code, count, el, empty, link, place, short, span, table, words } from "./dom.js";

export const TONES = { added: "good", removed: "danger" };

/** The hunks of a patch as rows of two sides: what goes and what comes stand beside each other. */
export function sides(patch) {
  const rows = [];
  let [left, right, inside] = [0, 0, false];
  let [gone, come] = [[], []];
  const flush = () => {
    for (let at = 0; at < Math.max(gone.length, come.length); at += 1) rows.push({ left: gone[at], right: come[at] });
    [gone, come] = [[], []];
  };
  for (const line of patch.split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/.exec(line);
    if (hunk) {
      flush();
      [left, right, inside] = [Number(hunk[1]), Number(hunk[2]), true];
      rows.push({ hunk: line });
    } else if (line.startsWith("diff --git ")) {
      flush();
      inside = false;
    } else if (!inside) {
      if (/^(Binary|GIT binary|rename|new file|deleted file|old mode|new mode)/.test(line)) rows.push({ hunk: line });
    } else if (line.startsWith("-")) {
      gone.push({ at: left, text: line.slice(1) });
      left += 1;
    } else if (line.startsWith("+")) {
      come.push({ at: right, text: line.slice(1) });
      right += 1;
    } else if (line.startsWith(" ")) {
      flush();
      rows.push({ left: { at: left, text: line.slice(1) }, right: { at: right, text: line.slice(1) }, same: true });
      left += 1;
      right += 1;
    } else if (line.startsWith("\\")) {
      rows.push({ hunk: line.slice(2) });
    }
  }
  flush();
  return rows;
}

export function sideBySide(patch) {
  const cell = (one, tone) => [el("td", { class: `line ${one ? tone : "none"}` }, one ? String(one.at) : ""), el("td", { class: `text ${one ? tone : "none"}` }, one ? one.text : "")];
  const row = (one) => (one.hunk
    ? el("tr", {}, el("td", { class: "hunk", colspan: "4" }, one.hunk))
    : el("tr", {}, ...cell(one.left, one.same ? "" : "gone"), ...cell(one.right, one.same ? "" : "come")));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Text before and after" }, el("table", { class: "sides" },
    el("caption", { class: "hidden" }, "The text before at the left, after at the right"),
    el("colgroup", {}, ["line", "text", "line", "text"].map((name) => el("col", { class: name }))),
    el("tbody", {}, sides(patch).map(row))));
}

function chooser({ kind, id, rows, before, after, path }) {
  const option = (chosen) => (row) => el("option", { value: row.snapshot, selected: row.snapshot === chosen }, `${short(row.snapshot)} · ${span(now() - row.at_ms)} ago${row.active ? " · active" : ""}${row.labels?.message ? ` · ${row.labels.message}` : ""}`);
  const usable = rows.filter((row) => !row.marks?.includes("tombstoned"));
  const side = (name, chosen) => el("select", { id: name }, usable.map(option(chosen)));
  const [one, other] = [side("before", before), side("after", after)];
  const go = () => { location.hash = place(["diff", kind, id], { before: one.value, after: other.value, path }); };
  one.addEventListener("change", go);
  other.addEventListener("change", go);
  const swap = el("button", { type: "button", class: "small", onclick: () => { location.hash = place(["diff", kind, id], { before: other.value, after: one.value, path }); } }, "Swap");
  return el("div", { class: "bar" }, el("label", { for: "before" }, "Before"), one, el("label", { for: "after" }, "After"), other, swap);
}

function section(title, rows) {
  return rows.length ? el("section", {}, el("h2", {}, title, " ", el("span", { class: "quiet" }, String(rows.length))), ...rows.make()) : null;
}

const withTable = (rows, caption, heads, cells) => Object.assign(rows, { make: () => [table(caption, heads, rows.map((one) => ({ cells: cells(one) })))] });

/** Added and removed ones of one sort, as rows. */
const changes = (both) => ["added", "removed"].flatMap((change) => (both?.[change] ?? []).map((one) => ({ change, one })));

function named(title, both, heads, cells) {
  const rows = changes(both);
  return section(title, withTable(rows, title, [{ name: "Change" }, ...heads], ({ change, one }) => [badge(change, TONES[change]), ...cells(one)]));
}

export async function diff({ rest: [kind, id], fields, signal }) {
  const { before = "latest~1", after = "latest", path = "" } = fields;
  const base = subjectPath(kind, id);
  const all = getAll(`${base}/snapshots`, { limit: 500 }, { signal, pages: 2 });
  const found = path
    ? get(query(`${base}/diff`, { before, after, path, patch: true }), { signal })
    : getAll(`${base}/diff`, { before, after }, { signal, pages: 5 });
  const [{ items: rows }, one] = await Promise.all([all, found]);
  const here = (more) => place(["diff", kind, id], { before: one.before, after: one.after, ...more });
  const files = withTable(one.items, "Files", [{ name: "Change" }, { name: "Path" }], (row) => [
    badge(words(row.change), TONES[row.change]), path ? row.path : link(here({ path: row.path }), row.path)]);
  const tables = withTable(one.tables ?? [], "Tables", [{ name: "Database" }, { name: "Table" }, { name: "Rows before", number: true }, { name: "Rows after", number: true }],
    (row) => [row.path, el("code", {}, row.table), String(row.before ?? "–"), String(row.after ?? "–")]);
  const origin = (text) => [text];
  const differs = one.items.length || tables.length || [one.cookies, one.local_storage, one.indexed_db].some((both) => changes(both).length);
  const gaps = (one.not_in_patch ?? []).map((gap) => el("li", {}, gap.path, ": ", typeof gap.why === "string" ? words(gap.why) : JSON.stringify(gap.why)));
  return el("div", {},
    el("nav", { class: "crumbs", "aria-label": "Path" }, link("#/", "Subjects"), " / ", link(place(["subject", kind, id]), id), " / ", path ? [link(here({}), "changes"), " / ", path] : "changes"),
    el("h1", {}, path ? path.split("/").at(-1) : `Changes of ${id}`),
    chooser({ kind, id, rows, before: one.before, after: one.after, path }),
    el("p", { class: "quiet" }, "From ", code(one.before), " to ", code(one.after), `: ${count(one.differing ?? one.items.length, "entry differs", "entries differ")}`),
    one.patch ? sideBySide(one.patch) : path && differs ? empty("No text to compare", "What differs is not text: see below.") : null,
    gaps.length ? el("section", {}, el("h2", {}, "Not shown as text"), el("ul", {}, gaps)) : null,
    path ? null : named("Cookies", one.cookies, [{ name: "Site" }, { name: "Cookie" }], (cookie) => [cookie.site, el("code", {}, cookie.name)]),
    path ? null : named("Local Storage", one.local_storage, [{ name: "Origin" }], origin),
    path ? null : named("IndexedDB", one.indexed_db, [{ name: "Origin" }], origin),
    section("Tables", tables),
    path ? null : section("Files", files),
    one.unread?.length ? el("section", { class: "note warn" }, el("h2", {}, "Could not be looked into"), el("ul", {}, one.unread.map((text) => el("li", {}, text)))) : null,
    differs ? null : empty("Nothing differs", "Both snapshots have the same content."));
}
