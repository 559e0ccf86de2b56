"use strict";
// Mouse, wheel and fingers on the views, and the overview below them.

const WHEEL = 0.0022; // of zoom for a unit of the wheel

function follow(panel) {
  const { overlay } = panel;
  const fingers = new Map(); // pointer → its last event
  let drag = null;

  const grip = () => { // the middle of all fingers, and the distance of two
    const all = [...fingers.values()];
    const mean = (of) => all.reduce((sum, event) => sum + of(event), 0) / all.length;
    const left = overlay.getBoundingClientRect().left;
    return {
      x: mean((event) => event.clientX) - left, y: mean((event) => event.clientY),
      apart: all.length > 1 ? Math.max(20, Math.abs(all[0].clientX - all[1].clientX)) : 0,
    };
  };
  const hold = () => {
    const { x, y, apart } = grip();
    drag = {
      x, y, apart, place: panel.place(x), width: state.end - state.begin,
      low: panel.low, high: panel.high, moved: drag?.moved || fingers.size > 1,
    };
  };

  overlay.addEventListener("mousemove", (event) => {
    if (drag) return;
    const inside = event.offsetX >= LEFT && event.offsetX <= panel.right;
    state.cursor = inside ? panel.place(event.offsetX) : null;
    const found = panel.pick(event.offsetX, event.offsetY);
    overlay.style.cursor = found ? "pointer" : "crosshair";
    hover(found, event);
    redraw(OVERLAY);
  });
  overlay.addEventListener("mouseleave", () => {
    state.cursor = null;
    hover(null);
    redraw(OVERLAY);
  });
  overlay.addEventListener("pointerdown", (event) => {
    overlay.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event);
    if (fingers.size === 1) drag = null;
    hold();
  });
  overlay.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    fingers.set(event.pointerId, event);
    const { x, y, apart } = grip();
    if (Math.abs(x - drag.x) + Math.abs(y - drag.y) < 4 && !drag.moved) return;
    drag.moved = true;
    overlay.style.cursor = "grabbing";
    hover(null);
    if (panel.zoomed) {
      const up = ((y - drag.y) / (panel.height - 6)) * (drag.high - drag.low);
      panel.show(drag.low + up, drag.high + up);
    }
    // The place that was gripped stays below the fingers.
    const width = apart ? (drag.width * drag.apart) / apart : drag.width;
    const begin = drag.place - ((x - LEFT) / (panel.right - LEFT)) * width;
    show(begin, begin + width);
  });
  const release = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    if (fingers.size) {
      hold();
      return;
    }
    const { moved } = drag;
    drag = null;
    if (moved || event.type === "pointercancel") return;
    const found = panel.pick(event.offsetX, event.offsetY);
    const { model } = panel;
    const step = found?.bar?.step || model.stepOf(panel.place(event.offsetX), state.axis);
    choose(found && found.tensor >= 0 ? model.tensors.name[found.tensor] : null, false);
    setStep(model === state.models[0] ? step : panel.board.paired(step));
  };
  overlay.addEventListener("pointerup", release);
  overlay.addEventListener("pointercancel", release);
  overlay.addEventListener("dblclick", (event) => {
    const step = panel.model.stepOf(panel.place(event.offsetX), state.axis);
    const [begin, end] = panel.model.range(step, state.axis);
    show(begin - 3 * (end - begin), end + 3 * (end - begin));
  });
  overlay.addEventListener("wheel", (event) => {
    event.preventDefault();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (event.shiftKey && panel instanceof AddressPanel) {
      const centre = panel.address(event.offsetY);
      const factor = Math.exp((event.deltaY || event.deltaX) * WHEEL);
      panel.show(centre - (centre - panel.low) * factor, centre + (panel.high - centre) * factor);
      redraw(BASE);
    } else if (sideways) show(state.begin + event.deltaX / panel.scale, state.end + event.deltaX / panel.scale);
    else zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * WHEEL), panel.place(event.offsetX));
  }, { passive: false });
}

// -- the overview: the whole axis, and a window that can be dragged -----------------------------------------------------

let silhouette = null; // the curve, kept until the axis, the width or the theme changes

function drawOverview() {
  const canvas = byId("overview");
  const density = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const [first, last] = limits();
  const { left, wide } = overviewPlace();
  const x = (place) => left + ((place - first) / (last - first)) * wide;
  const key = [state.axis, colours.pale, width, density].join();
  if (silhouette?.key !== key) {
    silhouette = { key, canvas: document.createElement("canvas") };
    for (const one of [canvas, silhouette.canvas]) fit(one, width, height);
    drawSilhouette(silhouette.canvas.getContext("2d"), density, x, left, wide, height);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(silhouette.canvas, 0, 0);
  pen.setTransform(density, 0, 0, density, 0, 0);
  const [begin, end] = [x(state.begin), x(state.end)];
  pen.fillStyle = colours.veil;
  pen.fillRect(left, 0, begin - left, height);
  pen.fillRect(end, 0, left + wide - end, height);
  pen.strokeStyle = pen.fillStyle = colours.accent;
  pen.lineWidth = 1.5;
  pen.strokeRect(begin + 0.75, 0.75, Math.max(2, end - begin - 1.5), height - 1.5);
  const [x0, x1] = state.models[0].range(state.step, state.axis).map(x);
  pen.fillRect(x0, 0, Math.max(2, x1 - x0), height);
}

function drawSilhouette(pen, density, x, left, wide, height) {
  const { curve, peak } = state.models[0];
  const places = curve[state.axis];
  const columns = Math.ceil(wide);
  const most = new Float64Array(columns);
  const column = (place) => Math.max(0, Math.min(columns - 1, Math.floor(x(place) - left)));
  for (let i = 0; i < curve.count; i++) {
    const end = i + 1 < curve.count ? column(places[i + 1]) : columns - 1;
    for (let c = column(places[i]); c <= end; c++) most[c] = Math.max(most[c], curve.total[i]);
  }
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.fillStyle = colours.pale;
  pen.globalAlpha = 0.55;
  for (let c = 0; c < columns; c++) {
    const bar = (most[c] / peak.bytes) * (height - 6);
    pen.fillRect(left + c, height - bar, 1, bar);
  }
}

// Below the first board's plots; with two boards as wide as both.
function overviewPlace() {
  const panel = state.boards[0].memory;
  const left = panel.plot.getBoundingClientRect().left - byId("overview").getBoundingClientRect().left + LEFT;
  return { left, wide: state.boards.length > 1 ? byId("overview").clientWidth - left - RIGHT : panel.right - LEFT };
}

function listenToOverview() {
  const canvas = byId("overview");
  let drag = null;
  const place = (event) => {
    const [first, last] = limits();
    const { left, wide } = overviewPlace();
    return first + ((event.offsetX - left) / wide) * (last - first);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    const at = place(event);
    const half = (state.end - state.begin) / 2;
    if (at < state.begin || at > state.end) show(at - half, at + half);
    drag = { at, begin: state.begin, end: state.end };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) show(drag.begin + place(event) - drag.at, drag.end + place(event) - drag.at);
  });
  canvas.addEventListener("pointerup", () => (drag = null));
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(event.deltaY * WHEEL), place(event));
  }, { passive: false });
}
