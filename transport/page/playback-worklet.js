/**
 * The speaker: plays answers in order, and knows to the sample what left it.
 *
 * What is void is known at once: it stands in memory that is shared with the page's thread, and is looked at before
 * each block of samples. `LAST` names the one block in which void sound may still end, counted from the start of the
 * context: the one that was due when it was said. If the speaker learns of it in time, that block fades out; if it was
 * under way already, it has been heard in full, and all is silent behind it.
 */

import { Resampler } from "./resample.js";
import { EPOCH, HOLD, LAST } from "./said.js";

const REPORT_BLOCKS = 24; // about 60 ms

class Answer {
  constructor({ answer, epoch, rate, bufferMs }) {
    Object.assign(this, { id: answer, epoch, rate });
    this.enough = (bufferMs / 1000) * rate;
    this.resampler = new Resampler(rate, sampleRate);
    this.pieces = [];
    this.received = 0;
    this.made = 0;
    this.over = false;
    this.begun = false;
  }

  take(samples) {
    this.pieces.push(samples);
    this.received += samples.length;
  }

  finish() {
    this.over = true;
    this.pieces.push(new Float32Array(this.resampler.reach)); // the tail of the last samples
  }

  get played() {
    return Math.min(this.received, this.made * this.resampler.step);
  }

  get playedMs() {
    return Math.floor((this.played / this.rate) * 1000);
  }

  /** Whether it may sound: enough lies ready, or no more will come. */
  get ready() {
    if (!this.begun) this.begun = this.over || this.received - this.played >= this.enough;
    return this.begun;
  }

  pull(out, at, count) {
    let made = 0;
    for (;;) {
      made += this.resampler.pull(out, at + made, count - made);
      if (made === count || this.pieces.length === 0) break;
      this.resampler.push(this.pieces.shift());
    }
    this.made += made;
    if (made < count) this.begun = this.over;
    return made;
  }
}

class Playback extends AudioWorkletProcessor {
  constructor({ processorOptions: { said } }) {
    super();
    this.said = said;
    this.epoch = 0;
    this.level = 1;
    this.queue = [];
    this.spans = [];
    this.blocks = 0;
    this.port.onmessage = ({ data }) => this.#told(data);
  }

  #told(message) {
    if (message.kind === "said") return this.said.set(message.said); // where nothing can be shared
    if (message.epoch < this.epoch) return; // sound that was on its way when it became void
    let answer = this.queue.find((one) => one.id === message.answer);
    if (message.kind === "sound") {
      if (!answer) this.queue.push((answer = new Answer(message)));
      answer.take(message.samples);
    } else if (answer && !answer.over) {
      answer.finish();
    }
  }

  process(_inputs, [[out]]) {
    const hold = Atomics.load(this.said, HOLD); // before `EPOCH`, behind which it is released
    const epoch = Atomics.load(this.said, EPOCH);
    const falls = epoch !== this.epoch;
    const late = falls && Atomics.load(this.said, LAST) !== currentFrame / out.length;
    const wanted = falls || hold ? 0 : 1;
    if (!late && (this.level || wanted)) this.#play(out, wanted);
    if (falls) this.#drop(epoch);
    this.blocks += 1;
    if (this.spans.length && this.blocks >= REPORT_BLOCKS) this.#report();
    return true;
  }

  #play(out, wanted) {
    let at = 0;
    while (at < out.length && this.queue.length && this.queue[0].ready) {
      const answer = this.queue[0];
      const fromMs = answer.playedMs;
      const made = answer.pull(out, at, out.length - at);
      if (made) this.#heard(answer, currentFrame + at, made, fromMs);
      at += made;
      if (at < out.length) {
        if (!answer.over) break;
        this.queue.shift();
        this.#report();
        this.port.postMessage({ kind: "ended", answer: answer.id, ms: answer.playedMs, frame: currentFrame + at });
      }
    }
    if (this.level !== wanted) {
      for (let i = 0; i < at; i += 1) out[i] *= this.level + ((wanted - this.level) * (i + 1)) / out.length;
      this.level = wanted;
    }
  }

  #drop(epoch) {
    const void_ = this.queue.filter((answer) => answer.epoch < epoch);
    this.queue = this.queue.filter((answer) => answer.epoch >= epoch);
    this.epoch = epoch;
    this.level = 1;
    this.#report();
    for (const answer of void_) {
      this.port.postMessage({ kind: "dropped", answer: answer.id, ms: answer.playedMs, frame: currentFrame });
    }
  }

  #heard(answer, frame, frames, fromMs) {
    const last = this.spans.at(-1);
    if (last && last.answer === answer.id && last.frame + last.frames === frame) {
      last.frames += frames;
      last.toMs = answer.playedMs;
    } else {
      this.spans.push({ answer: answer.id, frame, frames, fromMs, toMs: answer.playedMs });
    }
  }

  #report() {
    this.blocks = 0;
    if (this.spans.length) this.port.postMessage({ kind: "heard", spans: this.spans });
    this.spans = [];
  }
}

registerProcessor("playback", Playback);
