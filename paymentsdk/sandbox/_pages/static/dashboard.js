// Starts the dashboard: loads what there is, and listens to what happens.

import { watch } from "./api.js";
import * as checkouts from "./checkouts.js";
import * as clock from "./clock.js";
import * as connect from "./connect.js";
import * as deliveries from "./deliveries.js";
import { announce, byId } from "./dom.js";
import * as orders from "./orders.js";
import * as requests from "./requests.js";
import * as rules from "./rules.js";

function connection(tone, word) {
  const shown = byId("link").firstElementChild;
  shown.dataset.tone = tone;
  shown.textContent = word;
}

async function load() {
  // The clock first: ages and countdowns go by it.
  await clock.load();
  const loads = [
    orders.load, checkouts.load, deliveries.load, requests.load, rules.loadFaults, rules.loadPolicies, connect.load,
  ];
  const loading = loads.map((one) => one());
  for (const { reason } of await Promise.allSettled(loading)) if (reason) announce(reason.message);
  connection("good", "Connected");
}

// Without scripts there is nothing to see here but what says so.
for (const id of ["board", "link"]) byId(id).hidden = false;
clock.start();
connect.start();
orders.start();
requests.start();
await rules.start();
setInterval(orders.tick, 1000);
watch(
  {
    orders: orders.changed,
    preferences: checkouts.changed,
    merchant_orders: checkouts.changed,
    deliveries: deliveries.changed,
    clock() {
      clock.load();
      // The token may have expired meanwhile.
      connect.load();
    },
    // Everything may be another, as after a restore.
    changed: load,
    requests(line) {
      requests.add(line);
      if (line.faults?.length) rules.loadFaults();
    },
  },
  load,
  () => connection("bad", "Not connected"),
);
