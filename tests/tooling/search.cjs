// Prints, as JSON, the places that the search of a site finds for each question, best first:
// `node search.cjs SITE QUESTION...`.
// It runs the worker that a browser runs, on the index that a browser loads.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const [site, ...questions] = process.argv.slice(2);
const index = JSON.parse(fs.readFileSync(path.join(site, "search.json"), "utf8"));
const workers = path.join(site, "assets/javascripts/workers");
const [worker] = fs.readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));

let reply;
globalThis.self = { postMessage: (message) => reply(message) };
require(path.resolve(workers, worker));

const [SETUP, QUERY] = [0, 2];
const ask = (type, data) =>
  new Promise((resolve) => {
    reply = resolve;
    self.onmessage({ data: { type, data } });
  });

(async () => {
  await ask(SETUP, index);
  const found = {};
  for (const question of questions) {
    const { data } = await ask(QUERY, { input: question });
    found[question] = data.items.map(({ id }) => index.items[id].location);
  }
  console.log(JSON.stringify(found));
})();
