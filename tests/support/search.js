// The search of the built site, without a browser: its own worker answers. `node search.js SITE QUESTIONS`, both paths;
// prints what each question finds, as JSON: pages, best first, and of each page the parts that fit best.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, questions] = process.argv.slice(2);
const folder = path.join(site, "assets", "javascripts", "workers");
const worker = fs.readdirSync(folder).find((name) => name.endsWith(".js"));
const index = JSON.parse(fs.readFileSync(path.join(site, "search", "search_index.json")));

let hear, answer;
const inside = { addEventListener: (_, listener) => (hear = listener), postMessage: (data) => (answer = data), console };
inside.self = inside;
vm.runInNewContext(fs.readFileSync(path.join(folder, worker), "utf8"), inside);

const pause = () => new Promise((resolve) => setTimeout(resolve));
async function tell(message) {
  answer = undefined;
  hear({ data: message });
  while (answer === undefined) await pause();
  return answer.data;
}

(async () => {
  await tell({ type: 0, data: { config: index.config, docs: index.docs, options: { suggest: false } } });
  const found = {};
  for (const question of JSON.parse(fs.readFileSync(questions)))
    found[question] = (await tell({ type: 2, data: question })).items.map((page) => page.map((part) => part.location));
  console.log(JSON.stringify(found));
})();
