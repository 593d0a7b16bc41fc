// Who holds which profile; what expires next comes first.

import { get, now } from "./api.js";
import { askUnlock } from "./actions.js";
import { ago, badge, button, code, count, countdown, el, empty, named, subjectLink, table } from "./dom.js";
import { keepFresh } from "./live.js";

const FRESH = 5000;
const SOON = 60_000;
const SHOWN = 200;
const HELD = [{ name: "Profile" }, { name: "State" }, { name: "Time left" }, { name: "Run" }, { name: "Host" }, { name: "Renewed" }];
const FREE = [{ name: "Profile" }, { name: "State" }, { name: "Last run" }, { name: "Host" }, { name: "Last renewed" }];

const host = (row) => row.holder_host || "unknown";

const state = (left) => (left <= 0 ? badge("expired", "danger") : left < SOON ? badge("expires soon", "warn") : badge("held"));

function heldRow(row, { view, drawn, asked, redraw }) {
  const until = asked + row.expires_in_ms;
  const left = until - now();
  if (left > 0) redraw(left > SOON ? left - SOON : left);
  const lineage = { subject: row.subject, lock: { ...row, renewed_at_ms: Date.parse(row.renewed_at) } };
  const { id } = named(row.subject);
  const acts = view.who.scope === "admin" ? [button("Force-unlock …", () => askUnlock({ ...view, id }, lineage), "danger small")] : [];
  return {
    id: `row-${row.subject}`,
    tone: left <= 0 ? "damaged" : null,
    cells: [el("strong", {}, subjectLink(row.subject)), state(left), countdown(until, drawn), code(row.holder_run_id, true),
      host(row), row.renewal_count ? [ago(Date.parse(row.renewed_at)), `, ${count(row.renewal_count, "time")}`] : el("span", { class: "quiet" }, "not yet"), acts].slice(0, view.who.scope === "admin" ? 7 : 6),
  };
}

const freeRow = (row) => ({ cells: [subjectLink(row.subject), badge(row.state === "forced" ? "forced out" : "free"), code(row.holder_run_id, true), host(row), ago(Date.parse(row.renewed_at))] });

export async function leases({ who, signal, reload }) {
  const ask = async () => {
    // Whatever the way takes is taken off: a lease never seems to last longer than it does.
    const began = performance.now();
    const got = await get("/v1/leases?limit=1000", { signal });
    return { asked: now() - (performance.now() - began), got };
  };
  const first = await ask();
  const list = el("div", {});
  const said = el("p", { class: "quiet", role: "status" });
  const free = el("div", {});
  let drawn = new AbortController();
  signal.addEventListener("abort", () => drawn.abort());

  const draw = ({ asked, got }) => {
    drawn.abort();
    drawn = new AbortController();
    const redraw = (ms) => {
      // A state says what the clock beside it says.
      const timer = setTimeout(() => list.contains(document.activeElement) || draw({ asked, got }), Math.min(ms + 50, 86_400_000));
      drawn.signal.addEventListener("abort", () => clearTimeout(timer));
    };
    const view = { who, reload, signal };
    const held = got.items.filter((row) => row.state === "held").sort((one, other) => one.expires_in_ms - other.expires_in_ms);
    const others = got.items.filter((row) => row.state !== "held");
    const expired = held.filter((row) => asked + row.expires_in_ms <= now()).length;
    const broken = got.unreadable ?? [];
    said.textContent = [count(held.length, "lease"), expired && `${expired} expired and not given back`, broken.length && `${broken.length} cannot be read`, got.total > got.items.length && `the first ${got.items.length} of ${got.total} are shown`].filter(Boolean).join(", ");
    const heads = who.scope === "admin" ? [...HELD, { name: "Actions" }] : HELD;
    list.replaceChildren(
      held.length ? table("Leases that are held, what expires next first", heads, held.map((row) => heldRow(row, { view, drawn: drawn.signal, asked, redraw })))
        : empty("Nobody holds a profile", "A run holds one from its start to its last save, and renews it meanwhile: ", el("code", {}, "stasis profile run"), " does, and ", el("code", {}, "POST /v1/leases"), "."),
      ...(broken.length ? [el("section", { class: "note warn" }, el("h2", {}, "Cannot be read"), el("ul", {}, broken.map((one) => el("li", {}, subjectLink(one.subject), `: ${one.reason}`))))] : []));
    const open = free.querySelector("details")?.open;
    free.replaceChildren(...(others.length ? [el("details", { open }, el("summary", {}, `${count(others.length, "profile", "profiles")} that nobody holds`),
      table("Profiles that nobody holds", FREE, others.slice(0, SHOWN).map(freeRow)))] : []));
  };
  draw(first);
  const whole = el("div", {}, list, free);
  const stale = keepFresh(whole, { every: FRESH, signal, reload, ask, draw });
  return el("div", {},
    el("div", { class: "bar" }, el("h1", {}, "Leases"), button("Refresh", reload, "small")),
    el("p", { class: "quiet" }, "A profile has one owner at a time, until its lease expires by the server’s clock."),
    stale, said, whole);
}
