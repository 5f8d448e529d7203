"""Models as ONNX graphs: how far from `predict`, how large, how fast.

    python -m benchmarks.studies.onnx_export [--kinds svgp default likelihood class network]

writes results/onnx_export.csv, a row a model: the largest differences between ONNX Runtime and `predict` at rows that were not
learned from, at training rows and at rows up to ten ranges away, in standard deviations of the target (of probabilities as they
are; values larger than that count in their own size); the size of the file; and medians of the time for one row on one thread.
The nine UCI tables with 300 training rows, each with mean="svgp" and with the default stack; one table with 1,000; every
likelihood on a table drawn from it; classes of scikit-learn's digits and breast cancer; a network of digits that is taken as it
is. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn

from benchmarks.studies.loading import load
from benchmarks.studies.prior_draws import DRAWS, drawn
from benchmarks.tables.common.records import append, read
from benchmarks.tables.uci.data import UCIName
from gwi import GWIClassifier, GWIRegressor

NAME = "onnx_export"
NUM_ROWS, MORE_ROWS, NUM_TEST, NUM_TIMED, LARGE_BATCH = 300, 1000, 400, 400, 1000
WITHOUT_QUANTILES = ("beta",)
LEVELS = (0.025, 0.5, 0.975)
KINDS = ("svgp", "default", "likelihood", "class", "network")
Rows = NDArray[Any]
# What it is of, and what gives the model, rows to ask about, the unit of differences and levels of quantiles.
Case = tuple[str, str, Callable[[], tuple[Any, Rows, float, tuple[float, ...]]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["kind"], r["name"]) for r in read(NAME)}
    for kind, name, make in cases():
        if kind in arguments.kinds and (kind, name) not in done:
            record = {"kind": kind, "name": name, **measured(*make())}
            append(NAME, [record])
            print(record, flush=True)


def cases() -> Iterator[Case]:
    """Every model."""
    for name in get_args(UCIName):
        yield "svgp", name, partial(of_table, name, "svgp", NUM_ROWS)
    yield "svgp", "power, 1,000 rows", lambda: of_table("power", "svgp", MORE_ROWS)
    for name in get_args(UCIName):
        yield "default", name, partial(of_table, name, "auto", NUM_ROWS)
    for name in DRAWS:
        yield "likelihood", name, partial(of_likelihood, name)
    for data in ("digits", "breast cancer"):
        for likelihood in ("softmax", "robust-max"):
            yield "class", f"{data}, {likelihood}", partial(of_classes, data, "svgp", likelihood)
        yield "class", f"{data}, default", partial(of_classes, data, "auto", "softmax")
    yield "network", "digits", of_network


def of_table(name: str, mean: str, count: int) -> tuple[Any, Rows, float, tuple[float, ...]]:
    x, y = load(name)
    order = np.random.default_rng(0).permutation(len(y))[: count + NUM_TEST]
    x, y = x[order], y[order]
    model = GWIRegressor(mean, random_state=0).fit(x[:count], y[:count])
    return model, asked(x[:count], x[count:]), float(y.std()), LEVELS


def of_likelihood(name: str) -> tuple[Any, Rows, float, tuple[float, ...]]:
    x, f, rng = drawn(0)
    y = DRAWS[name](f, rng)
    known = y[..., :2] if name == "censored" else y
    model = GWIRegressor("svgp", likelihood=name, random_state=0).fit(x[:70], known[:70])
    spread = float(np.std(y[..., 2] if name == "censored" else y))
    return model, asked(x[:70], x[70:]), spread, () if name in WITHOUT_QUANTILES else LEVELS


def of_classes(data: str, mean: str, likelihood: str) -> tuple[Any, Rows, float, tuple[float, ...]]:
    X, y = {"digits": load_digits, "breast cancer": load_breast_cancer}[data](return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order].astype(np.float64), y[order]
    model = GWIClassifier(mean, likelihood=likelihood, random_state=0).fit(X[:NUM_ROWS], y[:NUM_ROWS])
    return model, asked(X[:NUM_ROWS], X[NUM_ROWS:]), 1.0, ()


def of_network() -> tuple[Any, Rows, float, tuple[float, ...]]:
    """Convolutions that were trained a little, around which there are 300 inducing points on features."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    images, labels = (X[order] / 16).reshape(-1, 1, 8, 8).astype(np.float32), y[order]
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 32), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(32, 10))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.2)
    for _ in range(300):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(torch.from_numpy(images[:1000])), torch.from_numpy(labels[:1000])).backward()
        optimiser.step()
    model = GWIClassifier(network, random_state=0)
    model.fit(images[:1000], labels[:1000], validation=(images[1000:1400], labels[1000:1400]))
    return model, images[1400:], 1.0, ()


def asked(train: Rows, others: Rows) -> Rows:
    """Rows that were not learned from, some that were, and some far away."""
    rng, low, high = np.random.default_rng(1), train.min(0), train.max(0)
    far = rng.uniform(low - 10 * (high - low), high + 10 * (high - low), (50, train.shape[1]))
    return np.concatenate([others[:NUM_TEST], train[:100], far])


def measured(model: Any, rows: Rows, unit: float, levels: tuple[float, ...]) -> dict[str, Any]:
    """Differences, size and times of one model."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        path = Path(model.export_onnx(Path(folder) / "model.onnx", levels))
        seconds, size = time.perf_counter() - start, path.stat().st_size
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options)
    given = rows.astype(np.float64)
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"X": given}), strict=True))
    differences = {
        name: float((np.abs(found[name] - values) / np.maximum(np.abs(values), unit)).max())
        for name, values in said(model, rows, levels).items()
    }
    large = np.concatenate([given] * (LARGE_BATCH // len(given) + 1))[:LARGE_BATCH]
    return {
        "inducing": len(model.posterior_.kernel.inducing_points),
        **{name: differences.get(name, float("nan")) for name in ("mean", "std", "quantiles", "probabilities", "outlier_score")},
        "kilobytes": size / 1000,
        "export_seconds": seconds,
        "milliseconds_a_row": 1000 * median(lambda i: session.run(None, {"X": given[i : i + 1]}), len(given), NUM_TIMED),
        "predict_milliseconds_a_row": 1000 * median(lambda i: spoken(model, rows[i : i + 1]), len(given), 30),
        "milliseconds_1000_rows": 1000 * median(lambda i: session.run(None, {"X": large}), 1, 5),
    }


def said(model: Any, rows: Rows, levels: tuple[float, ...]) -> dict[str, Rows]:
    """What the model says itself."""
    if hasattr(model, "predict_proba"):
        return {"probabilities": model.predict_proba(rows), "outlier_score": model.ood_score(rows)}
    parts = model.model_.parts(rows)
    mean, std = model.model_.law_of(parts)
    found = {"mean": mean[0], "std": std[0], "outlier_score": model.ood_score(rows)}
    return found | ({"quantiles": model.model_.quantiles_of(parts, levels)[0]} if levels else {})


def spoken(model: Any, row: Rows) -> Any:
    """What a user asks for one row."""
    return model.predict_proba(row) if hasattr(model, "predict_proba") else model.predict_columns(row)


def median(call: Callable[[int], Any], num_rows: int, count: int) -> float:
    """Seconds of a call."""
    call(0)
    seconds = []
    for i in range(count):
        start = time.perf_counter()
        call(i % num_rows)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


if __name__ == "__main__":
    main()
