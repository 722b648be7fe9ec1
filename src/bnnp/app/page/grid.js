// The inputs at which a picture shows functions. Part of the page and of the engine.

/** Evenly spaced numbers, as NumPy's linspace gives them. */
function linspace(low, high, count) {
  const step = count > 1 ? (high - low) / (count - 1) : 0;
  const values = Array.from({ length: count }, (_, i) => i * step + low);
  if (count > 1) values[count - 1] = high;
  return values;
}

/** Inputs of a picture, row by row: a line, or all pairs of two axes. */
function gridInputs(asked) {
  const lines = asked.axes.map((axis) => linspace(axis.low, axis.high, axis.count));
  const rows = lines.length === 1 ? lines[0].map((a) => [a]) : lines[0].flatMap((a) => lines[1].map((b) => [a, b]));
  return rows.map((row) => {
    const x = [...asked.fixed];
    asked.axes.forEach((axis, k) => (x[axis.input] = row[k]));
    return x;
  });
}
