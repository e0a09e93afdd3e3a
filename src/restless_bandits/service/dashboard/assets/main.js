// Which view is shown: #/agents, or #/agent/NAME.
import { showAgent } from "./agent.js";
import { html } from "./element.js";
import { showOverview } from "./overview.js";
import { read } from "./service.js";

const content = document.getElementById("content");
let leave = () => {};

async function route() {
  leave();
  leave = () => {};
  const [, kind, name] = location.hash.match(/^#\/(agents?)(?:\/(.+))?$/) ?? [];
  try {
    if (kind === "agent" && name) leave = await showAgent(content, decodeURIComponent(name));
    else if (kind === "agents") leave = showOverview(content);
    else {
      // Where there is one agent only, whoever comes wants to see it.
      const { agents, count } = await read("/page/overview");
      if (count === 1) return location.replace(`#/agent/${encodeURIComponent(agents[0].name)}`);
      location.replace("#/agents");
    }
  } catch (error) {
    content.replaceChildren(
      html(
        "div",
        { class: "card" },
        html("p", { class: "error", role: "alert" }, error.message),
        html("p", {}, html("a", { href: "#/agents" }, "All agents")),
      ),
    );
  }
}

addEventListener("hashchange", () => {
  route();
  content.focus({ preventScroll: true });
  scrollTo(0, 0);
});
route();
