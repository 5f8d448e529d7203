// The picture: bands, mean, points and inducing points, and below it the prior share. Sizes are pixels of the page.

import { $, drawn, short, ticks } from "./tools.js";

const LEFT = 40, RIGHT = 12, TOP = 10, BOTTOM = 26, STRIP_TOP = 8, STRIP_BOTTOM = 8;

/** A picture in the two SVG elements of the page. */
export class Plot {
  constructor() {
    this.window = [-7, 7, -6, 6];
    this.svg = $("plot");
    this.strip = $("strip");
    this.marks = new Map();
    const clip = (id) => drawn("clipPath", { id }, drawn("rect"));
    this.clips = [clip("inside"), clip("inside-strip")];
    const group = (name) => drawn("g", { class: name });
    this.axes = group("axes");
    this.curves = group("curves");
    this.curves.setAttribute("clip-path", "url(#inside)");
    this.points = group("points");
    this.svg.append(drawn("defs", {}, this.clips[0]), this.axes, this.curves, this.points);
    this.paths = Object.fromEntries(["of-y", "of-f", "mean"].map((name) => [name, drawn("path", { class: name })]));
    this.inducing = group("inducing");
    this.curves.append(...Object.values(this.paths), this.inducing);
    this.stripAxes = group("axes");
    this.share = drawn("path", { class: "share", "clip-path": "url(#inside-strip)" });
    this.strip.append(drawn("defs", {}, this.clips[1]), this.stripAxes, this.share);
    new ResizeObserver(() => this.resize()).observe($("frame"));
  }

  /** Fit the elements to the room there is. */
  resize() {
    this.width = Math.max(280, $("frame").clientWidth);
    this.height = Math.round(Math.min(400, Math.max(290, this.width * 0.52)));
    this.stripHeight = 84;
    for (const [svg, height] of [[this.svg, this.height], [this.strip, this.stripHeight]]) {
      svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
      svg.setAttribute("width", this.width);
      svg.setAttribute("height", height);
    }
    const room = { x: LEFT, width: this.width - LEFT - RIGHT };
    const place = (rect, y, height) => Object.entries({ ...room, y, height }).forEach(([k, v]) => rect.setAttribute(k, v));
    place(this.clips[0].firstChild, TOP, this.height - TOP - BOTTOM);
    place(this.clips[1].firstChild, STRIP_TOP, this.stripHeight - STRIP_TOP - STRIP_BOTTOM);
    this.drawAxes();
    if (this.last) this.draw(this.last);
    this.onresize?.();
  }

  /** Another part of the plane. */
  look(window) {
    this.window = window;
    this.last = null;
    for (const path of [...Object.values(this.paths), this.share]) path.removeAttribute("d");
    this.inducing.replaceChildren();
    if (this.width) this.drawAxes();
  }

  px = (x) => LEFT + ((x - this.window[0]) / (this.window[1] - this.window[0])) * (this.width - LEFT - RIGHT);
  py = (y) => TOP + ((this.window[3] - y) / (this.window[3] - this.window[2])) * (this.height - TOP - BOTTOM);
  ps = (share) => STRIP_TOP + (1 - share) * (this.stripHeight - STRIP_TOP - STRIP_BOTTOM);

  /** Where in the plane a pointer is, inside the window. */
  place(event) {
    const box = this.svg.getBoundingClientRect();
    const [a, b, c, d] = this.window;
    const x = a + ((event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT)) * (b - a);
    const y = d - ((event.clientY - box.top - TOP) / (this.height - TOP - BOTTOM)) * (d - c);
    return [Math.min(b, Math.max(a, x)), Math.min(d, Math.max(c, y))];
  }

  drawAxes() {
    const [a, b, c, d] = this.window;
    const across = ticks(a, b, this.width / 80), up = ticks(c, d, this.height / 60);
    const low = this.height - BOTTOM, right = this.width - RIGHT;
    this.axes.replaceChildren(
      ...across.map((x) => drawn("line", { x1: this.px(x), x2: this.px(x), y1: TOP, y2: low })),
      ...up.map((y) => drawn("line", { x1: LEFT, x2: right, y1: this.py(y), y2: this.py(y) })),
      ...across.map((x) => drawn("text", { x: this.px(x), y: low + 18, "text-anchor": "middle", text: short(x) })),
      ...up.map((y) => drawn("text", { x: LEFT - 8, y: this.py(y) + 4, "text-anchor": "end", text: short(y) })),
    );
    this.stripAxes.replaceChildren(
      ...[0, 0.5, 1].map((s) => drawn("line", { x1: LEFT, x2: right, y1: this.ps(s), y2: this.ps(s) })),
      ...[0, 1].map((s) => drawn("text", { x: LEFT - 8, y: this.ps(s) + 4, "text-anchor": "end", text: String(s) })),
    );
  }

  /** Curves as the server found them. */
  draw(found) {
    this.last = found;
    const line = (ys, to = this.py) => ys.map((y, i) => `${this.px(found.x[i]).toFixed(1)},${to(this.near(y)).toFixed(1)}`);
    const band = (low, high) => `M${line(high).join("L")}L${line(low).reverse().join("L")}Z`;
    this.paths["of-y"].setAttribute("d", band(found.y_low, found.y_high));
    this.paths["of-f"].setAttribute("d", band(found.f_low, found.f_high));
    this.paths.mean.setAttribute("d", `M${line(found.mean).join("L")}`);
    const floor = this.ps(0), last = found.x.length - 1;
    const share = found.prior_share.map((s, i) => `${this.px(found.x[i]).toFixed(1)},${this.ps(s).toFixed(1)}`);
    this.share.setAttribute("d", `M${this.px(found.x[0])},${floor}L${share.join("L")}L${this.px(found.x[last])},${floor}Z`);
    const low = this.height - BOTTOM;
    this.inducing.replaceChildren(...found.inducing.map((x) => drawn("path", { d: `M${this.px(x)},${low - 8}l4,8h-8z` })));
  }

  // What is far beyond the picture would overflow its numbers.
  near = (y) => Math.min(1e4, Math.max(-1e4, y ?? 0));

  /** Points, each [x, y, number]; elements stay, so that the focus does. */
  show(points, chosen) {
    const known = new Set(points.map((point) => point[2]));
    for (const [number, mark] of this.marks) {
      if (!known.has(number)) {
        mark.remove();
        this.marks.delete(number);
      }
    }
    points.forEach(([x, y, number], i) => {
      let mark = this.marks.get(number);
      if (!mark) {
        mark = drawn("g", { class: "point", tabindex: "0", role: "button", "aria-roledescription": "movable point" });
        mark.append(drawn("circle", { class: "reach", r: 15 }), drawn("circle", { class: "halo", r: 10 }), drawn("circle", { class: "core", r: 5 }));
        mark.dataset.number = number;
        this.marks.set(number, mark);
      }
      if (this.points.children[i] !== mark) this.points.insertBefore(mark, this.points.children[i] ?? null);
      // What stands still is left alone: a drag redraws sixty times a second.
      const place = `translate(${this.px(x).toFixed(1)} ${this.py(y).toFixed(1)})`, state = `${place} ${i} ${x} ${y} ${number === chosen}`;
      if (mark.dataset.state === state) return;
      mark.dataset.state = state;
      mark.setAttribute("transform", place);
      mark.setAttribute("aria-label", `Point ${i + 1}: x ${short(x)}, y ${short(y)}`);
      mark.classList.toggle("chosen", number === chosen);
    });
  }
}
