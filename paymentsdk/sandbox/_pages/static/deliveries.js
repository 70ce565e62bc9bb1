// Deliveries of notifications: how each stands, and once more.

import { call } from "./api.js";
import { attempt, byId, fill, make, moment, soon, state } from "./dom.js";
import * as sellers from "./sellers.js";

const SHOWN = 20;
const TONES = { waiting: "wait", held: "wait", delivered: "good", failed: "bad", lost: "still" };

/** Load the newest deliveries; without any, there is no panel. */
export async function load() {
  const rows = await sellers.newest("deliveries", SHOWN);
  byId("deliveries").hidden = rows.length === 0;
  fill(byId("delivery-rows"), rows, makeRow);
}

/** A delivery was made or has changed: load them anew, once for all that happens at a time. */
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
