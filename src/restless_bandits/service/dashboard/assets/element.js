// Elements from names, properties and children; text never becomes markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "style") for (const [name, one] of Object.entries(value)) element.style.setProperty(name, one);
    else if (key === "on") for (const [name, one] of Object.entries(value)) element.addEventListener(name, one);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((one) => one !== null && one !== undefined));
  return element;
}

export const html = (name, properties, ...children) => fill(document.createElement(name), properties, children);
export const svg = (name, properties, ...children) => fill(document.createElementNS(SVG, name), properties, children);

export const armColour = (number) => `var(--c${number % 8})`;
export const stateColour = (state, n) =>
  state === null || state === undefined
    ? "var(--never)"
    : `color-mix(in srgb, var(--worst) ${Math.round((100 * state) / Math.max(1, n - 1))}%, var(--best))`;

export function amount(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");
  return `${+value.toPrecision(digits)}`;
}
export const share = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));
export function short(value) {
  for (const [size, letter] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ])
    if (Math.abs(value) >= size) return `${+(value / size).toPrecision(4)}${letter}`;
  return `${+value.toPrecision(4)}`;
}
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  return value >= 1 ? `${amount(value)} s` : `${amount(1000 * value)} ms`;
}

// Names that differ do so at their ends more often than not.
export function shortened(text, width) {
  const fits = Math.max(5, Math.floor(width / 7.2));
  const end = Math.floor(fits / 2) - 1;
  return text.length <= fits ? text : `${text.slice(0, fits - end - 1)}…${text.slice(-end)}`;
}
