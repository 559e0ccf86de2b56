"use strict";
// A program, unpacked: everything that the views show, as typed arrays.  Nothing here touches the page.
//
// A *position* is an index into the program's instructions.  There are two axes, "steps" and "time" (seconds); step k
// is [k, k + 1) on the first, and a moment inside it is placed by its share of the step's time.

const KINDS = ["resident", "input", "map", "gradient map", "weight gradient", "workspace", "momentum", "draining"];
const DRAINING = KINDS.indexOf("draining");
const WORK = [
  "forward", "backward", "rebuild", "copy out", "prefetch", "on demand", "batch, results", "to the store",
  "from the store", "all-reduce", "stalled",
];
const STALLED = WORK.indexOf("stalled");
const COMPUTE = 0; // the stream that every kernel of a layer runs on
const NANOSECOND = 1e-9;

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

class Model {
  constructor(doc) {
    this.doc = doc;
    this.length = doc.ops.length; // instructions
    this.count = doc.steps.layer.length; // steps
    this.depth = doc.depth; // forward steps
    this.stepOfName = new Map(doc.steps.layer.map((_, index) => [this.stepName(index + 1), index + 1]));
    this.seconds = doc.seconds;
    this.tensors = doc.tensors;
    this.numberOf = new Map(doc.tensors.name.map((name, tensor) => [name, tensor]));
    this.#positions();
    this.#clock();
    this.#blocks();
    this.#curve();
    this.#bars();
    this.#uses();
    this.#waits();
  }

  // -- positions, steps and time -------------------------------------------------------------------------------------

  // Position → its step, and its row in the table of its kind: blocks, work, events, launches.
  #positions() {
    const { ops, steps } = this.doc;
    this.stepAt = new Int32Array(this.length + 1);
    this.rowAt = new Int32Array(this.length); // of `blocks` without the resident ones, of `work`, or of `events`
    this.launchAt = new Int32Array(this.length).fill(-1);
    this.workAt = new Int32Array(this.length).fill(-1);
    const next = { blocks: 0, frees: 0, work: 0, events: 0, launches: 0 };
    let step = 0;
    for (let position = 0; position < this.length; position++) {
      while (position >= steps.end[step] && step < this.count) step++;
      this.stepAt[position] = step;
      const op = ops[position];
      const table = op === "a" ? "blocks" : op === "f" ? "frees" : "rw".includes(op) ? "events" : "work";
      this.rowAt[position] = next[table]++;
      if (table === "work") this.workAt[position] = this.rowAt[position];
      if (op === "l") this.launchAt[position] = next.launches++;
    }
    this.stepAt[this.length] = this.count;
    this.positionOf = new Int32Array(next.work); // row of work → its position
    this.workAt.forEach((row, position) => row >= 0 && (this.positionOf[row] = position));
    const { start, ns } = this.doc.work;
    this.starts = Float64Array.from(start, (moment) => moment * NANOSECOND);
    this.ends = Float64Array.from(start, (moment, row) => (moment + ns[row]) * NANOSECOND);
  }

  // When all kernels before a position are done, and when all of a step's are.
  #clock() {
    const { ops, work } = this.doc;
    this.clock = new Float64Array(this.length + 1);
    this.done = new Float64Array(this.count + 2);
    let now = 0;
    for (let position = 0; position < this.length; position++) {
      this.clock[position] = now;
      const row = this.workAt[position];
      if (ops[position] === "l" && work.stream[row] === COMPUTE) now = Math.max(now, this.ends[row]);
      this.done[this.stepAt[position]] = now;
    }
    for (let step = 1; step <= this.count; step++) this.done[step] = Math.max(this.done[step], this.done[step - 1]);
    this.clock[this.length] = this.done[this.count + 1] = Math.max(now, this.seconds);
    // What is copied after the last step has one slot more on the axis of steps.
    this.lastStep = this.count + (this.seconds > now * 1.0005 ? 2 : 1);
  }

  place(position, axis) {
    if (position < 0) return axis === "time" ? 0 : 1;
    if (position >= this.length) return axis === "time" ? this.seconds : this.lastStep;
    if (axis === "time") return this.clock[position];
    const step = this.stepAt[position];
    return step === 0 ? 1 : this.within(this.clock[position], step);
  }

  // A moment that belongs to a step, on the axis of steps.
  within(moment, step) {
    const [begin, end] = [this.done[step - 1], this.done[step]];
    return step + (end > begin ? Math.min(1, Math.max(0, (moment - begin) / (end - begin))) : 0);
  }

  // Any moment, on the axis of steps.
  toSteps(moment) {
    const step = 1 + upper(this.done.subarray(1), moment);
    return Math.min(this.lastStep, this.within(moment, Math.min(step, this.count + 1)));
  }

  // A place on the axis of steps, as a moment.
  toTime(place) {
    const step = Math.min(this.count + 1, Math.max(1, Math.floor(place)));
    return this.done[step - 1] + (place - step) * (this.done[step] - this.done[step - 1]);
  }

  range(step, axis) {
    return axis === "time" ? [this.done[step - 1], this.done[step]] : [step, step + 1];
  }

  stepOf(place, axis) {
    return Math.max(1, Math.min(this.count, Math.floor(axis === "time" ? this.toSteps(place) : place)));
  }

  limits(axis) {
    return axis === "time" ? [0, this.seconds] : [1, this.lastStep];
  }

  direction(step) {
    return step > this.depth ? "backward" : "forward";
  }

  stepName(step) {
    return `${this.doc.steps.layer[step - 1]} ${this.direction(step)}${this.doc.steps.part[step - 1]}`;
  }

  // -- blocks: resident ones first, then in the order of allocation ----------------------------------------------------

  #blocks() {
    const { blocks, kinds, ops } = this.doc;
    const count = blocks.tensor.length;
    const allocations = [];
    for (let position = 0; position < this.length; position++) if (ops[position] === "a") allocations.push(position);
    const resident = count - allocations.length;
    const begin = Int32Array.from({ length: count }, (_, b) => (b < resident ? -1 : allocations[b - resident]));
    const onAxis = (axis) => ({
      begin: Float64Array.from(begin, (position) => this.place(position, axis)),
      released: Float64Array.from(blocks.released, (position) => this.place(position, axis)),
      end: Float64Array.from(blocks.end, (position) => this.place(position, axis)),
    });
    this.blocks = {
      count, resident, begin,
      tensor: Int32Array.from(blocks.tensor),
      kind: Uint8Array.from(blocks.kind, (kind) => KINDS.indexOf(kinds[kind])),
      address: Float64Array.from(blocks.address),
      bytes: Float64Array.from(blocks.bytes),
      released: Int32Array.from(blocks.released), // it drains from here to its end
      end: Int32Array.from(blocks.end),
      time: onAxis("time"),
      steps: onAxis("steps"),
    };
    this.blocksOf = new Map();
    this.freedAt = new Map();
    for (let b = 0; b < count; b++) {
      const tensor = blocks.tensor[b];
      if (!this.blocksOf.has(tensor)) this.blocksOf.set(tensor, []);
      this.blocksOf.get(tensor).push(b);
      if (b >= resident) this.freedAt.set(blocks.end[b], b);
    }
    // Resident tensors that touch are drawn as one rectangle.
    this.residentPieces = [];
    const byAddress = [...Array(resident).keys()].sort((x, y) => blocks.address[x] - blocks.address[y]);
    for (const b of byAddress) {
      const [start, end] = [blocks.address[b], blocks.address[b] + blocks.bytes[b]];
      const last = this.residentPieces.at(-1);
      if (last && last[1] === start) last[1] = end;
      else this.residentPieces.push([start, end]);
    }
    const first = this.residentPieces[0];
    this.residentEnd = first && first[0] === 0 ? first[1] : 0;
  }

  // Bytes held of every kind, at every moment at which that changes.
  #curve() {
    const { blocks } = this;
    const changes = [];
    for (let b = 0; b < blocks.count; b++) {
      const [kind, bytes] = [blocks.kind[b], blocks.bytes[b]];
      const drains = blocks.released[b] < blocks.end[b];
      changes.push([blocks.begin[b] + 1, kind, bytes]);
      if (drains) changes.push([blocks.released[b], kind, -bytes], [blocks.released[b], DRAINING, bytes]);
      if (b >= blocks.resident) changes.push([blocks.end[b] + 1, drains ? DRAINING : kind, -bytes]);
    }
    changes.sort((x, y) => x[0] - y[0]);
    const positions = [];
    const rows = [];
    const now = new Float64Array(KINDS.length);
    for (const [position, kind, bytes] of changes) {
      if (positions.at(-1) !== position) {
        positions.push(position);
        rows.push(now.slice());
      }
      now[kind] += bytes;
      rows[rows.length - 1].set(now);
    }
    const total = Float64Array.from(rows, (row) => row.reduce((sum, bytes) => sum + bytes));
    this.curve = {
      count: positions.length,
      positions: Int32Array.from(positions), // the state holds from here on
      rows, total,
      time: Float64Array.from(positions, (position) => this.place(position - 1, "time")),
      steps: Float64Array.from(positions, (position) => this.place(position - 1, "steps")),
    };
    const top = total.reduce((best, bytes, index) => (bytes > total[best] ? index : best), 0);
    const position = positions[top] - 1;
    this.peak = { bytes: total[top], position, step: Math.max(1, this.stepAt[Math.max(0, position)]) };
    this.present = KINDS.map((_, kind) => rows.some((row) => row[kind] > 0));
    // Step → the moment at which it holds most; what it finds when it begins counts too.
    this.fullest = new Int32Array(this.count + 1);
    for (let step = 1, index = 0; step <= this.count; step++) {
      this.fullest[step] = index;
      while (index + 1 < positions.length && positions[index + 1] <= this.doc.steps.end[step]) {
        index++;
        if (total[index] > total[this.fullest[step]]) this.fullest[step] = index;
      }
    }
  }

  fullestBytes(step) {
    return this.curve.total[this.fullest[Math.min(step, this.count)]];
  }

  // -- streams -------------------------------------------------------------------------------------------------------

  // Stream → its bars: a copy, all launches of a step that follow without a gap, a stall.
  #bars() {
    const { work, works, names, streams } = this.doc;
    const lanes = streams.map(() => []);
    for (let row = 0; row < this.positionOf.length; row++) {
      const position = this.positionOf[row];
      lanes[work.stream[row]].push({
        begin: this.starts[row], end: this.ends[row], step: this.stepAt[position],
        what: WORK.indexOf(works[work.what[row]]), label: names[work.name[row]], tensor: work.tensor[row],
        first: position, last: position,
      });
    }
    this.busy = lanes.map((bars) => bars.reduce((sum, bar) => sum + bar.end - bar.begin, 0));
    this.bars = lanes.map((bars, lane) => this.#merged(bars, lane === COMPUTE));
    for (const [lane, bars] of this.bars.entries()) {
      for (const bar of bars) {
        const place = (moment) => (lane === COMPUTE ? this.within(moment, bar.step || 1) : this.toSteps(moment));
        bar.time = [bar.begin, bar.end];
        bar.steps = [place(bar.begin), place(bar.end)];
      }
    }
  }

  #merged(bars, compute) {
    const found = [];
    let last = null;
    for (const bar of bars.sort((x, y) => x.begin - y.begin)) {
      const gap = bar.begin - (last ? last.end : 0);
      const alike = last && bar.what === last.what && bar.label === last.label && bar.step === last.step;
      if (alike && bar.tensor < 0 && gap <= NANOSECOND) {
        last.end = bar.end;
        last.last = bar.last;
        continue;
      }
      if (compute && gap > NANOSECOND) {
        const begin = last ? last.end : 0;
        found.push({ ...bar, begin, end: bar.begin, what: STALLED, label: "", tensor: -1, first: -1, last: -1 });
      }
      found.push((last = bar));
    }
    return found;
  }

  // Tensor → the positions of the instructions that are about it.
  #uses() {
    const { ops, work, reads, writes } = this.doc;
    this.usesOf = new Map();
    const use = (tensor, position) => {
      if (!this.usesOf.has(tensor)) this.usesOf.set(tensor, []);
      const found = this.usesOf.get(tensor);
      if (found.at(-1) !== position) found.push(position);
    };
    for (let position = 0; position < this.length; position++) {
      const launch = this.launchAt[position];
      if ("af".includes(ops[position])) use(this.blocks.tensor[this.blockAt(position)], position);
      else if (launch >= 0) for (const tensor of [...reads[launch], ...writes[launch]]) use(tensor, position);
      else if (this.workAt[position] >= 0) use(work.tensor[this.workAt[position]], position);
    }
  }

  // The block that an allocation or a free is about.
  blockAt(position) {
    return this.doc.ops[position] === "a" ? this.blocks.resident + this.rowAt[position] : this.freedAt.get(position);
  }

  // The tensor that a row of the listing is about, or -1.
  tensorAt(position) {
    if ("af".includes(this.doc.ops[position])) return this.blocks.tensor[this.blockAt(position)];
    return this.workAt[position] >= 0 ? this.doc.work.tensor[this.workAt[position]] : -1;
  }

  writes(position, tensor) {
    return this.launchAt[position] >= 0 && this.doc.writes[this.launchAt[position]].includes(tensor);
  }

  // Every wait: from the end of the work before the record to the start of the work after the wait.  It *held* that
  // work if its stream was idle until the very moment at which the awaited work ended.
  #waits() {
    const { ops, events, work } = this.doc;
    const last = this.doc.streams.map(() => -1); // stream → row of its latest work
    const open = this.doc.streams.map(() => []); // stream → rows that its next work waits for
    const recorded = new Map(); // event → row
    this.waits = [];
    for (let position = 0; position < this.length; position++) {
      const row = this.rowAt[position];
      if (ops[position] === "r") recorded.set(events.event[row], last[events.stream[row]]);
      else if (ops[position] === "w") {
        const awaited = recorded.get(events.event[row]) ?? -1;
        if (awaited >= 0) open[events.stream[row]].push(awaited);
      } else if (this.workAt[position] >= 0) {
        const stream = work.stream[row];
        const start = this.starts[row];
        const idle = start - (last[stream] < 0 ? 0 : this.ends[last[stream]]);
        for (const awaited of open[stream]) {
          const end = this.ends[awaited];
          this.waits.push({
            from: work.stream[awaited], to: stream, position, awaited: this.positionOf[awaited],
            time: [end, start], steps: [this.toSteps(end), this.toSteps(start)],
            held: Math.abs(start - end) < 2 * NANOSECOND && idle > 2 * NANOSECOND,
          });
        }
        open[stream] = [];
        last[stream] = row;
      }
    }
  }

  // -- words: the lister's --------------------------------------------------------------------------------------------

  // What is allocated, run, copied or freed: [label, text] of an instruction.
  said(position) {
    const { said, labels, texts } = this.doc;
    return [labels[said.label[position]], texts[said.text[position]]];
  }

  // A kind of work, as the program's codec calls it.
  word(what) {
    return this.doc.words[WORK[what]] ?? WORK[what];
  }

  // The name of a label's style.
  styleOf(label) {
    const what = Object.keys(this.doc.words).find((kind) => this.doc.words[kind] === label);
    return (what ?? label).replaceAll(" ", "-");
  }

  // [keep | offload | drop, module, reason], or null.
  fate(tensor) {
    const fate = this.tensors.fate[tensor];
    return fate < 0 ? null : this.doc.fates[fate];
  }
}
