// The page: what is shown where, and when it is read again.
import { EventFeed, Refused, ask, jobPath, pause, read } from "/api.js";
import { LogTail } from "/log.js";
import { Parts } from "/parts.js";
import { Rounds, exitWords, kindOf, words } from "/rounds.js";
import { Timeline } from "/timeline.js";
import { ago, bytes, clean, clock, duration, element, moment, plural, say } from "/words.js";

const $ = id => document.getElementById(id);
const mostEvents = 150;
const ranksAPage = 50;
const liveEvery = 2000;     // ms between two looks at a running job
const listsEvery = 1000;    // at most, however many events arrive
const isOver = job => ["succeeded", "failed", "stopped"].includes(job.state);

// ---- the node ----

function fact(name, value, attributes = {}) {
  return element("div", attributes, element("dt", { text: name }), element("dd", { text: value }));
}

async function showNode() {
  const node = await read("/v1/node");
  say($("node-name"), node.name);
  say($("node-version"), node.version);
  document.title = `${clean(node.name)} – acc-agent`;
  const facts = [fact("Slots", `${node.slots_free} of ${node.slots} free`)];
  facts.push(fact("GPUs", node.gpus.length === 0 ? "none" : `${node.gpus_free.length} of ${node.gpus.length} free`));
  if (node.drained) facts.push(fact("Drained", node.drained, { class: "alarm" }));
  else facts.push(fact("State", "takes jobs"));
  $("node-facts").replaceChildren(...facts);
}

/** The cluster's nodes, where this one has any in its settings. */
async function showNodes() {
  let nodes = [];
  try {
    ({ nodes } = await read("/v1/nodes"));
  } catch (wrong) {
    if (!(wrong instanceof Refused)) throw wrong;
  }
  $("nodes").hidden = nodes.length < 2;  // this one alone stands above
  $("node-rows").replaceChildren(...nodes.map(({ node, ok, facts, error }) => {
    const state = !ok ? "failed" : facts.drained ? "waiting" : "ready";
    const word = !ok ? "no answer" : facts.drained ? "drained" : "ready";
    const text = !ok ? error : facts.drained || `${facts.slots_free} of ${plural(facts.slots, "slot")} free` +
      (facts.gpus.length ? `, ${facts.gpus_free.length} of ${plural(facts.gpus.length, "GPU")}` : "");
    return element("li", {}, element("strong", { text: node }), element("span", { class: "state", "data-state": state, text: word }),
                   element("span", { class: "text", text }));
  }));
}

// ---- the jobs ----

let jobs = [];
const rowOf = new Map();

const since = job => job.ended_ms || job.started_ms || job.submitted_ms;

function makeRow(id) {
  const row = element("tr", { role: "row" }, ...Array.from({ length: 6 }, (_, at) =>
    element("td", { role: "cell", class: at === 3 || at === 5 ? "number" : null })));
  row.cells[0].append(element("a", { href: `#/jobs/${id}`, text: id }));
  row.cells[1].append(element("span", { class: "state" }));
  row.addEventListener("click", event => { if (!event.target.closest("a") && !String(getSelection())) location.hash = `#/jobs/${id}`; });
  return row;
}

function fillRow(row, job, now) {
  const state = row.cells[1].firstChild;
  if (state.dataset.state !== job.state) state.dataset.state = job.state;
  say(state, job.state);
  say(row.cells[2], job.user);
  say(row.cells[3], job.slots);
  const passed = ago(now - since(job));
  say(row.cells[4], passed);
  row.cells[4].title = moment(since(job));
  const again = Math.max(0, job.starts - 1);
  say(row.cells[5], again);
  row.dataset.line = clean(`${job.user} · ${plural(job.slots, "slot")} · ${passed}${again ? ` · ${plural(again, "restart")}` : ""}`);
}

function showJobs() {
  const wanted = $("filter").value.trim().toLowerCase();
  const has = job => !wanted || `${job.id} ${job.user} ${job.state} ${job.name}`.toLowerCase().includes(wanted);
  const shown = jobs.filter(has).sort((a, b) => isOver(a) - isOver(b) || b.submitted_ms - a.submitted_ms || (a.id < b.id ? 1 : -1));
  const now = Date.now(), rows = [];
  for (const job of shown) {
    if (!rowOf.has(job.id)) rowOf.set(job.id, makeRow(job.id));
    const row = rowOf.get(job.id);
    fillRow(row, job, now);
    if (job.id === chosen.id) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
    rows.push(row);
  }
  const kept = new Set(jobs.map(job => job.id));
  for (const id of rowOf.keys()) if (!kept.has(id)) rowOf.delete(id);
  const body = $("job-rows");
  if (rows.length !== body.children.length || rows.some((row, at) => body.children[at] !== row)) {
    const focused = document.activeElement;
    body.replaceChildren(...rows);
    if (body.contains(focused)) focused.focus();
  }
  const running = jobs.filter(job => !isOver(job)).length;
  say($("jobs-count"), jobs.length ? `${jobs.length}, ${running} active` : "");
  $("jobs-empty").hidden = rows.length > 0;
  say($("jobs-empty"), jobs.length ? "No job contains this text." : "No jobs. acc-ctl submit starts one.");
}

async function readJobs() {
  ({ jobs } = await read("/v1/jobs"));
  showJobs();
}

// ---- one job ----

const chosen = { id: null, job: null, rounds: null, parts: null, offset: 0, runs: null, page: 0, round: null, logPart: null };
let timeline, log;

function open(id) {
  if (id === chosen.id) return;
  chosen.runs?.abort();
  Object.assign(chosen, { id, job: null, rounds: new Rounds(), parts: null, offset: 0, page: 0, round: null, runs: null, live: null, logPart: null });
  document.body.classList.toggle("has-job", id !== null);
  $("job").hidden = id === null;
  log.close();
  showJobs();
  if (id === null) return;
  $("job-title").replaceChildren(element("span", { text: id }));
  $("job-body").hidden = true;
  $("job-missing").hidden = true;
  say($("timeline-status"), "Choose a rank to see its log.");
  $("log-rank").value = "";
  $("log-stream").value = "stdout";
  chosen.runs = new AbortController();
  watchJob(id, chosen.runs.signal);
  $("job-title").focus({ preventScroll: true });
  scrollTo(0, 0);
}

async function watchJob(id, signal) {
  while (!signal.aborted) {
    try {
      if (!document.hidden) await readJob(id, signal);
    } catch (wrong) {
      if (signal.aborted) return;
      if (wrong instanceof Refused && wrong.status === 404) return showMissing(id);
      if (!(wrong instanceof Refused)) feed.retryIfIdle();
    }
    const wake = new AbortController();
    chosen.wake = () => wake.abort();
    const isDone = chosen.job && isOver(chosen.job);
    await pause(isDone ? 3600_000 : liveEvery, AbortSignal.any([signal, wake.signal]));
  }
}

function showMissing(id) {
  $("job-body").hidden = true;
  $("job-missing").hidden = false;
  say($("job-missing"), `There is no job ${id}: it was removed, or belongs to another user.`);
}

async function readJob(id, signal) {
  const job = await read(jobPath(id), { signal });
  const isFirst = chosen.job === null, was = chosen.job;
  if (signal.aborted) return;
  chosen.job = job;
  if (job.launch?.nodes > 1) chosen.parts ??= new Parts(job);
  // Nodes that are slow to answer hold up nothing: what they say is shown when it is there.
  const parts = chosen.parts;
  parts?.look(signal).then(isNew => { if (isNew && parts === chosen.parts) showRounds(chosen.job); }).catch(() => {});
  await readRounds(id, signal);
  if (signal.aborted) return;
  $("job-body").hidden = false;
  $("job-missing").hidden = true;
  showFacts(job);
  showRounds(job);
  if (isFirst || (was && was.starts !== job.starts)) openLog();
}

/** What was added to the file of events since the last look. */
async function readRounds(id, signal) {
  chosen.decoder ??= new TextDecoder();
  try {
    const reply = await ask(`${jobPath(id)}/logs?stream=events&format=raw&from=${chosen.offset}`, { signal });
    const added = await reply.arrayBuffer();
    if (signal.aborted) return;
    // Above what was asked for, if the oldest events are kept no longer.
    const from = Number(reply.headers.get("X-Acc-From") ?? chosen.offset);
    if (chosen.offset === 0 || from !== chosen.offset) chosen.decoder = new TextDecoder();
    chosen.offset = from + added.byteLength;
    chosen.rounds.feed(chosen.decoder.decode(added, {stream: true}), chosen.job);
  } catch (wrong) {
    if (!(wrong instanceof Refused)) throw wrong;
    if (wrong.status === 416) Object.assign(chosen, { offset: 0, rounds: new Rounds() });
  }
}

function showFacts(job) {
  const state = element("span", { class: "state", "data-state": job.state, text: job.state });
  const title = $("job-title");
  if (title.lastChild.dataset?.state !== job.state) title.replaceChildren(element("span", { text: job.id }), state);
  const now = Date.now(), facts = [fact("User", job.user), fact("Slots", job.slots)];
  if (job.gpus.length) facts.push(fact("GPUs", job.gpus.join(", ")));
  facts.push(fact("Submitted", moment(job.submitted_ms)));
  if (job.started_ms) facts.push(fact("Started", moment(job.started_ms)));
  if (job.ended_ms) facts.push(fact("Ended", moment(job.ended_ms)));
  if (job.started_ms) facts.push(fact(job.ended_ms ? "Lasted" : "Runs for", duration(Math.floor(((job.ended_ms || now) - job.started_ms) / 1000) * 1000)));
  const restarts = job.live?.restarts ?? job.report?.restarts;
  if (restarts !== undefined) facts.push(fact("Restarts of the workers", restarts));
  if (job.starts > 1) facts.push(fact("acc-launch started", `${job.starts} times`));
  if (job.exit_code !== null) facts.push(fact("Exit code", job.exit_code));
  if (job.live?.world_size) facts.push(fact("Ranks", `${job.live.workers.length} here of ${job.live.world_size}, ${plural(job.live.nodes, "node")}`));
  facts.push(fact("Command", job.words.join(" ").replace(/\s+/g, " ").trim(), { class: "whole" }), fact("Folder", job.working_directory, { class: "whole" }));
  $("job-facts").replaceChildren(...facts);
  $("job-reason").hidden = !job.reason;
  say($("job-reason"), job.reason);
}

/** Which rank failed first, where, when, and what it cost. */
function showFinding(job, rounds) {
  const bad = rounds.rounds.filter(round => round.failure || round.ordered);
  const firstBad = bad[0];
  const report = isOver(job) ? job.report : null;
  const count = Math.max(bad.length, report?.failed_attempts ?? 0);
  // The report's first_failure is what ended the job: of several rounds the last one's.
  const told = count <= 1 ? report?.first_failure ?? report?.failures?.[0]
    : bad.length <= 1 ? report.failures?.[0]
    : job.starts <= 1 ? report?.failures?.find(one => one.attempt === firstBad.number && one.rank === firstBad.failure?.rank) : null;
  const failure = told ? { rank: told.rank, cause: told.cause, time: Date.parse(told.time), seconds: told.seconds_into_attempt, round: told.attempt, host: told.host }
    : firstBad?.failure ? { host: rounds.node, ...firstBad.failure, round: firstBad.number } : null;
  const startFailure = job.report?.start_failure || rounds.startFailure;
  $("finding").hidden = !failure && !startFailure && !firstBad;
  if ($("finding").hidden) return;
  const lost = rounds.lostTime(Date.now());
  const goodput = isOver(job) ? job.report?.goodput : job.live?.goodput;
  const work = (goodput?.seconds_lost_work ?? 0) * 1000;
  const cost = (goodput ? goodput.seconds_restarting * 1000 : lost.restarting) + work;
  const wasRestarted = rounds.rounds.length > 1 || (job.live ?? job.report)?.restarts > 0;
  const parts = [];
  if (told?.node_lost) parts.push(`Node ${told.host} was lost: ${failure.cause}`);
  else if (failure) parts.push(`Rank ${failure.rank} on ${failure.host} ${failure.cause}`);
  else if (firstBad) parts.push(`${firstBad.ordered.reason}${firstBad.ordered.by ? ` (node ${firstBad.ordered.by})` : ""}`);
  else parts.push(startFailure);
  if (failure) parts.push(`at ${clock(failure.time, true)}, ${duration(failure.seconds * 1000)} into round ${failure.round}.`);
  if (count > 1) parts.push(`${plural(count - 1, "more round")} failed after it.`);
  if (wasRestarted && cost > 0)
    parts.push(`Restarts${work > 0 ? " and lost work" : ""} cost ${duration(cost)}${isOver(job) ? "" : " so far"}${goodput?.seconds_lost_work === null ? ", beside the work that was lost (the workers report no checkpoints)" : ""}.`);
  const stacks = told?.stacks ?? firstBad?.failure?.stacks;
  if (stacks && stacks !== "stderr") parts.push(`The workers' stacks are in ${stacks}`);
  say($("finding-text"), parts.join(" "));
  const output = (told?.last_lines?.length ? told.last_lines : firstBad?.failure?.lines ?? []).slice(-20);
  const cause = told?.error_lines ?? firstBad?.failure?.errorLines ?? [];
  const lines = told?.error?.traceback || told?.error?.message || (cause.length ? [...cause, "…", ...output] : output).join("\n");
  $("finding-lines").hidden = !lines;
  $("finding-lines").textContent = String(lines || "").split("\n").map(clean).join("\n");
}

function showRounds(job) {
  let rounds = chosen.rounds, note = "";
  if (rounds.rounds.length === 0) {
    rounds = isOver(job) ? Rounds.fromReport(job.report, job) : Rounds.fromLive(job.live, job);
    if (rounds.rounds.length > 0) note = "Only the last round is known: the job's words name --events themselves, or it is older than this page.";
    else note = job.state === "waiting" ? "Nothing runs so far." : isOver(job) ? "No round was recorded." : "No round has started so far.";
  }
  if (isOver(job)) rounds.closeAll(job.ended_ms, true);
  chosen.parts?.addTo(rounds);
  const last = rounds.last, others = chosen.parts?.found.size ?? 0;
  if (last && last.worldSize > last.workers.size && others === 0)
    note = `${last.workers.size} of ${last.worldSize} ranks run on this node, ${clean(rounds.node)}; the pages of the other ${plural(last.nodes - 1, "node")} show theirs. ${note}`;
  else if (last && last.worldSize > last.workers.size)
    note = `${last.workers.size} of ${last.worldSize} ranks are shown, of ${plural(others + 1, "node")} of ${last.nodes}. ${note}`;
  for (const { node, error } of chosen.parts?.silent ?? []) note += ` ${clean(node)}: ${clean(error)}.`;
  chosen.shown = rounds;
  $("timeline-note").hidden = !note;
  say($("timeline-note"), note);
  for (const id of ["timeline-frame", "table"]) $(id).hidden = rounds.rounds.length === 0;
  document.querySelector(".legend").hidden = $("timeline-status").hidden = rounds.rounds.length === 0;
  const isLive = !isOver(job) && rounds.ended === null;
  if (rounds.rounds.length > 0) {
    timeline.show(rounds, isLive ? Date.now() : 0);
    $("timeline").setAttribute("aria-label", `Rounds per rank: ${plural(rounds.rounds.length, "round")}, ${plural(timeline.ranks.length, "rank")}`);
  }
  showFinding(job, rounds);
  showGoodput(job);
  if ($("table").open) showTables();
}

function showGoodput(job) {
  const told = isOver(job) ? job.report?.goodput : job.live?.goodput;
  $("goodput").hidden = !told;
  if (!told) return;
  const atMost = told.seconds_lost_work === null && told.seconds_restarting > 0 ? "at most " : "";
  say($("goodput-share"), `${atMost}${(told.share * 100).toFixed(told.share > 0.995 ? 0 : 1)} %`);
  const total = (isOver(job) ? job.report.seconds : told.seconds) || 1;
  const work = told.seconds_lost_work ?? 0;
  const parts = { use: Math.max(0, total - told.seconds_restarting - told.seconds_waiting - work), restarting: told.seconds_restarting, waiting: told.seconds_waiting, work };
  $("goodput-bar").replaceChildren(...Object.entries(parts).map(([part, seconds]) => {
    const piece = element("i", { "data-part": part });
    piece.style.flexGrow = seconds / total;
    return piece;
  }));
  say($("goodput-text"), `Of ${duration(total * 1000)}${isOver(job) ? "" : " so far"}: ${duration(parts.restarting * 1000)} lost in restarts, ${duration(parts.waiting * 1000)} before the first start` +
    (told.seconds_lost_work === null ? "; work that restarts lost isn't known: the workers report no checkpoints." : `, ${duration(work * 1000)} of work after the last checkpoints.`));
}

// ---- the tables ----

function roundRow(round, now) {
  const counts = { later: 0, stopped: 0 };
  for (const worker of round.workers.values()) {
    const kind = kindOf(round, worker);
    if (kind in counts) ++counts[kind];
  }
  const isOpen = [...round.workers.values()].some(worker => worker.end === null);
  const first = round.failure ? `rank ${round.failure.rank}: ${round.failure.cause}` : round.ordered ? round.ordered.reason : "–";
  const choose = element("button", { type: "button", text: `Round ${round.number}`, "aria-pressed": String(round === tableRound()) });
  choose.addEventListener("click", () => { chosen.round = round; chosen.page = 0; showTables(); });
  const cell = (text, attributes) => element("td", { text, ...attributes });
  const key = `${chosen.id} ${chosen.shown.rounds.indexOf(round)}`;
  return element("tr", { "data-key": key }, element("td", {}, choose), cell(moment(round.start)), cell(duration(round.waited)),
                 cell(isOpen ? `${duration(now - round.start)}, runs` : duration((round.end ?? round.start) - round.start)),
                 cell(round.workers.size, { class: "number" }), cell(first), cell(counts.later, { class: "number" }), cell(counts.stopped, { class: "number" }));
}

const tableRound = () => chosen.shown.rounds.includes(chosen.round) ? chosen.round : chosen.shown.last;

function rankRow(round, worker, live, now) {
  const kind = kindOf(round, worker), exit = kind === "first" ? round.failure.cause : exitWords(worker);
  const button = element("button", { type: "button", text: "Log", "aria-label": `Log of rank ${worker.rank}` });
  button.addEventListener("click", () => showRankLog(worker));
  const cell = (text, attributes) => element("td", { text, ...attributes });
  const memory = live?.rss_bytes ?? worker.memory;
  return element("tr", { "data-key": `${chosen.id} ${worker.rank} ${worker.local}` }, cell(worker.rank), cell(words[kind] + (exit ? `: ${exit}` : "")), cell(duration((worker.end ?? now) - worker.start)),
                 cell(worker.pid, { class: "number" }), cell(live?.step ?? "–", { class: "number" }),
                 cell(live?.steps_per_second?.toFixed(2) ?? "–", { class: "number" }), cell(memory ? bytes(memory) : "–", { class: "number" }),
                 element("td", {}, button));
}

/** Rows that are there already stay, with their buttons: a click or the focus isn't lost to a new look. */
function patchRows(body, rows) {
  const isSame = body.children.length === rows.length && rows.every((row, at) => row.dataset.key === body.children[at].dataset.key);
  if (!isSame) return body.replaceChildren(...rows);
  rows.forEach((row, at) => {
    for (const [index, cell] of [...row.cells].entries()) {
      const old = body.children[at].cells[index], button = old.querySelector("button");
      if (!button) say(old, cell.textContent);
      else if (button.hasAttribute("aria-pressed")) button.setAttribute("aria-pressed", cell.firstChild.getAttribute("aria-pressed"));
    }
  });
}

function showTables() {
  const round = chosen.shown && tableRound();
  if (!round) return;
  const now = Date.now(), ranks = [...round.workers.keys()].sort((a, b) => a - b);
  patchRows($("round-rows"), chosen.shown.rounds.slice(-200).reverse().map(one => roundRow(one, now)));
  chosen.page = Math.min(chosen.page, Math.max(0, Math.ceil(ranks.length / ranksAPage) - 1));
  const from = chosen.page * ranksAPage, part = ranks.slice(from, from + ranksAPage);
  const live = new Map(round === chosen.shown.last ? [...(chosen.job.live?.workers ?? []), ...(chosen.parts?.live ?? [])].map(worker => [worker.rank, worker]) : []);
  patchRows($("rank-rows"), part.map(rank => rankRow(round, round.workers.get(rank), live.get(rank), now)));
  say($("ranks-title"), `Ranks of round ${round.number}`);
  say($("ranks-place"), part.length ? `${part[0]} to ${part.at(-1)} (${ranks.length} in all)` : "none");
  $("ranks-back").disabled = from === 0;
  $("ranks-on").disabled = from + ranksAPage >= ranks.length;
}

// ---- the log ----

function openLog() {
  const text = $("log-rank").value.trim();
  const rank = /^\d+$/.test(text) ? Number(text) : null;
  const part = chosen.logPart;
  say($("log-node"), part ? `on ${clean(part.node)}` : "");
  log.open(part?.at ?? jobPath(chosen.id), $("log-stream").value, rank, chosen.job && isOver(part?.job ?? chosen.job));
}

function showRankLog(worker) {
  chosen.logPart = worker.part ?? null;
  $("log-rank").value = worker.local;
  openLog();
  $("log-title").scrollIntoView({ block: "nearest" });
}

// ---- events and the connection ----

const eventWords = { submitted: "submitted", started: "started", stopping: "is being stopped", ended: "ended", restarted: "restarted", removed: "removed", drained: "Node drained", undrained: "Node takes jobs again" };

function eventRow(event) {
  const name = event.job ? element("a", { href: `#/jobs/${event.job}`, text: event.job }) : "";
  const kind = element("span", { class: "kind", text: ` ${eventWords[event.kind] ?? event.kind}` });
  const row = element("li", {}, element("time", { datetime: new Date(event.time_ms).toISOString(), title: moment(event.time_ms), text: clock(event.time_ms) }),
                      element("span", {}, name, kind));
  if (event.text && event.text !== event.kind) row.append(element("span", { class: "text", text: event.text }));
  return row;
}

function addEvents(events, isNew) {
  const rows = events.slice(-mostEvents).reverse().map(eventRow);
  if (isNew) for (const row of rows) row.classList.add("fresh");
  const list = $("event-rows");
  list.prepend(...rows);
  while (list.children.length > mostEvents) list.lastChild.remove();
  $("events-empty").hidden = list.children.length > 0;
}

let refreshing = null, spoken = [];

/** Many events at once are one look at the lists, and one sentence. */
function refreshSoon() {
  refreshing ??= setTimeout(async () => {
    const began = Date.now();
    if (spoken.length > 0) say($("said"), spoken.length > 3 ? `${spoken.length} events` : spoken.join(". "));
    spoken = [];
    try {
      await Promise.all([readJobs(), showNode()]);
    } catch { /* the feed sees a lost connection, too */ }
    await pause(Math.max(0, listsEvery - (Date.now() - began)));
    refreshing = null;
    if (spoken.length > 0) refreshSoon();
  }, 60);
}

const states = {
  connecting: () => ["Connecting…", ""],
  live: () => ["Live", ""],
  lost: ({ why, wait }) => ["Not connected", "Connection lost.", `${why ? `${clean(why)}. ` : "acc-agent doesn't answer: it may be restarting, or the ssh tunnel ended. "}What you see may be old. Trying again in ${Math.round(wait / 1000)} s.`],
  expired: why => ["No session", "No session.", `${clean(why)}. Run acc-ctl token --browser on the node and open the link that it prints.`],
};

function showState(name, detail) {
  const [text, title, more] = states[name](detail);
  $("connection").dataset.state = name;
  say($("connection-text"), text);
  if (name === "connecting" && !$("banner").hidden) return;
  $("banner").hidden = !title;
  say($("banner-title"), title);
  say($("banner-text"), more ?? "");
}

const feed = new EventFeed({
  past: events => addEvents(events, false),
  state: showState,
  connected() {
    refreshSoon();
    chosen.wake?.();
    showNodes().catch(() => {});
  },
  event(event) {
    addEvents([event], true);
    spoken.push(`${event.job ? `${event.job} ` : ""}${eventWords[event.kind] ?? event.kind}`);
    refreshSoon();
    if (event.job === chosen.id) chosen.wake?.();
  },
});
feed.retryIfIdle = () => { if (!feed.runs && !document.hidden && $("connection").dataset.state !== "expired") feed.start(); };

// ---- start ----

function route() {
  const found = /^#\/jobs\/([a-z0-9][a-z0-9._-]*)$/.exec(location.hash);
  const was = chosen.id;
  open(found ? found[1] : null);
  if (was && !found) (rowOf.get(was)?.querySelector("a") ?? $("main")).focus({ preventScroll: true });
}

timeline = new Timeline($("timeline"), $("tip"), {
  choose(rank, round) {
    const worker = round?.workers.get(rank);
    if (worker) showRankLog(worker);
  },
  tell: text => say($("timeline-status"), text),
});
log = new LogTail($("log"), { tell: text => say($("log-status"), text) });

$("filter").addEventListener("input", showJobs);
$("retry").addEventListener("click", () => { showState("connecting"); feed.retry(); });
$("skip").addEventListener("click", event => { event.preventDefault(); $("main").focus(); });
$("zoom-in").addEventListener("click", () => timeline.zoom(0.6));
$("zoom-out").addEventListener("click", () => timeline.zoom(1 / 0.6));
$("zoom-all").addEventListener("click", () => timeline.zoomAll());
$("table").addEventListener("toggle", () => { if ($("table").open) showTables(); });
$("ranks-back").addEventListener("click", () => { --chosen.page; showTables(); });
$("ranks-on").addEventListener("click", () => { ++chosen.page; showTables(); });
$("log-stream").addEventListener("change", openLog);
// A number that was typed in is a local rank of this node.
$("log-rank").addEventListener("change", () => { chosen.logPart = null; openLog(); });
$("log-follow").addEventListener("change", () => { log.follows = $("log-follow").checked; openLog(); });
addEventListener("hashchange", route);
setInterval(() => { if (!document.hidden) showJobs(); }, 10_000);
// No event of this node says that another one has ended, or was drained.
setInterval(() => {
  if (!document.hidden && $("connection").dataset.state === "live") showNodes().catch(() => {});
}, 30_000);

route();
readJobs().then(() => showNode()).catch(() => {});
feed.start();
