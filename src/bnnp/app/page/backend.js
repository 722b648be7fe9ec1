// Who answers the page: the server over a WebSocket, or a worker in a page without a server.

class Backend {
  /** `hello` is called once with what can be shown, `trouble` with a message when the other side has gone. */
  constructor(hello, trouble) {
    this.waiting = new Map(); // by what they ask for; an older message of the same kind is dropped
    this.asked = new Map();
    this.busy = 0;
    this.next = 1;
    this.hello = hello;
    this.trouble = trouble;
  }

  /** Ask, and call `answer` with the reply unless a newer message of the same slot has been asked since. */
  ask(slot, message, answer) {
    this.waiting.set(slot, { message, answer });
    this.pump();
  }

  /** Send now, beside what is asked: work in the background. */
  start(message, answer) {
    const id = this.next++;
    this.asked.set(id, { slot: null, answer });
    this.send({ ...message, id });
    return id;
  }

  /** End work in the background, whose answers are no longer wanted. */
  cancel(ids) {
    for (const id of ids) this.asked.delete(id);
    if (ids.length) this.send({ kind: "cancel" });
  }

  pump() {
    if (this.busy || !this.waiting.size) return;
    const [slot, { message, answer }] = this.waiting.entries().next().value;
    this.waiting.delete(slot);
    const id = this.next++;
    this.busy = id;
    this.asked.set(id, { slot, answer });
    this.send({ ...message, id });
  }

  receive(reply) {
    if (reply.kind === "hello") return this.hello(reply);
    const entry = this.asked.get(reply.id);
    if (reply.kind !== "progress") this.asked.delete(reply.id);
    if (reply.id === this.busy) this.busy = 0;
    if (entry) entry.answer(reply, this.waiting.has(entry.slot));
    this.pump();
  }
}

/** The server that this page came from. */
function connect(hello, trouble) {
  const backend = new Backend(hello, trouble);
  const socket = new WebSocket(`ws://${location.host}/talk`);
  backend.send = (message) => socket.send(JSON.stringify(message));
  socket.onmessage = (event) => backend.receive(JSON.parse(event.data));
  socket.onclose = () => trouble("The server has ended. Start it again and reload this page.");
  return backend;
}

/** A worker that conditions by itself, from the script and the model in this file. */
function conditionHere(hello, trouble) {
  const backend = new Backend(hello, trouble);
  const text = (id) => document.getElementById(id).textContent;
  const script = new Blob([text("engine")], { type: "text/javascript" });
  const worker = new Worker(URL.createObjectURL(script));
  backend.send = (message) => worker.postMessage(message);
  worker.onmessage = (event) => backend.receive(event.data);
  worker.onerror = (event) => trouble(event.message);
  worker.postMessage({ kind: "models", content: JSON.parse(text("content")) });
  return backend;
}
