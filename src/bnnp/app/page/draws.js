// The standard normal draws behind weight samples, number by number those of Python: NumPy's SeedSequence seeds a
// Mersenne twister, whose numbers become normal by the method of Box and Muller in blocks of 16, as in torch.

const SAMPLES_A_BLOCK = 16;
const POINTS_A_BLOCK = 64;
const [OF_WEIGHTS, OF_POINTS] = [0, 1];

/** The 32-bit words of a seed and its keys. */
function words(numbers) {
  return numbers.flatMap((n) => (n < 2 ** 32 ? [n] : [n % 2 ** 32, Math.floor(n / 2 ** 32)]));
}

/** Two words that depend on all numbers (NumPy's `SeedSequence(numbers).generate_state(2)`). */
function seedSequence(numbers) {
  const entropy = words(numbers);
  let constant = 0x43b0d7e5;
  const hash = (value) => {
    value ^= constant;
    constant = Math.imul(constant, 0x931e8875);
    value = Math.imul(value, constant);
    return (value ^ (value >>> 16)) >>> 0;
  };
  const mix = (x, y) => {
    const value = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) | 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const pool = [0, 1, 2, 3].map((i) => hash(entropy[i] ?? 0));
  for (let from = 0; from < 4; from++)
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mix(pool[to], hash(pool[from]));
  for (let from = 4; from < entropy.length; from++)
    for (let to = 0; to < 4; to++) pool[to] = mix(pool[to], hash(entropy[from]));
  constant = 0x8b51f9dd;
  return [0, 1].map((i) => {
    let value = pool[i] ^ constant;
    constant = Math.imul(constant, 0x58f38ded);
    value = Math.imul(value, constant);
    return (value ^ (value >>> 16)) >>> 0;
  });
}

/** A Mersenne twister: each call gives the next 32 bits. */
function twister(seed) {
  const state = new Uint32Array(624);
  state[0] = seed;
  for (let i = 1; i < 624; i++) {
    const before = state[i - 1] ^ (state[i - 1] >>> 30);
    state[i] = Math.imul(1812433253, before) + i;
  }
  let next = 624;
  const turn = () => {
    for (let i = 0; i < 624; i++) {
      const y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7fffffff);
      state[i] = state[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    next = 0;
  };
  return () => {
    if (next === 624) turn();
    let y = state[next++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  };
}

/** Standard normal numbers; their count is a multiple of 16. */
function normals(numbers, count) {
  const [high, low] = seedSequence(numbers);
  const random = twister(((high << 31) ^ low) >>> 0);
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) values[i] = (random() & 0xffffff) / 2 ** 24;
  for (let block = 0; block < count; block += 16)
    for (let i = block; i < block + 8; i++) {
      const radius = Math.sqrt(-2 * Math.log(1 - values[i]));
      const angle = 2 * Math.PI * values[i + 8];
      values[i] = radius * Math.cos(angle);
      values[i + 8] = radius * Math.sin(angle);
    }
  return values;
}

/** Draws by the numbers of samples and points; blocks that were made are kept. */
class Draws {
  constructor(seed) {
    this.seed = seed;
    this.kept = new Map();
  }

  block(keys, count) {
    const name = keys.join();
    if (!this.kept.has(name)) this.kept.set(name, normals([this.seed, ...keys], count));
    return this.kept.get(name);
  }

  /** The draws of one sample for the weights of one unit. */
  weights(layer, sample, unit, units, size) {
    const count = SAMPLES_A_BLOCK * units * size;
    const block = this.block([layer, OF_WEIGHTS, Math.floor(sample / SAMPLES_A_BLOCK)], count);
    const start = ((sample % SAMPLES_A_BLOCK) * units + unit) * size;
    return block.subarray(start, start + size);
  }

  /** The draws of one sample for the first `n` points of one unit. */
  points(layer, sample, unit, units, n) {
    const found = new Float64Array(n);
    for (let start = 0; start < n; start += POINTS_A_BLOCK) {
      const keys = [layer, OF_POINTS, Math.floor(sample / SAMPLES_A_BLOCK), start / POINTS_A_BLOCK];
      const block = this.block(keys, SAMPLES_A_BLOCK * units * POINTS_A_BLOCK);
      const from = ((sample % SAMPLES_A_BLOCK) * units + unit) * POINTS_A_BLOCK;
      found.set(block.subarray(from, from + Math.min(POINTS_A_BLOCK, n - start)), start);
    }
    return found;
  }
}
