"use strict";
// The page: one state, the boards that show it, and the changes that a reader can make to it.

const state = {
  models: [], boards: [],
  axis: "steps", begin: 1, end: 2, // of the part of the axis in sight
  step: 1, // of the first program; a second one shows its step of the same name
  tensor: null, // the chosen one's name
  hovered: null, // the name of the one under the mouse
  cursor: null, // place on the axis
};
const LETTERS = ["A", "B"];
const byId = (id) => document.getElementById(id);

function element(tag, name, parent) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  parent?.append(made);
  return made;
}

// The step of another program that has the same layer and direction; without one, the step of that number.
function paired(from, to, step) {
  return from === to ? step : (to.stepOfName.get(from.stepName(step)) ?? Math.min(step, to.count));
}

// A program with its views.
class Board {
  constructor(model, number) {
    this.model = model;
    this.root = element("section", "board", byId("boards"));
    if (state.models.length > 1) {
      element("h2", "", this.root).innerHTML = `<i>${LETTERS[number]}</i> ${escaped(`${model.doc.network}, ${model.doc.label}`)}`;
    }
    this.ruler = new Ruler(this);
    this.memory = new MemoryPanel(this);
    this.addresses = new AddressPanel(this);
    this.streams = new StreamPanel(this);
    this.panels = [this.ruler, this.memory, this.addresses, this.streams];
    this.held = element("ul", "held", this.memory.side);
    const lanes = element("ul", "held", this.streams.side);
    for (const [stream, name] of model.doc.streams.entries()) {
      const share = Math.round((100 * model.busy[stream]) / model.seconds);
      element("li", "lane", lanes).innerHTML = `<b>${escaped(name)}</b><span>${duration(model.busy[stream])}, ${share} %</span>`;
    }
  }

  // The marked tensor's number, or -1: the one under the mouse, else the chosen one.
  marked() {
    return this.model.numberOf.get(state.hovered ?? state.tensor) ?? -1;
  }

  // This program's step for the chosen one, which is the first program's.
  step() {
    return paired(state.models[0], this.model, state.step);
  }

  // The first program's step for one of this program's.
  paired(step) {
    return paired(this.model, state.models[0], step);
  }

  // The legend, with the bytes of each kind at the chosen step.
  showHeld() {
    const { model } = this;
    const row = model.curve.rows[model.fullest[this.step()]];
    const items = KINDS.map((name, kind) => [name, kind]).filter(([, kind]) => model.present[kind]).reverse();
    const square = (kind) => `<i style="--c:var(--kind-${kind})" class="${kind === DRAINING ? "hatch" : ""}"></i>`;
    const line = ([name, kind]) => `<li>${square(kind)}${name}<span>${row[kind] ? size(row[kind]) : "–"}</span></li>`;
    const head = `<li class="head"><b>step ${this.step()}</b><span>${size(model.fullestBytes(this.step()))}</span></li>`;
    this.held.innerHTML = head + items.map(line).join("");
  }
}

// -- drawing: at the next frame, once, however often it was wanted ------------------------------------------------------

const BASE = 1;
const OVERLAY = 2;
const LIST = 4;
let wanted = 0;

function redraw(what) {
  if (!wanted) {
    requestAnimationFrame(() => {
      const now = wanted;
      wanted = 0;
      paint(now);
    });
  }
  wanted |= what;
}

function paint(what) {
  for (const panel of state.boards.flatMap((board) => board.panels)) {
    if (what & BASE) panel.draw();
    if (what & (BASE | OVERLAY)) panel.drawOverlay();
  }
  if (what & (BASE | OVERLAY)) drawOverview();
  if (what & LIST) drawList();
}

// -- the axis ----------------------------------------------------------------------------------------------------------

function limits() {
  const all = state.models.map((model) => model.limits(state.axis));
  return [Math.min(...all.map(([begin]) => begin)), Math.max(...all.map(([, end]) => end))];
}

function show(begin, end) {
  const [first, last] = limits();
  const least = (last - first) * 1e-5;
  const width = Math.min(last - first, Math.max(least, end - begin));
  if (end - begin < least) begin = (begin + end - least) / 2;
  state.begin = Math.min(last - width, Math.max(first, begin));
  state.end = state.begin + width;
  redraw(BASE);
}

function showAll() {
  for (const board of state.boards) board.addresses.home();
  show(...limits());
}

function zoom(factor, centre = (state.begin + state.end) / 2) {
  show(centre - (centre - state.begin) * factor, centre + (state.end - centre) * factor);
}

// To the chosen tensor, or without one to the chosen step.
function zoomToChosen() {
  const [model] = state.models;
  const blocks = model.blocksOf.get(model.numberOf.get(state.tensor)) || [];
  const at = model.blocks[state.axis];
  const spans = blocks.filter((b) => b >= model.blocks.resident).map((b) => [at.begin[b], at.end[b]]);
  if (!spans.length) spans.push(model.range(state.step, state.axis));
  const [begin, end] = [Math.min(...spans.map((span) => span[0])), Math.max(...spans.map((span) => span[1]))];
  const margin = (end - begin) * (blocks.length ? 0.08 : 2);
  show(begin - margin, end + margin);
}

function setAxis(axis) {
  if (axis !== state.axis) {
    const [model] = state.models;
    const [first, last] = limits();
    const whole = state.begin <= first && state.end >= last;
    const turned = (place) => (axis === "time" ? model.toTime(place) : model.toSteps(place));
    const span = [turned(state.begin), turned(state.end)];
    state.axis = axis;
    state.cursor = null;
    show(...(whole ? limits() : span));
    remember();
  }
  for (const button of document.querySelectorAll("[data-axis]")) {
    button.setAttribute("aria-pressed", button.dataset.axis === axis);
  }
}

// -- the chosen step and tensor ----------------------------------------------------------------------------------------

function setStep(number, scroll = true) {
  const [model] = state.models;
  state.step = Math.max(1, Math.min(model.count, number));
  const [begin, end] = model.range(state.step, state.axis);
  if (begin < state.begin || end > state.end) {
    const half = (state.end - state.begin) / 2;
    show((begin + end) / 2 - half, (begin + end) / 2 + half);
  }
  byId("slider").value = state.step;
  const held = state.boards.map((board) => size(board.model.fullestBytes(board.step()))).join(" | ");
  byId("where").innerHTML = `<b>${state.step}</b> of ${model.count} · ${escaped(model.stepName(state.step))} · ${held}`;
  for (const board of state.boards) {
    board.showHeld();
    board.ruler.draw();
  }
  if (scroll) scrollToStep();
  redraw(OVERLAY | LIST);
  remember();
}

function choose(name, scroll = true) {
  state.tensor = name;
  state.hovered = null;
  drawCard();
  if (scroll) scrollToStep();
  redraw(OVERLAY | LIST);
  remember();
}

// `found`: the board, tensor (-1: none), block or bar under the mouse, or null.
function hover(found, event) {
  const tip = byId("tip");
  tip.hidden = !(found && event);
  if (!tip.hidden) {
    tip.innerHTML = described(found);
    const [width, height] = [tip.offsetWidth, tip.offsetHeight];
    const below = event.clientY + 18;
    tip.style.left = `${Math.max(4, Math.min(innerWidth - width - 8, event.clientX + 14))}px`;
    tip.style.top = `${below + height > innerHeight ? event.clientY - height - 10 : below}px`;
  }
  const name = found && found.tensor >= 0 ? found.board.model.tensors.name[found.tensor] : null;
  if (name === state.hovered) return;
  state.hovered = name;
  redraw(OVERLAY | LIST);
}

function described({ board, tensor, block = -1, bar = null }) {
  const { model } = board;
  if (tensor < 0) return describedBar(model, bar);
  const { blocks, tensors, doc } = model;
  const lines = [`<b>${escaped(tensors.name[tensor])}</b> · ${tensors.kind[tensor]} · ${size(tensors.bytes[tensor])}`];
  if (bar) {
    const seconds = bar.end - bar.begin;
    const rate = (tensors.bytes[tensor] / seconds / 1e9).toFixed(1);
    lines.push(`${model.word(bar.what)}, ${duration(seconds)}, ${rate} GB/s, step ${bar.step}`);
  }
  if (block >= blocks.resident) {
    const steps = [model.stepAt[blocks.begin[block]], model.stepAt[Math.min(blocks.end[block], model.length)]];
    const seconds = blocks.time.end[block] - blocks.time.begin[block];
    lines.push(`steps ${Math.max(1, steps[0])} to ${steps[1]}, ${duration(seconds)}`);
  } else if (block >= 0) lines.push("resident: it stays as long as training");
  if (block >= 0) lines.push(`at ${hex(blocks.address[block])}`);
  const fate = model.fate(tensor);
  if (fate) lines.push(`${fate[0]}: ${escaped(doc.reasons[fate[1]])}`);
  return lines.join("<br>");
}

function describedBar(model, bar) {
  const lines = [WORK[bar.what] === "stalled" ? "<b>stalled</b>" : `<b>${escaped(bar.label)}</b> ${model.word(bar.what)}`];
  lines.push(`${duration(bar.end - bar.begin)}, step ${bar.step}`);
  for (let position = bar.first; position >= 0 && position <= Math.min(bar.last, bar.first + 8); position++) {
    if (model.workAt[position] >= 0) lines.push(`<small>${escaped(model.said(position)[1])}</small>`);
  }
  return lines.join("<br>");
}

// -- the address: #step=12&tensor=conv1_1&axis=time ---------------------------------------------------------------------

let remembering = 0;
let written = ""; // by the page itself: nothing to recall

function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const fields = new URLSearchParams({ step: state.step, axis: state.axis });
    if (state.tensor !== null) fields.set("tensor", state.tensor);
    written = `#${fields}`;
    if (location.hash !== written) location.replace(written);
  }, 250);
}

// What the page opens at, where the address names nothing: the largest map that is not kept, of two programs one with
// another fate in the second, at the step where it leaves; the fullest step, where every map stays.
function subject() {
  const [model, other] = state.models;
  const gone = [...model.tensors.name.keys()].filter((tensor) => (model.fate(tensor) ?? ["keep"])[0] !== "keep");
  const fateOfOther = (tensor) => other?.fate(other.numberOf.get(model.tensors.name[tensor]))?.[0];
  const differing = gone.filter((tensor) => other && fateOfOther(tensor) !== model.fate(tensor)[0]);
  const [tensor] = (differing.length ? differing : gone).sort((a, b) => model.tensors.bytes[b] - model.tensors.bytes[a]);
  if (tensor === undefined) return { step: model.peak.step };
  const [block] = model.blocksOf.get(tensor);
  return { step: Math.max(1, model.stepAt[model.blocks.released[block]]), tensor: model.tensors.name[tensor] };
}

function recall() {
  const fields = new URLSearchParams(location.hash.slice(1) || subject());
  if (["steps", "time"].includes(fields.get("axis"))) setAxis(fields.get("axis"));
  const tensor = fields.get("tensor");
  if (state.models.some((model) => model.numberOf.has(tensor))) choose(tensor);
  else if (state.tensor !== null) choose(null);
  setStep(Number.parseInt(fields.get("step"), 10) || state.models[0].peak.step);
}

// -- the head ----------------------------------------------------------------------------------------------------------

function drawHead() {
  const several = state.models.length > 1;
  const heads = state.models.map(({ doc }) => `${escaped(doc.network)} <small>batch ${doc.batch}</small>`);
  const label = ({ doc }, number) => `${several ? `<i>${LETTERS[number]}</i> ` : ""}<b>${escaped(doc.label)}</b>`;
  const labels = state.models.map(label).join(" and ");
  const machines = [...new Set(state.models.map(({ doc }) => escaped(doc.machine)))].join(" and ");
  byId("title").innerHTML = `<h1>${[...new Set(heads)].join(" | ")}</h1><p>${labels} on ${machines}</p>`;
  drawTiles();
  const kinds = KINDS.map((name, kind) => [name, `var(--kind-${kind})`, kind === DRAINING ? "hatch" : "", state.models.some((m) => m.present[kind])]);
  const done = new Set(state.models.flatMap((one) => one.bars.flat().map((bar) => bar.what)));
  const word = (what) => state.models.map((one) => one.word(what)).find((one) => one !== WORK[what]) ?? WORK[what];
  const works = WORK.map((_, what) => [word(what), `var(--work-${what})`, "", done.has(what)]);
  const legend = (entries) => entries.filter((entry) => entry[3])
    .map(([name, colour, hatch]) => `<span><i style="--c:${colour}" class="${hatch}"></i>${name}</span>`).join("");
  const memory = `<span class="set kinds"><em>memory</em>${legend(kinds)}</span>`;
  byId("legend").innerHTML = `${memory}<span class="set"><em>streams</em>${legend(works)}</span>`;
}

function drawTiles() {
  const each = (text) => [...new Set(state.models.map(text))].join("<em>|</em>"); // one figure, or two that differ
  const out = (doc) => doc.counts.offloaded_bytes + doc.counts.evicted_bytes;
  const back = (doc) => doc.counts.prefetched_bytes + doc.counts.on_demand_bytes;
  const bytes = (of) => each(({ doc }) => (of(doc) ? size(of(doc)) : "nothing"));
  const any = (of) => state.models.some(({ doc }) => of(doc));
  const stalled = ({ doc, seconds }) => `${((100 * doc.stall) / seconds).toFixed(1)} %`;
  const tiles = [
    ["device memory", each(({ doc }) => size(doc.peak)), `at most; ${each(({ doc }) => size(doc.resident))} of it always`],
    ["budget", each(({ doc }) => size(doc.budget)), `${each(({ doc }) => size(doc.budget - doc.peak))} to spare`],
    ["one iteration", each(({ seconds }) => duration(seconds)), `${each(({ doc }) => doc.how)}; ${each(stalled)} without a kernel`],
  ];
  if (any(out) || any(back)) tiles.push(["copied out", bytes(out), `${bytes(back)} copied back in`]);
  if (any((doc) => doc.counts.recomputed_layers)) {
    tiles.push(["recomputed", each(({ doc }) => doc.counts.recomputed_layers), "forward steps run again in backward"]);
  }
  const instructions = each((model) => model.length.toLocaleString("en"));
  tiles.push(["program", instructions, `instructions, ${each(({ doc }) => doc.counts.waits)} of them waits`]);
  const tile = ([name, value, about]) => `<div><span>${name}</span><b>${value}</b><small>${about}</small></div>`;
  byId("figures").innerHTML = tiles.map(tile).join("");
}

// -- finding -----------------------------------------------------------------------------------------------------------

function find(text) {
  const [model] = state.models;
  const wanted = text.trim().toLowerCase();
  byId("found").hidden = !wanted;
  if (!wanted) return;
  const hits = [];
  const offer = (name, about, kind, value) => {
    const at = name.toLowerCase().indexOf(wanted);
    if (at >= 0) hits.push({ rank: (at ? 1000 : 0) + name.length, name, about, kind, value });
  };
  for (const [index, name] of model.doc.steps.layer.entries()) {
    offer(name, `step ${index + 1}, ${model.direction(index + 1)}${model.doc.steps.part[index]}`, "step", index + 1);
  }
  for (const [tensor, name] of model.tensors.name.entries()) {
    offer(name, `${model.tensors.kind[tensor]}, ${size(model.tensors.bytes[tensor])}`, "tensor", name);
  }
  hits.sort((one, other) => one.rank - other.rank); // a stable sort: layers before tensors
  const row = ({ name, about, kind, value }, index) =>
    `<div class="${index ? "" : "first"}" data-${kind}="${escaped(value)}"><b>${escaped(name)}</b><span>${about}</span></div>`;
  byId("found").innerHTML = hits.slice(0, 12).map(row).join("") || "<div>no layer or tensor has this name</div>";
}

function take(row) {
  byId("found").hidden = true;
  byId("search").blur();
  if (row?.dataset.step) {
    choose(null);
    setStep(Number(row.dataset.step));
  } else if (row?.dataset.tensor) {
    const [model] = state.models;
    const [block] = model.blocksOf.get(model.numberOf.get(row.dataset.tensor)) || [];
    choose(row.dataset.tensor);
    if (block >= model.blocks.resident) setStep(Math.max(1, model.stepAt[model.blocks.begin[block]]));
  }
}

// -- keys and the theme ------------------------------------------------------------------------------------------------

const KEYS = [
  ["← →", "step before, next step; with Shift 10 steps"],
  ["Home End", "first, last step"],
  ["P", "the fullest moment"],
  ["+ −", "zoom"],
  ["0", "everything"],
  ["Z", "zoom to the chosen tensor or step"],
  ["T", "axis: steps or time"],
  ["/", "find a tensor or a layer"],
  ["Esc", "choose no tensor"],
  ["D", "light or dark"],
  ["wheel, pinch", "zoom; Shift and wheel: the addresses"],
  ["drag", "move"],
  ["double click", "zoom to a step"],
];

const ACTIONS = {
  ArrowLeft: (event) => setStep(state.step - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => setStep(state.step + (event.shiftKey ? 10 : 1)),
  Home: () => setStep(1),
  End: () => setStep(state.models[0].count),
  p: () => setStep(state.models[0].peak.step),
  "+": () => zoom(0.6),
  "=": () => zoom(0.6),
  "-": () => zoom(1 / 0.6),
  0: showAll,
  z: zoomToChosen,
  t: () => setAxis(state.axis === "time" ? "steps" : "time"),
  "/": () => byId("search").focus(),
  Escape: () => choose(null),
  d: () => setDark(!isDark()),
  "?": () => byId("keys").showModal(),
};

function press(event) {
  if (event.target === byId("search")) {
    if (event.key === "Enter") take(byId("found").querySelector(".first"));
    else if (event.key === "Escape") take(null);
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const action = ACTIONS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  action(event);
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => document.documentElement.dataset.theme === "dark";

function setDark(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  readColours();
  redraw(BASE);
}

// -- the start ---------------------------------------------------------------------------------------------------------

// The two tall views share the window's height; on a narrow window the page scrolls.
function setHeights() {
  const narrow = matchMedia("(max-width: 1000px)").matches;
  const lanes = Math.max(...state.boards.map((board) => board.streams.height));
  const taken = byId("boards").offsetTop - byId("left").offsetTop + lanes + (state.boards.length > 1 ? 220 : 194);
  const free = Math.max(380, byId("left").clientHeight - taken);
  for (const { memory, addresses } of state.boards) {
    for (const [panel, height] of narrow ? [[memory, 170], [addresses, 300]] : [[memory, 0.4 * free], [addresses, 0.6 * free]]) {
      panel.height = Math.round(height);
      panel.plot.style.height = `${panel.height}px`;
    }
  }
}

// At once: a canvas is empty when its size has changed.
function resize() {
  setHeights();
  for (const panel of state.boards.flatMap((board) => board.panels)) panel.resize();
  paint(BASE | LIST);
}

async function start(packed) {
  if (typeof DecompressionStream === "undefined") {
    byId("title").textContent = "This page needs Chrome 80, Safari 16.4, Firefox 113 or a later one.";
    return;
  }
  state.models = (await Promise.all(packed.map(unpack))).map((doc) => new Model(doc));
  document.body.classList.toggle("two", state.models.length > 1);
  setDark(prefersDark.matches);
  drawHead();
  state.boards = state.models.map((model, number) => new Board(model, number));
  startAside();
  byId("slider").max = state.models[0].count;
  [state.begin, state.end] = limits();
  setAxis(state.axis);
  resize();
  recall();
  listen();
  new ResizeObserver(resize).observe(byId("left"));
  redraw(BASE | LIST);
  requestAnimationFrame(() => requestAnimationFrame(() => (window.painted = performance.now())));
}

function listen() {
  const clicks = {
    prev: () => setStep(state.step - 1),
    next: () => setStep(state.step + 1),
    topeak: ACTIONS.p,
    all: showAll,
    theme: ACTIONS.d,
    help: ACTIONS["?"],
  };
  for (const [id, action] of Object.entries(clicks)) byId(id).addEventListener("click", action);
  for (const button of document.querySelectorAll("[data-axis]")) {
    button.addEventListener("click", () => setAxis(button.dataset.axis));
  }
  byId("keys").innerHTML = `<h3>Keys</h3><dl>${KEYS.map(([key, about]) => `<dt>${key}</dt><dd>${about}</dd>`).join("")}</dl>
    <form method="dialog"><button>close</button></form>`;
  byId("slider").addEventListener("input", (event) => setStep(Number(event.target.value)));
  byId("search").addEventListener("input", (event) => find(event.target.value));
  byId("search").addEventListener("blur", () => (byId("found").hidden = true));
  byId("found").addEventListener("mousedown", (event) => {
    event.preventDefault();
    take(event.target.closest("div"));
  });
  document.addEventListener("keydown", press);
  window.addEventListener("hashchange", () => location.hash !== written && recall());
  prefersDark.addEventListener("change", () => setDark(prefersDark.matches));
  let dark = false; // before printing, which is in light colours
  window.addEventListener("beforeprint", () => {
    dark = isDark();
    setDark(false);
    paint(BASE);
  });
  window.addEventListener("afterprint", () => setDark(dark));
  listenToOverview();
}
