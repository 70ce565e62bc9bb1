// Starts the dashboard: loads the current state, and listens to events.

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

/** Run each of `loads`, and show the errors. */
async function all(loads) {
  const loading = loads.map((start) => start());
  for (const { reason } of await Promise.allSettled(loading)) if (reason) announce(reason.message);
}

/** Load everything of the chosen seller. The clock is first, since ages and countdowns need it. */
async function loadChosen() {
  await all([clock.load]);
  await all([
    orders.load, checkouts.load, books.loadMerchantOrders, books.loadLedger, deliveries.load, rules.loadFaults,
    rules.loadPolicies, connect.load,
  ]);
}

/** Load everything. The sellers, perhaps thousands, are not loaded again if only rules have changed. */
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

// The panels are hidden in the page, so that it shows only the notice if scripts do not run.
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
    // A new seller is noticed by their plan.
    plans: ofChosen(),
    clock() {
      clock.load();
      // The token may have expired meanwhile.
      connect.load();
    },
    // After a restore, everything may differ.
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
