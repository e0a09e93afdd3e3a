// A card with a picture, the table behind it, and both to take away.
import { html, svg } from "./element.js";

export class Figure {
  constructor(title, about, { wide = false, note = null } = {}) {
    this.title = title;
    this.rows = () => ({ heads: [], rows: [] });
    this.heights = new Map();
    this.svg = svg("svg", { role: "img", tabindex: 0, "aria-label": title });
    this.tip = html("div", { class: "tip", role: "status", hidden: true });
    this.picture = html("div", { class: "picture" }, this.svg, this.tip);
    this.keys = html("ul", { class: "keys" });
    this.note = html("p", { class: "small soft" }, note);
    this.body = html("tbody");
    this.top = html("thead");
    this.details = html(
      "details",
      { class: "table", on: { toggle: () => this.fillTable() } },
      html("summary", {}, "Table"),
      html(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}: table` },
        html("table", {}, this.top, this.body),
      ),
    );
    const tool = (name, action) =>
      html(
        "button",
        { class: "quiet", type: "button", "aria-label": `${title}: download as ${name}`, on: { click: action } },
        name,
      );
    this.element = html(
      "section",
      { class: `card${wide ? " wide" : ""}` },
      html(
        "div",
        { class: "head" },
        html("h2", {}, title),
        html(
          "div",
          { class: "tools" },
          tool("CSV", () => this.saveCsv()),
          tool("JSON", () => this.saveJson()),
          tool("PNG", () => this.savePng()),
        ),
      ),
      html("p", { class: "small soft" }, about),
      this.picture,
      this.keys,
      this.note,
      this.details,
    );
    this.points = [];
    this.at = -1;
    this.svg.addEventListener("pointermove", (event) => this.nearest(event));
    this.svg.addEventListener("pointerdown", (event) => this.nearest(event));
    this.svg.addEventListener("pointerleave", () => this.hide());
    this.svg.addEventListener("blur", () => this.hide());
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.wide = 0;
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.wide) {
        this.wide = width;
        this.redraw?.();
      }
    }).observe(this.picture);
  }
  // The picture anew: its height, what is in it, the points that can be asked, and the table.
  show(height, children, points, rows, says) {
    this.svg.setAttribute("viewBox", `0 0 ${this.wide} ${height}`);
    this.svg.style.height = `${height}px`;
    if (says) this.svg.setAttribute("aria-label", `${this.title}: ${says}`);
    this.svg.replaceChildren(...children.flat(3).filter(Boolean));
    this.points = points;
    this.rows = rows;
    if (this.asked && !this.tip.hidden) {
      const again = points.findIndex((one) => one.key !== undefined && one.key === this.asked.key);
      if (again >= 0) this.tell(again);
      else this.hide();
    }
    if (this.details.open && performance.now() - (this.filled ?? 0) > 900) this.fillTable();
  }
  legend(entries) {
    const text = JSON.stringify(entries);
    if (this.legendText === text) return;
    this.legendText = text;
    this.keys.replaceChildren(
      ...entries.map(({ label, colour, kind = "line", dash }) =>
        html(
          "li",
          {},
          svg(
            "svg",
            { viewBox: "0 0 22 12", "aria-hidden": true },
            kind === "line"
              ? svg("path", {
                  d: "M1,6H21",
                  class: "stroke",
                  "stroke-dasharray": dash ? "4 3" : null,
                  style: { stroke: colour },
                })
              : kind === "open"
                ? svg("rect", { x: 5, y: 1, width: 10, height: 10, class: "open-cell" })
                : kind === "lost"
                  ? svg("path", { d: "M6,1L15,11M15,1L6,11", class: "lost-cell" })
                  : svg("rect", { x: 3, y: 1, width: 16, height: 10, rx: 2, style: { fill: colour } }),
          ),
          label,
        ),
      ),
    );
  }
  nearest(event) {
    const box = this.svg.getBoundingClientRect(),
      x = event.clientX - box.left,
      y = event.clientY - box.top;
    let best = -1,
      least = 30;
    this.points.forEach((one, n) => {
      const away = one.w
        ? Math.hypot(Math.max(0, Math.abs(one.x - x) - one.w / 2), Math.max(0, Math.abs(one.y - y) - one.h / 2))
        : Math.hypot(one.x - x, one.y - y);
      if (away < least) [best, least] = [n, away];
    });
    if (best >= 0) this.tell(best);
    else this.hide();
  }
  key(event) {
    if (event.key === "Escape") return this.hide();
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9 }[event.key];
    const line = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!this.points.length || (step === undefined && line === undefined)) return;
    event.preventDefault();
    const from = this.at >= 0 && this.at < this.points.length ? this.at : this.points.length - 1;
    let to = this.tip.hidden ? from : Math.min(Math.max(from + (step ?? 0), 0), this.points.length - 1);
    if (line && !this.tip.hidden) {
      const series = [...new Set(this.points.map((one) => one.label))],
        now = this.points[from];
      const other = series[(series.indexOf(now.label) + line + series.length) % series.length];
      to = this.points.reduce(
        (best, one, n) =>
          one.label === other && (best < 0 || Math.abs(one.x - now.x) < Math.abs(this.points[best].x - now.x))
            ? n
            : best,
        -1,
      );
    }
    this.tell(to);
  }
  tell(n) {
    const one = this.points[n];
    this.at = n;
    this.asked = one;
    this.svg.querySelector(".ring")?.remove();
    if (!one.w) this.svg.append(svg("circle", { class: "ring", cx: one.x, cy: one.y, r: 6 }));
    else
      this.svg.append(
        svg("rect", { class: "ring", x: one.x - one.w / 2, y: one.y - one.h / 2, width: one.w, height: one.h }),
      );
    const words = `${one.label}\n${one.says}`;
    if (this.told !== words || this.tip.hidden) this.tip.replaceChildren(html("b", {}, one.label), one.says);
    this.told = words;
    this.tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    this.tip.style.left = `${Math.min(Math.max(one.x - width / 2, 0), this.wide - width)}px`;
    this.tip.style.top = `${one.y - height - 14 < -30 ? one.y + 16 : one.y - height - 14}px`;
  }
  hide() {
    this.tip.hidden = true;
    this.svg.querySelector(".ring")?.remove();
  }
  fillTable() {
    if (!this.details.open) return;
    this.filled = performance.now();
    const { heads, rows } = this.rows();
    this.top.replaceChildren(
      html(
        "tr",
        {},
        heads.map((head) => html("th", { scope: "col" }, head)),
      ),
    );
    this.body.replaceChildren(
      ...rows.slice(0, 500).map((row) =>
        html(
          "tr",
          {},
          row.map((cell) =>
            html(
              "td",
              {},
              cell === null || cell === undefined ? "–" : typeof cell === "number" ? `${+cell.toPrecision(6)}` : cell,
            ),
          ),
        ),
      ),
    );
  }
  saveCsv() {
    const { heads, rows } = this.rows();
    // A text that a spreadsheet would take for a formula is told to be text.
    const cell = (value) =>
      typeof value === "number"
        ? String(value)
        : `"${String(value ?? "")
            .replace(/^[=+\-@\t\r]/, "'$&")
            .replaceAll('"', '""')}"`;
    this.save("csv", "text/csv", [heads, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n");
  }
  saveJson() {
    const { heads, rows } = this.rows();
    const entries = rows.map((row) => Object.fromEntries(heads.map((head, n) => [head, row[n] ?? null])));
    this.save("json", "application/json", JSON.stringify({ title: this.title, rows: entries }, null, 1));
  }
  async savePng() {
    const copy = this.svg.cloneNode(true),
      height = this.svg.clientHeight;
    const mine = [this.svg, ...this.svg.querySelectorAll("*")],
      theirs = [copy, ...copy.querySelectorAll("*")];
    mine.forEach((one, n) => {
      const look = getComputedStyle(one);
      for (const name of [
        "fill",
        "stroke",
        "stroke-width",
        "stroke-dasharray",
        "opacity",
        "font-size",
        "font-family",
        "text-anchor",
      ])
        theirs[n].setAttribute(name, look.getPropertyValue(name));
      theirs[n].removeAttribute("style");
      theirs[n].removeAttribute("class");
    });
    copy.setAttribute("width", this.wide);
    copy.setAttribute("height", height);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const picture = new Image();
    const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
    picture.src = url;
    await picture.decode();
    const canvas = html("canvas", { width: 2 * this.wide, height: 2 * height }),
      pen = canvas.getContext("2d");
    pen.fillStyle = getComputedStyle(this.element).backgroundColor;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(url);
    canvas.toBlob((blob) => this.offer("png", blob));
  }
  save(ending, type, text) {
    this.offer(ending, new Blob([text], { type }));
  }
  offer(ending, blob) {
    const url = URL.createObjectURL(blob),
      name = this.title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
    const link = html("a", { href: url, download: `${name}.${ending}` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}
