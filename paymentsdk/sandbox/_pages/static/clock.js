// The clock of the sandbox, which can stop, run or jump, independent of the machine's clock.

import { call } from "./api.js";
import { announce, attempt, byId, complain, say, turn } from "./dom.js";
import * as sellers from "./sellers.js";

let moment = Date.now();
let frozen = false;
// By the machine's clock, as in the sandbox: `performance.now()` stops while the machine sleeps.
let since = Date.now();

/** Return the sandbox's time in milliseconds. */
export const now = () => (frozen ? moment : moment + Date.now() - since);

function set(answer) {
  moment = Date.parse(answer.now);
  frozen = answer.frozen;
  since = Date.now();
  show();
}

/** The path of the chosen seller's clock, which may be ahead of the sandbox's clock. */
const pathOf = (seller) => (seller ? `tenants/${seller}/clock` : "clock");

/** Load the time of the sandbox. */
export const load = async () => set(await sellers.ofChosen((seller) => call("GET", pathOf(seller))));

/** Show the time, once a second and after each change. */
export function show() {
  const iso = new Date(now()).toISOString();
  const clock = byId("clock");
  clock.dateTime = iso;
  say(clock, iso.slice(11, 19));
  say(byId("clock-date"), `${iso.slice(0, 10)}, UTC`);
  turn(iso.slice(0, 10));
  const state = byId("clock-state");
  state.dataset.tone = frozen ? "wait" : "good";
  say(state, frozen ? "Frozen" : "Live");
  say(byId("freeze"), frozen ? "Let it run" : "Freeze");
}

/** Move the clock by an ISO 8601 duration, and show what happened meanwhile. An error appears below `field`, if any. */
export async function advance(duration, button, field = null) {
  if (field) complain(field);
  const path = pathOf(sellers.chosen());
  const answer = await attempt(button, () => call("POST", `${path}/advance`, { duration }), () => field);
  if (!answer) return;
  set(answer);
  const counts = new Map();
  for (const { kind } of answer.happened) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const words = [...counts].map(([kind, count]) => `${count} × ${kind}`).join(", ");
  say(byId("happened"), words ? `Meanwhile: ${words}.` : "Nothing was due meanwhile.");
}

export function start() {
  byId("freeze").addEventListener("click", async (event) => {
    const done = await attempt(event.target, async () => {
      await call("POST", frozen ? "clock/resume" : "clock/freeze");
      await load();
      return true;
    });
    if (done) announce(frozen ? "The clock stands still." : "The clock runs.");
  });
  for (const button of document.querySelectorAll("[data-advance]")) {
    button.addEventListener("click", () => advance(button.dataset.advance, button));
  }
  byId("advance").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = byId("duration");
    advance(field.value.trim().toUpperCase(), event.submitter, field);
  });
  setInterval(show, 1000);
}
