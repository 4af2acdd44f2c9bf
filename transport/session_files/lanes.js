/** The lanes below the voices: what was sent, how long was waited, the stages, the line, commands and events. */

const ROW = 15;

/** Seconds between two numbers of the time. */
const PARTS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
const SCALES = [...PARTS, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];

/** Events that say what an entry is about, and those that say least. */
const LOUD = new Set(["Interrupted", "ErrorReported", "SessionClosed", "ResponseEnded", "SpeechStopped"]);
const USUAL = new Set(["CommandSequenced", "AudioReceived", "OverlapDecided", "ActivityNoted", "CostsNoted"]);

/** Where each lane lies, from the top. */
class Layout {
  constructor(data, width) {
    this.narrow = width < 600;
    this.left = this.narrow ? 78 : 104;
    this.names = [...new Set(data.stages.map((one) => one.stage))];
    const staff = this.narrow ? 58 : 74;
    const heard = data.heard.any || data.unheard.any;
    const heights = {
      captions: 25,
      you: data.user.any ? staff : 0,
      speech: data.user.any ? 26 : 0,
      answer: heard ? staff : 0,
      words: data.answers.length ? 20 : 0,
      sent: heard ? 26 : 0,
      waits: data.waits.length ? 36 : 0,
      stages: this.names.length * ROW + (this.names.length ? 10 : 0),
      requests: data.requests.length ? 20 : 0,
      line: 20,
      commands: 32,
      events: 32,
      time: 24,
    };
    let y = 4;
    for (const [name, height] of Object.entries(heights)) {
      this[name] = { y, height };
      y += height;
    }
    this.height = y;
  }
}

/** What lies under the pointer. The last one drawn lies on top. */
class Hits {
  constructor(layout) {
    this.layout = layout;
    this.list = [];
  }

  add(lane, x, until, item, row = null) {
    const { y, height } = this.layout[lane];
    const top = row === null ? y : y + 5 + row * ROW;
    this.list.push({ x, until, top, bottom: row === null ? y + height : top + ROW, item });
  }

  at(x, y) {
    const under = (one, slack) =>
      one.x - slack <= x && x <= one.until + slack && one.top <= y && y <= one.bottom;
    const found = this.list.findLast((one) => under(one, 0)) ?? this.list.findLast((one) => under(one, 4));
    return found?.item ?? null;
  }
}

class Lanes {
  constructor(pen, view, layout, data, hits) {
    Object.assign(this, { pen, view, layout, data, hits, ink: pen.ink, entries: data.entries });
  }

  draw(matches) {
    this.#grid();
    this.#sent();
    this.#waits();
    this.#stages();
    this.#requests();
    this.#line();
    this.#commands();
    this.#events();
    this.#errors();
    this.#matches(matches);
    this.#ends();
  }

  #font(size, weight = 400) {
    return `${weight} ${size}px ${this.ink.sans}`;
  }

  #shows(from, until) {
    return until >= this.view.from && from <= this.view.until;
  }

  /** A soft line above each lane. */
  #grid() {
    for (const lane of ["sent", "waits", "stages", "requests", "line", "commands", "events", "time"]) {
      const { y, height } = this.layout[lane];
      if (height) this.pen.rect(0, y, this.pen.width, 1, this.ink.rule);
    }
  }

  /** Sound at the moment of its sending, as tall as it is long; below, when it was heard. */
  #sent() {
    const { view, pen, ink, data } = this;
    const { y, height } = this.layout.sent;
    if (!height) return;
    const base = y + height - 8;
    for (const answer of data.answers) {
      const end = answer.spans.at(-1)?.[1] ?? answer.first ?? answer.created;
      if (!answer.sent.length || !this.#shows(answer.sent[0][0], Math.max(end, answer.sent.at(-1)[0]))) continue;
      const longest = Math.max(...answer.sent.map(([, piece]) => piece));
      let drawn = -9;
      for (const [at, piece] of answer.sent) {
        const x = Math.round(view.x(at));
        if (x <= drawn || x < view.left) continue;
        drawn = x;
        const tall = Math.max(2, (piece / longest) * (height - 12));
        pen.rect(x, base - tall, 2, tall, ink.answer, 0.55);
      }
      for (const [from, until] of answer.spans) {
        pen.rect(view.x(from), base + 2, Math.max(1, view.x(until) - view.x(from)), 3, ink.answer);
      }
      const [first, last] = [answer.sent[0][0], answer.sent.at(-1)[0]];
      this.hits.add("sent", view.x(first), Math.max(view.x(end), view.x(last) + 4), {
        seq: answer.seq,
        at: first,
        text: `${long(answer.sent_ms)} of sound sent in ${ms(last - first)}, ${long(answer.heard_ms)} of it heard`,
      });
    }
  }

  /** From the end of the voice to the first sound, and what that time went to. */
  #waits() {
    const { view, pen, ink, data } = this;
    const { y } = this.layout.waits;
    for (const wait of data.waits) {
      if (!this.#shows(wait.start, wait.end)) continue;
      const [x, until] = [view.x(wait.start), view.x(wait.end)];
      wait.parts.forEach((part, i) => {
        const [from, to] = [view.x(part.start), view.x(part.end)];
        const colour = i === 0 ? ink.you : ink.answer;
        pen.rect(from, y + 19, Math.max(1, to - from - 1), 6, colour, i % 2 || i === 0 ? 1 : 0.55);
        pen.text(`${part.name} ${Math.round((part.end - part.start) * 1000)}`, from, y + 34, {
          font: this.#font(9.5),
          colour: ink.soft,
          room: to - from - 3,
        });
        const text = `${part.name}: ${ms(part.end - part.start)} of ${ms(wait.end - wait.start)}`;
        this.hits.add("waits", from, to, { seq: wait.seq, at: part.start, text });
      });
      const label = ms(wait.end - wait.start);
      if (until - x > 12) pen.text(label, x, y + 14, { font: this.#font(11.5, 600), colour: ink.ink });
    }
  }

  /** Waiting is a line, work up to the first output is dark, what follows is light. */
  #stages() {
    const { view, pen, ink, data, layout } = this;
    for (const one of data.stages) {
      if (!this.#shows(one.queued, one.end)) continue;
      const row = layout.names.indexOf(one.stage);
      const y = layout.stages.y + 5 + row * ROW;
      const [queued, start, first, end] = [one.queued, one.start, one.first, one.end].map((at) => view.x(at));
      pen.rect(queued, y + 6, Math.max(0, start - queued), 1, ink.edge);
      pen.rect(start, y + 3, Math.max(2, end - start), 7, ink.answer, 0.35);
      pen.rect(start, y + 3, Math.max(2, first - start), 7, ink.answer);
      const { queue_ms: waited = 0, first_output_ms: sooner = 0, total_ms: total = 0, outputs = 0 } = one.cost;
      const numbers = [waited, sooner, total].map((value) => Math.round(value).toLocaleString("en"));
      if (view.perSecond > 20) {
        const words = { font: this.#font(10), colour: ink.soft, room: 70 };
        pen.text(`${numbers[1]} ms`, Math.max(end, start + 2) + 5, y + 10, words);
      }
      this.hits.add(
        "stages",
        queued,
        Math.max(end, queued + 2),
        {
          seq: one.seq,
          at: one.start,
          text:
            `${one.stage}: ${numbers[0]} ms until it began, first output after ${numbers[1]} ms, ` +
            `${numbers[2]} ms in all, ${outputs} outputs`,
        },
        row,
      );
    }
  }

  #requests() {
    const { view, pen, ink, data, layout } = this;
    const { y } = layout.requests;
    for (const one of data.requests) {
      const last = one.end ?? data.seconds;
      if (!this.#shows(one.start, last)) continue;
      const [start, first, end] = [one.start, one.first ?? last, last].map((at) => view.x(at));
      pen.rect(start, y + 8, Math.max(2, first - start), 5, ink.edge);
      pen.rect(first, y + 8, Math.max(0, end - first), 5, ink.edge, 0.45);
      if (one.how === "aborted") pen.rect(end - 2, y + 5, 2, 11, ink.rubric);
      const told = one.accepted === null ? "" : `, accepted after ${ms(one.accepted - one.start)}`;
      const spoke = one.first === null ? "" : `, first output after ${ms(one.first - one.start)}`;
      this.hits.add("requests", start, Math.max(end, start + 3), {
        seq: one.seq,
        at: one.start,
        text: `${one.id}${told}${spoke}, ${one.how ?? "running"} after ${ms(last - one.start)}`,
      });
    }
  }

  #line() {
    const { view, pen, ink, data, layout } = this;
    const { y } = layout.line;
    data.connections.forEach((one, i) => {
      const last = one.end ?? data.seconds;
      const next = data.connections[i + 1];
      if (!this.#shows(one.start, next?.start ?? last)) return;
      const [x, until] = [view.x(one.start), view.x(last)];
      pen.rect(x, y + 9, Math.max(2, until - x), 2, ink.soft);
      pen.rect(x, y + 5, 2, 10, ink.soft);
      if (one.end !== null) pen.rect(until - 1, y + 5, 2, 10, one.reason === "client_close" ? ink.soft : ink.rubric);
      if (one.reason) {
        const room = (next ? view.x(next.start) : pen.width) - until - 8;
        const words = one.reason.replaceAll("_", " ");
        pen.text(words, until + 5, y + 14, { font: this.#font(10.5), colour: ink.soft, room });
      }
      this.hits.add("line", x, until, {
        seq: 0,
        at: one.start,
        text: `Connection ${one.attachment}, ${clock(last - one.start, 1)}, ${one.reason ?? "still open"}`,
      });
    });
  }

  /** The entries in view; of many that fall on one pixel the one that says most. */
  *#visible(wanted) {
    const { view, entries } = this;
    const last = Math.min(entries.count, entries.firstAt(view.until) + 1);
    for (let i = Math.max(0, entries.firstAt(view.from) - 1); i < last; i += 1) if (wanted(i)) yield i;
  }

  #ticks(lane, wanted, colourOf, nameOf) {
    const { view, pen, ink, entries } = this;
    const { y } = this.layout[lane];
    const seen = { true: -1, false: -1 };
    let words = -1;
    const loud = [];
    for (const i of this.#visible(wanted)) {
      const quiet = entries.quiet(i) || entries.counts[i] === 0;
      const x = Math.round(view.x(entries.at(i)));
      if (x < view.left || x === seen[quiet]) continue;
      seen[quiet] = x;
      if (quiet) pen.rect(x, y + 23, 1, 5, ink.edge, 0.7);
      else loud.push([i, x]);
    }
    loud.forEach(([i, x], k) => {
      pen.rect(x, y + 17, 2, 11, colourOf(i));
      const next = loud[k + 1]?.[1] ?? pen.width;
      const name = nameOf(i);
      const font = this.#font(10);
      const wide = pen.measure(name, font);
      if (x >= words && next - x > Math.min(wide + 4, 64)) {
        pen.text(name, x, y + 12, { font, colour: ink.soft, room: next - x - 4 });
        words = x + Math.min(wide, next - x) + 4;
      }
    });
  }

  #commands() {
    const { entries, ink } = this;
    const colours = { client: ink.you, engine: ink.soft };
    this.#ticks(
      "commands",
      (i) => entries.group(i) !== "stage",
      (i) => colours[entries.group(i)],
      (i) => entries.command(i),
    );
  }

  #events() {
    const { entries, ink } = this;
    const told = (i) => {
      const events = entries.events(i);
      return events.find((name) => LOUD.has(name)) ?? events.find((name) => !USUAL.has(name)) ?? events[0];
    };
    const colour = (name) => {
      if (/^(Interrupted|ErrorReported|HistoryCut|SessionDetached)/.test(name)) return ink.rubric;
      if (/^(Audio(?!Delta)|Speech|Input|User|Turn)/.test(name)) return ink.you;
      return /^(Response|Output|AudioDelta|TextDelta|Request|Call)/.test(name) ? ink.answer : ink.soft;
    };
    this.#ticks(
      "events",
      (i) => entries.counts[i] > 0,
      (i) => colour(told(i)),
      told,
    );
  }

  #errors() {
    const { view, pen, ink, data, layout } = this;
    for (const mark of data.errors) {
      const x = view.x(mark.at);
      if (x < view.left || x > pen.width) continue;
      pen.context.fillStyle = ink.rubric;
      pen.context.beginPath();
      pen.context.arc(x, layout.events.y + 8, 3, 0, 2 * Math.PI);
      pen.context.fill();
    }
  }

  #matches(matches) {
    const { view, pen, ink, entries, layout } = this;
    let drawn = -1;
    for (const i of matches) {
      const x = Math.round(view.x(entries.at(i)));
      if (x === drawn || x < view.left || x > pen.width) continue;
      drawn = x;
      pen.rect(x, layout.commands.y + 1, 2, layout.commands.height + layout.events.height - 2, ink.rubric, 0.5);
    }
  }

  /** Behind the last entry nothing is known. */
  #ends() {
    const { view, pen, ink, data, layout } = this;
    const x = Math.round(view.x(data.seconds));
    if (x > pen.width) return;
    pen.rect(x, layout.captions.y, 1, layout.time.y, ink.soft);
  }

  /** The names of the lanes, on a margin that fades out. */
  names() {
    const { pen, ink, layout } = this;
    const { context } = pen;
    const fade = context.createLinearGradient(layout.left * 0.8, 0, layout.left, 0);
    fade.addColorStop(0, ink.paper);
    fade.addColorStop(1, `${ink.paper}00`); // the same colour, so that nothing grey lies between
    context.fillStyle = fade;
    context.fillRect(0, 0, layout.left, pen.height);
    const x = layout.narrow ? 10 : 16;
    const usual = { font: this.#font(layout.narrow ? 11 : 12), colour: ink.soft, room: layout.left - x - 4 };
    const name = (words, y, options = {}) => pen.text(words, x, y, { ...usual, ...options });
    const voice = { font: this.#font(13, 600) };
    if (layout.you.height) name("You", layout.you.y + layout.you.height / 2 + 4, { ...voice, colour: ink.you });
    if (layout.speech.height) name("speech", layout.speech.y + 16, { colour: ink.you });
    const middle = ({ y, height }) => y + height / 2 + 4;
    if (layout.answer.height) name("Answer", middle(layout.answer), { ...voice, colour: ink.answer });
    if (layout.sent.height) {
      name("sent", layout.sent.y + 12, { colour: ink.answer });
      name("heard", layout.sent.y + 24, { colour: ink.answer });
    }
    if (layout.waits.height) name("waits", layout.waits.y + 26);
    layout.names.forEach((stage, i) => name(stage, layout.stages.y + 5 + i * ROW + 10));
    if (layout.requests.height) name("requests", layout.requests.y + 14);
    name("line", layout.line.y + 14);
    name("commands", layout.commands.y + 20);
    name("events", layout.events.y + 20);
  }

  time() {
    const { view, pen, ink, layout } = this;
    const every = SCALES.find((step) => step * view.perSecond >= 64) ?? 7200;
    const digits = every < 0.01 ? 3 : every < 0.1 ? 2 : every < 1 ? 1 : 0;
    for (let i = Math.max(0, Math.ceil(view.from / every)); i * every <= view.until; i += 1) {
      const x = Math.round(view.x(i * every));
      if (x < view.left) continue;
      pen.rect(x, layout.time.y, 1, 6, ink.edge);
      const words = { font: this.#font(11), colour: ink.soft, room: pen.width - x };
      pen.text(clock(i * every, digits), x + 4, layout.time.y + 16, words);
    }
  }

  /** The entry that was chosen: a line from top to bottom. */
  chosen(at) {
    const { view, pen, ink, layout } = this;
    const x = Math.round(view.x(at));
    if (x < view.left || x > pen.width) return;
    pen.rect(x - 2, layout.captions.y, 5, layout.time.y - layout.captions.y, ink.ink, 0.1);
    pen.rect(x, layout.captions.y, 1, layout.time.y - layout.captions.y, ink.ink);
  }
}
