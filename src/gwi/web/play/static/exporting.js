// The picture as PNG, and the Python that does the same.

import { post } from "./api.js";
import { $, drawn, handOut, say } from "./tools.js";

const LEGEND = [["mean", "mean", "line"], ["of-f", "95 % of f", "box"], ["of-y", "95 % of y", "box"], ["share", "prior share", "box"]];
const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight"];
const GAP = 30, SCALE = 2;

/** Let the buttons work. */
export function exporting(points) {
  $("png").addEventListener("click", () => picture(points.plot));
  $("source").addEventListener("click", () => source(points));
  $("code-close").addEventListener("click", () => $("code").close());
  $("code-copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText($("code-text").textContent);
    $("code-copy").textContent = "Copied";
    say("Copied.");
  });
  $("code-save").addEventListener("click", () => handOut(new Blob([$("code-text").textContent], { type: "text/x-python" }), "play.py"));
}

async function source(points) {
  try {
    $("code-text").textContent = (await post("source", points.describe())).source;
    $("code-copy").textContent = "Copy";
    $("code").showModal();
  } catch (error) {
    points.refused(error.message);
  }
}

/** A copy that needs no style sheet. */
function standing(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((original, i) => {
    const style = getComputedStyle(original);
    for (const name of KEPT) copies[i].setAttribute(name, style.getPropertyValue(name));
  });
  copy.querySelectorAll(".reach, .halo").forEach((circle) => circle.remove());
  return copy;
}

async function picture(plot) {
  const { width, height, stripHeight } = plot, total = GAP + height + stripHeight + 8;
  const page = getComputedStyle(document.body), card = getComputedStyle($("frame").closest(".card"));
  const whole = drawn("svg", { xmlns: "http://www.w3.org/2000/svg", width, height: total, viewBox: `0 0 ${width} ${total}` });
  whole.append(drawn("rect", { width, height: total, fill: card.backgroundColor }));
  let at = 44;
  for (const [name, text, kind] of LEGEND) {
    const style = getComputedStyle(document.querySelector(`#points .${name}`));
    const mark = { x: at, y: 12, width: 18, height: 10, fill: style.fill, "fill-opacity": style.fillOpacity };
    whole.append(kind === "box" ? drawn("rect", mark) : drawn("rect", { x: at, y: 16, width: 18, height: 2, fill: style.stroke }));
    whole.append(drawn("text", { x: at + 24, y: 21, fill: page.color, "font-family": page.fontFamily, "font-size": 12, text }));
    at += 34 + text.length * 6.4;
  }
  [[plot.svg, GAP], [plot.strip, GAP + height]].forEach(([svg, y]) => {
    const copy = standing(svg);
    copy.setAttribute("y", y);
    whole.append(copy);
  });
  const text = new XMLSerializer().serializeToString(whole);
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width * SCALE, total * SCALE];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  handOut(await new Promise((resolve) => canvas.toBlob(resolve, "image/png")), "play.png");
  say("The picture is saved as play.png.");
}
