/** One conversation: what is said because of what was heard, pressed or told. It knows no element of the page. */

import { base64Of, now, samplesOf, Sound } from "./audio.js";
import { Line } from "./connection.js";
import { PROFILES, sessionFor } from "./profiles.js";
import { PushToTalk } from "./ptt.js";
import { Story } from "./story.js";

const ACK_STEP_MS = 100;

/** `view` is told: `status`, `event`, `said`, `notice`, `user`, `answer`, `created`. */
export class Talk {
  muted = false;
  capabilities = {};
  interrupted = null; // { frame, at }: when the speaker was last told to fall silent
  #acknowledged = new Map(); // response -> milliseconds
  #commits = []; // of our own, which are answered in order: whether something was said
  #unspoken = new Set();
  #frames = []; // the newest picture, if it was not sent yet
  #batch = [];
  #batchSize = 0;

  /** `kept`: the conversation that another page has left, and that goes on here. */
  constructor({ profile, careful, model, key, url, view, kept }) {
    Object.assign(this, { profile: PROFILES[profile], careful, view });
    this.story = new Story(now());
    this.story.sentMs = kept?.sentMs ?? 0;
    for (const id of kept?.expected ?? []) this.story.answerBegan(id, now());
    this.ptt = new PushToTalk({
      append: (samples, isSpeech, frames) => this.#append(samples, { is_speech: isSpeech }, frames),
      commit: (spoken) => this.commit(spoken),
      chunk: this.profile.chunkMs * 16,
      visionFollow: Boolean(this.profile.visionFollow),
    });
    this.line = new Line({
      url,
      key,
      kept: kept?.line,
      session: sessionFor(profile, { model, careful }),
      onEvent: (event) => this.#event(event),
      onSent: (event) => view.said(event),
      onStatus: (status, why) => this.#status(status, why),
    });
  }

  /** Open speaker, then microphone. Raises what the browser says of the microphone; the speaker is open even so. */
  async open() {
    this.sound = await Sound.open({
      onPiece: (piece) => this.#piece(piece),
      onHeard: (spans) => this.#heard(spans),
      onEnded: (end) => this.#ended(end),
      onDropped: (end) => this.#dropped(end),
    });
    await this.sound.listen();
  }

  /**
   * The page goes. What plays is interrupted where it stands, what was not begun is waited for. Return what another
   * page needs to go on with; null: nothing can go on.
   */
  leave() {
    const expected = [];
    for (const answer of this.story.answers.values()) {
      if (answer.done !== null && !this.sound?.has(answer.id)) continue;
      if (answer.receivedMs) this.#cutOff(answer);
      else expected.push(answer.id);
    }
    const line = this.line.leave();
    return line && { line, expected, sentMs: this.story.sentMs };
  }

  #cutOff(answer) {
    answer.cut = { at: now(), ms: Math.floor(answer.heardMs), frame: 0 };
    this.line.send({ type: "output_audio_buffer.clear", response_id: answer.id });
    this.#truncate(answer);
    this.view.answer(answer);
  }

  async close() {
    this.sound?.silence();
    this.line.close();
    await this.sound?.close();
  }

  // -- what the user does --------------------------------------------------------------------------------------

  commit(spoken = true) {
    this.#flush();
    this.#commits.push(spoken);
    this.line.send({ type: "input_audio_buffer.commit", create_response: true });
  }

  /** Stop the answer: here at once, then at the server. */
  interrupt() {
    const playing = this.#active();
    this.#silence();
    if (playing) this.line.send({ type: "output_audio_buffer.clear", response_id: playing.id });
  }

  write(text) {
    this.interrupt();
    const item = { type: "message", role: "user", content: [{ type: "input_text", text }] };
    this.line.send({ type: "conversation.item.create", item });
    this.line.send({ type: "response.create" });
  }

  /** The talk button goes down: what plays is silenced here, and goes on being made at the server. */
  hold() {
    for (const answer of this.story.answers.values()) {
      if (answer.done === null || this.sound?.has(answer.id)) answer.suppressed = true;
    }
    this.#silence();
    this.ptt.down();
  }

  letGo() {
    this.ptt.up();
  }

  picture(jpeg) {
    if (this.profile.turn === "hold") this.ptt.frame(jpeg);
    else this.#frames = [jpeg];
  }

  // -- sound ---------------------------------------------------------------------------------------------------

  #piece({ samples, peak, at }) {
    const sent = this.#sending();
    this.story.heardMic(at - 0.02, peak, sent);
    this.view.level(peak, sent);
    if (this.profile.turn === "hold") {
      if (!this.muted) this.ptt.sound(samples);
      return;
    }
    if (sent) {
      this.#batch.push(samples);
      this.#batchSize += samples.length;
    }
    if (!sent || this.#batchSize >= this.profile.chunkMs * 16) this.#flush();
  }

  #sending() {
    if (this.muted || !this.line.id || this.line.over) return false;
    return this.profile.turn !== "hold" || this.ptt.held;
  }

  #flush() {
    if (!this.#batchSize) return;
    const samples = new Int16Array(this.#batchSize);
    let at = 0;
    for (const piece of this.#batch) {
      samples.set(piece, at);
      at += piece.length;
    }
    this.#batch = [];
    this.#batchSize = 0;
    this.#append(samples, {}, this.#frames);
    this.#frames = [];
  }

  #append(samples, hints, frames) {
    const ms = samples.length / 16;
    this.story.sentSound(now() - ms / 1000, ms);
    this.line.send({
      type: "input_audio_buffer.append",
      audio: base64Of(samples),
      ...hints,
      ...(frames.length && { video_frames: frames }),
    });
  }

  #heard(spans) {
    for (const span of spans) {
      const answer = this.story.heard(span);
      if (answer) this.#acknowledge(answer, false);
    }
  }

  #ended({ answer: id }) {
    const answer = this.story.answers.get(id);
    if (answer) this.#acknowledge(answer, true);
  }

  /** Playback is acknowledged as it left the speaker, in steps, and at the end of an answer. */
  #acknowledge(answer, over) {
    this.view.answer(answer);
    const told = this.#acknowledged.get(answer.id) ?? -1;
    if (answer.heardMs <= told || (!over && answer.heardMs - told < ACK_STEP_MS)) return;
    this.#acknowledged.set(answer.id, answer.heardMs);
    this.line.send({
      type: "playback.ack",
      response_id: answer.id,
      item_id: `item_${answer.id}`,
      played_ms: answer.heardMs,
      committed_ms: answer.heardMs,
    });
  }

  /** The speaker was silenced in the middle of an answer: that is how much of it was heard. */
  #dropped({ answer: id, ms, at, frame }) {
    const answer = this.story.answers.get(id);
    if (!answer || this.line.over) return;
    answer.heardMs = Math.min(ms, answer.receivedMs);
    answer.cut = { at, ms, frame };
    const heard = (ms / 1000).toFixed(1);
    const made = (answer.receivedMs / 1000).toFixed(1);
    this.story.mark(
      at,
      "cut",
      `Interrupted: ${heard} s of the answer were heard, of ${made} s.`,
      this.line.lastNumber,
    );
    this.#truncate(answer);
    this.view.answer(answer);
  }

  #truncate({ id, heardMs }) {
    this.line.send({
      type: "conversation.item.truncate",
      item_id: `item_${id}`,
      content_index: 0,
      audio_end_ms: Math.floor(heardMs),
    });
  }

  #silence() {
    if (!this.sound) return;
    this.interrupted = { frame: this.sound.silence(), at: now() };
    this.#standStill(false);
  }

  #standStill(still) {
    const open = this.story.holds.findLast((hold) => hold.to === null);
    if (still && !open) this.story.holds.push({ from: now(), to: null });
    if (!still && open) open.to = now();
  }

  #active() {
    return [...this.story.answers.values()].findLast(({ id, done }) => done === null || this.sound?.has(id));
  }

  // -- what the server says ------------------------------------------------------------------------------------

  #status(status, why) {
    const lost = this.story.gaps.findLast((gap) => gap.to === null);
    if (status === "lost" && !lost) {
      this.story.gaps.push({ from: now(), to: null });
      this.story.mark(now(), "lost", "The connection was lost.", this.line.lastNumber);
    } else if (status === "open" && lost) {
      lost.to = now();
      this.story.mark(now(), "resumed", `Resumed after ${(lost.to - lost.from).toFixed(1)} s; nothing was missed.`);
    }
    this.view.status(status, why);
  }

  #event(event) {
    HANDLERS[event.type]?.(this, event, now());
    this.view.event(event);
  }

  created({ session }) {
    this.capabilities = session.capabilities ?? {};
    this.model = session.model;
    this.view.created(session);
  }

  resumed({ session }) {
    if (!this.model) this.created({ session });
    const paused = session.output_audio_paused;
    this.sound?.hold(Boolean(paused));
    this.#standStill(Boolean(paused));
  }

  speechStarted(event) {
    // Before anything is shown: what is heard ends with the block that is due now.
    if (this.profile.turn === "pause" && !this.careful && this.sound?.playing) this.#silence();
    this.story.speechStarted(event.item_id, event.audio_start_ms, event.server_event_seq);
    this.view.user(event.item_id, { open: true });
  }

  committed(event, at) {
    const spoken = this.#commits.shift() ?? true;
    if (!spoken || event.event?.is_speech === false) {
      this.#unspoken.add(event.item_id); // pictures, or silence: a turn, but nothing that was said
      return;
    }
    if (!this.story.turn(event.item_id)) {
      this.story.turns.push({ from: at, to: at, item: event.item_id, text: "", number: event.server_event_seq });
    }
    this.story.committed(event.item_id, at);
    this.view.user(event.item_id, { open: false });
  }

  failed({ code }) {
    if (code === "input_audio_buffer_empty" || code === "commit_aborted") this.#commits.shift();
  }

  userWords(item, text, final) {
    if (this.#unspoken.has(item)) return;
    const turn = this.story.turn(item);
    if (turn) turn.text = final ? text : turn.text + text;
    this.view.user(item, { text: turn ? turn.text : text, final });
  }

  responseCreated(event, at) {
    const answer = this.story.answerBegan(event.response_id, at);
    answer.number = event.server_event_seq;
    this.ptt.began(event.response_id);
    this.view.answer(answer);
  }

  words(event) {
    const answer = this.story.answers.get(event.response_id);
    if (!answer || !event.delta) return;
    answer.text += event.delta;
    this.view.answer(answer);
  }

  delta(event) {
    const { response_id: id, delta, sample_rate_hz: rate = 24_000, metadata } = event;
    const answer = this.story.answers.get(id);
    if (!delta || !answer) return;
    const samples = samplesOf(delta);
    this.story.answerSound(id, samples, rate, metadata?.audio_text_marks);
    if (answer.suppressed || answer.cut || !this.sound) return;
    this.sound.play(id, rate, samples, this.profile.bufferMs);
  }

  responseDone(event, at) {
    const { response_id: id, response } = event;
    const answer = this.story.answers.get(id);
    this.ptt.ended(id);
    if (!answer) return;
    answer.done = at;
    answer.status = response.status;
    answer.reason = response.status_details?.reason ?? "";
    answer.costs = response.metadata?.stage_costs ?? [];
    this.sound?.end(id);
    if (response.status === "cancelled" && this.sound?.has(id)) this.#silence();
    if (response.status === "failed")
      this.story.mark(at, "error", response.status_details?.error?.message ?? "failed");
    this.view.answer(answer);
  }

  cleared({ response_id: id }) {
    if (!id || this.sound?.has(id)) this.#silence();
  }

  paused() {
    this.sound?.hold(true);
    this.#standStill(true);
  }

  goesOn(event, at) {
    this.sound?.hold(false);
    this.#standStill(false);
    const why = event.reason.replaceAll("_", " ");
    this.story.mark(
      at,
      "goes-on",
      `That was no interruption (${why}): the answer goes on.`,
      event.server_event_seq,
    );
    this.inputForgotten(event, at);
  }

  inputForgotten(_event, at) {
    for (const turn of this.story.turns) if (turn.to === null) this.view.user(turn.item, { gone: true });
    this.story.forgotten(at);
  }
}

const INPUT = "input_audio_buffer";
const WORDS = "conversation.item.input_audio_transcription";

const HANDLERS = {
  "session.created": (talk, event) => talk.created(event),
  "session.resumed": (talk, event) => talk.resumed(event),
  [`${INPUT}.speech_started`]: (talk, event) => talk.speechStarted(event),
  [`${INPUT}.speech_stopped`]: (talk, event) => talk.story.speechStopped(event.item_id, event.audio_end_ms),
  [`${INPUT}.committed`]: (talk, event, at) => talk.committed(event, at),
  [`${INPUT}.cleared`]: (talk, event, at) => talk.inputForgotten(event, at),
  [`${WORDS}.delta`]: (talk, event) => talk.userWords(event.item_id, event.delta, false),
  [`${WORDS}.completed`]: (talk, event) => talk.userWords(event.item_id, event.transcript.trim(), true),
  "conversation.item.added": (talk, event) => {
    const written = event.item.role === "user" && event.item.content?.find((part) => part.type === "input_text");
    if (written) talk.view.user(event.item.id, { text: written.text, final: true });
  },
  "response.created": (talk, event, at) => talk.responseCreated(event, at),
  "response.output_audio.delta": (talk, event) => talk.delta(event),
  "response.output_audio_transcript.delta": (talk, event) => talk.words(event),
  "response.output_text.delta": (talk, event) => talk.words(event),
  "response.output_audio_transcript.done": (talk, event) => talk.ptt.ended(event.response_id),
  "response.listen": (talk, event) => talk.ptt.ended(event.response_id),
  "response.done": (talk, event, at) => talk.responseDone(event, at),
  "output_audio_buffer.cleared": (talk, event) => talk.cleared(event),
  "output_audio_buffer.paused": (talk, event) => talk.paused(event),
  "output_audio_buffer.resumed": (talk, event, at) => talk.goesOn(event, at),
  error: (talk, event, at) => {
    talk.failed(event.error);
    talk.story.mark(at, "error", event.error.message, event.server_event_seq);
    talk.view.notice(event.error.message, event.error.code);
  },
};
