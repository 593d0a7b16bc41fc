// What changes something. The server's plan comes first; then the name of the subject is typed, and a reason.
// What is sent names the generation that was shown: where it moved meanwhile, the server refuses.

import { getTagged, query, send } from "./api.js";
import { ago, badge, code, el, facts, problem, say, size } from "./dom.js";

/** The tenant and the profile as the routes of profiles take them, and the major of the browser. */
function profilePath(lineage, ...more) {
  const [, tenant, profile, major] = /^(?:profile:)?([^/]+)\/(.+)@(\d+)$/.exec(lineage.subject);
  const path = ["/v1/profile-snapshots", ...[tenant, profile, ...more].map(encodeURIComponent)].join("/");
  return query(path, { chrome_major: major });
}

const lineageOf = (shown, row) => shown.profile.lineages.find((one) => one.subject.endsWith(`@${row.chrome_major}`)) ?? shown.profile.lineages[0];

/** Asks whether it is really meant. `act` does it, with the reason. */
function confirm({ title, verb, plan, name, why, act, done, view }) {
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
  dialog.addEventListener("close", () => dialog.remove());
  view.signal.addEventListener("abort", () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  typed.focus();
}

/** What is said where the plan itself is refused. */
function refused(error, view) {
  const dialog = el("dialog", { "aria-label": "Refused" }, problem(error), el("div", { class: "bar end" }, el("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => { dialog.remove(); if (error.status === 401) view.reload(); });
  document.body.append(dialog);
  dialog.showModal();
}

async function guarded(view, work) {
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") refused(error, view);
  }
}

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
      plan.warnings?.length ? ["Warnings", el("ul", {}, plan.warnings.map((one) => el("li", {}, one.message ?? one.detail ?? JSON.stringify(one))))] : null,
    ]), row.marks?.some((mark) => mark.startsWith("damaged")) ? el("p", { class: "note warn" }, "This snapshot is damaged: look at what is marked before you give it to runs.") : null,
    el("p", { class: "quiet" }, "Nothing is deleted: every snapshot stays, and you can roll forward the same way.")],
    act: (reason) => send("POST", path, { sha_prefix: row.snapshot, confirm: true, reason }, etag),
  });
});

export const askDelete = (view, shown, row) => guarded(view, async () => {
  const path = profilePath(lineageOf(shown, row), row.snapshot);
  const { etag } = await getTagged(path);
  confirm({
    view, name: view.id, verb: "Delete",
    title: "Delete a snapshot",
    done: `Deleted ${row.snapshot.slice(0, 12)}; its bytes go with the next gc.`,
    plan: [facts([
      ["Deleted", code(row.snapshot), ", saved ", ago(row.at_ms), `, ${size(row.bytes)}`],
      ["Generation", (etag ?? "none").replaceAll('"', "")],
    ]), el("p", { class: "note warn" }, "It cannot be rolled back to any more, and its bytes go with the next gc. The active snapshot, pinned ones and the last one are never deleted.")],
    act: () => send("DELETE", path, undefined, etag),
  });
});

export const askUnlock = (view, lineage) => guarded(view, async () => {
  const { lock } = lineage;
  confirm({
    view, name: view.id, verb: "Throw the holder out", why: true,
    title: "Force-unlock",
    done: "The lease is free.",
    plan: [facts([
      ["Lease", ...evicted(lock)],
      ["Held since", ago(lock.acquired_at_ms), ", renewed ", ago(lock.renewed_at_ms)],
      ["Generation", String(lock.generation)],
    ]), el("p", { class: "note warn" }, "If the run still works, what it saves from now on is stored and not published. Look whether its host is really gone.")],
    act: (reason) => send("POST", profilePath(lineage, "force-unlock"), { confirm: true, reason }, `"${lock.generation}"`),
  });
});
