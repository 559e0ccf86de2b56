"use strict";
// Figures as text, as refimpl/text.py writes them, and the round numbers of an axis.  Nothing here touches the page.

const UNITS = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];

// A number with the given digits; a half goes to the even one, as in Python (3.0625 is 3.062).
function rounded(value, digits) {
  const power = 10 ** (digits - 1 - Math.floor(Math.log10(Math.abs(value) || 1)));
  const scaled = value * power;
  const down = Math.floor(scaled);
  return scaled - down === 0.5 && down % 2 === 0 ? down / power : Number(value.toPrecision(digits));
}

function size(nbytes) {
  const [unit, name] = UNITS.find(([unit]) => Math.abs(nbytes) >= unit) || [1, nbytes === 1 ? "byte" : "bytes"];
  return `${rounded(nbytes / unit, 4)} ${name}`;
}

function duration(seconds) {
  const [unit, name] = [[1, "s"], [1e-3, "ms"]].find(([unit]) => Math.abs(seconds) >= unit) || [1e-6, "µs"];
  return `${rounded(seconds / unit, 3)} ${name}`;
}

const counted = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
const hex = (number) => `0x${number.toString(16)}`;
const escaped = (text) => String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);

// About `count` round numbers from a to b.
function ticks(a, b, count) {
  const rough = (b - a) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(a / step) * step; value <= b + step * 1e-6; value += step) found.push(value);
  return found;
}

// The same for bytes: pairs of a value and its text.
function byteTicks(top, count) {
  const [unit, name] = UNITS.find(([unit]) => top >= unit) || [1, "bytes"];
  return ticks(0, top / unit, count).map((value) => [value * unit, value ? `${Number(value.toPrecision(6))} ${name}` : "0"]);
}

// The index of the first entry of `sorted` whose number is greater than `value`; an entry's number is `of` it.
function upper(sorted, value, of = (number) => number) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(sorted[middle]) <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
