// Conditioning in the browser: the conjugate update layer by layer, with the last layer integrated. For a unit with
// prior N(mu, L L^T), features phi, pseudo-observations y of standard deviations s, A = diag(1/s) phi L and
// r = (y - phi mu)/s, a sample is mu + L v with
//     v = v0 + A^T M^-1 (r - A v0 - e),  M = I + A A^T,   or   v = P^-1 (v0 + A^T (r - e)),  P = I + A^T A,
// whichever matrix is smaller. The numbers are those of `model.condition(x, y, num_samples, seed)` in Python.

/** The conditioned Gaussian of one unit: `A`, `r`, the Cholesky factor of M or P. */
class Unit {
  constructor(prior, unit, phi, n, d, seen) {
    const { factor, diagonal, mean } = prior;
    this.start = unit * (diagonal ? d : d * d);
    Object.assign(this, { prior, n, d, at: unit * d, byColumn: n > d });
    this.a = new Float64Array(n * d);
    this.r = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      const inverse = seen.inverse(i, unit);
      timesFactor(phi, i * d, factor, this.start, d, diagonal, this.a, i * d);
      for (let j = i * d; j < (i + 1) * d; j++) this.a[j] *= inverse;
      this.r[i] = (seen.y(i, unit) - dot(phi, i * d, mean, this.at, d)) * inverse;
    }
    this.root = cholesky(onePlusGram(this.a, n, d, this.byColumn), this.byColumn ? d : n);
  }

  /** `v` for the draws v0 and e; the mean for draws that are 0. */
  whitened(v0, e) {
    const { a, n, d, r } = this;
    const v = Float64Array.from(v0);
    const right = new Float64Array(n);
    for (let i = 0; i < n; i++) right[i] = r[i] - e(i) - (this.byColumn ? 0 : dot(a, i * d, v, 0, d));
    if (!this.byColumn) solve(this.root, n, right);
    for (let i = 0; i < n; i++) for (let j = 0; j < d; j++) v[j] += a[i * d + j] * right[i];
    return this.byColumn ? solve(this.root, d, v) : v;
  }

  /** The weights `mu + L v`. */
  weights(v) {
    const { factor, diagonal, mean } = this.prior;
    return v.map((value, i) => {
      const scaled = diagonal ? factor[this.start + i] * value : dot(factor, this.start + i * this.d, v, 0, i + 1);
      return mean[this.at + i] + scaled;
    });
  }

  /** Variance of the function where the features are `phi[at..]`. */
  variance(phi, at) {
    const { a, n, d } = this;
    const { factor, diagonal } = this.prior;
    const b = new Float64Array(d);
    timesFactor(phi, at, factor, this.start, d, diagonal, b, 0);
    if (this.byColumn) {
      forwards(this.root, d, b);
      return dot(b, 0, b, 0, d);
    }
    const seen = new Float64Array(n);
    for (let i = 0; i < n; i++) seen[i] = dot(a, i * d, b, 0, d);
    forwards(this.root, n, seen);
    return Math.max(0, dot(b, 0, b, 0, d) - dot(seen, 0, seen, 0, n));
  }
}

/** What a layer is conditioned on: outputs of its inference network at the points, or the outputs themselves. */
function observations(model, layer, task, before) {
  const { encoders, likelihood, min_noise: least } = model;
  const units = model.sizes[layer + 1];
  const observed = (i, unit) => task.y[i * units + unit];
  if (layer === encoders.length) return { y: observed, inverse: (_, unit) => 1 / likelihood.noise[unit] };
  const { weights, true_outputs: trueOutputs } = encoders[layer];
  let [values, columns] = [task.seen, task.columns];
  if (model.sees_hidden && layer > 0) [values, columns] = beside(values, columns, before, task.n);
  const outputs = perceptron(weights, values, task.n, columns, ACTIVATIONS[model.activation]);
  const count = trueOutputs ? units : 2 * units;
  const noise = (i, unit) => outputs[i * count + count - units + unit];
  return {
    y: trueOutputs ? observed : (i, unit) => outputs[i * count + unit],
    inverse: (i, unit) => 1 / (least + Math.exp(noise(i, unit))),
  };
}

function beside(values, columns, before, n) {
  const more = before.length / n;
  const found = new Float64Array(n * (columns + more));
  for (let i = 0; i < n; i++) {
    found.set(values.subarray(i * columns, (i + 1) * columns), i * (columns + more));
    found.set(before.subarray(i * more, (i + 1) * more), i * (columns + more) + columns);
  }
  return [found, columns + more];
}

function perceptron(weights, values, rows, columns, activation) {
  let [h, size] = [values, columns];
  weights.forEach((w, layer) => {
    const phi = withBias(h, rows, size, layer ? activation : null);
    const out = w.length / (size + 1);
    h = product(phi, rows, size + 1, w, out);
    size = out;
  });
  return h;
}

/** Points in the model's units and precision, as the layers see them. */
function prepared(model, x, y) {
  const { columns: units, likelihood, sizes } = model;
  const n = x.length;
  const inputs = standardised(x, units.x_shift, units.x_scale);
  const real = likelihood.name === "gaussian";
  const outputs = real ? standardised(y, units.y_shift, units.y_scale) : Float64Array.from(y.flat());
  const shown = likelihood.name === "categorical"
    ? Float64Array.from(y.flatMap(([label]) => Array.from({ length: sizes.at(-1) }, (_, k) => Number(k === label))))
    : outputs;
  const [seen, columns] = beside(inputs, sizes[0], shown, Math.max(1, n));
  return { n, x: inputs, y: outputs, seen, columns };
}

function standardised(rows, shift, scale) {
  return Float64Array.from(rows.flatMap((row) => row.map((value, k) => Math.fround((value - shift[k]) / scale[k]))));
}

/** Points sorted by all columns, so that their order does not matter. */
function inOrder(x, y) {
  const rows = x.map((row, i) => [...row, ...y[i]]);
  const order = [...rows.keys()].sort((a, b) => {
    const k = rows[a].findIndex((value, i) => value !== rows[b][i]);
    return k < 0 ? a - b : rows[a][k] - rows[b][k];
  });
  return [order.map((i) => x[i]), order.map((i) => y[i])];
}

/** The posterior of one sample after the other: weights of every layer, and the last layer's Gaussians. */
function condition(model, asked, draws, standard) {
  const first = asked.first ?? asked.x.length;
  const [x, y] = inOrder(asked.x.slice(0, first), asked.y.slice(0, first));
  const known = prepared(model, x, y);
  const all = prepared(model, [...x, ...asked.x.slice(first)], [...y, ...asked.y.slice(first)]);
  const priors = standard ? model.standard : model.prior;
  const last = priors.length - 1;
  const shared = new Map(); // the first layer's units, which do not depend on the sample
  return Array.from({ length: asked.samples }, (_, sample) => {
    let [here, everywhere] = [known.x, all.x];
    const weights = priors.map((prior, layer) => {
      const [d, units] = [model.sizes[layer] + 1, model.sizes[layer + 1]];
      const task = layer === last ? all : known;
      const before = layer === last ? everywhere : here;
      const activation = layer ? ACTIVATIONS[model.activation] : null;
      const phi = withBias(before, task.n, d - 1, activation);
      const make = () => {
        const seen = task.n ? observations(model, layer, task, before) : null;
        return Array.from({ length: units }, (_, unit) => new Unit(prior, unit, phi, task.n, d, seen));
      };
      if (layer === 0 && !shared.has(0)) shared.set(0, make());
      const found = layer === 0 ? shared.get(0) : make();
      const w = new Float64Array(d * units);
      found.forEach((unit, u) => {
        const e = (i) => draws.point(layer, sample, u, units, i);
        const values = unit.weights(unit.whitened(draws.weights(layer, sample, u, units, d), e));
        for (let i = 0; i < d; i++) w[i * units + u] = Math.fround(values[i]);
      });
      if (layer === last) return { w, units: found };
      if (known !== all) everywhere = product(withBias(everywhere, all.n, d - 1, activation), all.n, d, w, units);
      here = product(withBias(here, known.n, d - 1, activation), known.n, d, w, units);
      return { w };
    });
    return weights;
  });
}
