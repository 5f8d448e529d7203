"""How long the page of `gwi play` takes from a change to the picture that shows it, in a browser, both ways included.

A point is dragged in steps of 1/30 s, then let go; other points are clicked on. Times are the page's own: from the event that
changed something, the oldest one if there are several, to the curves that know of it. `moving` pictures keep the kernel, `first`
ones are a network's of few steps, `whole` ones are what stays. Processor time is that of the server, for each picture.

    python -m benchmarks.studies.play_redraw
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
from playwright.sync_api import Page, sync_playwright

from benchmarks.tables.common.records import append

MEANS = {"gp": "Gaussian process", "trees": "boosted trees", "line": "straight line", "network": "network"}
SIZES = (20, 60, 100)
DRAGS, STEPS, CLICKS, SECONDS_A_STEP = 4, 20, 10, 1 / 30
REDRAWS = "performance.getEntriesByName('redraw').map(e => ({...e.detail, took: e.duration}))"
TYPE = "(cell, value) => { cell.value = value; cell.dispatchEvent(new Event('change', {bubbles: true})); }"
WAIT = 30.0


def measured(page: Page, server: psutil.Process, mean: str, size: int) -> Iterator[dict[str, Any]]:
    """Times of one mean with so many points."""
    rng = np.random.default_rng(size)
    x = np.linspace(-5, 5, size)
    rows = np.round(np.column_stack([x, 0.6 * x * np.sin(2 * x) + 0.5 * rng.normal(size=size)]), 3)
    page.get_by_role("button", name="A handful").click()
    _settled(page)
    _take(page, rows)
    page.get_by_label(MEANS[mean]).check(force=True)
    _settled(page)
    page.evaluate("performance.clearMeasures()")
    begun, spent = time.perf_counter(), _spent(server)
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
    seconds, processor = time.perf_counter() - begun, _spent(server) - spent
    entries: list[dict[str, Any]] = page.evaluate(REDRAWS)
    for kind in ("moving", "first", "whole"):
        took = [e["took"] for e in entries if ("first" if e["isFirst"] else "moving" if e["moving"] else "whole") == kind]
        if took:
            yield {
                "mean": mean,
                "num_points": size,
                "picture": kind,
                "count": len(took),
                "p50_ms": float(np.quantile(took, 0.5)),
                "p95_ms": float(np.quantile(took, 0.95)),
                "processor_ms": 1000 * processor / len(entries),
                "pictures_a_second": len(entries) / seconds,
                "load": os.getloadavg()[0],
            }


def _take(page: Page, rows: np.ndarray) -> None:
    """Put points there, by the table that stands in for the picture."""
    page.evaluate("document.querySelector('#points details').open = true")
    for _ in range(len(rows) - page.locator(".point").count()):
        page.get_by_role("button", name="Add a point").click()
    for i, row in enumerate(rows):
        for axis, value in zip("xy", row, strict=True):
            cell = page.get_by_label(f"{axis} of point {i + 1}", exact=True)
            cell.evaluate(
                "(cell, value) => { cell.value = value; cell.dispatchEvent(new Event('change', {bubbles: true})); }", value
            )
    page.evaluate("document.querySelector('#points details').open = false")
    _settled(page)


def _settled(page: Page) -> None:
    """Wait until nothing is asked for any more."""
    quiet, end = 0, time.monotonic() + WAIT
    while quiet < 4:
        quiet = 0 if page.evaluate("document.getElementById('busy').classList.contains('on')") else quiet + 1
        time.sleep(0.015)
        assert time.monotonic() < end


def _spent(server: psutil.Process) -> float:
    times = server.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """All means and sizes, appended to the record."""
    command = [sys.executable, "-m", "gwi", "play", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, sync_playwright() as driver:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(found[0])
        page.wait_for_selector("#facts dd")
        for mean in MEANS:
            for size in SIZES:
                records = list(measured(page, psutil.Process(process.pid), mean, size))
                append("play_redraw", records)
                print(*records, sep="\n", flush=True)
        browser.close()
        process.terminate()


if __name__ == "__main__":
    main()
