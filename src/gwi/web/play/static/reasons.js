// Why the model is unsure at the row of the controls: what each column adds to the variance, as bars.

import { $, element, say, short } from "./tools.js";

// Milliseconds without a change before the question is asked: a prediction is at once, reasons may take longer.
const REST = 350, MUCH = 10;

/** The bars; `explain(cells)` asks the model. */
export class Reasons {
  constructor(explain) {
    this.explain = explain;
  }

  /** What is shown is of another row, until the controls rest. */
  wait() {
    clearTimeout(this.timer);
    this.cells = null;
    $("reasons").setAttribute("aria-busy", true);
  }

  clear() {
    this.wait();
    $("reasons").replaceChildren();
  }

  soon(cells) {
    this.wait();
    this.cells = cells;
    this.timer = setTimeout(() => this.ask(), REST);
  }

  /** One question at a time; what comes of a row that is no longer there is not shown. */
  async ask() {
    if (this.asking) return;
    this.asking = true;
    const cells = this.cells, begun = performance.now();
    try {
      const found = await this.explain(cells);
      if (cells === this.cells) this.show(...bars(found));
    } catch (error) {
      if (error.status === undefined) throw error;
      if (cells === this.cells) this.show(element("p", { class: "refused", text: error.message }));
    } finally {
      this.asking = false;
      performance.measure("reasons", { start: begun, end: performance.now() });
    }
    if (this.cells && cells !== this.cells) this.soon(this.cells);
  }

  show(...parts) {
    $("reasons").replaceChildren(...parts);
    $("reasons").setAttribute("aria-busy", false);
    say(`Why is it unsure here? ${parts[0].textContent} ${parts[1]?.querySelector("li:nth-child(2) .unseen")?.textContent ?? ""}`, 1200);
  }
}

function written(share) {
  const size = Math.abs(share);
  return size < MUCH ? `${(100 * size).toFixed(0)}\u00a0%` : `${size.toFixed(0)}\u00a0×`;
}

// Of what is small one digit, and never none.
function nearly(error, variance) {
  if (error === 0) return "";
  if (error === null) return "?";
  if (!(variance > 0)) return short(error);
  const share = error / variance;
  return share < 0.0005 ? "<\u20090.1\u00a0%" : share < 0.0095 ? `${(100 * share).toFixed(1)}\u00a0%` : written(share);
}

function bars({ of, variance, left, base, background, parts, caveat }) {
  const share = (part) => (variance > 0 ? part / variance : NaN);
  const lines = [{ column: `${background} usual rows`, cell: "", part: base, error: 0, kind: "usual" }, ...parts];
  const shares = lines.map((line) => share(line.part)).filter(Number.isFinite);
  const low = Math.min(0, ...shares), high = Math.max(0, ...shares);
  const at = (value) => `${(100 * (value - low)) / (high - low || 1)}%`;
  const head = element("p", { class: "soft", text: `The variance of ${of} is ${short(variance)} (standard deviation ${short(Math.sqrt(variance))}), that of ${background} usual rows ${short(base)}; ${written(left)} of the prior variance is left.` });
  const list = element("ul", { class: "bars", "aria-label": "What each column adds to the variance" }, ...lines.map((line) => bar(line, variance, share, at)));
  const how = lines.some(({ error }) => error !== 0) ? " ± is the standard error of parts that were found by drawing orders of columns." : "";
  const foot = element("p", { class: "soft small", text: `Shares of the variance; together they are 100 %. A column’s share says how much more certain the model would be with the values of usual rows in its place; below zero, how much less certain.${how}` });
  return [head, list, ...(caveat ? [element("p", { class: "note", text: caveat })] : []), foot];
}

function bar({ column, cell, part, error, kind = part < 0 ? "surer" : "" }, variance, share, at) {
  const value = share(part), name = cell === "" ? column : `${column} = ${cell}`;
  const isKnown = Number.isFinite(value);
  const size = isKnown ? written(value) : short(part), near = nearly(error, variance);
  const word = kind === "usual" ? "have" : value < 0 ? "takes away" : "adds";
  const spoken = isKnown ? `${name}: ${word} ${size.replace("×", "times")} of the variance${near ? `, give or take ${near}` : ""}` : `${name}: ${size}`;
  const inside = element("span", { class: "part" }), zero = element("span", { class: "zero" });
  if (isKnown) {
    inside.style.left = at(Math.min(0, value));
    inside.style.width = `calc(${at(Math.max(0, value))} - ${at(Math.min(0, value))})`;
  }
  zero.style.left = at(0);
  return element("li", { class: kind },
    element("span", { class: "unseen", text: spoken }),
    element("span", { "aria-hidden": "true", text: name }),
    element("span", { class: "track", "aria-hidden": "true" }, inside, zero),
    element("span", { class: "share-of", "aria-hidden": "true" }, `${isKnown && kind !== "usual" ? (value < 0 ? "−" : "+") : ""}${size} `, element("small", { text: near && `±\u00a0${near}` })));
}
