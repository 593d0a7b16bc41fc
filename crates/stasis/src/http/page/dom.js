// Elements and how things are written. All text becomes text nodes: nothing that the server says is ever read as markup.

import { now } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";

function build(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const el = (name, attributes, ...children) => build(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => build(document.createElementNS(SVG, name), attributes, children);

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(count) {
  if (count === undefined || count === null) return "–";
  const unit = count < 1024 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(count) / 10));
  const value = count / 1024 ** unit;
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

const STEPS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function span(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [length, unit] = STEPS.find(([step]) => seconds >= step) ?? [1, "s"];
  return `${Math.floor(seconds / length)} ${unit}`;
}

/** How long something took. */
export const took = (ms) => (ms < 1000 ? `${ms}\u00a0ms` : span(ms).replace(" ", "\u00a0"));

/** How long ago it was; the exact time is its title. */
export function ago(ms) {
  if (!ms) return el("span", { class: "quiet" }, "never");
  const iso = new Date(ms).toISOString();
  return el("time", { datetime: iso, title: iso }, `${span(now() - ms)} ago`);
}

/** A clock: 29:04, or 1:02:03. */
export function clock(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (value) => String(value).padStart(2, "0");
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(seconds % 60)}`;
}

/** A clock that counts down as long as the view is shown. */
export function countdown(until, signal) {
  const shown = el("strong", { class: "clock" });
  const tick = () => {
    const left = until - now();
    shown.textContent = left > 0 ? `${clock(left)} left` : `expired ${span(-left)} ago`;
    shown.classList.toggle("late", left < 60_000);
  };
  tick();
  const timer = setInterval(tick, 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
  return shown;
}

/** What is enough of an id to tell it apart. */
export const short = (id) => (id ?? "").slice(0, /^[0-9a-f]{64}$/.test(id ?? "") ? 12 : 8);
export const code = (id, whole) => el("code", { title: id }, whole ? id : short(id));
export const words = (name) => name.replaceAll("_", " ");
export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** A label with a colour, and a word that says the same. */
export const badge = (text, tone = "plain") => el("span", { class: `badge ${tone}` }, text);

export const link = (href, ...children) => el("a", { href }, ...children);
export const button = (label, onclick, tone = "") => el("button", { type: "button", class: tone, onclick }, label);

/** The address of a view. */
export function place(parts, fields = {}) {
  const given = Object.entries(fields).filter(([, value]) => value);
  const path = parts.map(encodeURIComponent).join("/");
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** The kind and the id of a subject, as the service writes it in whole: `profile:acme/alice@131`. */
export function named(subject) {
  const [, kind = "profile", name] = /^(?:(dir|profile|session|container):)?(.*)$/s.exec(subject);
  return { kind, id: ["profile", "session"].includes(kind) ? name.slice(name.indexOf("/") + 1) : name };
}

export function subjectLink(subject) {
  const { kind, id } = named(subject);
  return link(place(["subject", kind, id]), id);
}

/** What stands where there is nothing to show. */
export const empty = (title, ...hint) => el("div", { class: "empty" }, el("p", { class: "strong" }, title), el("p", {}, ...hint));

/** What went wrong, with what to say to whoever has the log. */
export function problem(error, again, label = "Try again") {
  const fields = [["Code", error.code], ["Request", error.request_id], ["Operation", error.op_id], ["Generation now", error.generation]];
  const shown = fields.filter(([, value]) => value !== undefined);
  return el("div", { class: "panel problem", role: "alert" },
    el("h2", {}, error.title ?? "The page failed"),
    el("p", {}, error.detail ?? String(error)),
    (error.candidates ?? []).length ? el("p", {}, `It may be: ${[].concat(error.candidates).map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join(", ")}`) : null,
    shown.length ? facts(shown.map(([name, value]) => [name, el("code", {}, String(value))])) : null,
    again ? button(label, again) : null);
}

/** Names and what they are. */
export const facts = (rows) => el("dl", { class: "facts" },
  rows.filter(Boolean).map(([name, ...value]) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value))));

/** A table; on a narrow screen each row is a card, whose cells say what they are. */
export function table(caption, heads, rows) {
  const cells = (row) => row.cells.map((cell, at) =>
    el("td", { "data-head": heads[at].name, class: heads[at].number ? "number" : null }, ...[cell].flat()));
  return el("div", { class: "scroll" }, el("table", {},
    el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col", class: head.number ? "number" : null }, head.hidden ? el("span", { class: "hidden" }, head.name) : head.name)))),
    el("tbody", {}, rows.map((row) => el("tr", { id: row.id, class: row.tone }, cells(row))))));
}

export function say(text) {
  const status = document.getElementById("status");
  status.textContent = text;
  status.classList.add("shown");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => status.classList.remove("shown"), 6000);
}
