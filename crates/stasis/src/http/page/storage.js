// What a tenant has in the store, and what that takes of it.

import { get } from "./api.js";
import { ago, badge, button, el, empty, link, place, size, svg, table, took } from "./dom.js";

// In the order of the table; what shares chunks with each other stands together.
const KINDS = [["dir", "Directories"], ["session", "Sessions"], ["container", "Containers"], ["profile", "Profiles"]];
const OF_KINDS = [{ name: "Kind" }, { name: "Subjects", number: true }, { name: "Snapshots", number: true }, { name: "Size of files", number: true }, { name: "Share", hidden: true }, { name: "Last proof" }, { name: "State" }];
const OF_FORMS = [{ name: "Stored as" }, { name: "Of" }, { name: "Size of files", number: true }, { name: "Stored", number: true }, { name: "Dedup ratio", number: true }, { name: "Compared", hidden: true }];

/** A bar of so much of the most; behind it a paler one, where what it stands for was larger before. */
function bar(part, most, before = 0) {
  const wide = (bytes) => `${most ? Math.min(100, Math.max(bytes ? 0.5 : 0, (100 * bytes) / most)) : 0}%`;
  return svg("svg", { class: "share", "aria-hidden": "true" },
    svg("rect", { class: "track", width: "100%", height: 16, rx: 2 }),
    before ? svg("rect", { class: "before", width: wide(before), height: 16, rx: 2 }) : null,
    svg("rect", { class: "part", width: wide(part), height: 16, rx: 2 }));
}

/** How many times as much it would be: 3.4×. */
const times = (ratio) => `${ratio < 10 ? ratio.toFixed(1) : Math.round(ratio).toLocaleString("en")}×`;
const number = (value) => value.toLocaleString("en");
const quiet = (text) => el("span", { class: "quiet" }, text);

function proven({ tried, restored_at_ms: at, broken }) {
  if (broken) return [badge(`${broken} broken`, "danger"), at ? [" ", ago(at)] : []].flat();
  return tried ? ago(at) : quiet("none tried");
}

function kindRow([kind, name], one, most) {
  const known = one.logical_bytes !== undefined && one.logical_bytes !== null;
  return {
    tone: one.unreadable ? "damaged" : null,
    cells: [link(place([], { kind }), el("strong", {}, name)), number(one.subjects), number(one.snapshots),
      known ? size(one.logical_bytes) : quiet("not known"), known ? bar(one.logical_bytes, most) : "",
      one.subjects ? proven(one.proofs) : quiet("–"),
      one.unreadable ? badge(`${one.unreadable} unreadable`, "danger") : one.subjects ? badge("readable", "good") : quiet("none")],
  };
}

function formRows(stats, logical) {
  const most = Math.max(logical, stats.chunk_bytes, stats.archive_bytes);
  const chunks = [el("strong", {}, "Chunks"), "directories, sessions, containers", size(logical), size(stats.chunk_bytes),
    stats.dedup_ratio ? el("strong", {}, times(stats.dedup_ratio)) : quiet("–"), bar(stats.chunk_bytes, most, logical)];
  const archives = [el("strong", {}, "Archives"), "profiles", quiet("not known"), size(stats.archive_bytes), quiet("not known"), bar(stats.archive_bytes, most)];
  return [{ cells: chunks }, { cells: archives }];
}

function drawn(stats, { reload, who }) {
  const kinds = KINDS.map(([kind, name]) => [[kind, name], stats.kinds[kind]]).filter(([, one]) => one);
  const all = (field) => kinds.reduce((sum, [, one]) => sum + (one[field] ?? 0), 0);
  const logical = all("logical_bytes");
  const most = Math.max(...kinds.map(([, one]) => one.logical_bytes ?? 0));
  const head = [
    el("div", { class: "bar" }, el("h1", {}, "Storage"), button("Refresh", reload, "small")),
    el("p", { class: "quiet" }, `Of tenant ${who.tenant}, counted `, ago(stats.counted_at_ms), ` in ${took(stats.took_ms)}; it is counted once a minute at most.`),
  ];
  const stored = stats.chunk_bytes + stats.archive_bytes;
  if (!all("subjects") && !stored) {
    return el("div", {}, ...head, empty("Nothing is stored yet", "What snapshots take of the store is shown here. The first one comes with ", el("code", {}, "stasis save DIR"), " or ", el("code", {}, "stasis profile run"), "."));
  }
  return el("div", {}, ...head,
    el("section", { class: "panel", "aria-label": "In all" }, el("dl", { class: "tally" },
      [["Stored", size(stored)], ["Deduplication", stats.dedup_ratio ? times(stats.dedup_ratio) : "–"], ["Subjects", number(all("subjects"))], ["Snapshots", number(all("snapshots"))], ["Chunks", number(stats.chunks)]]
        .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))))),
    el("section", {}, el("h2", {}, "By kind"), table("What the tenant has, by kind", OF_KINDS, kinds.map(([kind, one]) => kindRow(kind, one, most)))),
    el("section", {}, el("h2", {}, "In the store"), table("What that takes of the store, by its form", OF_FORMS, formRows(stats, logical)),
      el("p", { class: "quiet small under" }, "The size of files is the length of all files of all snapshots, as if each were a copy. Equal chunks are stored once for the whole tenant, so that none belongs to one kind alone; images of containers have chunks, too. Archives of profiles are compressed one by one, and do not say how long their files are.")));
}

export async function storage({ who, signal, reload }) {
  return drawn(await get("/v1/stats", { signal }), { who, reload });
}
