// What one can take away: the picture, the predictions, and the Python code that gives the same numbers.

function save(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const COPIED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"];

/** A figure as a file of its own: styles become attributes, and the background is painted. */
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const [from, to] = [svg, copy].map((root) => [...root.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of COPIED) to[i].setAttribute(name, style.getPropertyValue(name));
  });
  copy.querySelectorAll(".reach, .surface").forEach((element) => element.remove());
  const { width, height } = svg.viewBox.baseVal;
  for (const [key, value] of Object.entries({ width, height, xmlns: SVG })) copy.setAttribute(key, value);
  const paper = document.createElementNS(SVG, "rect");
  for (const [key, value] of Object.entries({ width, height, fill: getComputedStyle(document.body).backgroundColor }))
    paper.setAttribute(key, value);
  copy.prepend(paper);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

function savePng(svg) {
  const { text, width, height } = standalone(svg);
  const image = new Image();
  image.onload = () => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    canvas.toBlob((blob) => save("posterior.png", blob));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

/** The predictions as CSV: inputs, then mean, ends of the band and functions of every output. */
function csv(state, asked, picture) {
  const outputs = picture.mean.map((_, k) => (state.hello.classes ? `class_${k}` : state.hello.outputs[k].name));
  const columns = outputs.flatMap((name, k) => [
    ...["mean", "low", "high"].map((part) => [`${name}_${part}`, picture[part][k]]),
    ...picture.functions.map((values, i) => [`${name}_function_${i + 1}`, values[k]]),
  ]);
  const quoted = (name) => (/[",\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name);
  const head = [...state.hello.inputs.map((input) => input.name), ...columns.map(([name]) => name)].map(quoted);
  const rows = gridInputs(asked).map((x, i) => [...x, ...columns.map(([, values]) => values[i])].join(","));
  return [head.join(","), ...rows].join("\n") + "\n";
}

/** Python code for the same numbers. */
function python(state, asked) {
  const model = state.hello.models[state.model].name;
  const rows = (values) => `np.array(${JSON.stringify(values)}, dtype=float).reshape(-1, ${(values[0] ?? []).length || 1})`;
  const shaped = (values, columns) => rows(values).replace(/-1, \d+\)$/, `-1, ${columns})`);
  const ends = asked.axes.map((axis) => `np.linspace(${axis.low}, ${axis.high}, ${axis.count})`);
  const online = asked.first !== undefined && asked.first < asked.x.length;
  const known = online ? `x[:${asked.first}], y[:${asked.first}]` : "x, y";
  return `import numpy as np

import bnnp

model = bnnp.load(${JSON.stringify(model)})
x = ${shaped(asked.x, state.hello.inputs.length)}
y = ${shaped(asked.y, state.hello.outputs.length)}
post = model.condition(${known}, num_samples=${asked.samples}, seed=${asked.seed})
${online ? `for i in range(${asked.first}, len(x)):\n    post = post.update(x[i : i + 1], y[i : i + 1])\n` : ""}
grid = np.meshgrid(${ends.join(", ")}, indexing="ij")
x_new = np.tile(np.array(${JSON.stringify(asked.fixed)}, dtype=float), (grid[0].size, 1))
x_new[:, ${JSON.stringify(asked.axes.map((axis) => axis.input))}] = np.stack([values.ravel() for values in grid], axis=1)
pred = post.predict(x_new)
mean, functions = pred.mean, pred.samples[:${asked.functions}]
low, high = ${state.hello.real ? "pred.interval(0.9)" : "np.quantile(pred.samples, [0.05, 0.95], axis=0)"}
`;
}
