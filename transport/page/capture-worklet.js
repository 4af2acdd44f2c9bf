/** The microphone: whatever the machine records becomes 16-bit samples at 16 kHz, in pieces of 20 ms. */

import { Resampler } from "./resample.js";

const RATE = 16_000;
const PIECE = RATE / 50;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, RATE);
    this.piece = new Float32Array(PIECE);
    this.filled = 0;
  }

  process([[input]]) {
    if (!input) return true;
    this.resampler.push(input);
    for (;;) {
      this.filled += this.resampler.pull(this.piece, this.filled, PIECE - this.filled);
      if (this.filled < PIECE) return true;
      this.#post();
      this.filled = 0;
    }
  }

  #post() {
    const samples = new Int16Array(PIECE);
    let peak = 0;
    for (let i = 0; i < PIECE; i += 1) {
      const value = Math.max(-1, Math.min(1, this.piece[i]));
      samples[i] = Math.round(value * 32767);
      peak = Math.max(peak, Math.abs(value));
    }
    this.port.postMessage({ samples, peak, frame: currentFrame }, [samples.buffer]);
  }
}

registerProcessor("capture", Capture);
