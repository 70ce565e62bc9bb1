// Starts the dashboard: loads what there is, and listens to what happens.

import { watch } from "./api.js";
import * as books from "./books.js";
import * as checkouts from "./checkouts.js";
import * as clock from "./clock.js";
import * as connect from "./connect.js";
import * as deliveries from "./deliveries.js";
import { announce, byId } from "./dom.js";
import * as orders from "./orders.js";
import * as requests from "./requests.js";
import * as rules from "./rules.js";
import * as sellers from "./sellers.js";

function connection(tone, word) {
  const shown = byId("link").firstElementChild;
  shown.dataset.tone = tone;
  shown.textContent = word;
}

/** Run each of `loads`, and say which failed. */
async function all(loads) {
  const loading = loads.map((one) => one());
  for (const { reason } of await Promise.allSettled(loading)) if (reason) announce(reason.message);
}

/** Load all that belongs to the chosen seller; the clock first, since ages and countdowns go by it. */
async function loadChosen() {
  await all([clock.load]);
  await all([
    orders.load, checkouts.load, books.loadMerchantOrders, books.loadLedger, deliveries.load, rules.loadFaults,
    rules.loadPolicies, connect.load,
  ]);
}

/** Load everything. The sellers, of whom there may be thousands, stay as they are if nothing but rules has changed. */
async function load({ what = "everything" }) {
  if (what === "everything") await sellers.load();
  await Promise.all([loadChosen(), all([requests.load])]);
  connection("good", "Connected");
}

/** Hand the events of the chosen seller to each of `handlers`. */
function ofChosen(...handlers) {
  return (changed, tenant) => {
    sellers.seen(tenant);
    if (sellers.isShown(tenant)) for (const handle of handlers) handle(changed);
  };
}

// Without scripts there is nothing to see here but what says so.
for (const id of ["board", "link"]) byId(id).hidden = false;
clock.start();
connect.start();
orders.start();
requests.start();
await rules.start();
byId("seller").addEventListener("change", () => {
  byId("fault-tenant").value = sellers.chosen();
  requests.draw();
  loadChosen();
});
setInterval(orders.tick, 1000);
watch(
  {
    orders: ofChosen(orders.changed, books.changed),
    preferences: ofChosen(checkouts.changed, books.changed),
    merchant_orders: ofChosen(checkouts.changed, books.changed),
    invoices: ofChosen(books.changed),
    deliveries: ofChosen(deliveries.changed),
    // A new seller has a plan.
    plans: ofChosen(),
    clock() {
      clock.load();
      // The token may have expired meanwhile.
      connect.load();
    },
    // Everything may be another, as after a restore.
    changed: load,
    requests(line) {
      requests.add(line);
      if (line.method !== "GET") books.changed();
      if (line.faults?.length) rules.loadFaults();
    },
  },
  load,
  () => connection("bad", "Not connected"),
);
