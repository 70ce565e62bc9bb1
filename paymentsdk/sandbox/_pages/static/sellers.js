// The seller whose rows are shown in all panels.

import { call } from "./api.js";
import { byId, fill, soon } from "./dom.js";

let known = [];

/** The user id of the chosen seller; empty for all sellers. */
export const chosen = () => byId("seller").value;

/** Whether the rows of this seller are shown. */
export const isShown = (tenant) => !chosen() || String(tenant) === chosen();

/** Return the chosen seller's own policies, by name. */
export const policies = () => (chosen() ? known.find(({ user_id }) => isShown(user_id)).policies : {});

/** Return the name of a row's seller if rows of several sellers are shown. */
export const nameOf = (tenant) => (known.length > 1 && !chosen() ? `Seller ${tenant}` : "");

/** Return the result of `ask` for the chosen seller. If another seller is chosen meanwhile, ask again. */
export async function ofChosen(ask) {
  const seller = chosen();
  const answer = await ask(seller);
  return seller === chosen() ? answer : ofChosen(ask);
}

/** Return the newest rows of the chosen seller, which `read` gets from a path of the control API. */
export function newest(path, limit, read = (address) => call("GET", address)) {
  return ofChosen((seller) => read(`${path}?limit=${limit}${seller && `&tenant=${seller}`}`));
}

/** Return the chosen seller, or the first one, with valid credentials. */
export async function credentials() {
  if (!chosen()) return (await call("GET", "state")).sandbox;
  return (await call("GET", "tenants")).find(({ user_id }) => isShown(user_id));
}

/** Load the sellers. With only one seller, there is no choice. */
export async function load() {
  known = await call("GET", "tenants");
  const before = chosen();
  const rows = known.map(({ user_id: id, country }) => ({ id, words: `${id}, ${country}` }));
  fill(byId("seller"), [{ id: "", words: "All sellers" }, ...rows], ({ id, words }) => new Option(words, id));
  byId("seller").value = known.some(({ user_id }) => String(user_id) === before) ? before : "";
  byId("sellers").hidden = known.length < 2;
}

const reload = soon(load);

/** Load the sellers again if an event names a new one. */
export function seen(tenant) {
  if (tenant && !known.some(({ user_id }) => user_id === tenant)) reload();
}
