"""The application: what is asked at which address, and who predicts it when."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from gwi import __version__
from gwi._progress import printable, said
from gwi.exceptions import UserError
from gwi.tables.unlike import Unlike
from gwi.tables.writer import with_copied
from gwi.web.guard import Answered, Guard, Limits, RefusedError
from gwi.web.serve.answers import body_of, header_of_notes
from gwi.web.serve.asked import Asked
from gwi.web.serve.bodies import KINDS, rows_of
from gwi.web.serve.metrics import OUTLIER, Metrics
from gwi.web.serve.page import HEADERS, page
from gwi.web.serve.schema import operation
from gwi.web.serve.served import Served

# Without a token: whoever starts and watches the process has none, and it says nothing of the models.
OPEN_PATHS = ("/health", "/ready")
MOST_ROWS = 100_000
# Requests up to so many bytes and rows do not wait for larger ones.
FEW_BYTES, FEW_ROWS = 1 << 18, 1_000
_CHARSET = re.compile(r'charset\s*=\s*"?([^;"\s]+)')


class Lanes:
    """Two threads that predict, one for requests of few rows and one for others, so that few rows do not wait for many.

    More would not be faster: most of a small prediction holds Python's lock, and a large one uses all cores already.
    """

    def __init__(self) -> None:
        self._few, self._many = ThreadPoolExecutor(1, "few rows"), ThreadPoolExecutor(1, "many rows")

    async def run(self, is_small: bool, call: Callable[..., Any], *arguments: Any) -> Any:
        """What the call gives, made in its lane once those before it are done."""
        waiting = [partial(call, *arguments)]
        # The traceback of who gives up holds on to what has a name here.
        del call, arguments
        try:
            lane = self._few if is_small else self._many
            return await asyncio.get_running_loop().run_in_executor(lane, lambda: waiting.pop()())
        finally:
            # Who gave up stays in the queue of the lane until those before it are done, but not with its rows.
            waiting.clear()

    def close(self) -> None:
        """Take no more; what runs goes on, and nobody waits for it."""
        for lane in (self._few, self._many):
            lane.shutdown(wait=False, cancel_futures=True)


class Service:
    """Models, and what happens between a request and its answer.

    Args:
        models: by name.
        most_rows: of one request.
    """

    def __init__(self, models: Mapping[str, Served], most_rows: int = MOST_ROWS):
        self.models, self.most_rows, self.lanes = models, most_rows, Lanes()
        paths = {"/", "/health", "/ready", "/metrics", "/models", "/openapi.json"}
        self.is_stopping = False
        self.metrics = Metrics(frozenset(paths | {path for name in models for path in self.paths_of(name)}))

    def paths_of(self, name: str) -> list[str]:
        """Where a model is asked; a single one also without its name."""
        return [f"/models/{name}/predict", *(["/predict"] if len(self.models) == 1 else [])]

    async def predict(self, model: Served, request: Request) -> Response:
        """The answer to a request for predictions."""
        kind = kind_of(request.headers.get("content-type", ""))
        given = accepted(request.headers.get("accept", ""), kind)
        asked = Asked.of(request.query_params.multi_items(), model.estimator, model.name)
        body, unlike = await request.body(), Unlike()
        self.metrics.running += 1
        try:
            rows = await self.lanes.run(len(body) <= FEW_BYTES, rows_of, body, kind, model.wanted, asked.keep, self.most_rows)
            is_small, found = len(rows.table) <= FEW_ROWS, []
            for part in model.parts(rows.table):
                predictions = await self.lanes.run(is_small, model.predict, part, asked, unlike)
                found.append(with_copied(part, rows.kept, predictions))
            notes = [*model.notes(unlike), *filter(None, [rows.note])]
            columns = found[0] if len(found) == 1 else await self.lanes.run(is_small, _joined, found)
            self.metrics.rows[model.name] += len(rows.table)
            self.metrics.outliers[model.name] += int((columns["ood_score"] > OUTLIER).sum())
            content = await self.lanes.run(is_small, body_of, columns, given, rows.form, model.name, notes)
        except ValueError as error:
            if isinstance(error, UserError):
                raise
            # Such as what a pipeline of somebody's own says of a cell.
            raise UserError(f"The rows cannot be predicted: {printable(str(error))[:300]}") from error
        finally:
            self.metrics.running -= 1
        headers = {} if given == "json" else {"gwi-model": model.name, "gwi-notes": header_of_notes(notes)}
        return Response(content, media_type=KINDS[given], headers=headers)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    import pyarrow as pa

    return {
        name: np.concatenate([part[name] for part in parts])
        if isinstance(parts[0][name], np.ndarray)
        else pa.chunked_array([part[name] for part in parts])
        for name in parts[0]
    }


def kind_of(content_type: str) -> str:
    """Which of our kinds a body is.

    Raises:
        RefusedError: 415, naming those there are.
    """
    name, _, rest = content_type.lower().partition(";")
    charset = _CHARSET.search(rest)
    if charset and charset[1] not in ("utf-8", "utf8", "us-ascii"):
        raise RefusedError(415, f"The body must be text in UTF-8; got the charset {charset[1][:40]!r}.")
    kinds = {media: kind for kind, media in KINDS.items()}
    kinds |= {"text/tab-separated-values": "csv", "application/vnd.apache.arrow": "arrow"}
    if name.strip() not in kinds:
        known = ", ".join(KINDS.values())
        raise RefusedError(415, f"The Content-Type must be one of {known}; got {name.strip()[:60] or 'none'}.")
    return kinds[name.strip()]


def accepted(accept: str, kind: str) -> str:
    """The kind of the answer: the most welcome of ours; that of the request where any will do.

    Raises:
        RefusedError: 406, naming those there are.
    """
    wanted: list[tuple[float, str]] = []
    for part in accept.lower().split(","):
        name, *options = (piece.strip() for piece in part.split(";"))
        weight = next((option[2:] for option in options if option.startswith("q=")), "1")
        if re.fullmatch(r"[01](\.\d{1,3})?", weight) and float(weight) > 0:
            wanted.append((-float(weight), name))
    for _, name in sorted(wanted, key=lambda pair: pair[0]):
        if name in ("", "*/*", KINDS[kind]) or (name.endswith("/*") and KINDS[kind].startswith(name[:-1])):
            return kind
        for ours, media in KINDS.items():
            if name == media or (name.endswith("/*") and media.startswith(name[:-1])):
                return ours
    if not accept.strip():
        return kind
    raise RefusedError(406, f"The answer can be {', '.join(KINDS.values())}; leave Accept out, or name one of them.")


def application(service: Service) -> FastAPI:
    """What answers at which address."""
    app = FastAPI(
        title="gwi serve",
        version=__version__,
        description="Predictions with calibrated uncertainty.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )

    async def health() -> dict[str, str]:
        return {"status": "ok"}

    async def ready() -> Response:
        if service.is_stopping:
            raise RefusedError(503, "The server is stopping.")
        return Response('{"status": "ready"}\n', media_type=KINDS["json"])

    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models() -> dict[str, Any]:
        known = service.models.items()
        return {"models": [{"name": name, "predict": service.paths_of(name)[0], **model.description} for name, model in known]}

    async def start() -> Response:
        return Response(page(service.models), media_type="text/html; charset=utf-8", headers=HEADERS)

    app.add_api_route("/health", health, summary="The process answers")
    app.add_api_route("/ready", ready, summary="The models are loaded")
    app.add_api_route("/metrics", metrics, summary="Counts and times, for Prometheus")
    app.add_api_route("/models", models, summary="What is served")
    app.add_api_route("/", start, include_in_schema=False)
    for name, model in service.models.items():
        summary = said(model.of[0].upper() + model.of[1:])
        for path in service.paths_of(name):
            app.add_api_route(path, _endpoint(service, model), methods=["POST"], summary=summary, openapi_extra=operation(model))
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(UserError, _mistaken)
    app.add_exception_handler(HTTPException, partial(_no_such, service))
    return app


def _endpoint(service: Service, model: Served) -> Callable[[Request], Awaitable[Response]]:
    async def predict(request: Request) -> Response:
        return await service.predict(model, request)

    return predict


def _sentence(status: int, sentence: str, headers: Mapping[str, str]) -> Response:
    body = json.dumps({"error": said(sentence)}, ensure_ascii=False).encode() + b"\n"
    return Response(body, status, media_type=KINDS["json"], headers=dict(headers))


async def _refused(request: Request, error: Any) -> Response:
    return _sentence(error.status, error.sentence, dict(error.headers))


async def _mistaken(request: Request, error: Exception) -> Response:
    return _sentence(422, str(error), {})


async def _no_such(service: Service, request: Request, error: Any) -> Response:
    """Addresses and methods that there are not."""
    if error.status_code == 405:
        return _sentence(
            405, f"{request.method[:20]} is not possible at this address; see GET /openapi.json.", error.headers or {}
        )
    if error.status_code != 404:
        return _sentence(error.status_code, str(error.detail), error.headers or {})
    paths = " or ".join(service.paths_of(name)[0] for name in list(service.models)[:8])
    return _sentence(404, f"There is nothing at {request.url.path[:100]!r}; predictions are at POST {paths}.", {})


def guarded(service: Service, limits: Limits, token: str | None, observe: Callable[[Answered], None]) -> Guard:
    """The application behind its guard, which counts every request."""

    def both(answered: Answered) -> None:
        service.metrics.observe(answered)
        observe(answered)

    return Guard(application(service), limits=limits, token=token, open_paths=OPEN_PATHS, observe=both)
