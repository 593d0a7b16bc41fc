// Forced, destructive and degraded acts.

import { get } from "./api.js";
import { ago, badge, code, count, el, empty, subjectLink, words } from "./dom.js";

const LONG = /^[0-9a-f]{64}$/;

function detail([name, value]) {
  const shown = typeof value === "string" && LONG.test(value) ? code(value) : typeof value === "object" ? JSON.stringify(value) : String(value);
  const read = name.endsWith("_ms") && typeof value === "number" ? ago(value) : shown;
  return el("span", { class: "detail" }, el("span", { class: "quiet" }, words(name.replace(/_(ms|sha256)$/, ""))), " ", read);
}

const about = (event) => (event.subject ? subjectLink(event.subject) : null);

export const eventList = (events, named = false) => el("ol", { class: "events" }, events.map((event) => el("li", {},
  el("span", { class: "when" }, ago(event.at_ms)),
  badge(words(event.kind), event.severity === "WARNING" ? "warn" : "plain"),
  named ? about(event) : null,
  el("span", {}, el("span", { class: "quiet" }, "by "), event.actor || "unknown"),
  ...Object.entries(event.details ?? {}).filter(([, value]) => value !== "" && value !== null).map(detail))));

export async function events({ signal, reload }) {
  const log = await get("/v1/events?limit=1000", { signal });
  const all = log.items.toReversed();
  const search = el("input", { type: "search", id: "search", placeholder: "Kind, subject, actor, reason", autocomplete: "off" });
  const warnings = el("input", { type: "checkbox", id: "warnings" });
  const list = el("div", {});
  const said = el("p", { class: "quiet", role: "status" });
  const draw = () => {
    const text = search.value.trim().toLowerCase();
    const found = all.filter((event) => (!warnings.checked || event.severity === "WARNING") && words(JSON.stringify(event)).toLowerCase().includes(text));
    said.textContent = `${count(found.length, "event")}${log.unreadable ? `; ${log.unreadable} cannot be read` : ""}${log.next_cursor ? `; of the newest ${all.length}, older ones are in the log` : ""}`;
    const none = all.length ? empty("Nothing matches", "No event has this in it.") : empty("Nothing happened", "Nobody forced, deleted or rolled back anything yet, and no run was degraded.");
    list.replaceChildren(found.length ? el("div", { class: "panel" }, eventList(found.slice(0, 500), true)) : none);
  };
  search.addEventListener("input", draw);
  search.addEventListener("keydown", (event) => { if (event.key === "Escape") { search.value = ""; draw(); } });
  warnings.addEventListener("change", draw);
  draw();
  return el("div", {},
    el("div", { class: "bar" }, el("h1", {}, "Events"), el("button", { type: "button", class: "small", onclick: reload }, "Refresh")),
    el("div", { class: "bar", role: "search" }, el("label", { for: "search", class: "hidden" }, "Search"), search, el("kbd", {}, "/"), el("label", { for: "warnings", class: "check" }, warnings, " warnings only")),
    said, list);
}
