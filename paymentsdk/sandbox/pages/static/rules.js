// What goes wrong on purpose, and what the contract leaves open.

import { call } from "./api.js";
import { announce, attempt, byId, make, say } from "./dom.js";

// --- faults ---

/** Load the rules in force. */
export async function loadFaults() {
  const faults = await call("GET", "faults");
  byId("faults").replaceChildren(...faults.map(makeFault));
  byId("clear-faults").hidden = faults.length < 2;
  say(byId("fault-count"), faults.length ? `${faults.length} in force` : "None");
}

function makeFault({ id, rule, hits }) {
  const words = byId("fault-effect").querySelector(`[value="${rule.effect}"]`)?.textContent ?? rule.effect;
  const button = make("button", { type: "button", className: "tool" }, "Remove");
  button.setAttribute("aria-label", `Remove: ${words}`);
  button.addEventListener("click", async () => {
    await attempt(button, () => call("DELETE", `faults/${id}`));
    await loadFaults();
    byId("faults-title").focus();
  });
  const where = rule.operation && rule.operation !== "*" ? rule.operation : "any operation";
  const times = rule.times ? `${hits} of ${rule.times}` : `${hits}`;
  return make(
    "li",
    {},
    make("span", {}, words, make("small", { className: "quiet" }, `${where}, hit ${times}`)),
    button,
  );
}

/** Show the numbers that the chosen effect takes. */
function chooseEffect() {
  const effect = byId("fault-effect").value;
  for (const field of byId("add-fault").querySelectorAll("[data-for]")) {
    field.hidden = !field.dataset.for.split(" ").includes(effect);
    field.querySelector("input").disabled = field.hidden;
  }
}

async function addFault(event) {
  event.preventDefault();
  const rule = Object.fromEntries(new FormData(event.target));
  for (const [name, value] of Object.entries(rule)) {
    if (value === "") delete rule[name];
    else if (event.target.elements[name].type === "number") rule[name] = Number(value);
  }
  await attempt(event.submitter, () => call("POST", "faults", rule));
  await loadFaults();
  announce("The fault is in force.");
}

// --- policies ---

/** Load the switches. */
export async function loadPolicies() {
  const policies = await call("GET", "policies");
  byId("policies").replaceChildren(...policies.map(makePolicy));
  const changed = policies.filter((policy) => policy.value !== policy.default).length;
  say(byId("policy-count"), changed ? `${changed} of ${policies.length} changed` : `${policies.length}, all as they come`);
}

function makePolicy({ name, value, allowed, description, default: usual }) {
  const id = `policy-${name}`;
  const choices = allowed ?? [];
  const control = choices.length
    ? make("select", { id }, ...choices.map((choice) => new Option(String(choice), String(choice), false, choice === value)))
    : make("input", { id, value, type: typeof value === "number" ? "number" : "text" });
  control.addEventListener("change", async () => {
    const wanted = choices.find((choice) => String(choice) === control.value) ?? control.value;
    await attempt(null, () => call("PATCH", "policies", { [name]: typeof value === "number" ? Number(wanted) : wanted }));
    await loadPolicies();
    byId(id).focus();
    announce(`${name}: ${byId(id).value}`);
  });
  const label = make("label", { htmlFor: id, className: "mono" }, name);
  if (value !== usual) label.append(make("span", { className: "quiet" }, ` (usually ${usual})`));
  return make("div", {}, make("dt", {}, label), make("dd", {}, make("p", { className: "quiet small" }, description), control));
}

export async function start() {
  const codes = await call("GET", "codes");
  const names = [...new Set(codes.map(({ operation }) => operation))];
  byId("fault-operation").append(...names.map((name) => new Option(name, name)));
  byId("fault-effect").addEventListener("change", chooseEffect);
  byId("add-fault").addEventListener("submit", addFault);
  byId("clear-faults").addEventListener("click", async (event) => {
    await attempt(event.target, () => call("DELETE", "faults"));
    await loadFaults();
  });
  chooseEffect();
}
