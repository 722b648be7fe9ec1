// The page: asks for pictures when something changes, and draws the answers.

const DRAFT = 96; // inputs of a curve while a point is dragged
const FINE = 240;

const SLOTS = ["posterior", "prior", "standard", "online", "oracle"];

class Page {
  constructor(backend, hello) {
    this.backend = backend;
    this.pictures = new Map();
    this.shown = 5;
    this.timings = []; // when pictures were asked for and drawn, in milliseconds since the page was opened
    this.state = new State(hello);
    this.jobs = new Jobs(this);
    this.state.limits = hello.outputs.map(({ low, high }) => [low, high]);
    this.state.meanAt = (output, x) => this.meanAt(output, x);
    this.state.choose = (index) => this.choose(index);
    this.byId = (id) => document.getElementById(id);
    this.state.onChange((what) => this.changed(what));
    this.fillHeader();
    this.byId("controls").replaceChildren(...controls(this));
    this.connectBar();
    this.arrange();
    this.learnLimits();
    this.changed("all");
    new ResizeObserver(() => this.redraw()).observe(this.byId("figure"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  fillHeader() {
    const { models } = this.state.hello;
    const choice = this.byId("model");
    const label = ({ name, share }) => (models.length > 1 ? `${name}, learnable share ${share}` : name);
    choice.replaceChildren(...models.map((model, value) => element("option", { value }, label(model))));
    const show = () => (this.byId("summary").textContent = models[this.state.model].summary);
    choice.addEventListener("change", () => {
      this.state.model = Number(choice.value);
      show();
      this.learnLimits();
      this.state.changed("all");
    });
    show();
  }

  connectBar() {
    const press = (id, action) => this.byId(id).addEventListener("click", action);
    press("undo", () => this.state.undo());
    press("clear", () => this.state.clear());
    press("remove", () => this.removeChosen());
    press("reseed", () => {
      this.state.seed += 1;
      this.byId("seed").value = this.state.seed;
      this.state.changed("all");
    });
    addEventListener("keydown", (event) => {
      if (event.key !== "z" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.state.undo();
    });
  }

  removeChosen() {
    if (this.state.chosen == null) return;
    this.state.remember();
    this.state.remove(this.state.chosen);
    this.choose(null);
  }

  choose(index) {
    this.state.chosen = index === null ? null : Number(index);
    this.byId("remove").disabled = index === null;
    document.querySelectorAll(".point").forEach((dot) =>
      dot.classList.toggle("chosen", Number(dot.dataset.index) === this.state.chosen));
  }

  /** Make the plots that the choices ask for: prior or standard prior at the left, the posterior at the right. */
  arrange() {
    const parent = this.byId("figure");
    const { hello, show, asMap } = this.state;
    parent.replaceChildren();
    this.maps = [];
    this.plots = [];
    parent.classList.toggle("maps", asMap);
    parent.classList.toggle("beside", asMap || show.prior || show.standard);
    if (asMap) return this.arrangeMaps(parent);
    const outputs = hello.classes ? [0] : hello.outputs.keys();
    for (const output of outputs) {
      const add = (caption, of, interactive) =>
        this.plots.push({ plot: new Plot(parent, this.state, output, { caption, interactive }), of });
      const given = hello.methods.length ? "the same points" : "before any point";
      if (show.standard) add(`Standard prior, ${given}`, ["standard-shown"], false);
      else if (show.prior) add("Prior: before any point", ["prior"], false);
      const several = show.standard || show.prior;
      const caption = show.standard ? "Learned prior, given the points" : "Posterior: given the points";
      add(several ? caption : "", ["posterior", "online", "oracle", "method"], true);
      if (show.standard && show.prior) add("Learned prior: before any point", ["prior"], false);
    }
  }

  arrangeMaps(parent) {
    const add = (caption, pick, kind, of = "posterior") =>
      this.maps.push({ map: new HeatMap(parent, this.state, caption, pick, kind), of });
    add("Mean, with the known points", (picture) => picture.mean[0], { interactive: true });
    add("Standard deviation", (picture) => picture.deviation[0], { ofOutput: false });
    add("One function of the posterior", (picture) => picture.functions[0][0]);
    const { prior, standard } = this.state.show;
    if (prior) add("The same function of the prior", (picture) => picture.functions[0][0], {}, "prior");
    if (standard) add("The same of the standard prior", (picture) => picture.functions[0][0], {}, "standard-shown");
    const { method } = this.jobs;
    if (method) add(`Mean by ${method}`, (picture) => picture.mean[0], {}, "method");
  }

  /** The outputs' range: that of the data, and most of the prior's band. */
  learnLimits() {
    const within = (values, share) => values.toSorted((a, b) => a - b)[Math.round(share * (values.length - 1))];
    this.ask("prior", FINE, (picture) => {
      if (!this.state.hello.real) return;
      this.state.limits = this.state.hello.outputs.map(({ low, high }, k) => {
        const a = Math.min(low, within(picture.low[k], 0.05));
        const b = Math.max(high, within(picture.high[k], 0.95));
        return [a - 0.05 * (b - a), b + 0.05 * (b - a)];
      });
    });
  }

  /** Ask for a picture, and draw once it is there. */
  ask(of, count, then = () => {}) {
    const asked = this.state.question(count);
    const began = performance.now();
    this.backend.ask(of, { kind: "picture", of, ...asked }, (reply, old) => {
      if (reply.kind === "error") return tell(reply.message, true);
      if (!old) tell("");
      this.pictures.set(of, reply);
      if (of === "posterior") this.asked = asked;
      then(reply);
      this.redraw();
      if (of === "posterior") this.timings.push({ asked: began, drawn: performance.now() });
    });
  }

  changed(what) {
    const { state } = this;
    if (what === "view" || what === "all") this.arrange();
    const count = what === "drag" ? DRAFT : FINE;
    const wanted = { posterior: true, online: state.first !== null, oracle: state.show.oracle };
    if (what !== "drag" && what !== "points") {
      wanted.prior = state.show.prior;
      wanted.standard = state.show.standard;
    }
    for (const of of SLOTS) {
      if (wanted[of]) this.ask(of, count);
      else if (wanted[of] === false) this.pictures.delete(of);
    }
    this.jobs.restart();
    tellStory(this.state);
    for (const { plot } of this.plots) if (plot.interactive && plot.x) plot.drawPoints();
  }

  /** The standard prior: given the points once a method has inferred them, where there are points and methods. */
  standardLayer() {
    const inferred = this.state.points.length > 0 && this.state.hello.methods.length > 0;
    const picture = inferred ? this.jobs.picture("standard") : this.pictures.get("standard");
    return { of: "standard", picture, before: !inferred };
  }

  layer(of) {
    if (of === "standard-shown") return this.standardLayer();
    const picture = of === "method" ? this.jobs.picture("learned") : this.pictures.get(of);
    return { of, picture, plain: of !== "posterior" && of !== "prior" };
  }

  layers(several) {
    return several.map((of) => this.layer(of));
  }

  redraw() {
    for (const { plot, of } of this.plots) plot.show(this.layers(of));
    for (const { map, of } of this.maps) {
      const { picture } = this.layer(of);
      if (picture?.functions.length) map.show(picture);
    }
    drawLegend(this);
    tellCount(this);
  }

  nearest(x, count) {
    const [axis] = this.state.axes(count);
    const share = (x - axis.low) / (axis.high - axis.low);
    return Math.min(count - 1, Math.max(0, Math.round(share * (count - 1))));
  }

  meanAt(output, x) {
    const mean = this.pictures.get("posterior")?.mean[output];
    return mean ? mean[this.nearest(x, mean.length)] : this.state.hello.outputs[output].low;
  }

  takeSubject(number) {
    this.backend.ask("subject", { kind: "subject", number }, (reply) => {
      if (reply.kind === "error") return tell(reply.message, true);
      this.subject = reply;
      const sides = [0, 1].map((k) => new Set(reply.x.map((x) => x[k])).size);
      if (this.state.hello.inputs.length === 2 && sides[0] * sides[1] === reply.x.length) this.state.hello.sides = sides;
      this.showPoints(this.shown);
    });
  }

  showPoints(value) {
    this.shown = value;
    if (this.subject) this.state.take(this.subject, value);
  }

  revealAll() {
    if (this.subject) this.state.take(this.subject, this.subject.x.length);
  }

  calibrate() {
    const place = this.byId("calibration");
    place.replaceChildren(note("Each data set is predicted from a part of its points …"));
    const { model, seed } = this.state;
    this.backend.start({ kind: "calibration", model, seed }, (reply) => {
      if (reply.kind === "error") return place.replaceChildren(note(reply.message));
      place.replaceChildren(...calibrationTable(reply));
    });
  }

  csv() {
    return csv(this.state, this.asked, this.pictures.get("posterior"));
  }

  python() {
    return python(this.state, this.asked);
  }

  svg() {
    return this.plots.find(({ plot }) => plot.interactive)?.plot.svg;
  }

  png() {
    if (this.svg()) savePng(this.svg());
    else this.maps[0].map.canvas.toBlob((blob) => save("posterior.png", blob));
  }
}

const embedded = document.getElementById("engine");
const trouble = (text) => tell(text, true);
const backend = (embedded ? conditionHere : connect)((hello) => (window.page = new Page(backend, hello)), trouble);
