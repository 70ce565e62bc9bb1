// Checkout links: where the buyer of a preference pays.

import { call } from "./api.js";
import { byId, make, money, timeOfDay } from "./dom.js";

const SHOWN = 20;
const records = new Map();

/** Load the newest preferences. */
export async function load() {
  records.clear();
  for (const record of (await call("GET", "preferences")).reverse()) records.set(record.preference.id, record);
  draw();
}

/** Take over a preference that was made. */
export function changed(record) {
  records.set(record.preference.id, record);
  draw();
}

function draw() {
  const newest = [...records.values()].reverse().slice(0, SHOWN);
  byId("checkouts").hidden = newest.length === 0;
  byId("checkout-rows").replaceChildren(...newest.map(makeRow));
}

function makeRow({ preference }) {
  const [item] = preference.items;
  const more = preference.items.length > 1 ? ` and ${preference.items.length - 1} more` : "";
  return make(
    "li",
    {},
    make("a", { href: `/checkout/${preference.id}` }, `${item.title ?? item.id ?? "Item"}${more}`),
    make("span", { className: "quiet small" }, preference.external_reference ?? ""),
    make("time", { dateTime: preference.date_created, className: "quiet small" }, timeOfDay(preference.date_created)),
  );
}
