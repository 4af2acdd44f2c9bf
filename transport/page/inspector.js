/** Every event on the wire, in its order; one of them at a time in full. */

const MOST = 400;
const NEAR = 6; // rows in which a beat finds the one before it
const BEAT = /\.(delta|append)$|^playback\.|^overlap\.decision$|heartbeat/; // what comes all the time is counted
const LONGEST = 96; // characters of a long string that are shown

export class Inspector {
  #entries = [];
  #began = 0;
  #chosen = null;

  constructor({ list, detail, filter, count }) {
    Object.assign(this, { list, detail, filter, count });
    list.replaceChildren();
    detail.textContent = "";
    list.onkeydown = (event) => this.#key(event);
    list.onclick = ({ target }) => this.#choose(target.closest("li"));
    filter.oninput = () => this.#sift();
    this.seen = 0;
  }

  /** @param {"in"|"out"} way */
  note(event, way, at) {
    this.#began ||= at;
    this.seen += 1;
    this.count.textContent = this.seen.toLocaleString("en");
    const last = BEAT.test(event.type) && this.#entries.slice(-NEAR).findLast((one) => alike(one.event, event));
    if (last) {
      last.times += 1;
      last.event = event;
      last.tally.textContent = `×${last.times}`;
      last.number.textContent = event.server_event_seq ?? "";
      if (last.element === this.#chosen) this.#show(last);
      return;
    }
    this.#add({ event, way, at: at - this.#began, times: 1 });
  }

  /** Show the event with this number, if it is still there. */
  find(number) {
    const entry = this.#entries.find(({ event }) => event.server_event_seq === number);
    if (!entry) return;
    this.#choose(entry.element);
    entry.element.scrollIntoView({ block: "center" });
  }

  #add(entry) {
    const element = document.createElement("li");
    element.className = entry.way;
    element.setAttribute("role", "option");
    element.tabIndex = this.#entries.length ? -1 : 0;
    const cells = ["time", "arrow", "type", "tally", "number"].map((name) => {
      const cell = document.createElement("span");
      cell.className = name;
      return cell;
    });
    const [time, arrow, type, tally, number] = cells;
    time.textContent = entry.at.toFixed(2);
    arrow.textContent = entry.way === "in" ? "←" : "→";
    arrow.setAttribute("role", "img");
    arrow.setAttribute("aria-label", entry.way === "in" ? "received" : "sent");
    type.textContent = entry.event.type;
    type.classList.toggle("bad", entry.event.type === "error");
    number.textContent = entry.event.server_event_seq ?? "";
    element.append(...cells);
    Object.assign(entry, { element, tally, number });
    element.hidden = !this.#wanted(entry);
    const follows = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 60;
    this.#entries.push(entry);
    this.list.append(element);
    if (this.#entries.length > MOST) this.#forgetOldest();
    if (follows) this.list.scrollTop = this.list.scrollHeight;
  }

  #forgetOldest() {
    const { element } = this.#entries.shift();
    const focused = element.tabIndex === 0;
    element.remove();
    if (focused) this.#entries[0].element.tabIndex = 0;
  }

  #wanted({ event }) {
    return event.type.includes(this.filter.value.trim().toLowerCase());
  }

  #sift() {
    for (const entry of this.#entries) entry.element.hidden = !this.#wanted(entry);
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const shown = this.#entries.filter(({ element }) => !element.hidden);
    const at = shown.findIndex(({ element }) => element === this.#chosen);
    const next = shown[Math.max(0, Math.min(shown.length - 1, at + step))];
    if (next) this.#choose(next.element);
  }

  #choose(element) {
    const entry = this.#entries.find((one) => one.element === element);
    if (!entry) return;
    for (const one of this.#entries) {
      one.element.setAttribute("aria-selected", String(one === entry));
      one.element.tabIndex = one === entry ? 0 : -1;
    }
    this.#chosen = element;
    if (this.list.contains(document.activeElement)) element.focus();
    this.#show(entry);
  }

  #show({ event }) {
    this.detail.textContent = JSON.stringify(event, short, 2);
  }
}

function alike(one, other) {
  return one.type === other.type && one.reason === other.reason;
}

/** Long strings are sound or pictures, and nobody reads tokens. */
function short(name, value) {
  if (name === "resume_token") return "…";
  return typeof value === "string" && value.length > LONGEST ? `${value.slice(0, 48)}… (${value.length})` : value;
}
