// Faults, and the policies for what the contract leaves open.

import { call } from "./api.js";
import { announce, attempt, byId, complain, fill, make, prose, say, state } from "./dom.js";
import * as sellers from "./sellers.js";

// --- faults ---

/** Load the rules in force. */
export async function loadFaults() {
  // A rule without a seller hits the requests of all sellers.
  const faults = (await call("GET", "faults")).filter(({ rule }) => !rule.tenant || sellers.isShown(rule.tenant));
  fill(byId("faults"), faults, makeFault);
  byId("clear-faults").hidden = faults.length < 2;
  const spent = faults.filter(isSpent).length;
  const counts = [`${faults.length - spent} in force`, spent && `${spent} spent`].filter(Boolean);
  say(byId("fault-count"), faults.length ? counts.join(", ") : "None");
}

/** Return whether a rule can hit no more requests. */
const isSpent = ({ rule, seen, hits }) => (rule.times && hits >= rule.times) || (rule.nth && seen >= rule.nth);

/** Return a share as a percentage, rounded to hide the inexact digits of a float. */
const percent = (share) => Number((share * 100).toPrecision(12));

/** Return the option of an effect in the form. Its `operation` says where it can happen. */
const choiceOf = (effect) => byId("fault-effect").querySelector(`[value="${effect}"]`);

/** Return the details of a rule: which requests it hits, and the values of its effect. */
function detailsOf({ rule, hits }) {
  const takes = (name) => {
    const field = byId("add-fault").elements[name]?.closest("[data-for]");
    return rule[name] !== undefined && field?.dataset.for.split(" ").includes(rule.effect);
  };
  const operation = rule.operation === "*" ? choiceOf(rule.effect)?.dataset.operation : rule.operation;
  return [
    { "*": "any operation", "notifications.*": "any notification" }[operation] ?? operation,
    rule.tenant && `seller ${rule.tenant}`,
    rule.nth && `only request ${rule.nth}`,
    rule.probability < 1 && `${percent(rule.probability)} % of them`,
    takes("seconds") && `${rule.seconds} s`,
    takes("status") && `status ${rule.status}`,
    takes("code") && rule.code,
    takes("retry_after") && `Retry-After ${rule.retry_after} s`,
    takes("rows") && `${rule.rows} rows`,
    `hit ${rule.times ? `${hits} of ${rule.times}` : hits}`,
  ].filter(Boolean).join(", ");
}

function makeFault(fault) {
  const { id, rule } = fault;
  const words = choiceOf(rule.effect)?.textContent ?? rule.effect;
  const button = make("button", { type: "button", className: "tool" }, "Remove");
  button.setAttribute("aria-label", `Remove: ${words}`);
  button.addEventListener("click", async () => {
    const gone = await attempt(button, () => call("DELETE", `faults/${id}`));
    await loadFaults();
    if (gone) byId("faults-title").focus();
  });
  const spent = isSpent(fault) ? state("still", "Spent") : null;
  return make(
    "li",
    {},
    make("span", {}, words, " ", spent, make("small", { className: "quiet" }, detailsOf(fault))),
    button,
  );
}

/** Show the operations and the fields that fit the chosen effect. */
function chooseEffect() {
  const effect = byId("fault-effect").value;
  for (const field of byId("add-fault").querySelectorAll("[data-for]")) {
    field.hidden = !field.dataset.for.split(" ").includes(effect);
    field.querySelector("input").disabled = field.hidden;
  }
  const { operation } = choiceOf(effect).dataset;
  const isNotification = (name) => name.startsWith("notifications.");
  const choices = byId("fault-operation");
  for (const option of choices.options) {
    const fits = operation.endsWith("*") || option.value === operation;
    option.hidden = !fits || isNotification(option.value) !== isNotification(operation);
    option.disabled = option.hidden;
  }
  if (choices.selectedOptions[0]?.disabled ?? true) choices.value = operation;
}

async function addFault(event) {
  event.preventDefault();
  for (const field of event.target.elements) if (field.name) complain(field);
  const rule = Object.fromEntries(new FormData(event.target));
  for (const [name, value] of Object.entries(rule)) {
    if (value === "") delete rule[name];
    else if (event.target.elements[name].type === "number") rule[name] = Number(value);
  }
  // An error names the member: `$.times: ...`.
  const fieldOf = (words) => event.target.elements[/^\$\.(\w+)/.exec(words)?.[1]];
  const added = await attempt(event.submitter, () => call("POST", "faults", rule), fieldOf);
  if (!added) return;
  await loadFaults();
  announce("The fault is in force.");
}

// --- policies ---

/** Load the policies. */
export async function loadPolicies() {
  const policies = await call("GET", "policies");
  const own = sellers.policies();
  fill(byId("policies"), policies.map((policy) => ({ ...policy, own: own[policy.name] })), makePolicy);
  const changed = policies.filter((policy) => policy.value !== policy.default).length;
  say(byId("policy-count"), changed ? `${changed} of ${policies.length} changed` : `${policies.length}, all at their defaults`);
}

/** Return a description without the section of the contract, which only its readers can look up. */
const plain = (description) => description.replace(/ \(spec: [^)]*\)/g, "");

function makePolicy({ name, value, allowed, description, default: usual, own }) {
  const id = `policy-${name}`;
  const choices = allowed ?? [];
  const control = choices.length
    ? make("select", { id }, ...choices.map((choice) => new Option(String(choice), String(choice), false, choice === value)))
    : make("input", { id, value, type: typeof value === "number" ? "number" : "text" });
  control.addEventListener("change", async () => {
    const wanted = choices.find((choice) => String(choice) === control.value) ?? control.value;
    complain(control);
    const changes = { [name]: typeof value === "number" && control.value !== "" ? Number(wanted) : wanted };
    const answer = await attempt(null, () => call("PATCH", "policies", changes), () => control);
    if (!answer) return;
    await loadPolicies();
    byId(id).focus();
    announce(`${name}: ${byId(id).value}`);
  });
  const label = make("label", { htmlFor: id, className: "mono" }, name);
  if (value !== usual) label.append(make("span", { className: "quiet" }, ` (default: ${usual})`));
  if (own !== undefined) label.append(make("span", { className: "quiet" }, ` (chosen seller: ${own})`));
  return make("div", {}, make("dt", {}, label), make("dd", {}, make("p", { className: "quiet small" }, ...prose(plain(description))), control));
}

export async function start() {
  const codes = await call("GET", "codes");
  const names = [...new Set(codes.map(({ operation }) => operation))];
  byId("fault-operation").append(...names.map((name) => new Option(name, name)));
  byId("fault-effect").addEventListener("change", chooseEffect);
  byId("add-fault").addEventListener("submit", addFault);
  byId("clear-faults").addEventListener("click", async (event) => {
    const done = await attempt(event.target, () => call("DELETE", "faults"));
    if (!done) return;
    await loadFaults();
    // Move the focus, since the button goes.
    byId("faults-title").focus();
  });
  chooseEffect();
}
