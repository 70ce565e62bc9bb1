// How a program gets here: the lines that a shell wants, as the command line prints them.

import { call } from "./api.js";
import { byId, copier, say } from "./dom.js";

/** Load where the sandbox is, and who sells. */
export async function load() {
  const { sandbox } = await call("GET", "state");
  const lines = [
    `export PAYMENTSDK_BASE_URL=${sandbox.base_url}`,
    `export PAYMENTSDK_ACCESS_TOKEN=${sandbox.access_token}`,
  ];
  say(byId("exports"), lines.join("\n"));
  say(byId("point-of-sale"), sandbox.external_pos_id);
}

export function start() {
  byId("copy-exports").append(copier("Copy", async () => `${byId("exports").textContent}\n`));
}
