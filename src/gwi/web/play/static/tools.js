// What all parts of the page use. Text from files goes through `textContent` only.

export const $ = (id) => document.getElementById(id);

/** An element with text, attributes and children. */
export function element(name, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  return filled(made, text, attributes, children);
}

/** The same for pictures. */
export function drawn(name, attributes = {}, ...children) {
  const { text, ...others } = attributes;
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), text, others, children);
}

function filled(made, text, attributes, children) {
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** A number with three digits, for a reader. */
export function short(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) return value.toExponential(digits - 1).replace("e+", "e").replace("-", "−");
  const places = size >= 10 ** (digits - 1) || size === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return Number(value.toFixed(places)).toLocaleString("en", { maximumFractionDigits: places, useGrouping: size >= 1e4 }).replace("-", "−");
}

let waiting = 0;
/** Say something to who does not see the page; of several things soon after one another the last. */
export function say(text, soon = 350) {
  clearTimeout(waiting);
  waiting = setTimeout(() => { $("live").textContent = text; }, soon);
}

/** Hand a file to the user. */
export function handOut(content, name) {
  const address = URL.createObjectURL(content);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** Places of ticks between two numbers. */
export function ticks(low, high, about) {
  const rough = (high - low) / Math.max(about, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}
