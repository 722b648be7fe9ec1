// Conditioning in the browser: the conjugate update layer by layer, with the last layer integrated. For a unit with
// prior N(mu, L L^T), features phi, pseudo-observations y of standard deviations s, A = diag(1/s) phi L and
// r = (y - phi mu)/s, a sample is mu + L v with
//     v = v0 + A^T M^-1 (r - A v0 - e),  M = I + A A^T,   or   v = P^-1 (v0 + A^T (r - e)),  P = I + A^T A,
// whichever matrix is smaller. The numbers are those of `model.condition(x, y, num_samples, seed)` in Python.

/** Room for the matrices of one unit. */
function room(n, d) {
  const size = Math.min(n, d);
  return { a: new Float64Array(n * d), r: new Float64Array(n), root: new Float64Array(size * size) };
}

/** The conditioned Gaussian of one unit: `A`, `r`, and the Cholesky factor of M or P, in the room given. */
class Unit {
  constructor(prior, unit, phi, n, d, seen, { a, r, root }) {
    const { factor, diagonal, mean } = prior;
    this.start = unit * (diagonal ? d : d * d);
    Object.assign(this, { prior, n, d, a, r, at: unit * d, byColumn: n > d });
    a.fill(0);
    for (let i = 0; i < n; i++) {
      const inverse = seen.inverse(i, unit);
      timesFactor(phi, i * d, factor, this.start, d, diagonal, a, i * d);
      for (let j = i * d; j < (i + 1) * d; j++) a[j] *= inverse;
      r[i] = (seen.y(i, unit) - dot(phi, i * d, mean, this.at, d)) * inverse;
    }
    this.root = cholesky(onePlusGram(root, a, n, d, this.byColumn), Math.min(n, d));
  }

  /** `v` for the draws v0 and e; the mean for draws that are 0. */
  whitened(v0, e) {
    const { a, n, d, r } = this;
    const v = Float64Array.from(v0);
    const right = new Float64Array(n);
    for (let i = 0; i < n; i++) right[i] = r[i] - e[i] - (this.byColumn ? 0 : dot(a, i * d, v, 0, d));
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

/** The posterior: for every sample the weights of all layers, and the last layer's Gaussians. */
function condition(model, asked, draws, standard) {
  const first = asked.first ?? asked.x.length;
  const [x, y] = inOrder(asked.x.slice(0, first), asked.y.slice(0, first));
  const known = prepared(model, x, y);
  const all = prepared(model, [...x, ...asked.x.slice(first)], [...y, ...asked.y.slice(first)]);
  const priors = standard ? model.standard : model.prior;
  const last = priors.length - 1;
  const layers = priors.map((prior, index) => new Layer(model, prior, index, index === last ? all : known, draws));
  return Array.from({ length: asked.samples }, (_, sample) => {
    const h = { known: known.x, all: all.x };
    return layers.map((layer) => {
      const found = layer.sample(sample, layer.index === last ? h.all : h.known, layer.index === last);
      h.known = layer.outputs(h.known, known.n, found.w);
      h.all = all.n === known.n ? h.known : layer.outputs(h.all, all.n, found.w);
      return found;
    });
  });
}

/** One layer at the points that it is conditioned on. */
class Layer {
  constructor(model, prior, index, task, draws) {
    Object.assign(this, { model, prior, index, task, draws });
    this.d = model.sizes[index] + 1;
    this.units = model.sizes[index + 1];
    this.scratch = room(task.n, this.d);
  }

  features(before, rows) {
    return withBias(before, rows, this.d - 1, this.index ? ACTIVATIONS[this.model.activation] : null);
  }

  outputs(before, rows, w) {
    return product(this.features(before, rows), rows, this.d, w, this.units);
  }

  /** The Gaussians of all units; those of the first layer do not depend on the sample. With `kept`, each has its room. */
  *gaussians(before, kept) {
    const { prior, task, d } = this;
    const phi = this.features(before, task.n);
    const seen = task.n ? observations(this.model, this.index, task, before) : null;
    for (let unit = 0; unit < this.units; unit++)
      yield new Unit(prior, unit, phi, task.n, d, seen, kept ? room(task.n, d) : this.scratch);
  }

  /** The weights of one sample (d x units), and the units where they are kept. */
  sample(sample, before, kept) {
    const { d, units, draws, index } = this;
    if (index === 0) this.shared ??= [...this.gaussians(before, true)];
    const found = kept && index > 0 ? [...this.gaussians(before, true)] : (this.shared ?? this.gaussians(before, false));
    const w = new Float64Array(d * units);
    let u = 0;
    for (const unit of found) {
      const v0 = draws.weights(index, sample, u, units, d);
      const values = unit.weights(unit.whitened(v0, draws.points(index, sample, u, units, this.task.n)));
      for (let i = 0; i < d; i++) w[i * units + u] = Math.fround(values[i]);
      u += 1;
    }
    return kept ? { w, units: found } : { w };
  }
}
