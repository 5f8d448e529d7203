// A table of the user's: choose the file and the target, fit, look at scores and report, and ask "what if".

import { blob, forget, get, post, upload } from "./api.js";
import { $, element, handOut, say, short } from "./tools.js";
import { WhatIf } from "./what_if.js";

const PAUSE = 300, MOST_SHOWN = 50, MOST_BYTES = 64 * 2 ** 20;
const SECONDS = [3, 5, 10, 20, 60, 120, 300, 600];
// Scores by their names in the library: words, what they are, and how they are written.
const percent = (value) => `${(100 * value).toFixed(0)} %`;
const SCORES = {
  rmse: ["RMSE", "typical error, in the target's unit", short],
  mae: ["Mean error", "mean absolute error", short],
  accuracy: ["Accuracy", "rows whose most probable class is right", percent],
  coverage_95: ["In 95 % intervals", "of held-out rows; should be 95 %", percent],
  nll: ["NLL", "lower is better", short],
  ece: ["Calibration error", "of probabilities", short],
  calibration_error: ["Calibration error", "of intervals", short],
  c_index: ["C-index", "pairs in the right order", short],
  crps: ["CRPS", "error of the whole distribution", short],
};
const MOST_SCORES = 4;

/** The second panel. */
export class TablePanel {
  constructor() {
    this.known = null;
    this.whatIf = new WhatIf(...["predict", "explain"].map((name) => (cells) => post(`tables/${this.known}/${name}`, { cells })));
    $("file").addEventListener("change", () => this.choose($("file").files[0]));
    const drop = $("drop");
    for (const name of ["dragover", "dragleave", "drop"]) {
      drop.addEventListener(name, (event) => {
        event.preventDefault();
        drop.classList.toggle("over", name === "dragover");
      });
    }
    drop.addEventListener("drop", (event) => this.choose(event.dataTransfer.files[0]));
    // A file that misses the place for it is not opened by the browser.
    for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());
    $("target-search").addEventListener("input", () => this.offerColumns());
    $("time").addEventListener("input", () => this.showTime());
    $("fit-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.fit();
    });
    $("cancel").addEventListener("click", () => this.tried(async () => this.show(await post(`tables/${this.known}/cancel`))));
    $("save").addEventListener("click", () => this.tried(async () => handOut(await blob(`tables/${this.known}/model`), "model.gwi")));
    $("open-report").addEventListener("click", () => this.openReport());
    this.showTime();
  }

  showTime() {
    const seconds = SECONDS[$("time").valueAsNumber];
    const text = seconds < 60 ? `${seconds} s` : `${seconds / 60} min`;
    $("time-value").textContent = text;
    $("time").setAttribute("aria-valuetext", text);
  }

  /** Do something; a refusal is a sentence on the page. */
  async tried(work) {
    $("refused").hidden = true;
    try {
      await work();
    } catch (error) {
      if (error.status === undefined) throw error;
      this.refuse(error.message);
    }
  }

  refuse(sentence) {
    $("refused").textContent = sentence;
    $("refused").hidden = false;
  }

  choose(file) {
    $("file").value = "";
    if (!file) return;
    this.tried(async () => {
      this.clear();
      if (file.size > MOST_BYTES) return this.refuse(`The file has ${short(file.size / 2 ** 20)} MB; the page takes up to 64. Use gwi fit for larger tables.`);
      $("drop").classList.add("reading");
      try {
        const old = this.known, found = await upload(file);
        this.take(found.table);
        if (old) forget(`tables/${old}`).catch(() => {});
      } finally {
        $("drop").classList.remove("reading");
      }
    });
  }

  clear() {
    for (const name of ["file-card", "results"]) $(name).hidden = true;
    $("report").hidden = true;
    this.columns = null;
  }

  /** A table of the server's. */
  take(known) {
    this.known = known;
    this.follow(known);
  }

  async follow(known) {
    if (this.following === known) return;
    this.following = known;
    await this.tried(async () => {
      while (this.known === known) {
        const table = await get(`tables/${known}`);
        if (this.known !== known) return;
        this.show(table);
        if (!["reading", "fitting"].includes(table.state)) return;
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    });
    if (this.following === known) this.following = null;
  }

  show(table) {
    if (table.error) this.refuse(table.error);
    $("drop").classList.toggle("small", table.state !== "refused");
    $("drop").classList.toggle("reading", table.state === "reading");
    if (table.state === "reading" || table.state === "refused") return;
    $("file-card").hidden = false;
    $("fit-form").hidden = table.state === "fitting";
    $("fitting").hidden = table.state !== "fitting";
    if (!this.columns) this.open(table);
    if (table.state === "fitting") {
      const stage = table.stage || "starting";
      if ($("stage").textContent !== stage) $("stage").textContent = stage;
      if (table.share > 0) $("progress").value = table.share;
      else $("progress").removeAttribute("value");
      $("elapsed").textContent = `${table.seconds.toFixed(0)} s`;
    }
    if (table.state === "fitted" && this.shown !== table.fitted) this.result(table);
  }

  open(table) {
    this.columns = table.opened.columns;
    $("file-name").textContent = table.name;
    $("file-size").textContent = `${table.opened.num_rows.toLocaleString("en")} rows, ${this.columns.length.toLocaleString("en")} columns`;
    $("target-search").value = "";
    // Most tables have it last.
    this.offerColumns(this.columns.length - 1);
    say(`${table.name} is read: ${$("file-size").textContent}. Choose the target.`);
  }

  offerColumns(chosen = Number($("target").value)) {
    const wanted = $("target-search").value.trim().toLowerCase();
    const found = this.columns.map((column, i) => [column, i]).filter(([column]) => column.name.toLowerCase().includes(wanted));
    let shown = found.slice(0, MOST_SHOWN);
    if (!wanted && found.length > MOST_SHOWN) shown = [...shown, ...found.slice(-1)];
    $("target").replaceChildren(...shown.map(([column, i]) => element("option", { value: i, text: column.examples ? `${column.name}  (${column.examples})` : column.name, selected: i === chosen })));
    if ($("target").selectedIndex < 0 && shown.length) $("target").selectedIndex = 0;
    $("target-more").textContent = found.length > shown.length ? `${found.length - shown.length} columns more; search for them.` : found.length ? "" : "No column has this name.";
  }

  fit() {
    this.tried(async () => {
      if ($("target").selectedIndex < 0) return this.refuse("Choose the target first.");
      $("results").hidden = true;
      const asked = { target: Number($("target").value), task: $("task").value, max_time: SECONDS[$("time").valueAsNumber] };
      this.show(await post(`tables/${this.known}/fit`, asked));
      $("cancel").focus();
      this.follow(this.known);
    });
  }

  result(table) {
    const fitted = (this.shown = table.fitted);
    $("results").hidden = false;
    $("results-title").textContent = `${fitted.task === "regression" ? "Prediction" : "Classes"} of ${fitted.target}`;
    const tiles = Object.entries(SCORES).filter(([name]) => Number.isFinite(fitted.scores[name])).slice(0, MOST_SCORES);
    $("scores").replaceChildren(...tiles.map(([name, [title, why, written]]) => element("div", { class: "tile" }, element("dt", { text: title }), element("dd", { class: "value", text: written(fitted.scores[name]) }), element("dd", { class: "why", text: why }))));
    const rows = fitted.scores.rows ? [`Scores are from ${fitted.scores.rows} held-out rows; the model was then fitted to all ${fitted.num_rows}.`] : ["There are too few rows to hold some out for scores."];
    $("notes").replaceChildren(...[...rows, ...fitted.notes].map((text) => element("li", { text })));
    $("fit-summary").textContent = fitted.summary;
    $("report").hidden = true;
    $("report").removeAttribute("src");
    $("open-report").textContent = "Report";
    this.report = fitted.has_report ? `/report/${this.known}/${table.ticket}` : null;
    $("open-report").disabled = !this.report;
    $("report-tab").hidden = !this.report;
    if (this.report) $("report-tab").href = this.report;
    this.whatIf.begin(fitted);
    $("results-title").focus();
    say(`The fit is done. ${tiles.map(([name, [title, , written]]) => `${title} ${written(fitted.scores[name])}`).join(", ")}.`);
  }

  openReport() {
    const frame = $("report");
    if (frame.hidden) frame.src = this.report;
    frame.hidden = !frame.hidden;
    $("open-report").textContent = frame.hidden ? "Report" : "Close the report";
    if (!frame.hidden) frame.scrollIntoView({ block: "start" });
  }
}
