// The merchant orders of orders and preferences, and the ledger.

import { text } from "./api.js";
import { byId, fill, make, moment, show, soon, state } from "./dom.js";
import * as sellers from "./sellers.js";

const SHOWN = 20;
/** The states in words, each with its color. */
const STATES = {
  payment_required: ["wait", "Waiting"],
  paid: ["good", "Paid"],
  reverted: ["still", "Refunded"],
  expired: ["still", "Expired"],
};

/** Load the newest merchant orders. */
export async function loadMerchantOrders() {
  draw("merchant-orders", await sellers.newest("merchant_orders", SHOWN), makeMerchantOrder);
}

/** Load the newest lines of the ledger. */
export async function loadLedger() {
  const lines = await sellers.newest("ledger", SHOWN, async (path) => (await text(path)).split("\n").slice(0, -1));
  draw("ledger", lines.reverse().map((line) => JSON.parse(line)), makeEntry);
}

/** Load both again after a change; once for several changes. */
export const changed = soon(() => Promise.all([loadMerchantOrders(), loadLedger()]));

/** Draw the rows of a panel, or hide a panel without rows. */
function draw(id, rows, makeItem) {
  byId(id).hidden = rows.length === 0;
  const named = rows.map((row) => ({ row, seller: sellers.nameOf(row.tenant ?? row.merchant_order.collector?.id) }));
  fill(byId(`${id}-rows`), named, makeItem);
}

function makeMerchantOrder({ row: { merchant_order: order, source }, seller }) {
  const currency = [...order.payments, ...order.items].find((part) => part.currency_id)?.currency_id ?? "";
  const mark = state(...(STATES[order.order_status] ?? ["still", order.order_status ?? "Unknown"]));
  const name = order.external_reference || String(order.id);
  return makeItem(name, [order.id, source, seller], currency, order.total_amount, mark, order.last_updated);
}

function makeEntry({ row: entry, seller }) {
  const ids = [...new Set([entry.external_reference, entry.id, entry.order_id, seller])];
  return makeItem(wordsOf(entry.kind), ids, entry.currency, entry.amount, "", entry.at);
}

function makeItem(name, details, currency, amount, mark, at) {
  const small = make("small", { className: "quiet" }, make("bdi", {}, details.filter(Boolean).join(" · ")));
  const money = show(make("span", { className: "money end" }), currency, amount);
  return make("li", {}, make("span", {}, make("bdi", {}, name), small), money, make("span", {}, mark), moment(at));
}

/** Return a word of the API for people: `order_created` as `Order created`. */
const wordsOf = (name) => `${name[0].toUpperCase()}${name.slice(1)}`.replaceAll("_", " ");
