"""How long the page of `gwi play` takes from a change to the picture that shows it, in a browser, both ways included.

A point is dragged in steps of 1/30 s, then let go; other points are clicked on. Times are the page's own: from the event that
changed something, the oldest one if there are several, to the curves that know of it. `moving` pictures keep the kernel, `first`
ones are a network's of few steps, `whole` ones are what stays. The processor's time for a picture is measured apart, in one
thread: other work on the machine hardly changes it.

    python -m benchmarks.studies.play_redraw
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
import torch
from playwright.sync_api import Page, Route

from benchmarks.studies.play_pictures import opened
from benchmarks.tables.common.records import append, read
from gwi._progress import silent
from gwi.web.play.asked import asked_of
from gwi.web.play.one_dimension import draw

MEANS = {"gp": "Gaussian process", "trees": "boosted trees", "line": "straight line", "network": "network"}
SIZES = (20, 60, 100)
DRAGS, STEPS, CLICKS, FITS, SECONDS_A_STEP = 3, 20, 8, 20, 1 / 30
REDRAWS = "performance.getEntriesByName('redraw').map(e => ({...e.detail, took: e.duration}))"
WAIT = 30.0


def points(size: int) -> list[list[float]]:
    """So many points of the paper's wave."""
    x = np.linspace(-5, 5, size)
    y = 0.6 * x * np.sin(2 * x) + 0.5 * np.random.default_rng(size).normal(size=size)
    return [[round(float(a), 3), round(float(b), 3)] for a, b in zip(x, y, strict=True)]


def processor_ms(mean: str, size: int, picture: str) -> tuple[float, float]:
    """Median and 95th percentile of the processor's time for one picture, as its points move."""
    base: dict[str, Any] = {"points": points(size), "window": [-7, 7], "mean": mean}
    held = asdict(draw(asked_of(base), silent).held)
    took = []
    for step in range(FITS):
        moved = [*base["points"][1:], [base["points"][0][0], 0.1 * step]]
        asked = asked_of({**base, "points": moved, "moving": picture != "whole", "held": held})
        begun = time.process_time()
        draw(asked, silent)
        took.append(1000 * (time.process_time() - begun))
    return float(np.quantile(took, 0.5)), float(np.quantile(took, 0.95))


def measured(page: Page, mean: str, size: int) -> Iterator[dict[str, Any]]:
    """Times of one mean with so many points."""
    page.get_by_role("button", name=f"{size} points", exact=True).click()
    page.get_by_label(MEANS[mean]).check(force=True)
    _settled(page)
    page.evaluate("performance.clearMeasures()")
    box = page.locator("#plot").bounding_box()
    assert box is not None
    for drag in range(DRAGS):
        own = page.locator(".point").nth(size * (drag + 1) // (DRAGS + 1)).bounding_box()
        assert own is not None
        across, down = own["x"] + own["width"] / 2, own["y"] + own["height"] / 2
        page.mouse.move(across, down)
        page.mouse.down()
        for step in range(STEPS):
            page.mouse.move(across, down + 4 * (step + 1))
            time.sleep(SECONDS_A_STEP)
        page.mouse.up()
        _settled(page)
    for click in range(CLICKS):
        page.locator("#plot").click(position={"x": 60 + (box["width"] - 90) * click / CLICKS, "y": 30})
        _settled(page)
    entries: list[dict[str, Any]] = page.evaluate(REDRAWS)
    for picture in ("moving", "first", "whole"):
        took = [e["took"] for e in entries if ("first" if e["isFirst"] else "moving" if e["moving"] else "whole") == picture]
        if took:
            usual, most = processor_ms(mean, size, picture)
            yield {
                "mean": mean,
                "num_points": size,
                "picture": picture,
                "count": len(took),
                "p50_ms": float(np.quantile(took, 0.5)),
                "p95_ms": float(np.quantile(took, 0.95)),
                "processor_p50_ms": usual,
                "processor_p95_ms": most,
                "load": os.getloadavg()[0],
            }


def _with_sizes(route: Route) -> None:
    """The beginning of the page, with presets of the sizes."""
    answer = route.fetch()
    begin = answer.json()
    usual = begin["presets"][0]
    begin["presets"] += [
        {**usual, "name": f"size-{size}", "title": f"{size} points", "points": points(size), "choices": {}} for size in SIZES
    ]
    route.fulfill(response=answer, json=begin)


def _settled(page: Page) -> None:
    """Wait until nothing is asked for any more."""
    quiet, end = 0, time.monotonic() + WAIT
    while quiet < 4:
        quiet = 0 if page.evaluate("document.getElementById('busy').classList.contains('on')") else quiet + 1
        time.sleep(0.015)
        assert time.monotonic() < end


def main() -> None:
    """All means and sizes that the record lacks, appended to it."""
    torch.set_num_threads(1)
    done = {(record["mean"], int(record["num_points"])) for record in read("play_redraw")}
    with opened(1280, 900, lambda page: page.route("**/api/begin", _with_sizes)) as page:
        for mean, size in product(MEANS, SIZES):
            if (mean, size) not in done:
                records = list(measured(page, mean, size))
                append("play_redraw", records)
                print(*records, sep="\n", flush=True)


if __name__ == "__main__":
    main()
