// The rounds of a job, from the lines that acc-launch wrote with --events, or from its report.

export const kinds = ["waiting", "running", "done", "stopped", "later", "first", "unknown"];
export const words = {
  waiting: "waiting", running: "running", done: "succeeded", stopped: "stopped by us",
  later: "failed later", first: "failed first", unknown: "end not recorded",
};

/** How a worker's part of a round is shown. */
export function kindOf(round, worker) {
  if (worker.end === null) return "running";
  if (worker.lost) return "unknown";
  // It failed by itself if it is the one that the round ended for, whatever was sent to it then.
  if (round.failure?.rank === worker.rank) return "first";
  if (worker.stopped) return "stopped";
  return worker.code === 0 ? "done" : "later";
}

export function exitWords(worker) {
  if (worker.end === null) return "";
  if (worker.signal) return `killed by ${worker.signal}`;
  if (worker.code === null || worker.code === undefined) return "";
  return `exit code ${worker.code}`;
}

const skew = 864e5;  // ms by which the clocks of nodes and browsers may differ

/** A number that a user's files told, from `least` to `most`; else `least`. */
const within = (number, least, most) =>
    Number.isFinite(number) ? Math.min(Math.max(number, least), most) : least;
const seconds = worker => Number.isFinite(worker.seconds) ? worker.seconds : 0;

const newRound = (number, start) => ({
  number, start, end: null, waited: 0, waitedFrom: null, workers: new Map(), failure: null,
  ordered: null, restart: null, stopping: null, worldSize: 0, nodes: 1,
});

export class Rounds {
  constructor() {
    this.rounds = [];
    this.began = null;      // of the first agent, ms since 1970
    this.ended = null;      // of the last agent
    this.startFailure = "";
    this.node = "";
    this.held = "";
    this.freeFrom = null;   // since when nothing runs
  }

  get last() { return this.rounds.at(-1); }

  /**
   * Bytes of the file as text, in order; lines may be cut anywhere.
   *  @param job  whose file it is: no time is far from its own
   */
  feed(text, job) {
    const least = (job?.submitted_ms || 0) - skew, most = (job?.ended_ms || Date.now()) + skew;
    const lines = (this.held + text).split("\n");
    this.held = lines.pop();
    for (const line of lines) {
      let event;
      try {
        event = JSON.parse(line);
      } catch {
        continue;
      }
      const time = Date.parse(event?.time);
      if (Number.isFinite(time)) this.take(event, within(time, least, most));
    }
  }

  take(e, time) {
    const round = this.last;
    const worker = round && e.round === round.number ? round.workers.get(e.rank) : undefined;
    if (e.event === "job_started") {
      this.closeAll(time, true);
      this.began ??= time;
      this.ended = null;
      this.node = e.node ?? "";
      this.freeFrom ??= time;
    } else if (e.event === "round_started") {
      this.closeAll(time, true);
      const next = newRound(e.round, time);
      next.waitedFrom = this.freeFrom ?? time;
      next.waited = time - next.waitedFrom;
      next.worldSize = e.world_size;
      next.nodes = e.nodes;
      next.again = this.rounds.length;
      this.rounds.push(next);
      this.freeFrom = null;
    } else if (e.event === "worker_started" && round) {
      round.workers.set(e.rank, {
        rank: e.rank, local: e.local_rank, pid: e.pid, start: time, end: null, code: null,
        signal: null, stopped: false, lost: false, memory: null,
      });
    } else if (e.event === "worker_ended" && worker) {
      Object.assign(worker, {
        end: time, code: e.exit_code, signal: e.signal, stopped: e.stopped_by_us, lost: false, memory: e.peak_rss_bytes,
      });
      if (Number.isFinite(e.seconds))
        worker.end = Math.min(time, worker.start + Math.max(0, e.seconds) * 1000);
      round.end = Math.max(round.end ?? 0, worker.end);
      this.freeFrom = round.end;
    } else if (e.event === "failure" && round) {
      round.failure ??= { rank: e.rank, local: e.local_rank, cause: e.cause, time, seconds: e.seconds_into_round, log: e.log, stacks: e.stacks, lines: e.last_lines, errorLines: e.error_lines };
    } else if (e.event === "start_failed") {
      this.startFailure = e.why;
    } else if (e.event === "restart" && round) {
      round.restart = { delay: e.delay_s, reason: e.reason };
    } else if (e.event === "stopping" && round) {
      round.stopping = { signal: e.signal, time };
    } else if (e.event === "stop_ordered" && round) {
      round.ordered = { by: e.by, reason: e.reason };
    } else if (e.event === "job_ended") {
      this.closeAll(time, true);
      this.ended = time;
    }
  }

  /** The ranks of another node in the same rounds; each worker is then in both.
   *  @param part  where they run, for their logs */
  adopt(others, part) {
    const places = new Map();  // an acc-launch that was started again counts from 0 again
    const place = number => { places.set(number, (places.get(number) ?? -1) + 1); return `${number} ${places.get(number)}`; };
    const theirs = new Map(others.rounds.map(round => [place(round.number), round]));
    places.clear();
    for (const round of this.rounds) {
      const other = theirs.get(place(round.number));
      if (!other) continue;
      for (const [rank, worker] of other.workers) {
        worker.part ??= part;
        round.workers.set(rank, worker);
        if (worker.end !== null) round.end = Math.max(round.end ?? 0, worker.end);
      }
      if (other.failure && !(round.failure?.time <= other.failure.time)) round.failure = { ...other.failure, host: others.node };
    }
  }

  /** Workers whose end nobody saw: their agent was killed. */
  closeAll(time, isLost) {
    for (const worker of this.last?.workers.values() ?? []) {
      if (worker.end !== null) continue;
      worker.end = time;
      worker.lost = isLost;
      this.last.end = Math.max(this.last.end ?? 0, time);
      this.freeFrom ??= this.last.end;
    }
  }

  /** Without events the last round can be told from the report. */
  static fromReport(report, job) {
    const made = new Rounds();
    if (!Array.isArray(report?.workers) || report.workers.length === 0) return made;
    const end = job.ended_ms || Date.now(),
          least = Math.min(end, job.submitted_ms || job.started_ms || end);
    const first = report.failures?.at(-1);
    const longest = within(
        report.workers.reduce((most, w) => Math.max(most, seconds(w)), 0) * 1000, 0, end - least);
    const failed = within(Date.parse(first?.time), least, end);
    const start =
        first ? within(failed - first.seconds_into_attempt * 1000, least, end) : end - longest;
    const round = newRound(first?.attempt ?? report.failed_attempts ?? 0, start);
    for (const w of report.workers) {
      round.workers.set(w.rank, {
        rank: w.rank,
        local: w.local_rank,
        pid: w.pid,
        start,
        end: within(start + seconds(w) * 1000, start, end),
        code: w.exit?.code ?? null,
        signal: w.exit?.signal ?? null,
        stopped: w.stopped_by_us,
        lost: !w.exit,
        memory: w.peak_rss_bytes,
      });
    }
    if (first) {
      round.failure = {
        rank: first.rank,
        local: first.local_rank,
        cause: first.cause,
        time: failed,
        seconds: first.seconds_into_attempt,
        log: first.log
      };
    }
    round.waitedFrom = start;
    round.end = Math.min(end, start + longest);
    round.worldSize = report.world_size;
    made.rounds = [round];
    made.began = start;
    made.ended = end;
    made.node = report.host;
    return made;
  }

  /** And the workers that live now from the agent's status. */
  static fromLive(live, job) {
    const made = new Rounds();
    if (!Array.isArray(live?.workers) || live.workers.length === 0) return made;
    const now = Date.now(),
          least = Math.min(now, (job?.submitted_ms || job?.started_ms || now) - skew);
    const round = newRound(live.round, now);
    for (const w of live.workers) {
      const start = within(now - seconds(w) * 1000, least, now);
      round.start = Math.min(round.start, start);
      round.workers.set(w.rank, {
        rank: w.rank, local: w.local_rank, pid: w.pid, start, end: w.state === "ended" ? now : null,
        code: w.exit_code, signal: w.signal, stopped: false, lost: false, memory: w.rss_bytes,
      });
    }
    round.waitedFrom = round.start;
    round.worldSize = live.world_size;
    round.nodes = live.nodes;
    made.rounds = [round];
    made.began = round.start;
    made.node = live.node;
    return made;
  }

  /** Time without workers after a failure, and before the first start; ms. */
  lostTime(now) {
    let restarting = 0;
    for (const round of this.rounds.slice(1)) restarting += round.waited;
    const first = this.rounds[0];
    if (this.freeFrom !== null && this.ended === null && first) restarting += now - this.freeFrom;
    return { restarting, waiting: first ? first.waited : 0 };
  }
}
