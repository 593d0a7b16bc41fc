// Where the token is put in.

import { get, token } from "./api.js";
import { el, problem } from "./dom.js";

/** The token's tenant, and what it allows. */
export const whoami = (signal) => get("/v1/token", { signal });

export function login({ because, entered }) {
  const field = el("input", { id: "token", type: "password", name: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-hint" });
  const said = el("div", {});
  const submit = el("button", { type: "submit", class: "primary" }, "Sign in");
  const enter = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    token.set(field.value.trim());
    try {
      entered(await whoami());
    } catch (error) {
      token.clear();
      const wrong = { ...error, title: "This token does not count", detail: "It is unknown, expired or revoked. It looks like stasis_<id>_<secret>, all of it on one line." };
      said.replaceChildren(problem(error.status === 401 ? wrong : error));
      field.select();
    } finally {
      submit.disabled = false;
    }
  };
  return el("section", { class: "login panel" },
    el("h1", {}, "Sign in"),
    because ? el("p", { class: "note warn" }, because) : null,
    el("form", { onsubmit: enter },
      el("label", { for: "token" }, "Token"),
      field,
      el("p", { id: "token-hint", class: "quiet" }, "Made by ", el("code", {}, "stasis token create"), ". It stays in this tab and is gone when you close it."),
      submit),
    said);
}
