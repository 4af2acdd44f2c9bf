/** What happened when: the facts that timeline and transcript show. Times are the page's, in seconds. */

export const STEP = 0.02; // seconds of one peak

/** The loudest sample of each step. @param {Float32Array} samples */
export function peaksOf(samples, rate) {
  const size = Math.max(1, Math.round(rate * STEP));
  const peaks = [];
  for (let at = 0; at < samples.length; at += size) {
    let peak = 0;
    const end = Math.min(at + size, samples.length);
    for (let i = at; i < end; i += 1) peak = Math.max(peak, Math.abs(samples[i]));
    peaks.push(peak);
  }
  return peaks;
}

export class Story {
  constructor(at) {
    this.start = at;
    this.mic = []; // { at, peak, sent }, one for each 20 ms
    this.speech = []; // { from, to, item }
    this.turns = []; // { from, to, item, text }
    this.answers = new Map(); // by id, in the order in which they came
    this.marks = []; // { at, kind, text, number }
    this.gaps = []; // { from, to }: without a connection
    this.holds = []; // { from, to }: the answer stood still
    this.sentMs = 0;
    this.sent = []; // { ms, at }: where on the input's own time line sound was recorded
  }

  heardMic(at, peak, sent) {
    this.mic.push({ at, peak, sent });
  }

  /** Sound went to the server. */
  sentSound(at, ms) {
    this.sent.push({ ms: this.sentMs, at });
    this.sentMs += ms;
  }

  /** When a moment of the input's own time line was. */
  inputTime(ms) {
    let low = 0;
    let high = this.sent.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.sent[middle].ms <= ms) low = middle + 1;
      else high = middle;
    }
    const piece = this.sent[low - 1];
    return piece ? piece.at + (ms - piece.ms) / 1000 : this.start;
  }

  speechStarted(item, ms, number) {
    const from = this.inputTime(ms);
    this.speech.push({ from, to: null, item });
    this.turns.push({ from, to: null, item, text: "", number });
  }

  speechStopped(item, ms) {
    const open = this.speech.findLast((one) => one.item === item && one.to === null);
    if (open) open.to = this.inputTime(ms);
  }

  committed(item, at) {
    const turn = this.turn(item);
    if (turn) turn.to = at;
    const open = this.speech.findLast((one) => one.item === item && one.to === null);
    if (open) open.to = at;
  }

  /** What was begun was no turn. */
  forgotten(at) {
    for (const open of this.speech) open.to ??= at;
    this.turns = this.turns.filter((turn) => turn.to !== null);
  }

  turn(item) {
    return this.turns.findLast((turn) => turn.item === item);
  }

  answerBegan(id, at) {
    const answer = {
      id,
      created: at,
      done: null,
      status: "in_progress",
      reason: "",
      peaks: [],
      receivedMs: 0,
      heardMs: 0,
      spans: [],
      cut: null, // { at, ms, frame }: where the speaker fell silent
      suppressed: false, // not to be heard any more, whatever comes of it
      text: "",
      marks: [],
      costs: [],
      firstSound: null,
    };
    this.answers.set(id, answer);
    return answer;
  }

  answerSound(id, samples, rate, marks) {
    const answer = this.answers.get(id);
    answer.peaks.push(...peaksOf(samples, rate));
    answer.receivedMs += (samples.length / rate) * 1000;
    if (marks?.length) answer.marks.push(...marks);
  }

  heard({ answer: id, at, until, fromMs, toMs }) {
    const answer = this.answers.get(id);
    if (!answer) return null;
    answer.firstSound ??= at;
    answer.heardMs = Math.max(answer.heardMs, toMs);
    const last = answer.spans.at(-1);
    if (last && at - last.until < 0.03 && fromMs - last.toMs < 30) Object.assign(last, { until, toMs });
    else answer.spans.push({ at, until, fromMs, toMs });
    return answer;
  }

  mark(at, kind, text, number = 0) {
    this.marks.push({ at, kind, text, number });
  }

  /** Everything that one can stop at, in order. */
  moments() {
    const turns = this.turns.map((turn) => {
      return { at: turn.from, kind: "turn", text: `You: ${turn.text || "…"}`, number: turn.number ?? 0 };
    });
    const answers = [...this.answers.values()].map((answer) => ({
      at: answer.firstSound ?? answer.created,
      kind: "answer",
      text: told(answer),
      number: answer.number ?? 0,
    }));
    return [...turns, ...answers, ...this.marks].sort((one, other) => one.at - other.at);
  }
}

/** How many characters of an answer were heard with so many milliseconds of its sound, in whole words. */
export function heardCharacters(answer, ms) {
  const characters = Math.min(answer.text.length, spoken(answer, ms));
  return characters === answer.text.length ? characters : answer.text.lastIndexOf(" ", characters) + 1;
}

function spoken({ text, marks, receivedMs }, ms) {
  if (!receivedMs) return 0;
  let before = { text_chars: 0, audio_end_ms: 0 };
  for (const mark of marks) {
    if (mark.audio_end_ms > ms) {
      const share = (ms - before.audio_end_ms) / Math.max(1, mark.audio_end_ms - before.audio_end_ms);
      return Math.round(before.text_chars + share * (mark.text_chars - before.text_chars));
    }
    before = mark;
  }
  if (marks.length && ms < receivedMs - 1) return Math.min(text.length, before.text_chars);
  return ms >= receivedMs - 1 ? text.length : Math.round((text.length * ms) / receivedMs);
}

function told(answer) {
  const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
  const sound = answer.receivedMs ? ` ${seconds(answer.heardMs)} of ${seconds(answer.receivedMs)} heard.` : "";
  const costs = answer.costs.map(({ stage, total_ms: ms = 0 }) => `${stage} ${Math.round(ms)} ms`).join(", ");
  return `Answer: ${answer.text || "…"}${sound}${costs && ` ${costs}.`}`;
}
