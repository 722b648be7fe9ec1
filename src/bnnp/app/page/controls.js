// The controls beside the figure. Each says what it does, and only those that the models and data allow are there.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) key in made ? (made[key] = value) : made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const row = (...children) => element("label", { className: "row" }, ...children);
const group = (title, ...children) => element("fieldset", {}, element("legend", {}, title), ...children);
const note = (text, id = "") => element("p", { className: "quiet small", id }, text);

/** A box to tick. */
function box(id, text, checked, change) {
  const input = element("input", { type: "checkbox", id, checked });
  input.addEventListener("change", () => change(input.checked));
  return row(element("span", {}, text), input);
}

/** A slider that shows its value. */
function slider(id, text, { min, max, step, value }, change) {
  const shown = element("output", {}, short(value));
  const input = element("input", { type: "range", id, min, max, step, value, ariaLabel: text });
  input.addEventListener("input", () => {
    shown.textContent = short(Number(input.value));
    change(Number(input.value));
  });
  return row(element("span", {}, text), input, shown);
}

function chooser(id, text, options, change) {
  const input = element("select", { id }, ...options.map(([value, label]) => element("option", { value }, label)));
  input.addEventListener("change", () => change(input.value));
  return row(element("span", {}, text), input);
}

function button(id, text, press) {
  const made = element("button", { id, type: "button" }, text);
  made.addEventListener("click", press);
  return made;
}

/** All groups of controls for a page. */
function controls(page) {
  const { state } = page;
  const groups = [drawing(page), priors(page)];
  if (state.hello.subjects) groups.unshift(dataSets(page));
  if (state.hello.inputs.length > 1) groups.push(inputs(page));
  groups.push(inference(page));
  if (state.hello.models[0].updates) groups.push(online(page));
  groups.push(downloads(page));
  return groups;
}

function drawing({ state }) {
  const set = (name) => (value) => {
    state[name] = value;
    state.changed("all");
  };
  const seed = element("input", { type: "number", id: "seed", min: 0, step: 1, value: state.seed });
  seed.addEventListener("change", () => set("seed")(Math.max(0, Math.floor(Number(seed.value) || 0))));
  return group(
    "Drawing",
    slider("samples", "Samples", { min: 4, max: 256, step: 4, value: state.samples }, set("samples")),
    slider("functions", "Functions", { min: 0, max: 50, step: 1, value: state.functions }, set("functions")),
    row(element("span", {}, "Seed"), seed),
  );
}

function priors({ state }) {
  const toggle = (name) => (on) => {
    state.show[name] = on;
    state.changed("all");
  };
  const rows = [
    box("show-prior", "Prior beside posterior", state.show.prior, toggle("prior")),
    box("show-standard", "Learned against standard prior", state.show.standard, toggle("standard")),
  ];
  if (state.hello.oracle) rows.push(box("show-oracle", "Exact prediction", state.show.oracle, toggle("oracle")));
  return group("Prior", ...rows, note("The standard prior is the one that knows nothing of the data: mean 0, variance 1/(inputs + 1)."));
}

function dataSets(page) {
  const { state } = page;
  const { count, names } = state.hello.subjects;
  const number = element("input", { type: "number", id: "number", min: 0, value: 0 });
  const choose = count === null || count > names.length
    ? row(element("span", {}, count === null ? "Drawn with seed" : `Number, of ${count}`), number)
    : chooser("subject", "Data set", [["", "none"], ...names.map((name, i) => [i, name])], (value) => value !== "" && page.takeSubject(Number(value)));
  number.addEventListener("change", () => page.takeSubject(Number(number.value)));
  const shown = slider("shown", "Known", { min: 0, max: state.asMap ? 300 : 40, step: 1, value: page.shown }, (value) => page.showPoints(value));
  const drawOne = button("draw", "Another", () => {
    number.value = Number(number.value) + 1;
    page.takeSubject(Number(number.value));
  });
  return group(
    "Data sets", choose, shown,
    element("div", { className: "buttons" },
      ...(count === null || count > names.length ? [drawOne] : []),
      button("reveal", "Reveal all", () => page.revealAll()),
      button("calibrate", "Calibration over all", () => page.calibrate())),
    note(state.asMap
      ? "The model sees the framed pixels alone: click on others to reveal them."
      : "Open circles are hidden from the model: click one to reveal it, double-click a known one to hide it."),
    element("div", { id: "calibration" }),
  );
}

function inputs({ state }) {
  const all = state.hello.inputs;
  const redraw = () => state.changed("all");
  const rows = all.map(({ name, low, high }, i) =>
    slider(`fixed-${i}`, name, { min: low, max: high, step: (high - low) / 100, value: state.fixed[i] }, (value) => {
      state.fixed[i] = value;
      redraw();
    }));
  const along = chooser("axis", "Along", all.map(({ name }, i) => [i, name]), (value) => {
    state.axis = Number(value);
    redraw();
  });
  if (all.length > 2) return group("Inputs", along, ...rows, note("New points take these values."));
  const asMap = box("as-map", "As a map", state.asMap, (on) => {
    state.asMap = on;
    state.changed("view");
  });
  const { low, high } = state.hello.outputs[0];
  const value = slider("value", "New point", { min: low, max: high, step: (high - low) / 100, value: high }, (v) => (state.value = v));
  return group("Inputs", asMap, along, ...rows, value);
}

function inference(page) {
  const { hello } = page.state;
  const title = "Other inference";
  if (!hello.methods.length) return group(title, note("Other methods need Python: bnnp app shows them."));
  const bar = element("progress", { id: "progress", max: 1, value: 0, hidden: true });
  return group(
    title,
    chooser("method", "Method", [["", "none"], ...hello.methods.map((name) => [name, name])], (value) => page.jobs.choose(value)),
    bar,
    note("It runs in the background and starts anew when points move.", "method-note"),
  );
}

function online({ state }) {
  return group(
    "Online updates",
    box("online", "Take in new points one by one", false, (on) => {
      state.first = on ? state.points.length : null;
      state.changed("points");
    }),
    note("Points from now on update the last layer alone, without the earlier points; the blue band conditions on all anew."),
  );
}

function downloads(page) {
  return group(
    "Take away",
    element("div", { className: "buttons" },
      button("save-svg", "SVG", () => page.svg() && save("posterior.svg", standalone(page.svg()).text, "image/svg+xml")),
      button("save-png", "PNG", () => page.png()),
      button("save-csv", "CSV", () => save("predictions.csv", page.csv(), "text/csv")),
      button("save-python", "Python", () => save("posterior.py", page.python(), "text/x-python"))),
    note("The Python code gives the same numbers."),
  );
}
