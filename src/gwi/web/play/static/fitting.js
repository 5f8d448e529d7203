// Which fit is asked for, and when: one at a time, the newest last; while a point moves a quick one.

import { post, Refused } from "./api.js";

/** Asks for fits of what `describe` gives, and hands what comes to `shown` and `refused`. */
export class Fits {
  constructor({ describe, shown, refused, busy }) {
    Object.assign(this, { describe, shown, refused, busy });
    this.running = null;
    this.next = null;
    this.held = null;
  }

  /** Something has changed: now at the end of a change, or still moving. */
  ask({ moving = false, begun = performance.now() } = {}) {
    // The first change that no picture shows yet is what a picture is late for.
    this.next = { moving, begun: this.next?.begun ?? begun };
    if (this.running && !this.running.moving) this.running.stop.abort();
    if (!this.running) this.run();
  }

  async run() {
    while (this.next) {
      const { moving, begun } = this.next;
      const described = this.describe();
      // A network takes a while: first a picture of few steps.
      const stages = !moving && described.mean === "network" ? [true, false] : [moving];
      this.next = null;
      for (const quick of stages) {
        if (this.next) break;
        await this.fit({ ...described, moving: quick, held: quick ? this.held : null }, begun, quick && !moving);
      }
    }
  }

  async fit(asked, begun, isFirst) {
    const stop = new AbortController();
    this.running = { moving: asked.moving && !isFirst, stop };
    this.busy(true);
    try {
      const found = await post("points", asked, stop.signal);
      if (found.superseded) return;
      if (!asked.moving) this.held = found.held;
      this.shown(found, asked);
      performance.measure("redraw", { start: begun, end: performance.now(), detail: { mean: asked.mean, moving: asked.moving, isFirst } });
    } catch (error) {
      if (error.name !== "AbortError") {
        if (!(error instanceof Refused)) throw error;
        this.refused(error.message);
      }
    } finally {
      this.running = null;
      this.busy(Boolean(this.next));
    }
  }
}
