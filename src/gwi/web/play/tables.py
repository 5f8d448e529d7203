"""The tables of the page: each a folder and a process of its own, which can be ended at any time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gwi._progress import printable
from gwi.exceptions import UserError
from gwi.web.play.table_process import MODEL, REPORT

# Tables at a time; an older one is let go of.
MOST_TABLES = 4
# Characters of a file's name that are kept, and bytes of an answer of a process.
LONGEST_NAME, LONGEST_ANSWER = 80, 1 << 25
# Seconds to read a file, and beyond what was asked for a fit.
SECONDS_TO_READ, SECONDS_MORE = 120.0, 240.0
SECONDS_TO_PREDICT, SECONDS_TO_EXPLAIN = 30.0, 90.0


@dataclass
class PlayTable:
    """A file of the user's, what is known of it, and the process that holds it.

    Attributes:
        folder: of its own.
        name: of the file in it.
        state: reading, open, fitting, fitted, or refused.
        opened: what is in the file.
        fitted: what came of the fit.
        stage: what is under way.
        share: how far that is.
        error: one sentence, of what went wrong last.
        ticket: without which nobody reads the report.
        begun: when what is under way began.
    """

    folder: Path
    name: str
    state: str = "reading"
    opened: dict[str, Any] = field(default_factory=dict)
    fitted: dict[str, Any] | None = None
    stage: str = ""
    share: float = 0.0
    error: str = ""
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    begun: float = field(default_factory=time.monotonic)
    _process: asyncio.subprocess.Process | None = None
    _work: asyncio.Task[None] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def read(self) -> None:
        """Begin to read the file."""
        self._work = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            self.opened = await self._ask({"do": "open"}, SECONDS_TO_READ)
            self.state = "open"
        except UserError as error:
            self.state, self.error = "refused", str(error)

    def fit(self, target: int, task: str, max_time: float) -> None:
        """Begin to fit.

        Raises:
            UserError: when the table is not ready, or there is no such column.
        """
        if self.state not in ("open", "fitted"):
            raise UserError("The table is not ready for a fit; wait until it is read, or cancel the fit that runs.")
        if not 0 <= target < len(self.opened["columns"]):
            raise UserError("The target must be one of the table's columns.")
        self.state, self.stage, self.share, self.error, self.fitted = "fitting", "", 0.0, "", None
        self.begun = time.monotonic()
        self._work = asyncio.create_task(self._fit({"do": "fit", "target": target, "task": task, "max_time": max_time}))

    async def _fit(self, asked: dict[str, Any]) -> None:
        try:
            self.fitted = await self._ask(asked, asked["max_time"] + SECONDS_MORE)
            self.state = "fitted"
        except UserError as error:
            self.state, self.error = "open", str(error)

    async def cancel(self) -> None:
        """End what is under way; the file stays."""
        if self.state == "fitting":
            await self._end()
            self.state, self.stage, self.share = "open", "", 0.0

    async def predict(self, cells: dict[str, Any]) -> dict[str, Any]:
        """The prediction of one row.

        Raises:
            UserError: when there is no model, or the values are none.
        """
        return await self._of_model({"do": "predict", "cells": cells}, SECONDS_TO_PREDICT)

    async def explain(self, cells: dict[str, Any]) -> dict[str, Any]:
        """Why the model is unsure at one row.

        Raises:
            UserError: when there is no model, it cannot say, or the values are none.
        """
        return await self._of_model({"do": "explain", "cells": cells}, SECONDS_TO_EXPLAIN)

    async def _of_model(self, asked: dict[str, Any], seconds: float) -> dict[str, Any]:
        if self.state != "fitted":
            raise UserError("Fit a model first.")
        return await self._ask(asked, seconds)

    def file(self, name: str) -> Path | None:
        """The model or the report, where there is one."""
        path = self.folder / name
        return path if name in (MODEL, REPORT) and self.fitted is not None and path.is_file() else None

    def to_json(self) -> dict[str, Any]:
        """What the page may know."""
        return {
            "state": self.state,
            "name": printable(self.name),
            "stage": self.stage,
            "share": self.share,
            "seconds": time.monotonic() - self.begun,
            "error": self.error,
            "opened": self.opened,
            "fitted": self.fitted,
            "ticket": self.ticket,
        }

    async def close(self) -> None:
        """End the process, and leave nothing behind."""
        await self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _end(self) -> None:
        if self._work is not None and self._work is not asyncio.current_task():
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._work = None
        await self._kill()

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _ask(self, asked: dict[str, Any], seconds: float) -> dict[str, Any]:
        """What the process answers.

        Raises:
            UserError: with its sentence, or when it takes too long, or ends.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(seconds):
                    return await self._answer(asked)
            except TimeoutError:
                await self._kill()
                raise UserError(f"This took more than {seconds:.0f} s and was ended; try fewer rows or columns.") from None
            except asyncio.CancelledError:
                await self._kill()
                raise

    async def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gwi.web.play.table_process", self.name),
                cwd=self.folder,
                # So that this very package is found, wherever it was started from.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LONGEST_ANSWER,
                # A Ctrl-C is for the server, which ends its processes in order.
                start_new_session=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(asked)}\n".encode())
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        while line := await process.stdout.readline():
            found = json.loads(line)
            if "done" in found:
                return found["done"]
            if "error" in found:
                raise UserError(found["error"])
            self.stage, self.share = found["stage"], found["share"]
        await self._kill()
        raise UserError("The process that held the table has ended, perhaps for lack of memory; try fewer rows or columns.")


class PlayTables:
    """All tables of the page."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gwi-play-"))
        self._tables: OrderedDict[str, PlayTable] = OrderedDict()

    async def add(self, name: str, content: bytes | Path) -> tuple[str, PlayTable]:
        """A table that is being read, and its name for the page.

        Raises:
            UserError: when the file cannot be read.
        """
        while len(self._tables) >= MOST_TABLES:
            await self._tables.popitem(last=False)[1].close()
        known = secrets.token_urlsafe(16)
        table = PlayTable(self._folder / known, file_name(name))
        table.folder.mkdir()
        place = table.folder / table.name
        try:
            await asyncio.to_thread(_keep, content, place)
        except OSError as error:
            shutil.rmtree(table.folder, ignore_errors=True)
            raise UserError(f"{name} cannot be kept: {error.strerror}.") from error
        self._tables[known] = table
        table.read()
        return known, table

    def get(self, known: str) -> PlayTable | None:
        """The table of this name, where there is one."""
        return self._tables.get(known)

    async def remove(self, known: str) -> None:
        """Let go of a table."""
        if (table := self._tables.pop(known, None)) is not None:
            await table.close()

    async def close(self) -> None:
        """Let go of all."""
        await asyncio.gather(*(self.remove(known) for known in list(self._tables)))
        shutil.rmtree(self._folder, ignore_errors=True)


def _keep(content: bytes | Path, place: Path) -> None:
    if isinstance(content, bytes):
        place.write_bytes(content)
    else:
        shutil.copyfile(content, place)


def file_name(name: str) -> str:
    """A name that is safe in a folder and in a sentence: letters, digits, and few marks."""
    stem, dot, suffix = re.sub(r"[^\w.\- ]", "_", name.replace("\\", "/").rpartition("/")[2]).strip(". ").rpartition(".")
    whole = f"{stem[:LONGEST_NAME]}{dot}{suffix[:12]}" if stem else suffix[:LONGEST_NAME]
    # Not one of ours in the same folder, nor what the process would take for an option.
    return whole if whole.strip("_- .") and whole not in (MODEL, REPORT) and whole[0] != "-" else "table.csv"
