"""Chromium without a window, spoken to through a pipe: what a page logs, evaluates to and looks like."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60
# The browser reads commands from the first and writes answers to the second: numbers it has fixed.
READS, WRITES = 3, 4
# Puts two open files on those numbers and becomes the browser. A shell would do, but not every shell knows numbers above nine.
START = f"""
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 64) for end in sys.argv[1:3]]
os.dup2(ends[0], {READS}), os.dup2(ends[1], {WRITES})
os.execv(sys.argv[3], sys.argv[3:])
"""


def executable() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """A browser with one page; `with Browser(folder) as browser`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.events: list[dict] = []
        self._count = 0
        self._rest = b""

    def __enter__(self) -> Browser:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = [executable(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"]
        start = [sys.executable, "-I", "-S", "-c", START, str(theirs_in), str(theirs_out)]
        self._process = subprocess.Popen(
            start + command,
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._session = None
        pages = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in pages if target["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *details: object) -> None:
        try:
            self._session = None
            self.send("Browser.close")
            self._process.wait(10)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(10)
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **parameters: object) -> dict:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._in, 1 << 16)
            if not part:
                raise EOFError("the browser has ended")
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, path: Path, width: int, height: int = 900, medium: str = "screen", dark: bool = False) -> None:
        """Load a file at this width and wait until it is there."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=medium, features=[scheme])
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def evaluate(self, expression: str) -> object:
        return self.send("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self, path: Path, height: int | None = None) -> None:
        """The whole page, or its first so many pixels, as a PNG file."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height or 1 << 20), "scale": 1}
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))


if __name__ == "__main__":
    # python tests/browser.py page.html picture.png [--width 390] [--height 900] [--dark]: to look at a page.
    import argparse
    import tempfile

    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int)
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Browser(Path(folder)) as browser:
        browser.open(given.page, given.width, dark=given.dark)
        browser.picture(given.picture, given.height)
