/** The session as a picture that grows: where one looks, and what one points at. `score.js` draws it. */

import { now } from "./audio.js";
import { inks, Score } from "./score.js";

const AHEAD = 0.22; // how much of the width lies in the future, for sound that waits to be played
const NEAR = 14; // pixels within which a moment is meant
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

export class Timeline {
  #story = null;
  #end = null; // what time stands at the line of now; null: the present one
  #chosen = null;
  #drawn = 0;
  #drag = null;

  /** @param {HTMLCanvasElement} canvas @param {HTMLElement} readout `onChoose` is told a moment that was entered */
  constructor(canvas, readout, { onChoose, onFollow }) {
    Object.assign(this, { canvas, readout, onChoose, onFollow });
    this.stopped = null;
    new ResizeObserver(() => this.#resize()).observe(canvas);
    for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) {
      matchMedia(query).addEventListener("change", () => this.#restyle());
    }
    canvas.addEventListener("pointerdown", (event) => this.#grab(event));
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerup", () => (this.#drag = null));
    canvas.addEventListener("pointerleave", () => this.#say(null));
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    this.#restyle();
    const frame = (at) => {
      this.#tick(at);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  /** Show a story from its beginning. */
  show(story) {
    this.#story = story;
    this.stopped = null;
    this.#chosen = null;
    this.follow();
    this.#draw();
  }

  /** Let time stand still: the conversation is over. */
  stop() {
    this.stopped ??= now();
  }

  follow() {
    this.#end = null;
    this.onFollow(true);
  }

  get #present() {
    return this.stopped ?? now();
  }

  get #now() {
    if (this.#end !== null) return this.#end;
    // Who wants less motion gets a page that is turned, not one that glides.
    return STILL.matches ? Math.ceil(this.#present / 2) * 2 : this.#present;
  }

  get #perSecond() {
    return this.canvas.clientWidth < 600 ? 36 : 64;
  }

  #x(at) {
    return this.canvas.clientWidth * (1 - AHEAD) + (at - this.#now) * this.#perSecond;
  }

  #at(x) {
    return this.#now + (x - this.canvas.clientWidth * (1 - AHEAD)) / this.#perSecond;
  }

  #resize() {
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.canvas.clientWidth * scale);
    this.canvas.height = Math.round(this.canvas.clientHeight * scale);
    this.#draw();
  }

  #restyle() {
    this.inks = inks(this.canvas);
    this.#resize();
  }

  #tick(at) {
    if (document.hidden || this.#story === null || (this.stopped !== null && this.#drag === null)) return;
    if (STILL.matches && at - this.#drawn < 200) return;
    this.#drawn = at;
    this.#draw();
  }

  #draw() {
    const scale = devicePixelRatio || 1;
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const view = {
      width: this.canvas.clientWidth,
      height: this.canvas.clientHeight,
      perSecond: this.#perSecond,
      from: this.#at(0),
      until: this.#at(this.canvas.clientWidth),
      present: this.#present,
      x: (at) => this.#x(at),
    };
    if (view.width) new Score(context, this.inks, view).draw(this.#story, this.#chosen);
  }

  #look(end) {
    const first = this.#story.start + 2;
    this.#end = Math.max(Math.min(end, this.#present), Math.min(first, this.#present));
    if (this.#end >= this.#present - 0.05) this.follow();
    else this.onFollow(false);
    this.#draw();
  }

  #grab(event) {
    if (!this.#story) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.#drag = { x: event.clientX, end: this.#now };
    const moment = this.#near(event.offsetX);
    if (moment) this.onChoose(moment);
  }

  #point(event) {
    if (!this.#story) return;
    if (this.#drag) this.#look(this.#drag.end - (event.clientX - this.#drag.x) / this.#perSecond);
    else this.#say(this.#near(event.offsetX));
  }

  #wheel(event) {
    if (!this.#story) return;
    const delta =
      Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    if (!delta) return;
    event.preventDefault();
    this.#look(this.#now + delta / this.#perSecond);
  }

  #near(x) {
    let best = null;
    for (const moment of this.#story.moments()) {
      const distance = Math.abs(this.#x(moment.at) - x);
      if (distance < NEAR && (best === null || distance <= best.distance)) best = { distance, moment };
    }
    return best?.moment ?? this.#under(this.#at(x));
  }

  /** What was going on then. */
  #under(at) {
    const within = (one, from, to) => one && from <= at && at <= to;
    const turn = this.#story.turns.findLast((one) => within(one, one.from, one.to ?? this.#present));
    if (turn) return this.#story.moments().find((one) => one.kind === "turn" && one.at === turn.from);
    const answer = [...this.#story.answers.values()].findLast((one) => {
      return one.spans.some((span) => within(span, span.at, span.until));
    });
    return answer && this.#story.moments().find((one) => one.kind === "answer" && one.number === answer.number);
  }

  #key(event) {
    if (!this.#story) return;
    const moments = this.#story.moments();
    const at = this.#chosen
      ? moments.findIndex((one) => one.at === this.#chosen.at && one.kind === this.#chosen.kind)
      : moments.length;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: moments.length - 1 }[event.key];
    if (event.key === "Enter" && this.#chosen) this.onChoose(this.#chosen);
    else if (event.key === "Escape") {
      this.#chosen = null;
      this.#say(null);
      this.follow();
      this.#draw();
    } else if (to !== undefined && moments.length) {
      this.#chosen = moments[Math.max(0, Math.min(moments.length - 1, to))];
      this.canvas.setAttribute("aria-valuemax", String(moments.length));
      this.canvas.setAttribute("aria-valuenow", String(moments.indexOf(this.#chosen) + 1));
      this.#say(this.#chosen);
      if (this.#x(this.#chosen.at) < 90 || this.#x(this.#chosen.at) > this.canvas.clientWidth - 20) {
        this.#look(this.#chosen.at + 4);
      }
      this.#draw();
    } else return;
    event.preventDefault();
  }

  #say(moment) {
    const text = moment ? `${(moment.at - this.#story.start).toFixed(1)} s  ${moment.text}` : "";
    this.readout.textContent = text;
    this.canvas.setAttribute("aria-valuetext", text || "now");
  }
}
