// Rounds per rank on a canvas: one drawing, whatever the number of ranks.
import { kinds, kindOf, exitWords, words } from "./rounds.js";
import { clock, duration } from "./words.js";

const left = 52, right = 10, top = 20, bottom = 22;
const rowHeight = 20, smallest = 74, tallest = 380;
const mostTicks = 200;
const shortestSpan = 50;  // ms that fill the width

export class Timeline {
  /** @param on  {choose(rank, round), tell(text)} */
  constructor(canvas, tip, on) {
    this.canvas = canvas;
    this.tip = tip;
    this.on = on;
    this.pen = canvas.getContext("2d", { alpha: false });
    this.data = null;
    this.ranks = [];
    this.view = null;      // {from, to} in ms, {first, count} of ranks; null: all
    this.chosen = null;    // index of a rank
    this.asked = false;
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
      matchMedia(query).addEventListener("change", () => { this.colors = null; this.draw(); });
    this.listen();
  }

  /** @param now  up to when live bars reach; 0: all have ended */
  show(data, now) {
    if (data !== this.data) {
      this.view = null;
      this.chosen = null;
      this.pen.canvas.dataset.drawn = "";
    }
    this.data = data;
    this.now = now;
    const seen = new Set();
    for (const round of data.rounds) for (const rank of round.workers.keys()) seen.add(rank);
    if (seen.size !== this.ranks.length || this.ranks.some(rank => !seen.has(rank)))
      this.ranks = [...seen].sort((a, b) => a - b);
    this.draw();
  }

  get span() {
    const from = this.data.began ?? this.data.rounds[0]?.start ?? 0;
    let to = this.now || this.data.ended || from;
    for (const round of this.data.rounds) to = Math.max(to, round.end ?? round.start);
    return { from, to: Math.max(to, from + shortestSpan) };
  }

  get shown() { return { first: 0, count: this.ranks.length, ...this.span, ...this.view }; }

  /** @param factor  below 1: closer */
  zoom(factor, at = 0.5) {
    if (!this.data) return;
    const all = this.span, { from, to, first, count } = this.shown;
    const pivot = from + (to - from) * at;
    const width = Math.max(shortestSpan, (to - from) * factor);
    if (width >= all.to - all.from) return this.zoomAll();
    this.move({ from: pivot - width * at, to: pivot + width * (1 - at), first, count });
  }

  zoomAll() {
    this.view = null;
    this.draw();
  }

  move(view) {
    const all = this.span, width = view.to - view.from;
    view.from = Math.min(Math.max(view.from, all.from), all.to - width);
    view.to = view.from + width;
    view.first = Math.min(Math.max(view.first, 0), Math.max(0, this.ranks.length - view.count));
    this.view = view;
    this.draw();
  }

  draw() {
    if (this.asked || !this.data) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.paint(); });
  }

  palette() {
    if (this.colors) return this.colors;
    const style = getComputedStyle(document.documentElement);
    const of = name => style.getPropertyValue(name).trim();
    this.colors = Object.fromEntries(kinds.map(kind => [kind, of(`--kind-${kind}`)]));
    for (const name of ["surface", "text", "dim", "line", "accent"]) this.colors[name] = of(`--${name}`);
    this.hatches = { waiting: this.hatch(this.colors.waiting, 6), stopped: this.hatch(this.colors.surface, 5) };
    return this.colors;
  }

  // Colours alone must not carry the meaning: waiting and stopped are hatched, too.
  hatch(color, size) {
    const tile = new OffscreenCanvas(size, size), pen = tile.getContext("2d");
    pen.strokeStyle = color;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift, size);
      pen.lineTo(shift + size, 0);
    }
    pen.stroke();
    return this.pen.createPattern(tile, "repeat");
  }

  fit() {
    const width = Math.max(200, this.canvas.parentElement.clientWidth);
    const height = Math.min(tallest, Math.max(smallest, this.ranks.length * rowHeight + top + bottom));
    const density = devicePixelRatio || 1;
    const pixels = [Math.round(width * density), Math.round(height * density)];
    if (this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1]) {
      [this.canvas.width, this.canvas.height] = pixels;
      this.canvas.style.height = `${height}px`;
    }
    this.pen.setTransform(density, 0, 0, density, 0, 0);
    this.size = { width, height, plotWidth: width - left - right, plotHeight: height - top - bottom };
  }

  paint() {
    const began = performance.now();
    const color = this.palette(), pen = this.pen;
    this.fit();
    const { width, height, plotWidth, plotHeight } = this.size, view = this.shown;
    const scale = plotWidth / (view.to - view.from), row = plotHeight / Math.max(1, view.count);
    const x = time => left + (time - view.from) * scale;
    pen.fillStyle = color.surface;
    pen.fillRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, plotWidth, height);
    pen.clip();
    this.paintWaits(x, plotHeight);
    const bars = this.bars(view, x, row);
    for (const kind of ["running", "done", "unknown", "stopped", "later", "first"]) {
      pen.fillStyle = color[kind];
      for (const bar of bars[kind]) pen.fillRect(...bar);
      if (kind !== "stopped" || row < 6) continue;
      pen.fillStyle = this.hatches.stopped;
      for (const bar of bars[kind]) pen.fillRect(...bar);
    }
    this.paintFirsts(view, x, row);
    this.paintRounds(x, scale, plotHeight);
    pen.restore();
    this.paintAxes(view, row, x);
    this.canvas.dataset.drawn = (performance.now() - began).toFixed(2);
  }

  /** Rectangles by kind: one fill style each. */
  bars(view, x, row) {
    const bars = Object.fromEntries(kinds.map(kind => [kind, []]));
    const gap = row >= 6 ? Math.min(3, row * 0.18) : 0;
    const edge = left + this.size.plotWidth;
    const end = Math.min(this.ranks.length, view.first + view.count);
    for (const round of this.data.rounds) {
      if (x(round.start) > edge || (round.end !== null && !this.isOpen(round) && x(round.end) < left)) continue;
      for (let index = Math.floor(view.first); index < end; ++index) {
        const worker = round.workers.get(this.ranks[index]);
        if (!worker) continue;
        const from = Math.max(left, x(worker.start));
        const to = Math.min(edge, x(worker.end ?? this.now));
        if (to < left || from > edge) continue;
        const kind = kindOf(round, worker);
        const y = top + (index - view.first) * row + gap / 2;
        const high = Math.max(kind === "first" ? 2 : 1, row - gap);
        bars[kind].push([from, y, Math.max(1.5, to - from), high]);
      }
    }
    return bars;
  }

  isOpen(round) { return round === this.data.last && this.now > 0; }

  paintWaits(x, plotHeight) {
    const pen = this.pen;
    pen.fillStyle = this.hatches.waiting;
    const waits = this.data.rounds.map(round => [round.waitedFrom, round.start]);
    if (this.data.freeFrom !== null && this.now > 0) waits.push([this.data.freeFrom, this.now]);
    for (const [from, to] of waits) if (to > from) pen.fillRect(x(from), top, Math.max(1, x(to) - x(from)), plotHeight);
  }

  // The mark stays as large as a finger, however many ranks there are.
  paintFirsts(view, x, row) {
    const pen = this.pen, color = this.palette();
    for (const round of this.data.rounds) {
      const index = this.ranks.indexOf(round.failure?.rank), worker = round.workers.get(round.failure?.rank);
      if (index < 0 || !worker) continue;
      const at = x(worker.end ?? this.now), y = top + (index - view.first + 0.5) * row;
      if (y < top || y > top + this.size.plotHeight) continue;
      pen.beginPath();
      pen.arc(at, y, 6, 0, 2 * Math.PI);
      pen.fillStyle = color.first;
      pen.fill();
      pen.lineWidth = 1.5;
      pen.strokeStyle = color.surface;
      pen.stroke();
      pen.beginPath();
      for (const s of [-1, 1]) {
        pen.moveTo(at - 2.4, y - 2.4 * s);
        pen.lineTo(at + 2.4, y + 2.4 * s);
      }
      pen.stroke();
    }
  }

  paintRounds(x, scale, plotHeight) {
    const pen = this.pen, color = this.palette();
    let free = -Infinity;
    for (const [index, round] of this.data.rounds.entries()) {
      const at = x(round.start);
      pen.fillStyle = color.line;
      pen.fillRect(at - 0.5, top - 4, 1, plotHeight + 4);
      const text = `round ${round.number}`;
      const next = this.data.rounds[index + 1];
      const place = Math.max(left, at) + 3, wide = pen.measureText(text).width;
      if (place < free || (next && x(next.start) - place < wide)) continue;
      pen.fillStyle = color.dim;
      pen.fillText(text, place, top / 2);
      free = place + wide + 8;
    }
  }

  paintAxes(view, row, x) {
    const pen = this.pen, color = this.palette(), { width, height, plotHeight } = this.size;
    pen.strokeStyle = color.line;
    pen.lineWidth = 1;
    pen.strokeRect(left - 0.5, top - 0.5, width - left - right + 1, plotHeight + 1);
    pen.fillStyle = color.dim;
    pen.textAlign = "right";
    const step = Math.max(1, ...[1, 2, 4, 8, 16, 32, 64, 128, 256, 512].filter(n => n * row < 14).map(n => n * 2));
    for (let index = Math.ceil(view.first); index < Math.min(this.ranks.length, view.first + view.count); ++index) {
      if (this.ranks[index] % step !== 0 && this.ranks.length > 1) continue;
      const y = top + (index - view.first + 0.5) * row;
      pen.fillText(step === 1 && this.ranks.length <= 8 ? `rank ${this.ranks[index]}` : String(this.ranks[index]), left - 6, y);
    }
    if (this.chosen !== null) {
      const y = top + (this.chosen - view.first) * row;
      pen.strokeStyle = color.accent;
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, Math.max(top + 1, y), width - left - right - 2, Math.max(3, row));
    }
    this.paintTimes(view, x);
    pen.textAlign = "left";
  }

  paintTimes(view, x) {
    const pen = this.pen, { height, width } = this.size, began = this.span.from;
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 864e6];
    const wanted = (view.to - view.from) / Math.max(2, (width - left) / 95);
    const step = steps.find(one => one >= wanted) ?? Math.ceil(wanted / 864e6) * 864e6;
    const first = began + Math.ceil((view.from - began) / step) * step;
    pen.fillStyle = this.palette().dim;
    for (let i = 0, at = first; at <= view.to && i < mostTicks; ++i, at = first + i * step) {
      const place = x(at);
      pen.fillRect(place - 0.5, height - bottom, 1, 4);
      pen.textAlign = place + 40 > width ? "right" : "center";
      if (place >= left) pen.fillText(`${at === began ? "" : "+"}${duration(at - began)}`, Math.max(left + 8, place), height - bottom / 2 + 3);
    }
  }

  // ---- reading ----

  at(event) {
    const box = this.canvas.getBoundingClientRect(), view = this.shown;
    const place = (event.clientX - box.left - left) / this.size.plotWidth;
    const line = (event.clientY - box.top - top) / this.size.plotHeight;
    const index = Math.floor(view.first + line * view.count);
    const isInside = place >= 0 && place <= 1 && line >= 0 && line < 1 && index < this.ranks.length;
    return isInside ? { index, place, time: view.from + place * (view.to - view.from) } : null;
  }

  roundAt(time) {
    return this.data.rounds.findLast(round => round.start <= time) ?? this.data.rounds[0];
  }

  /** "Rank 3: failed first, exit code 7, ran 2.1 s in round 0" */
  sentence(index, round) {
    const rank = this.ranks[index], worker = round?.workers.get(rank);
    if (!worker) return `Rank ${rank}: had no part in round ${round?.number ?? "?"}`;
    const kind = kindOf(round, worker);
    const cause = kind === "first" ? round.failure.cause : exitWords(worker);
    const time = worker.end === null ? `for ${duration(this.now - worker.start)}` : `after ${duration(worker.end - worker.start)}, at ${clock(worker.end, true)}`;
    return `Rank ${rank}, round ${round.number}: ${words[kind]}${cause ? ` (${cause})` : ""} ${time}`;
  }

  choose(index, round) {
    this.chosen = Math.min(Math.max(index, 0), this.ranks.length - 1);
    const view = this.shown;
    if (this.chosen < view.first || this.chosen >= view.first + view.count)
      this.move({ ...view, first: this.chosen - view.count / 2 });
    this.on.tell(this.sentence(this.chosen, round));
    this.draw();
  }

  // ---- input ----

  listen() {
    const canvas = this.canvas;
    let drag = null;
    canvas.addEventListener("pointermove", event => {
      if (!this.data || !this.size) return;
      if (drag && this.view) {
        const { from, to, first, count } = drag.view;
        const ms = (drag.x - event.clientX) / this.size.plotWidth * (to - from);
        const rows = (drag.y - event.clientY) / this.size.plotHeight * count;
        drag.moved ||= Math.abs(drag.x - event.clientX) + Math.abs(drag.y - event.clientY) > 4;
        this.move({ from: from + ms, to: to + ms, first: first + rows, count });
      }
      this.hover(event);
    });
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("pointerdown", event => { drag = { x: event.clientX, y: event.clientY, view: this.shown, moved: false }; });
    addEventListener("pointerup", () => { setTimeout(() => { drag = null; }); });
    canvas.addEventListener("click", event => {
      const place = this.data && this.at(event);
      if (!place || drag?.moved) return;
      const round = this.roundAt(place.time);
      this.choose(place.index, round);
      this.on.choose(this.ranks[place.index], round);
    });
    canvas.addEventListener("wheel", event => {
      if (!this.data || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.8 : 1.25, this.at(event)?.place ?? 0.5);
    }, { passive: false });
    canvas.addEventListener("dblclick", event => this.data && this.zoom(0.5, this.at(event)?.place ?? 0.5));
    canvas.addEventListener("keydown", event => this.key(event));
  }

  hover(event) {
    const place = this.at(event);
    this.tip.hidden = !place;
    if (!place) return;
    this.tip.textContent = this.sentence(place.index, this.roundAt(place.time));
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    this.tip.style.left = `${Math.max(0, Math.min(x + 12, box.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${y + 16}px`;
  }

  key(event) {
    if (!this.data || this.ranks.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const view = this.shown, width = view.to - view.from;
    const shift = n => this.move({ ...view, from: view.from + n * width, to: view.to + n * width });
    const round = this.roundAt(view.to), jump = n => this.choose((this.chosen ?? -1) + n, round);
    const act = {
      ArrowUp: () => this.choose(this.chosen === null ? this.ranks.length - 1 : this.chosen - 1, round),
      ArrowDown: () => jump(1), PageUp: () => jump(-16), PageDown: () => jump(16),
      Home: () => this.choose(0, round), End: () => this.choose(this.ranks.length - 1, round),
      ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), "0": () => this.zoomAll(),
      Enter: () => this.chosen !== null && this.on.choose(this.ranks[this.chosen], round),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
