"""`gwi serve` as its users and its enemies meet it: speed, load, hostile requests, kills, the token.

    python -m benchmarks.studies.serving [--parts speed load hostile kills token] [--minutes 5] [--quick]

Starts real servers and writes results/serving.csv. Speed: the same rows in turns to the server and to `Predictor.columns` in a
process of its own, 1,000 requests of one row and of 1,000 rows in each format, one client. Load: eight clients at a time with
requests of both sizes, some of them wrong; memory after a warm-up and at the end. Hostile: every request of
`serving_cases`. Kills: SIGKILL under load and a new start, SIGTERM with a request under way. Token: what can be had without it.
``--quick`` goes through all of it with a tiny model and prints only.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
import pyarrow as pa
import torch

from benchmarks.studies import serving_cases
from benchmarks.studies.serving_cases import ARROW, CSV, JSON, ROW, Case, ask_raw, dumps, raw_cases, stream
from benchmarks.tables.common import records
from benchmarks.tables.uci.data import load_uci
from gwi import Predictor
from gwi.cli import commands
from gwi.tables.writer import Writer

PARTS = ("speed", "load", "hostile", "kills", "token")
CLIENTS, TOKEN = 8, "0123456789abcdef0123456789abcdef"
# Calls of one side in a row, so that both see the same noise of the machine.
TURN = 20
Record = dict[str, Any]


def free_port() -> int:
    """One that nobody has at this moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """`gwi serve` in a process of its own, on a port that is free.

    Args:
        models: files.
        options: more of the command.
        port: a free one unless given.
        environment: more variables.
    """

    def __init__(self, models: Sequence[Path], *options: str, port: int | None = None, environment: dict[str, str] | None = None):
        self.port = free_port() if port is None else port
        command = [sys.executable, "-m", "gwi", "serve", *map(str, models), "--port", str(self.port), *options]
        # A file, not a pipe: nobody would empty it.
        self._said = tempfile.NamedTemporaryFile("r")  # noqa: SIM115
        with open(self._said.name, "w") as file:
            self.process = subprocess.Popen(command, stderr=file, env=os.environ | (environment or {}))
        while self.process.poll() is None:
            try:
                if self.ask(b"", path="/ready", method="GET")[0] == 200:
                    break
            except OSError:
                time.sleep(0.02)

    @property
    def said(self) -> str:
        """On the error stream."""
        return Path(self._said.name).read_text()

    @property
    def megabytes(self) -> float:
        """In memory now."""
        return float(psutil.Process(self.process.pid).memory_info().rss / 1e6)

    def ask(
        self, body: bytes, kind: str = JSON, path: str = "/predict", method: str = "POST", **headers: str
    ) -> tuple[int, bytes]:
        """Status and body, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        connection.request(method, path, body, {"Content-Type": kind, **headers})
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def worked(self) -> float:
        """Seconds of a processor that it has taken so far."""
        found = psutil.Process(self.process.pid).cpu_times()
        return float(found.user + found.system)

    def end(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._said.close()


def fitted(folder: Path, quick: bool) -> dict[str, Path]:
    """Model files: the default of 300 rows of kin8nm, and one of mixed columns that hostile requests ask."""
    rng = np.random.default_rng(0)
    if quick:
        x = rng.standard_normal((60, 8))
        y = x[:, 0] + 0.1 * rng.standard_normal(60)
    else:
        features, targets = load_uci("kin8nm")
        x, y = features[:300].numpy(), targets.reshape(-1)[:300].numpy()
    table = {f"x{i}": column for i, column in enumerate(x.T)} | {"y": y}
    small = {"x": rng.standard_normal(60), "town": rng.choice(["Ulm", "Bonn"], 60)}
    small["day"] = np.array([f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(60)])
    small["y"] = 2 * small["x"] + (small["town"] == "Ulm") + 0.1 * rng.standard_normal(60)
    with (folder / "data.csv").open("wb") as file, Writer(file, ()) as writer:
        writer.write(table)
    with (folder / "small.csv").open("wb") as file, Writer(file, ()) as writer:
        writer.write(small)
    found = {}
    for name, data, mean in (
        ("default", "data", "auto"),
        ("mixed", "small", "linear"),
    ):
        found[name] = folder / f"{name}.gwi"
        mean = "linear" if quick else mean
        code = commands.run(
            ["fit", f"{folder}/{data}.csv", "-t", "y", "-o", str(found[name]), "--mean", mean, "--holdout", "0", "-q"]
        )
        assert code == 0
    return found


def bodies(count: int, offset: int, names: Sequence[str]) -> tuple[Any, dict[str, bytes]]:
    """Rows as an Arrow table, and as bodies."""
    x = np.random.default_rng(offset).standard_normal((count, len(names)))
    columns = {name: x[:, i] for i, name in enumerate(names)}
    table = pa.table(columns)
    rows = table.to_pylist()
    lines = [",".join(names), *(",".join(map(repr, row)) for row in x.tolist())]
    return table, {JSON: dumps(rows[0] if count == 1 else rows), CSV: "\n".join(lines).encode(), ARROW: stream(table)}


def measure_speed(models: dict[str, Path], count: int) -> Iterator[Record]:
    """Milliseconds of requests beside those of a call in this process."""
    names = [f"x{i}" for i in range(8)]
    # As the server does: else each side would look through its own heap now and then.
    gc.collect()
    gc.freeze()
    for name in ("default",):
        predictor = Predictor(models[name])
        with Server([models[name]], "--quiet") as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            for num_rows in (1, 1000):
                given = [bodies(num_rows, i, names) for i in range(TURN)]
                taken: dict[str, list[float]] = {"in process": [], JSON: [], CSV: [], ARROW: []}
                worked: defaultdict[str, float] = defaultdict(float)
                for turn in range(-1, count // TURN):
                    for way, times in taken.items():
                        before = server.worked() if way != "in process" else time.process_time()
                        for table, encoded in given:
                            begun = time.perf_counter()
                            if way == "in process":
                                predictor.columns(table)
                            else:
                                connection.request("POST", "/predict", encoded[way], {"Content-Type": way})
                                answer = connection.getresponse()
                                assert answer.status == 200, answer.read()
                                answer.read()
                            # The first turn finds caches cold.
                            times.extend([time.perf_counter() - begun] * (turn >= 0))
                        after = server.worked() if way != "in process" else time.process_time()
                        if turn >= 0:
                            worked[way] += after - before
                own = float(np.median(taken["in process"]))
                for way, times in taken.items():
                    values = {"requests": len(times), "p50_ms": 1e3 * float(np.median(times))}
                    values |= {"p99_ms": 1e3 * float(np.quantile(times, 0.99)), "rows_a_second": num_rows / float(np.mean(times))}
                    values |= {"processor_ms": 1e3 * worked[way] / len(times)}
                    values |= {} if way == "in process" else {"more_than_in_process_ms": 1e3 * (float(np.median(times)) - own)}
                    yield from rows_of("speed", f"{name}, {num_rows} rows, {way}", values)


def rows_of(part: str, case: str, values: dict[str, Any]) -> Iterator[Record]:
    """One line a quantity."""
    for quantity, value in values.items():
        yield {"part": part, "case": case, "quantity": quantity, "value": value}


def under_load(server: Server, is_over: Callable[[], bool], statuses: Counter[int], times: list[float]) -> list[threading.Thread]:
    """Clients that ask until it is over: mostly one row, sometimes 1,000, sometimes nonsense."""
    names = [f"x{i}" for i in range(8)]
    one, many = bodies(1, 0, names)[1], bodies(1000, 1, names)[1]
    wrong = [(b"{", JSON), (b"a,b\n1,2\n", CSV), (many[ARROW][:500], ARROW), (b"[" * 5000, JSON), (dumps({"x0": []}), JSON)]

    def client(number: int) -> None:
        rng = np.random.default_rng(number)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)
        while not is_over():
            draw = rng.random()
            body, kind = wrong[rng.integers(len(wrong))] if draw < 0.1 else (one[JSON], JSON)
            if draw > 0.9:
                kind = (JSON, CSV, ARROW)[rng.integers(3)]
                body = many[kind]
            begun = time.perf_counter()
            try:
                connection.request("POST", "/predict", body, {"Content-Type": kind})
                answer = connection.getresponse()
                answer.read()
                statuses[answer.status] += 1
                times.append(time.perf_counter() - begun)
            except (OSError, http.client.HTTPException):
                statuses[0] += 1
                connection.close()
                time.sleep(0.05)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    return threads


def measure_load(models: dict[str, Path], seconds: float) -> Iterator[Record]:
    """Eight clients for some minutes."""
    with Server([models["default"]], "--quiet") as server:
        statuses, times = Counter[int](), list[float]()
        begun = time.monotonic()
        threads = under_load(server, lambda: time.monotonic() - begun > seconds, statuses, times)
        time.sleep(seconds / 5)
        warm, memory = server.megabytes, []
        while time.monotonic() - begun < seconds:
            time.sleep(seconds / 60)
            memory.append(server.megabytes)
        for thread in threads:
            thread.join()
        values: dict[str, float] = {"seconds": seconds, "requests": statuses.total()}
        values |= {f"status_{status}": count for status, count in sorted(statuses.items())}
        values |= {"p50_ms": 1e3 * float(np.median(times)), "p99_ms": 1e3 * float(np.quantile(times, 0.99))}
        values |= {"megabytes_after_a_fifth": warm, "megabytes_at_the_end": server.megabytes, "megabytes_highest": max(memory)}
        yield from rows_of("load", f"{CLIENTS} clients", values)


def is_right(case: Case, status: int, said: bytes) -> bool:
    """Whether an answer has a right status, and a sentence where it is a refusal."""
    if b"Traceback" in said or status not in case.expected:
        return False
    return status == 200 or case.method == "HEAD" or len(json.loads(said)["error"]) > 10


def measure_hostile(models: dict[str, Path], slow: bool) -> Iterator[Record]:
    """Every case of `serving_cases`."""
    with Server([models["mixed"]]) as server:
        statuses, wrong, slowest, before = Counter[str](), list[str](), 0.0, server.megabytes
        for case in serving_cases.cases():
            begun = time.perf_counter()
            status, said = server.ask(case.body, case.kind, case.path, case.method, **case.headers)
            slowest = max(slowest, time.perf_counter() - begun)
            statuses[str(status)] += 1
            if not is_right(case, status, said):
                wrong.append(f"{case.name}: {status} {said[:200]!r}")
        for raw in raw_cases(slow):
            found, said = ask_raw(server.port, raw)
            statuses["closed" if found is None else str(found)] += 1
            if found not in raw.expected or b"Traceback" in said:
                wrong.append(f"{raw.name}: {found} {said[:200]!r}")
        for line in wrong:
            print(line, file=sys.stderr)
        status, _ = server.ask(dumps(ROW))
        values: dict[str, float] = {
            "requests": statuses.total(),
            "wrong": len(wrong),
            "tracebacks_in_the_log": server.said.count("Traceback"),
        }
        values |= {f"status_{status}": count for status, count in sorted(statuses.items())}
        values |= {"slowest_seconds": slowest, "status_of_a_right_one_after": status}
        values |= {"megabytes_before": before, "megabytes_after": server.megabytes}
        yield from rows_of("hostile", "every request", values)


def measure_kills(models: dict[str, Path], kills: int) -> Iterator[Record]:
    """Ends without and with a word."""
    answered, seconds = 0, list[float]()
    for number in range(kills):
        with Server([models["default"]], "--quiet") as server:
            statuses, over = Counter[int](), threading.Event()
            threads = under_load(server, over.is_set, statuses, [])
            time.sleep(0.5 + 0.5 * number / kills)
            server.process.kill()
            server.process.wait()
            over.set()
            for thread in threads:
                thread.join()
            begun = time.monotonic()
            with Server([models["default"]], "--quiet", port=server.port) as again:
                answered += again.ask(bodies(1, 0, [f"x{i}" for i in range(8)])[1][JSON])[0] == 200
                seconds.append(time.monotonic() - begun)
    yield from rows_of(
        "kills", "SIGKILL under load", {"kills": kills, "answered_after": answered, "seconds_to_start": max(seconds)}
    )
    finished, codes, longest = 0, Counter[int](), 0.0
    large = bodies(20_000, 0, [f"x{i}" for i in range(8)])[1][ARROW]
    for _ in range(kills):
        with Server([models["default"]], "--quiet") as server:
            found: list[int] = []

            def ask(server: Server = server, found: list[int] = found) -> None:
                found.append(server.ask(large, ARROW)[0])

            thread = threading.Thread(target=ask)
            thread.start()
            time.sleep(0.2)
            begun = time.monotonic()
            codes[server.end()] += 1
            thread.join()
            longest = max(longest, time.monotonic() - begun)
            finished += found == [200]
    values = {"ends": kills, "requests_answered": finished, "exit_code_0": codes[0], "longest_seconds": longest}
    yield from rows_of("kills", "SIGTERM with 20,000 rows under way", values)


def measure_token(models: dict[str, Path]) -> Iterator[Record]:
    """What may be had off loopback without a token."""
    with Server([models["mixed"]], "--host", "0.0.0.0") as refused:
        code = refused.process.wait()
    with Server([models["mixed"]], "--host", "0.0.0.0", environment={"GWI_TOKEN": TOKEN}) as server:
        others, asked, opened = Counter[int](), 0, Counter[int]()
        paths = (
            "/",
            "/predict",
            "/models",
            "/models/mixed/predict",
            "/metrics",
            "/openapi.json",
            "/docs",
            "/nothing",
            "/../predict",
        )
        secrets = (
            None,
            "",
            "Bearer",
            "Bearer ",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN}0",
            f"Basic {TOKEN}",
            TOKEN,
            f"Bearer {TOKEN.upper()}",
        )
        for path in paths:
            for method in ("GET", "POST", "OPTIONS", "HEAD"):
                for secret in secrets:
                    given = {} if secret is None else {"Authorization": secret}
                    others[server.ask(dumps(ROW), JSON, path, method, **given)[0]] += 1
                    asked += 1
        for path in ("/health", "/ready"):
            opened[server.ask(b"", JSON, path, "GET")[0]] += 1
        right = server.ask(dumps(ROW), Authorization=f"Bearer {TOKEN}")[0]
        values = {"exit_code_without_token": code, "requests_without_it": asked, "refused_401": others[401]}
        values |= {"health_and_ready_200": opened[200], "status_with_it": right, "token_in_the_log": server.said.count(TOKEN)}
        yield from rows_of("token", "0.0.0.0", values)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="those to measure; of others, records stay")
    parser.add_argument("--minutes", type=float, default=5.0, help="of load")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing is written")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    quick = options.quick
    with tempfile.TemporaryDirectory() as folder:
        models = fitted(Path(folder), quick)
        measured: dict[str, Callable[[], Iterator[Record]]] = {
            "speed": lambda: measure_speed(models, TURN if quick else 1000),
            "load": lambda: measure_load(models, 3.0 if quick else 60 * options.minutes),
            "hostile": lambda: measure_hostile(models, not quick),
            "kills": lambda: measure_kills(models, 1 if quick else 5),
            "token": lambda: measure_token(models),
        }
        if quick:
            for part in options.parts:
                for row in measured[part]():
                    print(*row.values(), sep=", ", flush=True)
            return
        for part in options.parts:
            fresh = list(measured[part]())
            known = [row for row in records.read("serving") if row["part"] != part]
            records.write("serving", sorted([*known, *fresh], key=lambda row: PARTS.index(row["part"])))


if __name__ == "__main__":
    main()
