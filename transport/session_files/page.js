/** The page: what is looked at, what is pointed at, what was chosen. */

const $ = (id) => document.getElementById(id);
const STEP = 0.25; // of the width, for a step along the time
const FIRST = 90; // seconds that are seen at first of a session that is much longer

class Page {
  #chosen = null; // the place of an entry
  #matches = [];
  #pointers = new Map();
  #moved = false;
  #frame = 0;

  constructor(data) {
    this.data = data;
    this.entries = data.entries;
    this.view = new View(data.span);
    if (data.span > 2 * FIRST) this.view.show(0, FIRST);
    else this.view.all();
    this.canvas = $("score");
    this.overview = $("overview");
    this.#head();
    this.#latencies();
    this.#listen();
    this.#restyle();
    this.#fromAddress();
  }

  // -- what stands on the page -----------------------------------------------------------------------------------

  #head() {
    const { data } = this;
    const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
    const opened = new Date(data.opened_us / 1000).toISOString().slice(0, 19).replace("T", " ");
    $("name").textContent = data.session;
    $("facts").textContent = [
      `${opened} UTC`,
      clock(data.seconds, 1),
      data.plugin,
      count(data.turns.length, "turn"),
      count(data.answers.length, "answer"),
      count(data.interruptions.length, "interruption"),
      count(data.transactions, "entry").replace("entrys", "entries"),
      data.closed ? `closed: ${data.closed}` : "not closed",
    ].join(" · ");
    $("cuts").hidden = !data.interruptions.length;
    $("turns").hidden = !data.turns.length;
    $("kinds").replaceChildren(
      ...[...new Set([...data.index.commands, ...data.index.events])].sort().map((name) => {
        const option = document.createElement("option");
        option.value = name;
        return option;
      }),
    );
  }

  /** The waits as a list: each a button that leads to its place. */
  #latencies() {
    const { waits } = this.data;
    $("waits").hidden = !waits.length;
    const longest = Math.max(...waits.map((wait) => wait.end - wait.start));
    $("latencies").replaceChildren(
      ...waits.map((wait) => {
        const row = document.createElement("li");
        const button = document.createElement("button");
        button.type = "button";
        const part = (tag, kind, words) => {
          const one = document.createElement(tag);
          if (kind) one.className = kind;
          one.textContent = words;
          button.append(one);
          return one;
        };
        part("span", "when", clock(wait.start, 1));
        part("b", "", ms(wait.end - wait.start));
        const bar = part("span", "bar", "");
        for (const { start, end } of wait.parts) {
          const piece = document.createElement("i");
          piece.style.width = `${((end - start) / longest) * 100}%`;
          bar.append(piece);
        }
        const each = ({ name, start, end }) => `${name} ${Math.round((end - start) * 1000)}`;
        part("small", "", wait.parts.map(each).join(" · "));
        button.addEventListener("click", () => {
          const room = Math.max(1, wait.end - wait.start);
          this.view.show(wait.start - room, wait.end + room);
          this.#choose(wait.seq - this.entries.first);
        });
        row.append(button);
        return row;
      }),
    );
  }

  // -- drawing ---------------------------------------------------------------------------------------------------

  #restyle() {
    this.ink = inksOf(document.body);
    this.#soon();
  }

  #soon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    const { canvas, data, view, ink } = this;
    const layout = new Layout(data, canvas.clientWidth);
    canvas.style.height = `${layout.height}px`;
    Object.assign(view, { width: canvas.clientWidth, left: layout.left });
    const pen = new Pen(canvas, ink);
    this.layout = layout;
    this.hits = new Hits(layout);
    const lanes = new Lanes(pen, view, layout, data, this.hits);
    new Voices(pen, view, layout, data, this.hits).draw();
    lanes.draw(this.#matches);
    if (this.#chosen !== null) lanes.chosen(this.entries.at(this.#chosen));
    lanes.names();
    lanes.time();
    this.#drawOverview();
  }

  /** The whole session, and the part of it that is looked at. */
  #drawOverview() {
    const { data, view, ink } = this;
    const pen = new Pen(this.overview, ink);
    const whole = new View(data.span);
    Object.assign(whole, { width: pen.width, left: 0 });
    this.whole = whole;
    const seconds = 2 / whole.perSecond;
    for (let x = 0; x < pen.width; x += 2) {
      const at = whole.at(x);
      for (const [levels, middle, colour] of [
        [data.user, 13, ink.you],
        [data.heard, 31, ink.answer],
      ]) {
        const peak = levels.peak(at, at + seconds);
        const tall = Math.max(0.5, (peak / 255) * 10);
        if (peak) pen.rect(x, middle - tall, 1, 2 * tall, colour);
      }
    }
    for (const mark of data.interruptions) pen.rect(Math.round(whole.x(mark.at)), 3, 1, 38, ink.rubric);
    const [from, until] = [whole.x(view.from), whole.x(view.until)];
    pen.rect(0, 0, Math.max(0, from), pen.height, ink.paper, 0.65);
    pen.rect(until, 0, pen.width - until, pen.height, ink.paper, 0.65);
    pen.rect(from, 0, 1, pen.height, ink.soft);
    pen.rect(until - 1, 0, 1, pen.height, ink.soft);
  }

  // -- choosing --------------------------------------------------------------------------------------------------

  #choose(i, { reveal = false } = {}) {
    const { entries, canvas } = this;
    if (i < 0 || i >= entries.count) return;
    this.#chosen = i;
    if (reveal) this.view.reveal(entries.at(i));
    const name = `${i + entries.first} · ${clock(entries.at(i), 3)} · ${entries.title(i)}`;
    canvas.setAttribute("aria-valuemax", String(entries.count));
    canvas.setAttribute("aria-valuenow", String(i + 1));
    canvas.setAttribute("aria-valuetext", name);
    this.#tell(i, name);
    this.#soon();
  }

  async #tell(i, name) {
    $("entry-name").textContent = name;
    let text;
    try {
      text = await this.entries.text(i);
    } catch (error) {
      text = `This entry cannot be unpacked: ${error.message}`;
    }
    if ($("entry-name").textContent !== name) return; // something else is meant by now
    $("entry-text").textContent =
      text ?? "Of so long a session, pieces of sound are not in the page; `antiphon log show --all` has them.";
  }

  /** What is meant by a place: something that was drawn there, or the entry next to it. */
  #under(x, y) {
    const item = this.hits?.at(x, y);
    const { entries, view, layout } = this;
    if (item) return { ...item, entry: item.seq ? item.seq - entries.first : this.#entryAt(item.at) };
    if (!layout || x < layout.left) return null;
    const commands = y < layout.events.y && y >= layout.commands.y;
    const events = y >= layout.events.y && y < layout.time.y;
    const wanted = commands ? (i) => entries.group(i) !== "stage" : events ? (i) => entries.counts[i] > 0 : null;
    const i = wanted ? this.#near(view.at(x), wanted) : this.#near(view.at(x), () => true);
    return i === null ? null : { entry: i, at: entries.at(i), text: entries.title(i) };
  }

  #entryAt(at) {
    return Math.min(this.entries.firstAt(at), this.entries.count - 1);
  }

  /** The wanted entry that is nearest to a time; of those on one pixel, one that is not quiet. */
  #near(at, wanted) {
    const { entries, view } = this;
    let best = null;
    const pixel = 1 / view.perSecond;
    const middle = entries.firstAt(at);
    for (let i = Math.max(0, middle - 400); i < Math.min(entries.count, middle + 400); i += 1) {
      if (!wanted(i)) continue;
      const away = Math.max(Math.abs(entries.at(i) - at), 4 * pixel) + (entries.quiet(i) ? 4 * pixel : 0);
      if (best === null || away < best.away) best = { i, away };
    }
    return best?.i ?? null;
  }

  #say(under, x, y) {
    const readout = $("readout");
    readout.textContent = under ? `${clock(under.at, 3)}  ${under.text}` : "";
    if (!under) return;
    const [width, height] = [readout.offsetWidth, readout.offsetHeight];
    readout.style.left = `${Math.max(4, Math.min(x + 14, this.view.width - width - 4))}px`;
    readout.style.top = `${y + 20 + height > this.layout.height ? Math.max(2, y - height - 12) : y + 20}px`;
  }

  /** The next one of these times behind (or before) where one looks. */
  #go(marks, on) {
    const { entries, view } = this;
    const here = this.#chosen === null ? view.from : entries.at(this.#chosen);
    const found = on ? marks.find((one) => one.at > here + 1e-4) : marks.findLast((one) => one.at < here - 1e-4);
    if (!found) return;
    this.view.reveal(found.at);
    this.#choose(found.seq ? found.seq - entries.first : this.#entryAt(found.at), { reveal: true });
  }

  get #turns() {
    const at = ({ seq, start }) => (seq ? this.entries.at(seq - this.entries.first) : start);
    return this.data.turns.map((turn) => ({ seq: turn.seq, at: at(turn) }));
  }

  #stepTo(direction, all) {
    const { entries, view } = this;
    let i = this.#chosen ?? entries.firstAt(view.from) - (direction > 0 ? 1 : 0);
    do i += direction;
    while (i >= 0 && i < entries.count && !all && entries.quiet(i));
    this.#choose(i, { reveal: true });
  }

  #find(word) {
    this.#matches = word ? this.entries.search(word) : [];
    $("found").textContent = word ? this.#matches.length.toLocaleString("en") : "";
    this.#soon();
  }

  // -- hands -----------------------------------------------------------------------------------------------------

  #listen() {
    const { canvas, overview, view } = this;
    new ResizeObserver(() => this.#soon()).observe(canvas);
    for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) {
      matchMedia(query).addEventListener("change", () => this.#restyle());
    }
    canvas.addEventListener("pointerdown", (event) => this.#grab(event));
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => this.#release(event));
    canvas.addEventListener("pointerleave", () => this.#say(null));
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    const look = (event) => {
      if (event.type === "pointermove" && !event.buttons) return;
      const half = (view.until - view.from) / 2;
      const at = this.whole.at(event.offsetX);
      view.show(at - half, at + half);
      this.#soon();
    };
    for (const kind of ["pointerdown", "pointermove"]) overview.addEventListener(kind, look);
    const press = (id, action) =>
      $(id).addEventListener("click", () => {
        action();
        this.#soon();
      });
    press("in", () => view.zoom(0.5));
    press("out", () => view.zoom(2));
    press("all", () => view.all());
    press("back", () => this.#go(this.#turns, false));
    press("on", () => this.#go(this.#turns, true));
    press("cut-back", () => this.#go(this.data.interruptions, false));
    press("cut-on", () => this.#go(this.data.interruptions, true));
    $("word").addEventListener("input", () => this.#find($("word").value.trim()));
    $("find").addEventListener("submit", (event) => {
      event.preventDefault();
      const marks = this.#matches.map((i) => ({ seq: i + this.entries.first, at: this.entries.at(i), i }));
      const after = marks.find(({ i }) => this.#chosen === null || i > this.#chosen) ?? marks[0];
      if (after) this.#choose(after.i, { reveal: true });
    });
    addEventListener("hashchange", () => this.#fromAddress());
  }

  /** `#seq=123` in the address leads to an entry. */
  #fromAddress() {
    const wanted = /^#seq=(\d{1,9})$/.exec(location.hash);
    if (!wanted) return;
    const i = Number(wanted[1]) - this.entries.first;
    if (i < 0 || i >= this.entries.count) return;
    const at = this.entries.at(i);
    this.view.show(at - 3, at + 3);
    this.#choose(i);
  }

  #grab(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, event.offsetX);
    this.#moved = this.#pointers.size > 1;
  }

  #point(event) {
    const before = this.#pointers.get(event.pointerId);
    if (before === undefined) {
      this.#say(this.#under(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
      return;
    }
    const { view } = this;
    if (this.#pointers.size === 2) {
      const [other] = [...this.#pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
      const factor = Math.max(20, Math.abs(before - other)) / Math.max(20, Math.abs(event.offsetX - other));
      view.zoom(factor, view.at(other));
    } else {
      if (!this.#moved && Math.abs(event.offsetX - before) < 4) return;
      view.pan((before - event.offsetX) / view.perSecond);
    }
    this.#moved = true;
    this.#pointers.set(event.pointerId, event.offsetX);
    this.#say(null);
    this.#soon();
  }

  #release(event) {
    if (!this.#pointers.delete(event.pointerId) || this.#moved || event.type === "pointercancel") return;
    const under = this.#under(event.offsetX, event.offsetY);
    if (under) this.#choose(under.entry);
    if (event.pointerType === "touch") this.#say(under, event.offsetX, event.offsetY);
  }

  #wheel(event) {
    event.preventDefault();
    const { view } = this;
    const along = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (Math.abs(along) > Math.abs(event.shiftKey ? 0 : event.deltaY)) view.pan(along / view.perSecond);
    else view.zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY)) * 0.0022), view.at(event.offsetX));
    this.#soon();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey) return;
    const { view, data } = this;
    const along = (view.until - view.from) * STEP;
    const keys = {
      ArrowLeft: () => (event.shiftKey ? view.pan(-along) : this.#stepTo(-1, event.altKey)),
      ArrowRight: () => (event.shiftKey ? view.pan(along) : this.#stepTo(1, event.altKey)),
      PageUp: () => view.pan(-4 * along),
      PageDown: () => view.pan(4 * along),
      Home: () => this.#choose(0, { reveal: true }),
      End: () => this.#choose(this.entries.count - 1, { reveal: true }),
      "+": () => view.zoom(0.5, this.#middle()),
      "=": () => view.zoom(0.5, this.#middle()),
      "-": () => view.zoom(2, this.#middle()),
      0: () => view.all(),
      t: () => this.#go(this.#turns, true),
      T: () => this.#go(this.#turns, false),
      i: () => this.#go(data.interruptions, true),
      I: () => this.#go(data.interruptions, false),
      "/": () => $("word").focus(),
    };
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
    this.#soon();
  }

  /** Where keys zoom: at the chosen entry if it is seen. */
  #middle() {
    const { view } = this;
    const at = this.#chosen === null ? NaN : this.entries.at(this.#chosen);
    return at >= view.from && at <= view.until ? at : (view.from + view.until) / 2;
  }
}

try {
  globalThis.antiphon = new Page(await unpack());
} catch (error) {
  $("facts").textContent = `This page cannot be shown: ${error.message}`;
  throw error;
}
