"use strict";
// Pointing at a line tells its numbers, switches take lines away, and the table of contents follows the reader.
// Pictures are drawn without this; here they are only changed.
document.documentElement.classList.add("live");
const TOP = 12,
  FLOOR = 238,
  LEFT = 52,
  RIGHT = 388;
const made = (name, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};
const short = (value) => {
  for (const [size, letter] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ])
    if (Math.abs(value) >= size) return `${+(value / size).toPrecision(6)}${letter}`;
  return `${+value.toPrecision(6)}`;
};
const place = (n) => +n.toFixed(1);

class Chart {
  constructor(svg) {
    this.svg = svg;
    this.scales = JSON.parse(svg.dataset.scales);
    this.traces = [...svg.querySelectorAll(".trace")].map((group) => ({
      group,
      label: group.dataset.label,
      look: group.dataset.look,
      points: JSON.parse(group.dataset.points),
    }));
    this.ring = made("circle", { class: "here-dot", r: 7, visibility: "hidden" });
    svg.append(this.ring);
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.tip.setAttribute("role", "status");
    svg.parentNode.append(this.tip);
    svg.addEventListener("pointermove", (event) => this.point(event));
    svg.addEventListener("pointerdown", (event) => this.point(event));
    svg.addEventListener("pointerleave", () => this.leave());
    svg.addEventListener("blur", () => this.leave());
    svg.addEventListener("focus", () => {
      if (svg.matches(":focus-visible")) this.step(0, 0);
    });
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (event.key === "Escape") this.leave();
      if (!move) return;
      event.preventDefault();
      this.step(...move);
    });
  }
  shown() {
    return this.traces.filter((one) => !one.group.classList.contains("off") && one.points.length);
  }
  up(value) {
    if (!this.scales.y) return value;
    const [low, high] = this.scales.log ? this.scales.y.map(Math.log10) : this.scales.y;
    return FLOOR + (((this.scales.log ? Math.log10(value) : value) - low) / (high - low)) * (TOP - FLOOR);
  }
  point(event) {
    const box = this.svg.getBoundingClientRect(),
      scale = 400 / box.width;
    const x = (event.clientX - box.left) * scale,
      y = (event.clientY - box.top) * scale;
    let best = null,
      least = 40;
    for (const trace of this.shown())
      trace.points.forEach((one, n) => {
        const away = Math.hypot(one[0] - x, this.up(one[2]) - y);
        if (away < least) [best, least] = [[trace, n], away];
      });
    if (best) this.show(...best);
    else this.leave();
  }
  step(down, right) {
    const traces = this.shown();
    if (!traces.length) return;
    const before = traces.indexOf(this.trace);
    const trace = traces[(Math.max(before, 0) + down + traces.length) % traces.length];
    // To the point of the other line that lies nearest above or below.
    const from = this.trace && before >= 0 ? this.trace.points[this.n][0] : Infinity;
    let n =
      trace === this.trace
        ? this.n
        : trace.points.reduce(
            (best, one, k) => (Math.abs(one[0] - from) < Math.abs(trace.points[best][0] - from) ? k : best),
            trace.points.length - 1,
          );
    n = Math.min(Math.max(n + right, 0), trace.points.length - 1);
    this.show(trace, n);
  }
  show(trace, n) {
    [this.trace, this.n] = [trace, n];
    const [x, says, value] = trace.points[n],
      y = this.up(value);
    this.ring.setAttribute("cx", x);
    this.ring.setAttribute("cy", place(y));
    this.ring.setAttribute("visibility", "visible");
    for (const one of this.traces) {
      one.group.classList.toggle("strong", one.label === trace.label);
      one.group.classList.toggle("faint", one.label !== trace.label);
    }
    const name = document.createElement("b");
    name.textContent = trace.label;
    this.tip.replaceChildren(name, says);
    this.tip.hidden = false;
    const frame = this.svg.parentNode.getBoundingClientRect(),
      box = this.svg.getBoundingClientRect();
    const left = (x * box.width) / 400,
      top = box.top - frame.top + (y * box.width) / 400;
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    this.tip.style.left = `${Math.min(Math.max(left - width / 2, 0), frame.width - width)}px`;
    this.tip.style.top = `${top - height - 14 < 0 ? top + 14 : top - height - 14}px`;
  }
  leave() {
    this.tip.hidden = true;
    this.ring.setAttribute("visibility", "hidden");
    for (const one of this.traces) one.group.classList.remove("strong", "faint");
  }
  turn(label, on) {
    for (const one of this.traces) if (one.label === label) one.group.classList.toggle("off", !on);
    this.leave();
    if (!this.scales.y || this.scales.fixed || !this.shown().length) return;
    const values = this.shown().flatMap((one) =>
      one.points.flatMap(([, , y, low, high]) => [y, high ?? y, this.scales.log ? y : (low ?? y)]),
    );
    const low = Math.min(...values),
      high = Math.max(...values);
    this.scales.y = this.scales.log
      ? [low / 1.15, high * 1.15]
      : [Math.min(0, low), high > Math.min(0, low) ? high : 1];
    this.redraw();
  }
  redraw() {
    const [bottom, top] = this.scales.y;
    for (const { group, points, look } of this.traces) {
      const ends = points.map(([x, , y, low, high]) =>
        [
          x,
          this.up(y),
          this.up(this.scales.log ? Math.max(low ?? y, y / 10, bottom) : (low ?? y)),
          this.up(this.scales.log ? Math.min(high ?? y, top) : (high ?? y)),
        ].map(place),
      );
      group.querySelector(".stroke").setAttribute("d", "M" + ends.map(([x, y]) => `${x},${y}`).join("L"));
      const band = group.querySelector(".band"),
        marks = group.querySelector(".marks");
      if (band.getAttribute("d"))
        band.setAttribute(
          "d",
          "M" +
            [...ends.map(([x, , , high]) => `${x},${high}`), ...ends.map(([x, , low]) => `${x},${low}`).reverse()].join(
              "L",
            ) +
            "Z",
        );
      if (marks.getAttribute("d")) {
        const shape = marks.getAttribute("d").match(/m[^M]*/)[0];
        marks.setAttribute("d", ends.map(([x, y]) => `M${x},${y}${shape}`).join(""));
      }
    }
    const ticks = this.svg.querySelector(".ticks");
    ticks.replaceChildren(
      ...this.levels().flatMap((value) => {
        const y = place(this.up(value));
        const text = made("text", { class: "tick end", x: LEFT - 6, y: y + 4 });
        text.textContent = short(value);
        return [made("path", { class: value === 0 ? "zero" : "grid", d: `M${LEFT},${y}H${RIGHT}` }), text];
      }),
    );
  }
  levels() {
    const [low, high] = this.scales.y,
      found = [];
    if (this.scales.log) {
      for (let k = Math.ceil(Math.log10(low)); k <= Math.floor(Math.log10(high)); k++) found.push(10 ** k);
      if (found.length > 1) return found.filter((_, n) => n % Math.ceil(found.length / 6) === 0);
      return [low, Math.sqrt(low * high), high]
        .map((value) => +value.toPrecision(2))
        .filter((v) => v >= low && v <= high);
    }
    const rough = (high - low) / 5,
      size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * size).find((one) => one >= rough);
    for (let k = Math.ceil(low / step); k <= Math.floor(high / step); k++) found.push(k * step);
    return found;
  }
}

const pictures = [...document.querySelectorAll(".picture")].map((box) => ({
  switches: [...box.querySelectorAll("input[data-label]")],
  charts: [...box.querySelectorAll(".chart")].map((svg) => new Chart(svg)),
}));
const turn = (picture, label, on) => {
  for (const box of picture.switches) if (box.dataset.label === label) box.checked = on;
  for (const chart of picture.charts) chart.turn(label, on);
};
for (const picture of pictures)
  for (const box of picture.switches)
    box.addEventListener("change", () => turn(picture, box.dataset.label, box.checked));
for (const box of document.querySelectorAll(".legend.everywhere input"))
  box.addEventListener("change", () => {
    for (const one of pictures) turn(one, box.dataset.label, box.checked);
  });

const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
const marks = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
const follow = () => {
  const passed = marks.filter((mark) => mark.getBoundingClientRect().top < innerHeight / 4);
  const now = (passed.at(-1) ?? marks[0]).id;
  for (const [id, link] of links) {
    if (id !== now) {
      link.removeAttribute("aria-current");
      continue;
    }
    if (link.hasAttribute("aria-current")) continue;
    link.setAttribute("aria-current", "true");
    const list = link.closest("ol");
    if (list.scrollWidth > list.clientWidth) list.scrollLeft = link.offsetLeft - list.clientWidth / 3;
  }
};
let waiting = false;
addEventListener(
  "scroll",
  () => {
    if (!waiting)
      requestAnimationFrame(() => {
        waiting = false;
        follow();
      });
    waiting = true;
  },
  { passive: true },
);
addEventListener("resize", follow);
follow();
