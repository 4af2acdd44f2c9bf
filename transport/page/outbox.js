/** What was said and may not be applied yet: each command exactly once, over any number of sockets. */

const WINDOW = 512; // commands under way at most; the server bounds what waits there
const WINDOW_SIZE = 4 * 1024 * 1024;
const ASK_EVERY = WINDOW / 4; // then a heartbeat goes along, whose answer says what was applied
const ASK_SIZE = WINDOW_SIZE / 4;
const PASSING = /^(input_audio_buffer\.|playback\.ack$|session\.heartbeat$)/; // what is of no use to another page
const LARGEST = 32 * 1024 * 1024; // a minute without a server is 3 MiB of speech

export class Outbox {
  last = 0;
  size = 0;
  #kept = []; // { seq, data, type }, oldest first
  #sent = 0; // how many of them went into this socket
  #underWay = 0;
  #heartbeats = [];
  #unasked = 0;
  #unaskedSize = 0;
  #inherited = null; // { seq, event } of a page before this one, until its session is taken over

  /** Number a command and keep it; false if there is no room. */
  put(event) {
    if (this.size > LARGEST) return false;
    this.#put(event);
    if (this.#unasked >= ASK_EVERY || this.#unaskedSize >= ASK_SIZE) this.#put({ type: "session.heartbeat" });
    return true;
  }

  #put(event) {
    const seq = (this.last += 1);
    const data = JSON.stringify({ ...event, client_seq: seq });
    this.#kept.push({ seq, data, type: event.type });
    this.size += data.length;
    this.#unasked += 1;
    this.#unaskedSize += data.length;
    if (event.type === "session.heartbeat") {
      this.#heartbeats.push(seq);
      this.#unasked = this.#unaskedSize = 0;
    }
  }

  /** Give what this socket has not carried yet, in order, as far as the window is open. */
  *take() {
    while (this.#sent < this.#kept.length && this.#sent < WINDOW && this.#underWay < WINDOW_SIZE) {
      const { data } = this.#kept[this.#sent];
      this.#sent += 1;
      this.#underWay += data.length;
      yield data;
    }
  }

  /** The oldest open heartbeat was answered: everything up to it was applied. */
  answered() {
    if (this.#heartbeats.length) this.#forget(this.#heartbeats.shift());
  }

  /** A new socket serves the session: forget what was applied, and send the rest again. */
  restart(lastApplied) {
    if (this.#inherited) this.#goOn(lastApplied);
    else this.#forget(lastApplied);
    this.#sent = this.#underWay = 0;
  }

  /** What was said and may not be applied yet, for another page; sound is not among it. */
  waiting() {
    const lasting = this.#kept.filter(({ type }) => !PASSING.test(type));
    return lasting.map(({ seq, data }) => ({ seq, event: JSON.parse(data) }));
  }

  /** Begin where another page has stopped: what that has left waiting is said before all that is said here. */
  inherit(waiting) {
    this.#inherited = waiting;
  }

  /** What was said here meanwhile was counted from 1: count on behind the page before. */
  #goOn(lastApplied) {
    const missed = this.#inherited.filter(({ seq }) => seq > lastApplied).map(({ event }) => event);
    const own = this.#kept.map(({ data }) => JSON.parse(data));
    this.last = lastApplied;
    this.size = this.#unasked = this.#unaskedSize = 0;
    this.#kept = [];
    this.#heartbeats = [];
    this.#inherited = null;
    for (const event of [...missed, ...own]) this.#put(event);
  }

  #forget(through) {
    while (this.#kept.length && this.#kept[0].seq <= through) {
      const { data } = this.#kept.shift();
      this.size -= data.length;
      if (this.#sent) {
        this.#sent -= 1;
        this.#underWay -= data.length;
      }
    }
  }
}
