"""`gwi`, or `python -m gwi`: the command as a process of its own."""

import atexit
import contextlib
import os
import sys

from gwi.exceptions import MissingPackageError


def process() -> None:
    """Run the command and end with its exit code.

    torch and pyarrow leave threads behind over which Python, taking itself apart, at times aborts: exit code 134, whatever was
    said. So what is registered for the end is done here, and the rest is left to the operating system.
    """
    code = 0
    try:
        from gwi.cli.commands import main

        main()
    except MissingPackageError as error:
        # Of the command itself; what its work needs is said inside.
        print(f"gwi: {error}", file=sys.stderr)
        code = 2
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    process()
