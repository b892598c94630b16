// The end of one log, and what is added to it.
import { ask, pause, Refused } from "./api.js";
import { logLine } from "./words.js";

const tailBytes = 64 * 1024;
const mostLines = 2000;
const longestPartial = 64 * 1024;

export class LogTail {
  /** @param on  {tell(text)} */
  constructor(place, on) {
    this.place = place;
    this.on = on;
    this.runs = null;
    this.follows = true;
    // Who scrolls up reads: nothing moves then, until the end is reached again.
    place.addEventListener("scroll", () => { this.isAtEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 30; });
  }

  close() {
    this.runs?.abort();
    this.runs = null;
  }

  /** @param at  path of the job
   *  @param rank  a local rank; null: acc-launch's own output */
  open(at, stream, rank, isOver) {
    this.close();
    this.lines = [];
    this.partial = "";
    this.isAtEnd = true;
    this.wasCut = false;
    this.show();
    this.runs = new AbortController();
    const path = `${at}/logs?format=raw&stream=${stream}${rank === null ? "" : `&rank=${rank}`}`;
    this.read(path, this.runs.signal, isOver);
  }

  async read(path, signal, isOver) {
    let at = null, wait = 500;
    const decoder = new TextDecoder();
    while (!signal.aborted) {
      try {
        if (at === null) {
          const end = await ask(`${path}&from=end`, { signal });
          const size = Number(end.headers.get("X-Acc-From"));
          await end.body?.cancel();
          at = Math.max(0, size - tailBytes);
          this.wasCut = at > 0;
          this.skips = at > 0;  // the first line lacks its beginning
        }
        const follows = this.follows && !isOver ? "&follow=1" : "";
        const reply = await ask(`${path}&from=${at}${follows}`, { signal });
        let told = this.tellWords();
        const reader = reply.body.getReader();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          at += value.length;
          wait = 500;
          this.add(decoder.decode(value, { stream: true }));
          if (told !== this.words()) told = this.tellWords();
        }
        this.isWhole = true;
        this.on.tell(this.words() + (follows ? " The job has ended." : ""));
        return;
      } catch (wrong) {
        if (signal.aborted) return;
        if (wrong instanceof Refused && wrong.status === 416) {
          at = null;  // it was cut off: another start, a rotation
        } else if (wrong instanceof Refused) {
          return this.on.tell(wrong.message);
        }
        this.on.tell("The connection to the log was lost; trying again.");
        await pause(wait = Math.min(wait * 2, 15000), signal);
      }
    }
  }

  tellWords() {
    const words = this.words();
    this.on.tell(words);
    return words;
  }

  words() {
    if (this.lines.length === 0 && !this.partial) return "Nothing was written so far.";
    return this.wasCut ? "Only the end is shown; acc-ctl logs has all." : "";
  }

  add(text) {
    const lines = (this.partial + text).split("\n");
    this.partial = lines.pop();
    if (this.skips && lines.length > 0) {
      lines.shift();
      this.skips = false;
    }
    if (this.partial.length > longestPartial) {
      lines.push(this.partial);
      this.partial = "";
    }
    for (const line of lines.slice(-mostLines)) this.lines.push(logLine(line));
    if (this.lines.length > mostLines) {
      this.lines.splice(0, this.lines.length - mostLines);
      this.wasCut = true;
    }
    this.show();
  }

  /** Once a frame at most, whatever a job writes. */
  show() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      const partial = this.partial ? logLine(this.partial) : "";
      this.place.textContent = this.lines.join("\n") + (partial ? (this.lines.length ? "\n" : "") + partial : "");
      if (this.isAtEnd) this.place.scrollTop = this.place.scrollHeight;
    });
  }
}
