// The seller whose rows all panels show.

import { call } from "./api.js";
import { byId, fill, soon } from "./dom.js";

let known = [];

/** The user id of the chosen seller; an empty text while all are shown. */
export const chosen = () => byId("seller").value;

/** Whether the rows of this seller are shown. */
export const isShown = (tenant) => !chosen() || String(tenant) === chosen();

/** Return the policies that the chosen seller has of their own, by name. */
export const policies = () => (chosen() ? known.find(({ user_id }) => isShown(user_id)).policies : {});

/** Name the seller of a row, while the rows of several are shown. */
export const nameOf = (tenant) => (known.length > 1 && !chosen() ? `Seller ${tenant}` : "");

/** Return what `ask` returns for the chosen seller. If another was chosen meanwhile, it is asked for that one. */
export async function ofChosen(ask) {
  const seller = chosen();
  const answer = await ask(seller);
  return seller === chosen() ? answer : ofChosen(ask);
}

/** Return the newest rows of the chosen seller, as `read` gets them from an address of the control API. */
export function newest(path, limit, read = (address) => call("GET", address)) {
  return ofChosen((seller) => read(`${path}?limit=${limit}${seller && `&tenant=${seller}`}`));
}

/** Return the chosen seller, or the first one, with credentials that can be used. */
export async function credentials() {
  if (!chosen()) return (await call("GET", "state")).sandbox;
  return (await call("GET", "tenants")).find(({ user_id }) => isShown(user_id));
}

/** Load the sellers. With one alone there is nothing to choose. */
export async function load() {
  known = await call("GET", "tenants");
  const before = chosen();
  const rows = known.map(({ user_id: id, country }) => ({ id, words: `${id}, ${country}` }));
  fill(byId("seller"), [{ id: "", words: "All sellers" }, ...rows], ({ id, words }) => new Option(words, id));
  byId("seller").value = known.some(({ user_id }) => String(user_id) === before) ? before : "";
  byId("sellers").hidden = known.length < 2;
}

const reload = soon(load);

/** Something happened to a seller, who may be new. */
export function seen(tenant) {
  if (tenant && !known.some(({ user_id }) => user_id === tenant)) reload();
}
