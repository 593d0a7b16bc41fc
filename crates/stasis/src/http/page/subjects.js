// Everything that the tenant has saved.

import { getAll } from "./api.js";
import { ago, badge, count, el, empty, link, place, size, table } from "./dom.js";

const SHOWN = 200;
const KINDS = ["dir", "profile", "session", "container"];

function matches(row, text, kind) {
  const name = `${row.id} ${row.subject}`.toLowerCase();
  return (!kind || row.kind === kind) && text.toLowerCase().split(/\s+/).every((word) => name.includes(word));
}

const HEADS = [{ name: "Subject" }, { name: "Kind" }, { name: "Newest save" }, { name: "Snapshots", number: true }, { name: "Size", number: true }, { name: "State" }];

function row(one) {
  const state = one.error
    ? [badge("damaged", "danger"), " ", el("span", { class: "small" }, one.error.message)]
    : [badge("readable", "good"), one.encrypted ? badge("encrypted") : null];
  return {
    tone: one.error ? "damaged" : null,
    cells: [link(place(["subject", one.kind, one.id]), el("strong", {}, one.id)), one.kind, one.error && !one.newest_ms ? "unknown" : ago(one.newest_ms), String(one.snapshots), size(one.bytes), state],
  };
}

export async function subjects({ fields, signal }) {
  const all = await getAll("/v1/subjects", {}, { signal });
  const search = el("input", { type: "search", id: "search", placeholder: "Name of a subject", autocomplete: "off", value: fields.q });
  const kinds = el("select", { id: "kind" }, el("option", { value: "" }, "All kinds"),
    KINDS.map((kind) => el("option", { value: kind, selected: fields.kind === kind }, kind)));
  const list = el("div", {});
  const said = el("p", { class: "quiet", role: "status" });

  const draw = () => {
    const [text, kind] = [search.value.trim(), kinds.value];
    const found = all.items.filter((one) => matches(one, text, kind));
    const damaged = found.filter((one) => one.error);
    // What is broken comes first: that is what somebody looks for at night.
    const shown = [...damaged, ...found.filter((one) => !one.error)].slice(0, SHOWN);
    said.textContent = `${count(found.length, "subject")}${damaged.length ? `, ${damaged.length} damaged` : ""}${found.length > SHOWN ? `; the first ${SHOWN} are shown` : ""}${all.next_cursor ? "; there are more than this page reads" : ""}`;
    if (shown.length) list.replaceChildren(table("Subjects", HEADS, shown.map(row)));
    else if (all.items.length) list.replaceChildren(empty("Nothing matches", "No subject has this in its name. ", el("button", { type: "button", onclick: () => { search.value = ""; kinds.value = ""; draw(); search.focus(); } }, "Show all")));
    else list.replaceChildren(empty("Nothing was saved yet", "The tenant of this token has no snapshots. The first one comes with ", el("code", {}, "stasis save DIR"), " or ", el("code", {}, "stasis profile run"), "."));
    history.replaceState(null, "", place([], { q: text, kind }));
  };
  search.addEventListener("input", draw);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { search.value = ""; draw(); }
    if (event.key === "Enter") list.querySelector("a")?.click();
  });
  kinds.addEventListener("change", draw);
  draw();
  setTimeout(() => search.isConnected && search.focus());
  return el("div", {},
    el("h1", {}, "Subjects"),
    el("div", { class: "bar", role: "search" },
      el("label", { for: "search", class: "hidden" }, "Search"), search, el("kbd", { title: "The key / goes to the search" }, "/"),
      el("label", { for: "kind", class: "hidden" }, "Kind"), kinds),
    said, list);
}
