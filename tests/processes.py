"""Processes of their own that start in no time: forks of one that has imported what takes seconds, and nothing of ours.

A fork has arguments, streams, signals and an exit code of its own, as a fresh interpreter has. torch, gpytorch, SciPy and
scikit-learn are there already, with what these import (NumPy, pandas, pyarrow and rich); `gwi` and all its other packages are
not. A process that must do without one of the former needs an interpreter of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

# Seconds after which a process is ended, whatever it does.
LONGEST = 180
# Two file descriptors for the output and the errors of a process come with its job; its number and its exit code go back.
PARENT = """
import gc, json, os, runpy, socket, sys
import torch, gpytorch, scipy.stats, sklearn.calibration, sklearn.compose, sklearn.ensemble, sklearn.linear_model
import sklearn.manifold, sklearn.model_selection, sklearn.pipeline
torch.set_num_threads(1)
gc.freeze()
jobs = socket.socket(fileno=int(sys.argv[1]))
while True:
    text, streams, _, _ = socket.recv_fds(jobs, 2**20, 2)
    if not text:
        os._exit(0)
    job = json.loads(text)
    number = os.fork()
    if not number:
        break
    for stream in streams:
        os.close(stream)
    jobs.send(str(number).encode())
    jobs.send(str(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])).encode())
jobs.close()
for place, stream in enumerate(streams, 1):
    os.dup2(stream, place)
    os.close(stream)
os.chdir(job["folder"])
os.environ.clear()
os.environ.update(job["environment"])
kind, program = job["program"]
sys.argv = [kind, *job["arguments"]]
for name in set(globals()) - {"__builtins__", "__name__", "sys", "kind", "program", "runpy"}:
    del globals()[name]
if kind == "-m":
    runpy.run_module(program, run_name="__main__", alter_sys=True)
elif kind == "-c":
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
else:
    sys.argv[0] = program
    runpy.run_path(program, run_name="__main__")
"""


@cache
def _parent() -> tuple[socket.socket, subprocess.Popen]:
    """The connection to the process that forks, and that process; it ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    with theirs:
        command = [sys.executable, "-c", PARENT, str(theirs.fileno())]
        options = {"pass_fds": [theirs.fileno()], "stdin": subprocess.DEVNULL, "start_new_session": True}
        process = subprocess.Popen(command, env=environment, **options)
    ours.settimeout(2 * LONGEST)
    return ours, process


class Started:
    """A process at work, with its errors as a stream that can be read while it is."""

    def __init__(self, pid: int, stderr: IO[str]):
        self.pid, self.stderr = pid, stderr
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(_parent()[0].recv(100))
        return self.returncode


@contextmanager
def started(
    program: Sequence[str], *arguments: object, stdout: IO | None = None, folder: Path | str = ".", **environment: str
) -> Iterator[Started]:
    """One process: `["-c", code]`, `["-m", module]` or `["script", path]`, and its arguments."""
    job = {
        "program": list(program),
        "arguments": [str(argument) for argument in arguments],
        "folder": str(Path(folder).resolve()),
        "environment": {**os.environ, "OMP_NUM_THREADS": "1", **environment},
    }
    (jobs, _), (ours, theirs) = _parent(), os.pipe()
    with open(ours, encoding="utf-8") as stderr, open(os.devnull, "w") as nowhere:
        socket.send_fds(jobs, [json.dumps(job).encode()], [(stdout or nowhere).fileno(), theirs])
        os.close(theirs)
        process = Started(int(jobs.recv(100)), stderr)
        timer = threading.Timer(LONGEST, os.kill, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            yield process
        except BaseException:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)
            raise
        finally:
            process.wait()
            timer.cancel()


def run(
    program: Sequence[str], *arguments: object, check: bool = False, folder: Path | str = ".", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run one process to its end; with `check`, it must end well."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        with started(program, *arguments, stdout=output, folder=folder, **environment) as process:
            said = process.stderr.read()
        output.seek(0)
        assert not check or process.returncode == 0, said
        return subprocess.CompletedProcess(list(program), process.wait(), output.read(), said)
