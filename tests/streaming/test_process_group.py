"""On one to four processes, with uneven shares and an empty one, a fit is the same fit."""

import multiprocessing
import os
import pickle
import signal
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist

from gwi import GWIRegressor
from gwi.core import networks
from gwi.core.covariance import covariance_problem, titsias_covariance, wasserstein_covariance
from gwi.core.kernels import default_kernel
from gwi.core.means import KernelMean, titsias_coefficients
from gwi.fitting import stream_data as streams
from gwi.fitting.regression import RegressionTask
from gwi.fitting.stream_data import stream_data
from gwi.parts import Covariance
from gwi.streaming import training as parallel_training
from gwi.streaming.checkpoints import Checkpoints
from gwi.streaming.loaders import ArraySource
from gwi.streaming.process_group import ProcessGroup, joined
from gwi.streaming.training import add_gradients, train_on_stream
from gwi.tables.rows import Chunk

pytestmark = pytest.mark.unchecked

# The groups of each process: uneven shares, and the last process of three and of four has none.
SHARES = {1: [[0, 1, 2, 3, 4]], 2: [[0], [1, 2, 3, 4]], 3: [[4, 0], [3, 1, 2], []], 4: [[2], [0, 1], [3, 4], []]}


squares = RegressionTask().loss


def source():
    rng = np.random.default_rng(0)
    x = rng.normal([100, 0], [1, 5], (1000, 2))
    return ArraySource(x, np.sin(x[:, :1] * 2) + 0.1 * rng.normal(size=(1000, 1)), group_size=230)


def together(work, num_processes, *arguments):
    """What the work returns on each of some processes, forked so that nothing is imported again."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    port = free_port()
    workers = [
        context.Process(target=_worker, args=(work, rank, num_processes, port, results, arguments))
        for rank in range(num_processes)
    ]
    for worker in workers:
        worker.start()
    found = {rank: pickle.loads(value) for rank, value in (results.get() for _ in workers)}
    for worker in workers:
        worker.join(30)
    for value in found.values():
        if isinstance(value, Exception):
            raise value
    return [found[rank] for rank in range(num_processes)]


def free_port():
    import socket

    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def _worker(work, rank, num_processes, port, results, arguments):
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(num_processes)}
    try:
        with joined(timeout=60.0) as processes:
            assert processes == ProcessGroup(rank, num_processes)
            # As bytes: tensors in a queue live only as long as the process that sent them.
            results.put((rank, pickle.dumps(work(*arguments))))
    except Exception as error:
        results.put((rank, pickle.dumps(error)))


def closed_forms(shares):
    """Sums, Titsias' and W₂'s S, the kernel mean, and the gradient of a network's loss."""
    data = stream_data(source(), torch.Generator().manual_seed(0), shares=shares)
    stream = data.stream
    kernel = default_kernel(2).requires_grad_(False)
    z, points = data.x[:15], data.x[15:60]
    sums = stream.sums(kernel, z)
    noisy = sums.weighted(0.05)
    problem = covariance_problem(kernel, z, points, noise_variance=0.05, num_data=stream.num_rows, divergence_weight=20.0)
    mean = KernelMean(kernel, z, titsias_coefficients(noisy))
    network = networks.mlp(2, hidden=(8,), generator=torch.Generator().manual_seed(0)).double()
    own = list(stream.chunks())
    losses = [squares(network(x), y.mT) for x, y in own]
    joint = torch.cat(losses) if losses else torch.empty(0, dtype=torch.float64)
    add_gradients(joint.sum() / stream.num_rows, list(network.parameters()), stream.processes)
    return {
        "rows": torch.tensor(sums.num_rows),
        "sample": data.x,
        "judges": data.held_out.x,
        "gram": sums.gram,
        "projection": sums.projection,
        "residual": sums.residual,
        "titsias": titsias_covariance(noisy),
        "wasserstein": wasserstein_covariance(problem).whitened_covariance,
        "mean": mean(points).detach(),
        "gradient": torch.cat([parameter.grad.reshape(-1) for parameter in network.parameters()]),
    }


@pytest.fixture(scope="module")
def alone():
    return closed_forms(SHARES[1])


@pytest.mark.parametrize("num_processes", [pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), 4])
def test_sums_covariances_mean_and_gradients_are_those_of_one_process(alone, num_processes):
    for found in together(closed_forms, num_processes, SHARES[num_processes]):
        for name in ("rows", "sample", "judges"):
            torch.testing.assert_close(found[name], alone[name], rtol=0, atol=0)
        for name in ("gram", "projection", "residual", "titsias", "wasserstein", "mean", "gradient"):
            scale = float(alone[name].abs().max())
            torch.testing.assert_close(found[name], alone[name], rtol=0, atol=1e-10 * scale, msg=name)


def test_gradients_are_those_of_the_mean_loss_over_all_rows():
    parameter = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    add_gradients((parameter * torch.arange(5.0, dtype=torch.float64)).sum() / 10, [parameter], ProcessGroup())
    assert float(parameter.grad) == pytest.approx(1.0)
    parameter.grad = None
    add_gradients(torch.zeros(()), [parameter], ProcessGroup())
    assert float(parameter.grad) == 0.0


def whole_fit(mean):
    streams.FEW_NUMBERS, parallel_training.FEWEST_STEPS = 0, 30
    model = GWIRegressor(mean, random_state=0, dtype="float64", covariance=Covariance(num_inducing=12)).fit(source())
    return model.predict(source().x[:40], return_std=True), model.summary_.num_rows


@pytest.mark.parametrize("mean", ["svgp", pytest.param("network", marks=pytest.mark.slow)])
def test_a_whole_fit_on_three_processes_ends_with_one_model(mean):
    found = together(whole_fit, 3, mean)
    for (values, std), num_rows in found[1:]:
        np.testing.assert_array_equal(values, found[0][0][0])
        np.testing.assert_array_equal(std, found[0][0][1])
        assert num_rows == 800
    if mean == "svgp":
        kept = streams.FEW_NUMBERS, parallel_training.FEWEST_STEPS
        (values, std), _ = whole_fit(mean)
        streams.FEW_NUMBERS, parallel_training.FEWEST_STEPS = kept
        np.testing.assert_allclose(found[0][0][0], values, rtol=0, atol=1e-8)
        np.testing.assert_allclose(found[0][0][1], std, rtol=1e-6)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_process_is_an_error_of_all(rank):
    with pytest.raises(RuntimeError, match="no luck on 0: no luck, on 1: no luck"):
        together(unlucky, 2, rank)


def unlucky(rank):
    """What two processes hear when one of them fails."""
    processes = ProcessGroup.current()

    def fail():
        if processes.rank == rank:
            raise RuntimeError("no luck")

    said = ""
    try:
        processes.from_first(fail) if rank == 0 else processes.gathered(fail)
    except RuntimeError as error:
        said = str(error)
    raise RuntimeError("no luck " + ", ".join(f"on {i}: {part}" for i, part in enumerate(processes.gathered(lambda: said))))


def trained(folder, interval, pause=0.0):
    """Parameters of a network with dropout after some epochs, with checkpoints in a folder."""
    shares = SHARES[dist.get_world_size() if dist.is_initialized() else 1]
    stream = stream_data(source(), torch.Generator().manual_seed(0), shares=shares).stream
    stream = replace(stream, checkpoints=Checkpoints.of(folder, "fit", interval))
    network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
    with torch.no_grad():
        for i, parameter in enumerate(network.parameters()):
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape) + 0.1 * i)

    def loss(x, y):
        time.sleep(pause)
        return squares(network(x.float()), y.mT.float())

    train_on_stream(network, loss, stream, name="network", seed=1, num_epochs=2, batch_size=80)
    return torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()])


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.slow
def test_a_killed_worker_costs_nothing_but_time(tmp_path):
    wanted = together(trained, 2, None, 0.0)[0]
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    steps = []
    for victim, last in ((0, 2), (1, 7), (0, 13)):
        port = free_port()
        arguments = (tmp_path, 0.0, 0.005)
        workers = [context.Process(target=_worker, args=(trained, rank, 2, port, results, arguments)) for rank in range(2)]
        for worker in workers:
            worker.start()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            # At every moment there is no checkpoint or a whole one: a damaged one would warn.
            found = Checkpoints.of(tmp_path, "fit").read("mean-1")
            if found is not None and found[0]["steps"] >= last:
                break
            time.sleep(0.05)
        os.kill(workers[victim].pid, signal.SIGKILL)
        for worker in workers:
            # The other would wait for its partner until the timeout: torchrun ends it at once.
            worker.kill()
            worker.join()
        found = Checkpoints.of(tmp_path, "fit").read("mean-1")
        steps.append(found[0]["steps"])
    assert steps == sorted(steps)
    assert 13 <= steps[-1] < 20
    for found in together(trained, 2, tmp_path, 0.0):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


class Own:
    """Rows of a user's own; or a half of them, those of this process."""

    features = None

    def __init__(self, is_half):
        whole, start = source(), 500 * ProcessGroup.current().rank
        place = slice(start, start + 500) if is_half else slice(None)
        self.x, self.y = whole.x[place], whole.y[place]
        self.group_sizes = (100,) * (len(self.x) // 100)

    def read(self, group, size=1 << 15):
        rows = slice(100 * group, 100 * group + 100)
        yield Chunk(self.x[rows], self.y[rows], np.arange(rows.start, rows.stop))


def fit_of(given):
    """Predictions of a fit to a user's own source, or to a file; or what was said."""
    streams.FEW_NUMBERS = 0
    rank = ProcessGroup.current().rank
    data = Own(given == "halves") if given in ("same", "halves") else f"{given}/{rank}.parquet"
    target = None if isinstance(data, Own) else "y"
    try:
        model = GWIRegressor("svgp", random_state=0, dtype="float64", covariance=Covariance(num_inducing=12)).fit(data, target)
    except ValueError as error:
        return str(error)
    return model.predict(source().x[:40], return_std=True)


def test_processes_share_the_rows_of_a_source_and_say_so_where_each_was_given_its_own(tmp_path):
    first, second = together(fit_of, 2, "same")
    np.testing.assert_array_equal(first, second)
    first, second = together(fit_of, 2, "halves")
    assert first == second
    assert first.startswith("Process 0 was given 500 rows in 5 groups, process 1 500 rows in 5 groups, and they are not the same")
    whole = source()
    for rank in range(2):
        columns = {"a": whole.x[:, 0], "b": whole.x[:, 1], "y": whole.y[:, 0]}
        pq.write_table(pa.table(columns), tmp_path / f"{rank}.parquet", row_group_size=250)
    # Copies of a file, with times of their own, are the same rows.
    os.utime(tmp_path / "1.parquet", (1, 1))
    first, second = together(fit_of, 2, str(tmp_path))
    np.testing.assert_array_equal(first, second)
    pq.write_table(pa.table({**columns, "y": -columns["y"]}), tmp_path / "1.parquet", row_group_size=250)
    assert "not the same rows" in together(fit_of, 2, str(tmp_path))[0]
