// What goes on while somebody looks: lists that are asked for again, and operations that are followed.

import { get, stream } from "./api.js";
import { el } from "./dom.js";

// A browser has six connections to a service; every stream takes one, and other tabs have some, too.
const STREAMS = 2;
const AGAIN = 2000;
let streams = 0;

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

/** The end of an operation, as the service has it. `heard` is told how far it has come until then. */
export async function follow(id, { signal, heard }) {
  const path = `/v1/operations/${encodeURIComponent(id)}`;
  while (!signal.aborted) {
    const streaming = streams < STREAMS;
    if (streaming) streams += 1;
    try {
      if (streaming) {
        for await (const { event, data } of stream(`${path}/events`, { signal })) {
          if (event === "end") return data;
          heard(data);
        }
      } else {
        const row = await get(path, { signal });
        if (row.state !== "running") return row;
        heard(row.progress);
      }
    } catch (error) {
      // A stream that breaks off, or for which there is no room, says nothing about the operation.
      if (signal.aborted || [401, 403, 404].includes(error.status)) throw error;
    } finally {
      if (streaming) streams -= 1;
    }
    await pause(AGAIN, signal);
  }
  throw new DOMException("The view was left", "AbortError");
}

/** Asks for a list again and again as long as its view is shown; says so where that fails. */
export function keepFresh(list, { every, signal, reload, ask, draw }) {
  const stale = el("p", { class: "note warn", role: "status", hidden: true });
  const round = async () => {
    await pause(every, signal);
    if (signal.aborted) return;
    try {
      if (!document.hidden) {
        const got = await ask();
        stale.hidden = true;
        // Nothing is exchanged beneath somebody's hands.
        if (!list.contains(document.activeElement) && !document.querySelector("dialog[open]")) draw(got);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) { reload(); return; }
      stale.textContent = `This is how it was ${new Date().toLocaleTimeString()}: ${error.detail ?? error.message}`;
      stale.hidden = false;
    }
    round();
  };
  round();
  return stale;
}
