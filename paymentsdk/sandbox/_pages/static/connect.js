// How to connect a program: the same shell commands as the command line prints.

import { byId, copier, say } from "./dom.js";
import * as sellers from "./sellers.js";

/** Load the address and the credentials. */
export async function load() {
  const seller = await sellers.ofChosen(sellers.credentials);
  const lines = [
    `export PAYMENTSDK_BASE_URL=${seller.base_url}`,
    `export PAYMENTSDK_ACCESS_TOKEN=${seller.access_token}`,
  ];
  say(byId("exports"), lines.join("\n"));
  say(byId("point-of-sale"), seller.external_pos_id);
}

export function start() {
  byId("copy-exports").append(copier("Copy", async () => `${byId("exports").textContent}\n`));
}
