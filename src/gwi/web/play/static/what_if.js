// A control for each column, and what the model says of the row they make.

import { Reasons } from "./reasons.js";
import { $, element, say, short } from "./tools.js";

const FIRST = 6, MOST_FOUND = 20, MOST_BARS = 8;
const STEPS = 200;

/** The controls and the answer; `predict(cells)` asks the model, `explain(cells)` why it is unsure. */
export class WhatIf {
  constructor(predict, explain) {
    this.predict = predict;
    this.reasons = new Reasons(explain);
    $("column-search").addEventListener("input", () => this.showControls());
    $("nearest").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.use(this.settings[Number(button.dataset.row)]);
    });
  }

  begin(fitted) {
    this.fitted = fitted;
    this.controls = fitted.controls;
    this.cells = Object.fromEntries(this.controls.map((control, i) => [i, control.value]));
    this.range = null;
    this.reasons.clear();
    $("column-search").value = "";
    $("column-search").hidden = this.controls.length <= FIRST;
    this.showControls();
    this.ask();
  }

  use(setting) {
    this.cells = { ...this.cells, ...setting };
    this.showControls();
    this.ask();
    say("The controls are set to this row.");
  }

  showControls() {
    const wanted = $("column-search").value.trim().toLowerCase();
    const all = this.controls.map((control, i) => [control, i]);
    const found = wanted ? all.filter(([control]) => control.name.toLowerCase().includes(wanted)).slice(0, MOST_FOUND) : all.slice(0, FIRST);
    $("controls").replaceChildren(...found.map(([control, i]) => this.control(control, i)));
    const rest = this.controls.length - FIRST;
    $("controls-more").textContent = wanted ? (found.length ? "" : "No column has this name.") : rest > 0 ? `The ${FIRST} most important columns; search for the other ${rest}.` : "";
  }

  control(control, i) {
    const id = `column-${i}`, label = element("label", { for: id, text: control.name });
    const output = element("output", { for: id });
    let input;
    const set = (value) => {
      this.cells[i] = value;
      this.ask();
    };
    if (control.kind === "number") {
      const step = control.whole ? Math.max(1, Math.round((control.high - control.low) / STEPS)) : (control.high - control.low) / STEPS;
      input = element("input", { type: "range", id, min: control.low, max: control.high, step: step || "any" });
      const value = this.cells[i];
      if (value !== null) input.value = value;
      output.textContent = value === null ? "missing" : short(value, 4);
      input.addEventListener("input", () => {
        output.textContent = short(input.valueAsNumber, 4);
        set(input.valueAsNumber);
      });
    } else if (control.kind === "categories") {
      input = element("select", { id }, ...control.values.map((text, place) => element("option", { value: place, text, selected: place === this.cells[i] })));
      if (this.cells[i] === null) input.selectedIndex = -1;
      input.addEventListener("change", () => set(Number(input.value)));
    } else {
      input = element("input", { type: control.kind === "date" ? "date" : "text", id, value: this.cells[i] ?? "", maxlength: 400, list: control.values && `${id}-list` });
      input.addEventListener("change", () => set(input.value || null));
    }
    const choices = control.kind === "frequency" ? [element("datalist", { id: `${id}-list` }, ...control.values.map((value) => element("option", { value })))] : [];
    return element("div", { class: "field" }, element("div", { class: "row" }, label, output), input, ...choices);
  }

  /** One question at a time, the newest last. */
  async ask() {
    this.wanted = true;
    this.reasons.wait();
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.wanted) {
        this.wanted = false;
        const begun = performance.now(), fitted = this.fitted;
        const found = await this.predict(this.cells);
        if (fitted !== this.fitted) continue;
        this.answer(found);
        performance.measure("what-if", { start: begun, end: performance.now() });
      }
      this.reasons.soon({ ...this.cells });
    } catch (error) {
      if (error.status === undefined) throw error;
      this.reasons.clear();
      $("answer").replaceChildren(element("p", { class: "refused", text: error.message }));
    } finally {
      this.asking = false;
    }
  }

  answer(found) {
    const { ood_score: score, prediction, lower, upper, ...others } = found.values;
    const parts = [element("p", { class: "big", text: typeof prediction === "number" ? short(prediction, 4) : String(prediction ?? "") })];
    if (lower !== undefined) {
      parts.push(element("p", { class: "soft", text: `95 % interval: ${short(lower, 4)} to ${short(upper, 4)}` }), this.interval(prediction ?? (lower + upper) / 2, lower, upper));
    } else {
      const bars = Object.entries(others).filter(([, value]) => typeof value === "number" && value >= 0 && value <= 1);
      bars.sort((a, b) => b[1] - a[1]);
      parts.push(...bars.slice(0, MOST_BARS).map(([name, value]) => meter(name.replace(/^probability_/, ""), value, `${(100 * value).toFixed(1)} %`)));
    }
    parts.push(meter("Outlier score", score, score.toFixed(2), "outlier"), element("p", { class: "soft small", text: "0 like the training rows, 1 far away from all of them" }));
    parts.push(...found.notes.map((text) => element("p", { class: "note", text })));
    $("answer").replaceChildren(...parts);
    this.settings = found.nearest.settings;
    const heads = found.nearest.names.map((text) => element("th", { scope: "col", text }));
    $("nearest").tHead.replaceChildren(element("tr", {}, ...heads, element("th", { scope: "col" }, element("span", { class: "unseen", text: "Use" }))));
    $("nearest").tBodies[0].replaceChildren(...found.nearest.rows.map((cells, row) => {
      const button = element("button", { class: "quiet", text: "Use", "data-row": row, "aria-label": `Set the controls to row ${cells[0]}` });
      return element("tr", {}, ...cells.map((text) => element("td", { text })), element("td", {}, button));
    }));
  }

  // On an axis that only grows, so that changes can be seen.
  interval(middle, lower, upper) {
    const room = 0.6 * (upper - lower);
    this.range = this.range ? [Math.min(this.range[0], lower), Math.max(this.range[1], upper)] : [lower - room, upper + room];
    const [low, high] = this.range, at = (value) => `${(100 * (value - low)) / (high - low || 1)}%`;
    const bar = element("span", { class: "inside" }), point = element("span", { class: "middle" });
    bar.style.left = at(lower);
    bar.style.width = `calc(${at(upper)} - ${at(lower)})`;
    point.style.left = at(middle);
    return element("div", { class: "interval", "aria-hidden": "true" }, bar, point);
  }
}

function meter(name, value, text, kind = "") {
  const fill = element("span", { class: "fill" });
  fill.style.width = `${100 * Math.min(1, Math.max(0, value))}%`;
  return element("div", { class: `meter ${kind}` }, element("div", { class: "row" }, element("span", { class: "name", text: name }), element("output", { text })), element("div", { class: "track" }, fill));
}
