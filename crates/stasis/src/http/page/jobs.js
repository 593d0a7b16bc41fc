// What the servers of the store do without being asked.

import { get, now } from "./api.js";
import { ago, badge, button, count, el, empty, size, span, table, took, words } from "./dom.js";
import { keepFresh } from "./live.js";

const FRESH = 10_000;
const TONES = { done: "good", incomplete: "warn", failed: "danger", stuck: "danger" };
const HEADS = [{ name: "Job" }, { name: "State" }, { name: "Last run" }, { name: "Outcome" }, { name: "What it did" }, { name: "Every", number: true }, { name: "Due" }];
const WHAT = {
  lock_reap: "frees leases that expired", session_reap: "puts idle sessions to sleep", container_cleanup: "keeps the limits of containers",
  container_snapshot: "saves the containers that are named",
  gc: "reclaims space", proof: "restores snapshots and checks them",
  workspace_checkpoint: "keeps workspaces that changed", project_autosave: "saves the projects that are named",
};

function state(row) {
  const by = row.running && el("span", { class: "small block" }, `on ${row.running.host}, since `, ago(row.running.since_ms));
  if (row.stuck) return [badge("stuck", "danger"), by].filter(Boolean);
  return row.running ? [badge("running", "warn"), by] : badge("idle");
}

function due(row) {
  if (row.running) return el("span", { class: "quiet" }, "runs");
  // One that never ran: where it would be done, a server begins it at once.
  if (row.next_due_at_ms === undefined) return el("span", { class: "quiet" }, "–");
  const left = row.next_due_at_ms - now();
  return left > 0 ? el("time", { datetime: row.next_due_at, title: row.next_due_at }, `in ${span(left)}`) : "now";
}

const outcome = (row) => (row.outcome ? badge(words(row.outcome), TONES[row.outcome] ?? "plain") : el("span", { class: "quiet" }, "none"));

function rowOf(row) {
  // What it found nothing of is not worth a word.
  const did = Object.entries(row.counts ?? {}).filter(([, many]) => many)
    .map(([name, many]) => (name.startsWith("bytes_") ? `${size(many)} ${words(name.slice(6))}` : `${words(name)} ${many.toLocaleString("en")}`)).join(", ");
  return {
    tone: row.stuck || row.outcome === "failed" ? "damaged" : row.running ? "current" : null,
    cells: [
      [el("strong", {}, words(row.name)), el("span", { class: "small block quiet" }, row.place ? `${WHAT[row.name] ?? ""} · ${row.place}` : WHAT[row.name] ?? "")],
      state(row),
      [ago(row.last_began_at_ms), row.last_host ? el("span", { class: "small block quiet" }, `on ${row.last_host}${row.last_took_ms === undefined ? "" : `, took ${took(row.last_took_ms)}`}`) : null].filter(Boolean),
      outcome(row), did || el("span", { class: "quiet" }, row.outcome ? "nothing to do" : "–"), span(row.every_ms), due(row)],
  };
}

const troubled = (row) => row.stuck || ["failed", "incomplete"].includes(row.outcome);

export async function jobs({ signal, reload }) {
  const ask = () => get("/v1/jobs", { signal });
  const list = el("div", {});
  const said = el("p", { class: "quiet", role: "status" });
  const draw = ({ items }) => {
    const bad = items.filter(troubled);
    said.textContent = `${count(items.length, "job")}${bad.length ? `, ${bad.length} to look at` : ""}`;
    // What should be looked at comes first.
    const rows = [...bad, ...items.filter((row) => !troubled(row))];
    list.replaceChildren(rows.length ? table("Jobs", HEADS, rows.map(rowOf)) : empty("No jobs", "No server of this store has any."));
  };
  draw(await ask());
  const stale = keepFresh(list, { every: FRESH, signal, reload, ask, draw });
  return el("div", {},
    el("div", { class: "bar" }, el("h1", {}, "Jobs"), button("Refresh", reload, "small")),
    el("p", { class: "quiet" }, "Each is done once in all servers of the store, for every tenant. ", el("code", {}, "stasis jobs"), " says what went wrong."),
    stale, said, list);
}
