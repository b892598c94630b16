// The parts of a job on other nodes, as the daemons there have them: found by the launch that all parts name.
import { ask, read, Refused } from "./api.js";
import { Rounds } from "./rounds.js";

const searchEvery = 10_000;  // ms, while parts are missing
const mostParts = 32;        // each is asked with every look

export class Parts {
  /** @param job  the one here: {user, launch: {id, nodes, node_rank}} */
  constructor({ user, launch }) {
    this.user = user;
    this.launch = launch;
    this.found = new Map();  // node rank: {node, at, rounds, offset, decoder, job, error}
    this.searched = -Infinity;
  }

  /** One look at a time. @return whether it was one */
  async look(signal) {
    if (this.isLooking) return false;
    this.isLooking = true;
    try {
      const wanted = Math.min(this.launch.nodes - 1, mostParts);
      if (this.found.size < wanted && Date.now() - this.searched > searchEvery) await this.search(signal);
      await Promise.all([...this.found.values()].map(part => this.readPart(part, signal)));
      return true;
    } finally {
      this.isLooking = false;
    }
  }

  async search(signal) {
    this.searched = Date.now();
    let nodes = [];
    try {
      ({ nodes } = await read("/v1/nodes", { signal }));
    } catch (wrong) {
      if (!(wrong instanceof Refused)) throw wrong;
    }
    const known = new Set([...this.found.values()].map(part => part.node));
    await Promise.all(nodes.filter(({ node, ok }) => ok && !known.has(node)).map(async ({ node }) => {
      const at = `/v1/nodes/${node}/v1/jobs`;
      try {
        const { jobs } = await read(at, { signal });
        // Any user may name this launch in a submission.
        const job = jobs.findLast(one => one.user === this.user && one.launch?.id === this.launch.id);
        if (!job || job.launch.node_rank === this.launch.node_rank || this.found.size >= mostParts) return;
        this.found.set(job.launch.node_rank,
                       { node, at: `${at}/${encodeURIComponent(job.id)}`, rounds: new Rounds(), offset: 0, decoder: new TextDecoder(), job, error: "" });
      } catch (wrong) {
        if (!(wrong instanceof Refused)) throw wrong;
      }
    }));
  }

  async readPart(part, signal) {
    try {
      const isOver = job => ["succeeded", "failed", "stopped"].includes(job.state);
      if (part.wasOver) return;
      part.job = await read(part.at, { signal });
      const reply = await ask(`${part.at}/logs?stream=events&format=raw&from=${part.offset}`, { signal });
      const added = await reply.arrayBuffer();
      const from = Number(reply.headers.get("X-Acc-From") ?? part.offset);
      if (from !== part.offset) part.decoder = new TextDecoder();  // the oldest events are kept no longer
      part.offset = from + added.byteLength;
      part.rounds.feed(part.decoder.decode(added, {stream: true}), part.job);
      if (isOver(part.job)) part.rounds.closeAll(part.job.ended_ms, true);
      part.wasOver = isOver(part.job);
      part.error = "";
    } catch (wrong) {
      if (!(wrong instanceof Refused)) throw wrong;
      if (wrong.status === 416) Object.assign(part, { offset: 0, rounds: new Rounds(), decoder: new TextDecoder() });
      part.error = wrong.message;
    }
  }

  /** Adds their ranks to the rounds of this node. */
  addTo(rounds) {
    for (const part of this.found.values()) rounds.adopt(part.rounds, part);
  }

  /** Of the workers that live now, on all of these nodes. */
  get live() { return [...this.found.values()].flatMap(part => part.job?.live?.workers ?? []); }

  get silent() { return [...this.found.values()].filter(part => part.error); }
}
