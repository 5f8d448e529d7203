"""The tables of the page: each a folder and a process of its own, which can be ended at any time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
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
CLOSED = "This table is no longer here; choose the file again."


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
        is_closed: whether it was let go of.
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
    is_closed: bool = False
    _process: asyncio.subprocess.Process | None = None
    _work: asyncio.Task[None] | None = None
    # One question to the process at a time, and one end.
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ending: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Why the process is no more that held the model.
    _lost: str = ""

    def read(self) -> None:
        """Begin to read the file."""
        self._work = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            self.opened = await self._ask({"do": "open"}, SECONDS_TO_READ)
            self.state = "open"
        except UserError as error:
            self.state, self.error = "refused", str(error)
            # It would go on to import what a fit needs, and wait for one.
            await self._kill("the file was refused")

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
        work = self._work
        async with self._ending:
            # Who waited here behind another must not end a fit that began since.
            if self.state == "fitting" and self._work is work:
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
        self.is_closed = True
        async with self._ending:
            await self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _end(self) -> None:
        if self._work is not None and self._work is not asyncio.current_task():
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._work = None
        await self._kill("its process was ended")

    async def _kill(self, why: str) -> None:
        """End the process, and those that it started; why is for who asks the model that it held."""
        process, self._process = self._process, None
        if process is not None:
            self._lost = why
            with contextlib.suppress(ProcessLookupError):
                if sys.platform == "win32" or process.returncode is not None:
                    process.kill()
                else:
                    # It leads a session of its own.
                    os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _ask(self, asked: dict[str, Any], seconds: float) -> dict[str, Any]:
        """What the process answers.

        Raises:
            UserError: with its sentence, or when it takes too long, or ends, or has ended with the model.
        """
        async with self._asking:
            if self.is_closed:
                raise UserError(CLOSED)
            of_model = asked["do"] in ("predict", "explain")
            if of_model and self._process is None:
                raise self._no_model()
            try:
                async with asyncio.timeout(seconds):
                    return await self._answer(asked)
            except TimeoutError:
                late = f"took more than {seconds:.0f} s and was ended"
                await self._kill(f"an answer {late}, and with it the process that held the model")
                raise self._no_model() if of_model else UserError(f"This {late}; try fewer rows or columns.") from None
            except asyncio.CancelledError:
                await self._kill("an answer took too long and was ended, and with it the process that held the model")
                raise
            except UserError:
                raise
            except (OSError, ValueError) as error:
                # No process can be had, or it says what is no answer.
                await self._kill("its process gave an answer that cannot be read")
                said = f"The process for the table does not answer as it should ({type(error).__name__}); choose the file again."
                raise UserError(said) from error
            except EOFError:
                await self._kill("its process has ended, perhaps for lack of memory")
                ended = "The process that held the table has ended, perhaps for lack of memory; try fewer rows or columns."
                raise self._no_model() if of_model else UserError(CLOSED if self.is_closed else ended) from None

    def _no_model(self) -> UserError:
        if self.is_closed:
            return UserError(CLOSED)
        return UserError(f"The model is no longer at hand: {self._lost}. Fit again, with fewer rows or columns.")

    async def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the process answers, which is started where there is none.

        Raises:
            UserError: with its sentence.
            EOFError: when it ends.
        """
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
        raise EOFError


class PlayTables:
    """All tables of the page."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._tables: OrderedDict[str, PlayTable] = OrderedDict()

    async def add(self, name: str, content: bytes | Path) -> tuple[str, PlayTable]:
        """A table that is being read, and its name for the page.

        Raises:
            UserError: when the file cannot be read.
        """
        known, table = secrets.token_urlsafe(16), None
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="gwi-play-"))
            table = PlayTable(self._folder / known, file_name(name))
            table.folder.mkdir()
            # Counted before anything is waited for, else many at a time would be more than there may be.
            self._tables[known] = table
            while len(self._tables) > MOST_TABLES:
                await self.remove(next(iter(self._tables)))
            await asyncio.to_thread(_keep, content, table.folder / table.name)
        except OSError as error:
            if table is None or not table.is_closed:
                await self.remove(known)
                raise UserError(f"{printable(file_name(name))} cannot be kept: {error.strerror}.") from error
        if table.is_closed:
            # Others came meanwhile, or the end: nothing is to stay of what was kept since.
            await table.close()
            raise UserError(CLOSED)
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
        if self._folder is not None:
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
    return whole if whole.strip("_- .") and whole.lower() not in (MODEL, REPORT) and whole[0] != "-" else "table.csv"
