// Other inference, in the background: in the figure under the learned prior, beside it under the standard one.

const PAUSE = 250; // milliseconds without a change after which inference starts

class Jobs {
  constructor(page) {
    this.page = page;
    this.method = ""; // the reader's choice
    this.running = {}; // by the prior: {id, picture, share}
  }

  /** What has been inferred under the "learned" or the "standard" prior, once it is there. */
  picture(prior) {
    return this.running[prior]?.picture;
  }

  choose(method) {
    this.method = method;
    this.note(method ? `${method} is at work in the background.` : "");
    if (this.page.state.asMap) this.page.arrange();
    this.restart();
    this.page.redraw();
  }

  /** End what runs and, after a pause, start anew what the choices ask for. */
  restart() {
    const { state, backend } = this.page;
    clearTimeout(this.later);
    backend.cancel(Object.values(this.running).map((job) => job.id));
    this.running = {};
    this.showProgress();
    if (!state.hello.methods.length || !state.points.length) return;
    const wanted = [];
    if (this.method) wanted.push("learned");
    if (state.show.standard) wanted.push("standard");
    this.later = setTimeout(() => wanted.forEach((prior) => this.start(prior)), PAUSE);
  }

  start(prior) {
    const message = { kind: "infer", of: prior, method: this.method || "hmc", ...this.page.state.question(FINE) };
    const job = { share: 0 };
    job.id = this.page.backend.start(message, (reply) => this.told(job, reply));
    this.running[prior] = job;
    this.showProgress();
  }

  told(job, reply) {
    if (reply.kind === "progress") job.share = reply.done / reply.steps;
    else job.done = true;
    this.showProgress();
    if (reply.kind === "progress") return;
    if (reply.kind === "error") return tell(reply.message, true);
    job.picture = reply;
    this.note(reply.warnings.join(" ") || "Done: no reason to doubt the result.");
    this.page.redraw();
  }

  /** The bar stands for all that runs. */
  showProgress() {
    const bar = document.getElementById("progress");
    if (!bar) return;
    const jobs = Object.values(this.running);
    bar.hidden = jobs.every((job) => job.done);
    bar.value = jobs.reduce((sum, job) => sum + (job.done ? 1 : job.share), 0) / Math.max(1, jobs.length);
  }

  note(text) {
    document.getElementById("method-note").textContent = text;
  }
}
