// The clock of the sandbox, which stands still, runs or jumps, whatever the clock of this machine does.

import { call } from "./api.js";
import { announce, attempt, byId, complain, say, turn } from "./dom.js";

let moment = Date.now();
let frozen = false;
// By the machine's clock, as the sandbox: `performance.now()` stands still while the machine sleeps.
let since = Date.now();

/** What time it is in the sandbox, in milliseconds. */
export const now = () => (frozen ? moment : moment + Date.now() - since);

function set(answer) {
  moment = Date.parse(answer.now);
  frozen = answer.frozen;
  since = Date.now();
  show();
}

/** Ask the sandbox what time it is. */
export const load = async () => set(await call("GET", "clock"));

/** Show the time: once a second, and whenever it was changed. */
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

/** Move the clock by an ISO 8601 duration, and say what happened meanwhile; a refusal is about `field`, if any. */
export async function advance(duration, button, field = null) {
  if (field) complain(field);
  const answer = await attempt(button, () => call("POST", "clock/advance", { duration }), () => field);
  if (!answer) return;
  set(answer);
  const counts = new Map();
  for (const { kind } of answer.happened) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const words = [...counts].map(([kind, count]) => `${count} × ${kind}`).join(", ");
  say(byId("happened"), words ? `Meanwhile: ${words}.` : "Nothing was due meanwhile.");
}

export function start() {
  byId("freeze").addEventListener("click", async (event) => {
    const answer = await attempt(event.target, () => call("POST", frozen ? "clock/resume" : "clock/freeze"));
    if (!answer) return;
    set(answer);
    announce(frozen ? "The clock stands still." : "The clock runs.");
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
