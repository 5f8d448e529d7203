// The choices beside the picture: what is fitted, and how.

import { $, element, short } from "./tools.js";

const LISTS = ["kernel", "covariance", "likelihood"];
// What a slider's place stands for.
const SLIDERS = {
  lengthscale: { value: (place, width) => width * 0.1 * 10 ** place, shown: (value) => short(value, 2) },
  weight: { value: (place) => 10 ** place, shown: (value) => short(value, 2) },
  num_inducing: { value: (place) => place, shown: String },
};

/** The form; `changed(moving, begun)` hears of every change. */
export class Choices {
  constructor(known, changed) {
    this.changed = changed;
    this.automatic = Object.fromEntries(Object.keys(SLIDERS).map((name) => [name, true]));
    this.width = 14;
    for (const name of LISTS) {
      $(name).replaceChildren(...Object.entries(known[name]).map(([value, text]) => element("option", { value, text })));
      $(name).addEventListener("change", (event) => this.chose(event));
    }
    $("means").replaceChildren(...Object.entries(known.mean).map(([value, text]) => {
      const input = element("input", { type: "radio", name: "mean", value, id: `mean-${value}` });
      input.addEventListener("change", (event) => this.chose(event));
      return element("label", { class: "mean" }, input, element("span", { text }));
    }));
    for (const name of Object.keys(SLIDERS)) {
      // While it slides a quick fit, and at its end the whole one.
      $(name).addEventListener("input", (event) => this.slid(name, true, event));
      $(name).addEventListener("change", (event) => this.slid(name, false, event));
      $(`${name}-auto`).addEventListener("click", (event) => {
        this.set(name, true);
        this.changed(false, event.timeStamp);
      });
    }
    $("choices").addEventListener("submit", (event) => event.preventDefault());
  }

  chose(event) {
    this.suit();
    this.changed(false, event.timeStamp);
  }

  slid(name, moving, event) {
    this.set(name, false);
    this.changed(moving, event.timeStamp);
  }

  /** The usual choices but for those given. */
  reset(others, window) {
    this.width = window[1] - window[0];
    for (const name of LISTS) $(name).value = others[name] ?? $(name).options[0].value;
    $(`mean-${others.mean ?? "gp"}`).checked = true;
    for (const name of Object.keys(SLIDERS)) this.set(name, true);
    this.suit();
  }

  set(name, isAutomatic) {
    this.automatic[name] = isAutomatic;
    $(`${name}-auto`).setAttribute("aria-pressed", isAutomatic);
    const value = this.value(name), text = value === null ? "" : SLIDERS[name].shown(value);
    $(`${name}-value`).textContent = text;
    $(name).classList.toggle("automatic", isAutomatic);
    $(name).setAttribute("aria-valuetext", isAutomatic ? $(`${name}-auto`).textContent : text);
  }

  // β is of the covariances that weigh with it.
  suit() {
    const has = ["auto", "wasserstein"].includes($("covariance").value);
    if (!has) this.set("weight", true);
    $("weight").disabled = $("weight-auto").disabled = !has;
  }

  value(name) {
    return this.automatic[name] ? null : SLIDERS[name].value($(name).valueAsNumber, this.width);
  }

  values() {
    const lists = Object.fromEntries(LISTS.map((name) => [name, $(name).value]));
    const sliders = Object.fromEntries(Object.keys(SLIDERS).map((name) => [name, this.value(name)]));
    return { mean: document.querySelector("input[name=mean]:checked").value, ...lists, ...sliders };
  }

  /** Show what was fitted, and let a slider begin there. */
  found(found) {
    if (!this.automatic.lengthscale) return;
    $("lengthscale-value").textContent = short(found.lengthscale, 2);
    $("lengthscale").value = Math.log10(found.lengthscale / (0.1 * this.width));
  }
}
