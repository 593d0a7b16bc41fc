// What is in a snapshot, one directory at a time.

import { bytes, getAll, query, subjectPath } from "./api.js";
import { button, code, count, el, empty, link, place, problem, say, size, table } from "./dom.js";

const HEADS = [{ name: "Name" }, { name: "Kind" }, { name: "Size", number: true }, { name: "Changed (UTC)" }, { name: "Actions" }];

function crumbs(kind, id, snapshot, path) {
  const parts = path ? path.split("/") : [];
  const at = (to) => place(["files", kind, id, snapshot], { path: parts.slice(0, to).join("/") });
  return el("nav", { class: "crumbs", "aria-label": "Path" },
    link("#/", "Subjects"), " / ", link(place(["subject", kind, id]), id), " / ",
    parts.length ? link(at(0), code(snapshot)) : code(snapshot),
    parts.flatMap((part, index) => [" / ", index + 1 < parts.length ? link(at(index + 1), part) : el("span", { "aria-current": "page" }, part)]));
}

async function download(path, name, said) {
  say(`Reading ${name} …`);
  try {
    const url = URL.createObjectURL(await bytes(path));
    el("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    say(`${name} is read.`);
  } catch (error) {
    const broken = { title: "The file was not read to its end", detail: `The answer broke off; nothing was kept. ${error.message ?? ""}` };
    said.replaceChildren(problem(error.code ? error : broken));
  }
}

export async function files({ rest: [kind, id, wanted], fields, signal }) {
  const path = fields.path ?? "";
  const base = subjectPath(kind, id, "snapshots", wanted);
  const all = await getAll(`${base}/files`, { path }, { signal, pages: 10 });
  const { snapshot } = all;
  // A directory is listed with itself.
  const rows = all.items.filter((one) => one.path !== path || one.kind !== "directory");
  rows.sort((one, other) => (other.kind === "directory") - (one.kind === "directory"));
  const said = el("div", {});
  const row = (one) => {
    const name = one.path.split("/").at(-1);
    const content = query(subjectPath(kind, id, "snapshots", snapshot, "content"), { path: one.path });
    const target = one.target ?? one.link_target;
    return { cells: [
      one.kind === "directory" ? link(place(["files", kind, id, snapshot], { path: one.path }), `${name}/`) : el("span", { class: "file" }, name, target ? ` → ${target}` : ""),
      one.kind, one.kind === "file" ? size(one.size) : "",
      one.mtime ? el("time", {}, new Date(one.mtime[0] * 1000).toISOString().slice(0, 19).replace("T", " ")) : "",
      one.kind === "file" ? button("Download", () => download(content, name, said), "small") : ""] };
  };
  return el("div", {},
    crumbs(kind, id, snapshot, path),
    el("h1", {}, path ? path.split("/").at(-1) : `Files of ${id}`),
    el("p", { class: "quiet" }, `${count(rows.length, "entry", "entries")}${all.next_cursor ? "; there are more than this page reads" : ""}`),
    said,
    rows.length ? table("Files", HEADS, rows.map(row)) : empty("An empty directory", "Nothing was in it when this snapshot was made."));
}
