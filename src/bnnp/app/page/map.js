// Two inputs as a heat map: the mean, how sure it is, and two functions, on canvases. A click reveals a pixel.

class HeatMap {
  /** A map of one output; `pick(picture)` gives its numbers, which are values of the output or how sure they are. */
  constructor(parent, state, caption, pick, { interactive = false, ofOutput = true } = {}) {
    Object.assign(this, { state, pick, caption, interactive, ofOutput });
    const figure = document.createElement("figure");
    this.title = document.createElement("figcaption");
    this.canvas = document.createElement("canvas");
    this.canvas.className = "map";
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", caption);
    figure.append(this.title, this.canvas);
    parent.append(figure);
    if (!interactive) return;
    this.canvas.addEventListener("pointerdown", (event) => this.down(event));
    this.canvas.addEventListener("pointermove", (event) => event.buttons && this.down(event));
  }

  /** Draw the numbers, each pixel a cell; dots mark points that are known. */
  show(picture) {
    const values = this.pick(picture);
    const [across, up] = this.state.axes(1024).map((axis) => axis.count);
    const [low, high] = this.range(values);
    this.title.textContent = `${this.caption} (${short(low)} dark, ${short(high)} bright)`;
    const cell = Math.max(1, Math.floor(560 / across));
    this.canvas.width = across * cell;
    this.canvas.height = up * cell;
    const context = this.canvas.getContext("2d");
    for (let i = 0; i < across; i++)
      for (let j = 0; j < up; j++) {
        context.fillStyle = `rgb(${shade((values[i * up + j] - low) / (high - low || 1)).join(" ")})`;
        context.fillRect(i * cell, (up - 1 - j) * cell, cell, cell);
      }
    this.size = { across, up, cell };
    if (this.interactive) this.drawPoints(context);
  }

  range(values) {
    if (!this.ofOutput) return [0, Number(Math.max(...values).toPrecision(2))];
    return this.state.hello.real ? [this.state.hello.outputs[0].low, this.state.hello.outputs[0].high] : [0, 1];
  }

  drawPoints(context) {
    const { up, cell } = this.size;
    const { low, high } = this.state.hello.outputs[0];
    const width = Math.ceil(this.canvas.width / (this.canvas.clientWidth || this.canvas.width)); // no line falls between pixels
    context.lineWidth = width;
    for (const point of this.state.points) {
      const [i, j] = this.state.axes(1024).map((axis, k) => cellOf(axis, point.x[k]));
      const share = (point.y[0] - low) / (high - low || 1);
      context.fillStyle = `rgb(${shade(share).join(" ")})`;
      context.fillRect(i * cell, (up - 1 - j) * cell, cell, cell);
      context.strokeStyle = share > 0.5 ? "#000" : "#fff";
      context.strokeRect(i * cell + width / 2, (up - 1 - j) * cell + width / 2, cell - width, cell - width);
    }
  }

  /** Reveal the pixel here: its value is the data set's, else the one that the slider has. */
  down(event) {
    event.preventDefault();
    const frame = this.canvas.getBoundingClientRect();
    const axes = this.state.axes(1024);
    const shares = [(event.clientX - frame.left) / frame.width, 1 - (event.clientY - frame.top) / frame.height];
    const cells = axes.map((axis, k) => Math.min(axis.count - 1, Math.max(0, Math.floor(shares[k] * axis.count))));
    const same = (point) => axes.every((axis, k) => cellOf(axis, point.x[k]) === cells[k]);
    if (this.state.points.some(same)) return;
    const hidden = this.state.hidden.findIndex(same);
    if (hidden >= 0) return this.state.reveal(hidden);
    if (this.state.subject !== null) return;
    const { low, high } = this.state.hello.outputs[0];
    const x = axes.map((axis, k) => linspace(axis.low, axis.high, axis.count)[cells[k]]);
    this.state.add({ x, y: this.state.hello.outputs.map(() => this.state.value ?? high ?? low) });
  }
}

/** The number of the cell that an input falls into. */
function cellOf(axis, value) {
  const step = (axis.high - axis.low) / Math.max(1, axis.count - 1);
  return Math.min(axis.count - 1, Math.max(0, Math.round((value - axis.low) / step)));
}
