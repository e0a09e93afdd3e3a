// Lines over an axis of slots: scales, ticks, bands, levels and events.
import { short, svg } from "./element.js";

export function scale(low, high, start, end, log = false) {
  const f = log ? Math.log : (value) => value;
  const span = f(high) - f(low) || 1;
  return Object.assign((value) => start + ((f(value) - f(low)) / span) * (end - start), { low, high, log });
}

export function ticks({ low, high, log }, about = 5) {
  const found = [];
  if (log) {
    for (let k = Math.ceil(Math.log10(low) - 1e-9); 10 ** k <= high * 1.0001; k++) found.push(10 ** k);
    if (found.length > 1) return found;
  }
  const rough = (high - low) / about || 1,
    size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * size).find((one) => one >= rough * 0.999);
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++)
    found.push(+(k * step).toPrecision(12));
  return found;
}

// Lines {label, colour, dash, points: [{x, y, low, high, says}]}, levels {label, y, low, high, colour},
// events {x, label, says, kind}; faint lines cannot be pointed at.
export function lines(figure, { traces = [], levels = [], events = [], x, y, height = 250, rows, says, faint = [] }) {
  const width = figure.wide,
    left = 46,
    right = 10,
    top = events.length ? 20 : 10,
    floor = height - 36;
  const every = [...traces, ...faint].flatMap((one) => one.points);
  const xs = [...every.map((one) => one.x), ...(x.ends ?? [])];
  const ys = [
    ...every.flatMap((one) => [one.y, one.low ?? one.y, one.high ?? one.y]),
    ...levels.flatMap((one) => [one.y, one.low ?? one.y, one.high ?? one.y]),
    ...(y.ends ?? []),
  ];
  if (!xs.length)
    return figure.show(
      height,
      [svg("text", { x: width / 2, y: height / 2, class: "middle" }, "nothing yet")],
      [],
      rows,
      "nothing yet",
    );
  const across = scale(Math.min(...xs), Math.max(...xs), left + 4, width - right, x.log);
  const span = Math.max(...ys) - Math.min(...ys);
  const up = scale(
    y.fixed ? y.ends[0] : Math.min(...ys) - (Math.min(...ys) > 0 || y.pad ? 0.06 * span : 0),
    y.fixed ? y.ends[1] : Math.max(...ys) + 0.06 * span,
    floor,
    top,
  );
  const points = [],
    parts = [];
  for (const value of ticks(up, 5))
    parts.push(
      svg("path", { class: value === 0 ? "zero" : "gridline", d: `M${left},${up(value)}H${width - right}` }),
      svg("text", { class: "end", x: left - 6, y: up(value) + 4 }, short(value)),
    );
  const marks = ticks(across, Math.max(3, Math.round(width / 130)));
  for (const value of marks)
    parts.push(svg("text", { class: "middle", x: Math.min(across(value), width - 16), y: floor + 16 }, short(value)));
  parts.push(
    svg("text", { class: "middle label", x: (left + width) / 2, y: height - 4 }, x.label),
    svg("text", { class: "label middle", transform: `translate(11,${(top + floor) / 2}) rotate(-90)` }, y.label),
  );
  for (const one of levels) {
    if (one.low !== undefined && one.low !== null)
      parts.push(
        svg("rect", {
          class: "band",
          x: left,
          width: width - right - left,
          y: up(one.high),
          height: Math.max(1, up(one.low) - up(one.high)),
          style: { fill: one.colour },
        }),
      );
    parts.push(
      svg("path", {
        class: "stroke",
        "stroke-dasharray": "6 4",
        d: `M${left},${up(one.y)}H${width - right}`,
        style: { stroke: one.colour },
      }),
    );
    points.push({ x: width - right - 30, y: up(one.y), label: one.label, says: one.says, key: one.label });
  }
  for (const one of faint)
    parts.push(
      svg("path", {
        class: "stroke dim",
        "stroke-width": 1,
        d: path(one.points, across, up),
        style: { stroke: one.colour, "stroke-width": 1 },
      }),
    );
  for (const one of traces) {
    if (!one.points.length) continue;
    if (one.points[0].low !== undefined) {
      const there = one.points.map((p) => `${n(across(p.x))},${n(up(p.high))}`),
        back = one.points.map((p) => `${n(across(p.x))},${n(up(p.low))}`).reverse();
      parts.push(
        svg("path", {
          class: traces.length > 4 ? "band thin" : "band",
          d: `M${[...there, ...back].join("L")}Z`,
          style: { fill: one.colour },
        }),
      );
    }
    parts.push(
      svg("path", {
        class: "stroke",
        d: path(one.points, across, up),
        "stroke-dasharray": one.dash ? "5 4" : null,
        style: { stroke: one.colour },
      }),
    );
    for (const p of one.points)
      points.push({ x: across(p.x), y: up(p.y), label: one.label, says: p.says, key: `${one.label} ${p.key ?? p.x}` });
  }
  for (const one of events) {
    if (one.x < across.low || one.x > across.high) continue;
    const place = across(one.x);
    parts.push(
      svg("path", { class: `event ${one.kind}`, d: `M${n(place)},${top - 4}V${floor}` }),
      svg("circle", { class: `event-dot ${one.kind}`, cx: place, cy: top - 8, r: 4 }),
    );
    points.push({ x: place, y: top - 8, label: one.label, says: one.says, key: `${one.label} ${one.x}` });
  }
  figure.show(height, parts, points, rows, says);
}

const n = (value) => +value.toFixed(1);
const path = (points, across, up) =>
  points.map((p, k) => `${k && !p.apart ? "L" : "M"}${n(across(p.x))},${n(up(p.y))}`).join("");
