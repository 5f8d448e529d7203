"""Predictions a second, of one row and of many, beside those of an earlier version.

    python -m benchmarks.studies.prediction_speed [--before FOLDER] [--quick]

writes results/prediction_speed.csv: for models of kin8nm with as many inducing points as rows, microseconds a row of
`predict(X, return_std=True)` and `predict_proba`, and the peak memory of a process that predicts many. ``--before`` names a
checkout of an earlier version, which predicts from the same files. Both versions wait in processes of their own and take turns,
each in one thread: the ratios say more than the numbers, which are those of one machine that others may use as well. ``--quick``
goes through all of it with tiny models and prints only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.studies.speed import peak_megabytes
from benchmarks.tables.common import records
from benchmarks.tables.uci.data import load_uci
from gwi import GWIClassifier, GWIRegressor, load

KINDS = ("svgp", "default", "classifier svgp", "classifier")
# Of few rows in one turn; and rows from which on a call is timed once a turn, and the fastest of few turns counts.
MOST_CALLS, MANY_ROWS, TURNS_OF_MANY = 200, 5_000, 3


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        fitted: rows of each fit, all of them inducing points, with the numbers of rows of a timed prediction.
        remembered: rows of the prediction whose memory is taken, of the smallest model.
        rounds: turns of each version.
        seconds: for which a call of few rows is repeated in each turn.
        max_time: of each fit.
    """

    fitted: Mapping[int, Sequence[int]] = field(
        default_factory=lambda: {300: (1, 100, 10_000, 1_000_000), 2000: (1, 100, 10_000)}
    )
    remembered: int = 1_000_000
    rounds: int = 5
    seconds: float = 0.2
    max_time: float | None = None


QUICK = Sizes(fitted={40: (1, 10)}, remembered=100, rounds=1, seconds=0.01, max_time=1.0)


def fit(kind: str, x: Any, y: Any, sizes: Sizes) -> Any:
    """A model of this kind."""
    mean = "svgp" if "svgp" in kind else "auto"
    if not kind.startswith("classifier"):
        return GWIRegressor(mean, random_state=0, max_time=sizes.max_time).fit(x, y)
    labels = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))
    return GWIClassifier(mean, random_state=0, max_time=sizes.max_time).fit(x, labels)


def serve(path: Path) -> None:
    """Load a model, and answer each line, a number of rows and seconds, with the median seconds of a call and the peak."""
    model = load(path)
    ask = model.predict_proba if isinstance(model, GWIClassifier) else lambda rows: model.predict(rows, return_std=True)
    known = load_uci("kin8nm")[0].numpy() if model.n_features_in_ == 8 and "GWI_DATA" in os.environ else None
    for line in sys.stdin:
        count, seconds = int(line.split()[0]), float(line.split()[1])
        # Each call asks for other rows, as far as there are any: some need more steps than others.
        if known is None:
            x = np.random.default_rng(0).standard_normal((max(count, 100), model.n_features_in_))
        else:
            x = np.tile(known, (count // len(known) + 1, 1))
        taken: list[float] = []
        while not taken or (sum(taken) < seconds and len(taken) < MOST_CALLS):
            first = len(taken) * count % (len(x) - count + 1)
            start = time.perf_counter()
            ask(x[first : first + count])
            taken.append(time.perf_counter() - start)
        # The first finds caches cold.
        print(float(np.median(taken[1:] or taken)), peak_megabytes(), flush=True)


class Server:
    """A version of the package that predicts in a process of its own.

    Args:
        root: its checkout.
        path: of the model.
    """

    def __init__(self, root: Path, path: Path):
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(path)]
        # This script, with the package of that checkout.
        environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{records.ROOT}", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, num_rows: int, seconds: float) -> tuple[float, float]:
        """Seconds of a call, and peak megabytes so far."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{num_rows} {seconds}\n")
        self.process.stdin.flush()
        taken, peak = self.process.stdout.readline().split()
        return float(taken), float(peak)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def versions(before: Path | None) -> dict[str, Path]:
    """The checkouts that are compared, by label."""
    return ({} if before is None else {"before": before}) | {"after": records.ROOT}


def compared(path: Path, counts: Sequence[int], roots: Mapping[str, Path], sizes: Sizes) -> dict[str, dict[int, float]]:
    """The median over rounds of microseconds a row, of each version and number of rows; versions take turns."""
    servers = {label: Server(root, path) for label, root in roots.items()}
    taken: dict[str, dict[int, list[float]]] = {label: {count: [] for count in counts} for label in roots}
    for count in counts:
        for _ in range(min(sizes.rounds, TURNS_OF_MANY) if count > MANY_ROWS else sizes.rounds):
            for label, server in servers.items():
                taken[label][count].append(server.ask(count, 0.0 if count > MANY_ROWS else sizes.seconds)[0])
    for server in servers.values():
        server.__exit__(None, None, None)
    # Long calls are disturbed rarely and much: of these the fastest.
    return {
        label: {n: 1e6 / n * float(min(found) if n > MANY_ROWS else np.median(found)) for n, found in rows.items()}
        for label, rows in taken.items()
    }


def measure(sizes: Sizes, before: Path | None = None) -> Iterator[dict[str, Any]]:
    """Every number, as soon as it is known."""
    if max(sizes.fitted) < 100:
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((200, 5)), rng.standard_normal(200)
    else:
        features, targets = load_uci("kin8nm")
        order = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))
        x, y = features[order].numpy(), targets.reshape(-1)[order].numpy()
    roots = versions(before)
    for (num_fitted, counts), kind in ((pair, kind) for pair in sizes.fitted.items() for kind in KINDS):
        # Classes of many rows take minutes and say no more.
        asked = [count for count in counts if not (kind.startswith("classifier") and count > 100_000)]
        with tempfile.TemporaryDirectory() as folder:
            path = fit(kind, x[:num_fitted], y[:num_fitted], sizes).save(Path(folder) / "model.gwi")
            found = compared(path, asked, roots, sizes)
            for count in asked:
                what = {"model": kind, "inducing_points": num_fitted, "rows": count, "quantity": "microseconds_a_row"}
                values = {label: found[label][count] for label in roots}
                yield row(what, values)
            if num_fitted == min(sizes.fitted) and not kind.startswith("classifier"):
                peaks = {}
                for label, root in roots.items():
                    with Server(root, path) as server:
                        peaks[label] = server.ask(sizes.remembered, 0.0)[1]
                what = {"model": kind, "inducing_points": num_fitted, "rows": sizes.remembered, "quantity": "peak_megabytes"}
                yield row(what, peaks)


def row(what: dict[str, Any], values: Mapping[str, float]) -> dict[str, Any]:
    """One line: what was measured, before and after, and before over after."""
    before, after = values.get("before"), values["after"]
    ratio = "" if before is None else before / after
    return what | {"before": "" if before is None else before, "after": after, "ratio": ratio}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing is written")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if options.serve is not None:
            serve(options.serve)
        elif options.quick:
            for found in measure(QUICK, options.before):
                print(*found.values(), sep=", ", flush=True)
        else:
            records.write("prediction_speed", measure(Sizes(), options.before))


if __name__ == "__main__":
    main()
