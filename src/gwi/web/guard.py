"""What stands before everything that is served over HTTP: who may ask, how much, and for how long.

`Guard` is ASGI and needs nothing but Python. An application behind it gets whole bodies, never too large, from those who may ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import re
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from gwi._progress import printable
from gwi.exceptions import UserError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_VARIABLE = "GWI_TOKEN"
SHORTEST_TOKEN = 16
# Seconds, and bytes, for which a body that is refused is still read, so that its sender sees the answer and not a broken pipe.
DRAIN_SECONDS, DRAIN_BYTES = 2.0, 1 << 26
# Of a length that is announced.
MOST_DIGITS = 18
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]*)(:\d{1,5})?")


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for.

    Attributes:
        body: bytes.
        bodies: bytes of all bodies that are held at one time.
        seconds_to_send: in which a body must be here.
        seconds: in which the answer must be there.
    """

    body: int = 32 << 20
    bodies: int = 256 << 20
    seconds_to_send: float = 30.0
    seconds: float = 60.0


@dataclass(frozen=True)
class Answered:
    """A request and what came of it, for logs and metrics; neither headers, nor a query, nor a body.

    Attributes:
        client: address of who asked.
        method: such as POST.
        path: without its query.
        status: of the answer; 499 where the client left before it.
        seconds: from the first byte of the request's head to the end.
        size: bytes of the body of the request.
    """

    client: str
    method: str
    path: str
    status: int
    seconds: float
    size: int

    def __str__(self) -> str:
        shown = printable(self.path[:200]).replace("\n", "\\n").replace("\t", "\\t")
        return f"{self.client} {self.method[:20]} {shown} {self.status} {1000 * self.seconds:.1f} ms {self.size} bytes"


class RefusedError(Exception):
    """A request that gets no answer but a status and a sentence."""

    def __init__(self, status: int, sentence: str, headers: Collection[tuple[str, str]] = ()):
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, tuple(headers)


def is_loopback(host: str) -> bool:
    """Whether an address to listen on, or the name in a Host header, is this machine for itself."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def checked_token(host: str, token: str | None) -> str | None:
    """The token that requests must bring; None where nobody but this machine can ask and none is wanted.

    Raises:
        UserError: when others could ask and there is none, or it is easily guessed or cannot be sent.
    """
    token = token or None
    if token is None:
        if not is_loopback(host):
            raise UserError(
                f"--host {host} lets other machines connect, which needs a token: set {TOKEN_VARIABLE} (or --token), "
                "for example to what `openssl rand -hex 24` prints, or leave --host out."
            )
        return None
    if len(token) < SHORTEST_TOKEN or not re.fullmatch(r"[\x21-\x7e]+", token):
        raise UserError(f"The token must have at least {SHORTEST_TOKEN} characters: letters, digits and punctuation, no spaces.")
    return token


def refuse_others(scope: Scope, token: str | None, open_paths: Collection[str] = ()) -> None:
    """Refuse who brings no token; or, where there is none, pages of other sites in a browser of this machine.

    Without a token the server listens on loopback only, where the danger is a web page: its name may have been pointed at
    127.0.0.1 (then Host is that name), or it sends requests across sites (then Origin is another than Host).

    Raises:
        RefusedError: 401, 421 or 403.
    """
    headers = scope.get("headers", [])
    hosts = [value for name, value in headers if name == b"host"]
    if token is not None:
        if scope["path"] in open_paths:
            return
        given = [value for name, value in headers if name == b"authorization"]
        scheme, _, secret = (given[0] if len(given) == 1 else b"").partition(b" ")
        if not (hmac.compare_digest(secret.strip(), token.encode()) and scheme.lower() == b"bearer"):
            challenge = [("www-authenticate", "Bearer")]
            raise RefusedError(401, "Send the token of this server: Authorization: Bearer TOKEN.", challenge)
    else:
        parts = _HOST.fullmatch(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
        if parts is None or not is_loopback(parts[1]):
            raise RefusedError(421, "This server answers requests to localhost only; use http://127.0.0.1 and its port.")
        for name, value in headers:
            if name == b"origin" and value.partition(b"://")[2] not in hosts:
                raise RefusedError(403, "Pages of other sites may not use this server.")


def header_of(scope: Scope, name: str) -> str:
    """The value of a header, small, stripped; empty where it is not there. Several are one, parted by commas."""
    return ",".join(value.decode("latin-1") for key, value in scope["headers"] if key == name.encode()).strip().lower()


async def answer(send: Send, status: int, body: bytes, kind: str, headers: Iterable[tuple[str, str]] = ()) -> None:
    """Send a whole response."""
    every = [("content-type", kind), ("content-length", str(len(body))), ("x-content-type-options", "nosniff"), *headers]
    head = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in every]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, refused: RefusedError) -> None:
    """Send the status and `{"error": sentence}`."""
    body = json.dumps({"error": printable(refused.sentence)}).encode() + b"\n"
    await answer(send, refused.status, body, "application/json", refused.headers)


async def drain(receive: Receive) -> None:
    """Read on for a while what nobody wants, to the end of the body."""
    size, more = 0, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while more and size < DRAIN_BYTES:
                message = await receive()
                size, more = size + len(message.get("body", b"")), message.get("more_body", False)


class Guard:
    """Stands before an ASGI application.

    Refused are: requests of others (`refuse_others`, 401, 403, 421), packed bodies (415, as a few bytes of gzip are gigabytes),
    bodies that are too large (413), too slow (408) or too many at a time (503), answers that take too long (503), websockets.
    A fault inside is written to the error stream, and its client gets one sentence.

    Args:
        app: what answers.
        limits: of one request.
        token: as `checked_token` gives it.
        open_paths: for which no token is needed, such as /health.
        observe: told of every request when it is done.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: Limits | None = None,
        token: str | None = None,
        open_paths: Collection[str] = (),
        observe: Callable[[Answered], None] = lambda answered: None,
    ):
        self.app, self.limits = app, Limits() if limits is None else limits
        self.token, self.open_paths, self.observe = token, frozenset(open_paths), observe
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status, body, is_whole = time.perf_counter(), 499, b"", False

        async def heard() -> Message:
            nonlocal is_whole
            message = await receive()
            is_whole = message["type"] == "http.disconnect" or not message.get("more_body", False)
            return message

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refuse_others(scope, self.token, self.open_paths)
            self._check_head(scope)
            async with self._received(heard) as body:
                await self._answered(scope, body, receive, watched)
        except RefusedError as refused:
            # After a beginning there is no other status to send: the connection ends, which its client sees as cut off.
            if status == 499:
                # A client that asked first whether it may send a body has not sent it.
                if refused.status != 408 and not is_whole and not header_of(scope, "expect"):
                    await drain(heard)
                await refuse(watched, refused)
        except ConnectionError:
            pass
        except Exception as error:
            print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr, flush=True)
            if status == 499:
                await refuse(watched, RefusedError(500, "The server failed; its log says why."))
        finally:
            client = (scope.get("client") or ("-",))[0]
            done = Answered(client, scope["method"], scope["path"], status, time.perf_counter() - begun, len(body))
            self.observe(done)

    def _check_head(self, scope: Scope) -> None:
        if header_of(scope, "content-encoding") not in ("", "identity"):
            raise RefusedError(415, "Send the body uncompressed, without Content-Encoding.")
        announced = header_of(scope, "content-length")
        # Python reads no number of thousands of digits.
        if announced.isdecimal() and (len(announced) > MOST_DIGITS or int(announced) > self.limits.body):
            raise self._too_large()

    def _too_large(self) -> RefusedError:
        return RefusedError(413, f"The body may have up to {self.limits.body:,} bytes; send fewer rows at a time.")

    @contextlib.asynccontextmanager
    async def _received(self, receive: Receive) -> AsyncIterator[bytes]:
        """The whole body, counted among those that are held while inside."""
        parts: list[bytes] = []
        size = 0
        try:
            try:
                async with asyncio.timeout(self.limits.seconds_to_send):
                    more = True
                    while more:
                        message = await receive()
                        if message["type"] == "http.disconnect":
                            raise ConnectionError("The client disconnected before its body had arrived.")
                        part, more = message.get("body", b""), message.get("more_body", False)
                        size, self._held = size + len(part), self._held + len(part)
                        if size > self.limits.body:
                            raise self._too_large()
                        if self._held > self.limits.bodies:
                            raise RefusedError(
                                503, "The server is busy with other requests; try again soon.", [("retry-after", "1")]
                            )
                        parts.append(part)
            except TimeoutError:
                late = f"The body did not arrive within {self.limits.seconds_to_send:g} s; send it faster, or fewer rows."
                raise RefusedError(408, late, [("connection", "close")]) from None
            yield b"".join(parts)
        finally:
            self._held -= size

    async def _answered(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        is_given = False

        async def again() -> Message:
            nonlocal is_given
            if is_given:
                return await receive()
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, again, send)
        except TimeoutError:
            late = f"The answer was not ready within {self.limits.seconds:g} s; send fewer rows at a time."
            raise RefusedError(503, late, [("retry-after", "1")]) from None
