"use strict";
// The views of one program: canvases that share one horizontal axis.  Each has a base, drawn when the axes change, and
// above it an overlay for the cursor and the marked tensor, drawn at every move.

const LEFT = 62; // pixels left of the plots, for the axis
const RIGHT = 8;
const LANE = 46; // pixels from one stream to the next
const BAR = 28; // pixels that a bar is high
const FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
const DARK_INK = "#1a1a1a";
const LIGHT_KINDS = ["resident", "input", "gradient map"]; // these carry dark letters
const LIGHT_WORK = ["backward", "prefetch", "batch, results", "copy out", "to the store"];

let colours = {}; // of the theme, from CSS

function readColours() {
  const css = getComputedStyle(document.documentElement);
  const get = (name) => css.getPropertyValue(`--${name}`).trim();
  for (const name of ["ink", "pale", "grid", "panel", "budget", "veil", "accent", "free"]) colours[name] = get(name);
  colours.kind = KINDS.map((_, kind) => get(`kind-${kind}`));
  colours.work = WORK.map((_, what) => get(`work-${what}`));
  colours.onKind = KINDS.map((name) => (LIGHT_KINDS.includes(name) ? DARK_INK : "#fff"));
  colours.onWork = WORK.map((name) => (LIGHT_WORK.includes(name) ? DARK_INK : "#fff"));
  colours.draining = hatching(colours.kind[DRAINING]);
}

function hatching(colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = "rgba(255,255,255,.55)";
  pen.lineWidth = 1.2;
  pen.beginPath();
  for (const shift of [-6, 0, 6]) {
    pen.moveTo(shift, 6);
    pen.lineTo(shift + 6, 0);
  }
  pen.stroke();
  return pen.createPattern(tile, "repeat");
}

const kindFill = (kind) => (kind === DRAINING ? colours.draining : colours.kind[kind]);

function line(pen, x0, y0, x1, y1, dashes = []) {
  pen.setLineDash(dashes);
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
  pen.setLineDash([]);
}

// A canvas of as many pixels as the screen shows it with.
function fit(canvas, width, height) {
  const density = devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
}

// Text on a ground of its own, so that it can be read on anything.
function label(pen, text, x, y, colour) {
  const width = pen.measureText(text).width;
  pen.textAlign = "left";
  pen.fillStyle = colours.panel;
  pen.globalAlpha = 0.82;
  pen.beginPath();
  pen.roundRect(x - 4, y - 8, width + 8, 16, 4);
  pen.fill();
  pen.globalAlpha = 1;
  pen.fillStyle = colour;
  pen.fillText(text, x, y + 0.5);
}

function shortened(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  while (text.length > 1 && pen.measureText(`${text}…`).width > room) text = text.slice(0, -1);
  return `${text}…`;
}

class Panel {
  constructor(board, height, title, note) {
    this.board = board;
    this.model = board.model;
    this.height = height;
    const figure = element("figure", "panel", board.root);
    if (title) {
      const caption = element("figcaption", "", figure);
      element("b", "", caption).textContent = title;
      element("span", "", caption).textContent = note;
    }
    const row = element("div", "row", figure);
    this.plot = element("div", "plot", row);
    this.side = element("div", "side", row);
    this.plot.style.height = `${height}px`;
    this.base = element("canvas", "", this.plot);
    this.overlay = element("canvas", "", this.plot);
    this.base.setAttribute("role", "img");
    this.base.setAttribute("aria-label", title ? `${title}: ${note}` : "the axis");
    follow(this);
  }

  resize() {
    this.width = this.plot.clientWidth;
    this.right = this.width - RIGHT;
    this.density = devicePixelRatio || 1;
    for (const canvas of [this.base, this.overlay]) fit(canvas, this.width, this.height);
  }

  begin(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(this.density, 0, 0, this.density, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = `11px ${FONT}`;
    pen.textBaseline = "middle";
    return pen;
  }

  get scale() { // pixels for one unit of the axis
    return (this.right - LEFT) / (state.end - state.begin);
  }

  x(place) {
    return LEFT + (place - state.begin) * this.scale;
  }

  place(x) {
    return state.begin + (x - LEFT) / this.scale;
  }

  // The two ends of something on the axis, in pixels, just outside the plot at most; null if it is out of sight.
  span([begin, end]) {
    if (end < state.begin || begin > state.end) return null;
    return [Math.max(LEFT - 9, this.x(begin)), Math.min(this.right + 9, this.x(end))];
  }

  clip(pen, top = 0, bottom = this.height) {
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, top, this.right - LEFT, bottom - top);
    pen.clip();
  }

  // A line where forward ends and backward begins.
  turn(pen) {
    const x = this.x(this.model.range(this.model.depth + 1, state.axis)[0]);
    if (x < LEFT || x > this.right) return;
    pen.strokeStyle = colours.pale;
    pen.lineWidth = 1;
    line(pen, x, 0, x, this.height, [2, 3]);
  }

  // Over everything but the tensor that was chosen; one under the mouse is only marked.
  veil(pen) {
    if (state.hovered !== null) return;
    pen.fillStyle = colours.veil;
    pen.fillRect(LEFT, 0, this.right - LEFT, this.height);
  }

  bytesAxis(pen, y, ticks) {
    pen.textAlign = "right";
    pen.lineWidth = 1;
    for (const [bytes, text] of ticks) {
      pen.strokeStyle = colours.grid;
      line(pen, LEFT, y(bytes), this.right, y(bytes));
      pen.fillStyle = colours.pale;
      pen.fillText(text, LEFT - 6, Math.min(this.height - 6, Math.max(6, y(bytes))));
    }
  }

  // The chosen step, the marked tensor, the cursor.
  drawOverlay() {
    const pen = this.begin(this.overlay);
    this.clip(pen);
    const tensor = this.board.marked();
    if (tensor >= 0) this.mark(pen, tensor);
    const step = this.board.step();
    const [x0, x1] = this.model.range(step, state.axis).map((place) => this.x(place));
    pen.fillStyle = pen.strokeStyle = colours.accent;
    pen.lineWidth = 1;
    pen.globalAlpha = 0.13;
    pen.fillRect(x0, 0, Math.max(1.5, x1 - x0), this.height);
    pen.globalAlpha = 1;
    line(pen, x0, 0, x0, this.height);
    line(pen, x1, 0, x1, this.height);
    if (state.cursor !== null) {
      pen.strokeStyle = colours.ink;
      pen.globalAlpha = 0.45;
      line(pen, this.x(state.cursor), 0, this.x(state.cursor), this.height);
      pen.globalAlpha = 1;
    }
    pen.restore();
  }

  // What each kind of panel does of its own: its drawing, the marks of a tensor, and what is at a point.
  draw() {}
  mark() {}
  pick() {
    return null;
  }
}

// -- the axis ----------------------------------------------------------------------------------------------------------

class Ruler extends Panel {
  constructor(board) {
    super(board, 58, "", "");
  }

  draw() {
    const pen = this.begin(this.base);
    this.directions(pen);
    this.clip(pen, 0, this.height - 14);
    if (state.axis === "steps" && this.scale >= 9.5) this.layers(pen);
    else this.numbers(pen);
    pen.restore();
  }

  directions(pen) {
    const { model } = this;
    const inside = (place) => Math.min(this.right, Math.max(LEFT, this.x(place)));
    const begin = (step) => inside(model.range(step, state.axis)[0]);
    const end = inside(model.range(model.count, state.axis)[1]);
    const halves = [[begin(1), begin(model.depth + 1), "forward"], [begin(model.depth + 1), end, "backward"]];
    const top = this.height - 13;
    for (const [left, right, name] of halves) {
      if (right - left < 1) continue;
      const what = WORK.indexOf(name);
      pen.fillStyle = colours.work[what];
      pen.fillRect(left, top, right - left - 1, 13);
      if (right - left <= 60) continue;
      pen.fillStyle = colours.onWork[what];
      pen.textAlign = "center";
      pen.fillText(name, (left + right) / 2, top + 7);
    }
    pen.fillStyle = colours.pale;
    pen.textAlign = "right";
    pen.fillText(state.axis === "time" ? "time" : "step", LEFT - 6, top + 7);
  }

  layers(pen) {
    const { layer } = this.model.doc.steps;
    const last = Math.min(this.model.count, state.end);
    for (let step = Math.max(1, Math.floor(state.begin)); step <= last; step++) {
      const name = layer[step - 1];
      const x = this.x(step + 0.5);
      pen.fillStyle = step === this.board.step() ? colours.ink : colours.pale;
      pen.font = `${step === this.board.step() ? "bold " : ""}${this.scale < 11 ? 9 : 10}px ${FONT}`;
      if (this.scale > name.length * 6 + 8) {
        pen.textAlign = "center";
        pen.fillText(name, x, this.height - 22);
        continue;
      }
      pen.save();
      pen.translate(x, this.height - 16);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(name.length > 8 ? `${name.slice(0, 7)}…` : name, 0, 0);
      pen.restore();
    }
  }

  numbers(pen) {
    const places = ticks(state.begin, state.end, Math.min(12, (this.right - LEFT) / 70));
    const shown = state.axis === "time"
      ? places.map((moment) => [moment, moment ? duration(moment) : "0"])
      : places.filter(Number.isInteger).map((step) => [step + 0.5, `${step}`]);
    pen.textAlign = "center";
    pen.fillStyle = colours.pale;
    for (const [place, text] of shown) {
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.max(LEFT + half, Math.min(this.right - half, this.x(place))), this.height - 24);
      pen.fillRect(this.x(place), this.height - 18, 1, 4);
    }
  }
}

// -- how much ----------------------------------------------------------------------------------------------------------

class MemoryPanel extends Panel {
  constructor(board) {
    super(board, 172, "How much", "bytes that the pool holds, stacked by kind");
  }

  draw() {
    const pen = this.begin(this.base);
    const { model } = this;
    const most = Math.max(...state.models.map((one) => one.peak.bytes));
    const { budget } = model.doc;
    const near = budget <= 1.8 * most; // a budget far above the curve would flatten it
    this.floor = this.hiddenResident();
    const top = (Math.max(most, near ? budget : 0) - this.floor) * 1.13;
    const bottom = this.height - 2;
    this.y = (bytes) => bottom - ((bytes - this.floor) / top) * (bottom - 4);
    const shown = byteTicks(top + this.floor, (5 * (top + this.floor)) / top);
    this.bytesAxis(pen, this.y, shown.filter(([bytes]) => bytes >= this.floor && bytes <= this.floor + top));
    this.clip(pen);
    this.stack(pen);
    this.turn(pen);
    for (const other of state.models) if (other !== model) this.outline(pen, other);
    this.limit(pen, budget, near);
    this.peak(pen);
    if (this.floor) label(pen, `above ${size(this.floor)} of resident tensors`, LEFT + 6, this.height - 10, colours.pale);
    pen.restore();
  }

  // Where resident tensors are most of the pool, the axis begins above them.
  hiddenResident() {
    const most = state.models.every((m) => m.residentEnd > 0.66 * m.peak.bytes && m.residentEnd < m.peak.bytes);
    return most ? Math.min(...state.models.map((m) => m.residentEnd)) : 0;
  }

  // Each column of pixels shows its fullest moment; states that last no time are left out.
  stack(pen) {
    const { curve, present } = this.model;
    const columns = Math.ceil((this.right - LEFT) * this.density);
    const moments = this.fullest(columns);
    let below = new Float64Array(columns);
    for (let kind = 0; kind < KINDS.length; kind++) {
      if (!present[kind]) continue;
      const above = below.map((bytes, column) => bytes + curve.rows[moments[column]][kind]);
      pen.fillStyle = kindFill(kind);
      pen.beginPath();
      for (let column = 0, next; column < columns; column = next) {
        next = column + 1; // columns that are alike are one rectangle
        while (next < columns && above[next] === above[column] && below[next] === below[column]) next++;
        const [y0, y1] = [this.y(above[column]), this.y(Math.max(this.floor, below[column]))];
        if (y1 > y0) pen.rect(LEFT + column / this.density, y0, (next - column) / this.density, y1 - y0);
      }
      pen.fill();
      below = above;
    }
  }

  fullest(columns) {
    const { curve } = this.model;
    const places = curve[state.axis];
    const width = (state.end - state.begin) / columns;
    const found = new Int32Array(columns);
    let index = Math.max(0, upper(places, state.begin) - 1);
    for (let column = 0; column < columns; column++) {
      let best = index;
      while (index + 1 < curve.count && places[index + 1] < state.begin + (column + 1) * width) {
        index++;
        const lasts = index + 1 === curve.count || places[index + 1] > places[index];
        if (lasts && curve.total[index] > curve.total[best]) best = index;
      }
      found[column] = best;
    }
    return found;
  }

  // The other program's total, as a line.
  outline(pen, other) {
    const { curve } = other;
    const places = curve[state.axis];
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 1.2;
    pen.setLineDash([3, 2]);
    pen.beginPath();
    for (let index = 0; index < curve.count; index++) {
      const x0 = this.x(places[index]);
      const x1 = index + 1 < curve.count ? this.x(places[index + 1]) : this.right;
      if (x1 - x0 < 0.01 || x1 < LEFT || x0 > this.right) continue;
      pen.lineTo(x0, this.y(curve.total[index]));
      pen.lineTo(x1, this.y(curve.total[index]));
    }
    pen.stroke();
    pen.setLineDash([]);
  }

  limit(pen, budget, near) {
    const text = `budget ${size(budget)}`;
    if (!near) {
      label(pen, `↑ ${text}`, LEFT + 6, 9, colours.budget);
      return;
    }
    const y = this.y(budget);
    pen.strokeStyle = colours.budget;
    pen.lineWidth = 1.4;
    line(pen, LEFT, y, this.right, y, [7, 3]);
    label(pen, text, LEFT + 6, y < 16 ? y + 9 : y - 8, colours.budget);
  }

  peak(pen) {
    const { peak } = this.model;
    const x = this.x(this.model.place(peak.position, state.axis));
    if (x < LEFT || x > this.right) return;
    const y = this.y(peak.bytes);
    const text = `peak ${size(peak.bytes)}, step ${peak.step} ${this.model.stepName(peak.step)}`;
    const width = pen.measureText(text).width;
    pen.fillStyle = colours.ink;
    pen.beginPath();
    pen.arc(x, y, 3.5, 0, 7);
    pen.fill();
    label(pen, text, Math.max(LEFT + 6, Math.min(this.right - width - 6, x - width / 2)), Math.max(9, y - 11), colours.ink);
  }

  // The tensor's share of the stack.
  mark(pen, tensor) {
    const { blocks, curve, blocksOf } = this.model;
    const places = curve[state.axis];
    const at = blocks[state.axis];
    pen.fillStyle = colours.ink;
    pen.globalAlpha = 0.78;
    for (const b of blocksOf.get(tensor) || []) {
      if (b < blocks.resident) continue;
      for (let i = Math.max(0, upper(places, at.begin[b]) - 1); i < curve.count && places[i] < at.end[b]; i++) {
        const until = i + 1 < curve.count ? Math.min(places[i + 1], at.end[b]) : at.end[b];
        const [x0, x1] = [Math.max(LEFT, this.x(Math.max(places[i], at.begin[b]))), Math.min(this.right, this.x(until))];
        if (x1 - x0 < 0.3) continue;
        const kind = places[i] >= at.released[b] ? DRAINING : blocks.kind[b];
        const below = curve.rows[i].subarray(0, kind).reduce((sum, bytes) => sum + bytes, 0);
        const [y0, y1] = [this.y(below + blocks.bytes[b]), this.y(below)];
        pen.fillRect(x0, y0, x1 - x0, Math.max(1.5, y1 - y0));
      }
    }
    pen.globalAlpha = 1;
  }
}

// -- where -------------------------------------------------------------------------------------------------------------

class AddressPanel extends Panel {
  constructor(board) {
    super(board, 286, "Where", "the pool's addresses: every block is a rectangle, the rest is free");
    this.pool = element("canvas", "pool", this.side);
    const blockAt = (event) => this.inPool(event.offsetY);
    this.pool.addEventListener("mousemove", (event) => {
      const block = blockAt(event);
      const tensor = block < 0 ? -1 : this.model.blocks.tensor[block];
      hover(block < 0 ? null : { board, tensor, block }, event);
    });
    this.pool.addEventListener("mouseleave", () => hover(null));
    this.pool.addEventListener("click", (event) => {
      const block = blockAt(event);
      if (block >= 0) choose(this.model.tensors.name[this.model.blocks.tensor[block]]);
    });
    this.home();
  }

  // All addresses; resident tensors are cut to a strip; two programs share one scale.
  home() {
    const arena = Math.max(...state.models.map((model) => model.doc.arena));
    const resident = Math.min(...state.models.map((model) => model.residentEnd));
    this.top = this.high = arena * 1.012;
    this.low = resident > 0.12 * arena && resident < arena ? resident - 0.085 * (this.high - resident) : 0;
    this.zoomed = false;
  }

  show(low, high) {
    const span = Math.min(this.top, high - low);
    this.low = Math.max(0, Math.min(this.top - span, low));
    this.high = this.low + span;
    this.zoomed = true;
  }

  y(address) {
    return this.height - 2 - ((address - this.low) / (this.high - this.low)) * (this.height - 6);
  }

  address(y) {
    return this.low + ((this.height - 2 - y) / (this.height - 6)) * (this.high - this.low);
  }

  draw() {
    const pen = this.begin(this.base);
    pen.fillStyle = colours.free;
    pen.fillRect(LEFT, 0, this.right - LEFT, this.height);
    const shown = byteTicks(this.high, (6 * this.high) / (this.high - this.low)).filter(([address]) => address >= this.low);
    this.clip(pen);
    this.residents(pen, LEFT, this.right - LEFT);
    this.rectangles(pen);
    this.turn(pen);
    this.resident(pen);
    pen.restore();
    pen.textAlign = "right";
    pen.fillStyle = colours.pale;
    for (const [address, text] of shown) {
      pen.fillText(text, LEFT - 6, Math.min(this.height - 6, Math.max(6, this.y(address))));
      pen.fillRect(LEFT - 4, this.y(address), 4, 1);
    }
  }

  // Resident tensors in a column of the plot's height.
  residents(pen, left, width) {
    pen.fillStyle = colours.kind[0];
    for (const [begin, end] of this.model.residentPieces) {
      pen.fillRect(left, this.y(end), width, this.y(begin) - this.y(end));
    }
  }

  rectangles(pen) {
    const { blocks, tensors } = this.model;
    const at = blocks[state.axis];
    const pixel = 1 / this.density;
    const snapped = (value) => Math.round(value * this.density) / this.density;
    const names = [];
    let filled = -1; // the kind whose colour the pen has
    for (let b = blocks.resident; b < blocks.count; b++) {
      const ends = at.end[b] > at.begin[b] && this.span([at.begin[b], at.end[b]]);
      if (!ends) continue; // out of sight, or of no length
      const y0 = snapped(this.y(blocks.address[b] + blocks.bytes[b]));
      const y1 = Math.max(y0 + pixel, snapped(this.y(blocks.address[b])));
      if (y1 < 0 || y0 > this.height) continue;
      const [x0, x1] = ends.map(snapped);
      const drains = Math.max(x0, Math.min(x1, snapped(this.x(at.released[b]))));
      const gap = x1 - x0 > 5 && y1 - y0 > 4 ? 1 : 0;
      if (filled !== blocks.kind[b]) pen.fillStyle = colours.kind[(filled = blocks.kind[b])];
      pen.fillRect(x0, y0, Math.max(pixel, drains - x0 - (drains >= x1 ? gap : 0)), y1 - y0 - gap);
      if (x1 > drains) {
        pen.fillStyle = colours.draining;
        filled = -1;
        pen.fillRect(drains, y0, Math.max(pixel, x1 - drains - gap), y1 - y0 - gap);
      }
      if (x1 - x0 > 26 && y1 - y0 > 11) names.push([b, Math.max(x0, LEFT), Math.min(x1, this.right), (y0 + y1) / 2]);
    }
    pen.textAlign = "left";
    for (const [b, x0, x1, y] of names) {
      const name = tensors.name[blocks.tensor[b]];
      pen.fillStyle = colours.onKind[blocks.kind[b]];
      if (pen.measureText(name).width <= x1 - x0 - 8) pen.fillText(name, x0 + 4, y);
    }
  }

  resident(pen) {
    const [top, bottom] = [Math.max(0, this.y(this.model.residentEnd)), Math.min(this.height, this.y(0))];
    if (bottom - top <= 14 || !this.model.doc.resident) return;
    const cut = this.low > 0 ? "↓ " : "";
    pen.fillStyle = colours.ink;
    pen.textAlign = "left";
    const text = `${cut}resident tensors ${size(this.model.doc.resident)}: weights, their gradients, momentum`;
    pen.fillText(shortened(pen, text, this.right - LEFT - 16), LEFT + 8, (top + bottom) / 2);
  }

  drawOverlay() {
    super.drawOverlay();
    this.drawPool();
  }

  // Beside the plot: the pool at the chosen step's fullest moment, its blocks named.
  drawPool() {
    const width = this.side.clientWidth;
    if (!width) return;
    const { blocks, curve, fullest, tensors } = this.model;
    const [strip, height] = [34, this.height];
    fit(this.pool, width, height);
    this.pool.style.height = `${height}px`;
    const pen = this.begin(this.pool);
    const position = curve.positions[fullest[this.board.step()]] - 1;
    const marked = this.board.marked();
    pen.fillStyle = colours.free;
    pen.fillRect(4, 0, strip, height);
    this.residents(pen, 4, strip);
    this.alive = [];
    for (let b = blocks.resident; b < blocks.count; b++) {
      if (blocks.begin[b] <= position && position < blocks.end[b]) this.alive.push(b);
    }
    this.alive.sort((x, y) => blocks.address[y] - blocks.address[x]);
    let free = 6; // the first pixel down the column that carries no name yet
    for (const b of this.alive) {
      const [y0, y1] = [this.y(blocks.address[b] + blocks.bytes[b]), this.y(blocks.address[b])];
      if (y1 < 0 || y0 > height) continue;
      const own = blocks.tensor[b] === marked;
      pen.fillStyle = blocks.released[b] <= position ? colours.draining : colours.kind[blocks.kind[b]];
      pen.fillRect(4, y0, strip, Math.max(1, y1 - y0 - (y1 - y0 > 5 ? 1 : 0)));
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 2;
      if (own) pen.strokeRect(5, y0 + 1, strip - 2, Math.max(1, y1 - y0 - 2.5));
      const middle = Math.max(free, Math.min(height - 6, (Math.max(0, y0) + Math.min(height, y1)) / 2));
      if (y1 - y0 <= 5 || middle >= height) continue;
      pen.font = `${own ? "bold " : ""}10px ${FONT}`;
      pen.fillStyle = own ? colours.ink : colours.pale;
      const text = `${tensors.name[blocks.tensor[b]]} · ${size(blocks.bytes[b])}`;
      pen.fillText(shortened(pen, text, width - strip - 12), strip + 10, middle);
      free = middle + 12;
    }
  }

  inPool(y) {
    const { blocks } = this.model;
    const address = this.address(y);
    const holds = (b) => blocks.address[b] <= address && address < blocks.address[b] + blocks.bytes[b];
    return this.alive?.find(holds) ?? -1;
  }

  pick(x, y) {
    const { blocks } = this.model;
    const at = blocks[state.axis];
    const [place, address] = [this.place(x), this.address(y)];
    const holds = (b) => blocks.address[b] <= address && address < blocks.address[b] + blocks.bytes[b];
    let [best, nearest] = [-1, 1 / this.scale]; // a block of less than a pixel is found a pixel away
    for (let b = blocks.resident; b < blocks.count && nearest > 0; b++) {
      if (!holds(b) || at.end[b] === at.begin[b]) continue;
      const distance = Math.max(at.begin[b] - place, place - at.end[b], 0);
      if (distance < nearest || distance === 0) [best, nearest] = [b, distance];
    }
    for (let b = 0; b < blocks.resident && best < 0; b++) if (holds(b)) best = b;
    return best < 0 ? null : { board: this.board, tensor: blocks.tensor[best], block: best };
  }

  // The tensor's blocks.
  mark(pen, tensor) {
    const { blocks, tensors, blocksOf } = this.model;
    const at = blocks[state.axis];
    this.veil(pen);
    for (const b of blocksOf.get(tensor) || []) {
      const ends = this.span([at.begin[b], at.end[b]]);
      if (!ends) continue;
      const [x0, x1] = ends;
      const [y0, y1] = [this.y(blocks.address[b] + blocks.bytes[b]), this.y(blocks.address[b])];
      const drains = Math.min(x1, Math.max(x0, this.x(at.released[b])));
      const height = Math.max(1, y1 - y0);
      pen.fillStyle = colours.kind[blocks.kind[b]];
      pen.fillRect(x0, y0, Math.max(1, drains - x0), height);
      pen.fillStyle = colours.draining;
      if (x1 > drains) pen.fillRect(drains, y0, x1 - drains, height);
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x0, y0, Math.max(1, x1 - x0), Math.max(2, y1 - y0));
      const name = tensors.name[tensor];
      if (x1 - x0 <= pen.measureText(name).width + 8 || y1 - y0 <= 11) continue;
      pen.fillStyle = colours.onKind[blocks.kind[b]];
      pen.textAlign = "left";
      pen.fillText(name, Math.max(x0, LEFT) + 4, (y0 + y1) / 2);
    }
  }
}

// -- when --------------------------------------------------------------------------------------------------------------

class StreamPanel extends Panel {
  constructor(board) {
    const lanes = board.model.doc.streams.length;
    super(board, lanes * LANE + 6, "When", "what each stream runs; an arrow is a wait");
  }

  top(lane) {
    return 8 + lane * LANE;
  }

  // The lane's bars in sight.
  inSight(lane) {
    const bars = this.model.bars[lane];
    const first = upper(bars, state.begin, (bar) => bar[state.axis][1]);
    return bars.slice(first, upper(bars, state.end, (bar) => bar[state.axis][0]));
  }

  draw() {
    const pen = this.begin(this.base);
    const columns = Math.ceil((this.right - LEFT) * this.density);
    for (const [lane, name] of this.model.doc.streams.entries()) {
      pen.fillStyle = colours.ink;
      pen.textAlign = "right";
      pen.fillText(shortened(pen, name, LEFT - 10), LEFT - 6, this.top(lane) + BAR / 2);
      this.clip(pen);
      pen.fillStyle = colours.free;
      pen.fillRect(LEFT, this.top(lane), this.right - LEFT, BAR);
      const bars = this.inSight(lane);
      if (bars.length > columns * 0.7) this.shares(pen, bars, this.top(lane), columns);
      else for (const bar of bars) this.bar(pen, bar, this.top(lane));
      pen.restore();
    }
    this.turn(pen);
    this.arrows(pen);
  }

  bar(pen, bar, top) {
    const [x0, x1] = this.span(bar[state.axis]);
    if (x1 <= x0) return;
    pen.fillStyle = colours.work[bar.what];
    pen.fillRect(x0, top, Math.max(0.75, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), BAR);
    if (!bar.label || x1 - x0 <= 18) return;
    const left = Math.max(x0, LEFT);
    const room = Math.min(x1, this.right) - left;
    if (pen.measureText(bar.label).width + 6 > room) return;
    pen.fillStyle = colours.onWork[bar.what];
    pen.textAlign = "center";
    pen.fillText(bar.label, left + room / 2, top + BAR / 2);
  }

  // Too many bars to be told apart: each column shows the share of its time that each kind of work has.
  shares(pen, bars, top, columns) {
    const width = (state.end - state.begin) / columns;
    const amounts = WORK.map(() => null);
    for (const bar of bars) {
      const begin = Math.max(0, (bar[state.axis][0] - state.begin) / width);
      const end = Math.min(columns, (bar[state.axis][1] - state.begin) / width);
      const amount = (amounts[bar.what] ??= new Float64Array(columns + 1));
      for (let column = Math.floor(begin); column < end; column++) {
        amount[column] += Math.min(end, column + 1) - Math.max(begin, column);
      }
    }
    const below = new Float64Array(columns + 1);
    for (const [what, amount] of amounts.entries()) {
      if (!amount) continue;
      pen.fillStyle = colours.work[what];
      for (let column = 0; column < columns; column++) {
        if (!amount[column]) continue;
        below[column] += amount[column];
        const height = amount[column] * BAR;
        pen.fillRect(LEFT + column / this.density, top + (1 - below[column]) * BAR, 1 / this.density, height);
      }
    }
  }

  // Dark: the work really had to wait.  Pale: what it waited for was done already.
  arrows(pen) {
    const { axis } = state;
    const inSight = (wait) => wait.from !== wait.to && wait[axis][1] >= state.begin && wait[axis][0] <= state.end;
    const waits = this.model.waits.filter(inSight);
    this.clip(pen);
    for (const wait of waits) {
      const [x0, x1] = wait[axis].map((place) => this.x(place));
      if (!wait.held && (waits.length > 160 || x1 - x0 > 240)) continue;
      const down = wait.to > wait.from;
      const y0 = this.top(wait.from) + (down ? BAR : 0);
      const y1 = this.top(wait.to) + (down ? 0 : BAR);
      const [middle, tip] = [(y0 + y1) / 2, down ? -5 : 5];
      pen.strokeStyle = pen.fillStyle = wait.held ? colours.budget : colours.pale;
      pen.globalAlpha = wait.held ? 1 : 0.45;
      pen.lineWidth = wait.held ? 1.5 : 1;
      pen.beginPath();
      pen.moveTo(x0, y0);
      pen.bezierCurveTo(x0, middle, x1, middle, x1, y1);
      pen.stroke();
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.lineTo(x1 - 3, y1 + tip);
      pen.lineTo(x1 + 3, y1 + tip);
      pen.fill();
    }
    pen.globalAlpha = 1;
    pen.restore();
  }

  pick(x, y) {
    const place = this.place(x);
    for (let lane = 0; lane < this.model.bars.length; lane++) {
      if (y < this.top(lane) || y > this.top(lane) + BAR) continue;
      let [best, nearest] = [null, 1.5 / this.scale];
      for (const bar of this.inSight(lane)) {
        const [begin, end] = bar[state.axis];
        const distance = Math.max(begin - place, place - end, 0);
        if (distance < nearest) [best, nearest] = [bar, distance];
        if (distance === 0) break;
      }
      if (best) return { board: this.board, tensor: best.tensor, bar: best, lane };
    }
    return null;
  }

  // The tensor's copies and the bars that read or write it; between its copies, how long it is away.
  mark(pen, tensor) {
    const uses = this.model.usesOf.get(tensor) || [];
    this.veil(pen);
    const isUsed = (bar) => {
      const next = upper(uses, bar.first - 1); // uses are in order
      return bar.first >= 0 && next < uses.length && uses[next] <= bar.last;
    };
    for (let lane = 0; lane < this.model.bars.length; lane++) {
      for (const bar of this.inSight(lane)) {
        if (bar.tensor !== tensor && !(bar.tensor < 0 && isUsed(bar))) continue;
        const [x0, x1] = this.span(bar[state.axis]);
        pen.fillStyle = colours.work[bar.what];
        pen.fillRect(x0, this.top(lane), Math.max(1.5, x1 - x0), BAR);
        pen.strokeStyle = colours.ink;
        pen.lineWidth = 2;
        pen.strokeRect(x0, this.top(lane), Math.max(1.5, x1 - x0), BAR);
      }
    }
    for (const [lane, bars] of this.model.bars.entries()) {
      const own = bars.filter((bar) => bar.tensor === tensor);
      for (const bar of own.filter((bar) => WORK[bar.what] === "prefetch" || WORK[bar.what] === "on demand")) {
        this.away(pen, tensor, bar, lane);
      }
    }
  }

  away(pen, tensor, back, lane) {
    const sent = WORK.indexOf("copy out");
    const outs = this.model.bars.flat().filter((b) => b.tensor === tensor && b.what === sent && b.end <= back.begin);
    if (!outs.length) return;
    const out = outs.reduce((latest, bar) => (bar.end > latest.end ? bar : latest));
    const [x0, x1] = [this.x(out[state.axis][1]), this.x(back[state.axis][0])];
    const y = this.top(lane) + BAR / 2;
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 1.5;
    line(pen, x0, y, x1, y, [5, 4]);
    const text = `away for ${duration(back.begin - out.end)}`;
    const middle = (Math.max(LEFT, x0) + Math.min(this.right, x1)) / 2;
    if (x1 - x0 > 130) label(pen, text, middle - pen.measureText(text).width / 2, y, colours.ink);
  }
}
