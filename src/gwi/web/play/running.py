"""Start the page's server on a free port, open the browser, and end in order."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from gwi._extras import require
from gwi.exceptions import UserError

HOST = "127.0.0.1"
# Ports that are tried when the first is taken.
MORE_PORTS = 20
# Connections at one time; a browser opens some six.
MOST_CONNECTIONS = 64
# Seconds in which answers under way may still be given at the end.
LAST_SECONDS = 2


def run(port: int, data: Path | None, opens: bool, say: Callable[[str], None]) -> None:
    """Serve the page until the user ends it.

    Args:
        port: to listen on; the next free one where it is taken.
        data: a table to begin with.
        opens: whether the browser is opened.
        say: hears the address, and that it has ended.

    Raises:
        UserError: when the packages are not there, the file is not, or no port is free.
    """
    require("play", "gwi play")
    import uvicorn

    from gwi.web.play.app import MOST_BYTES, play_app
    from gwi.web.running import Server

    if data is not None:
        _check_file(data, MOST_BYTES)
    listener, taken = bound(port)
    port_used = listener.getsockname()[1]
    if taken:
        say(f"Port {port} is taken, so the page is on {port_used}.")
    key = secrets.token_urlsafe(24)
    # Behind the mark: a browser keeps it to itself, and it is in no log.
    address = f"http://{HOST}:{port_used}/#{key}"

    def started() -> None:
        say(f"The page is at {address}")
        say("Press Ctrl-C to stop it.")
        if opens:
            # Some browsers are waited for until they end.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    config = uvicorn.Config(
        play_app(key, data),
        loop="asyncio",
        log_level="warning",
        timeout_graceful_shutdown=LAST_SECONDS,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
    )
    # An interrupt may come before the server listens to signals.
    with contextlib.suppress(KeyboardInterrupt):
        Server(config, started=started).run([listener])
    say("The page has stopped.")


def bound(port: int) -> tuple[socket.socket, bool]:
    """A socket on the port or the next free one, and whether the port was taken.

    Raises:
        UserError: when none of them is free.
    """
    from gwi.web.running import listening

    for number in range(port, min(port + MORE_PORTS, 1 << 16)) if port else (0,):
        try:
            return listening(HOST, number), number != port and port != 0
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise UserError(f"The page cannot listen on port {number}: {error.strerror}.") from error
    raise UserError(f"No port from {port} upwards is free; give another one with --port, or 0 for any.")


def _check_file(data: Path, most: int) -> None:
    """Refuse what is no file, or too large for the page."""
    if not data.is_file():
        raise UserError(f"{data} is not a file; give a CSV or Parquet file, or leave it out.")
    if (size := data.stat().st_size) > most:
        raise UserError(f"{data} has {size:,} bytes; the page takes up to {most:,}. Use gwi fit for larger tables.")
