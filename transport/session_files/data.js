/** What stands in the page: compressed bytes, unpacked into typed arrays; entries only when they are asked for. */

const GROUPS = ["client", "stage", "engine"];
const QUIET = 4;

function bytesOf(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The first place in a sorted list whose value is at least `value`. */
function firstAt(list, value, key = (one) => one) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(list[middle]) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** How loud a voice was: the steps, and above them the loudest of two, of four, of eight … of them. */
class Levels {
  constructor(bytes, stepMs) {
    this.step = stepMs / 1000;
    this.tiers = [bytes];
    while (this.tiers.at(-1).length > 64) {
      const below = this.tiers.at(-1);
      const tier = new Uint8Array((below.length + 1) >> 1);
      for (let i = 0; i < below.length; i += 1) tier[i >> 1] = Math.max(tier[i >> 1], below[i]);
      this.tiers.push(tier);
    }
    this.any = this.tiers.at(-1).some((peak) => peak > 0);
  }

  /** The loudest step between two times. */
  peak(from, until) {
    let first = Math.max(0, Math.floor(from / this.step));
    let last = Math.max(first, Math.ceil(until / this.step) - 1);
    let tier = 0;
    while (last - first > 2 && tier + 1 < this.tiers.length) {
      first >>= 1;
      last >>= 1;
      tier += 1;
    }
    let peak = 0;
    for (let i = first; i <= last; i += 1) peak = Math.max(peak, this.tiers[tier][i] ?? 0);
    return peak;
  }
}

/** The entries of the log, by their place from 0 on; the sequence is one more. */
class Entries {
  #blocks = null;
  #lines = new Map();

  constructor(bytes, index) {
    const count = index.tableau.transactions;
    this.index = index;
    this.count = count;
    this.first = index.first ?? 1;
    this.times = new Uint32Array(bytes.buffer, 0, count);
    this.counts = new Uint16Array(bytes.buffer, 4 * count, count);
    this.commands = bytes.subarray(6 * count, 7 * count);
    this.groups = bytes.subarray(7 * count, 8 * count);
    this.kinds = bytes.subarray(8 * count);
    this.offsets = new Uint32Array(count + 1);
    for (let i = 0; i < count; i += 1) this.offsets[i + 1] = this.offsets[i] + this.counts[i];
  }

  at(i) {
    return this.times[i] / 1e4;
  }

  /** The first entry at or behind a time. */
  firstAt(at) {
    return firstAt(this.times, Math.round(at * 1e4));
  }

  quiet(i) {
    return (this.groups[i] & QUIET) !== 0;
  }

  group(i) {
    return GROUPS[this.groups[i] & 3];
  }

  command(i) {
    return this.index.commands[this.commands[i]];
  }

  events(i) {
    const kinds = this.kinds.subarray(this.offsets[i], this.offsets[i + 1]);
    return Array.from(kinds, (kind) => this.index.events[kind]);
  }

  title(i) {
    const events = this.events(i);
    return `${this.command(i)}${events.length ? ` → ${events.join(", ")}` : ""}`;
  }

  /** Places of the entries in which a word stands among the names of command and events. */
  search(word) {
    const wanted = word.toLowerCase();
    const matches = (name) => name.toLowerCase().includes(wanted);
    const commands = this.index.commands.map(matches);
    const events = this.index.events.map(matches);
    const found = [];
    for (let i = 0; i < this.count; i += 1) {
      let hit = commands[this.commands[i]];
      for (let k = this.offsets[i]; !hit && k < this.offsets[i + 1]; k += 1) hit = events[this.kinds[k]];
      if (hit) found.push(i);
    }
    return found;
  }

  /** The whole entry as indented JSON; null: it was left out of the page. */
  async text(i) {
    const block = Math.floor(i / this.index.block);
    if (!this.#lines.has(block)) {
      this.#blocks ??= bytesOf("blocks");
      const start = this.index.blocks.slice(0, block).reduce((sum, size) => sum + size, 0);
      const bytes = await inflated(this.#blocks.subarray(start, start + this.index.blocks[block]));
      this.#lines.set(block, new TextDecoder().decode(bytes).split("\n"));
    }
    const line = this.#lines.get(block)[i % this.index.block];
    return line ? JSON.stringify(JSON.parse(line), null, 2) : null;
  }
}

async function unpack() {
  const [index, levels, entries] = await Promise.all(
    ["index", "levels", "entries"].map((id) => inflated(bytesOf(id))),
  );
  const told = JSON.parse(new TextDecoder().decode(index));
  const voice = (i) => new Levels(levels.subarray(i * told.steps, (i + 1) * told.steps), told.step_ms);
  return {
    ...told.tableau,
    index: told,
    user: voice(0),
    heard: voice(1),
    unheard: voice(2),
    speech: voice(3),
    span: (told.steps * told.step_ms) / 1000,
    entries: new Entries(entries, told),
  };
}
