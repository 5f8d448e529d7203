// One dimension: points to add, move and delete, choices, and what is said of the fit.

import { Choices } from "./choices.js";
import { Fits } from "./fitting.js";
import { Plot } from "./plot.js";
import { $, element, say, short } from "./tools.js";

const MOST = 200, DIGITS = 3;
// A press that moves less is a click.
const SLACK = 4;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const rounded = (value) => Number(value.toFixed(DIGITS));

/** The first panel. */
export class Points {
  constructor(begin) {
    this.points = [];
    this.count = 0;
    this.chosen = null;
    this.plot = new Plot();
    this.plot.onresize = () => this.show();
    this.choices = new Choices(begin.choices, (moving, begun) => this.changed(moving, "", begun));
    this.fits = new Fits({
      describe: () => this.describe(),
      shown: (found, asked) => this.shown(found, asked),
      refused: (sentence) => this.refused(sentence),
      busy: (is) => $("busy").classList.toggle("on", is),
    });
    this.listen();
    this.offer(begin.presets);
    this.take(begin.presets[0]);
  }

  /** What the server is asked for. */
  describe() {
    return { points: this.points.map(([x, y]) => [x, y]), window: this.plot.window.slice(0, 2), ...this.choices.values() };
  }

  offer(presets) {
    $("presets").replaceChildren(...presets.map((preset) => {
      const button = element("button", { text: preset.title, class: "chip", "data-name": preset.name });
      button.addEventListener("click", () => this.take(preset));
      return button;
    }));
  }

  take(preset) {
    for (const button of $("presets").children) button.setAttribute("aria-pressed", button.dataset.name === preset.name);
    $("says").textContent = preset.says;
    this.points = preset.points.map(([x, y]) => [x, y, (this.count += 1)]);
    this.chosen = null;
    this.fits.held = null;
    this.choices.reset(preset.choices, preset.window);
    this.plot.look(preset.window);
    this.changed(false, `${preset.title}: ${this.points.length} points.`);
  }

  /** Draw the points, and ask for a fit. */
  changed(moving, sentence, begun = performance.now()) {
    this.show(moving);
    if (sentence) this.told = sentence;
    this.fits.ask({ moving, begun });
  }

  show(moving = false) {
    if (!this.plot.width) return;
    this.plot.show(this.points, this.chosen);
    $("remove").disabled = this.chosen === null;
    if (!moving) this.showRows();
  }

  shown(found, asked) {
    $("sentence").hidden = true;
    this.plot.draw(found);
    this.choices.found(found);
    if (asked.moving) return;
    this.last = found;
    const facts = { "Noise (sd)": short(found.noise_std), "Length-scale": short(found.lengthscale), "Inducing points": String(found.inducing.length), "Least certain near": `x ${short(this.leastKnown()[0])}` };
    $("facts").replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })]));
    $("summary").textContent = found.summary;
    $("warned").replaceChildren(...found.notes.map((text) => element("li", { class: "note", text })));
    say(`${this.told ?? ""} Noise ${short(found.noise_std)}, length-scale ${short(found.lengthscale)}; least is known near x ${short(this.leastKnown()[0])}.`.trim());
    this.told = "";
  }

  refused(sentence) {
    $("sentence").textContent = sentence;
    $("sentence").hidden = false;
    say(sentence);
  }

  /** x where the band of f is widest between the points, and the mean there. */
  leastKnown() {
    const found = this.plot.last, xs = this.points.map((point) => point[0]);
    const [low, high] = xs.length > 1 ? [Math.min(...xs), Math.max(...xs)] : this.plot.window;
    if (!found) return [(low + high) / 2, 0];
    let best = null;
    found.x.forEach((x, i) => {
      const width = found.f_high[i] - found.f_low[i];
      if (x >= low && x <= high && (best === null || width > best[0])) best = [width, x, found.mean[i]];
    });
    return best ? best.slice(1) : [(low + high) / 2, 0];
  }

  /** As the likelihood wants it: counts are whole, and some targets are positive. */
  fitting([x, y]) {
    const likelihood = this.choices.values().likelihood;
    const wanted = likelihood === "poisson" ? Math.max(0, Math.round(y)) : likelihood === "log-normal" ? Math.max(0.01, y) : y;
    return [rounded(x), rounded(wanted)];
  }

  inside([x, y]) {
    const [a, b, c, d] = this.plot.window;
    return [Math.min(b, Math.max(a, x)), Math.min(d, Math.max(c, y))];
  }

  place(number) {
    return this.points.findIndex((point) => point[2] === number);
  }

  add(place, sentence = "") {
    if (this.points.length >= MOST) return this.refused(`There are ${MOST} points, the most that the page takes.`);
    const number = (this.count += 1), [x, y] = this.fitting(this.inside(place));
    this.points.push([x, y, number]);
    this.chosen = number;
    this.changed(false, sentence || `Point ${this.points.length} added at x ${short(x)}, y ${short(y)}.`);
    return number;
  }

  move(number, place, moving, begun) {
    const i = this.place(number);
    if (i < 0) return;
    const [x, y] = this.fitting(this.inside(place));
    this.points[i] = [x, y, number];
    this.changed(moving, `Point ${i + 1} moved to x ${short(x)}, y ${short(y)}.`, begun);
  }

  remove(number) {
    const i = this.place(number);
    if (i < 0) return;
    this.points.splice(i, 1);
    const next = this.points[Math.min(i, this.points.length - 1)];
    const hadFocus = this.plot.marks.get(number)?.matches(":focus");
    this.chosen = hadFocus && next ? next[2] : null;
    this.changed(false, `Point ${i + 1} deleted; ${this.points.length} are left.`);
    if (hadFocus && next) this.plot.marks.get(next[2]).focus();
  }

  listen() {
    const svg = this.plot.svg;
    let held = null;
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const mark = event.target.closest(".point");
      held = { number: mark ? Number(mark.dataset.number) : null, at: [event.clientX, event.clientY], moved: false };
      if (!mark) return;
      event.preventDefault();
      mark.focus({ preventScroll: true });
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (held?.number == null) return;
      if (Math.hypot(event.clientX - held.at[0], event.clientY - held.at[1]) > SLACK) held.moved = true;
      if (held.moved) this.move(held.number, this.plot.place(event), true, event.timeStamp);
    });
    svg.addEventListener("pointerup", (event) => {
      if (!held) return;
      const was = held;
      held = null;
      const far = Math.hypot(event.clientX - was.at[0], event.clientY - was.at[1]) > SLACK;
      if (was.number === null) {
        if (!far && !event.target.closest(".point")) this.add(this.plot.place(event));
      } else if (was.moved) {
        this.move(was.number, this.plot.place(event), false, event.timeStamp);
      }
    });
    svg.addEventListener("pointercancel", () => { held = null; });
    svg.addEventListener("focusin", (event) => {
      const mark = event.target.closest(".point");
      if (!mark) return;
      this.chosen = Number(mark.dataset.number);
      this.show(true);
    });
    svg.addEventListener("keydown", (event) => this.pressed(event));
    // A key that was held ends in a whole fit.
    svg.addEventListener("keyup", () => {
      if (this.repeats) this.changed(false);
      this.repeats = false;
    });
    $("add").addEventListener("click", () => this.add(this.leastKnown()));
    $("remove").addEventListener("click", () => this.chosen !== null && this.remove(this.chosen));
    $("clear").addEventListener("click", () => {
      this.points = [];
      this.chosen = null;
      this.plot.look(this.plot.window);
      this.changed(false, "All points deleted.");
    });
    $("rows").addEventListener("change", (event) => this.typed(event.target));
    $("rows").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.remove(Number(button.dataset.number));
    });
  }

  pressed(event) {
    const mark = event.target.closest(".point");
    if (!mark) return;
    const number = Number(mark.dataset.number), i = this.place(number), way = ARROWS[event.key];
    if (way) {
      event.preventDefault();
      const [a, b, c, d] = this.plot.window, step = event.shiftKey ? 0.05 : 0.01;
      const least = this.choices.values().likelihood === "poisson" ? 1 : 0;
      const [x, y] = this.points[i];
      this.move(number, [x + way[0] * step * (b - a), y + way[1] * Math.max(least, step * (d - c))], event.repeat, event.timeStamp);
      this.repeats = event.repeat;
    } else if (event.key === "Delete" || event.key === "Backspace") {
      event.preventDefault();
      this.remove(number);
    }
  }

  typed(input) {
    const value = input.valueAsNumber, i = this.place(Number(input.dataset.number));
    if (i < 0 || !Number.isFinite(value)) return this.showRows();
    const [x, y, number] = this.points[i];
    this.chosen = number;
    this.move(number, input.dataset.axis === "x" ? [value, y] : [x, value], false);
  }

  showRows() {
    const body = $("rows").tBodies[0], active = document.activeElement;
    const kept = body.contains(active) ? [active.dataset.number, active.dataset.axis] : null;
    body.replaceChildren(...this.points.map(([x, y, number], i) => {
      const cell = (axis, value) => element("td", {}, element("input", { type: "number", step: "any", value, "data-number": number, "data-axis": axis, "aria-label": `${axis} of point ${i + 1}` }));
      const button = element("button", { type: "button", class: "quiet", text: "✕", "data-number": number, "aria-label": `Delete point ${i + 1}` });
      return element("tr", {}, element("th", { scope: "row", text: String(i + 1) }), cell("x", x), cell("y", y), element("td", {}, button));
    }));
    if (kept) body.querySelector(`input[data-number="${kept[0]}"][data-axis="${kept[1]}"]`)?.focus();
  }
}
