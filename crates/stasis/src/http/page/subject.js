// One subject: what a run starts from and why, its timeline, its snapshots.

import { getAll, get, now, subjectPath } from "./api.js";
import { askDelete, askFork, askRollback, askUnlock, changePin } from "./actions.js";
import { ago, badge, button, code, count, countdown, el, empty, facts, link, named, place, short, size, span, subjectLink, table, words } from "./dom.js";
import { eventList } from "./events.js";
import { askRestore } from "./restore.js";
import { proofs, timeline } from "./timeline.js";

/** Why a save that is newer than what `latest` means does not count; nothing for one that is no newer. */
function explain(active, events) {
  const about = (sha, kind, name) => events.find((event) => event.kind === kind && event.details?.[name] === sha);
  return (row) => {
    const base = active.find((one) => one.chrome_major === row.chrome_major);
    if (row.active || !base || row.at_ms <= base.at_ms) return null;
    const marks = row.marks ?? [];
    const back = about(row.snapshot, "rollback", "from_sha256");
    if (marks.includes("tombstoned")) return "it was deleted";
    if (row.damage) return `it cannot be used: ${row.damage}`;
    if (back) return `${back.actor} rolled back from it ${span(now() - back.at_ms)} ago${back.details.reason ? `: “${back.details.reason}”` : ""}`;
    if (marks.includes("damaged_databases")) return "it was stored and not published: databases in it are damaged";
    if (marks.includes("damaged")) return "it is damaged";
    if (about(row.snapshot, "diverged", "sha256")) return "its run diverged: another snapshot had become active while it ran";
    if (about(row.snapshot, "not_published", "sha256")) return "it was stored and not published";
    if (marks.includes("unpromoted")) return "it was never published";
    return row.chrome_major ? "it was passed over: a rollback went to an older one" : "`latest` was moved to an older one";
  };
}

function holder(lineage, view) {
  const lock = lineage.lock;
  if (!lock || !["held", "expired"].includes(lineage.lock_state)) return [["Holder", badge(lineage.lock_state === "forced" ? "forced out" : "nobody", "good"), lock?.reason ? ` ${lock.reason}` : ""]];
  const late = lineage.lock_state === "expired" ? badge("expired", "warn") : badge("held", "warn");
  return [
    ["Holder", late, " run ", el("code", {}, lock.holder_run_id), ` on ${lock.holder_host}, since `, ago(lock.acquired_at_ms)],
    ["Lease", countdown(lock.expires_at_ms, view.signal), `, renewed ${count(lock.renewal_count, "time")}, epoch ${lock.epoch}`,
      view.who.scope === "admin" ? [" ", button("Force-unlock …", () => askUnlock(view, lineage), "danger small")] : null].flat(),
  ];
}

function pointer(lineage) {
  const { pointer: one } = lineage;
  if (!one && lineage.damage?.length) return [["Pointer", badge("unreadable", "danger"), " see the damage below"]];
  if (!one) return [["Pointer", badge("none", "warn"), " nothing was published yet"]];
  const from = one.flipped_from_sha256 ? [", before that ", code(one.flipped_from_sha256)] : [];
  return [["Pointer", `generation ${one.generation}, moved `, ago(one.flipped_at_ms), ...from]];
}

function capturedIn(lineage) {
  const said = lineage.snapshot?.manifest?.captured_in ?? {};
  const { country, region } = said.egress_ip_geo ?? {};
  const parts = [said.host_region, [country, region].filter(Boolean).join(" ")].filter(Boolean);
  const version = lineage.snapshot?.manifest?.chrome_version;
  return [version && ["Browser", `Chrome ${version}`], parts.length && ["Captured in", parts.join(", ")]].filter(Boolean);
}

function session(one) {
  return [["Session", badge(words(one.state)), ` on ${one.host}`], ["Heartbeat", ago(one.heartbeat_ms)],
    one.forked_from ? ["Forked from", subjectLink(`session:${one.forked_from}`)] : null,
    one.problem ? ["Problem", badge("look here", "danger"), ` ${typeof one.problem === "string" ? words(one.problem) : JSON.stringify(one.problem)}`] : null];
}

function verdict(shown, newer, damage) {
  if (!shown.latest.length && damage.length) return [badge("unreadable", "danger"), " What a run starts from cannot be read: see the damage below."];
  if (!shown.latest.length) return [badge("no snapshot counts", "warn"), " Nothing was published: a run starts without saved data."];
  const each = shown.latest.map((one, at) => [at ? ", and from " : "A run starts from ", code(one.snapshot), one.chrome_major && shown.latest.length > 1 ? ` (Chrome ${one.chrome_major})` : "", ", saved ", ago(one.at_ms)]).flat();
  const rest = newer.length ? [`. ${count(newer.length, "newer save does", "newer saves do")} not count.`] : [". It is the newest save there is."];
  return [badge(newer.length ? "not the newest" : "newest", newer.length ? "warn" : "good"), " ", ...each, ...rest];
}

const damagedMarks = (row) => (row.marks ?? []).filter((mark) => mark.startsWith("damaged")).map(words).join(", ");

function why(shown, rows, explained, view) {
  const newer = rows.filter((row) => explained(row));
  const lineages = shown.profile?.lineages ?? [];
  const ended = shown.events_ended_on;
  const failed = new Map([...proofs(rows, shown.events)].filter(([, one]) => one.broken));
  const damage = [...new Set([...(shown.unreadable ?? []), ...lineages.flatMap((one) => one.damage ?? []), ...rows.map((row) => [row, row.damage ?? damagedMarks(row)]).filter(([, said]) => said).map(([row, said]) => `${short(row.snapshot)}: ${said}`),
    ...rows.filter((row) => failed.has(row.snapshot)).map((row) => `${short(row.snapshot)}: a proof could not restore it ${span(now() - failed.get(row.snapshot).at_ms)} ago`)])];
  const warnings = (shown.warnings ?? []).map((one) => one.message);
  return el("section", { class: "panel", "aria-labelledby": "why" },
    el("h2", { id: "why" }, "Why does a run use this data?"),
    el("p", { class: "verdict" }, ...verdict(shown, newer, damage)),
    newer.length ? el("ul", { class: "newer" }, newer.slice(0, 5).map((row) => el("li", {}, code(row.snapshot), ", saved ", ago(row.at_ms), ": ", explained(row))),
      newer.length > 5 ? el("li", {}, `and ${newer.length - 5} more, in the table below`) : null) : null,
    el("div", { class: "columns" }, el("div", {}, lineages.map((lineage) => facts([lineages.length > 1 ? ["Lineage", lineage.subject] : null, ...pointer(lineage), ...holder(lineage, view), ...capturedIn(lineage)])),
    shown.session ? facts(session(shown.session)) : null,
    facts([["Damage", ...(damage.length ? [badge(`${damage.length} seen`, "danger"), el("ul", {}, damage.map((one) => el("li", {}, one)))] : [badge("none seen", "good")])],
      warnings.length ? ["Warnings", el("ul", {}, warnings.map((one) => el("li", {}, one)))] : null])),
    el("div", {}, el("h3", {}, "Last events"),
      shown.events.length ? eventList(shown.events.slice(0, 5)) : el("p", { class: "quiet" }, `Nothing forced, destructive or degraded is in the log about it${ended ? ` since ${ended}` : ""}.`),
      ended ? el("p", { class: "quiet small" }, `Of ${ended} and the days before, not all events were looked at: there may be more. `, link("#/events", "All events")) : null,
      shown.events_unreadable ? el("p", { class: "quiet small" }, `${count(shown.events_unreadable, "event")} about it cannot be read.`) : null)));
}

function marks(row, proof) {
  const all = [proof?.broken ? badge("proof failed", "danger") : null, row.active ? badge("active", "good") : null, row.pinned ? badge("pinned") : null];
  for (const mark of row.marks ?? []) {
    if (["active", "pinned"].includes(mark)) continue;
    all.push(badge({ unpromoted: "not published", tombstoned: "deleted" }[mark] ?? words(mark), mark.startsWith("damaged") ? "danger" : "plain"));
  }
  if (row.damage) all.push(badge("unusable", "danger"));
  if (proof && !proof.broken) all.push(el("span", { class: "small quiet" }, "restored by a proof ", ago(proof.at_ms)));
  return all.filter(Boolean).flatMap((one) => [one, " "]);
}

const HEADS = [{ name: "Compare", hidden: true }, { name: "Snapshot" }, { name: "Saved" }, { name: "Size", number: true }, { name: "How" }, { name: "Marks" }, { name: "Actions" }];

function list(view, shown, rows) {
  const { kind, id } = shown;
  const chosen = [];
  const compare = el("button", { type: "button", class: "primary", disabled: true, onclick: () => {
    const [after, before] = rows.filter((row) => chosen.includes(row.snapshot)).map((row) => row.snapshot);
    location.hash = place(["diff", kind, id], { before, after });
  } }, "Compare two");
  const choose = (row) => (event) => {
    if (event.target.checked) chosen.push(row.snapshot);
    else chosen.splice(chosen.indexOf(row.snapshot), 1);
    compare.disabled = chosen.length !== 2;
  };
  // What is a container's is changed where its engine is.
  const changes = kind !== "container";
  const write = view.who.scope !== "read";
  // Without a root there is no place that a restore could go to.
  const may = { write, admin: view.who.scope === "admin", restore: write && view.who.host && view.who.roots?.length > 0 };
  const acts = (row, at) => {
    const gone = row.marks?.includes("tombstoned");
    const before = row.parent && rows.some((one) => one.snapshot === row.parent && !one.marks?.includes("tombstoned")) ? row.parent : rows[at + 1]?.snapshot;
    return [
      gone ? null : link(place(["files", kind, id, row.snapshot]), "Files"),
      gone || !before ? null : link(place(["diff", kind, id], { before, after: row.snapshot }), "Changes"),
      kind === "profile" && may.write && !row.active && !gone ? button("Roll back …", () => askRollback(view, shown, row), "small") : null,
      kind === "profile" && may.write && !row.damage && !gone ? button("Fork …", () => askFork(view, row), "small") : null,
      changes && may.restore && !row.damage && !gone ? button("Restore …", () => askRestore(view, row), "small") : null,
      changes && may.write && !gone ? button(row.pinned ? "Unpin" : "Pin", () => changePin(view, row), "small") : null,
      changes && may.admin && !row.active && !row.pinned && !gone ? button("Delete …", () => askDelete(view, row), "danger small") : null,
    ].filter(Boolean).flatMap((one) => [one, " "]);
  };
  const proved = proofs(rows, shown.events);
  const body = rows.map((row, at) => ({
    id: `row-${row.snapshot}`,
    tone: row.active ? "current" : null,
    cells: [
      row.marks?.includes("tombstoned") ? "" : el("input", { type: "checkbox", "aria-label": `Compare ${short(row.snapshot)}`, onchange: choose(row) }),
      [code(row.snapshot), row.labels?.message ? el("span", { class: "small" }, ` ${row.labels.message}`) : null],
      ago(row.at_ms), size(row.bytes),
      [[row.mode ?? row.reason, row.host && `on ${row.host}`, row.run_id && `run ${row.run_id}`].filter(Boolean).join(", ") || "–",
        row.forked_from ? el("span", { class: "small block" }, "forked from ", subjectLink(row.forked_from.subject)) : null],
      marks(row, proved.get(row.snapshot)), el("span", { class: "acts" }, ...acts(row, at))],
  }));
  return [el("div", { class: "bar" }, el("h2", {}, count(shown.snapshots, "snapshot")), compare), table("Snapshots, the newest first", HEADS, body)];
}

export async function subject({ rest: [kind, id], who, signal, reload }) {
  const path = subjectPath(kind, id);
  const [shown, all] = await Promise.all([get(path, { signal }), getAll(`${path}/snapshots`, { limit: 500 }, { signal, pages: 2 })]);
  const rows = all.items;
  const explained = explain(shown.latest, shown.events);
  const view = { kind, id, who, signal, reload, whole: `${kind}:${["profile", "session"].includes(kind) ? `${who.tenant}/` : ""}${id}` };
  const first = !all.next_cursor && shown.session?.forked_from ? rows.at(-1)?.snapshot : null;
  const forked = (row) => {
    const from = row.forked_from;
    if (from) return `forked from ${named(from.subject).id}, snapshot ${short(from.snapshot)}`;
    return row.snapshot === first ? `the session began as a fork of ${named(`session:${shown.session.forked_from}`).id}` : null;
  };
  const chosen = (name) => {
    const row = document.getElementById(`row-${name}`);
    row.scrollIntoView({ block: "center" });
    row.querySelector("a, input")?.focus();
  };
  return el("div", {},
    el("p", { class: "crumbs" }, link("#/", "Subjects"), " / ", kind),
    el("div", { class: "bar" }, el("h1", {}, id), badge(kind), button("Refresh", reload, "small")),
    why(shown, rows, explained, view),
    el("section", { class: "panel" }, el("h2", {}, "Timeline"), rows.length ? timeline(rows, shown.events, { whyNot: explained, forked, chosen }) : empty("No snapshots", "Nothing of this subject is in the store.")),
    ...(rows.length ? list(view, shown, rows) : []),
    all.next_cursor ? el("p", { class: "quiet" }, `The newest ${rows.length} are shown.`) : null);
}
