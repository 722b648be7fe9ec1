// What the page shows: points, choices, and the way back.

const SAVED = ["points", "hidden", "subject", "truth", "first"];

class State {
  constructor(hello) {
    this.hello = hello;
    this.model = 0;
    this.points = [];
    this.hidden = [];
    this.subject = null;
    this.truth = null; // the true function of the data set, {x, y}, where it is known
    this.first = null; // how many points came before online updates; null while they are off
    this.seed = 0;
    this.samples = 32;
    this.functions = 20;
    this.axis = 0;
    this.value = null; // the value of a clicked pixel where no data set gives one
    this.fixed = hello.inputs.map((input) => (input.low + input.high) / 2);
    this.asMap = hello.inputs.length === 2;
    this.show = { prior: this.asMap, standard: false, oracle: false };
    this.past = [];
    this.listeners = [];
  }

  /** Call `listener(what)` after every change. */
  onChange(listener) {
    this.listeners.push(listener);
  }

  changed(what) {
    for (const listener of this.listeners) listener(what);
  }

  /** Keep the points as they are, for undo. */
  remember() {
    this.past.push(JSON.stringify(SAVED.map((name) => this[name])));
    if (this.past.length > 200) this.past.shift();
  }

  undo() {
    if (!this.past.length) return;
    JSON.parse(this.past.pop()).forEach((value, i) => (this[SAVED[i]] = value));
    this.changed("points");
  }

  add(point) {
    this.remember();
    this.points.push(point);
    this.changed("points");
    return this.points.length - 1;
  }

  move(index, x, y) {
    Object.assign(this.points[index], { x, y });
    this.changed("drag");
  }

  /** Delete a point; one that belongs to a data set is hidden instead. */
  remove(index) {
    const [gone] = this.points.splice(index, 1);
    if (gone.own) this.hidden.push(gone);
    if (this.first !== null) this.first = Math.min(this.first, this.points.length);
    this.changed("points");
  }

  reveal(index) {
    this.remember();
    this.points.push(...this.hidden.splice(index, 1));
    this.changed("points");
  }

  clear() {
    this.remember();
    this.points = [];
    this.hidden = [];
    this.subject = null;
    this.truth = null;
    if (this.first !== null) this.first = 0;
    this.changed("points");
  }

  /** Take the points of a data set; all but some that are spread over it are hidden. */
  take(subject, shown) {
    this.remember();
    const place = (i) => Math.abs(Math.sin(12.9898 * (i + 1)) * 43758.5453) % 1; // an order that looks random
    const order = [...subject.x.keys()].sort((a, b) => place(a) - place(b));
    const all = order.map((i) => ({ x: subject.x[i], y: subject.y[i], own: true }));
    this.points = all.slice(0, shown);
    this.hidden = all.slice(shown);
    this.subject = subject.name;
    this.truth = subject.truth;
    if (this.first !== null) this.first = this.points.length;
    this.changed("points");
  }

  /** The axes of the figure: the ends of an input are those of the data, with a little room. */
  axes(count) {
    const along = (input, n, room) => {
      const { low, high } = this.hello.inputs[input];
      const extra = room * (high - low || 1);
      return { input, low: low - extra, high: high + extra, count: n };
    };
    if (!this.asMap) return [along(this.axis, count, 0.02)];
    return [0, 1].map((input) => along(input, this.hello.sides?.[input] ?? 32, 0));
  }

  /** The question that a picture answers. */
  question(count) {
    const asked = {
      model: this.model,
      x: this.points.map((point) => point.x),
      y: this.points.map((point) => point.y),
      seed: this.seed,
      samples: this.samples,
      functions: Math.min(this.functions, this.samples),
      axes: this.axes(count),
      fixed: this.fixed,
    };
    return this.first === null ? asked : { ...asked, first: this.first };
  }
}
