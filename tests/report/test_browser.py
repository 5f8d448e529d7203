"""A real browser shows the report: no error, every picture is there, nothing scrolls sideways on a phone, and it prints."""

import csv

import numpy as np
import pytest

from browser import Browser, executable
from gwi.cli import commands as cli
from gwi.report.comparison import METRICS, Compared, Comparison
from gwi.report.comparison_page import content

pytestmark = [pytest.mark.skipif(executable() is None, reason="needs chromium"), pytest.mark.unchecked]

LONG = "a_name_without_any_blank_that_is_much_longer_than_a_phone_is_wide_" * 2


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports on a regression and on a classification whose names and cells are very long."""
    folder = tmp_path_factory.mktemp("pages") / LONG[:120]
    folder.mkdir()
    rng = np.random.default_rng(0)
    with (folder / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", LONG, "town", f"y_{LONG}", "class"])
        for i in range(90):
            x = rng.normal()
            y = 1e6 * (x + 0.3 * rng.normal())
            label = LONG if y > 6e5 else "<img src=x onerror=console.error(1)>" if y < -6e5 else "middle"
            writer.writerow([f"{LONG}{i}", x, rng.choice([LONG, "Ulm"]), y, label])
    common = ["--mean", "linear", "-q", "--json", "--holdout", "0"]
    found = []
    for target, other in ((f"y_{LONG}", "class"), ("class", f"y_{LONG}")):
        model, page = folder / f"{len(found)}{LONG}.gwi", folder / f"{len(found)}.html"
        assert cli.run(["fit", f"{folder}/data.csv", "-t", target, "-o", str(model), "--drop", other, *common]) == 0
        assert cli.run(["report", str(model), f"{folder}/data.csv", "-o", str(page), "-q"]) == 0
        found.append(page)
    return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def complaints(browser):
    """What a page logged, threw, or wanted from elsewhere."""
    found = []
    for event in browser.events:
        method, parameters = event.get("method"), event.get("params", {})
        bad = method in ("Runtime.exceptionThrown", "Network.loadingFailed")
        bad |= method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert")
        bad |= method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning")
        bad |= method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(("file:", "data:"))
        if bad:
            found.append(parameters)
    return found


# The width of what is drawn.
PICTURES = "[...document.querySelectorAll('figure svg')].map(s => Math.min(s.getBBox().width, s.getBoundingClientRect().width))"
# Colours and fonts of the texts in pictures: those of the page.
TEXTS = "[...new Set([...document.querySelectorAll('figure text')].map(t => getComputedStyle(t).fill))]"
FONTS = "[...new Set([...document.querySelectorAll('figure text, body')].map(t => getComputedStyle(t).fontFamily))].length"
SMALLEST = "Math.min(...[...document.querySelectorAll('figure text')].map(t => t.getBoundingClientRect().height))"
# Cards with a table that has to be moved sideways to be read.
SCROLLED = "[...document.querySelectorAll('.card')].filter(c => c.scrollWidth > c.clientWidth + 1).map(c => c.innerText)"
OVERFLOW = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("kind", [0, 1], ids=["regression", "classification"])
@pytest.mark.parametrize(
    ("width", "medium", "dark"),
    [(390, "screen", False), (1280, "screen", True), (700, "print", False)],
    ids=["phone", "dark", "print"],
)
def test_a_browser_shows_the_report(pages, browser, kind, width, medium, dark):
    browser.open(pages[kind], width, medium=medium, dark=dark)
    widths = browser.evaluate(PICTURES)
    assert complaints(browser) == []
    assert len(widths) == (6 if kind else 9)
    assert min(widths) > 100
    assert browser.evaluate(OVERFLOW) == 0
    assert browser.evaluate(SCROLLED) == []
    assert browser.evaluate("document.querySelectorAll('script, img').length") == 0
    assert browser.evaluate(TEXTS) == ["rgb(162, 176, 187)" if dark else "rgb(86, 100, 111)"]
    assert browser.evaluate(FONTS) == 1
    assert browser.evaluate(SMALLEST) > 9


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)], ids=["phone", "dark"])
def test_a_browser_shows_a_comparison(browser, tmp_path, width, dark):
    rng = np.random.default_rng(0)
    names = ("gwi", "exact GP", "ridge")
    methods = [Compared(name, LONG, {metric: 1 + rng.random(3) for metric in METRICS["regression"]}) for name in names]
    page = tmp_path / "comparison.html"
    page.write_bytes(content(Comparison("regression", LONG, 30, 3, tuple(methods), (LONG,)), f"<b>{LONG}.csv", ".html"))
    browser.open(page, width, dark=dark)
    widths = browser.evaluate(PICTURES)
    assert complaints(browser) == []
    assert len(widths) == 6
    assert min(widths) > 100
    assert browser.evaluate(OVERFLOW) == 0


def test_the_test_itself_sees_errors_and_overflow(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        '<!doctype html><meta name="viewport" content="width=device-width"><div style="width: 900px">wide</div>'
        '<img src="missing.png"><script>console.error("no")</script>'
    )
    browser.open(page, 390)
    assert browser.evaluate(OVERFLOW) > 0
    assert len(complaints(browser)) >= 2
