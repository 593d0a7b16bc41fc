// What changes something. Of what destroys, the server's plan comes first; then the name of the subject is typed, and a reason.
// What is sent then names the generation that was shown: where it moved meanwhile, the server refuses.

import { query, send, subjectPath } from "./api.js";
import { ago, badge, code, el, facts, problem, say, short, size } from "./dom.js";
import { notice } from "./notices.js";

/** The tenant and the profile as the routes of profiles take them, and the major of the browser. */
function profilePath(lineage, ...more) {
  const [, tenant, profile, major] = /^(?:profile:)?([^/]+)\/(.+)@(\d+)$/.exec(lineage.subject);
  const path = ["/v1/profile-snapshots", ...[tenant, profile, ...more].map(encodeURIComponent)].join("/");
  return query(path, { chrome_major: major });
}

const lineageOf = (shown, row) => shown.profile.lineages.find((one) => one.subject.endsWith(`@${row.chrome_major}`)) ?? shown.profile.lineages[0];

/** Shows a dialog until it is closed, or the view is left. */
export function show(dialog, view, first) {
  dialog.addEventListener("close", () => dialog.remove());
  view.signal.addEventListener("abort", () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  first.focus();
}

/** Asks whether it is really meant. `act` does it, with the reason. */
export function confirm({ title, verb, plan, name, why, act, done, view }) {
  const typed = el("input", { id: "typed", autocomplete: "off", spellcheck: "false" });
  const reason = why ? el("input", { id: "reason", autocomplete: "off", maxlength: "200" }) : null;
  const go = el("button", { type: "submit", class: "primary danger", disabled: true }, verb);
  const said = el("div", {});
  const check = () => { go.disabled = typed.value !== name || Boolean(reason && !reason.value.trim()); };
  const submit = async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    try {
      await act(reason?.value.trim());
      dialog.close();
      say(done);
      view.reload();
    } catch (error) {
      // What was agreed to is not what is there: the plan is made anew.
      const moved = [409, 412].includes(error.status) || error.code === "retry";
      said.replaceChildren(problem(error, moved ? () => { dialog.close(); view.reload(); } : null, "Look again"));
      check();
    }
  };
  const dialog = el("dialog", { "aria-labelledby": "ask" },
    el("h2", { id: "ask" }, title),
    ...plan.filter(Boolean),
    el("form", { onsubmit: submit, oninput: check },
      el("label", { for: "typed" }, "Type ", el("code", {}, name), " to confirm"), typed,
      ...(reason ? [el("label", { for: "reason" }, "Reason, for the log of events"), reason] : []),
      said,
      el("div", { class: "bar end" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go)));
  show(dialog, view, typed);
}

/** What is said where the plan itself is refused. */
function refused(error, view) {
  const dialog = el("dialog", { "aria-label": "Refused" }, problem(error), el("div", { class: "bar end" }, el("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => { dialog.remove(); if (error.status === 401) view.reload(); });
  document.body.append(dialog);
  dialog.showModal();
}

export async function guarded(view, work) {
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") refused(error, view);
  }
}

const warnings = (plan) => (plan.warnings?.length
  ? ["Warnings", el("ul", {}, plan.warnings.map((one) => el("li", {}, one.message ?? one.detail ?? JSON.stringify(one))))]
  : null);

const evicted = (one) => (one
  ? [badge("thrown out", "danger"), " run ", el("code", {}, one.run_id ?? one.holder_run_id), ` on ${one.host ?? one.holder_host}; it cannot save any more`]
  : ["nobody"]);

export const askRollback = (view, shown, row) => guarded(view, async () => {
  const path = profilePath(lineageOf(shown, row), "rollback");
  const { body: plan, etag } = await send("POST", path, { sha_prefix: row.snapshot, confirm: false });
  const manifest = plan.details?.manifest ?? {};
  confirm({
    view, name: view.id, verb: "Roll back", why: true,
    title: "Roll back",
    done: `Rolled back to ${row.snapshot.slice(0, 12)}.`,
    plan: [facts([
      ["Active now", plan.from_sha256 ? code(plan.from_sha256) : "none"],
      ["Becomes active", code(plan.to_sha256), ", saved ", ago(row.at_ms), `, ${size(row.bytes)}`, manifest.notes ? `, “${manifest.notes}”` : ""],
      ["Lease", ...evicted(plan.evicts)],
      ["Generation", String(plan.generation)],
      warnings(plan),
    ]), row.marks?.some((mark) => mark.startsWith("damaged")) ? el("p", { class: "note warn" }, "This snapshot is damaged: look at what is marked before you give it to runs.") : null,
    el("p", { class: "quiet" }, "Nothing is deleted: every snapshot stays, and you can roll forward the same way.")],
    act: (reason) => send("POST", path, { sha_prefix: row.snapshot, confirm: true, reason }, { etag }),
  });
});

export const askDelete = (view, row) => guarded(view, async () => {
  const path = subjectPath(view.kind, view.id, "snapshots", row.snapshot);
  const { body: plan, etag } = await send("DELETE", path);
  confirm({
    view, name: view.id, verb: "Delete",
    title: "Delete a snapshot",
    done: `Deleted ${short(row.snapshot)}; its bytes go with the next gc.`,
    plan: [facts([
      ["Deleted", code(row.snapshot), ", saved ", ago(row.at_ms), `, ${size(row.bytes)}`],
      ["Generation", (etag ?? "none").replaceAll('"', "")],
      warnings(plan),
    ]), el("p", { class: "note warn" }, view.kind === "profile"
      ? "It cannot be rolled back to any more, and its bytes go with the next gc. The active snapshot, pinned ones and the last one are never deleted."
      : "It cannot be restored any more; what no other snapshot shares goes with the next gc. The newest snapshot and pinned ones are never deleted.")],
    act: () => send("DELETE", query(path, { confirm: true }), undefined, { etag }),
  });
});

export const changePin = (view, row) => guarded(view, async () => {
  const verb = row.pinned ? "unpin" : "pin";
  await send("POST", subjectPath(view.kind, view.id, "snapshots", row.snapshot, verb), {});
  say(row.pinned ? `Unpinned ${short(row.snapshot)}: it is kept no longer than others.` : `Pinned ${short(row.snapshot)}: it is kept whatever a policy says.`);
  view.reload();
});

/** A name for one request, so that asking again does not do it twice. */
export const freshKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Asks what the new profile is called. Nothing is destroyed, so nothing is typed twice. */
export function askFork(view, row) {
  const [, major] = /@(\d+)$/.exec(view.id) ?? [null, String(row.chrome_major)];
  const target = el("input", { id: "target", autocomplete: "off", spellcheck: "false", required: true, maxlength: "120", "aria-describedby": "target-hint" });
  const whole = () => `${target.value.trim()}@${major}`;
  const becomes = el("code", {}, `…@${major}`);
  const go = el("button", { type: "submit", class: "primary", disabled: true }, "Fork");
  const said = el("div", {});
  let key = freshKey();
  const typed = () => {
    key = freshKey();
    go.disabled = !target.value.trim();
    becomes.textContent = target.value.trim() ? whole() : `…@${major}`;
  };
  const submit = async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    try {
      const { body } = await send("POST", subjectPath(view.kind, view.id, "fork"), { target: target.value.trim(), snapshot: row.snapshot }, { key });
      dialog.close();
      notice({ id: body.operation_id, doing: `Forking ${view.id} to ${whole()}`, done: `${whole()} begins with ${short(row.snapshot)}.`, subject: `profile:${view.who.tenant}/${whole()}` });
    } catch (error) {
      // A refusal is kept under its key; a connection that failed may have begun it, and asks again with the same one.
      if (error.status) key = freshKey();
      said.replaceChildren(problem(error));
      go.disabled = false;
    }
  };
  const dialog = el("dialog", { "aria-labelledby": "ask" },
    el("h2", { id: "ask" }, "Fork a profile"),
    facts([
      ["From", view.id],
      ["Begins with", code(row.snapshot), ", saved ", ago(row.at_ms), `, ${size(row.bytes)}`, row.labels?.message ? `, “${row.labels.message}”` : ""],
      ["Becomes", becomes],
    ]),
    el("p", { class: "quiet" }, `Its logins are copied with it. ${view.id} is only read; from then on the two have nothing in common.`),
    el("form", { onsubmit: submit, oninput: typed },
      el("label", { for: "target" }, "Name of the new profile"), target,
      el("p", { id: "target-hint", class: "quiet small" }, `Of the same tenant and Chrome ${major}. It must not exist yet.`),
      said,
      el("div", { class: "bar end" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go)));
  show(dialog, view, target);
}

export const askUnlock = (view, lineage) => guarded(view, async () => {
  const { lock } = lineage;
  confirm({
    view, name: view.id, verb: "Throw the holder out", why: true,
    title: "Force-unlock",
    done: "The lease is free.",
    plan: [facts([
      ["Lease", ...evicted(lock)],
      lock.acquired_at_ms ? ["Held since", ago(lock.acquired_at_ms)] : null,
      ["Renewed", ago(lock.renewed_at_ms)],
      ["Generation", String(lock.generation)],
    ]), el("p", { class: "note warn" }, "If the run still works, what it saves from now on is stored and not published. Look whether its host is really gone.")],
    act: (reason) => send("POST", profilePath(lineage, "force-unlock"), { confirm: true, reason }, { etag: `"${lock.generation}"` }),
  });
});
