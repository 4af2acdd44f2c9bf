/** The conversation as words. What was heard of an answer is set in ink; what was not stays pale. */

import { heardCharacters } from "./story.js";

export class Transcript {
  #rows = new Map();
  #lastSpoken = "";

  /** @param {HTMLElement} list @param {HTMLElement} live where finished sentences are told aloud */
  constructor(list, live, { dedupe = false } = {}) {
    Object.assign(this, { list, live, dedupe });
    list.replaceChildren();
  }

  /** The rows as words, for a page that goes on with them. */
  kept() {
    return [...this.#rows].map(([id, { element, heard, unheard, note }]) => ({
      id,
      voice: element.classList.contains("user") ? "user" : "answer",
      cut: element.classList.contains("cut"),
      words: [heard, unheard, note].map((part) => part.textContent),
    }));
  }

  restore(rows) {
    for (const { id, voice, cut, words } of rows) {
      const row = this.#row(id, voice);
      [row.heard, row.unheard, row.note].forEach((part, i) => (part.textContent = words[i]));
      row.element.classList.toggle("cut", cut);
    }
    this.#follow();
  }

  user(item, { text, open, final, gone }) {
    if (gone) return this.#remove(item);
    const row = this.#row(item, "user");
    if (text !== undefined) row.heard.textContent = text;
    row.element.classList.toggle("listening", Boolean(open));
    if (final && text) this.#tell(`You: ${text}`);
    return this.#follow();
  }

  answer(answer) {
    if (!answer.text && !answer.receivedMs) return;
    const row = this.#row(answer.id, "answer");
    const over = answer.done !== null && (answer.cut !== null || answer.heardMs >= answer.receivedMs - 1);
    if (this.dedupe && answer.done !== null && answer.text.trim() === this.#lastSpoken && !row.told) {
      this.#remove(answer.id);
      return;
    }
    const heard = answer.receivedMs ? heardCharacters(answer, answer.heardMs) : answer.text.length;
    row.heard.textContent = answer.text.slice(0, heard);
    row.unheard.textContent = answer.text.slice(heard);
    row.element.classList.toggle("cut", answer.cut !== null);
    row.note.textContent = noteOf(answer);
    if (over && !row.told) {
      row.told = true;
      this.#lastSpoken = answer.text.trim();
      this.#tell(`Answer: ${answer.text.slice(0, heard)}${answer.cut ? " (interrupted)" : ""}`);
    }
    this.#follow();
  }

  #row(id, voice) {
    const known = this.#rows.get(id);
    if (known) return known;
    const element = document.createElement("li");
    element.className = `row ${voice}`;
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    mark.setAttribute("class", "versal");
    mark.setAttribute("aria-hidden", "true");
    mark.setAttribute("viewBox", "0 0 24 24");
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    use.setAttribute("href", voice === "user" ? "#versicle" : "#response");
    mark.append(use);
    const words = document.createElement("p");
    const [heard, unheard, note, who] = ["span", "span", "small", "span"].map((tag) => document.createElement(tag));
    heard.className = "heard";
    unheard.className = "unheard";
    who.className = "sr";
    who.textContent = voice === "user" ? "You: " : "Answer: ";
    words.append(who, heard, unheard, note);
    element.append(mark, words);
    this.list.append(element);
    const row = { element, heard, unheard, note, told: false };
    this.#rows.set(id, row);
    return row;
  }

  #remove(id) {
    this.#rows.get(id)?.element.remove();
    this.#rows.delete(id);
  }

  #tell(sentence) {
    this.live.textContent = sentence;
  }

  /** Keep the newest words in sight, unless the reader has scrolled away. */
  #follow() {
    const box = this.list.parentElement;
    if (box.scrollHeight - box.scrollTop - box.clientHeight < 160) box.scrollTop = box.scrollHeight;
  }
}

function noteOf(answer) {
  if (answer.cut) return `interrupted after ${(answer.cut.ms / 1000).toFixed(1)} s`;
  if (answer.status === "failed") return "failed";
  if (answer.status === "incomplete") return "cut short";
  return "";
}
