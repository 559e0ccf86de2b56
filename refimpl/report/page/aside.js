"use strict";
// Beside the views: one tensor's life, the listing, and the differences of two programs.

const ROW = 21; // pixels of a line of the listing
const USES = 14; // of a tensor that its life shows
let lists = []; // one a program
let tab = "";

function startAside() {
  const names = state.models.length > 1 ? ["program A", "program B", "differences"] : ["program"];
  byId("tabs").innerHTML = names.map((name) => `<button>${name}</button>`).join("");
  for (const button of byId("tabs").children) button.addEventListener("click", () => setTab(button.textContent));
  lists = state.models.map((model) => new Listing(model));
  setTab(names.at(-1));
  drawCard();
  listenToList();
  byId("card").addEventListener("click", (event) => {
    const use = event.target.closest("[data-position]");
    if (event.target.closest("[data-close]")) choose(null);
    else if (use) setStep(Math.max(1, Number(use.dataset.step)));
  });
}

function setTab(name) {
  tab = name;
  for (const button of byId("tabs").children) button.setAttribute("aria-pressed", button.textContent === name);
  byId("rows").style.height = "auto";
  if (tab === "differences") {
    byId("rows").innerHTML = `<div class="differences">${differences()}</div>`;
    byId("list").scrollTop = 0;
  } else scrollToStep();
  redraw(LIST);
}

// -- the listing: only the lines in sight exist -------------------------------------------------------------------------

// Lines are heads of steps, instructions, and for steps that repeat others one line, which a click unfolds.
class Listing {
  constructor(model) {
    this.model = model;
    this.unfolded = new Set();
    this.fold();
  }

  fold() {
    const { model } = this;
    const { ops, repeats, steps } = model.doc;
    this.lines = [];
    this.headOf = new Int32Array(model.count + 1);
    this.foldOf = new Map(); // hidden step → the number of its fold
    for (const [fold, [first, last]] of repeats.entries()) {
      if (!this.unfolded.has(fold)) for (let step = first; step <= last; step++) this.foldOf.set(step, fold);
    }
    for (let step = 0; step <= model.count; step++) {
      this.headOf[step] = this.lines.length;
      const fold = this.foldOf.get(step);
      if (fold !== undefined) {
        if (this.foldOf.get(step - 1) !== fold) this.lines.push({ fold });
        else this.headOf[step] = this.headOf[step - 1];
        continue;
      }
      this.lines.push({ step });
      for (let position = step ? steps.end[step - 1] : 0; position < steps.end[step]; position++) {
        if (!"rw".includes(ops[position])) this.lines.push({ position });
      }
    }
  }

  unfold(fold) {
    this.unfolded.add(fold);
    this.fold();
  }

  reveal(step) {
    if (this.foldOf.has(step)) this.unfold(this.foldOf.get(step));
    return this.headOf[step];
  }

  html(line, number, board) {
    const top = `style="top:${number * ROW}px"`;
    const { model } = this;
    if (line.fold !== undefined) {
      const text = escaped(model.doc.repeats[line.fold][2]);
      return `<div class="line fold" ${top} data-fold="${line.fold}" title="${text}">⋯ ${text}</div>`;
    }
    if (line.step === 0) return `<div class="line head" ${top}>Before the first step</div>`;
    if (line.step) {
      const chosen = line.step === board.step() ? " chosen" : "";
      const peak = line.step === model.peak.step ? "peak · " : "";
      const held = `<span>${peak}${size(model.doc.steps.pool[line.step - 1])}</span>`;
      const name = escaped(model.stepName(line.step));
      return `<div class="line head${chosen}" ${top} data-step="${line.step}"><b>${line.step}</b> ${name}${held}</div>`;
    }
    const [label, text] = model.said(line.position);
    const marked = board.marked();
    const own = marked >= 0 && (model.usesOf.get(marked) || []).includes(line.position);
    const now = model.stepAt[line.position] === board.step();
    return `<div class="line${own ? " own" : ""}${now ? " now" : ""}" ${top} data-position="${line.position}"
      title="${escaped(text)}"><i class="${model.styleOf(label)}">${label}</i>${escaped(text)}</div>`;
  }
}

const listed = () => (tab === "program B" ? 1 : 0);

function scrollToStep() {
  if (tab === "differences" || !lists.length) return;
  const line = lists[listed()].reveal(state.boards[listed()].step());
  byId("rows").style.height = `${lists[listed()].lines.length * ROW}px`;
  byId("list").scrollTop = (line - 2) * ROW;
}

function drawList() {
  if (tab === "differences") return;
  const { lines } = lists[listed()];
  const list = byId("list");
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 2);
  const last = Math.min(lines.length, first + Math.ceil(list.clientHeight / ROW) + 5);
  byId("rows").style.height = `${lines.length * ROW}px`;
  const html = [];
  for (let number = first; number < last; number++) {
    html.push(lists[listed()].html(lines[number], number, state.boards[listed()]));
  }
  byId("rows").innerHTML = html.join("");
}

function listenToList() {
  const list = byId("list");
  const lineOf = (event) => event.target.closest("[data-position],[data-step],[data-fold],[data-tensor]");
  const nameAt = (position) => {
    const { model } = lists[listed()];
    const tensor = model.tensorAt(Number(position));
    return tensor < 0 ? null : model.tensors.name[tensor];
  };
  list.addEventListener("scroll", () => redraw(LIST));
  list.addEventListener("click", (event) => {
    const line = lineOf(event);
    if (!line) return;
    const { step, position, fold, tensor } = line.dataset;
    const board = state.boards[listed()];
    if (tensor) choose(tensor);
    else if (fold) {
      lists[listed()].unfold(Number(fold));
      redraw(LIST);
    } else if (step) setStep(tab === "differences" ? Number(step) : board.paired(Number(step)), false);
    else {
      choose(nameAt(position), false);
      setStep(board.paired(Math.max(1, board.model.stepAt[position])), false);
    }
  });
  list.addEventListener("mouseover", (event) => {
    const line = lineOf(event);
    const name = line?.dataset.tensor ?? (line?.dataset.position ? nameAt(line.dataset.position) : null);
    if (name === state.hovered) return;
    state.hovered = name;
    redraw(OVERLAY);
  });
  list.addEventListener("mouseleave", () => hover(null));
}

// -- one tensor's life --------------------------------------------------------------------------------------------------

function drawCard() {
  if (state.tensor === null) {
    byId("card").innerHTML = `<p class="hint">Click a block, a bar or a line to follow one tensor through all views.
      Scroll to zoom, drag to move, <kbd>?</kbd> shows the keys.</p>`;
    return;
  }
  const lives = state.boards.map(({ model }, number) => life(model, number, model.numberOf.get(state.tensor)));
  byId("card").innerHTML = `<button data-close title="Esc">×</button>${lives.join("")}`;
}

function life(model, number, tensor) {
  const letter = state.models.length > 1 ? `<em>${LETTERS[number]}</em> ` : "";
  if (tensor === undefined) return `<div class="life"><p>${letter}has no tensor of this name</p></div>`;
  const [block] = model.blocksOf.get(tensor) || [];
  const kind = block === undefined ? 0 : model.blocks.kind[block];
  const about = `${model.tensors.kind[tensor]}, ${size(model.tensors.bytes[tensor])}`;
  const title = `${letter}<i class="dot" style="--c:var(--kind-${kind})"></i>${escaped(state.tensor)} <small>${about}</small>`;
  const fate = model.fate(tensor);
  const chosen = fate ? `<p class="fate"><b>${fate[0]}</b> ${escaped(model.doc.reasons[fate[1]])}</p>` : "";
  const all = model.usesOf.get(tensor) || [];
  const uses = all.slice(0, USES).map((position) => {
    const [label, text] = model.said(position);
    const verb = model.launchAt[position] < 0 ? label : model.writes(position, tensor) ? "written by" : "read by";
    const layer = model.launchAt[position] < 0 ? "" : `${model.doc.names[model.doc.work.name[model.workAt[position]]]}, `;
    const step = model.stepAt[position];
    return `<li data-position="${position}" data-step="${step}" title="${escaped(text)}"><span>${step || "–"}</span>` +
      `<i class="${model.styleOf(label)}">${verb}</i>${escaped(layer + text)}</li>`;
  });
  const more = all.length > USES ? `<p class="hint">${all.length} uses in all</p>` : "";
  return `<div class="life"><h3>${title}</h3>${chosen}<ol>${uses.join("")}</ol>${more}</div>`;
}

// -- two programs -------------------------------------------------------------------------------------------------------

function differences() {
  return figureDifferences() + fateDifferences() + stepDifferences();
}

const signed = (difference, text) => `${difference > 0 ? "+" : "−"}${text(Math.abs(difference))}`;

function figureDifferences() {
  const [a, b] = state.models;
  const plain = (value) => value.toLocaleString("en");
  const figures = [
    ["peak", ({ doc }) => doc.peak, size],
    ["pinned memory", ({ doc }) => doc.pinned, size],
    ["iteration", ({ seconds }) => seconds, duration],
    ["stalled", ({ doc }) => doc.stall, duration],
    ["offloaded", ({ doc }) => doc.counts.offloaded_bytes, size],
    ["prefetched", ({ doc }) => doc.counts.prefetched_bytes, size],
    ["on demand", ({ doc }) => doc.counts.on_demand_bytes, size],
    ["steps recomputed", ({ doc }) => doc.counts.recomputed_layers, plain],
    ["waits", ({ doc }) => doc.counts.waits, plain],
  ];
  const rows = figures.map(([name, of, text]) => {
    const difference = of(b) - of(a);
    const shown = difference ? signed(difference, text) : "=";
    return `<tr class="${difference ? "" : "same"}"><td>${name}</td><td>${text(of(a))}</td><td>${text(of(b))}</td><td>${shown}</td></tr>`;
  });
  return `<table><tr><th></th><th>A</th><th>B</th><th>B − A</th></tr>${rows.join("")}</table>`;
}

function fateDifferences() {
  const [a, b] = state.models;
  const groups = new Map(); // "keep → offload" → names and bytes
  for (const [tensor, name] of a.tensors.name.entries()) {
    const other = b.numberOf.get(name);
    const fates = [a.fate(tensor), other === undefined ? null : b.fate(other)].map((fate) => fate?.[0] ?? "no fate");
    if (fates[0] === fates[1]) continue;
    const key = fates.join(" → ");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push([name, a.tensors.bytes[tensor]]);
  }
  const chip = ([name, bytes]) => `<span class="chip" data-tensor="${escaped(name)}">${escaped(name)} <small>${size(bytes)}</small></span>`;
  const parts = [...groups].map(([key, maps]) => {
    const total = size(maps.reduce((sum, [, bytes]) => sum + bytes, 0));
    const largest = maps.sort((one, other) => other[1] - one[1]).slice(0, 60).map(chip).join("");
    return `<details open><summary><b>${key}</b> ${counted(maps.length, "map")}, ${total}</summary>${largest}</details>`;
  });
  return `<h4>Maps with another fate, A → B</h4>${parts.join("") || "<p>Every map has the same fate in both.</p>"}`;
}

// Steps are paired by layer and direction, so that networks of different length can be compared.
function stepDifferences() {
  const [a, b] = state.models;
  const gaps = [];
  let alone = 0;
  for (const [name, step] of a.stepOfName) {
    const other = b.stepOfName.get(name);
    if (other === undefined) alone++;
    else gaps.push([name, step, b.doc.steps.pool[other - 1] - a.doc.steps.pool[step - 1]]);
  }
  const largest = gaps.filter((gap) => gap[2]).sort((one, other) => Math.abs(other[2]) - Math.abs(one[2])).slice(0, 12);
  const rows = largest.map(([name, step, gap]) =>
    `<tr data-step="${step}"><td>${step} ${escaped(name)}</td><td>${signed(gap, size)}</td></tr>`);
  const notes = [];
  if (alone) notes.push(`${counted(alone, "step")} of A not in B`);
  if (b.stepOfName.size > gaps.length) notes.push(`${counted(b.stepOfName.size - gaps.length, "step")} of B not in A`);
  const note = notes.length ? `<p>${notes.join("; ")}.</p>` : "";
  const table = largest.length ? `<table>${rows.join("")}</table>` : "<p>The pool is the same at every common step.</p>";
  return `<h4>Steps where the pools differ most, B − A</h4>${table}${note}`;
}
