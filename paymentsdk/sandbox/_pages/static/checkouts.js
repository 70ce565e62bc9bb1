// Checkout links: the pages where buyers pay preferences.

import { call } from "./api.js";
import { attempt, byId, fill, make, moment, show, soon, state } from "./dom.js";
import * as sellers from "./sellers.js";

const SHOWN = 20;
const STATES = { opened: ["wait", "Waiting"], paid: ["good", "Paid"], reverted: ["still", "Refunded"] };

let listed = new Set();

/** Load the newest preferences. */
export async function load() {
  const rows = await sellers.newest("preferences", SHOWN);
  listed = new Set(rows.map(({ preference }) => preference.id));
  byId("checkouts").hidden = rows.length === 0;
  fill(byId("checkout-rows"), rows, makeRow);
}

const reload = soon(load);

/** Load the preferences again after one was created or its state has changed. */
export function changed(record) {
  if (record.init_point || listed.has(record.source)) reload();
}

function makeRow({ preference, amount, currency, status }) {
  const [item] = preference.items;
  const more = preference.items.length > 1 ? ` and ${preference.items.length - 1} more` : "";
  // The same name as on the buyer's page. A blank title would make a link that cannot be pressed.
  const name = `${item.title?.trim() || item.description?.trim() || `Item ${item.id ?? ""}`}${more}`;
  const pay = make("button", { type: "button", className: "tool" }, "Pay");
  pay.setAttribute("aria-label", `Pay ${name}`);
  pay.addEventListener("click", async () => {
    const paid = await attempt(pay, () => call("POST", `preferences/${preference.id}/pay`));
    // Move the focus, since the button goes.
    if (paid) byId("checkouts").focus();
  });
  return make(
    "li",
    {},
    make(
      "span",
      {},
      make("a", { href: `/checkout/${preference.id}` }, make("bdi", {}, name)),
      make("small", { className: "quiet" }, make("bdi", {}, preference.external_reference ?? "")),
    ),
    show(make("span", { className: "money end" }), currency, amount),
    status === "opened" ? pay : state(...STATES[status]),
    moment(preference.date_created),
  );
}
