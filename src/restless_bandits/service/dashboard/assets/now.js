// What happens in this moment: the last slots, beliefs, where they drift, and why this arm.
import { lines } from "./axes.js";
import { expected, laws } from "./chains.js";
import { amount, armColour, share, shortened, stateColour, svg } from "./element.js";

export const MOST_SLOTS = 300;
const AHEAD = 24;
const LOST = -2; // In place of the last state: the last pull of an arm that reacts has no answer.

export function drawRaster(view) {
  const figure = view.raster,
    width = figure.wide;
  if (!width) return;
  const arms = view.shownArms(),
    places = new Map(arms.map((arm, n) => [arm.number, n]));
  const left = Math.min(110, 14 + 7.2 * Math.max(...arms.map((arm) => arm.name.length))),
    row = Math.max(13, Math.min(34, 240 / arms.length));
  const many = Math.min(MOST_SLOTS, Math.floor((width - left - 6) / (width < 600 ? 6 : 7)));
  const last = Math.max(...view.slots.keys(), 1),
    first = Math.max(1, last - many + 1),
    step = (width - left - 6) / many;
  const parts = [],
    points = [],
    top = 4,
    height = top + arms.length * row + 34;
  arms.forEach((arm, n) =>
    parts.push(
      svg("rect", { class: "strip", x: left, y: top + n * row + 1, width: width - left - 6, height: row - 2 }),
      svg("rect", {
        x: 0,
        y: top + n * row + row / 2 - 5,
        width: 4,
        height: 10,
        style: { fill: armColour(arm.number) },
      }),
      svg("text", { class: "label", x: 9, y: top + n * row + row / 2 + 4 }, shortened(arm.name, left - 12)),
    ),
  );
  for (let slot = first; slot <= last; slot++)
    for (const [number, seen] of Object.entries(view.slots.get(slot) ?? {})) {
      const n = places.get(Number(number));
      if (n === undefined) continue;
      const x = left + (slot - first) * step,
        y = top + n * row + 2,
        w = Math.max(2, step - 1),
        h = row - 4;
      const states = view.arms[number]?.n_states ?? 2;
      let says = `slot ${slot}: `;
      if (seen.state !== undefined) {
        parts.push(
          svg("rect", {
            x,
            y,
            width: w,
            height: h,
            "data-slot": slot,
            "data-state": seen.state,
            style: { fill: stateColour(seen.state, states) },
          }),
        );
        says += `seen in state ${seen.state}, reward ${amount(seen.reward)}`;
      } else if (seen.unpulled) {
        says += "not pulled";
      } else if (seen.lost) {
        parts.push(svg("path", { class: "lost-cell", d: `M${x},${y + h / 2 - w / 2}l${w},${w}m0,${-w}l${-w},${w}` }));
        says += "the answer is lost";
      } else {
        parts.push(
          svg("rect", {
            class: "open-cell",
            "data-slot": slot,
            x: x + 0.7,
            y: y + 0.7,
            width: Math.max(1, w - 1.4),
            height: h - 1.4,
          }),
        );
        says += "open, no answer yet";
      }
      points.push({ x: x + w / 2, y: y + h / 2, w, h, label: arms[n].name, says, key: `${slot} ${number}` });
    }
  const every = [5, 10, 20, 50, 100].find((size) => size * step > 58) ?? 100;
  for (let slot = Math.ceil(first / every) * every; slot <= last; slot += every)
    parts.push(svg("text", { class: "middle", x: left + (slot - first + 0.5) * step, y: height - 19 }, String(slot)));
  parts.push(svg("text", { class: "middle label", x: (left + width) / 2, y: height - 4 }, "slot"));
  const most = Math.max(...view.arms.map((arm) => arm.n_states));
  figure.legend(
    [...Array(Math.min(most, 5)).keys()]
      .map((k) => ({
        label: `state ${most > 5 ? Math.round((k * (most - 1)) / 4) : k}`,
        kind: "cell",
        colour: stateColour(k, Math.min(most, 5)),
      }))
      .concat([
        { label: "open", kind: "open" },
        { label: "lost", kind: "lost" },
      ]),
  );
  const rows = () => ({
    heads: ["slot", "arm", "state", "reward", "what"],
    rows: [...view.slots]
      .sort(([a], [b]) => b - a)
      .flatMap(([slot, seen]) =>
        Object.entries(seen).map(([arm, one]) => [
          slot,
          view.arms[arm]?.name ?? arm,
          one.state ?? null,
          one.reward ?? null,
          one.state !== undefined ? "told" : one.unpulled ? "not pulled" : one.lost ? "lost" : "open",
        ]),
      ),
  });
  const open = [...view.slots.values()]
    .flatMap((one) => Object.values(one))
    .filter((one) => one.state === undefined && !one.lost && !one.unpulled).length;
  figure.show(height, parts, points, rows, `slots ${first} to ${last}, ${open} open`);
}

// The present law of each arm that is shown, by the chains of the last thought and what was seen last.
function presentLaws(view, slots = 0) {
  return (view.thoughts?.arms ?? []).map((arm) => ({
    arm,
    laws: laws(
      arm,
      view.present.last_states[arm.number] ?? arm.last_state,
      view.present.elapsed[arm.number] ?? arm.elapsed,
      slots,
      view.present.unseen?.[arm.number],
    ),
  }));
}

// The state in which an arm was last seen, and how many slots ago.
function lastSeen(view, arm) {
  const unseen = view.present.unseen?.[arm.number];
  const [state, elapsed] = unseen ?? [view.present.last_states[arm.number], view.present.elapsed[arm.number]];
  return [state ?? null, elapsed ?? null];
}

export function drawBelief(view) {
  const figure = view.belief,
    width = figure.wide;
  if (!width) return;
  const every = presentLaws(view),
    row = 38,
    left = 8,
    parts = [],
    points = [];
  every.forEach(({ arm, laws: found }, n) => {
    const y = n * row;
    const words = found
      ? `${found[0]
          .map((p, k) => `${share(p)} in ${k}`)
          .slice(0, 4)
          .join(", ")}; pays ${share(expected(found[0], arm.rewards))}`
      : "never seen";
    parts.push(
      svg("rect", { x: 0, y: y + 3, width: 4, height: 12, style: { fill: armColour(arm.number) } }),
      svg("text", { class: "label", x: left, y: y + 13 }, shortened(arm.name, width / 2)),
      svg("text", { class: "end", x: width - 1, y: y + 13 }, words),
    );
    let x = 0;
    (found ? found[0] : [null]).forEach((p, k) => {
      const w = (p ?? 1) * (width - 2);
      parts.push(
        svg("rect", {
          class: "cell-edge",
          x,
          y: y + 18,
          width: Math.max(0, w),
          height: 14,
          style: { fill: p === null ? "var(--never)" : stateColour(k, found[0].length) },
        }),
      );
      if (p !== null)
        points.push({
          x: x + w / 2,
          y: y + 25,
          w,
          h: 14,
          label: arm.name,
          says: `state ${k} with probability ${share(p)}`,
          key: `${arm.number} ${k}`,
        });
      x += w;
    });
  });
  const states = Math.max(0, ...every.map(({ arm }) => arm.transitions.length));
  const rows = () => ({
    heads: [
      "arm",
      "last seen in",
      "slots ago",
      ...Array.from({ length: states }, (_, k) => `state ${k}`),
      "expected reward",
    ],
    rows: every.map(({ arm, laws: found }) => [
      arm.name,
      ...lastSeen(view, arm),
      ...Array.from({ length: states }, (_, k) => found?.[0][k] ?? null),
      found ? expected(found[0], arm.rewards) : null,
    ]),
  });
  view.nowLaws = every.map(({ laws: found }) => found?.[0] ?? null);
  if (!every.length) return figure.show(60, [waiting(width)], [], rows, "not known yet");
  figure.show(
    every.length * row,
    parts,
    points,
    rows,
    every
      .map(({ arm, laws: found }) =>
        found ? `${arm.name} in state 0 with probability ${share(found[0][0])}` : `${arm.name} never seen`,
      )
      .slice(0, 6)
      .join("; "),
  );
}

export function drawDrift(view) {
  const figure = view.drift;
  if (!figure.wide) return;
  const every = presentLaws(view, AHEAD)
    .filter(({ laws: found, arm }) => found && arm.in_service)
    .slice(0, 8);
  const rows = () => ({
    heads: ["slots from now", ...every.map(({ arm }) => arm.name)],
    rows: Array.from({ length: AHEAD + 1 }, (_, k) => [
      k,
      ...every.map(({ arm, laws: found }) => expected(found[k], arm.rewards)),
    ]),
  });
  figure.legend(every.map(({ arm }) => ({ label: arm.name, colour: armColour(arm.number) })));
  lines(figure, {
    height: 220,
    rows,
    x: { label: "slots from now" },
    y: {
      label: "expected reward",
      ends: [0, ...every.flatMap(({ arm }) => arm.rewards.filter((one) => one !== null))],
    },
    traces: every.map(({ arm, laws: found }) => ({
      label: arm.name,
      colour: armColour(arm.number),
      points: found.map((law, k) => {
        const y = expected(law, arm.rewards);
        return { x: k, y, says: `${k ? `in ${k} slots` : "now"}: ${share(y)} expected` };
      }),
    })),
    says: "expected rewards in the slots to come",
  });
}

export function drawIndex(view) {
  const figure = view.index,
    width = figure.wide;
  if (!width) return;
  const arms = (view.thoughts?.arms ?? []).filter((arm) => arm.in_service);
  const found = arms.map((arm) => {
    const state = view.present.last_states[arm.number] ?? arm.last_state,
      elapsed = view.present.elapsed[arm.number] ?? arm.elapsed;
    const seen = state !== null && state !== undefined && state >= 0,
      lost = state === LOST;
    // After the states come the rows of an arm never seen, and of one pulled without an answer.
    const row = arm.index[seen ? state : arm.rewards.length + Number(lost)];
    return {
      arm,
      value: row[Math.min(Math.max((seen || lost ? elapsed : 1) - 1, 0), row.length - 1)],
      state: seen ? state : null,
      lost,
      elapsed,
    };
  });
  const rows = () => ({
    heads: ["arm", "index now", "last seen in", "slots ago"],
    rows: found.map((one) => [one.arm.name, one.value, one.state, one.elapsed]),
  });
  if (!found.length) return figure.show(60, [waiting(width)], [], rows, "not known yet");
  const order = [...found].sort((a, b) => b.value - a.value),
    low = Math.min(0, ...found.map((one) => one.value)),
    high = Math.max(...found.map((one) => one.value));
  const row = 36,
    parts = [],
    points = [],
    best = new Set(order.slice(0, view.thoughts.plays).map((one) => one.arm.number));
  order.forEach(({ arm, value, state, lost, elapsed }, n) => {
    const seen = state === null ? ", never seen" : `; seen in ${state}, ${elapsed} ago`,
      last = lost ? `; pulled ${elapsed} ago, no answer` : seen;
    const y = n * row,
      w = Math.max(2, ((value - low) / (high - low || 1)) * (width - 2));
    parts.push(
      svg(
        "text",
        { class: "label", x: 0, y: y + 13 },
        `${shortened(arm.name, width / 2)}${best.has(arm.number) ? " – to pull" : ""}`,
      ),
      svg(
        "text",
        { class: "end", x: width - 1, y: y + 13 },
        `${share(value)}${last}`,
      ),
      svg("rect", {
        class: best.has(arm.number) ? "" : "dim",
        x: 0,
        y: y + 18,
        width: w,
        height: 12,
        rx: 2,
        style: { fill: armColour(arm.number) },
      }),
    );
    points.push({ x: w / 2, y: y + 24, w, h: 12, label: arm.name, says: `index ${share(value)}`, key: arm.number });
  });
  const last = Math.max(...view.slots.keys(), 0),
    pulled = Object.keys(view.slots.get(last) ?? {}).map((arm) => view.arms[arm]?.name ?? arm);
  const words = pulled.length ? `In slot ${last} it pulled ${pulled.join(", ")}. ` : "";
  const [first, second] = order;
  const lead = second ? `, ${share(first.value - second.value)} above ${second.arm.name}` : "";
  figure.note.textContent = `${words}Now ${first.arm.name} has the highest index${lead}.`;
  figure.show(
    order.length * row,
    parts,
    points,
    rows,
    order
      .map(({ arm, value }) => `${arm.name} ${share(value)}`)
      .slice(0, 6)
      .join(", "),
  );
}

const waiting = (width) => svg("text", { class: "middle", x: width / 2, y: 34 }, "thinking…");
