/** The part of the time that is looked at, and the pen that draws it. */

const CLOSEST = 0.05; // seconds across the whole width

class View {
  constructor(length) {
    this.length = length;
    this.width = 1;
    this.left = 0; // pixels of the names
    this.from = 0;
    this.until = length;
  }

  get perSecond() {
    return (this.width - this.left) / (this.until - this.from);
  }

  x(at) {
    return this.left + (at - this.from) * this.perSecond;
  }

  at(x) {
    return this.from + (x - this.left) / this.perSecond;
  }

  show(from, until) {
    const margin = this.length * 0.025;
    const span = Math.min(Math.max(until - from, CLOSEST), this.length + 2 * margin);
    const begin = Math.max(-margin, Math.min((from + until - span) / 2, this.length + margin - span));
    this.from = begin;
    this.until = begin + span;
  }

  all() {
    this.show(-this.length, 2 * this.length);
  }

  /** Zoom by a factor round a time that stays where it is. */
  zoom(factor, around = (this.from + this.until) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.until - around) * factor);
  }

  pan(seconds) {
    this.show(this.from + seconds, this.until + seconds);
  }

  /** Let a time be seen, with room beside it. */
  reveal(at) {
    const span = this.until - this.from;
    if (at < this.from + span * 0.05 || at > this.until - span * 0.05) this.show(at - span / 2, at + span / 2);
  }
}

/** The colours and fonts of the style sheet. */
function inksOf(element) {
  const style = getComputedStyle(element);
  const names = ["paper", "page", "ink", "soft", "rule", "edge", "you", "answer", "rubric"];
  const colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...colours, sans: style.getPropertyValue("--sans"), serif: style.getPropertyValue("--serif") };
}

class Pen {
  constructor(canvas, ink) {
    const scale = devicePixelRatio || 1;
    this.width = canvas.clientWidth;
    this.height = canvas.clientHeight;
    canvas.width = Math.round(this.width * scale);
    canvas.height = Math.round(this.height * scale);
    this.context = canvas.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.ink = ink;
  }

  rect(x, y, width, height, colour, alpha = 1) {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  line(points, colour, { width = 1, dash = [] } = {}) {
    const { context } = this;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.beginPath();
    points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
    context.setLineDash([]);
  }

  /** Words, as far as there is room; what is left over is marked. */
  text(words, x, y, { font, colour, room = Infinity, align = "left" }) {
    const { context } = this;
    if (!words || room < 22) return;
    context.font = font;
    context.fillStyle = colour;
    context.textAlign = align;
    let shown = words;
    if (room < Infinity && context.measureText(shown).width > room) {
      let low = 1;
      let high = shown.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (context.measureText(`${words.slice(0, middle)}…`).width <= room) low = middle;
        else high = middle - 1;
      }
      shown = `${words.slice(0, low)}…`;
    }
    context.fillText(shown, x, y);
    context.textAlign = "left";
  }

  measure(words, font) {
    this.context.font = font;
    return this.context.measureText(words).width;
  }
}

function clock(at, digits = 0) {
  const seconds = Math.max(0, at);
  const whole = Math.floor(seconds / 60);
  const hours = Math.floor(whole / 60);
  const rest = (seconds - whole * 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  return hours ? `${hours}:${String(whole % 60).padStart(2, "0")}:${rest}` : `${whole}:${rest}`;
}

const long = (milliseconds) => `${(milliseconds / 1000).toFixed(2)} s`;
const ms = (seconds) => `${Math.round(seconds * 1000).toLocaleString("en")} ms`;
