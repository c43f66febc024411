"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("map");
const said = document.getElementById("said");
const context = canvas.getContext("2d");
const LEFT = 52;
const BOTTOM = 22;
const whole = data.to - data.from;
let view = { from: 0, length: whole };
const shows = { exits: true, yields: true };

// Starts of each row's stretches, for searching.
const rows = data.pcpus.map(() => ({ from: [], to: [], who: [], exits: [], yields: [] }));
for (let i = 0; i < data.ran.length; i += 4) {
  const row = rows[data.ran[i]];
  row.who.push(data.ran[i + 1]);
  row.from.push(data.ran[i + 2]);
  row.to.push(data.ran[i + 2] + data.ran[i + 3]);
}
for (const kind of ["exits", "yields"]) {
  for (let i = 0; i < data[kind].length; i += 2) rows[data[kind][i]][kind].push(data[kind][i + 1]);
}
for (const row of rows) {
  row.exits.sort((a, b) => a - b);
  row.yields.sort((a, b) => a - b);
}

function firstAfter(values, limit) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

// A colour of the style sheet's, as the screen has it now.
function named(colour) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${colour}`);
}

function colour(who, others) {
  const [vm, vcpu] = data.who[who];
  if (vm < 0) return others;
  const { hue, vcpus } = data.vms[vm];
  return `hsl(${hue} ${36 + (26 * vcpu) / Math.max(vcpus - 1, 1)}%)`;
}

function name(who) {
  const [vm, number] = data.who[who];
  return vm < 0 ? data.tasks[number] : `${data.vms[vm].name} vCPU ${number}`;
}

function milliseconds(ns) {
  return `${((ns + data.from - data.zero) / 1e6).toFixed(view.length < 1e6 ? 4 : 2)} ms`;
}

function draw() {
  const scale = window.devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = width * scale;
  canvas.height = height * scale;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const [ink, alarm, others] = ["ink", "alarm", "others"].map(named);
  const row = (height - BOTTOM) / rows.length;
  const x = (ns) => LEFT + ((ns - view.from) * (width - LEFT)) / view.length;
  context.font = "12px sans-serif";
  context.textBaseline = "middle";
  const every = Math.ceil(14 / row);
  rows.forEach((of, at) => {
    const y = at * row;
    if (at % every === 0) {
      context.fillStyle = ink;
      context.textAlign = "right";
      context.fillText(String(data.pcpus[at]), LEFT - 6, y + Math.max(row, 12) / 2);
    }
    let drawn = -1;
    for (let i = firstAfter(of.to, view.from); i < of.from.length && of.from[i] < view.from + view.length; i++) {
      const from = Math.max(x(of.from[i]), LEFT);
      const to = Math.min(x(of.to[i]), width);
      // What is narrower than a pixel is not drawn over what is there.
      if (to - drawn < 0.5) continue;
      context.fillStyle = colour(of.who[i], others);
      context.fillRect(from, y, Math.max(to - from, 0.5), row - Math.min(1, row / 6));
      drawn = to;
    }
    for (const [kind, top, shade] of [["exits", y + row * 0.6, alarm], ["yields", y, ink]]) {
      if (!shows[kind]) continue;
      context.fillStyle = shade;
      let last = -1;
      for (let i = firstAfter(of[kind], view.from); i < of[kind].length && of[kind][i] < view.from + view.length; i++) {
        const at = Math.round(x(of[kind][i]));
        if (at === last) continue;
        last = at;
        context.fillRect(at, top, 1, row * 0.35);
      }
    }
  });
  context.fillStyle = ink;
  context.textAlign = "left";
  context.fillText(milliseconds(view.from), LEFT, height - 9);
  context.textAlign = "right";
  context.fillText(milliseconds(view.from + view.length), width, height - 9);
}

function zoom(factor, at) {
  const length = Math.min(Math.max(view.length * factor, 1000), whole);
  const share = (at - view.from) / view.length;
  view = { from: at - share * length, length };
  settle();
}

function settle() {
  view.from = Math.min(Math.max(view.from, 0), whole - view.length);
  draw();
}

function place(event) {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  const ns = view.from + ((event.clientX - left - LEFT) * view.length) / (width - LEFT);
  return { ns, row: Math.floor(((event.clientY - top) * rows.length) / (height - BOTTOM)) };
}

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : 0.8, place(event).ns);
}, { passive: false });
let held = null;
canvas.addEventListener("pointerdown", (event) => {
  held = { x: event.clientX, from: view.from };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointerup", () => { held = null; });
canvas.addEventListener("pointermove", (event) => {
  if (held) {
    const { width } = canvas.getBoundingClientRect();
    view.from = held.from - ((event.clientX - held.x) * view.length) / (width - LEFT);
    settle();
    return;
  }
  const { ns, row } = place(event);
  const of = rows[row];
  if (!of || ns < view.from) return;
  const at = firstAfter(of.from, ns) - 1;
  const there = at >= 0 && of.to[at] > ns ? `${name(of.who[at])}, ${((of.to[at] - of.from[at]) / 1e3).toFixed(1)} us from ${milliseconds(of.from[at])}` : "idle";
  said.textContent = `pCPU ${data.pcpus[row]}: ${there}`;
});
canvas.addEventListener("keydown", (event) => {
  const middle = view.from + view.length / 2;
  const step = view.length / 8;
  const keys = {
    "+": () => zoom(0.5, middle),
    "-": () => zoom(2, middle),
    0: () => zoom(Infinity, middle),
    ArrowLeft: () => { view.from -= step; settle(); },
    ArrowRight: () => { view.from += step; settle(); },
  };
  if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
});
for (const [id, factor] of [["in", 0.5], ["out", 2], ["all", Infinity]]) {
  document.getElementById(id).addEventListener("click", () => zoom(factor, view.from + view.length / 2));
}
for (const kind of ["exits", "yields"]) {
  document.getElementById(kind).addEventListener("change", (event) => {
    shows[kind] = event.target.checked;
    draw();
  });
}
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
