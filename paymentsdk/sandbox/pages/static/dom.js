// Small words for the document. Text is only ever set as text.

export const byId = (id) => document.getElementById(id);

/** Make an element: its members and attributes, then its children. */
export function make(tag, members = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(members)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set the text of an element, but only if it is another: a screen reader need not hear the same twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make a state: its word and its colour. */
export const state = (tone, word) => make("span", { className: "state", "data-tone": tone }, word);

/** Write an amount for people: `ARS 1,250.00`. It comes as text, and stays exact. */
export function money(currency, amount) {
  const [whole, cents = ""] = String(amount ?? "0").split(".");
  return `${currency}\u00a0${whole.replace(/\B(?=(\d{3})+$)/g, ",")}.${cents.padEnd(2, "0")}`;
}

/** Write a length of time in its largest unit. */
export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

/** Write a length of time as a countdown. */
export function countdown(milliseconds) {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** Write the time of day of a moment, as the sandbox has it: UTC. */
export const timeOfDay = (moment) => new Date(moment).toISOString().slice(11, 19);

let silence;

/** Say what happened, to those who look and to those who listen; it goes away by itself. */
export function announce(words) {
  byId("news").textContent = words;
  clearTimeout(silence);
  silence = setTimeout(() => byId("news").replaceChildren(), 8000);
}

/** Do something that the sandbox may refuse; pressing the button meanwhile does nothing. */
export async function attempt(button, action) {
  if (button?.ariaDisabled === "true") return undefined;
  // Not `disabled`: a button that is out of use loses the focus.
  if (button) button.ariaDisabled = "true";
  try {
    return await action();
  } catch (error) {
    announce(error.message);
    return undefined;
  } finally {
    if (button) button.ariaDisabled = null;
  }
}
