// Helpers for the document. Text is always set as text, never as HTML.

export const byId = (id) => document.getElementById(id);

/** Make an element with members or attributes, and children. */
export function make(tag, members = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(members)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set the text of an element only if it differs, so that a screen reader does not repeat it. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The row that each item shows. */
const drawn = new WeakMap();

/** Put rows into an element. Unchanged items stay, and with them the focus. */
export function fill(element, rows, makeRow) {
  const before = new Map([...element.children].map((item) => [drawn.get(item), item]));
  const place = [...element.children].findIndex((item) => item.contains(document.activeElement));
  const items = rows.map((row) => {
    const shown = JSON.stringify(row);
    const item = before.get(shown) ?? makeRow(row);
    drawn.set(item, shown);
    return item;
  });
  for (const item of before.values()) if (!items.includes(item)) item.remove();
  items.forEach((item, at) => {
    if (element.children[at] !== item) element.insertBefore(item, element.children[at] ?? null);
  });
  const redrawn = place >= 0 && before.size === items.length && !element.contains(document.activeElement);
  if (redrawn) items[place].querySelector("summary, a, button, input, select").focus();
}

/** Return a function that runs `load` once for several calls in a short time. */
export function soon(load) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    setTimeout(() => { due = false; load(); }, 50);
  };
}

/** Make a state: a word with a color. */
export const state = (tone, word) => make("span", { className: "state", "data-tone": tone }, word);

/** Return an amount for people: `ARS 1,250.00`. It is text, so it stays exact. Control characters are removed. */
export function money(currency, amount) {
  const [whole, cents = ""] = String(amount ?? "0").split(".");
  return `${currency.replace(/\p{C}/gu, "")}\u00a0${whole.replace(/\B(?=(\d{3})+$)/g, ",")}.${cents.padEnd(2, "0")}`;
}

/** Return the parts of a text, with a possible line break after each comma, for long amounts. */
export const breakable = (text) => text.split(/(?<=,)/).flatMap((part) => [make("wbr"), part]).slice(1);

/** Put an amount into an element. */
export function show(element, currency, amount) {
  const text = money(currency, amount);
  if (element.textContent === text) return element;
  element.replaceChildren(...breakable(text));
  return element;
}

/** Return a duration in its largest unit. */
export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

/** Return a duration as a countdown. */
export function countdown(milliseconds) {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

let today = "";

/** Make a moment in UTC: the time of day, and the date unless it is today. */
export function moment(when) {
  const iso = new Date(when).toISOString();
  const day = make("span", { className: "day", hidden: iso.startsWith(today) }, iso.slice(0, 10));
  return make("time", { dateTime: iso, className: "quiet moment" }, day, " ", make("span", {}, iso.slice(11, 19)));
}

/** Set today's date, by the clock of the sandbox. */
export function turn(date) {
  if (date === today) return;
  today = date;
  for (const shown of document.querySelectorAll("time.moment")) {
    shown.querySelector(".day").hidden = shown.dateTime.startsWith(today);
  }
}

/** Return the parts of a text, where text between backticks is code. */
export const prose = (words) => words.split("`").map((part, place) => (place % 2 ? make("code", {}, part) : part));

let silence;

/** Show a message for a while, and let screen readers read it aloud. */
export function announce(words) {
  byId("news").textContent = words;
  clearTimeout(silence);
  silence = setTimeout(() => byId("news").replaceChildren(), 8000);
}

/** Show an error below a field; without words, remove it. */
export function complain(field, words = "") {
  const id = `${field.id}-problem`;
  byId(id)?.remove();
  field.toggleAttribute("aria-invalid", Boolean(words));
  if (!words) return field.removeAttribute("aria-describedby");
  field.setAttribute("aria-describedby", id);
  return field.after(make("span", { id, className: "problem", role: "alert" }, words));
}

/**
 * Run an action that the sandbox may reject, and return its result. Clicks on the button meanwhile have no effect.
 * A rejection is shown below the field that it is about, or as a message; the result is `undefined` then.
 */
export async function attempt(button, action, fieldOf = () => null) {
  if (button?.ariaDisabled === "true") return undefined;
  // Not `disabled`: a disabled button loses the focus.
  if (button) button.ariaDisabled = "true";
  try {
    return await action();
  } catch (error) {
    const field = fieldOf(error.message);
    if (field) complain(field, error.message);
    else announce(error.message);
    return undefined;
  } finally {
    if (button) button.ariaDisabled = null;
  }
}

/** Make a button that copies the result of `find`. Without access to the clipboard, the text appears below it. */
export function copier(words, find) {
  const button = make("button", { type: "button", className: "tool" }, words);
  let shown;
  button.addEventListener("click", async () => {
    const snippet = await attempt(button, find);
    if (snippet === undefined) return;
    try {
      await navigator.clipboard.writeText(snippet);
      button.textContent = "Copied";
      announce("Copied");
      setTimeout(() => { button.textContent = words; }, 2000);
    } catch {
      // The user can copy it by hand.
      shown?.remove();
      shown = make("pre", { tabIndex: 0 }, make("code", {}, snippet));
      button.parentElement.after(shown);
    }
  });
  return button;
}
