/** A stream of samples at another rate: a windowed sinc whose state lives on between pieces. */

const HALF = 16; // zero crossings on either side: the stop band lies below 60 dB
const FINE = 256; // entries of the kernel's table for each source sample

export class Resampler {
  /** @param {number} from @param {number} to rates in Hz */
  constructor(from, to) {
    this.step = from / to;
    this.cutoff = Math.min(1, to / from) * 0.95;
    this.reach = from === to ? 0 : Math.ceil(HALF / this.cutoff);
    this.kernel = kernel(this.reach, this.cutoff);
    this.buffer = new Float32Array(8192);
    this.length = this.reach; // silence before the first sample
    this.position = this.reach;
  }

  /** Source samples that are buffered and not used yet. */
  get waiting() {
    return this.length - this.position;
  }

  /** Take source samples in. @param {Float32Array} samples */
  push(samples) {
    const done = Math.floor(this.position) - this.reach;
    if (done > 0) {
      this.buffer.copyWithin(0, done, this.length);
      this.length -= done;
      this.position -= done;
    }
    if (this.length + samples.length > this.buffer.length) {
      const larger = new Float32Array(2 * (this.length + samples.length));
      larger.set(this.buffer.subarray(0, this.length));
      this.buffer = larger;
    }
    this.buffer.set(samples, this.length);
    this.length += samples.length;
  }

  /** Write at most `count` samples into `out` from `at` on; return how many there were. */
  pull(out, at, count) {
    let made = 0;
    while (made < count && this.position + this.reach < this.length) {
      out[at + made] = this.reach === 0 ? this.buffer[this.position] : this.#sample(this.position);
      this.position += this.step;
      made += 1;
    }
    return made;
  }

  #sample(position) {
    const { buffer, kernel, reach } = this;
    let sum = 0;
    for (let i = Math.ceil(position - reach), last = Math.floor(position + reach); i <= last; i += 1) {
      const place = Math.abs(position - i) * FINE;
      const entry = Math.floor(place);
      sum += buffer[i] * (kernel[entry] + (place - entry) * (kernel[entry + 1] - kernel[entry]));
    }
    return sum;
  }
}

function kernel(reach, cutoff) {
  const table = new Float32Array(reach * FINE + 2);
  for (let i = 0; i <= reach * FINE; i += 1) {
    const t = i / FINE;
    const x = Math.PI * cutoff * t;
    const window = 0.5 + 0.5 * Math.cos((Math.PI * t) / (reach || 1));
    table[i] = cutoff * window * (x === 0 ? 1 : Math.sin(x) / x);
  }
  return table;
}
