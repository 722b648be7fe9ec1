// What the page says in words: the legend, the story below the figure, counts, and calibration.

const NAMES = {
  posterior: "posterior: mean, 90 % band, functions", prior: "prior", standard: "standard prior",
  method: "by ", truth: "true function", online: "updated online", oracle: "exact, by the process itself",
};

/** One entry per kind of line in the figure, or per class. */
function drawLegend(page) {
  const rows = page.plots.flatMap(({ of }) => page.layers(of)).filter((layer) => layer.picture);
  const name = (of) => (of === "method" ? `by ${page.method}` : of === "online" && page.state.first !== null ? NAMES.online : NAMES[of]);
  const entry = ({ of, plain }) =>
    element("span", { className: `of-${of}` }, element("i", { className: plain ? "dashed" : "" }), name(of));
  const classes = page.state.hello.classes && !page.state.asMap
    ? Array.from({ length: page.state.hello.classes }, (_, k) => {
        const mark = element("i");
        mark.style.setProperty("--own", CLASS_COLOURS[k % CLASS_COLOURS.length]);
        return element("span", {}, mark, `class ${k}`);
      })
    : null;
  if (page.state.truth) rows.push({ of: "truth", plain: true });
  page.byId("legend").replaceChildren(...(classes ?? rows.map(entry)));
}

/** The sentence below the figure. */
function tellStory(page) {
  const { points, asMap } = page.state;
  page.byId("hint").hidden = asMap;
  const empty = "No points yet: these functions come from the prior alone, which was learned from related data sets. Click to add a point.";
  page.byId("story").textContent = points.length
    ? "Every function was drawn from the posterior: the prior's functions that pass near the points."
    : empty;
}

/** How many points there are, and how many are hidden. */
function tellCount(page) {
  const { points, hidden } = page.state;
  const more = hidden.length ? `, ${hidden.length} hidden${held(page)}` : "";
  page.byId("count").textContent = `${points.length} point${points.length === 1 ? "" : "s"}${more}`;
}

/** How many hidden points lie within the band. */
function held(page) {
  const picture = page.pictures.get("posterior");
  if (!picture || !page.state.hello.real || page.state.asMap || page.state.hello.inputs.length > 1) return "";
  const inside = page.state.hidden.filter(({ x, y }) => {
    const i = page.nearest(x[page.state.axis], picture.mean[0].length);
    return y.every((value, k) => value >= picture.low[k][i] && value <= picture.high[k][i]);
  });
  return `, ${inside.length} of them within the band`;
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
