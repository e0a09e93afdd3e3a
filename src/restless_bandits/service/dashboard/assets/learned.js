// What was learned: rewards against the optimum, chains, and how they tightened.
import { lines } from "./axes.js";
import { amount, armColour, share, shortened, svg } from "./element.js";

export function drawRewards(view) {
  const figure = view.rewards,
    found = view.thoughts;
  if (!figure.wide || !found) return;
  const { width, bins } = found.rewards,
    plays = found.plays;
  const means = bins.map(([sum, answers, lost], n) => ({ x: (n + 0.5) * width, sum, answers, lost }));
  const known = means.filter((one) => one.answers);
  if (!known.length) return lines(figure, { x: {}, y: {}, rows: () => ({ heads: [], rows: [] }), height: 120 });
  // A line is drawn over a few slots without an answer, not over a pause.
  const apart = (n) => n > 0 && known[n].x - known[n - 1].x > Math.max(3 * width, 20);
  const raw = known.map((one, n) => ({ x: one.x, y: (one.sum / one.answers) * plays, says: "", apart: apart(n) }));
  // Over about a twentieth of the picture, so that the chance of single slots does not hide the level.
  const reach = Math.max(Math.ceil(12 / width), Math.round(known.length / 40)),
    smooth = known.map((one, n) => {
      const part = known
        .slice(Math.max(0, n - reach), n + reach + 1)
        .filter((other) => Math.abs(other.x - one.x) <= 4 * reach * width);
      const [sum, answers] = [part.reduce((a, b) => a + b.sum, 0), part.reduce((a, b) => a + b.answers, 0)];
      const y = (sum / answers) * plays;
      return {
        x: one.x,
        y,
        says: `around slot ${amount(one.x)}: ${share(y)} a slot, over ${amount(part.length * width)} slots`,
        apart: apart(n),
      };
    });
  const optimum = found.optimum;
  const levels = optimum ? [levelOf(optimum)] : [];
  const total = known.reduce((a, b) => a + b.answers, 0),
    mean = total ? (known.reduce((a, b) => a + b.sum, 0) / total) * plays : null;
  figure.legend([
    { label: "earned a slot", colour: "var(--c0)" },
    ...(optimum
      ? [{ label: "optimum of the learned problem, with its uncertainty", colour: "var(--c2)", dash: true }]
      : []),
  ]);
  const earned = `Earned so far: ${share(mean)} a slot.`;
  figure.note.textContent = optimum
    ? `${earned} The best policy for what is learned would earn ${share(optimum.gain)}${within(optimum, " (95 %: ", ")")}, ` +
      `${provedOf(optimum)} for these chains.`
    : earned;
  const events = [
    ...(view.agent.alarms ?? []).map((one) => ({
      x: one.slot,
      kind: "alarm",
      label: `alarm: ${one.name}`,
      says: `${one.what} changed since about slot ${one.since}, found in slot ${one.slot}`,
    })),
    ...found.marks.map((one) => ({ x: one.slot, kind: one.kind, label: one.text, says: `slot ${one.slot}` })),
  ];
  lines(figure, {
    traces: [{ label: "earned", colour: "var(--c0)", points: smooth }],
    faint: width > 3 ? [{ colour: "var(--c0)", points: raw }] : [],
    levels,
    events,
    height: 270,
    x: { label: "slot", ends: [1, Math.max(2, found.slots)] },
    y: { label: "reward a slot", ends: [0] },
    rows: () => ({
      heads: ["from slot", "to slot", "rewards", "answers", "lost"],
      rows: bins.map(([sum, answers, lost], n) => [n * width + 1, (n + 1) * width, sum, answers, lost]),
    }),
    says: `${share(mean)} a slot so far${optimum ? `, optimum ${share(optimum.gain)}` : ""}`,
  });
}

// The chain of an arm; of an arm that reacts, those at rest and when pulled.
function chainsOf(arm) {
  const resting = { chain: arm.transitions, errors: arm.errors, word: arm.active_transitions ? "at rest " : "" };
  if (!arm.active_transitions) return [resting];
  return [resting, { chain: arm.active_transitions, errors: arm.active_errors, word: "pulled " }];
}

export function drawChains(view) {
  const figure = view.chains,
    width = figure.wide;
  if (!width || !view.thoughts) return;
  const most = Math.max(1, Math.floor(24 / Math.max(...view.thoughts.arms.map((arm) => arm.transitions.length))));
  const every = view.thoughts.arms
    .slice(0, most)
    .flatMap((arm) =>
      chainsOf(arm).flatMap(({ chain, errors, word }) =>
        chain.map((row, s) => ({ arm, s, word, value: row[s], error: errors[s][s] })),
      ),
    );
  const left = Math.min(150, width / 3),
    row = Math.min(40, Math.max(22, 190 / every.length)),
    parts = [],
    points = [],
    x = (p) => left + p * (width - left - 78);
  const height = every.length * row + 34;
  for (const p of [0, 0.25, 0.5, 0.75, 1])
    parts.push(
      svg("path", { class: "gridline", d: `M${x(p)},0V${height - 34}` }),
      svg("text", { class: "middle", x: x(p), y: height - 20 }, String(p)),
    );
  parts.push(svg("text", { class: "middle label", x: x(0.5), y: height - 4 }, "chance to stay"));
  every.forEach(({ arm, s, word, value, error }, n) => {
    const label = `${arm.name}, ${word}state ${s}`;
    const y = n * row + row / 2,
      known = error !== null && error < 0.5;
    const [low, high] = known ? [Math.max(0, value - 2 * error), Math.min(1, value + 2 * error)] : [0, 1],
      words = known ? error.toFixed(2) : "?";
    parts.push(
      svg("text", { class: "label", x: 0, y: y + 4 }, shortened(label, left)),
      svg("path", {
        class: "stroke",
        d: `M${x(low)},${y}H${x(high)}M${x(low)},${y - 4}v8M${x(high)},${y - 4}v8`,
        "stroke-dasharray": known ? null : "2 4",
        style: { stroke: armColour(arm.number) },
      }),
      svg("circle", { cx: x(value), cy: y, r: 4.5, style: { fill: armColour(arm.number) } }),
      svg("text", { class: "end", x: width - 1, y: y + 4 }, `${value.toFixed(2)} ± ${words}`),
    );
    points.push({
      x: x(value),
      y,
      label,
      says: known
        ? `stays with ${share(value)} ± ${share(error)}`
        : `perhaps ${share(value)}: the data do not tell it yet`,
      key: `${arm.number} ${word}${s}`,
    });
  });
  const rows = () => ({
    heads: [
      "arm",
      "from",
      "to",
      "probability",
      "standard error",
      "reward in from",
      "its standard error",
      "observations",
    ],
    rows: view.thoughts.arms.flatMap((arm) =>
      chainsOf(arm).flatMap(({ chain, errors, word }) => chain.flatMap((line, s) =>
        line.map((p, k) => [
          word ? `${arm.name}, ${word.trim()}` : arm.name,
          s,
          k,
          p,
          errors[s][k],
          arm.rewards[s],
          arm.reward_errors[s],
          arm.observations,
        ]),
      )),
    ),
  });
  const vague = view.thoughts.arms.filter((arm) => !arm.identified).map((arm) => arm.name);
  const leftOut = view.thoughts.arms.length > most ? `The first ${most} arms are drawn; the table has all. ` : "";
  figure.note.textContent =
    leftOut +
    (vague.length
      ? `Not yet told by the data: ${vague.slice(0, 5).join(", ")}${vague.length > 5 ? " and others" : ""}.`
      : "");
  figure.show(
    height,
    parts,
    points,
    rows,
    every
      .map(({ arm, s, word, value }) => `${arm.name} ${word}stays in ${s} with ${share(value)}`)
      .slice(0, 6)
      .join("; "),
  );
}

export function drawTightening(view) {
  const figure = view.tightening,
    found = view.thoughts;
  figure.element.hidden = view.arms.length > 24; // of so many no earlier estimates are kept
  if (!figure.wide || !found) return;
  const moments = [...found.tightening, { slot: found.slots, arms: null }].filter((one) => one.slot > 0);
  const shown = found.arms.slice(0, 4),
    traces = [];
  for (const arm of shown)
    for (let s = 0; s < Math.min(arm.transitions.length, 3); s++)
      traces.push({
        label: `${arm.name}, state ${s}`,
        colour: armColour(arm.number),
        dash: s > 0,
        points: moments.flatMap((one) => {
          const [chain, errors] = one.arms === null ? [arm.transitions, arm.errors] : (one.arms[arm.number] ?? [null]);
          if (!chain || errors[s]?.[s] === null || errors[s]?.[s] === undefined) return [];
          const [y, e] = [chain[s][s], errors[s][s]];
          return [
            {
              x: one.slot,
              y,
              low: Math.max(0, y - 2 * e),
              high: Math.min(1, y + 2 * e),
              says: `slot ${one.slot}: ${share(y)} ± ${share(e)}`,
            },
          ];
        }),
      });
  figure.legend(traces.map(({ label, colour, dash }) => ({ label, colour, dash })));
  figure.note.textContent =
    found.arms.length > shown.length ? `The first ${shown.length} arms are drawn; the table has all.` : "";
  lines(figure, {
    traces,
    height: 250,
    x: { label: "slot", log: true },
    y: { label: "chance to stay", ends: [0, 1], fixed: true },
    rows: () => ({
      heads: ["slot", "arm", "state", "chance to stay", "standard error"],
      rows: moments.flatMap((one) =>
        found.arms.flatMap((arm) => {
          const [chain, errors] = one.arms === null ? [arm.transitions, arm.errors] : (one.arms[arm.number] ?? [null]);
          return chain ? chain.map((line, s) => [one.slot, arm.name, s, line[s], errors[s][s]]) : [];
        }),
      ),
    }),
    says: "estimates at earlier slots, with their errors",
  });
}

const provedOf = ({ certified, lower, upper }) =>
  certified ? "certified" : `proved to lie between ${share(lower)} and ${share(upper)}`;
const within = ({ low, high }, before, after) =>
  low === null || high === null ? "" : `${before}${share(low)} to ${share(high)}${after}`;

function levelOf(optimum) {
  const unsure = within(optimum, "; ", " with what is not known of them");
  return {
    label: "optimum of the learned problem",
    y: optimum.gain,
    low: optimum.low ?? optimum.lower,
    high: optimum.high ?? optimum.upper,
    colour: "var(--c2)",
    says: `${share(optimum.gain)} a slot, ${provedOf(optimum)} for the learned chains${unsure}`,
  };
}
