"""Only the newest of a page's requests counts: older ones that wait are dropped, and the one that runs is stopped."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gwi._progress import Report

T = TypeVar("T")
# Pages whose newest request is remembered.
MOST_PAGES = 64


class SupersededError(Exception):
    """A newer request of the same page has come."""


class Newest:
    """Work in one thread, in order; of each page only what it asked last."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="points")
        self._last: OrderedDict[str, int] = OrderedDict()
        self._count = 0

    async def run(self, page: str, work: Callable[[Report], T]) -> T:
        """What the work gives; it is told to stop, through its report, when the page asks for something newer.

        Raises:
            SupersededError: when it did.
        """
        self._count += 1
        mine = self._count
        self._last[page] = mine
        self._last.move_to_end(page)
        while len(self._last) > MOST_PAGES:
            self._last.popitem(last=False)

        def report(stage: str, share: float) -> None:
            if self._last.get(page) != mine:
                raise SupersededError

        def begun() -> T:
            report("waiting", 0.0)
            return work(report)

        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, begun)
        except asyncio.CancelledError:
            # Who asked has left.
            if self._last.get(page) == mine:
                del self._last[page]
            raise
        report("done", 1.0)
        return found

    def close(self) -> None:
        """Let go of the thread; work that is under way is told to stop."""
        self._last.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)
