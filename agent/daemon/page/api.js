// Requests to the API, and the one stream of events by which the page knows whether it is connected.

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function checked(reply) {
  if (reply.ok) return reply;
  let text = `${reply.status} ${reply.statusText}`;
  try {
    text = (await reply.json()).error || text;
  } catch { /* not JSON: the status says enough */ }
  throw new Refused(reply.status, text);
}

/** Rejects with Refused, or with what fetch rejects with where nothing answers. */
export async function ask(path, { signal, headers } = {}) {
  return checked(await fetch(path, { signal, headers, cache: "no-store", credentials: "same-origin" }));
}

export const read = async (path, options) => (await ask(path, options)).json();

export const jobPath = id => `/v1/jobs/${encodeURIComponent(id)}`;

/** Until `ms` are over or the signal aborts. */
export const pause = (ms, signal) => new Promise(done => {
  const timer = setTimeout(done, ms);
  signal?.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

/** Calls `take` with {id, event, data} of each event of a text/event-stream, and `heard` with each piece of it. */
async function readEvents(body, take, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      const event = { id: "", event: "message", data: "" };
      for (const row of block.split("\n")) {
        const colon = row.indexOf(":");
        const name = row.slice(0, colon);
        if (colon > 0 && name in event) event[name] = row.slice(colon + 1).replace(/^ /, "");
      }
      if (event.data) take(event);
    }
  }
}

const firstPause = 1000;
const longestPause = 15000;
// acc-agent writes a comment after 20 s without an event. A connection that was lost without a word, as by a machine that slept, stays silent.
const longestSilence = 60000;

/** Follows /v1/events for as long as the page is visible, and connects again after each loss with
 *  Last-Event-ID, so that none is missed. EventSource would hide why a connection is refused. */
export class EventFeed {
  /** @param on  {connected(events), event(event), state(name, detail)} */
  constructor(on) {
    this.on = on;
    this.last = null;
    this.runs = null;
    this.attempts = 0;
    document.addEventListener("visibilitychange", () => document.hidden ? this.stop() : this.start());
    addEventListener("online", () => this.retry());
  }

  start() {
    if (this.runs) return;
    this.runs = new AbortController();
    this.follow(this.runs.signal);
  }

  stop() {
    this.runs?.abort();
    this.runs = null;
  }

  retry() {
    this.stop();
    this.attempts = 0;
    this.start();
  }

  async follow(signal) {
    while (!signal.aborted) {
      try {
        await this.once(signal);
        if (signal.aborted) return;
        throw new Error("acc-agent ended the connection");
      } catch (wrong) {
        if (signal.aborted) return;
        if (wrong instanceof Refused && wrong.status === 401) {
          this.runs = null;
          return this.on.state("expired", wrong.message);
        }
        const wait = Math.min(firstPause * 2 ** this.attempts++, longestPause);
        this.on.state("lost", { why: wrong instanceof Refused ? wrong.message : "", wait });
        await pause(wait, signal);
        if (!signal.aborted) this.on.state("connecting");
      }
    }
  }

  /** Until the connection ends, or says nothing for too long. */
  async once(signal) {
    const connection = new AbortController();
    const end = () => connection.abort();
    let timer;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(end, longestSilence);
    };
    signal.addEventListener("abort", end);
    heard();
    try {
      await this.connect(connection.signal, heard);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
    }
  }

  async connect(signal, heard) {
    if (this.last === null) {
      const { events } = await read("/v1/events", { signal });
      this.last = events.at(-1)?.id ?? 0;
      this.on.past(events);
    }
    const headers = this.last > 0 ? { "Last-Event-ID": String(this.last) } : {};
    const reply = await ask("/v1/events?follow=1", { signal, headers });
    heard();
    this.attempts = 0;
    this.on.state("live");
    this.on.connected();
    await readEvents(reply.body, ({ data }) => {
      let event;
      try {
        event = JSON.parse(data);
      } catch {
        return;
      }
      this.last = Math.max(this.last, event.id);
      this.on.event(event);
    }, heard);
  }
}
