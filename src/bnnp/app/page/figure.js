// Curves of one output over one input: band, mean, functions and points, in SVG.

const MARGIN = { left: 46, right: 10, top: 8, bottom: 34 };
const OUTSIDE = 24; // pixels beyond the figure where a dragged point is let go

class Plot {
  /** A plot of one output. `interactive` ones take points. */
  constructor(parent, state, output, { caption, interactive }) {
    this.state = state;
    this.output = output;
    this.interactive = interactive;
    const figure = document.createElement("figure");
    const title = document.createElement("figcaption");
    title.textContent = caption;
    title.hidden = !caption;
    figure.append(title);
    parent.append(figure);
    this.svg = draw(figure, "svg", { class: "plot", role: interactive ? "application" : "img" });
    this.svg.setAttribute("aria-label", `${caption || "Posterior"}: ${this.name()}`);
    if (interactive) this.svg.setAttribute("tabindex", "0");
    this.back = draw(this.svg, "g");
    const clip = draw(this.svg, "clipPath", { id: `clip-${Plot.made = (Plot.made || 0) + 1}` });
    this.window = draw(clip, "rect");
    this.curves = draw(this.svg, "g", { "clip-path": `url(#${clip.id})` });
    this.surface = draw(this.svg, "rect", { class: "surface" });
    this.dots = draw(this.svg, "g");
    if (interactive) new Fingers(this);
  }

  name() {
    return this.state.hello.outputs[this.output]?.name ?? "class";
  }

  classes() {
    return this.state.hello.classes;
  }

  /** The range of outputs: 0 to 1 for probabilities. */
  range() {
    if (!this.state.hello.real) return [-0.06, 1.06];
    return this.state.limits[this.output];
  }

  layout() {
    const width = this.svg.clientWidth || 600;
    const share = this.svg.closest(".beside") ? 0.66 : this.state.hello.outputs.length > 1 ? 0.36 : 0.52;
    const height = Math.round(Math.min(460, Math.max(230, width * share)));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    const [axis] = this.state.axes(2);
    this.x = scale(axis.low, axis.high, MARGIN.left, width - MARGIN.right);
    this.y = scale(...this.range(), height - MARGIN.bottom, MARGIN.top);
    const box = { x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right };
    box.height = height - MARGIN.top - MARGIN.bottom;
    this.box = box;
    for (const rect of [this.window, this.surface])
      for (const [key, value] of Object.entries(box)) rect.setAttribute(key, value);
  }

  drawAxes() {
    this.back.replaceChildren();
    const { x, y, width, height } = this.box;
    for (const value of ticks(...this.y.domain, 5)) {
      draw(this.back, "line", { class: "grid", x1: x, x2: x + width, y1: this.y(value), y2: this.y(value) });
      const label = { x: x - 6, y: this.y(value) + 4, "text-anchor": "end" };
      draw(this.back, "text", label).textContent = short(value);
    }
    for (const value of ticks(...this.x.domain, Math.max(3, width / 90))) {
      const label = { x: this.x(value), y: y + height + 15, "text-anchor": "middle" };
      draw(this.back, "text", label).textContent = short(value);
    }
    draw(this.back, "path", { class: "axis", d: `M${x} ${y}V${y + height}H${x + width}` });
    const centre = { x: x + width / 2, y: y + height + 30, "text-anchor": "middle" };
    draw(this.back, "text", centre).textContent = this.state.hello.inputs[this.state.axis].name;
    const side = { x: 11, y: y + height / 2, "text-anchor": "middle" };
    const text = draw(this.back, "text", { ...side, transform: `rotate(-90 ${side.x} ${side.y})` });
    text.textContent = this.state.hello.real ? this.name() : "probability";
  }

  /** Draw layers, each `{of, picture, plain}`; plain ones have a mean and dashed ends alone. */
  show(layers) {
    this.layout();
    this.drawAxes();
    this.curves.replaceChildren();
    for (const layer of layers) {
      if (!layer.picture) continue;
      const outputs = this.classes() ? layer.picture.mean.keys() : [this.output];
      for (const output of outputs) this.drawLayer(layer, output);
    }
    const { truth } = this.state;
    const given = layers.some((layer) => layer.of !== "prior" && !layer.before);
    if (given && truth) draw(this.curves, "path", { class: "truth", d: line(truth.x.map(this.x), truth.y.map(this.y)) });
    if (this.interactive) this.drawPoints();
    else if (given) this.drawStillPoints();
  }

  /** The known points, which cannot be moved here. */
  drawStillPoints() {
    this.dots.replaceChildren();
    for (const point of this.state.points) {
      const [cx, cy] = this.place(point);
      draw(this.dots, "circle", { class: "still-point", cx, cy, r: 4.5 });
    }
  }

  drawLayer({ of, picture, plain }, output) {
    const group = draw(this.curves, "g", { class: `of-${of}` });
    if (this.classes()) group.style.setProperty("--own", CLASS_COLOURS[output % CLASS_COLOURS.length]);
    const xs = linspace(...this.x.domain, picture.mean[output].length).map(this.x);
    const [mean, low, high] = ["mean", "low", "high"].map((name) => picture[name][output].map(this.y));
    if (plain) {
      draw(group, "path", { class: "edge", d: line(xs, low) });
      draw(group, "path", { class: "edge", d: line(xs, high) });
    } else {
      draw(group, "path", { class: "band", d: band(xs, low, high) });
      const shown = this.classes() ? [] : picture.functions;
      for (const values of shown) draw(group, "path", { class: "function", d: line(xs, values[output].map(this.y)) });
    }
    draw(group, "path", { class: "mean", d: line(xs, mean), "stroke-dasharray": plain ? "2 3" : "none" });
  }

  /** Where a point is drawn: classes have a lane each. */
  place(point) {
    const value = point.y[this.classes() ? 0 : this.output];
    return [this.x(point.x[this.state.axis]), this.y(this.classes() ? (value + 0.5) / this.classes() : value)];
  }

  drawPoints() {
    const focused = this.dots.contains(document.activeElement) ? document.activeElement.dataset.index : null;
    this.dots.replaceChildren();
    this.state.hidden.forEach((point, index) => {
      const [cx, cy] = this.place(point);
      const dot = draw(this.dots, "circle", { class: "hidden-point", cx, cy, r: 3.6, "data-hidden": index });
      draw(dot, "title").textContent = "hidden: click to reveal";
    });
    this.state.points.forEach((point, index) => {
      const [cx, cy] = this.place(point);
      draw(this.dots, "circle", { class: "reach", cx, cy, r: 16, "data-index": index });
      const label = `point ${index + 1}: ${point.x.map(short).join(", ")} gives ${point.y.map(short).join(", ")}`;
      const kind = `point${index === this.state.chosen ? " chosen" : ""}`;
      const more = { tabindex: 0, role: "button", "aria-label": label, "data-index": index };
      const dot = draw(this.dots, "circle", { class: kind, cx, cy, r: 5.5, ...more });
      if (this.classes()) dot.style.fill = CLASS_COLOURS[point.y[0] % CLASS_COLOURS.length];
      if (String(index) === focused) dot.focus({ preventScroll: true });
    });
  }

  /** The outputs that a place in the figure stands for. */
  outputs(pixelY, x, before) {
    const value = this.y.inverse(pixelY);
    if (this.classes()) return [Math.min(this.classes() - 1, Math.max(0, Math.floor(value * this.classes())))];
    const y = before ? [...before] : this.state.hello.outputs.map((_, k) => this.state.meanAt(k, x));
    y[this.output] = this.state.hello.real ? value : Number(value >= 0.5);
    return y;
  }

  /** The point at a place in the figure. */
  pointAt(pixelX, pixelY, before) {
    const inside = Math.min(this.box.x + this.box.width, Math.max(this.box.x, pixelX));
    const x = before ? [...before.x] : [...this.state.fixed];
    x[this.state.axis] = this.x.inverse(inside);
    const level = Math.min(this.box.y + this.box.height, Math.max(this.box.y, pixelY));
    return { x, y: this.outputs(level, x[this.state.axis], before?.y) };
  }
}

/** Mouse, touch and keyboard on a plot. */
class Fingers {
  constructor(plot) {
    this.plot = plot;
    this.state = plot.state;
    this.held = null;
    const on = (name, handler) => plot.svg.addEventListener(name, handler);
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.moved(event));
    on("pointerup", (event) => this.up(event));
    on("pointercancel", (event) => this.up(event));
    on("dblclick", (event) => event.preventDefault());
    on("keydown", (event) => this.key(event));
    on("focusin", (event) => this.state.choose(event.target.dataset?.index ?? null));
  }

  at(event) {
    const frame = this.plot.svg.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  }

  down(event) {
    if (event.button > 0) return;
    event.preventDefault();
    const { index, hidden } = event.target.dataset;
    if (hidden !== undefined) return this.state.reveal(Number(hidden));
    this.plot.svg.setPointerCapture(event.pointerId);
    if (index === undefined) {
      this.state.choose(this.state.add(this.plot.pointAt(...this.at(event))));
      this.held = this.state.points.length - 1;
      this.last = null;
      return;
    }
    const again = this.last && this.last.index === index && event.timeStamp - this.last.time < 350;
    this.last = { index, time: event.timeStamp };
    this.state.remember();
    if (again) return this.state.remove(Number(index));
    this.held = Number(index);
    this.state.choose(this.held);
  }

  moved(event) {
    if (this.held === null) return;
    this.last = null;
    const { x, y } = this.plot.pointAt(...this.at(event), this.state.points[this.held]);
    this.outside = this.isOutside(event);
    this.state.move(this.held, x, y);
  }

  isOutside(event) {
    const frame = this.plot.svg.getBoundingClientRect();
    const { clientX: x, clientY: y } = event;
    const past = [frame.left - x, x - frame.right, frame.top - y, y - frame.bottom];
    return Math.max(...past) > OUTSIDE;
  }

  up() {
    if (this.held === null) return;
    const index = this.held;
    this.held = null;
    if (this.outside) this.state.remove(index);
    else this.state.changed("points");
    this.outside = false;
  }

  key(event) {
    const index = event.target.dataset?.index;
    const { x, y } = this.plot;
    if (event.key === "a" && !event.ctrlKey) {
      const [low, high] = x.domain;
      const added = this.state.add(this.plot.pointAt(x((low + high) / 2), y(this.state.meanAt(this.plot.output, (low + high) / 2))));
      this.state.choose(added);
      this.plot.dots.querySelector(`.point[data-index="${added}"]`)?.focus();
    } else if (index !== undefined && ["Delete", "Backspace"].includes(event.key)) {
      this.state.remember();
      this.state.remove(Number(index));
      this.plot.svg.focus();
    } else if (index !== undefined && event.key.startsWith("Arrow")) {
      this.nudge(Number(index), event);
    } else return;
    event.preventDefault();
  }

  nudge(index, event) {
    const step = event.shiftKey ? 1 : 8;
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const point = this.state.points[index];
    const [px, py] = this.plot.place(point);
    if (!event.repeat) this.state.remember();
    const moved = this.plot.pointAt(px + dx * step, py + dy * step, point);
    this.state.move(index, moved.x, moved.y);
    this.state.changed("points");
  }
}
