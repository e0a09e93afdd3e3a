// What if the chains or the rewards were others? The service computes the answer.
import { lines } from "./axes.js";
import { withStay } from "./chains.js";
import { armColour, html, share, shortened, svg } from "./element.js";
import { Figure } from "./figure.js";
import { read } from "./service.js";

const MOST_ARMS = 6;
const AGAIN = 15000; // Milliseconds after which what is learned is solved anew, as long as nobody has moved a slider.

export class WhatIf {
  constructor() {
    this.sliders = html("div", { class: "sliders" });
    this.answer = html("p", { class: "answer", role: "status" }, "Move a slider.");
    this.figure = new Figure("The best policy then", "");
    this.figure.redraw = () => this.draw();
    this.figure.element.classList.remove("card");
    this.reset = html(
      "button",
      {
        type: "button",
        on: {
          click: () => {
            this.touched = false;
            this.take(this.latest);
          },
        },
      },
      "As learned",
    );
    this.element = html(
      "section",
      { class: "card wide" },
      html("div", { class: "head" }, html("h2", {}, "What if"), html("div", { class: "tools" }, this.reset)),
      html(
        "p",
        { class: "small soft" },
        "Change a chain or a reward, and see what the best policy would be and what it would earn. " +
          "The agent is not touched.",
      ),
      this.sliders,
      this.answer,
      this.figure.element,
    );
  }
  // Sliders follow what is learned until somebody moves one.
  learned(thoughts) {
    this.latest = thoughts;
    this.plays = thoughts.plays;
    this.optimum = thoughts.optimum;
    const due = performance.now() - (this.taken ?? -Infinity) > AGAIN;
    if (!this.touched && due && !this.sliders.contains(document.activeElement)) this.take(thoughts);
    else this.say();
  }
  take(thoughts) {
    this.taken = performance.now();
    const service = thoughts.arms.filter((arm) => arm.in_service);
    if (service.length > MOST_ARMS || service.length < thoughts.plays) {
      this.answer.textContent = `This is for up to ${MOST_ARMS} arms.`;
      this.figure.element.hidden = this.reset.hidden = this.sliders.hidden = true;
      return;
    }
    const middle = (arm) => (arm.reward_range[0] + arm.reward_range[1]) / 2;
    this.arms = service.map((arm) => ({
      number: arm.number,
      name: arm.name,
      reward_range: arm.reward_range,
      transitions: arm.transitions.map((row) => [...row]),
      active_transitions: arm.active_transitions?.map((row) => [...row]),
      passive_rewards: arm.passive_rewards,
      setup_cost: arm.setup_cost,
      rewards: arm.rewards.map((one) =>
        Math.min(Math.max(one ?? middle(arm), arm.reward_range[0]), arm.reward_range[1]),
      ),
    }));
    const shape = JSON.stringify(this.arms.map((arm) => [arm.name, arm.rewards.length, !arm.active_transitions]));
    if (shape !== this.shape) this.build();
    this.shape = shape;
    for (const set of this.settings) set();
    this.ask();
  }
  build() {
    this.settings = [];
    this.sliders.replaceChildren(
      ...this.arms.map((arm, n) =>
        html(
          "fieldset",
          { style: { "--own": armColour(arm.number) } },
          html("legend", {}, arm.name),
          arm.rewards.map((_, s) => [
            ...(arm.active_transitions ? ["transitions", "active_transitions"] : ["transitions"]).map((chain) =>
              this.slider(
                `${arm.active_transitions ? (chain === "transitions" ? "at rest " : "pulled ") : ""}stays in state ${s}`,
                0.01,
                0.99,
                0.01,
                () => this.arms[n][chain][s][s],
                (value) => {
                  this.arms[n][chain] = withStay(this.arms[n][chain], s, value);
                },
              ),
            ),
            this.slider(
              `pays in state ${s}`,
              arm.reward_range[0],
              arm.reward_range[1],
              (arm.reward_range[1] - arm.reward_range[0]) / 100,
              () => this.arms[n].rewards[s],
              (value) => {
                this.arms[n].rewards[s] = value;
              },
            ),
          ]),
        ),
      ),
    );
  }
  slider(label, min, max, step, get, set) {
    const output = html("output"),
      range = html("input", { type: "range", min, max, step });
    const say = () => {
      output.textContent = (+range.value).toFixed(2);
    };
    this.settings.push(() => {
      range.value = get();
      output.textContent = get().toFixed(2);
    });
    range.addEventListener("input", () => {
      this.touched = true;
      set(+range.value);
      say();
      this.ask();
    });
    return html("label", {}, label, range, output);
  }
  // One question at a time; the last state of the sliders is the next one.
  async ask() {
    this.waiting = true;
    if (this.asking) return;
    this.asking = true;
    this.figure.element.classList.add("busy");
    while (this.waiting) {
      this.waiting = false;
      // What an arm has not is left out of the text.
      const arms = this.arms.map(({ number, ...arm }) => arm);
      try {
        const found = await read("/page/what-if", { arms: JSON.stringify(arms), plays: this.plays });
        this.found = found;
        this.error = null;
      } catch (error) {
        this.error = error.message;
      }
      this.say();
      this.draw();
      await new Promise((done) => setTimeout(done, 120));
    }
    this.asking = false;
    this.figure.element.classList.remove("busy");
  }
  say() {
    if (this.error) {
      this.answer.replaceChildren(html("span", { class: "error" }, this.error));
      return;
    }
    if (!this.found) return;
    const { gain, certified, lower, upper } = this.found;
    const words = certified ? "certified" : `proved to lie between ${share(lower)} and ${share(upper)}`;
    let more = "";
    if (this.touched && this.optimum) {
      const gained = gain - this.optimum.gain;
      const change = `${gained >= 0 ? "+" : "−"}${share(Math.abs(gained))}`;
      more = `; as learned it earns ${share(this.optimum.gain)}, so that is ${change}`;
    }
    this.answer.replaceChildren(
      "The best policy earns ",
      html("b", { "data-gain": gain }, share(gain)),
      ` a slot, ${words}${more}.`,
    );
  }
  draw() {
    if (!this.figure.wide || !this.found) return;
    if (this.found.policy) this.drawPolicy();
    else this.drawIndices();
  }
  drawPolicy() {
    const figure = this.figure,
      width = figure.wide,
      rows = this.found.policy,
      row = 22,
      left = Math.min(330, 0.55 * width);
    const columns = rows[0].pulls.length,
      step = (width - left - 2) / columns,
      parts = [],
      points = [],
      narrow = width < 560;
    const name = (k) => this.arms[k].name;
    rows.forEach((one, n) => {
      const y = n * row,
        other = 1 - one.last;
      const words = narrow
        ? `${name(one.last)} in ${one.state}, ${name(other)} was ${one.other}`
        : `after ${name(one.last)} in state ${one.state}, ${name(other)} last seen in ${one.other}`;
      parts.push(svg("text", { class: "label", x: 0, y: y + 15 }, shortened(words, 1.09 * left)));
      one.pulls.forEach((arm, k) => {
        const place = { x: left + (k + 0.5) * step, y: y + row / 2, w: step - 1, h: row - 3 };
        parts.push(
          svg("rect", {
            x: place.x - place.w / 2,
            y: place.y - place.h / 2,
            width: place.w,
            height: place.h,
            style: { fill: armColour(this.arms[arm].number) },
          }),
        );
        points.push({
          ...place,
          label: `pull ${name(arm)}`,
          says: `after ${name(one.last)} in state ${one.state}, ${name(other)} seen in ${one.other} ${k + 2} slots ago`,
          key: `${n} ${k}`,
        });
      });
    });
    const height = rows.length * row + 34,
      every = narrow ? 6 : 2;
    for (let k = 0; k < columns; k += every)
      parts.push(svg("text", { class: "middle", x: left + (k + 0.5) * step, y: height - 20 }, String(k + 2)));
    parts.push(
      svg(
        "text",
        { class: "middle label", x: (left + width) / 2, y: height - 4 },
        narrow ? "slots ago" : "slots since the other arm was seen",
      ),
    );
    figure.legend(this.arms.map((arm) => ({ label: `pull ${arm.name}`, kind: "cell", colour: armColour(arm.number) })));
    figure.show(
      height,
      parts,
      points,
      () => ({
        heads: ["pulled last", "its state", "the other's last state", ...rows[0].pulls.map((_, k) => `${k + 2} ago`)],
        rows: rows.map((one) => [name(one.last), one.state, one.other, ...one.pulls.map(name)]),
      }),
      "which arm is pulled in each situation",
    );
  }
  drawIndices() {
    const traces = this.arms.flatMap((arm, n) =>
      this.found.index[n].slice(0, arm.rewards.length).map((row, s) => ({
        label: `${arm.name}, state ${s}`,
        colour: armColour(arm.number),
        dash: s > 0,
        points: row.map((y, k) => ({ x: k + 1, y, says: `${k + 1} slots after state ${s}: index ${share(y)}` })),
      })),
    );
    this.figure.legend(traces.map(({ label, colour, dash }) => ({ label, colour, dash })));
    lines(this.figure, {
      traces,
      height: 250,
      x: { label: "slots since it was seen" },
      y: { label: "Whittle index", pad: true },
      rows: () => ({
        heads: ["arm", "last state", "slots ago", "index"],
        rows: this.arms.flatMap((arm, n) =>
          this.found.index[n]
            .slice(0, arm.rewards.length)
            .flatMap((row, s) => row.map((y, k) => [arm.name, s, k + 1, y])),
        ),
      }),
      says: "Whittle’s index by state and slots since",
    });
  }
}
