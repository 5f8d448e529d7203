"""The process: requests in time, a line of the log for each, and what the command starts."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gwi.exceptions import UserError
from gwi.web import running
from gwi.web.guard import Answered, Limits
from gwi.web.running import Server
from gwi.web.serve.app import Service, guarded

# Seconds in which the head of a request must be here, a client must have taken an answer, and an idle connection is kept.
HEAD_SECONDS, TAKE_SECONDS, IDLE_SECONDS = 10.0, 30.0, 20
# Connections at one time; seconds that requests have to finish once the server is asked to end.
MOST_CONNECTIONS, END_SECONDS = 256, 30


class TimedProtocol(H11Protocol):
    """uvicorn's, which by itself waits for ever for a head that comes byte by byte, and for a client that does not read."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Wait on, unless a request has begun; what cannot be answered any more ends the connection."""
        try:
            super().data_received(data)
        except (h11.LocalProtocolError, UnicodeDecodeError):
            self.transport.abort()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._waiting is None:
            self._wait(HEAD_SECONDS)

    def on_response_complete(self) -> None:
        """Idle connections are uvicorn's matter; one that does not take its answer is ours."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._wait(TAKE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._waiting = self.loop.call_later(seconds, self._end)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _end(self) -> None:
        self._waiting = None
        is_busy = self.cycle is not None and not self.cycle.response_complete
        if not is_busy:
            self.transport.abort()


def log(answered: Answered) -> None:
    """One line on the error stream, without query, headers and bodies."""
    with contextlib.suppress(OSError, ValueError):
        print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {answered}", file=sys.stderr, flush=True)


def listening(host: str, port: int) -> socket.socket:
    """A socket at this address.

    Raises:
        UserError: when it cannot be had.
    """
    try:
        return running.listening(host, port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"Nothing can listen at {host}:{port} ({reason}); choose another --port or --host.") from error


def server_of(service: Service, limits: Limits, token: str | None, observe: Callable[[Answered], None] = log) -> Server:
    """What answers, not started."""
    config = uvicorn.Config(
        guarded(service, limits, token, observe),
        http=TimedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=END_SECONDS,
    )

    def stop() -> None:
        service.is_stopping = True

    return Server(config, stopping=stop, ended=service.lanes.close)


def serve(server: Server, at: socket.socket) -> None:
    """Answer until a signal asks to end."""
    # What is there now stays: to look through all of it again and again takes more time than to read a thousand rows.
    gc.collect()
    gc.freeze()
    server.run(sockets=[at])
