// The snapshots of a subject as a picture: the oldest at the left, as high as they are large.

import { el, size, short, span, svg } from "./dom.js";
import { now } from "./api.js";

const [BAR, HIGH, TOP, BELOW] = [24, 104, 40, 48];

function title(row, why) {
  const parts = [short(row.snapshot), size(row.bytes), `${span(now() - row.at_ms)} ago`, row.mode ?? row.reason, row.host && `on ${row.host}`, row.labels?.message, row.prompt && `before “${row.prompt}”`, row.pinned && "pinned", why];
  return svg("title", {}, parts.filter(Boolean).join(" · "));
}

/** A proof above a bar: that it came back, or that it did not. */
function proofMark({ broken, at_ms: at }, middle, y) {
  const said = svg("title", {}, `a proof ${broken ? "could not restore it" : "restored it"} ${span(now() - at)} ago`);
  return broken ? svg("path", { class: "proof", d: `M${middle - 6} ${y - 9}h12l-6 9z` }, said) : svg("path", { class: "proof came", d: `M${middle - 5} ${y - 4}l4 4l7 -8` }, said);
}

/** Before this one, somebody asked an agent for something. */
const promptMark = (text, middle, y) => svg("g", { class: "asked" }, svg("title", {}, `before “${text}”`), svg("path", { d: `M${middle - 3} ${y - 10}l5 5l-5 5` }));

/** An arrow from outside: what began as a copy of something else. */
function forkMark(text, middle) {
  return svg("g", { class: "fork" },
    svg("title", {}, text),
    svg("path", { class: "way", d: `M${middle - 14} 8C${middle - 6} 8 ${middle} 10 ${middle} 24` }),
    svg("path", { d: `M${middle - 4} 18L${middle} 26L${middle + 4} 18` }),
    svg("circle", { cx: middle - 16, cy: 8, r: 4 }));
}

function bar(row, { at, step, before, most, why, proof, fork }) {
  const height = Math.max(4, Math.round((row.bytes / most) * HIGH));
  const x = at * step + (step - BAR) / 2;
  const y = TOP + HIGH - height;
  const gone = row.marks?.includes("tombstoned");
  const bad = row.damage || row.marks?.some((mark) => mark.startsWith("damaged"));
  const tone = row.active ? "active" : gone ? "gone" : bad ? "bad" : why ? "aside" : "";
  const middle = x + BAR / 2;
  const above = y - (row.pinned || gone || bad ? 24 : 8);
  return svg("g", { class: "bar-of", "data-row": row.snapshot },
    title(row, why),
    svg("rect", { class: "hit", x: at * step, y: TOP - 8, width: step, height: HIGH + BELOW }),
    svg("rect", { class: `save ${tone}`, x, y, width: BAR, height, rx: 2 }),
    row.pinned ? svg("path", { class: "pin", d: `M${middle} ${y - 16}l5 5l-5 5l-5 -5z` }) : null,
    gone ? svg("text", { class: "mark", x: middle, y: y - 6 }, "×") : null,
    proof ? proofMark(proof, middle, above) : null,
    row.prompt ? promptMark(row.prompt, middle, above) : null,
    fork ? forkMark(fork, middle) : null,
    bad ? svg("text", { class: "mark bad", x: middle, y: y - 6 }, "!") : null,
    row.mode && row.mode !== before?.mode ? svg("text", { class: "axis", x: middle, y: TOP + HIGH + 14 }, row.mode) : null,
    row.active ? svg("text", { class: "axis now", x: middle, y: TOP + HIGH + 28 }, "▲") : null);
}

// What leads from one bar to another: somebody went back, or a run got an older one because the newer could not be used.
const ARROWS = {
  rollback: { ends: ["from_sha256", "to_sha256"], tone: "back", says: (event) => `rolled back by ${event.actor}: ${event.details.reason || "no reason was given"}` },
  predecessor_loaded: { ends: ["damaged_sha256", "sha256"], tone: "back instead", says: (event) => `a run got the older one: ${event.details.detail || "the newer one is damaged"}` },
};

/** An arrow over the bars, from what was active to what came instead. */
function arrow(event, places, step) {
  const { ends, tone, says } = ARROWS[event.kind];
  const [from, to] = ends.map((name) => places.get(event.details[name]));
  if (from === undefined || to === undefined) return null;
  const [a, b] = [from * step + step / 2, to * step + step / 2];
  const side = b < a ? 1 : -1;
  return svg("g", { class: tone },
    svg("title", {}, says(event)),
    svg("path", { class: "way", d: `M${a} 28C${a} 4 ${b} 4 ${b} 24` }),
    svg("path", { d: `M${b - 4} 18L${b} 26L${b + 4 * side + (side < 0 ? 8 : 0)} 18` }));
}

/** Between the bars: a run that got nothing, and began empty. */
function emptyRun(event, rows, step) {
  const before = rows.filter((row) => row.at_ms <= event.at_ms).length;
  return svg("g", { class: "empty-run" },
    svg("title", {}, `a run began empty, ${span(now() - event.at_ms)} ago: ${event.details.detail ?? ""}`),
    svg("circle", { cx: Math.max(6, before * step), cy: TOP + HIGH, r: 5 }));
}

/** What the last proof of each snapshot said that was tried, and when; the log of events knows of failures that nothing else is known of. */
export function proofs(rows, events) {
  const failures = events.filter((event) => event.kind === "proof_failed").map((event) => [event.details.snapshot, { broken: true, at_ms: event.at_ms }]);
  const known = rows.filter(({ proof }) => proof?.broken || proof?.restored_at_ms)
    .map(({ snapshot, proof }) => [snapshot, { broken: proof.broken, at_ms: proof.broken ? proof.tried_at_ms : proof.restored_at_ms }]);
  return new Map([...failures, ...known]);
}

/** Where saves come from another host, a line says so. */
function hosts(rows, step) {
  const changes = rows.map((row, at) => [row.host, at]).filter(([host, at]) => host && host !== rows[at - 1]?.host);
  return changes.map(([host, at]) => svg("g", {},
    svg("line", { class: "host", x1: at * step, x2: at * step, y1: TOP + HIGH, y2: TOP + HIGH + BELOW - 4 }),
    svg("text", { class: "axis start", x: at * step + 4, y: TOP + HIGH + 42 }, host)));
}

const says = (proved, broken) => [...proved.values()].some((one) => one.broken === broken);

const LEGEND = [["active", "active"], ["", "saved"], ["aside", "newer, does not count"], ["bad", "! damaged"], ["gone", "× deleted"]];
const ASKED = [["", "moment"], ["active", "latest save"]];

/** `forked` says of a snapshot as what it began, if it is the copy of another one. */
export function timeline(newestFirst, events, { whyNot, forked, chosen }) {
  const rows = newestFirst.slice(0, 200).reverse();
  const most = Math.max(1, ...rows.map((row) => row.bytes));
  const places = new Map(rows.map((row, at) => [row.snapshot, at]));
  // Few of them have room for more than a bar.
  const step = rows.length < 24 ? 48 : 32;
  // The last mark stands at the end of the last bar.
  const width = Math.max(rows.length * step + 8, 96);
  const height = TOP + HIGH + BELOW;
  const active = rows.find((row) => row.active);
  const of = (kind) => events.filter((event) => event.kind === kind);
  const [rolled, instead, began] = [of("rollback"), of("predecessor_loaded"), of("fresh_fallback")];
  const proved = proofs(rows, events);
  const forks = rows.filter(forked).length;
  const label = `Timeline of ${rows.length} snapshots, the largest ${size(most)}${active ? `, active is ${short(active.snapshot)}` : ""}. The table below says the same.`;
  const picture = svg("svg", { role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` },
    svg("line", { class: "ground", x1: 0, x2: width, y1: TOP + HIGH, y2: TOP + HIGH }),
    rows.map((row, at) => bar(row, { at, step, before: rows[at - 1], most, why: whyNot(row), proof: proved.get(row.snapshot), fork: forked(row) })),
    [...rolled, ...instead].map((event) => arrow(event, places, step)),
    began.map((event) => emptyRun(event, rows, step)),
    hosts(rows, step));
  picture.addEventListener("click", (event) => {
    const name = event.target.closest("[data-row]")?.getAttribute("data-row");
    if (name) chosen(name);
  });
  const scroll = el("div", { class: "timeline", tabindex: "0", role: "group", "aria-label": "Timeline, scrolls sideways" }, picture);
  requestAnimationFrame(() => { scroll.scrollLeft = scroll.scrollWidth; });
  const key = ([tone, text]) => el("span", {}, svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { class: `save ${tone}`, x: 1, y: 1, width: 10, height: 10, rx: 2 })), text);
  const pin = el("span", {}, svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("path", { class: "pin", d: "M6 1l5 5l-5 5l-5 -5z" })), "pinned");
  return el("figure", {}, scroll,
    el("figcaption", { class: "legend" }, (rows.some((row) => row.prompt) ? ASKED : LEGEND).map(key), rows.some((row) => row.prompt) ? el("span", {}, "❯ before a prompt") : null, pin, rolled.length ? el("span", {}, "↶ rolled back") : null,
    instead.length ? el("span", {}, "⇠ loaded instead") : null, began.length ? el("span", {}, "○ a run began empty") : null, forks ? el("span", {}, "⤷ forked from elsewhere") : null, says(proved, false) ? el("span", {}, "✓ restored by a proof") : null, says(proved, true) ? el("span", {}, "▼ proof failed") : null, el("span", { class: "end" }, `${span(now() - rows[0].at_ms)} to ${span(now() - rows.at(-1).at_ms)} ago; highest bar ${size(most)}`)));
}
