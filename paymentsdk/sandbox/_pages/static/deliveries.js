// Deliveries of notifications: their states, and a button to redeliver each.

import { call } from "./api.js";
import { attempt, byId, fill, make, moment, soon, state } from "./dom.js";
import * as sellers from "./sellers.js";

const SHOWN = 20;
const TONES = { waiting: "wait", held: "wait", delivered: "good", failed: "bad", lost: "still" };

/** Load the newest deliveries. The panel is hidden without any. */
export async function load() {
  const rows = await sellers.newest("deliveries", SHOWN);
  byId("deliveries").hidden = rows.length === 0;
  fill(byId("delivery-rows"), rows, makeRow);
}

/** Load the deliveries again after one was created or has changed; once for several changes. */
export const changed = soon(load);

function makeRow(delivery) {
  const { topic, action, resource, status, faults } = delivery;
  const what = `${topic}.${action}`;
  const button = make("button", { type: "button", className: "tool" }, "Redeliver");
  button.setAttribute("aria-label", `Redeliver ${what} of ${resource}`);
  button.addEventListener("click", () => attempt(button, () => call("POST", `deliveries/${delivery.id}/redeliver`)));
  const result = [delivery.response_status, delivery.error, ...faults].filter(Boolean).join(", ").replaceAll("_", " ");
  return make(
    "li",
    {},
    make("span", {}, what, make("small", { className: "quiet mono" }, resource), make("small", {}, result)),
    state(TONES[status], status[0].toUpperCase() + status.slice(1)),
    button,
    moment(delivery.at),
  );
}
