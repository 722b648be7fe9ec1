// Predictions of a conditioned model: mean, band and functions, as `post.predict(x)` gives them in Python.

const TAIL = 0.05;

/** Outputs of the network at inputs for one sample, and the features of its last layer. */
function run(model, layers, x, rows) {
  let h = x;
  let phi = null;
  layers.forEach(({ w }, layer) => {
    phi = withBias(h, rows, model.sizes[layer], layer ? ACTIVATIONS[model.activation] : null);
    h = product(phi, rows, model.sizes[layer] + 1, w, model.sizes[layer + 1]);
  });
  return { outputs: h, phi };
}

function picture(model, asked, draws, standard = false) {
  const samples = condition(model, asked, draws, standard);
  const inputs = gridInputs(asked);
  const x = standardised(inputs, model.columns.x_shift, model.columns.x_scale);
  const ran = samples.map((layers) => run(model, layers, x, inputs.length));
  return model.likelihood.name === "gaussian"
    ? realValued(model, asked, samples, ran, inputs.length)
    : probabilities(model, asked, ran, inputs.length);
}

function realValued(model, asked, samples, ran, rows) {
  const out = model.sizes.at(-1);
  const d = model.sizes.at(-2) + 1;
  const { y_shift: shift, y_scale: scale } = model.columns;
  const found = { mean: [], low: [], high: [], deviation: [] };
  for (let k = 0; k < out; k++) {
    const noise = model.likelihood.noise[k] ** 2;
    const centres = samples.map((layers) => {
      const unit = layers.at(-1).units[k];
      return unit.weights(unit.whitened(new Float64Array(d), new Float64Array(unit.n)));
    });
    const lines = { mean: [], low: [], high: [], deviation: [] };
    for (let i = 0; i < rows; i++) {
      const means = ran.map(({ phi }, s) => dot(phi, i * d, centres[s], 0, d));
      const variances = ran.map(({ phi }, s) => samples[s].at(-1).units[k].variance(phi, i * d));
      const deviations = variances.map((variance) => Math.sqrt(variance + noise));
      const mean = average(means);
      lines.mean.push(mean * scale[k] + shift[k]);
      lines.low.push(quantile(TAIL, means, deviations) * scale[k] + shift[k]);
      lines.high.push(quantile(1 - TAIL, means, deviations) * scale[k] + shift[k]);
      const between = average(means.map((value) => (value - mean) ** 2));
      lines.deviation.push(Math.sqrt(between + average(variances)) * scale[k]);
    }
    for (const name of Object.keys(found)) found[name].push(lines[name]);
  }
  const shown = (value, k) => value * scale[k] + shift[k];
  return { ...found, functions: functionsOf(asked, ran, out, rows, (outputs) => outputs, shown) };
}

/** Classes and binary outputs: the mean, standard deviation and ends of the functions themselves, which are probabilities. */
function probabilities(model, asked, ran, rows) {
  const out = model.sizes.at(-1);
  const link = model.likelihood.name === "categorical" ? softmax : sigmoid;
  const all = functionsOf({ functions: ran.length }, ran, out, rows, link, (value) => value);
  const found = { mean: [], low: [], high: [], deviation: [] };
  for (let k = 0; k < out; k++) {
    const at = Array.from({ length: rows }, (_, i) => all.map((values) => values[k][i]).sort((a, b) => a - b));
    found.mean.push(at.map(average));
    found.low.push(at.map((values) => ofSorted(values, TAIL)));
    found.high.push(at.map((values) => ofSorted(values, 1 - TAIL)));
    found.deviation.push(at.map((values) => Math.sqrt(average(values.map((v) => (v - average(values)) ** 2)))));
  }
  return { ...found, functions: all.slice(0, asked.functions) };
}

/** Functions by sample, output and input, in the user's units. */
function functionsOf(asked, ran, out, rows, link, shown) {
  return ran.slice(0, asked.functions).map(({ outputs }) => {
    const values = Array.from({ length: rows }, (_, i) => link([...outputs.subarray(i * out, (i + 1) * out)]));
    return Array.from({ length: out }, (_, k) => values.map((row) => shown(row[k], k)));
  });
}

const sigmoid = (values) => values.map((value) => 1 / (1 + Math.exp(-value)));

function softmax(values) {
  const top = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

const average = (values) => values.reduce((a, b) => a + b, 0) / values.length;

/** A quantile of sorted values, between neighbours as NumPy does it. */
function ofSorted(values, level) {
  const place = level * (values.length - 1);
  const first = Math.floor(place);
  const next = values[Math.min(first + 1, values.length - 1)];
  return values[first] + (place - first) * (next - values[first]);
}

/** A model from the content of a page: its numbers come as one text of base64, in float32. */
function unpack(content) {
  const bytes = Uint8Array.from(atob(content.numbers), (letter) => letter.charCodeAt(0));
  const numbers = new Float32Array(bytes.buffer);
  const array = ([start, count]) => Float64Array.from(numbers.subarray(start, start + count));
  return {
    ...content,
    prior: content.prior.map(({ mean, factor, diagonal }) => ({ mean: array(mean), factor: array(factor), diagonal })),
    standard: content.prior.map((_, layer) => standardPrior(content.sizes[layer] + 1, content.sizes[layer + 1])),
    encoders: content.encoders.map(({ weights, true_outputs }) => ({ weights: weights.map(array), true_outputs })),
  };
}

/** Mean 0 and variance 1/d for all weights. */
function standardPrior(d, units) {
  const factor = new Float64Array(units * d).fill(Math.fround(Math.sqrt(1 / d)));
  return { mean: new Float64Array(units * d), factor, diagonal: true };
}

/** Answers to the page's messages; `Draws` of the last seed are kept. */
class Studio {
  constructor(content) {
    this.content = content;
    this.models = content.models.map(unpack);
  }

  answer(message) {
    const { kind, of, id } = message;
    if (kind === "subject") return { kind, id, ...this.content.subjects[message.number] };
    if (kind === "calibration") return { kind, id, ...this.content.calibration[message.model] };
    if (this.draws?.seed !== message.seed) this.draws = new Draws(message.seed);
    const asked = ["prior", "standard"].includes(of) ? { ...message, x: [], y: [], first: 0 } : { ...message };
    if (of !== "online") delete asked.first;
    return { kind, of, id, ...picture(this.models[message.model], asked, this.draws, of === "standard") };
  }
}

if (typeof WorkerGlobalScope !== "undefined") {
  let studio = null;
  onmessage = ({ data }) => {
    if (data.kind === "models") {
      studio = new Studio(data.content);
      postMessage({ kind: "hello", ...data.content.hello });
    } else if (data.kind !== "cancel") postMessage(studio.answer(data));
  };
}
