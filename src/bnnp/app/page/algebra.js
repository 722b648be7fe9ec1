// Small dense algebra on typed arrays, and the functions that the models need.

/** In place, the lower Cholesky factor of an n x n matrix. */
function cholesky(m, n) {
  for (let j = 0; j < n; j++) {
    const row = j * n;
    let pivot = m[row + j];
    for (let k = 0; k < j; k++) pivot -= m[row + k] * m[row + k];
    const root = Math.sqrt(pivot);
    m[row + j] = root;
    for (let i = j + 1; i < n; i++) {
      const other = i * n;
      let sum = m[other + j];
      for (let k = 0; k < j; k++) sum -= m[other + k] * m[row + k];
      m[other + j] = sum / root;
    }
  }
  return m;
}

/** In place, `R^-1 b` for a lower triangle R. */
function forwards(root, n, b) {
  for (let i = 0; i < n; i++) {
    let sum = b[i];
    for (let k = 0, row = i * n; k < i; k++) sum -= root[row + k] * b[k];
    b[i] = sum / root[i * n + i];
  }
  return b;
}

/** In place, `(R R^T)^-1 b`. */
function solve(root, n, b) {
  forwards(root, n, b);
  for (let i = n - 1; i >= 0; i--) {
    let sum = b[i];
    for (let k = i + 1; k < n; k++) sum -= root[k * n + i] * b[k];
    b[i] = sum / root[i * n + i];
  }
  return b;
}

/** The lower triangle of `I + A A^T` for a matrix of n rows, or of `I + A^T A` with `byColumn`. */
function onePlusGram(a, n, d, byColumn) {
  const size = byColumn ? d : n;
  const m = new Float64Array(size * size);
  if (byColumn) {
    for (let row = 0; row < n * d; row += d)
      for (let i = 0; i < d; i++) for (let j = 0, v = a[row + i]; j <= i; j++) m[i * d + j] += v * a[row + j];
  } else {
    for (let i = 0; i < n; i++)
      for (let j = 0; j <= i; j++) {
        let sum = 0;
        for (let k = 0, p = i * d, q = j * d; k < d; k++) sum += a[p + k] * a[q + k];
        m[i * n + j] = sum;
      }
  }
  for (let i = 0; i < size; i++) m[i * size + i] += 1;
  return m;
}

/** `f L` for one row of features and a lower triangle (or the diagonal) of size d. Features that are 0 cost nothing. */
function timesFactor(features, at, factor, start, d, diagonal, out, to) {
  out.fill(0, to, to + d);
  for (let i = 0; i < d; i++) {
    const value = features[at + i];
    if (value === 0) continue;
    if (diagonal) out[to + i] = value * factor[start + i];
    else for (let j = 0, row = start + i * d; j <= i; j++) out[to + j] += value * factor[row + j];
  }
}

/** Rows of features times weights (d x out). */
function product(features, rows, d, weights, out) {
  const found = new Float64Array(rows * out);
  for (let r = 0; r < rows; r++)
    for (let i = 0; i < d; i++) {
      const value = features[r * d + i];
      if (value === 0) continue;
      for (let j = 0, w = i * out, to = r * out; j < out; j++) found[to + j] += value * weights[w + j];
    }
  return found;
}

function dot(a, at, b, from, count) {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += a[at + i] * b[from + i];
  return sum;
}

/** The complementary error function, to 1.2e-7 of its value (Numerical Recipes, section 6.2). */
const ERFC = [-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587,
  -0.82215223, 0.17087277];

function erfc(x) {
  const t = 1 / (1 + 0.5 * Math.abs(x));
  let sum = 0;
  for (let i = ERFC.length - 1; i >= 0; i--) sum = ERFC[i] + t * sum;
  const value = t * Math.exp(-x * x + sum);
  return x >= 0 ? value : 2 - value;
}

const ACTIVATIONS = {
  relu: (h) => (h > 0 ? h : 0),
  tanh: Math.tanh,
  silu: (h) => h / (1 + Math.exp(-h)),
  gelu: (h) => 0.5 * h * erfc(-h * Math.SQRT1_2),
  softplus: (h) => (h > 20 ? h : Math.log1p(Math.exp(h))),
  identity: (h) => h,
};

/** Features of a linear layer: its inputs, the activation applied where there is one, and a constant 1. */
function withBias(values, rows, columns, activation) {
  const found = new Float64Array(rows * (columns + 1));
  for (let r = 0; r < rows; r++) {
    for (let i = 0; i < columns; i++) {
      const value = values[r * columns + i];
      found[r * (columns + 1) + i] = activation ? activation(value) : value;
    }
    found[r * (columns + 1) + columns] = 1;
  }
  return found;
}

/** A quantile of mixtures of Gaussians with equal weights: Newton's method, kept within a bracket. */
function quantile(level, means, spreads) {
  const count = means.length;
  const far = 8 * Math.max(...spreads);
  let [low, high] = [Math.min(...means) - far, Math.max(...means) + far];
  let y = means.reduce((sum, mean) => sum + mean, 0) / count;
  for (let step = 0; step < 60; step++) {
    let [below, slope] = [0, 0];
    for (let k = 0; k < count; k++) {
      const z = (y - means[k]) / spreads[k];
      below += 0.5 * erfc(-z * Math.SQRT1_2);
      slope += Math.exp(-0.5 * z * z) / spreads[k];
    }
    const excess = below / count - level;
    if (excess > 0) high = y;
    else low = y;
    const next = y - (excess * count * Math.sqrt(2 * Math.PI)) / slope;
    const before = y;
    y = next > low && next < high ? next : (low + high) / 2;
    if (Math.abs(y - before) < 1e-7 * (spreads[0] + Math.abs(y - means[0]))) break;
  }
  return y;
}
