"""The command that answers over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

import gwi.cli.console as console
from gwi._extras import require


def serve(
    models: Annotated[list[str], typer.Argument(help="model files that gwi fit wrote, or NAME=FILE", show_default=False)],
    host: Annotated[str, typer.Option(help="address to listen on; any but this machine's own needs a token")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 for any free one")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="GWI_TOKEN", show_default=False, help="token that requests must send: Authorization: Bearer TOKEN"),
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1024, help="most bytes in a request")] = 32 << 20,
    max_rows: Annotated[int, typer.Option(min=1, help="most rows in a request")] = 100_000,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="most seconds for an answer")] = 60.0,
    quiet: console.Quiet = False,
) -> None:
    """Serve predictions of models over HTTP: JSON, CSV or Arrow in and out."""
    from gwi.web.guard import Limits, checked_token

    secret = checked_token(host, token)
    require("serve", "gwi serve")
    from gwi.web.serve.app import Service
    from gwi.web.serve.served import open_models
    from gwi.web.serve.server import listening, log, server_of
    from gwi.web.serve.server import serve as answer

    service = Service(open_models(models), max_rows)
    at = listening(host, port)
    # A body larger than all that may be held would never be taken.
    limits = Limits(body=max_bytes, bodies=max(8 * max_bytes, Limits.bodies), seconds=max_seconds)
    address, number = at.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    console.note(f"{', '.join(service.models)} at http://{shown}:{number}; Ctrl-C stops it.", quiet)
    answer(server_of(service, limits, secret, (lambda answered: None) if quiet else log), at)
    console.note("stopped.", quiet)
