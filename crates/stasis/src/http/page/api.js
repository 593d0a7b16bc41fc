// The service as the page asks it. The token is kept until the tab is closed, and nowhere else.

const KEY = "stasis-token";
// By how much the server's clock is ahead of this one: leases end by the server's.
let ahead = 0;

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

/** What went wrong, as problem+json says it. */
export class Problem extends Error {
  constructor(fields) {
    super(fields.detail);
    Object.assign(this, fields);
  }
}

/** The time of the server, in milliseconds. */
export const now = () => Date.now() + ahead;

async function ask(method, path, { body, etag, key, signal } = {}) {
  const headers = {};
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body) headers["Content-Type"] = "application/json";
  if (etag) headers["If-Match"] = etag;
  if (key) headers["Idempotency-Key"] = key;
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ title: "The service does not answer", detail: "The connection failed. Is the service running, and reachable from here?", code: "offline" });
  }
  const date = Date.parse(response.headers.get("Date") ?? "");
  // The header has whole seconds: smaller differences are its own.
  if (date && Math.abs(date - Date.now()) > 2000) ahead = date - Date.now();
  if (response.ok) return response;
  let said = {};
  try {
    said = await response.json();
  } catch {
    said = { detail: `The answer was ${response.status}, and no document.` };
  }
  throw new Problem({ title: "The request was refused", status: response.status, ...said });
}

/** A document, and the generation it is of, as If-Match takes it. */
export async function getTagged(path, options) {
  const response = await ask("GET", path, options);
  return { body: await response.json(), etag: response.headers.get("ETag") };
}

export const get = async (path, options) => (await getTagged(path, options)).body;

export async function send(method, path, body, options) {
  const response = await ask(method, path, { ...options, body });
  return { body: await response.json(), etag: response.headers.get("ETag") };
}

export const bytes = async (path, options) => (await ask("GET", path, options)).blob();

/** Server-sent events, to the end of the stream. The browser's own reader of them sends no token. */
export async function* stream(path, options) {
  const response = await ask("GET", path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (text + value).split("\n\n");
      text = parts.pop();
      for (const part of parts) {
        const [event, data] = [/^event: (.*)$/m, /^data: (.*)$/m].map((field) => field.exec(part)?.[1]);
        if (event && data) yield { event, data: JSON.parse(data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The path of a subject, or of something in it. */
export function subjectPath(kind, id, ...more) {
  return ["/v1/subjects", kind, id, ...more].map((part, at) => (at ? encodeURIComponent(part) : part)).join("/");
}

/** A path with what stands behind the question mark; what is nothing is left out. */
export function query(path, fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** All pages of a list, up to so many; the last cursor is left where there are more. */
export async function getAll(path, fields, { signal, pages = 20 } = {}) {
  let all = null;
  let cursor;
  for (let page = 0; page < pages; page += 1) {
    const got = await get(query(path, { limit: 1000, ...fields, cursor }), { signal });
    all = all ? { ...got, items: all.items.concat(got.items) } : got;
    cursor = got.next_cursor;
    if (!cursor) break;
  }
  return all;
}
