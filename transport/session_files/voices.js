/** The two voices on their staves: what was said, what was heard, what was made and never heard. */

const COLUMN = 3; // pixels from one bar of a waveform to the next
const BAR = 2;

class Voices {
  constructor(pen, view, layout, data, hits) {
    Object.assign(this, { pen, view, layout, data, hits, ink: pen.ink });
  }

  draw() {
    this.#staff(this.layout.you);
    this.#staff(this.layout.answer);
    this.#gaps();
    this.#bars(this.data.user, this.layout.you, this.ink.you);
    this.#bars(this.data.unheard, this.layout.answer, this.ink.answer, 0.24);
    this.#bars(this.data.heard, this.layout.answer, this.ink.answer);
    this.#speech();
    this.#turns();
    this.#answers();
    this.#holds();
    this.#cuts();
  }

  /** Four lines, as chant has them. */
  #staff({ y, height }) {
    if (!height) return;
    const half = height / 2 - 3;
    for (const line of [-1.5, -0.5, 0.5, 1.5]) {
      this.pen.rect(0, Math.round(y + height / 2 + (line * half) / 2), this.pen.width, 1, this.ink.rule);
    }
  }

  /** Bars stand where they stand in time, not on the screen: nothing shimmers when it moves. */
  #bars(levels, { y, height }, colour, alpha = 1) {
    if (!height) return;
    const { view, pen } = this;
    const { context } = pen;
    const seconds = COLUMN / view.perSecond;
    const middle = y + height / 2;
    context.fillStyle = colour;
    context.globalAlpha = alpha;
    const first = Math.max(0, Math.floor(view.at(view.left) / seconds));
    const last = Math.ceil(Math.min(view.until, this.data.span) / seconds);
    for (let column = first; column < last; column += 1) {
      const peak = levels.peak(column * seconds, (column + 1) * seconds);
      if (!peak) continue;
      const tall = Math.max(1, (peak / 255) * (height / 2 - 3));
      context.fillRect(Math.round(view.x(column * seconds)), middle - tall, BAR, 2 * tall);
    }
    context.globalAlpha = 1;
  }

  /** The probability of speech, as a line, and the turns that came of it, as bars below. */
  #speech() {
    const { view, ink, data, pen } = this;
    const { y, height } = this.layout.speech;
    if (!height) return;
    const { context } = pen;
    const seconds = 2 / view.perSecond;
    context.strokeStyle = ink.you;
    context.globalAlpha = 0.75;
    context.lineWidth = 1;
    context.beginPath();
    let drawing = false;
    for (let x = view.left; x < pen.width; x += 2) {
      const score = data.speech.peak(view.at(x), view.at(x) + seconds);
      const tall = y + height - 7 - ((score - 1) / 254) * (height - 8);
      if (!score) drawing = false;
      else if (drawing) context.lineTo(x, tall);
      else context.moveTo(x, tall);
      drawing = score > 0;
    }
    context.stroke();
    context.globalAlpha = 1;
    for (const turn of this.#seen(data.turns, (one) => [one.start, one.stop])) {
      const [x, until] = [view.x(turn.start), view.x(turn.stop)];
      context.fillStyle = ink.you;
      context.beginPath();
      context.roundRect(x, y + height - 5, Math.max(3, until - x), 4, 2);
      context.fill();
    }
  }

  #seen(list, ends) {
    const { from, until } = this.view;
    return list.filter((one) => {
      const [start, end] = ends(one);
      return end >= from && start <= until;
    });
  }

  #turns() {
    const { view, ink, data, pen } = this;
    const { y, height } = this.layout.captions;
    const foot = y + height - 1;
    data.turns.forEach((turn, i) => {
      if (turn.start > view.until) return;
      const x = view.x(turn.start);
      const until = view.x(turn.stop);
      const next = data.turns[i + 1];
      const room = Math.min(next ? view.x(next.start) - 10 : pen.width, x + 460) - x;
      if (x + Math.max(room, until - x) < view.left) return;
      const from = Math.max(x, view.left);
      if (until > view.left) {
        const [left, right, top] = [x + 0.5, until - 0.5, foot - 4.5];
        const bracket = [[left, foot], [left, top], [right, top], [right, foot]];
        pen.line(bracket, ink.you);
      }
      const words = { font: `italic 14px ${ink.serif}`, colour: ink.ink, room: room - (from - x) };
      pen.text(turn.text, from, y + 14, words);
      const spoken = turn.stop > turn.start ? `said in ${ms(turn.stop - turn.start)}` : "written";
      this.hits.add(this.layout.you.height ? "you" : "captions", x, Math.max(until, x + 4), {
        seq: turn.seq,
        at: turn.start,
        text: `“${turn.text || "(no words)"}” · ${spoken}`,
      });
    });
  }

  #answers() {
    const { view, ink, data, pen } = this;
    const { y, height } = this.layout.words;
    data.answers.forEach((answer, i) => {
      const start = answer.spans[0]?.[0] ?? answer.first ?? answer.created;
      if (start > view.until) return;
      const last = answer.spans.at(-1)?.[1] ?? start;
      const next = data.answers[i + 1];
      const limit = next ? view.x(next.spans[0]?.[0] ?? next.created) - 10 : pen.width;
      const [x, from] = [view.x(start), Math.max(view.x(start), view.left)];
      if (limit < view.left) return;
      const said = answer.heard_text ?? answer.text;
      const cut = answer.heard_ms < answer.sent_ms;
      const words = said || (answer.text ? "(nothing of it was heard)" : "");
      pen.text(words, from, y + height - 6, {
        font: `italic 14px ${ink.serif}`,
        colour: ink.ink,
        room: Math.min(limit, from + 560) - from,
      });
      const heard = `heard ${long(answer.heard_ms)} of ${long(answer.sent_ms)}`;
      const how = cut && answer.basis ? ` (by ${answer.basis})` : "";
      this.hits.add(this.layout.answer.height ? "answer" : "words", x, Math.max(view.x(last), x + 4), {
        seq: answer.seq,
        at: answer.created,
        text: `${answer.status}${answer.cause ? `, ${answer.cause}` : ""} · ${heard}${how} · “${answer.text}”`,
      });
    });
  }

  /** Hatched: nobody was connected. */
  #gaps() {
    const { view, ink, data, pen, layout } = this;
    data.connections.forEach((one, i) => {
      const next = data.connections[i + 1];
      if (one.end === null || !next) return;
      const [x, until] = [Math.max(view.left, view.x(one.end)), view.x(next.start)];
      if (until < view.left || x > pen.width) return;
      const { context } = pen;
      const [top, bottom] = [layout.you.y, layout.answer.y + layout.answer.height];
      context.save();
      context.beginPath();
      context.rect(x, top, Math.max(3, until - x), bottom - top);
      context.clip();
      context.strokeStyle = ink.rubric;
      context.globalAlpha = 0.35;
      context.beginPath();
      for (let at = x - (bottom - top); at < Math.min(until, pen.width); at += 7) {
        context.moveTo(at, bottom);
        context.lineTo(at + bottom - top, top);
      }
      context.stroke();
      context.restore();
    });
  }

  /** A fermata over an answer that stood still. */
  #holds() {
    const { view, ink, pen, layout, data } = this;
    const { context } = pen;
    for (const hold of this.#seen(data.holds, (one) => [one.start, one.end ?? data.seconds])) {
      const [from, until] = [view.x(hold.start), view.x(hold.end ?? data.seconds)];
      const [x, y] = [(from + until) / 2, layout.answer.y + 14];
      context.strokeStyle = context.fillStyle = ink.soft;
      context.lineWidth = 1.5;
      context.beginPath();
      context.arc(x, y, 9, Math.PI, 0);
      context.stroke();
      context.beginPath();
      context.arc(x, y - 2, 1.8, 0, 2 * Math.PI);
      context.fill();
      this.hits.add("answer", Math.min(from, x - 9), Math.max(until, x + 9), {
        seq: hold.seq,
        at: hold.start,
        text: `The answer stood still for ${ms((hold.end ?? data.seconds) - hold.start)}: ${hold.how || "undecided"}`,
      });
    }
  }

  /** Two strokes through the answer's staff, and a line up to the voice that cut in. */
  #cuts() {
    const { view, ink, pen, layout, data } = this;
    const [top, answer] = [layout.you.y, layout.answer];
    for (const mark of data.interruptions) {
      const x = Math.round(view.x(mark.at));
      if (x < view.left - 12 || x > pen.width + 12) continue;
      pen.line([[x + 0.5, top], [x + 0.5, answer.y]], ink.rubric, { dash: [2, 3] });
      for (const shift of [-1, 5]) {
        pen.line(
          [
            [x + shift - 4, answer.y + answer.height - 10],
            [x + shift + 6, answer.y + 2],
          ],
          ink.rubric,
          { width: 2 },
        );
      }
      this.hits.add("answer", x - 8, x + 10, {
        seq: mark.seq,
        at: mark.at,
        text: `Interrupted: ${mark.text.replaceAll("_", " ")}`,
      });
    }
  }
}
