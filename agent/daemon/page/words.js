// Text of users, and figures, as the page shows them. All of it goes to textContent.

const escapes = /\x1b\[[0-?]*[ -\/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -\/]*[0-~]|\x9b[0-?]*[ -\/]*[@-~]/g;
const controls = /[\x00-\x08\x0a-\x1f\x7f-\x9f]/g;
// They turn the direction of text, or end a line: what is shown would not be what was written.
const turns = /[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

function visible(c) {
  const code = c.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : "\ufffd";
}

/** One line without escape sequences; other control characters as their symbols. */
export function clean(text) {
  return String(text ?? "").replace(escapes, "").replace(controls, visible)
    .replace(turns, c => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

const longest = 4000;

/** A line of a log: of a progress bar what it showed last. */
export function logLine(text) {
  if (text.endsWith("\r")) text = text.slice(0, -1);
  const shown = clean(text.slice(text.lastIndexOf("\r") + 1));
  return shown.length > longest ? shown.slice(0, longest) + " …" : shown;
}

export function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 0.0005) return "0 s";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${Number(s.toFixed(1))} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  const m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  const pair = (n, unit, rest, small) => rest ? `${n} ${unit} ${rest} ${small}` : `${n} ${unit}`;
  if (m < 60) return pair(m, "min", Math.floor(s % 60), "s");
  return h < 48 ? pair(h, "h", m % 60, "min") : pair(d, "d", h % 24, "h");
}

/** "3 s ago", in whole seconds. */
export function ago(ms) {
  return ms < 1000 ? "just now" : `${duration(Math.floor(ms / 1000) * 1000)} ago`;
}

const two = n => String(n).padStart(2, "0");

export function clock(ms, withMillis = false) {
  const at = new Date(ms);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withMillis ? `${time}.${String(at.getMilliseconds()).padStart(3, "0")}` : time;
}

export function moment(ms) {
  const at = new Date(ms);
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return new Date().toDateString() === at.toDateString() ? clock(ms) : `${date} ${clock(ms)}`;
}

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; n >= 1024 && at < units.length - 1; ++at) n /= 1024;
  return `${at === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[at]}`;
}

export const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/** An element with text and children; attributes by name. */
export function element(tag, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = clean(text);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Only what differs is touched: selections and screen readers keep their place. */
export function say(place, text) {
  const shown = clean(text);
  if (place.textContent !== shown) place.textContent = shown;
}
