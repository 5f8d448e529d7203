"""The page's server: static files, fits of points, tables. For one user of this machine.

Nothing is kept in cookies: the page brings a key in a header of its own, which only the address has that `gwi play` opens, so no
other page can ask for anything. `gwi.web.guard` stands before it: loopback and same origin only, sizes and times bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response

from gwi._progress import printable
from gwi.exceptions import UserError
from gwi.web.guard import Guard, Limits
from gwi.web.play.asked import COVARIANCES, KERNELS, LIKELIHOODS, MEANS, Asked, asked_of
from gwi.web.play.newest import Newest, SupersededError
from gwi.web.play.one_dimension import Drawn, draw
from gwi.web.play.presets import presets
from gwi.web.play.source_code import source_of
from gwi.web.play.table_process import MODEL, REPORT
from gwi.web.play.tables import CLOSED, PlayTables

# Bytes of a file, and of what else the page sends.
MOST_BYTES, MOST_JSON = 64 << 20, 1 << 18
LONGEST_FIT = 3600.0
KEY_HEADER = "x-gwi-play"
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
# The page is its own files and nothing else; pictures are also those it draws itself.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report has its style and pictures inside, and no scripts.
REPORT_POLICY = "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
FIRST = Asked((-1.0, 0.0, 1.0, 2.0), (0.0, 1.0, 0.0, 1.0), (-2.0, 3.0))
SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class RefusedError(Exception):
    """What the page gets instead of an answer: a status and a sentence."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def play_app(key: str, data: Path | None = None) -> Guard:
    """The application, behind its guard.

    Args:
        key: that the page must bring.
        data: a table to begin with.
    """
    tables, newest = PlayTables(), Newest()
    begin: dict[str, Any] = {}

    @contextlib.asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        # What a first fit imports and compiles is there before the page is.
        first = asyncio.create_task(newest.run("first", lambda report: draw(FIRST, report)))
        if data is not None:
            begin["table"] = (await tables.add(data.name, data))[0]
        try:
            yield
        finally:
            newest.close()
            await asyncio.gather(first, return_exceptions=True)
            await tables.close()

    app = FastAPI(lifespan=living, openapi_url=None, docs_url=None, redoc_url=None)

    @app.middleware("http")
    async def checked(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        """Who asks, and what every answer has; faults of the user's are sentences."""
        try:
            # The path that routes are found by; that of the address is put together from the Host header.
            if request.scope["path"].startswith("/api/"):
                _check(request, key)
            response = await call_next(request)
        except UserError as error:
            # An answer like others: of any other status a browser's console makes a fault of the page.
            response = _json({"refused": printable(str(error))})
        except RefusedError as error:
            response = _json({"error": error.sentence}, error.status)
        for name, value in SAFE.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("content-security-policy", POLICY)
        return response

    @app.get("/")
    def page() -> Response:
        return _static("index.html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        return _static(name)

    @app.get("/api/begin")
    def beginning() -> Response:
        """What the page begins with: choices, presets, a table."""
        choices = {"mean": MEANS, "kernel": KERNELS, "covariance": COVARIANCES, "likelihood": LIKELIHOODS}
        return _json({"choices": choices, "presets": [preset.to_json() for preset in presets()], **begin})

    @app.post("/api/points")
    async def points(request: Request) -> Response:
        asked = asked_of(await _body(request))
        try:
            return _json(_drawn(await newest.run(request.headers.get("x-page", ""), lambda report: draw(asked, report))))
        except SupersededError:
            return _json({"superseded": True})
        except (ValueError, ArithmeticError) as error:
            raise UserError(" ".join(str(error).split())) from error

    @app.post("/api/source")
    async def source(request: Request) -> Response:
        return _json({"source": source_of(asked_of(await _body(request)))})

    @app.post("/api/tables")
    async def upload(request: Request) -> Response:
        name = urllib.parse.unquote(request.headers.get("x-file-name", ""), errors="replace")
        known, table = await tables.add(name, await request.body())
        return _json({"table": known, **table.to_json()})

    def found(known: str) -> Any:
        if (table := tables.get(known)) is None:
            raise RefusedError(404, CLOSED)
        return table

    @app.get("/api/tables/{known}")
    async def state(known: str) -> Response:
        return _json(found(known).to_json())

    @app.delete("/api/tables/{known}")
    async def forget(known: str) -> Response:
        await tables.remove(known)
        return _json({})

    @app.post("/api/tables/{known}/fit")
    async def fit(known: str, request: Request) -> Response:
        asked, table = await _body(request), found(known)
        target, task, seconds = asked.get("target"), asked.get("task", "auto"), asked.get("max_time")
        if type(target) is not int or task not in ("auto", "regression", "classification"):
            raise UserError("Choose the target, and what it is: numbers, classes, or automatic.")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 1 <= seconds <= LONGEST_FIT:
            raise UserError(f"The time for the fit must be between 1 and {LONGEST_FIT:.0f} seconds.")
        table.fit(target, task, float(seconds))
        return _json(table.to_json())

    @app.post("/api/tables/{known}/cancel")
    async def cancel(known: str, request: Request) -> Response:
        table = found(known)
        await table.cancel()
        return _json(table.to_json())

    @app.post("/api/tables/{known}/predict")
    async def predict(known: str, request: Request) -> Response:
        return _json(await found(known).predict(_cells(await _body(request))))

    @app.post("/api/tables/{known}/explain")
    async def explain(known: str, request: Request) -> Response:
        return _json(await found(known).explain(_cells(await _body(request))))

    @app.get("/api/tables/{known}/model")
    async def model(known: str) -> Response:
        if (path := found(known).file(MODEL)) is None:
            raise RefusedError(404, "There is no model file.")
        return FileResponse(path, media_type="application/octet-stream")

    @app.get("/report/{known}/{ticket}")
    async def report(known: str, ticket: str) -> Response:
        """Of a frame, which brings no header: who has the ticket may read it."""
        table = found(known)
        path = table.file(REPORT)
        if path is None or not hmac.compare_digest(ticket.encode(), table.ticket.encode()):
            raise RefusedError(404, "There is no such report.")
        return FileResponse(path, media_type="text/html; charset=utf-8", headers={"content-security-policy": REPORT_POLICY})

    # A body is held twice for a moment: as it comes, and whole.
    return Guard(app, limits=Limits(body=MOST_BYTES, bodies=2 * MOST_BYTES, seconds_to_send=120.0, seconds=120.0))


def _check(request: Request, key: str) -> None:
    """Refuse who does not bring the key, and bodies that are no JSON or file."""
    if not hmac.compare_digest(request.headers.get(KEY_HEADER, "").encode(), key.encode()):
        raise RefusedError(401, "Open the page with the address that `gwi play` printed: it ends with the key of this session.")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    wanted = "application/octet-stream" if request.scope["path"] == "/api/tables" else "application/json"
    if request.method == "POST" and kind != wanted:
        raise RefusedError(415, f"Send {wanted}.")


async def _body(request: Request) -> dict[str, Any]:
    body = await request.body()
    if len(body) > MOST_JSON:
        raise RefusedError(413, "The request is too large.")
    try:
        node = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("The body is not JSON.") from None
    if not isinstance(node, dict):
        raise UserError("The body must be one JSON object.")
    return node


def _cells(asked: dict[str, Any]) -> dict[str, Any]:
    cells = asked.get("cells")
    if not isinstance(cells, dict):
        raise UserError("cells must be an object: the value of each column by its place.")
    return cells


def _json(node: Any, status: int = 200) -> Response:
    """JSON, with null for numbers that it does not have."""
    text = json.dumps(node)
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(json.loads(text, parse_constant=lambda name: None))
    return Response(text, status, media_type="application/json")


def _drawn(drawn: Drawn) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in asdict(drawn).items()}


def _static(name: str) -> Response:
    place = files("gwi.web.play") / "static"
    known = {entry.name for entry in place.iterdir() if entry.is_file()}
    kind = KINDS.get(name.rpartition(".")[2])
    if name not in known or kind is None:
        raise RefusedError(404, "There is no such file.")
    return Response((place / name).read_bytes(), media_type=f"{kind}; charset=utf-8")
