// What the page says beside its figures: the story, the legend, the count of points, calibration and what went wrong.

const NAMES = {
  posterior: "posterior: mean, 90 % band, functions", prior: "prior", standard: "standard prior",
  truth: "true function", online: "updated online", oracle: "exact, by the process itself",
};

function tell(text, wrong = false) {
  const status = document.getElementById("status");
  status.textContent = text;
  status.classList.toggle("wrong", wrong);
}

function tellStory({ points, asMap }) {
  document.getElementById("hint").hidden = asMap;
  document.getElementById("story").textContent = points.length
    ? "Every function was drawn from the posterior: the prior's functions that pass near the points."
    : "No points yet: these functions come from the prior alone, which was learned from related data sets. Click to add a point.";
}

function tellCount(page) {
  const { points, hidden } = page.state;
  const more = hidden.length ? `, ${hidden.length} hidden${held(page)}` : "";
  document.getElementById("count").textContent = `${points.length} point${points.length === 1 ? "" : "s"}${more}`;
}

/** How many hidden points lie within the band. */
function held(page) {
  const { hello, hidden, axis, asMap } = page.state;
  const picture = page.pictures.get("posterior");
  if (!picture || !hello.real || asMap || hello.inputs.length > 1) return "";
  const inside = hidden.filter(({ x, y }) => {
    const i = page.nearest(x[axis], picture.mean[0].length);
    return y.every((value, k) => value >= picture.low[k][i] && value <= picture.high[k][i]);
  });
  return `, ${inside.length} of them within the band`;
}

function drawLegend(page) {
  const { hello, asMap, truth } = page.state;
  const rows = page.plots.flatMap(({ of }) => page.layers(of)).filter((layer) => layer.picture);
  if (truth) rows.push({ of: "truth", plain: true });
  const entry = ({ of, plain }) =>
    element("span", { className: `of-${of}` }, element("i", { className: plain ? "dashed" : "" }),
      of === "method" ? `by ${page.jobs.method}` : NAMES[of]);
  const entries = hello.classes && !asMap ? classesLegend(hello.classes) : rows.map(entry);
  document.getElementById("legend").replaceChildren(...entries);
}

function classesLegend(count) {
  return Array.from({ length: count }, (_, k) => {
    const mark = element("i");
    mark.style.setProperty("--own", CLASS_COLOURS[k % CLASS_COLOURS.length]);
    return element("span", {}, mark, `class ${k}`);
  });
}

/** Coverage beside its nominal level, with standard errors over data sets. */
function calibrationTable({ tasks, scores }) {
  const names = Object.keys(scores).filter((name) => /^coverage_|^crps$|^mae$|^accuracy$/.test(name));
  const label = (name) => (name.startsWith("coverage_") ? `within the ${name.slice(9)} % band` : name);
  const value = (name, part) => {
    const number = scores[name][part];
    if (number === null) return "";
    return name.startsWith("coverage_") ? `${(100 * number).toFixed(0)} %` : short(Number(number.toPrecision(3)));
  };
  const rows = names.flatMap((name) => [
    element("dt", {}, label(name)), element("dd", {}, value(name, "mean")),
    element("dd", { className: "quiet" }, `± ${value(name, "standard_error")}`),
  ]);
  return [element("dl", {}, ...rows), note(`Over ${tasks} data sets, each predicted from 10 to 50 % of its points.`)];
}
