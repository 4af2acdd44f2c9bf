/** The line to a session: one socket after the other, so that nothing is lost and nothing comes twice. */

import { Outbox } from "./outbox.js";

const HEARTBEAT_MS = 10_000;
const OPENING_MS = 30_000;
const CLOSING_MS = 1_000;
const SHORTEST_MS = 250;
const LONGEST_MS = 4_000;
const PATIENCE_MS = 150_000; // a server that starts again waits two minutes for its sessions
const ACK_EVERY = 16; // while sound streams; anything else is acknowledged at once
const STREAMING = /^response\.output_(audio|audio_transcript|text)\.delta$/;
const FINAL = new Set([
  "invalid_session_resume",
  "session_resume_expired",
  "unsupported_session_resume",
  "invalid_resume_token",
  "session_resume_conflict",
]);

/**
 * `options` are `url`, `key`, `session` (the object that is opened), and who is told: `onStatus(status, why)` of
 * `open`, `lost`, `ended` or `failed`; `onEvent` of every event of the server, once and in order; `onSent` of what is
 * said. `kept` is what another page has left of a session: this one takes it over.
 */
export class Line {
  id = "";
  status = "connecting";
  lastNumber = 0;
  sockets = 0;
  #options;
  #outbox = new Outbox();
  #socket = null;
  #attached = false;
  #closing = false;
  #tokens = []; // the one that holds; behind it the one that it was got with
  #acknowledged = 0;
  #attempt = 0;
  #lostAt = 0;
  #timers = { retry: 0, opening: 0, beat: 0 };

  constructor(options) {
    this.#options = options;
    if (options.kept) this.#takeOver(options.kept);
    queueMicrotask(() => this.#dial());
    this.#timers.beat = setInterval(() => this.send({ type: "session.heartbeat" }), HEARTBEAT_MS);
  }

  get over() {
    return this.status === "ended" || this.status === "failed" || this.status === "left";
  }

  /** Say something, now or on the next socket; it is applied exactly once. */
  send(event) {
    if (this.over) return;
    if (!this.#outbox.put(event)) return this.#end("failed", "More waits for the server than may be kept.");
    this.#options.onSent(event);
    this.#flush();
  }

  /** Ask for the end; its confirmation comes as an event, or is not waited for any longer. */
  close() {
    if (this.id) this.send({ type: "session.close" });
    this.#closing = true;
    setTimeout(() => this.#end("ended", ""), this.#attached ? CLOSING_MS : 0);
  }

  /** Lose the socket, as a bad network does. */
  drop() {
    const socket = this.#socket;
    this.#closed(socket, { code: 4000 });
    socket?.close(4000, "dropped");
  }

  /** Go, and let the session wait: return what another page needs to take it over; null: it cannot, and ends. */
  leave() {
    if (this.over) return null;
    if (!this.#tokens.length || this.#closing) {
      this.close();
      return null;
    }
    const { id, lastNumber } = this;
    const state = { id, lastNumber, tokens: this.#tokens, waiting: this.#outbox.waiting() };
    this.status = "left";
    this.#rest();
    return state;
  }

  #takeOver({ id, lastNumber, tokens, waiting }) {
    Object.assign(this, { id, lastNumber, status: "lost" });
    this.#tokens = tokens;
    this.#lostAt = Date.now();
    this.#outbox.inherit(waiting);
  }

  /** Try again at once, if a retry is pending. */
  hurry() {
    if (this.status === "lost" && this.#socket === null) this.#dial();
  }

  #dial() {
    clearTimeout(this.#timers.retry);
    const { url, key } = this.#options;
    const protocols = key ? ["realtime", `openai-insecure-api-key.${key}`] : ["realtime"];
    let socket;
    try {
      socket = new WebSocket(url, protocols);
    } catch {
      return this.#end("failed", "This key holds characters that no key has.");
    }
    this.#socket = socket;
    this.#attached = false;
    socket.onopen = () => this.#transmit(this.#first());
    socket.onmessage = ({ data }) => this.#socket === socket && this.#take(JSON.parse(data));
    socket.onclose = (event) => this.#closed(socket, event);
    this.#timers.opening = setTimeout(() => !this.#attached && socket.close(), OPENING_MS);
  }

  #first() {
    if (!this.id) return { type: "session.update", session: this.#options.session };
    return {
      type: "session.resume",
      session_id: this.id,
      resume_token: this.#tokens[0],
      last_received_server_event_seq: this.lastNumber,
    };
  }

  #transmit(event) {
    this.#options.onSent(event);
    this.#socket.send(JSON.stringify(event));
  }

  #flush() {
    if (!this.#attached || this.#socket?.readyState !== WebSocket.OPEN) return;
    for (const data of this.#outbox.take()) this.#socket.send(data);
  }

  #take(event) {
    const number = event.server_event_seq ?? 0;
    if (number) {
      if (number <= this.lastNumber) return; // seen on a former socket
      this.lastNumber = number;
    }
    if (event.type === "error" && !this.#attached) return this.#refused(event);
    this.#note(event);
    this.#options.onEvent(event);
    if (number - this.#acknowledged >= (STREAMING.test(event.type) ? ACK_EVERY : 1)) {
      this.#acknowledged = number;
      const ack = { type: "session.event_ack", server_event_seq: number };
      if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(ack));
    }
    this.#flush();
  }

  #note(event) {
    switch (event.type) {
      case "session.created":
        this.id = event.session.id;
        this.#attach(event);
        break;
      case "session.resumed":
        this.#outbox.restart(event.last_client_seq);
        this.#attach(event);
        break;
      case "session.heartbeat_ack":
        this.#outbox.answered();
        break;
      case "session.resync_required":
        this.#tokens = []; // the session goes on, but not on another socket
        if (!this.#attached) this.#end("failed", "What was missed cannot be had again.");
        break;
      case "session.replaced":
        this.#end("failed", "Another connection serves this session now.");
        break;
      case "session.closed":
        this.#end("ended", "");
        break;
      case "session.expired":
        this.#end("failed", `The session has expired (${event.reason.replaceAll("_", " ")}).`);
        break;
    }
  }

  #attach({ resume_token: token }) {
    this.#tokens = token ? [token, ...this.#tokens.slice(0, 1)] : [];
    this.#attached = true;
    this.#acknowledged = this.lastNumber;
    this.#attempt = 0;
    this.sockets += 1;
    clearTimeout(this.#timers.opening);
    this.#turn("open", "");
  }

  #refused(event) {
    const { code, message } = event.error;
    this.#options.onEvent(event);
    if (code === "invalid_resume_token" && this.#tokens.length > 1) {
      this.#tokens.shift(); // the last resume was never heard of: the token before it holds
    } else if (!this.id || FINAL.has(code)) {
      this.#end("failed", message);
    }
  }

  #closed(socket, { code }) {
    if (this.over || socket === null || this.#socket !== socket) return;
    this.#socket = null;
    this.#attached = false;
    clearTimeout(this.#timers.opening);
    if (!this.id)
      return this.#end("failed", code === 1013 ? "The server is not ready." : "The server cannot be reached.");
    if (!this.#tokens.length)
      return this.#end("failed", "The connection was lost, and this session cannot be resumed.");
    if (this.status !== "lost") this.#lostAt = Date.now();
    if (Date.now() - this.#lostAt > PATIENCE_MS)
      return this.#end("failed", "The server cannot be reached any more.");
    const longest = Math.min(LONGEST_MS, SHORTEST_MS * 2 ** (this.#attempt += 1));
    this.#timers.retry = setTimeout(() => this.#dial(), SHORTEST_MS + Math.random() * (longest - SHORTEST_MS));
    this.#turn("lost", "");
  }

  #turn(status, why) {
    if (status === this.status && status === "lost") return;
    this.status = status;
    this.#options.onStatus(status, why);
  }

  #end(status, why) {
    if (this.over) return;
    this.#turn(status, why);
    this.#rest();
  }

  #rest() {
    clearTimeout(this.#timers.retry);
    clearTimeout(this.#timers.opening);
    clearInterval(this.#timers.beat);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close(1000);
  }
}
