// All agents at a glance.
import { amount, html } from "./element.js";
import { follow, read } from "./service.js";

const HEADS = ["agent", "slots", "slots a second", "reward lately", "open", "lost", "alarms", "arms", "learner"];

export function showOverview(content) {
  document.title = "Agents · restless-bandits";
  const body = html("tbody"),
    count = html("p", { class: "lead", role: "status" });
  const search = html("input", { type: "search", placeholder: "Find by name", "aria-label": "Find agents by name" });
  const rows = new Map();
  content.replaceChildren(
    html("h1", {}, "Agents"),
    count,
    html("p", {}, search),
    html(
      "div",
      { class: "card" },
      html(
        "table",
        { class: "agents" },
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            HEADS.map((head) => html("th", { scope: "col" }, head)),
          ),
        ),
        body,
      ),
    ),
  );

  const draw = ({ agents, count: all }) => {
    const many = all > agents.length ? `; the first ${agents.length} are shown` : "";
    const text = all
      ? `${all} agent${all === 1 ? "" : "s"}${many}`
      : "There is no agent yet: POST /agents makes one, and so does rb.Client.";
    if (count.textContent !== text) count.textContent = text;
    search.hidden = all < 8 && !search.value;
    for (const [name, row] of rows)
      if (!agents.some((one) => one.name === name)) {
        row.remove();
        rows.delete(name);
      }
    for (const one of agents) {
      const cells = [
        amount(one.slots),
        amount(one.rate, 2),
        amount(one.lately),
        amount(one.open),
        amount(one.lost),
        amount(one.alarms),
        amount(one.arms),
        one.learner,
      ];
      let row = rows.get(one.name);
      if (!row) {
        row = html(
          "tr",
          { "data-agent": one.name },
          html("td", {}, html("a", { href: `#/agent/${encodeURIComponent(one.name)}` }, one.name)),
          cells.map((_, n) => html("td", { "data-head": HEADS[n + 1] })),
        );
        rows.set(one.name, row);
        body.append(row);
      }
      cells.forEach((text, n) => {
        const cell = row.children[n + 1];
        if (cell.textContent !== text) cell.textContent = text;
        cell.classList.toggle("alarm", n === 5 && one.alarms > 0);
      });
    }
  };
  let stop = follow(
    () => ({}),
    (frame) => {
      if (!search.value) draw(frame);
    },
  );
  search.addEventListener("input", async () => {
    const asked = search.value,
      found = await read("/page/overview", { search: asked });
    if (asked === search.value) draw(found);
  });
  return () => stop();
}
