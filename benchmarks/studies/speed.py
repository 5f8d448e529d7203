"""Speed and memory: fitting against a deep ensemble and a Laplace approximation, predicting against GPyTorch, many rows.

    python -m benchmarks.studies.speed [--quick]

writes results/speed.csv, one row a quantity, its target in the note. Everything runs in one thread, and seconds are processor
seconds of the process: on an idle machine those are the seconds that pass, and on a busy one they are still the program's own.
What is compared takes turns, and the fastest turn counts. ``--quick`` goes through all of it on tiny synthetic tables and prints
only. The ratio to a Laplace approximation needs laplace-torch, which is no dependency; without it that row has no value.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from benchmarks.tables.common import records
from benchmarks.tables.uci.data import UCIName, load_uci, standardise
from gwi import GWIRegressor, load
from gwi._progress import silent
from gwi.core.measures import kernel_matrix
from gwi.core.networks import EnsembleMLP, mlp
from gwi.core.scaling import Scales
from gwi.fitting.data import ArrayData, HeldOut
from gwi.fitting.regression import RegressionTask
from gwi.parts import Covariance

COLUMNS = ("quantity", "set", "value", "note")
SETS: tuple[UCIName, ...] = ("kin8nm", "protein")
HIDDEN, NUM_NETWORKS, BATCH_SIZE = (128, 128), 5, 128
CHUNK_SIZES = (512, 1024, 2048, 4096, 8192)
Record = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        num_repeats: turns of each of the things compared.
        num_steps: of training a network.
        num_inducing: M.
        num_predicted: rows of a timed prediction.
        num_tuning: rows on which the other library's chunk size is chosen.
        num_remembered: rows of the prediction whose memory is taken.
        decades: numbers of rows of the fits whose cost is compared.
        num_rows: of a synthetic table in place of each real one; None for the real ones.
        max_time: of the fit with the default mean.
    """

    num_repeats: int = 3
    num_steps: int = 3000
    num_inducing: int = 300
    num_predicted: int = 100_000
    num_tuning: int = 20_000
    num_remembered: int = 1_000_000
    decades: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    num_rows: int | None = None
    max_time: float | None = None


QUICK = Sizes(
    num_repeats=1,
    num_steps=5,
    num_inducing=15,
    num_predicted=600,
    num_tuning=300,
    num_remembered=1000,
    decades=(300, 600, 1200),
    num_rows=300,
    max_time=1.0,
)


def record(quantity: str, name: str, value: float | None, note: str) -> Record:
    return dict(zip(COLUMNS, (quantity, name, "" if value is None else value, note), strict=True))


def table(name: UCIName, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Standardised rows and their standardised targets, shuffled."""
    generator = torch.Generator().manual_seed(0)
    if sizes.num_rows is None:
        x, y = load_uci(name)
    else:
        x = torch.randn(sizes.num_rows, 8 if name == "kin8nm" else 9, dtype=torch.float64, generator=generator)
        y = (x.sin().sum(1) + 0.3 * torch.randn(len(x), dtype=torch.float64, generator=generator))[None]
    order = torch.randperm(len(x), generator=generator)
    return standardise(x)[order], standardise(y.mT)[order, 0]


def resampled(x: Tensor, y: Tensor, num_rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """As many rows as wanted: rows drawn with replacement, each moved a little so that no two are equal."""
    rows = torch.randint(len(x), (num_rows,), generator=generator)
    jitter = torch.randn(num_rows, x.shape[1] + 1, dtype=x.dtype, generator=generator) / 20
    return x[rows] + jitter[:, :-1], y[rows] + jitter[:, -1]


def processor_seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def in_turns(functions: Mapping[str, Callable[[], Any]], num_repeats: int) -> dict[str, float]:
    """Processor seconds of each function's fastest turn: A, B, A, B, ..., so that a disturbance meets both."""
    seconds = [{name: processor_seconds(function) for name, function in functions.items()} for _ in range(num_repeats)]
    return {name: min(turn[name] for turn in seconds) for name in functions}


def train_one(x: Tensor, y: Tensor, num_steps: int, seed: int) -> nn.Sequential:
    """A plain network as most would train it: ReLU, Adam, squared error, batches in a random order."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(x.shape[1], hidden=HIDDEN, activation=nn.ReLU, generator=generator)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    batch = min(BATCH_SIZE, len(x))
    order = torch.empty(0, dtype=torch.long)
    for _ in range(num_steps):
        if len(order) < batch:
            order = torch.randperm(len(x), generator=generator)
        rows, order = order[:batch], order[batch:]
        optimiser.zero_grad()
        nn.functional.mse_loss(network(x[rows])[:, 0], y[rows]).backward()
        optimiser.step()
    return network


def train_separately(x: Tensor, y: Tensor, num_steps: int) -> list[nn.Sequential]:
    """Five networks, one after another: what a user of a deep ensemble runs."""
    return [train_one(x, y, num_steps, seed) for seed in range(NUM_NETWORKS)]


def train_together(x: Tensor, y: Tensor, num_steps: int) -> EnsembleMLP:
    """Five networks at once, as this package trains its own."""
    generator = torch.Generator().manual_seed(0)
    network = EnsembleMLP(x.shape[1], num_members=NUM_NETWORKS, hidden=HIDDEN, generator=generator)
    ones, unit = torch.ones_like(y), (np.zeros(x.shape[1]), np.ones(x.shape[1]), np.zeros(1), np.ones(1))
    nothing = HeldOut(x[:0], y[None, :0], ones[:0], None, may_be_known=False)
    data = ArrayData(x, y[None], ones, nothing, Scales(*unit), generator)
    data.train_ensemble(network, RegressionTask().loss, num_steps, False, "network", 0, silent)
    return network


def fit_frozen(network: nn.Module, x: Tensor, y: Tensor, num_validation: int, num_inducing: Any = "auto") -> GWIRegressor:
    """Prior, covariance, noise and tempering for a mean that stays as it is, judged on the last rows."""
    model = GWIRegressor(network, random_state=0, covariance=Covariance(num_inducing=num_inducing))
    return model.fit(x[:-num_validation], y[:-num_validation], validation=(x[-num_validation:], y[-num_validation:]))


def fit_laplace(network: nn.Module, x: Tensor, y: Tensor) -> Any:
    """Last-layer Laplace with its defaults, Kronecker factors and prior precision by the marginal likelihood."""
    # The package is optional and has no types.
    laplace: Any = importlib.import_module("laplace")
    rows = torch.utils.data.TensorDataset(x, y[:, None])
    fitted = laplace.Laplace(network, "regression", subset_of_weights="last_layer")
    fitted.fit(torch.utils.data.DataLoader(rows, batch_size=512))
    fitted.optimize_prior_precision(pred_type="glm", method="marglik")
    return fitted


def fit_against_ensemble_and_laplace(name: UCIName, sizes: Sizes) -> Iterator[Record]:
    """(a) A frozen mean's fit, whole, in units of training five networks, and of a last-layer Laplace approximation."""
    x, y = table(name, sizes)
    num_validation = len(x) // 10
    x_train, y_train = x[:-num_validation].float(), y[:-num_validation].float()
    network = train_one(x_train, y_train, sizes.num_steps, seed=0)
    work: dict[str, Callable[[], Any]] = {
        "fit": lambda: fit_frozen(network, x, y, num_validation),
        "together": lambda: train_together(x_train, y_train, sizes.num_steps),
        "separately": lambda: train_separately(x_train, y_train, sizes.num_steps),
    }
    has_laplace = importlib.util.find_spec("laplace") is not None
    if has_laplace:
        work["laplace"] = lambda: fit_laplace(network, x_train, y_train)
    seconds = in_turns(work, sizes.num_repeats)
    what = f"{NUM_NETWORKS} networks {'-'.join(map(str, HIDDEN))}, {sizes.num_steps} steps of {BATCH_SIZE} rows"
    fit = "GWIRegressor(network).fit with validation: prior, covariance, noise and tempering"
    yield record("fit_seconds", name, seconds["fit"], f"{fit}; {len(x_train)} rows, {num_validation} of validation")
    yield record("ensemble_seconds", name, seconds["together"], f"{what}, trained together as gwi trains its own")
    yield record("separate_networks_seconds", name, seconds["separately"], f"{what}, one after another in plain torch with Adam")
    yield record("fit_over_ensemble", name, seconds["fit"] / seconds["together"], "trained together; target at most 0.5")
    ratio = seconds["fit"] / seconds["separately"]
    yield record("fit_over_separate_networks", name, ratio, "trained one after another; target at most 0.5")
    if not has_laplace:
        yield record("fit_over_laplace", name, None, "laplace-torch is not installed")
        return
    note = f"laplace-torch {version('laplace-torch')}, last layer, fit and prior precision by marginal likelihood: "
    yield record("fit_over_laplace", name, seconds["fit"] / seconds["laplace"], f"{note}{seconds['laplace']:.3g} s; no target")


class PlainSVGP(ApproximateGP):
    """GPyTorch's sparse variational GP as its documentation writes it."""

    def __init__(self, inducing_points: Tensor):
        distribution = CholeskyVariationalDistribution(len(inducing_points))
        super().__init__(VariationalStrategy(self, inducing_points, distribution, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=inducing_points.shape[1]))

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at the rows of x."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


@torch.no_grad()
def plain_svgp(model: GWIRegressor, dtype: torch.dtype) -> tuple[PlainSVGP, nn.Module]:
    """GPyTorch's model with our Z, kernel and mean at Z, and its likelihood, ready to predict."""
    kernel = model.posterior_.kernel
    svgp = PlainSVGP(kernel.inducing_points.detach().to(dtype)).to(dtype)
    svgp.covar_module.base_kernel.lengthscale = kernel.prior_kernel.base_kernel.lengthscale.to(dtype)
    svgp.covar_module.outputscale = kernel.prior_kernel.outputscale.to(dtype)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dtype)
    # The first call in training mode would set the distribution to the prior; done here, outside what is timed.
    svgp.train()(kernel.inducing_points[:2].to(dtype))
    return svgp.eval(), likelihood.eval()


@torch.no_grad()
def predict_plain(svgp: PlainSVGP, likelihood: nn.Module, x: Tensor, options: tuple[int, bool]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of y by GPyTorch, with a chunk size and with or without `fast_pred_var`."""
    chunk_size, fast = options
    with gpytorch.settings.fast_pred_var(fast):
        laws = [likelihood(svgp(rows)) for rows in x.split(chunk_size)]
        return torch.cat([law.mean for law in laws]), torch.cat([law.stddev for law in laws])


def fastest(arguments: Sequence[Any], function: Callable[[Any], Any], num_repeats: int) -> Any:
    """The argument with which a function is fastest."""
    seconds = in_turns({str(i): partial(function, argument) for i, argument in enumerate(arguments)}, num_repeats)
    return arguments[min(range(len(arguments)), key=lambda i: seconds[str(i)])]


def predict_against_gpytorch(name: UCIName, sizes: Sizes) -> Iterator[Record]:
    """(b) Rows a second of mean and standard deviation, against GPyTorch's SVGP and against kernel and products alone."""
    x, y = table(name, sizes)
    model = GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=sizes.num_inducing)).fit(x[:4000], y[:4000])
    rows = x.repeat(math.ceil(sizes.num_predicted / len(x)), 1)[: sizes.num_predicted]
    array = rows.numpy()
    work: dict[str, Callable[[], Any]] = {"ours": lambda: model.predict(array, return_std=True)}
    choice: dict[str, tuple[int, bool]] = {}
    for dtype in (torch.float64, torch.float32):
        label = str(dtype).removeprefix("torch.")
        plain, x_plain = partial(predict_plain, *plain_svgp(model, dtype)), rows.to(dtype)
        options = [(chunk_size, fast) for chunk_size in CHUNK_SIZES for fast in (False, True)]
        choice[label] = fastest(options, partial(plain, x_plain[: sizes.num_tuning]), min(2, sizes.num_repeats))
        work[label] = partial(plain, x_plain, choice[label])
    bare = {size: bare_prediction(model, rows, size) for size in CHUNK_SIZES}
    size = fastest(CHUNK_SIZES, lambda size: bare[size](), sizes.num_repeats)
    work["bare"] = bare[size]
    seconds = in_turns(work, 2 * sizes.num_repeats)
    what = f"M = {sizes.num_inducing}, {len(rows)} rows, mean and standard deviation"
    yield record("predict_rows_per_second", name, len(rows) / seconds["ours"], f'mean="svgp", {what}, float64')
    for label, (chunk_size, fast) in choice.items():
        note = f"GPyTorch {version('gpytorch')}, {label}, chunks of {chunk_size} rows{', fast_pred_var' if fast else ''}"
        yield record(f"gpytorch_{label}_rows_per_second", name, len(rows) / seconds[label], f"{note}; {what}")
        ratio = seconds[label] / seconds["ours"]
        yield record(f"predict_over_gpytorch_{label}", name, ratio, "ratio of rates; target at least 2")
    note = f"of seconds: to k(Z, x) and its products with an M × M matrix and a vector, chunks of {size} rows; target at most 1.5"
    yield record("predict_over_kernel_and_products", name, seconds["ours"] / seconds["bare"], note)


def bare_prediction(model: GWIRegressor, x: Tensor, chunk_size: int) -> Callable[[], None]:
    """What no prediction from M inducing points can do without: the kernel, a matrix product, a product with a vector."""
    kernel, z = model.posterior_.kernel.prior_kernel, model.posterior_.kernel.inducing_points
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(len(z), len(z), dtype=x.dtype, generator=generator)

    @torch.no_grad()
    def run() -> None:
        for rows in x.split(chunk_size):
            k_zx = kernel_matrix(kernel, z, rows)
            _ = matrix @ k_zx, matrix[:1] @ k_zx

    return run


def peak_megabytes() -> float:
    """The largest resident memory that this process has had."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not getrusage: on Linux its peak is handed down from the process that started this one.
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024 / 1e6
    # Bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def report_peak(path: Path, num_rows: int) -> None:
    """Print peak memory before and after predicting so many rows with a stored model; for a process of its own."""
    model = load(path)
    assert isinstance(model, GWIRegressor)
    x = np.random.default_rng(0).standard_normal((num_rows, model.n_features_in_))
    before = peak_megabytes()
    model.predict(x, return_std=True)
    print(before, peak_megabytes())


def memory_of_prediction(sizes: Sizes) -> Iterator[Record]:
    """(c) Peak resident memory of a process that loads a model and predicts many rows."""
    name: UCIName = "kin8nm"
    x, y = table(name, sizes)
    models = {
        "svgp": GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=sizes.num_inducing)),
        "default": GWIRegressor(max_time=sizes.max_time, random_state=0),
    }
    for label, model in models.items():
        model.fit(x.numpy(), y.numpy())
        with tempfile.TemporaryDirectory() as folder:
            path = model.save(Path(folder) / "model.gwi")
            command = [
                sys.executable,
                "-m",
                "benchmarks.studies.speed",
                "--peak-of",
                str(path),
                "--rows",
                str(sizes.num_remembered),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=records.ROOT)
        before, peak = (float(value) for value in done.stdout.split())
        rows = f"{sizes.num_remembered} rows of {x.shape[1]} features"
        note = f"{label} mean, {rows}, whole process with Python, torch, model and rows"
        yield record(f"memory_megabytes_{label}", name, peak, f"{note}; target at most 1000")
        yield record(f"memory_before_megabytes_{label}", name, before, f"{note}, just before predicting")


def growth_of_fit(sizes: Sizes) -> Iterator[Record]:
    """(d) The exponent of a frozen mean's fit in the number of rows, with as many inducing points for all."""
    name: UCIName = "protein"
    x, y = table(name, sizes)
    network = train_one(x.float(), y.float(), sizes.num_steps // 3 + 1, seed=0)
    generator = torch.Generator().manual_seed(1)
    seconds = []
    for num_rows in sizes.decades:
        x_many, y_many = resampled(x, y, num_rows + num_rows // 10, generator)
        work = {"fit": partial(fit_frozen, network, x_many, y_many, num_rows // 10, sizes.num_inducing)}
        # A long fit is not disturbed as easily as a short one.
        seconds.append(in_turns(work, 1 if num_rows > 100_000 else sizes.num_repeats)["fit"])
        note = f"{num_rows} rows resampled with jitter, {num_rows // 10} of validation, M = {sizes.num_inducing}, frozen network"
        yield record(f"fit_seconds_{num_rows}_rows", name, seconds[-1], note)
    for label, first in (("overall", 0), ("last_decade", -2)):
        exponent = math.log(seconds[-1] / seconds[first]) / math.log(sizes.decades[-1] / sizes.decades[first])
        between = f"between {sizes.decades[first]} and {sizes.decades[-1]} rows"
        yield record(f"fit_exponent_{label}", name, exponent, f"log-log slope {between}; target at most 1.1")


def measure(sizes: Sizes) -> Iterator[Record]:
    """Every quantity, as soon as it is known."""
    for name in SETS:
        yield from fit_against_ensemble_and_laplace(name, sizes)
        yield from predict_against_gpytorch(name, sizes)
    yield from memory_of_prediction(sizes)
    yield from growth_of_fit(sizes)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing is written")
    parser.add_argument("--peak-of", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if options.peak_of is not None:
            report_peak(options.peak_of, options.rows)
        elif options.quick:
            for row in measure(QUICK):
                print(*row.values(), sep=", ", flush=True)
        else:
            # Rows of other scripts, such as benchmarks.studies.scale and benchmarks.studies.cli_speed, stay.
            others = [row for row in records.read("speed") if row["set"] not in SETS]
            records.write("speed", chain(measure(Sizes()), others))


if __name__ == "__main__":
    main()
