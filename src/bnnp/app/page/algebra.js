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

/** Into m, the lower triangle of `I + A A^T` for a matrix of n rows, or of `I + A^T A` with `byColumn`. */
function onePlusGram(m, a, n, d, byColumn) {
  const size = byColumn ? d : n;
  if (byColumn) addOuterProducts(m.fill(0), a, n, d);
  else for (let i = 0; i < n; i += 2) for (let j = 0; j <= i; j += 2) fourProducts(m, a, n, d, i, j);
  for (let i = 0; i < size; i++) m[i * size + i] += 1;
  return m;
}

/** Products of two rows with two others, which share the loads; a row beyond the last stands for the last. */
function fourProducts(m, a, n, d, i, j) {
  const k = Math.min(i + 1, n - 1);
  const l = Math.min(j + 1, n - 1);
  const p = i * d;
  const q = k * d;
  const r = j * d;
  const s = l * d;
  let w = 0;
  let x = 0;
  let y = 0;
  let z = 0;
  for (let c = 0; c < d; c++) {
    const one = a[p + c];
    const two = a[q + c];
    w += one * a[r + c];
    x += one * a[s + c];
    y += two * a[r + c];
    z += two * a[s + c];
  }
  m[i * n + j] = w;
  m[k * n + j] = y;
  m[i * n + l] = x;
  m[k * n + l] = z;
}

/** Add `A^T A` to the lower triangle of a matrix, four rows of A at a time. */
function addOuterProducts(m, a, n, d) {
  const rest = n % 4;
  for (let p = 0; p < n - rest; p += 4) {
    const r = p * d;
    const s = r + d;
    const t = s + d;
    const u = t + d;
    for (let i = 0; i < d; i++) {
      const w = a[r + i];
      const x = a[s + i];
      const y = a[t + i];
      const z = a[u + i];
      for (let j = 0, to = i * d; j <= i; j++) m[to + j] += w * a[r + j] + x * a[s + j] + y * a[t + j] + z * a[u + j];
    }
  }
  for (let r = (n - rest) * d; r < n * d; r += d)
    for (let i = 0; i < d; i++) for (let j = 0; j <= i; j++) m[i * d + j] += a[r + i] * a[r + j];
}

const present = new Int32Array(4096); // which features of a row are not 0

/** Add `f W` to `out` for one row of features, four rows of W at a time; a lower triangle has `lower`. */
function addProduct(f, at, d, w, start, width, lower, out, to) {
  let count = 0;
  for (let i = 0; i < d; i++) if (f[at + i] !== 0) present[count++] = i;
  const rest = count % 4;
  for (let q = 0; q < count - rest; q += 4) {
    const a = f[at + present[q]];
    const b = f[at + present[q + 1]];
    const c = f[at + present[q + 2]];
    const e = f[at + present[q + 3]];
    const p = start + present[q] * width;
    const r = start + present[q + 1] * width;
    const s = start + present[q + 2] * width;
    const t = start + present[q + 3] * width;
    const end = lower ? present[q + 3] + 1 : width;
    for (let m = 0; m < end; m++) out[to + m] += a * w[p + m] + b * w[r + m] + c * w[s + m] + e * w[t + m];
  }
  for (let q = count - rest; q < count; q++) {
    const a = f[at + present[q]];
    const p = start + present[q] * width;
    for (let m = 0; m < width; m++) out[to + m] += a * w[p + m];
  }
}

/** `f L` for one row of features and a lower triangle, or the diagonal, of size d. */
function timesFactor(f, at, factor, start, d, diagonal, out, to) {
  if (diagonal) for (let i = 0; i < d; i++) out[to + i] = f[at + i] * factor[start + i];
  else addProduct(f, at, d, factor, start, d, true, out, to);
}

/** Rows of features times weights (d x out). */
function product(features, rows, d, weights, out) {
  const found = new Float64Array(rows * out);
  for (let r = 0; r < rows; r++) addProduct(features, r * d, d, weights, 0, out, false, found, r * out);
  return found;
}

function dot(a, at, b, from, count) {
  let w = 0;
  let x = 0;
  let y = 0;
  let z = 0;
  let i = 0;
  for (; i < count - 3; i += 4) {
    w += a[at + i] * b[from + i];
    x += a[at + i + 1] * b[from + i + 1];
    y += a[at + i + 2] * b[from + i + 2];
    z += a[at + i + 3] * b[from + i + 3];
  }
  for (; i < count; i++) w += a[at + i] * b[from + i];
  return w + x + (y + z);
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
function quantile(level, means, deviations) {
  const count = means.length;
  const far = 8 * Math.max(...deviations);
  let [low, high] = [Math.min(...means) - far, Math.max(...means) + far];
  let y = means.reduce((sum, mean) => sum + mean, 0) / count;
  for (let step = 0; step < 60; step++) {
    let [below, slope] = [0, 0];
    for (let k = 0; k < count; k++) {
      const z = (y - means[k]) / deviations[k];
      below += 0.5 * erfc(-z * Math.SQRT1_2);
      slope += Math.exp(-0.5 * z * z) / deviations[k];
    }
    const excess = below / count - level;
    if (excess > 0) high = y;
    else low = y;
    const next = y - (excess * count * Math.sqrt(2 * Math.PI)) / slope;
    const before = y;
    y = next > low && next < high ? next : (low + high) / 2;
    if (Math.abs(y - before) < 1e-7 * (deviations[0] + Math.abs(y - means[0]))) break;
  }
  return y;
}
