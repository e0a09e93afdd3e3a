// One agent: what it does, what it believes, and how good that is.
import { amount, html, seconds, short } from "./element.js";
import { Figure } from "./figure.js";
import { drawChains, drawRewards, drawTightening } from "./learned.js";
import { drawBelief, drawDrift, drawIndex, drawRaster, MOST_SLOTS } from "./now.js";
import { showObserved } from "./observed.js";
import { follow, read } from "./service.js";
import { WhatIf } from "./what-if.js";

const THINK_EVERY = 2000;

export async function showAgent(content, name) {
  document.title = `${name} · restless-bandits`;
  const found = await read("/page/agent", { name });
  if (found.agent.observed === "all") return showObserved(content, name);
  const view = new AgentView(name, found);
  content.replaceChildren(...view.elements);
  const stop = follow(
    () => ({ name, after: view.seq }),
    (frame) => view.told(frame),
  );
  view.think();
  const timer = setInterval(() => view.think(), THINK_EVERY);
  return () => {
    stop();
    clearInterval(timer);
  };
}

class AgentView {
  constructor(name, { agent, present, recent, after }) {
    this.name = name;
    this.agent = agent;
    this.arms = agent.task.arms;
    this.slots = new Map();
    this.thoughts = null;
    this.numbers = new Map();
    this.counters = html(
      "dl",
      { class: "numbers" },
      [
        ["slots", "slot"],
        ["rate", "slots a second"],
        ["lately", "reward lately"],
        ["open", "open"],
        ["lost", "lost"],
        ["alarms", "alarms"],
        ["plan", "plan"],
      ].map(([key, label]) => {
        const value = html("dd", { "data-number": key });
        this.numbers.set(key, value);
        return html("div", {}, html("dt", {}, label), value);
      }),
    );
    this.raster = new Figure(
      "The last slots",
      "Which arm was pulled in each slot, coloured by the state it was seen in: state 0 is the best.",
      { wide: true },
    );
    this.belief = new Figure(
      "What it believes now",
      "The chance of each state of each arm at this moment, by the chains that it has learned.",
    );
    this.drift = new Figure(
      "Until the next look",
      "What each arm would be expected to pay in the slots to come if nobody looked at it.",
    );
    this.index = new Figure(
      "Why this arm",
      "Whittle’s index now, by the learned chains: what a pull of the arm is worth. " +
        "The highest is the one to pull, unless there is still something to learn.",
    );
    this.rewards = new Figure(
      "Rewards a slot",
      "What was earned, against the optimum of the learned problem: the distance is what is left to gain.",
      { wide: true },
    );
    this.chains = new Figure(
      "Chains learned",
      "The chance to stay in each state, with two standard errors to either side.",
    );
    this.tightening = new Figure(
      "How they tightened",
      "The same estimates at earlier slots, from the answers that had come by then.",
    );
    const drawn = [
      [this.raster, drawRaster],
      [this.belief, drawBelief],
      [this.drift, drawDrift],
      [this.index, drawIndex],
      [this.rewards, drawRewards],
      [this.chains, drawChains],
      [this.tightening, drawTightening],
    ];
    for (const [figure, draw] of drawn) figure.redraw = () => draw(this);
    this.plans = html("tbody");
    this.changes = html("ul", {});
    this.whatIf = new WhatIf();
    this.busy = html("p", { class: "small soft", role: "status" }, "Thinking about the log…");
    const log = html(
      "section",
      { class: "card" },
      html("h2", {}, "The log of plans"),
      html(
        "p",
        { class: "small soft" },
        "When each plan began, how long it was followed, why it ended, " +
          "and how long it took to make while the one before went on.",
      ),
      html(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "The log of plans" },
        html(
          "table",
          {},
          html(
            "thead",
            {},
            html(
              "tr",
              {},
              ["plan", "from slot", "at", "slots", "took"].map((head) => html("th", { scope: "col" }, head)),
              html("th", { scope: "col", class: "words" }, "ended"),
            ),
          ),
          this.plans,
        ),
      ),
    );
    const alarms = html(
      "section",
      { class: "card wide" },
      html("h2", {}, "Changes and alarms"),
      html(
        "p",
        { class: "small soft" },
        "Arms that are found to behave otherwise than before, arms that came and went, learners exchanged.",
      ),
      this.changes,
    );
    this.elements = [
      html("p", { class: "small" }, html("a", { href: "#/agents" }, "← All agents")),
      html("h1", {}, name),
      html(
        "p",
        { class: "lead" },
        `${this.arms.length} arms, ${agent.task.plays} played in a slot; learner `,
        html("code", {}, agent.learner),
        agent.clock === "ask" ? "; a slot passes with each decision" : `; a slot lasts ${agent.clock}`,
      ),
      this.counters,
      html(
        "div",
        { class: "grid" },
        this.raster.element,
        this.belief.element,
        this.index.element,
        this.drift.element,
        this.chains.element,
        this.rewards.element,
        this.tightening.element,
        log,
        this.whatIf.element,
        alarms,
      ),
      this.busy,
    ];
    this.told({ present, recent, after });
  }

  told({ present, recent, after }) {
    this.present = present;
    this.seq = after;
    for (const { slot, arms } of recent) {
      const kept = this.slots.get(slot) ?? {};
      for (const [arm, seen] of Object.entries(arms))
        if (seen.state !== undefined || !kept[arm] || kept[arm].state === undefined)
          kept[arm] = { ...kept[arm], ...seen };
      this.slots.set(slot, kept);
    }
    const first = Math.max(...this.slots.keys(), 0) - MOST_SLOTS;
    for (const slot of this.slots.keys()) if (slot <= first) this.slots.delete(slot);
    const now = performance.now();
    this.history = [...(this.history ?? []).filter(([at]) => now - at < 10000), [now, present.slots]];
    const [begin, ...later] = this.history;
    const rate = later.length ? (present.slots - begin[1]) / ((now - begin[0]) / 1000) : null;
    const lately = [...this.slots.values()]
      .flatMap((arms) => Object.values(arms))
      .filter((one) => one.reward !== undefined)
      .slice(-100);
    const say = (key, text) => {
      const cell = this.numbers.get(key);
      if (cell.textContent !== text) cell.textContent = text;
    };
    say("slots", amount(present.slots));
    say("rate", amount(rate, 2));
    say("open", amount(present.open));
    say("lost", amount(present.lost));
    say("lately", lately.length ? amount(lately.reduce((sum, one) => sum + one.reward, 0) / lately.length) : "–");
    say("alarms", amount(present.alarms));
    say("plan", present.planning ? `${present.plan} (+1)` : amount(present.plan));
    this.numbers.get("alarms").parentNode.classList.toggle("alarm", present.alarms > 0);
    this.drawNow();
  }

  async think() {
    if (
      document.hidden ||
      this.thinking ||
      (this.thoughts && this.thoughts.seq === this.present.seq && !this.thoughts.behind && !this.thoughts.solving)
    )
      return;
    this.thinking = true;
    try {
      const [thoughts, { agent }] = await Promise.all([
        read("/page/thoughts", { name: this.name }),
        read("/page/agent", { name: this.name }),
      ]);
      this.thoughts = thoughts;
      this.agent = agent;
      this.arms = agent.task.arms;
      this.busy.textContent = thoughts.behind
        ? `Reading the log: ${short(thoughts.behind)} events are still to be read.`
        : "";
      this.drawNow();
      this.drawThoughts();
      this.whatIf.learned(thoughts);
    } catch (error) {
      this.busy.textContent = error.message;
    } finally {
      this.thinking = false;
    }
  }

  drawNow() {
    for (const figure of [this.raster, this.belief, this.drift, this.index]) figure.redraw();
  }

  drawThoughts() {
    for (const figure of [this.rewards, this.chains, this.tightening]) figure.redraw();
    this.drawPlans();
    this.drawChanges();
  }

  shownArms() {
    return this.thoughts?.arms ?? this.arms.slice(0, 24).map((arm, number) => ({ ...arm, number }));
  }

  drawPlans() {
    const day = (at) =>
      Date.now() / 1000 - at > 43200 ? { dateStyle: "short", timeStyle: "short" } : { timeStyle: "medium" };
    const clock = (at) => new Intl.DateTimeFormat("en-GB", day(at)).format(new Date(1000 * at));
    this.plans.replaceChildren(
      ...this.thoughts.plans
        .slice(-40)
        .reverse()
        .map((plan) =>
          html(
            "tr",
            {},
            [
              amount(plan.plan),
              amount(plan.slot),
              clock(plan.at),
              plan.slots === null ? "now" : amount(plan.slots),
              seconds(plan.seconds),
            ].map((text) => html("td", {}, text)),
            html("td", { class: "words" }, plan.slots === null ? `until: ${plan.until}` : plan.ended),
          ),
        ),
    );
  }

  drawChanges() {
    const alarms = (this.agent.alarms ?? []).map((one) => [
      one.slot,
      `Alarm in slot ${one.slot}: ${one.name} has changed its ${one.what} since about slot ${one.since}.`,
    ]);
    const marks = this.thoughts.marks.map((one) => [one.slot, `Slot ${one.slot}: ${one.text}.`]);
    const all = [...alarms, ...marks].sort((a, b) => b[0] - a[0]).slice(0, 50);
    this.changes.replaceChildren(
      ...(all.length ? all.map(([, text]) => html("li", {}, text)) : [html("li", { class: "soft" }, "None so far.")]),
    );
  }
}
