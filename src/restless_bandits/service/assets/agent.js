// One agent: what it does, what it believes, and how good that is.
import { lines } from "./axes.js";
import { expected, laws } from "./chains.js";
import { amount, armColour, html, seconds, share, short, stateColour, svg } from "./element.js";
import { Figure } from "./figure.js";
import { follow, read } from "./service.js";
import { WhatIf } from "./what-if.js";

const MOST_SLOTS = 300, AHEAD = 24, THINK_EVERY = 2000;

export async function showAgent(content, name) {
  document.title = `${name} · restless-bandits`;
  const found = await read("/page/agent", { name });
  const view = new AgentView(name, found);
  content.replaceChildren(...view.elements);
  const stop = follow(() => ({ name, after: view.seq }), (frame) => view.told(frame));
  view.think();
  const timer = setInterval(() => view.think(), THINK_EVERY);
  return () => { stop(); clearInterval(timer); };
}

class AgentView {
  constructor(name, { agent, present, recent, after }) {
    this.name = name; this.agent = agent; this.seq = after;
    this.arms = agent.task.arms; this.slots = new Map(); this.thoughts = null;
    this.numbers = new Map();
    this.counters = html("dl", { class: "numbers" }, [["slots", "slot"], ["rate", "slots a second"], ["lately", "reward lately"],
      ["open", "open"], ["lost", "lost"], ["alarms", "alarms"], ["plan", "plan"]].map(([key, label]) => {
      const value = html("dd", { "data-number": key });
      this.numbers.set(key, value);
      return html("div", {}, html("dt", {}, label), value);
    }));
    this.raster = new Figure("The last slots", "Which arm was pulled in each slot, coloured by the state it was seen in: state 0 is the best.", { wide: true });
    this.belief = new Figure("What it believes now", "The chance of each state of each arm at this moment, by the chains that it has learned.");
    this.drift = new Figure("Until the next look", "What each arm would be expected to pay in the slots to come if nobody looked at it.");
    this.index = new Figure("Why this arm", "Whittle’s index now, by the learned chains: what a pull of the arm is worth. The highest is the one to pull, unless there is still something to learn.");
    this.rewards = new Figure("Rewards a slot", "What was earned, against the optimum of the learned problem: the distance is what is left to gain.", { wide: true });
    this.chains = new Figure("Chains learned", "The chance to stay in each state, with two standard errors to either side.");
    this.tightening = new Figure("How they tightened", "The same estimates at earlier slots, from the answers that had come by then.");
    for (const [figure, draw] of [[this.raster, "drawRaster"], [this.belief, "drawBelief"], [this.drift, "drawDrift"], [this.index, "drawIndex"],
      [this.rewards, "drawRewards"], [this.chains, "drawChains"], [this.tightening, "drawTightening"]]) figure.redraw = () => this[draw]();
    this.plans = html("tbody");
    this.changes = html("ul", {});
    this.whatIf = new WhatIf();
    this.busy = html("p", { class: "small soft", role: "status" }, "Thinking about the log…");
    const log = html("section", { class: "card" }, html("h2", {}, "The log of plans"),
      html("p", { class: "small soft" }, "When each plan began, how long it was followed, why it ended, and how long it took to make while the one before went on."),
      html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The log of plans" }, html("table", {}, html("thead", {}, html("tr", {},
        ["plan", "from slot", "at", "slots", "took"].map((head) => html("th", { scope: "col" }, head)), html("th", { scope: "col", class: "words" }, "ended"))), this.plans)));
    const alarms = html("section", { class: "card wide" }, html("h2", {}, "Changes and alarms"),
      html("p", { class: "small soft" }, "Arms that are found to behave otherwise than before, arms that came and went, learners exchanged."), this.changes);
    this.elements = [html("p", { class: "small" }, html("a", { href: "#/agents" }, "← All agents")), html("h1", {}, name),
      html("p", { class: "lead" }, `${this.arms.length} arms, ${agent.task.plays} played in a slot; learner `, html("code", {}, agent.learner),
        agent.clock === "ask" ? "; a slot passes with each decision" : `; a slot lasts ${agent.clock}`),
      this.counters, html("div", { class: "grid" }, this.raster.element, this.belief.element, this.index.element, this.drift.element,
        this.chains.element, this.rewards.element, this.tightening.element, log, this.whatIf.element, alarms), this.busy];
    this.told({ present, recent });
  }

  told({ present, recent }) {
    this.present = present;
    this.seq = Math.max(this.seq, present.seq);
    for (const { slot, arms } of recent) {
      const kept = this.slots.get(slot) ?? {};
      for (const [arm, seen] of Object.entries(arms)) if (seen.state !== undefined || !kept[arm] || kept[arm].state === undefined) kept[arm] = { ...kept[arm], ...seen };
      this.slots.set(slot, kept);
    }
    const first = Math.max(...this.slots.keys(), 0) - MOST_SLOTS;
    for (const slot of this.slots.keys()) if (slot <= first) this.slots.delete(slot);
    const now = performance.now();
    this.history = [...(this.history ?? []).filter(([at]) => now - at < 10000), [now, present.slots]];
    const [begin, ...later] = this.history;
    const rate = later.length ? (present.slots - begin[1]) / ((now - begin[0]) / 1000) : null;
    const lately = [...this.slots.values()].flatMap((arms) => Object.values(arms)).filter((one) => one.reward !== undefined).slice(-100);
    const say = (key, text) => { const cell = this.numbers.get(key); if (cell.textContent !== text) cell.textContent = text; };
    say("slots", amount(present.slots)); say("rate", amount(rate, 2)); say("open", amount(present.open)); say("lost", amount(present.lost));
    say("lately", lately.length ? amount(lately.reduce((sum, one) => sum + one.reward, 0) / lately.length) : "–");
    say("alarms", amount(present.alarms)); say("plan", present.planning ? `${present.plan} (+1)` : amount(present.plan));
    this.numbers.get("alarms").parentNode.classList.toggle("alarm", present.alarms > 0);
    this.drawNow();
  }

  async think() {
    if (document.hidden || this.thinking || (this.thoughts && this.thoughts.seq === this.present.seq && !this.thoughts.behind && !this.thoughts.solving)) return;
    this.thinking = true;
    try {
      const [thoughts, { agent }] = await Promise.all([read("/page/thoughts", { name: this.name }), read("/page/agent", { name: this.name })]);
      this.thoughts = thoughts; this.agent = agent; this.arms = agent.task.arms;
      this.busy.textContent = thoughts.behind ? `Reading the log: ${short(thoughts.behind)} events are still to be read.` : "";
      this.drawNow(); this.drawThoughts();
      this.whatIf.learned(thoughts);
    } catch (error) {
      this.busy.textContent = error.message;
    } finally { this.thinking = false; }
  }

  drawNow() { this.drawRaster(); this.drawBelief(); this.drawDrift(); this.drawIndex(); }
  drawThoughts() { this.drawRewards(); this.drawChains(); this.drawTightening(); this.drawPlans(); this.drawChanges(); }

  shownArms() { return this.thoughts?.arms ?? this.arms.slice(0, 24).map((arm, number) => ({ ...arm, number })); }

  drawRaster() {
    const figure = this.raster, width = figure.wide;
    if (!width) return;
    const arms = this.shownArms(), places = new Map(arms.map((arm, n) => [arm.number, n]));
    const left = Math.min(110, 14 + 7.2 * Math.max(...arms.map((arm) => arm.name.length))), row = Math.max(13, Math.min(34, 240 / arms.length));
    const many = Math.min(MOST_SLOTS, Math.floor((width - left - 6) / (width < 600 ? 6 : 7)));
    const last = Math.max(...this.slots.keys(), 1), first = Math.max(1, last - many + 1), step = (width - left - 6) / many;
    const parts = [], points = [], top = 4, height = top + arms.length * row + 34;
    arms.forEach((arm, n) => parts.push(
      svg("rect", { class: "strip", x: left, y: top + n * row + 1, width: width - left - 6, height: row - 2 }),
      svg("rect", { x: 0, y: top + n * row + row / 2 - 5, width: 4, height: 10, style: { fill: armColour(arm.number) } }),
      svg("text", { class: "label", x: 9, y: top + n * row + row / 2 + 4 }, shortened(arm.name, left - 12))));
    for (let slot = first; slot <= last; slot++) for (const [number, seen] of Object.entries(this.slots.get(slot) ?? {})) {
      const n = places.get(Number(number));
      if (n === undefined) continue;
      const x = left + (slot - first) * step, y = top + n * row + 2, w = Math.max(2, step - 1), h = row - 4;
      const states = this.arms[number]?.n_states ?? 2;
      let says = `slot ${slot}: `;
      if (seen.state !== undefined) {
        parts.push(svg("rect", { x, y, width: w, height: h, "data-slot": slot, "data-state": seen.state, style: { fill: stateColour(seen.state, states) } }));
        says += `seen in state ${seen.state}, reward ${amount(seen.reward)}`;
      } else if (seen.lost) {
        parts.push(svg("path", { class: "lost-cell", d: `M${x},${y + h / 2 - w / 2}l${w},${w}m0,${-w}l${-w},${w}` }));
        says += "the answer is lost";
      } else {
        parts.push(svg("rect", { class: "open-cell", "data-slot": slot, x: x + 0.7, y: y + 0.7, width: Math.max(1, w - 1.4), height: h - 1.4 }));
        says += "open, no answer yet";
      }
      points.push({ x: x + w / 2, y: y + h / 2, w, h, label: arms[n].name, says, key: `${slot} ${number}` });
    }
    const every = [5, 10, 20, 50, 100].find((size) => size * step > 58) ?? 100;
    for (let slot = Math.ceil(first / every) * every; slot <= last; slot += every)
      parts.push(svg("text", { class: "middle", x: left + (slot - first + 0.5) * step, y: height - 19 }, String(slot)));
    parts.push(svg("text", { class: "middle label", x: (left + width) / 2, y: height - 4 }, "slot"));
    const most = Math.max(...this.arms.map((arm) => arm.n_states));
    figure.legend([...Array(Math.min(most, 5)).keys()].map((k) => ({ label: `state ${most > 5 ? Math.round(k * (most - 1) / 4) : k}`, kind: "cell",
      colour: stateColour(k, Math.min(most, 5)) })).concat([{ label: "open", kind: "open" }, { label: "lost", kind: "lost" }]));
    const rows = () => ({ heads: ["slot", "arm", "state", "reward", "what"], rows: [...this.slots].sort(([a], [b]) => b - a).flatMap(([slot, seen]) =>
      Object.entries(seen).map(([arm, one]) => [slot, this.arms[arm]?.name ?? arm, one.state ?? null, one.reward ?? null,
        one.state !== undefined ? "told" : one.lost ? "lost" : "open"])) });
    const open = [...this.slots.values()].flatMap((one) => Object.values(one)).filter((one) => one.state === undefined && !one.lost).length;
    figure.show(height, parts, points, rows, `slots ${first} to ${last}, ${open} open`);
  }

  // The present law of each arm that is shown, by the chains of the last thought and what was seen last.
  laws(slots = 0) {
    return (this.thoughts?.arms ?? []).map((arm) => ({ arm, laws: laws(arm, this.present.last_states[arm.number] ?? arm.last_state,
      this.present.elapsed[arm.number] ?? arm.elapsed, slots) }));
  }

  drawBelief() {
    const figure = this.belief, width = figure.wide;
    if (!width) return;
    const every = this.laws(), row = 38, left = 8, parts = [], points = [];
    every.forEach(({ arm, laws: found }, n) => {
      const y = n * row;
      const words = found ? `${found[0].map((p, k) => `${share(p)} in ${k}`).slice(0, 4).join(", ")}; pays ${share(expected(found[0], arm.rewards))}` : "never seen";
      parts.push(svg("rect", { x: 0, y: y + 3, width: 4, height: 12, style: { fill: armColour(arm.number) } }),
        svg("text", { class: "label", x: left, y: y + 13 }, shortened(arm.name, width / 2)), svg("text", { class: "end", x: width - 1, y: y + 13 }, words));
      let x = 0;
      (found ? found[0] : [null]).forEach((p, k) => {
        const w = (p ?? 1) * (width - 2);
        parts.push(svg("rect", { class: "cell-edge", x, y: y + 18, width: Math.max(0, w), height: 14, style: { fill: p === null ? "var(--never)" : stateColour(k, found[0].length) } }));
        if (p !== null) points.push({ x: x + w / 2, y: y + 25, w, h: 14, label: arm.name, says: `state ${k} with probability ${share(p)}`, key: `${arm.number} ${k}` });
        x += w;
      });
    });
    const states = Math.max(0, ...every.map(({ arm }) => arm.transitions.length));
    const rows = () => ({ heads: ["arm", "last seen in", "slots ago", ...Array.from({ length: states }, (_, k) => `state ${k}`), "expected reward"],
      rows: every.map(({ arm, laws: found }) => [arm.name, this.present.last_states[arm.number] ?? null, this.present.elapsed[arm.number] ?? null,
        ...Array.from({ length: states }, (_, k) => found?.[0][k] ?? null), found ? expected(found[0], arm.rewards) : null]) });
    this.nowLaws = every.map(({ laws: found }) => found?.[0] ?? null);
    if (!every.length) return figure.show(60, [waiting(width)], [], rows, "not known yet");
    figure.show(every.length * row, parts, points, rows, every.map(({ arm, laws: found }) => found
      ? `${arm.name} in state 0 with probability ${share(found[0][0])}` : `${arm.name} never seen`).slice(0, 6).join("; "));
  }

  drawDrift() {
    const figure = this.drift;
    if (!figure.wide) return;
    const every = this.laws(AHEAD).filter(({ laws: found, arm }) => found && arm.in_service).slice(0, 8);
    const rows = () => ({ heads: ["slots from now", ...every.map(({ arm }) => arm.name)],
      rows: Array.from({ length: AHEAD + 1 }, (_, k) => [k, ...every.map(({ arm, laws: found }) => expected(found[k], arm.rewards))]) });
    figure.legend(every.map(({ arm }) => ({ label: arm.name, colour: armColour(arm.number) })));
    lines(figure, { height: 220, rows, x: { label: "slots from now" }, y: { label: "expected reward", ends: [0, ...every.flatMap(({ arm }) => arm.rewards.filter((one) => one !== null))] },
      traces: every.map(({ arm, laws: found }) => ({ label: arm.name, colour: armColour(arm.number), points: found.map((law, k) => {
        const y = expected(law, arm.rewards);
        return { x: k, y, says: `${k ? `in ${k} slots` : "now"}: ${share(y)} expected` };
      }) })), says: "expected rewards in the slots to come" });
  }

  drawIndex() {
    const figure = this.index, width = figure.wide;
    if (!width) return;
    const arms = (this.thoughts?.arms ?? []).filter((arm) => arm.in_service);
    const found = arms.map((arm) => {
      const state = this.present.last_states[arm.number] ?? arm.last_state, elapsed = this.present.elapsed[arm.number] ?? arm.elapsed;
      const seen = state !== null && state !== undefined && state >= 0;
      const row = arm.index[seen ? state : arm.index.length - 1];
      return { arm, value: row[Math.min(Math.max((seen ? elapsed : 1) - 1, 0), row.length - 1)], state: seen ? state : null, elapsed };
    });
    const rows = () => ({ heads: ["arm", "index now", "last seen in", "slots ago"], rows: found.map((one) => [one.arm.name, one.value, one.state, one.elapsed]) });
    if (!found.length) return figure.show(60, [waiting(width)], [], rows, "not known yet");
    const order = [...found].sort((a, b) => b.value - a.value), low = Math.min(0, ...found.map((one) => one.value)), high = Math.max(...found.map((one) => one.value));
    const row = 36, parts = [], points = [], best = new Set(order.slice(0, this.thoughts.plays).map((one) => one.arm.number));
    order.forEach(({ arm, value, state, elapsed }, n) => {
      const y = n * row, w = Math.max(2, (value - low) / ((high - low) || 1) * (width - 2));
      parts.push(svg("text", { class: "label", x: 0, y: y + 13 }, `${shortened(arm.name, width / 2)}${best.has(arm.number) ? " – to pull" : ""}`),
        svg("text", { class: "end", x: width - 1, y: y + 13 }, `${share(value)}${state === null ? ", never seen" : `; seen in ${state}, ${elapsed} ago`}`),
        svg("rect", { class: best.has(arm.number) ? "" : "dim", x: 0, y: y + 18, width: w, height: 12, rx: 2, style: { fill: armColour(arm.number) } }));
      points.push({ x: w / 2, y: y + 24, w, h: 12, label: arm.name, says: `index ${share(value)}`, key: arm.number });
    });
    const last = Math.max(...this.slots.keys(), 0), pulled = Object.keys(this.slots.get(last) ?? {}).map((arm) => this.arms[arm]?.name ?? arm);
    const words = pulled.length ? `In slot ${last} it pulled ${pulled.join(", ")}. ` : "";
    figure.note.textContent = `${words}Now ${order[0].arm.name} has the highest index${order.length > 1 ? `, ${share(order[0].value - order[1].value)} above ${order[1].arm.name}` : ""}.`;
    figure.show(order.length * row, parts, points, rows, order.map(({ arm, value }) => `${arm.name} ${share(value)}`).slice(0, 6).join(", "));
  }

  drawRewards() {
    const figure = this.rewards, found = this.thoughts;
    if (!figure.wide || !found) return;
    const { width, bins } = found.rewards, plays = found.plays;
    const means = bins.map(([sum, answers, lost], n) => ({ x: (n + 0.5) * width, sum, answers, lost }));
    const known = means.filter((one) => one.answers);
    if (!known.length) return lines(figure, { x: {}, y: {}, rows: () => ({ heads: [], rows: [] }), height: 120 });
    // A line is drawn over a few slots without an answer, not over a pause.
    const apart = (n) => n > 0 && known[n].x - known[n - 1].x > Math.max(3 * width, 20);
    const raw = known.map((one, n) => ({ x: one.x, y: one.sum / one.answers * plays, says: "", apart: apart(n) }));
    // Over about a twentieth of the picture, so that the chance of single slots does not hide the level.
    const reach = Math.max(Math.ceil(12 / width), Math.round(known.length / 40)), smooth = known.map((one, n) => {
      const part = known.slice(Math.max(0, n - reach), n + reach + 1).filter((other) => Math.abs(other.x - one.x) <= 4 * reach * width);
      const [sum, answers] = [part.reduce((a, b) => a + b.sum, 0), part.reduce((a, b) => a + b.answers, 0)];
      const y = sum / answers * plays;
      return { x: one.x, y, says: `around slot ${amount(one.x)}: ${share(y)} a slot, over ${amount(part.length * width)} slots`, apart: apart(n) };
    });
    const optimum = found.optimum;
    const levels = optimum ? [{ label: "optimum of the learned problem", y: optimum.gain, low: optimum.low ?? optimum.lower, high: optimum.high ?? optimum.upper, colour: "var(--c2)",
      says: `${share(optimum.gain)} a slot, ${optimum.certified ? "certified" : `between ${share(optimum.lower)} and ${share(optimum.upper)}`} for the learned chains${
        optimum.low === null ? "" : `; ${share(optimum.low)} to ${share(optimum.high)} with what is not known of them`}` }] : [];
    const total = known.reduce((a, b) => a + b.answers, 0), mean = total ? known.reduce((a, b) => a + b.sum, 0) / total * plays : null;
    figure.legend([{ label: "earned a slot", colour: "var(--c0)" }, ...(optimum ? [{ label: "optimum of the learned problem, with its uncertainty", colour: "var(--c2)", dash: true }] : [])]);
    figure.note.textContent = optimum ? `Earned so far: ${share(mean)} a slot. The best policy for what is learned would earn ${share(optimum.gain)}${
      optimum.low === null ? "" : ` (95 %: ${share(optimum.low)} to ${share(optimum.high)})`}, ${optimum.certified ? "certified" : `proved to lie between ${share(optimum.lower)} and ${share(optimum.upper)}`} for these chains.` : mean === null ? "" : `Earned so far: ${share(mean)} a slot.`;
    const events = [...(this.agent.alarms ?? []).map((one) => ({ x: one.slot, kind: "alarm", label: `alarm: ${one.name}`, says: `${one.what} changed since about slot ${one.since}, found in slot ${one.slot}` })),
      ...found.marks.map((one) => ({ x: one.slot, kind: one.kind, label: one.text, says: `slot ${one.slot}` }))];
    lines(figure, { traces: [{ label: "earned", colour: "var(--c0)", points: smooth }], faint: width > 3 ? [{ colour: "var(--c0)", points: raw }] : [], levels, events, height: 270,
      x: { label: "slot", ends: [1, Math.max(2, found.slots)] }, y: { label: "reward a slot", ends: [0] },
      rows: () => ({ heads: ["from slot", "to slot", "rewards", "answers", "lost"], rows: bins.map(([sum, answers, lost], n) => [n * width + 1, (n + 1) * width, sum, answers, lost]) }),
      says: `${share(mean)} a slot so far${optimum ? `, optimum ${share(optimum.gain)}` : ""}` });
  }

  drawChains() {
    const figure = this.chains, width = figure.wide;
    if (!width || !this.thoughts) return;
    const most = Math.max(1, Math.floor(24 / Math.max(...this.thoughts.arms.map((arm) => arm.transitions.length))));
    const every = this.thoughts.arms.slice(0, most).flatMap((arm) => arm.transitions.map((row, s) => ({ arm, s, value: row[s], error: arm.errors[s][s] })));
    const left = Math.min(150, width / 3), row = Math.min(40, Math.max(22, 190 / every.length)), parts = [], points = [], x = (p) => left + p * (width - left - 78);
    const height = every.length * row + 34;
    for (const p of [0, 0.25, 0.5, 0.75, 1]) parts.push(svg("path", { class: "gridline", d: `M${x(p)},0V${height - 34}` }), svg("text", { class: "middle", x: x(p), y: height - 20 }, String(p)));
    parts.push(svg("text", { class: "middle label", x: x(0.5), y: height - 4 }, "chance to stay"));
    every.forEach(({ arm, s, value, error }, n) => {
      const y = n * row + row / 2, known = error !== null && error < 0.5;
      const [low, high] = known ? [Math.max(0, value - 2 * error), Math.min(1, value + 2 * error)] : [0, 1], words = known ? error.toFixed(2) : "?";
      parts.push(svg("text", { class: "label", x: 0, y: y + 4 }, shortened(`${arm.name}, state ${s}`, left)),
        svg("path", { class: "stroke", d: `M${x(low)},${y}H${x(high)}M${x(low)},${y - 4}v8M${x(high)},${y - 4}v8`, "stroke-dasharray": known ? null : "2 4", style: { stroke: armColour(arm.number) } }),
        svg("circle", { cx: x(value), cy: y, r: 4.5, style: { fill: armColour(arm.number) } }),
        svg("text", { class: "end", x: width - 1, y: y + 4 }, `${value.toFixed(2)} ± ${words}`));
      points.push({ x: x(value), y, label: `${arm.name}, state ${s}`, says: known ? `stays with ${share(value)} ± ${share(error)}` : `perhaps ${share(value)}: the data do not tell it yet`, key: `${arm.number} ${s}` });
    });
    const rows = () => ({ heads: ["arm", "from", "to", "probability", "standard error", "reward in from", "its standard error", "observations"],
      rows: this.thoughts.arms.flatMap((arm) => arm.transitions.flatMap((line, s) => line.map((p, k) => [arm.name, s, k, p, arm.errors[s][k], arm.rewards[s], arm.reward_errors[s], arm.observations]))) });
    const vague = this.thoughts.arms.filter((arm) => !arm.identified).map((arm) => arm.name);
    const leftOut = this.thoughts.arms.length > most ? `The first ${most} arms are drawn; the table has all. ` : "";
    figure.note.textContent = leftOut + (vague.length ? `Not yet told by the data: ${vague.slice(0, 5).join(", ")}${vague.length > 5 ? " and others" : ""}.` : "");
    figure.show(height, parts, points, rows, every.map(({ arm, s, value }) => `${arm.name} stays in ${s} with ${share(value)}`).slice(0, 6).join("; "));
  }

  drawTightening() {
    const figure = this.tightening, found = this.thoughts;
    figure.element.hidden = this.arms.length > 24; // of so many no earlier estimates are kept
    if (!figure.wide || !found) return;
    const moments = [...found.tightening, { slot: found.slots, arms: null }].filter((one) => one.slot > 0);
    const shown = found.arms.slice(0, 4), traces = [];
    for (const arm of shown) for (let s = 0; s < Math.min(arm.transitions.length, 3); s++) traces.push({ label: `${arm.name}, state ${s}`, colour: armColour(arm.number), dash: s > 0, points: moments.flatMap((one) => {
      const [chain, errors] = one.arms === null ? [arm.transitions, arm.errors] : one.arms[arm.number] ?? [null];
      if (!chain || errors[s]?.[s] === null || errors[s]?.[s] === undefined) return [];
      const [y, e] = [chain[s][s], errors[s][s]];
      return [{ x: one.slot, y, low: Math.max(0, y - 2 * e), high: Math.min(1, y + 2 * e), says: `slot ${one.slot}: ${share(y)} ± ${share(e)}` }];
    }) });
    figure.legend(traces.map(({ label, colour, dash }) => ({ label, colour, dash })));
    figure.note.textContent = found.arms.length > shown.length ? `The first ${shown.length} arms are drawn; the table has all.` : "";
    lines(figure, { traces, height: 250, x: { label: "slot", log: true }, y: { label: "chance to stay", ends: [0, 1], fixed: true },
      rows: () => ({ heads: ["slot", "arm", "state", "chance to stay", "standard error"], rows: moments.flatMap((one) => found.arms.flatMap((arm) => {
        const [chain, errors] = one.arms === null ? [arm.transitions, arm.errors] : one.arms[arm.number] ?? [null];
        return chain ? chain.map((line, s) => [one.slot, arm.name, s, line[s], errors[s][s]]) : [];
      })) }), says: "estimates at earlier slots, with their errors" });
  }

  drawPlans() {
    const day = (at) => Date.now() / 1000 - at > 43200 ? { dateStyle: "short", timeStyle: "short" } : { timeStyle: "medium" };
    const clock = (at) => new Intl.DateTimeFormat("en-GB", day(at)).format(new Date(1000 * at));
    this.plans.replaceChildren(...this.thoughts.plans.slice(-40).reverse().map((plan) => html("tr", {},
      [amount(plan.plan), amount(plan.slot), clock(plan.at), plan.slots === null ? "now" : amount(plan.slots), seconds(plan.seconds)].map((text) => html("td", {}, text)),
      html("td", { class: "words" }, plan.slots === null ? `until: ${plan.until}` : plan.ended))));
  }

  drawChanges() {
    const alarms = (this.agent.alarms ?? []).map((one) => [one.slot, `Alarm in slot ${one.slot}: ${one.name} has changed its ${one.what} since about slot ${one.since}.`]);
    const marks = this.thoughts.marks.map((one) => [one.slot, `Slot ${one.slot}: ${one.text}.`]);
    const all = [...alarms, ...marks].sort((a, b) => b[0] - a[0]).slice(0, 50);
    this.changes.replaceChildren(...(all.length ? all.map(([, text]) => html("li", {}, text)) : [html("li", { class: "soft" }, "None so far.")]));
  }
}

const waiting = (width) => svg("text", { class: "middle", x: width / 2, y: 34 }, "thinking…");
// Names that differ do so at their ends more often than not.
function shortened(text, width) {
  const fits = Math.max(5, Math.floor(width / 7.2)), end = Math.floor(fits / 2) - 1;
  return text.length <= fits ? text : `${text.slice(0, fits - end - 1)}…${text.slice(-end)}`;
}
