// Scales, ticks and small helpers for drawing.

const SVG = "http://www.w3.org/2000/svg";

/** A linear scale from a domain to pixels, with its inverse. */
function scale(low, high, start, end) {
  const per = (end - start) / (high - low || 1);
  const of = (value) => start + (value - low) * per;
  of.inverse = (pixel) => low + (pixel - start) / per;
  of.domain = [low, high];
  return of;
}

/** About `count` round numbers between two ends. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found;
}

/** A number with as many digits as a reader needs. */
function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1);
  return String(Number(value.toPrecision(4)));
}

/** An element with attributes, within a parent. */
function draw(parent, name, attributes = {}) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.append(element);
  return element;
}

/** The path through points, in pixels. */
function line(xs, ys) {
  let path = "";
  for (let i = 0; i < xs.length; i++) path += `${i ? "L" : "M"}${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
  return path;
}

/** The outline of a band between two curves. */
function band(xs, low, high) {
  const back = [...xs].reverse();
  return `${line(xs, low)}${line(back, [...high].reverse()).replace("M", "L")}Z`;
}

/** Colours of a map, dark to light (the anchors of cividis, which the colour-blind see like everyone). */
const SHADES = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116],
  [195, 179, 105], [225, 204, 85], [254, 232, 56],
];

function shade(share) {
  const place = Math.min(1, Math.max(0, share)) * (SHADES.length - 1);
  const first = Math.min(SHADES.length - 2, Math.floor(place));
  return SHADES[first].map((value, i) => value + (place - first) * (SHADES[first + 1][i] - value));
}

/** Colours of classes (Okabe and Ito). */
const CLASS_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7a00", "#767f8c"];
