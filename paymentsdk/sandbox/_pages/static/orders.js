// Orders: a card with a QR code for each unpaid order, and a row for each settled one.

import { ask, call, text } from "./api.js";
import * as clock from "./clock.js";
import { announce, attempt, breakable, byId, countdown, fill, make, moment, money, say, show, span, state } from "./dom.js";
import * as sellers from "./sellers.js";

const CARDS = 12;
const ROWS = 50;
const KEPT = 500;
/** A button that moves the clock by more milliseconds asks first. */
const DAY = 86400000;

/** The states in words, each with its color. */
const STATES = {
  created: ["wait", "Waiting"],
  in_review: ["wait", "In review"],
  processed: ["good", "Paid"],
  partially_refunded: ["still", "Partly refunded"],
  refunded: ["still", "Refunded"],
  canceled: ["still", "Canceled"],
  expired: ["still", "Expired"],
};

const records = new Map();
const cards = new Map();
let due = false;

/** The state as in the API: one word if status and detail are the same. */
const wireState = ({ status, status_detail: detail }) => (status === detail ? status : `${status}, ${detail}`);
const payment = (order) => order.transactions.payments[0];

function stateOf(order) {
  const { status_detail: detail, paid_amount: paid, refunded_amount: refunded } = payment(order);
  if (order.status === "created") return STATES[detail] ?? STATES.created;
  // The order's own status after a partial refund depends on a policy.
  if (order.status !== "canceled" && refunded && !equal(refunded, paid)) return STATES.partially_refunded;
  return STATES[order.status] ?? ["still", order.status];
}

/** Return whether two amounts are equal, with or without cents. */
const equal = (first, second) => money("", first) === money("", second);

/** The orders that arrived as events during a load. The loaded rows may be older. */
let arrived = [];
let loads = 0;

/** Load the newest orders, at the start and after events may have been missed. */
export async function load() {
  const mine = ++loads;
  arrived = [];
  const rows = await sellers.newest("orders", KEPT);
  if (mine !== loads) return;  // A later load has newer rows.
  records.clear();
  for (const record of [...rows.reverse(), ...arrived]) keep(record);
  draw();
}

function keep(record) {
  records.set(record.order.id, record);
  if (records.size > KEPT) records.delete(records.keys().next().value);
}

/** Show an order that was created or has changed. */
export function changed(record) {
  arrived = [...arrived, record].slice(-KEPT);
  const before = records.get(record.order.id);
  keep(record);
  draw();
  const [, word] = stateOf(record.order);
  if (!before || stateOf(before.order)[1] !== word) announce(`${record.order.external_reference}: ${word}`);
}

function draw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    const newest = [...records.values()].reverse();
    drawCards(newest.filter(({ order }) => order.status === "created"));
    drawRows(newest.filter(({ order }) => order.status !== "created"));
  });
}

function drawCards(waiting) {
  const shown = waiting.slice(0, CARDS);
  const kept = new Set(shown.map(nameOf));
  for (const [name, card] of cards) {
    if (kept.has(name)) continue;
    // Move the focus before the card goes.
    if (card.contains(document.activeElement)) byId("orders").focus();
    card.remove();
    cards.delete(name);
  }
  const list = byId("open");
  shown.forEach((record, place) => {
    const card = cards.get(nameOf(record)) ?? makeCard(record);
    fillCard(card, record);
    if (list.children[place] !== card) list.insertBefore(card, list.children[place] ?? null);
  });
  byId("no-open").hidden = waiting.length > 0;
  const more = waiting.length - shown.length;
  byId("more-open").hidden = more <= 0;
  say(byId("more-open"), `${more} older orders are waiting, too.`);
  const settled = records.size - waiting.length;
    // If more orders exist than are kept here, these are not the total numbers.
  const among = records.size < KEPT ? "" : `Among the newest ${KEPT}: `;
  say(byId("counts"), records.size ? `${among}${waiting.length} waiting, ${settled} settled` : "");
}

/** Return the amount that the button pays: with account money, for which an order may have its own total. */
function asked(order) {
  const discounts = order.discounts?.payment_methods ?? [];
  return discounts.find((discount) => discount.type === "account_money")?.new_total_amount ?? order.total_amount;
}

/** The key of a card: all parts of the order that never change. After a restart, another order may have the same id. */
function nameOf({ order }) {
  return JSON.stringify([order.id, order.external_reference, order.description, asked(order), order.config]);
}

function makeCard(record) {
  const { order } = record;
  const card = byId("order-card").content.firstElementChild.cloneNode(true);
  const slot = (name) => card.querySelector(`[data-slot=${name}]`);
  const heading = slot("reference");
  heading.id = `reference-${order.id}`;
  say(heading, order.external_reference);
  say(slot("description"), order.description ?? "");
  say(slot("id"), order.id);
  slot("page").href = `/qr/${order.id}`;
  for (const control of card.querySelectorAll(".actions > *")) control.setAttribute("aria-describedby", heading.id);
  for (const button of card.querySelectorAll("[data-act]")) {
    button.addEventListener("click", () => act(button, order.id));
  }
  card.querySelector("[data-act=approved]").replaceChildren("Pay ", ...breakable(money(order.currency, asked(order))));
  drawCode(slot("code"), order);
  cards.set(nameOf(record), card);
  return card;
}

function fillCard(card, { order, expires_at }) {
  const slot = (name) => card.querySelector(`[data-slot=${name}]`);
  const [tone, word] = stateOf(order);
  slot("state").dataset.tone = tone;
  say(slot("state"), word);
  say(slot("seller"), sellers.nameOf(order.user_id));
  show(slot("amount"), order.currency, order.total_amount);
  slot("age").dateTime = order.created_date;
  slot("expiry").dateTime = expires_at;
  tickCard(card);
}

/** Update the times of all cards, once a second. */
export function tick() {
  for (const card of cards.values()) tickCard(card);
}

function tickCard(card) {
  const [age, expiry] = ["age", "expiry"].map((name) => card.querySelector(`[data-slot=${name}]`));
  say(age, `${span(clock.now() - Date.parse(age.dateTime))} ago`);
  const left = Date.parse(expiry.dateTime) - clock.now();
  say(expiry, left > 0 ? `Expires in ${countdown(left)}` : "Expired");
  say(card.querySelector("[data-act=expire]"), `Advance to its expiry (${span(left)})`);
}

async function drawCode(place, order) {
  const data = order.type_response?.qr_data;
  if (!data) {
    const pos = order.config?.qr?.external_pos_id;
    const words = pos
      ? `To be paid with the code of the point of sale ${pos}`
      : "No code leads here: the order names no point of sale";
    place.replaceChildren(make("p", { className: "quiet small" }, words));
    return;
  }
  try {
    const image = new DOMParser().parseFromString(await text(`orders/${order.id}/code.svg`), "image/svg+xml");
    const svg = document.importNode(image.documentElement, true);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `QR code of ${order.external_reference}`);
    place.replaceChildren(svg);
  } catch (error) {
    // Without the library that draws QR codes, show the text, and how to install the library.
    place.replaceChildren(make("code", { tabIndex: 0 }, data), make("p", { className: "quiet small" }, error.message));
  }
}

async function act(button, id) {
  if (button.dataset.act === "expire") {
    const left = Date.parse(records.get(id).expires_at) - clock.now();
    const chosen = sellers.chosen();
    const warning = `This moves the clock by ${span(left)} ${chosen ? `for seller ${chosen}` : "for every seller"} and runs everything that becomes due. Continue?`;
    if (left > DAY && !window.confirm(warning)) return;
    await clock.advance(`PT${Math.max(1, Math.ceil(left / 1000))}S`, button);
    return;
  }
  const outcome = button.dataset.act;
  const order = await attempt(button, () => call("POST", `orders/${id}/pay`, { outcome }));
  // A rejected payment does not change the order: this message is its only trace.
  if (order && outcome === "rejected") announce(`${order.external_reference}: the payment was rejected`);
}

function drawRows(settled) {
  byId("settled").hidden = settled.length === 0;
  const rows = settled.slice(0, ROWS).map(({ order }) => ({ order, seller: sellers.nameOf(order.user_id) }));
  fill(byId("settled-rows"), rows, makeRow);
  const more = settled.length - ROWS;
  byId("more-settled").hidden = more <= 0;
  say(byId("more-settled"), `${more} older orders are settled, too.`);
}

function makeRow({ order, seller }) {
  const { paid_amount: paid, refunded_amount: refunded } = payment(order);
  const less = paid && !equal(paid, order.total_amount) ? `${money(order.currency, paid)} paid` : "";
  const back = refunded ? `${money(order.currency, refunded)} refunded` : "";
  const notes = [less, back].filter(Boolean).join(", ");
  return make(
    "tr",
    { role: "row" },
    make(
      "th",
      { scope: "row", role: "rowheader" },
      make("a", { href: `/qr/${order.id}` }, order.external_reference),
      make("span", { className: "mono quiet id" }, order.id),
      seller ? make("small", { className: "quiet notes" }, seller) : null,
    ),
    make("td", { role: "cell", className: "state-cell" }, state(...stateOf(order)), make("span", { className: "mono quiet wire" }, wireState(order))),
    make(
      "td",
      { role: "cell", className: "end" },
      show(make("span", { className: "money" }), order.currency, order.total_amount),
      notes ? make("small", { className: "quiet notes" }, ...breakable(notes)) : null,
    ),
    make("td", { role: "cell", className: "end" }, moment(order.last_updated_date)),
  );
}

/** Create an order through the API, as a program does. */
async function createExample(button) {
  // Not only from the number of orders, since only the newest are kept here.
  const examples = [...records.values()].map(({ order }) => /^example-(\d{1,9})$/.exec(order.external_reference)?.[1] ?? 0);
  const number = String(Math.max(records.size, ...examples) + 1).padStart(3, "0");
  const order = {
    type: "qr",
    external_reference: `example-${number}`,
    description: "Two coffees and a croissant",
    total_amount: "12.50",
    transactions: { payments: [{ amount: "12.50" }] },
    items: [
      { title: "Coffee", unit_price: "4.50", quantity: 2, unit_measure: "unit" },
      { title: "Croissant", unit_price: "3.50", quantity: 1, unit_measure: "unit" },
    ],
  };
  await attempt(button, async () => {
    const seller = await sellers.credentials();
    order.config = { qr: { external_pos_id: seller.external_pos_id, mode: "dynamic" } };
    const headers = {
      Authorization: `Bearer ${seller.access_token}`,
      "Content-Type": "application/json",
      "X-Idempotency-Key": `${number}-${Math.random().toString(36).slice(2)}`,
    };
    const response = await ask("/v1/orders", { method: "POST", headers, body: JSON.stringify(order) });
    if (response.ok) return;
    // The policy selects the shape of the error. A gateway's response can be a page.
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.errors?.[0].message ?? answer.message ?? `The response to the order was ${response.status}.`);
  });
}

export function start() {
  for (const button of document.querySelectorAll("[data-example]")) {
    button.addEventListener("click", () => createExample(button));
  }
}
