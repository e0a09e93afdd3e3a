// One agent of observed arms: its states, whom it pulls, the indices at the margin, and what it has learned.
import { amount, html, stateColour, svg } from "./element.js";
import { read } from "./service.js";

const LOOK_EVERY = 1000;
const ACTIONS = ["rest", "pull"];

export async function showObserved(content, name) {
  document.title = `${name} · restless-bandits`;
  const view = html("div", {});
  content.replaceChildren(
    html("p", { class: "small" }, html("a", { href: "#/agents" }, "← All agents")),
    html("h1", {}, name),
    view,
  );
  const connection = document.getElementById("connection");
  let seq = -1,
    over = false;
  const look = async () => {
    try {
      const found = await read("/page/observed", { name });
      if (over) return;
      connection.textContent = "live";
      connection.className = "connection live";
      if (found.seq !== seq) view.replaceChildren(...drawn(found));
      seq = found.seq;
    } catch (error) {
      connection.textContent = error.message;
      connection.className = "connection lost";
    }
  };
  await look();
  const timer = setInterval(look, LOOK_EVERY);
  return () => {
    over = true;
    clearInterval(timer);
  };
}

function drawn(found) {
  const several = found.n_kinds === 1 ? "1 kind" : `${amount(found.n_kinds)} kinds`;
  const lift = found.earned === null ? null : found.earned - found.at_random;
  return [
    html("p", { class: "lead" }, `${found.learner} · ${amount(found.arms)} arms of ${several}, all observed`),
    html(
      "dl",
      { class: "numbers" },
      [
        ["slots", amount(found.slots)],
        ["arms in service", amount(found.in_service)],
        ["pulls a slot", amount(found.plays)],
        ["not seen now", amount(found.missing)],
        ["plan", amount(found.plan)],
        ["reward an arm", amount(found.earned)],
        ["lift over random", lift === null ? "–" : `${lift >= 0 ? "+" : "−"}${amount(Math.abs(lift))}`],
      ].map(([label, value]) => html("div", {}, html("dt", {}, label), html("dd", {}, value))),
    ),
    html(
      "div",
      { class: "grid" },
      card(
        "States of all arms",
        "The share of arms in each state in the last slots, state 0 at the bottom; grey was not seen.",
        stack(found, "states"),
        keys(found),
      ),
      card(
        "States of the pulled arms",
        "The same of the arms that were pulled in these slots.",
        stack(found, "pulled"),
        keys(found),
      ),
      card(
        "Lift over random so far",
        "Mean reward an arm and slot, by the known or learned rewards, against as many pulls at random " +
          "by the learned rows.",
        bars([
          ["earned so far", found.earned],
          ["at random", found.at_random],
        ]),
      ),
      card(
        "Indices at the margin",
        "The last arms that were pulled, and the first that were not.",
        list([...found.above.map((one) => [one, true]), ...found.below.map((one) => [one, false])], found),
      ),
      card(
        "Who was pulled",
        found.n_pulled > found.pulled.length
          ? `The ${found.pulled.length} of highest index among ${amount(found.n_pulled)}.`
          : "By index, the highest first.",
        list(
          found.pulled.map((one) => [one, true]),
          found,
        ),
      ),
      card(
        "Rows learned",
        "The probability of each next state, with two standard errors." +
          (found.n_kinds > found.kinds.length ? ` The first ${found.kinds.length} kinds.` : ""),
        rows(found),
      ),
    ),
  ];
}

const card = (title, about, ...parts) =>
  html("section", { class: "card" }, html("h2", {}, title), html("p", { class: "small soft" }, about), ...parts);

const named = (found, state) => (state === null ? "not seen" : found.state_names[state]);

function keys(found) {
  return html(
    "ul",
    { class: "keys" },
    found.state_names.map((name, state) =>
      html(
        "li",
        {},
        svg(
          "svg",
          { viewBox: "0 0 22 12", "aria-hidden": true },
          svg("rect", { width: 22, height: 12, style: { fill: stateColour(state, found.state_names.length) } }),
        ),
        name,
      ),
    ),
  );
}

function stack(found, word) {
  const wide = 600,
    high = 150,
    left = 26,
    slots = found.recent;
  if (!slots.length) return html("p", { class: "soft" }, "No slot yet.");
  const step = (wide - left) / slots.length,
    parts = [];
  slots.forEach((slot, n) => {
    const total = slot[word].reduce((sum, one) => sum + one, 0) || 1;
    let below = 0;
    slot[word].forEach((count, state) => {
      const part = (high * count) / total;
      // The last entry counts the arms that were not seen.
      const colour = state === found.state_names.length ? null : state;
      below += part;
      if (part > 0)
        parts.push(
          svg("rect", {
            x: left + n * step,
            y: high - below,
            width: Math.max(0.6, step - (step > 3 ? 1 : 0)),
            height: part,
            style: { fill: stateColour(colour, found.state_names.length) },
          }),
        );
    });
  });
  const first = slots[0].slot,
    last = slots[slots.length - 1].slot;
  return html(
    "div",
    { class: "picture" },
    svg(
      "svg",
      { viewBox: `0 0 ${wide} ${high + 22}`, role: "img", "aria-label": `Shares of states in slots ${first} to ${last}` },
      ...parts,
      svg("text", { x: left - 6, y: 12, class: "end" }, "1"),
      svg("text", { x: left - 6, y: high, class: "end" }, "0"),
      svg("text", { x: left, y: high + 16 }, `slot ${first}`),
      last > first ? svg("text", { x: wide, y: high + 16, class: "end" }, `slot ${last}`) : null,
    ),
  );
}

function bars(lines) {
  const most = Math.max(1e-12, ...lines.map(([, value]) => Math.abs(value ?? 0)));
  return html(
    "table",
    {},
    html(
      "tbody",
      {},
      lines.map(([label, value], n) =>
        html(
          "tr",
          {},
          html("td", {}, label),
          html(
            "td",
            { style: { width: "60%" } },
            svg(
              "svg",
              { viewBox: "0 0 100 8", preserveAspectRatio: "none", style: { width: "100%", height: "14px" } },
              svg("rect", {
                width: (100 * Math.abs(value ?? 0)) / most,
                height: 8,
                style: { fill: `var(--c${n ? 6 : 0})` },
              }),
            ),
          ),
          html("td", {}, amount(value)),
        ),
      ),
    ),
  );
}

function list(lines, found) {
  if (!lines.length) return html("p", { class: "soft" }, "No slot yet.");
  return html(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Arms by index" },
    html(
      "table",
      {},
      html("thead", {}, html("tr", {}, ["arm", "state", "index", ""].map((head) => html("th", { scope: "col" }, head)))),
      html(
        "tbody",
        {},
        lines.map(([one, pulled]) =>
          html(
            "tr",
            {},
            html("td", {}, one.name),
            html("td", {}, named(found, one.state)),
            html("td", {}, amount(one.index, 4)),
            html("td", {}, pulled ? "pulled" : "rests"),
          ),
        ),
      ),
    ),
  );
}

function rows(found) {
  const columns = found.state_names.map((name) => `to ${name}`);
  return html(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rows learned" },
    html(
      "table",
      {},
      html(
        "thead",
        {},
        html("tr", {}, ["kind", "state", "", "steps", ...columns].map((head) => html("th", { scope: "col" }, head))),
      ),
      html(
        "tbody",
        {},
        found.kinds.map((kind) =>
          kind.rows.map((one, n) =>
            html(
              "tr",
              {},
              html("td", {}, n ? "" : `${kind.name} (${amount(kind.arms)})`),
              html("td", {}, named(found, one.state)),
              html("td", {}, ACTIONS[one.action]),
              html("td", {}, amount(one.steps)),
              one.row.map((p, z) => html("td", {}, `${p.toFixed(2)} ± ${one.errors[z].toFixed(2)}`)),
            ),
          ),
        ),
      ),
    ),
  );
}
