/** Push-to-talk, and the pictures in between: what is sent when. Nothing here waits or does I/O. */

const QUEUED = 2;
const SILENCE = 160; // samples

/**
 * `append(samples, isSpeech, frames)` and `commit(spoken)` send. A turn of pictures is never committed while one that was
 * spoken has no answer yet: the first stages hold one request, and the second would abort the first.
 */
export class PushToTalk {
  held = false;
  #locked = false;
  #answer = null; // the response that the lock waits for
  #stale = null; // the one that was there when the button was let go
  #current = null;
  #sound = [];
  #size = 0;
  #queue = [];
  #pending = null;
  #sticky = null;

  constructor({ append, commit, chunk, visionFollow }) {
    Object.assign(this, { append, commit, chunk, visionFollow });
  }

  down() {
    this.held = true;
  }

  /** The button was let go. The turn is sent while it still counts as held: no picture gets in between. */
  up() {
    if (!this.held) return;
    this.#flush();
    this.commit(true);
    this.#locked = true;
    this.#answer = null;
    this.#stale = this.#current;
    this.#queue = [];
    this.held = false;
  }

  /** Sound of the microphone; what comes while the button is up is not meant. @param {Int16Array} samples */
  sound(samples) {
    if (!this.held) return;
    this.#sound.push(samples);
    this.#size += samples.length;
    if (this.#size >= this.chunk) this.#flush();
  }

  /** A picture (base64). */
  frame(picture) {
    this.#sticky = picture;
    if (this.held) {
      this.#pending = picture;
      return;
    }
    if (!this.visionFollow) return;
    this.#queue = [...this.#queue, picture].slice(-QUEUED);
    if (this.#locked || this.#queue.length < QUEUED) return;
    this.append(new Int16Array(SILENCE), false, this.#queue);
    this.commit(false);
    this.#queue = [];
  }

  /** A response begins. */
  began(response) {
    this.#current = response;
    this.#answer = response;
    this.#locked = true;
  }

  /** The words of a response are final, it has ended, or (without an id) the model goes on listening. */
  ended(response) {
    if (response && (response === this.#stale || (this.#answer && response !== this.#answer))) return;
    this.#locked = false;
    this.#answer = null;
  }

  #flush() {
    if (!this.#size) return;
    const samples = new Int16Array(this.#size);
    let at = 0;
    for (const piece of this.#sound) {
      samples.set(piece, at);
      at += piece.length;
    }
    const picture = this.#pending ?? this.#sticky;
    this.append(samples, true, picture ? [picture] : []);
    this.#pending = null;
    this.#sound = [];
    this.#size = 0;
  }
}
