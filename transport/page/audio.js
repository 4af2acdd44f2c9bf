/** Microphone and speaker: one audio context with two worklets. */

import { EPOCH, HOLD, LAST } from "./said.js";

const MICROPHONE = { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true };

const BLOCK = 128; // frames that are rendered at a time

const ASKING_MS = 500;
const STARTING_MS = 3_000; // a machine without sound may never begin

/** The machine's time in seconds, in which everything on the page is told. */
export const now = () => performance.now() / 1000;

/** Whether this page may make a sound: before it is touched, a browser may not let it. */
export async function audible() {
  const context = new AudioContext();
  await Promise.race([context.resume(), new Promise((over) => setTimeout(over, ASKING_MS))]);
  const { state } = context;
  await context.close();
  return state === "running";
}

export class Sound {
  #epoch = 0;
  #said = new Int32Array(shareable(3 * Int32Array.BYTES_PER_ELEMENT));
  #playing = new Set();
  #stream = null;

  /**
   * Open the speaker; to be called from a gesture. `onPiece({samples, peak, at})` gives 20 ms of the microphone,
   * `onHeard(spans)` what left the speaker; `onEnded` and `onDropped({answer, ms, at})` tell how an answer ended.
   */
  static async open(handlers) {
    const context = new AudioContext({ latencyHint: "interactive" });
    const modules = ["playback-worklet.js", "capture-worklet.js"];
    await Promise.all(modules.map((name) => context.audioWorklet.addModule(new URL(name, import.meta.url))));
    await Promise.race([context.resume(), new Promise((over) => setTimeout(over, STARTING_MS))]);
    return new Sound(context, handlers);
  }

  constructor(context, handlers) {
    this.context = context;
    this.handlers = handlers;
    this.speaker = new AudioWorkletNode(context, "playback", {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: { said: this.#said },
    });
    this.speaker.port.onmessage = ({ data }) => this.#told(data);
    this.speaker.connect(context.destination);
  }

  /** Frames that the context has rendered. */
  get frame() {
    return Math.round(this.context.currentTime * this.context.sampleRate);
  }

  /** When a frame was or will be rendered, in the page's time. */
  time(frame) {
    return now() + frame / this.context.sampleRate - this.context.currentTime;
  }

  /** Whether sound of an answer is in the speaker. */
  get playing() {
    return this.#playing.size > 0;
  }

  has(answer) {
    return this.#playing.has(answer);
  }

  /** Queue sound of an answer. @param {Float32Array} samples */
  play(answer, rate, samples, bufferMs) {
    this.#playing.add(answer);
    const message = { kind: "sound", epoch: this.#epoch, answer, rate, samples, bufferMs };
    this.speaker.port.postMessage(message, [samples.buffer]);
  }

  /** There is no more sound of an answer. */
  end(answer) {
    this.speaker.port.postMessage({ kind: "over", epoch: this.#epoch, answer });
  }

  /**
   * Fall silent; all that is queued is void. Return the frame by which that was said: what is heard ends with the
   * block that was due then.
   */
  silence() {
    this.#epoch += 1;
    Atomics.store(this.#said, LAST, this.frame / BLOCK); // before `EPOCH`: it is about that one
    Atomics.store(this.#said, EPOCH, this.#epoch);
    const frame = this.frame;
    this.hold(false);
    return frame;
  }

  /** Stand still at the sample that plays, or go on there. */
  hold(still) {
    Atomics.store(this.#said, HOLD, still ? 1 : 0);
    if (!globalThis.crossOriginIsolated) this.speaker.port.postMessage({ kind: "said", said: this.#said });
  }

  /** Listen to the microphone. Raises what the browser says if there is none or it may not. */
  async listen() {
    if (this.context.state !== "running") throw new DOMException("there is no sound here", "NotReadableError");
    if (!navigator.mediaDevices) throw new DOMException("no secure context", "SecurityError");
    this.#stream = await navigator.mediaDevices.getUserMedia({ audio: MICROPHONE });
    const capture = new AudioWorkletNode(this.context, "capture", {
      numberOfOutputs: 0,
      channelCount: 1,
      channelCountMode: "explicit",
    });
    capture.port.onmessage = ({ data }) => {
      this.handlers.onPiece({ ...data, at: this.time(data.frame) });
    };
    this.context.createMediaStreamSource(this.#stream).connect(capture);
  }

  async close() {
    this.#stream?.getTracks().forEach((track) => track.stop());
    if (this.context.state !== "closed") await this.context.close();
  }

  #told({ kind, spans, answer, ms, frame }) {
    if (kind === "heard") {
      const { sampleRate } = this.context;
      const timed = spans.map((span) => {
        const at = this.time(span.frame);
        return { ...span, at, until: at + span.frames / sampleRate };
      });
      return this.handlers.onHeard(timed);
    }
    this.#playing.delete(answer);
    const told = { answer, ms, frame, at: this.time(frame) };
    if (kind === "ended") this.handlers.onEnded(told);
    else this.handlers.onDropped(told);
  }
}

/** Memory that the audio thread sees too, if this page may share any: the server's headers say that it may. */
function shareable(bytes) {
  return globalThis.crossOriginIsolated ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes);
}

/** Read 16-bit samples. @param {string} base64 @returns {Float32Array} */
export function samplesOf(base64) {
  const text = atob(base64);
  const samples = new Float32Array(text.length >> 1);
  for (let i = 0; i < samples.length; i += 1) {
    const value = text.charCodeAt(2 * i) | (text.charCodeAt(2 * i + 1) << 8);
    samples[i] = (value > 32767 ? value - 65536 : value) / 32768;
  }
  return samples;
}

/** Write 16-bit samples. @param {Int16Array} samples @returns {string} base64 */
export function base64Of(samples) {
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}
