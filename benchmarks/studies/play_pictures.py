"""Pictures of the page of `gwi play` for its documentation: points, and a table that was fitted.

python -m benchmarks.studies.play_pictures
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_diabetes

ASSETS = Path(__file__).parents[2] / "docs" / "assets"
NUM_COLOURS, WAIT = 128, 120_000


@contextlib.contextmanager
def opened(width: int, height: int, prepare: Callable[[Page], object] = lambda page: None) -> Iterator[Page]:
    """The page of a server of its own, which ends with it, in a browser's window of this size; prepared before it is loaded."""
    command = [sys.executable, "-m", "gwi", "play", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, sync_playwright() as driver:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": width, "height": height})
            prepare(page)
            page.goto(found[0])
            page.wait_for_selector("#facts dd")
            yield page
            browser.close()
        finally:
            process.terminate()


def saved(page: Page, name: str) -> None:
    """The page as it is seen, in few colours."""
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    picture.quantize(NUM_COLOURS, dither=Image.Dither.NONE).save(ASSETS / f"{name}.png", optimize=True)


def main() -> None:
    """Both pictures."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "diabetes.csv"
        frame = load_diabetes(as_frame=True, scaled=False).frame
        frame["sex"] = frame["sex"].map({1.0: "a", 2.0: "b"})
        frame.rename(columns={"target": "progression"}).to_csv(table, index=False)
        with opened(1200, 720) as page:
            page.set_default_timeout(WAIT)
            page.wait_for_timeout(1000)
            saved(page, "play_points")
            page.get_by_role("tab", name="Your table").click()
            page.set_input_files("#file", table)
            page.get_by_role("button", name="Fit", exact=True).click()
            page.wait_for_selector("#nearest tbody tr")
            # A row that the model is less sure of.
            page.wait_for_selector("#reasons[aria-busy=false] li")
            middle = page.locator("#reasons").text_content()
            page.locator("#controls input[type=range]").first.press("End")
            # Not by `wait_for_function`, which evaluates text, as the page forbids.
            while page.locator("#reasons").text_content() == middle:
                page.wait_for_timeout(50)
            saved(page, "play_table")


if __name__ == "__main__":
    main()
