"""A socket, uvicorn on it, an end in order: what every server of ours begins and ends with."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

# Connections that may wait until they are taken.
WAITING = 128


def nothing() -> None:
    """What is done where nobody asks for more."""


def listening(host: str, port: int) -> socket.socket:
    """A socket at this address.

    Raises:
        OSError: when it cannot be had.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        # Windows would let two servers listen on one port.
        if os.name == "posix":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(WAITING)
    except OSError:
        found.close()
        raise
    return found


class Server(uvicorn.Server):
    """uvicorn's, which an end in order does not make look like an interrupt.

    Args:
        config: uvicorn's.
        started: called once it answers.
        stopping: called when it is asked to end, before it does.
        ended: called at its end, however it came.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        started: Callable[[], None] = nothing,
        stopping: Callable[[], None] = nothing,
        ended: Callable[[], None] = nothing,
    ):
        super().__init__(config)
        self._started, self._stopping, self._ended = started, stopping, ended

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and a closed terminal end it, once running requests are answered."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        if self.started:
            self._started()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Until it is asked to end."""
        try:
            super().run(sockets)
        finally:
            self._ended()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Take no more connections; a second Ctrl-C does not wait for answers either."""
        self._stopping()
        super().handle_exit(sig, frame)
