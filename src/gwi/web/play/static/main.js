// The page: its panels, its colours, and what goes wrong before anything else.

import { get } from "./api.js";
import { exporting } from "./exporting.js";
import { Points } from "./points.js";
import { TablePanel } from "./table.js";
import { $ } from "./tools.js";

const THEME = "gwi-play-theme", TABS = ["points", "table"];

function coloured() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const theme = localStorage.getItem(THEME) ?? (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    $("theme").setAttribute("aria-pressed", theme === "dark");
  };
  $("theme").addEventListener("click", () => {
    localStorage.setItem(THEME, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    show();
  });
  dark.addEventListener("change", show);
  show();
}

function tabbed() {
  const open = (name, focuses) => {
    for (const other of TABS) {
      const tab = $(`tab-${other}`), is = other === name;
      tab.setAttribute("aria-selected", is);
      tab.tabIndex = is ? 0 : -1;
      $(other).hidden = !is;
      if (is && focuses) tab.focus();
    }
  };
  TABS.forEach((name, i) => {
    $(`tab-${name}`).addEventListener("click", () => open(name, false));
    $(`tab-${name}`).addEventListener("keydown", (event) => {
      if (["ArrowLeft", "ArrowRight"].includes(event.key)) open(TABS[1 - i], true);
    });
  });
  return open;
}

coloured();
const open = tabbed();
try {
  const begin = await get("begin");
  exporting(new Points(begin));
  const panel = new TablePanel();
  if (begin.table) {
    open("table", false);
    panel.take(begin.table);
  }
  document.body.dataset.ready = "yes";
} catch (error) {
  $("problem").textContent = error.message;
  $("problem").hidden = false;
  $("main").hidden = true;
  if (!error.status && error.status !== 0) throw error;
}
