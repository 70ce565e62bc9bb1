// The last requests: their bodies, their responses, and a command that sends each again.

import { call, text } from "./api.js";
import { byId, copier, fill, make, moment, say, state } from "./dom.js";
import { isShown } from "./sellers.js";

const KEPT = 200;
const SHOWN = 12;

/** The last requests, newest first. */
let lines = [];
/** The requests that arrived during a load. The loaded list may not contain them. */
let arrived = [];
let loads = 0;
let due = false;

/** Load the last requests, at the start and after events may have been missed. */
export async function load() {
  const mine = ++loads;
  arrived = [];
  const loaded = await call("GET", "requests");
  if (mine !== loads) return;  // A later load has newer rows.
  const known = new Set(loaded.map((line) => line.request_id));
  lines = [...arrived.filter((line) => !known.has(line.request_id)).reverse(), ...loaded].slice(0, KEPT);
  draw();
}

/** Put a new request on top of the list. Several requests are drawn together. */
export function add(line) {
  arrived = [...arrived, line].slice(-KEPT);
  lines = [line, ...lines].slice(0, KEPT);
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; draw(); });
}

/** Show the requests of the chosen seller with the chosen status. */
export function draw() {
  const list = byId("requests");
  const wanted = byId("statuses").value;
  const shown = lines.filter(({ tenant, status }) => isShown(tenant) && String(status ?? "none").startsWith(wanted));
  fill(list, shown, makeItem);
  byId("no-requests").hidden = shown.length > 0;
  say(byId("no-requests"), lines.length ? `None of the last ${lines.length} requests match.` : "No program has called yet.");
  byId("older").hidden = shown.length <= SHOWN || list.classList.contains("all");
}

export function start() {
  byId("statuses").addEventListener("change", draw);
  byId("older").querySelector("button").addEventListener("click", () => {
    const list = byId("requests");
    list.classList.add("all");
    byId("older").hidden = true;
    list.children[SHOWN].querySelector("summary").focus();
  });
}

function toneOf(status) {
  if (!status || status >= 500) return "bad";
  return status >= 400 ? "wait" : "good";
}

function makeItem(line) {
  const marks = [...(line.faults ?? [])];
  if (line.replayed) marks.push("replayed");
  const summary = make(
    "summary",
    {},
    moment(line.at),
    make("span", { className: "mono method" }, line.method),
    make("span", { className: "mono path", title: line.path }, line.path),
    make("span", { className: "end" }, state(toneOf(line.status), String(line.status ?? "none"))),
    marks.length ? make("span", { className: "small marks" }, marks.join(", ").replaceAll("_", " ")) : null,
  );
  const details = make("details", {}, summary);
  // Filled when it is opened, since most are never opened.
  details.addEventListener("toggle", () => details.children.length === 1 && details.append(makeDetail(line)));
  return make("li", {}, details);
}

function makeDetail(line) {
  const facts = [line.operation ?? "no operation", line.tenant && `seller ${line.tenant}`, line.key && `key ${line.key}`, `${line.milliseconds} ms`];
  return make(
    "div",
    { className: "detail" },
    make("p", { className: "quiet small" }, facts.filter(Boolean).join(" · ")),
    make(
      "div",
      { className: "row" },
      copier("Copy as curl", () => text(`requests/${line.request_id}/curl`)),
    ),
    ...block("Request", line.body),
    ...block("Response", line.response),
  );
}

function block(title, body) {
  if (!body) return [];
  return [make("h3", { className: "small" }, title), make("pre", { tabIndex: 0 }, make("code", {}, pretty(body)))];
}

/** Indent JSON; leave other text unchanged. The numbers stay as text, since a script would round them. */
function pretty(body) {
  try {
    JSON.parse(body);
  } catch {
    return body;
  }
  let depth = 0;
  return body.replace(/"(?:[^"\\]|\\.)*"|\{\s*\}|\[\s*\]|[{}[\],]|:|\s+/g, (token) => {
    const line = () => `\n${"  ".repeat(depth)}`;
    if (/^\s/.test(token)) return "";
    if (/^[{[]\s*[\]}]$/.test(token)) return token[0] + token.at(-1);
    if (token === "{" || token === "[") return token + ((depth += 1), line());
    if (token === "}" || token === "]") return ((depth -= 1), line()) + token;
    if (token === ",") return token + line();
    return token === ":" ? ": " : token;
  });
}
