/** Draws a story as a score: two voices on staves, one answering the other, and below them what it cost. */

import { STEP } from "./story.js";

const COLUMN = 3; // pixels from one bar of a waveform to the next
const BAR = 2;
const STAGES = 3; // lines of stages that have room
const LABELS = 104; // pixels at the left, of which the last third fades out behind the names of the voices

/** The colours and fonts of the page's style sheet. */
export function inks(element) {
  const style = getComputedStyle(element);
  const names = ["paper", "ink", "soft", "rule", "you", "answer", "rubric"];
  const colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...colours, sans: style.getPropertyValue("--sans"), serif: style.getPropertyValue("--serif") };
}

/** Where the lanes lie, from the top: captions, your voice, its activity, the answer, stages, time. */
function lanes(height) {
  const captions = 26;
  const time = 20;
  const stages = 28;
  const voice = (height - captions - time - stages - 20) / 2;
  const you = captions + voice / 2;
  const activity = captions + voice + 3;
  const answer = activity + 12 + voice / 2;
  return {
    captions,
    half: voice / 2 - 3,
    you,
    activity,
    answer,
    stages: answer + voice / 2 + 4,
    time: height - time,
  };
}

export class Score {
  constructor(context, ink, view) {
    Object.assign(this, { context, ink, view, lane: lanes(view.height) });
  }

  draw(story, chosen) {
    const { context, view } = this;
    context.clearRect(0, 0, view.width, view.height);
    this.#staff(this.lane.you);
    this.#staff(this.lane.answer);
    if (story === null) {
      this.#prelude();
    } else {
      this.#gaps(story);
      this.#you(story);
      this.#turns(story);
      this.#answers(story);
      this.#holds(story);
      this.#marks(story);
      this.#present();
      if (chosen) this.#chosen(chosen);
    }
    this.#names();
    if (story !== null) this.#time(story);
  }

  // -- voices --------------------------------------------------------------------------------------------------

  /** Four lines, as chant has them. */
  #staff(middle) {
    const { context, ink, view, lane } = this;
    context.fillStyle = ink.rule;
    for (const line of [-1.5, -0.5, 0.5, 1.5]) {
      context.fillRect(0, Math.round(middle + (line * lane.half) / 2), view.width, 1);
    }
  }

  /** One bar of a waveform. Loudness is felt, not measured: the square root. */
  #bar(x, middle, peak) {
    const height = Math.max(1, Math.sqrt(Math.min(1, peak)) * this.lane.half);
    this.context.fillRect(x, middle - height, BAR, 2 * height);
  }

  /** The column in which a time lies, counted from the story's beginning so that bars do not shimmer. */
  #columnX(story, column) {
    return Math.round(this.view.x(story.start + (column * COLUMN) / this.view.perSecond));
  }

  #column(story, at) {
    return Math.floor(((at - story.start) * this.view.perSecond) / COLUMN);
  }

  #you(story) {
    const { context, ink, view, lane } = this;
    const columns = new Map();
    for (let i = firstAfter(story.mic, view.from); i < story.mic.length; i += 1) {
      const { at, peak, sent } = story.mic[i];
      const column = this.#column(story, at);
      const known = columns.get(column);
      if (!known) columns.set(column, { peak, sent });
      else known.peak = Math.max(known.peak, peak);
    }
    context.fillStyle = ink.you;
    for (const [column, { peak, sent }] of columns) {
      context.globalAlpha = sent ? 1 : 0.25;
      this.#bar(this.#columnX(story, column), lane.you, peak);
    }
    context.globalAlpha = 1;
    for (const { from, to } of story.speech) {
      const [x, until] = [view.x(from), view.x(to ?? view.present)];
      if (until < 0 || x > view.width) continue;
      context.beginPath();
      context.roundRect(x, lane.activity, Math.max(4, until - x), 4, 2);
      context.fill();
    }
  }

  #answers(story) {
    const answers = [...story.answers.values()];
    answers.forEach((answer, i) => {
      const last = Math.max(answer.created, answer.spans.at(-1)?.until ?? 0);
      const lasts = (answer.receivedMs - answer.heardMs) / 1000 + 8; // its rest, and what is written below it
      if (answer.created > this.view.until || last + lasts < this.view.from) return;
      const next = answers.slice(i + 1).find((one) => one.peaks.length);
      const limit = next ? (next.firstSound ?? next.created) : Infinity;
      this.#heard(story, answer);
      this.#unheard(story, answer, limit);
      this.#stages(answer, next ? next.created : Infinity);
    });
  }

  #heard(story, answer) {
    this.context.fillStyle = this.ink.answer;
    for (const span of answer.spans) this.#sound(story, answer, span.at, span.until, span.fromMs);
  }

  /** What was made and not heard: it waits behind the present, or it was cut off and never will be. */
  #unheard(story, answer, limit) {
    const restMs = answer.receivedMs - answer.heardMs;
    if (restMs < 1) return;
    const last = answer.spans.at(-1)?.until ?? answer.created;
    const waits = !answer.cut && !answer.suppressed && (answer.done === null || answer.spans.length > 0);
    const from = answer.cut?.at ?? (waits ? Math.max(last, this.view.present) : last);
    const until = Math.min(from + restMs / 1000, limit);
    this.context.fillStyle = this.ink.answer;
    this.context.globalAlpha = 0.24;
    this.#sound(story, answer, from, until, answer.heardMs);
    this.context.globalAlpha = 1;
  }

  #sound(story, answer, from, until, ms) {
    const { view, lane } = this;
    const seconds = COLUMN / view.perSecond;
    const first = this.#column(story, Math.max(from, view.from - seconds));
    const last = this.#column(story, Math.min(until, view.until));
    for (let column = first; column < last; column += 1) {
      const at = story.start + column * seconds;
      const place = Math.floor((ms / 1000 + at - from) / STEP);
      let peak = 0;
      for (let i = Math.max(0, place); i < place + seconds / STEP; i += 1)
        peak = Math.max(peak, answer.peaks[i] ?? 0);
      this.#bar(this.#columnX(story, column), lane.answer, peak);
    }
  }

  // -- what is written beside them -----------------------------------------------------------------------------

  #turns(story) {
    const { context, ink, view, lane } = this;
    story.turns.forEach((turn, i) => {
      const x = view.x(turn.from);
      const until = view.x(turn.to ?? view.present);
      const room = Math.min(story.turns[i + 1] ? view.x(story.turns[i + 1].from) - 10 : view.width, x + 420) - x;
      if (x > view.width || x + Math.max(room, until - x) < 0) return;
      context.strokeStyle = ink.you;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x + 0.5, lane.captions + 1);
      context.lineTo(x + 0.5, lane.captions - 4.5);
      context.lineTo(until - 0.5, lane.captions - 4.5);
      context.lineTo(until - 0.5, lane.captions + 1);
      context.stroke();
      this.#text(turn.text, x, 15, { font: `italic 14px ${ink.serif}`, colour: ink.ink, room });
    });
  }

  /** Each stage from when it began to its end; what came before its first output is darker. */
  #stages(answer, limit) {
    const { context, ink, view, lane } = this;
    if (!answer.costs.length) return;
    const x = view.x(answer.created);
    const room = Math.min(view.x(limit) - 10, view.width) - x;
    const pixels = (ms = 0) => (ms / 1000) * view.perSecond;
    context.fillStyle = ink.answer;
    answer.costs.slice(0, STAGES).forEach(({ queue_ms, first_output_ms, total_ms }, i) => {
      const y = lane.stages + 3 * i;
      context.globalAlpha = 0.35;
      context.fillRect(x + pixels(queue_ms), y, Math.max(2, pixels(total_ms)), 2);
      context.globalAlpha = 1;
      context.fillRect(x + pixels(queue_ms), y, Math.max(2, pixels(first_output_ms)), 2);
    });
    const words = answer.costs.map(({ stage, total_ms: ms = 0 }) => `${stage} ${Math.round(ms)}`).join(" · ");
    this.#text(`${words} ms`, x, lane.stages + 20, { font: `11px ${ink.sans}`, colour: ink.soft, room });
  }

  /** A fermata over an answer that stood still. */
  #holds(story) {
    const { context, ink, view, lane } = this;
    for (const { from, to } of story.holds) {
      const x = (view.x(from) + view.x(to ?? view.present)) / 2;
      context.strokeStyle = context.fillStyle = ink.soft;
      context.lineWidth = 1.5;
      context.beginPath();
      context.arc(x, lane.answer - lane.half + 12, 9, Math.PI, 0);
      context.stroke();
      context.beginPath();
      context.arc(x, lane.answer - lane.half + 10, 1.8, 0, 2 * Math.PI);
      context.fill();
    }
  }

  #marks(story) {
    const { context, ink, view, lane } = this;
    for (const mark of story.marks) {
      const x = Math.round(view.x(mark.at));
      if (x < -20 || x > view.width + 20) continue;
      context.strokeStyle = context.fillStyle = mark.kind === "goes-on" ? ink.soft : ink.rubric;
      if (mark.kind === "cut") this.#caesura(x);
      if (mark.kind === "error" || mark.kind === "goes-on") {
        context.beginPath();
        context.arc(x, lane.stages - 6, 3, 0, 2 * Math.PI);
        context.fill();
      }
    }
  }

  /** Two strokes through the answer's staff, and a line up to the voice that cut in. */
  #caesura(x) {
    const { context, lane } = this;
    context.lineWidth = 1;
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(x + 0.5, lane.you - lane.half);
    context.lineTo(x + 0.5, lane.answer - lane.half - 4);
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 2;
    context.beginPath();
    for (const shift of [-1, 5]) {
      context.moveTo(x + shift - 4, lane.answer + lane.half * 0.6);
      context.lineTo(x + shift + 6, lane.answer - lane.half - 2);
    }
    context.stroke();
  }

  #gaps(story) {
    const { context, ink, view, lane } = this;
    for (const { from, to } of story.gaps) {
      const [x, until] = [view.x(from), Math.max(view.x(from) + 6, view.x(to ?? view.present))];
      if (until < 0 || x > view.width) continue;
      context.save();
      context.beginPath();
      context.rect(x, lane.captions, until - x, lane.stages - lane.captions);
      context.clip();
      context.strokeStyle = ink.rubric;
      context.globalAlpha = 0.35;
      context.lineWidth = 1;
      context.beginPath();
      for (let at = x - view.height; at < until; at += 7) {
        context.moveTo(at, lane.stages);
        context.lineTo(at + view.height, lane.stages - view.height);
      }
      context.stroke();
      context.restore();
      this.#text(to === null ? "line lost" : "resumed", until + 5, lane.captions + 11, {
        font: `11px ${ink.sans}`,
        colour: ink.rubric,
        room: 60,
      });
    }
  }

  // -- frame ---------------------------------------------------------------------------------------------------

  #present() {
    const { context, ink, view, lane } = this;
    const x = Math.round(view.x(view.present));
    if (x > view.width) return;
    context.fillStyle = ink.soft;
    context.fillRect(x, lane.captions, 1, lane.time - lane.captions);
    context.beginPath();
    context.arc(x + 0.5, lane.time, 3, 0, 2 * Math.PI);
    context.fill();
  }

  #chosen({ at }) {
    const { context, ink, view, lane } = this;
    context.fillStyle = context.strokeStyle = ink.ink;
    context.lineWidth = 1.5;
    context.beginPath();
    context.roundRect(Math.round(view.x(at)) - 5, lane.captions - 1, 11, lane.time - lane.captions, 5);
    context.stroke();
    context.globalAlpha = 0.08;
    context.fill();
    context.globalAlpha = 1;
  }

  #names() {
    const { context, ink, lane, view } = this;
    const fade = context.createLinearGradient(LABELS * 0.65, 0, LABELS, 0);
    fade.addColorStop(0, ink.paper);
    fade.addColorStop(1, `${ink.paper}00`); // the same colour, so that nothing grey lies between
    context.fillStyle = fade;
    context.fillRect(0, 0, LABELS, view.height);
    const font = `600 13px ${ink.sans}`;
    this.#text("You", 16, lane.you + 4, { font, colour: ink.you, room: LABELS });
    this.#text("Answer", 16, lane.answer + 4, { font, colour: ink.answer, room: LABELS });
  }

  #time(story) {
    const { ink, view, lane } = this;
    const every = view.perSecond < 50 ? 5 : 2;
    const first = Math.max(0, Math.ceil((view.from - story.start) / every));
    for (let i = first; story.start + i * every < view.until; i += 1) {
      const at = i * every;
      const text = `${Math.floor(at / 60)}:${String(at % 60).padStart(2, "0")}`;
      const x = view.x(story.start + at);
      if (x > LABELS)
        this.#text(text, x + 3, view.height - 6, { font: `11px ${ink.sans}`, colour: ink.soft, room: 40 });
      this.context.fillStyle = ink.rule;
      this.context.fillRect(Math.round(x), lane.time, 1, 6);
    }
  }

  #text(words, x, y, { font, colour, room }) {
    const { context } = this;
    if (!words || room < 24) return;
    context.font = font;
    context.fillStyle = colour;
    let shown = words;
    while (shown.length > 1 && context.measureText(shown).width > room) {
      shown = `${shown.slice(0, Math.max(1, Math.floor(shown.length * 0.9) - 1))}…`;
    }
    context.fillText(shown, x, y);
  }

  /** Before anybody has spoken: the shape of a question, and of its answer. */
  #prelude() {
    const { context, ink, view, lane } = this;
    context.globalAlpha = 0.2;
    const phrases = [
      [0.12, 0.3, lane.you, ink.you],
      [0.33, 0.58, lane.answer, ink.answer],
      [0.61, 0.72, lane.you, ink.you],
      [0.75, 0.97, lane.answer, ink.answer],
    ];
    for (const [from, until, middle, colour] of phrases) {
      context.fillStyle = colour;
      const count = Math.floor(((until - from) * view.width) / COLUMN);
      for (let i = 0; i < count; i += 1) {
        const arch = Math.sin((Math.PI * (i + 0.5)) / count) ** 0.5;
        const syllable = 0.35 + 0.65 * Math.abs(Math.sin(i * 0.21 + from * 40) * Math.sin(i * 0.083 + 1));
        this.#bar(Math.round(from * view.width) + i * COLUMN, middle, (arch * syllable) ** 2 * 0.8);
      }
    }
    context.globalAlpha = 1;
  }
}

function firstAfter(entries, at) {
  let low = 0;
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entries[middle].at < at) low = middle + 1;
    else high = middle;
  }
  return low;
}
