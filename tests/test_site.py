"""The built site: it has no warning, and no page is taller than a reader scrolls, but those of results."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from browser import Browser, executable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.unchecked,
    pytest.mark.skipif(executable() is None, reason="needs chromium"),
    pytest.mark.skipif(shutil.which("zensical", path=str(Path(sys.executable).parent)) is None, reason="needs zensical"),
]

ROOT = Path(__file__).parent.parent
# Pixels at this width, which is about six screens.
TALLEST, WIDTH = 6000, 1280


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages, built in a folder of their own."""
    folder = tmp_path_factory.mktemp("built")
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "mkdocs.yml", folder)
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--clean"]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    assert "No issues found" in printed.stdout + printed.stderr
    return folder / "site"


def test_no_page_is_taller_than_six_screens_but_results(site, tmp_path):
    pages = [page for page in sorted(site.rglob("index.html")) if page.relative_to(site).parts[0] != "results"]
    assert len(pages) > 80
    heights = {}
    with Browser(tmp_path / "profile") as browser:
        for page in pages:
            browser.open(page, WIDTH)
            heights[str(page.parent.relative_to(site))] = browser.evaluate("document.documentElement.scrollHeight")
    # What has no style is not a page as readers see it.
    assert min(heights.values()) > 300
    assert {name: height for name, height in heights.items() if height > TALLEST} == {}
