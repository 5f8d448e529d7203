"""The UCI table's machinery: what a method gets to see, what is recorded, and that nothing is lost or done twice."""

import csv
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import benchmarks.tables.uci.__main__ as command
import numpy as np
import pytest
import torch
from benchmarks.tables.common.splits import tail_splits
from benchmarks.tables.uci import interface, methods, networks, peers, protocol
from benchmarks.tables.uci.interface import Budget, Fitted
from benchmarks.tables.uci.peers import exact_gp_and_left_out
from benchmarks.tables.uci.protocol import CAPS, SMALL, Task, extent
from benchmarks.tables.uci.store import Key, Store
from benchmarks.tables.uci.treated import treated

from gwi.evaluation.regression import Law

pytestmark = pytest.mark.unchecked

TASK = Task("standard", "boston", 0, "gwi", 5.0, 0.01)


@pytest.fixture
def small_table(monkeypatch):
    """A made-up table in place of the real one; returns its targets."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    y = np.sin(x[:, 0]) + 0.3 * rng.normal(size=120)
    y[-1], x[-1] = y[0], x[0]

    def load(name):
        return torch.from_numpy(x), torch.from_numpy(y.copy())[None]

    monkeypatch.setattr(protocol, "load_uci", load)
    return y


def test_a_method_gets_training_rows_only_and_predicts_before_the_test_targets_are_read(small_table, monkeypatch):
    given = []

    def spy(x, y, seed, budget):
        given.extend([x, y])

        def predict(new):
            given.append(new)
            return Law(np.zeros((1, len(new))), np.ones((1, len(new))))

        return {"gwi": interface.Fitted(predict, {}, 0.0, 0.0)}

    monkeypatch.setitem(methods.METHODS, "gwi", spy)
    protocol.run(TASK)
    split = protocol.split_of(TASK, torch.zeros(120, 3))
    _, y, new = given
    np.testing.assert_array_equal(y, small_table[split.train.numpy()])
    assert new.shape == (12, 3)


# All share the frame of a task; these take long in it.
LONG = ("GWI-net (paper)", "GWI: SVGP (paper)", "NGBoost", "NGBoost, treated", "deep ensemble, treated")


@pytest.mark.parametrize("method", [pytest.param(m, marks=pytest.mark.slow if m in LONG else ()) for m in methods.METHODS])
def test_predictions_do_not_depend_on_the_test_targets(method, small_table, monkeypatch):
    task = replace(TASK, method=method)
    test = protocol.split_of(task, torch.zeros(120, 3)).test.numpy()
    laws = []
    original = protocol.score

    def keep(law, y):
        laws[-1].append(law)
        return original(law, np.zeros_like(y))

    monkeypatch.setattr(protocol, "score", keep)
    for value in (0.0, 1e6):
        small_table[test] = value
        laws.append([])
        records = protocol.run(task)
        assert [r["method"] for r in records] == list(methods.YIELDS[method])
        assert all(r.get("failure") is None for r in records)
    for first, second in zip(*laws, strict=True):
        # To the last bit, but for sums whose order a library leaves to the alignment of its arrays.
        np.testing.assert_allclose(first.mean, second.mean, rtol=1e-12)
        np.testing.assert_allclose(first.std, second.std, rtol=1e-12)


def test_duplicates_are_left_out_of_one_score(small_table, monkeypatch):
    def far(x, y, seed, budget):
        return {"gwi": interface.Fitted(lambda new: Law(np.full((1, len(new)), 9.0), np.ones((1, len(new)))), {}, 0.0, 0.0)}

    monkeypatch.setitem(methods.METHODS, "gwi", far)
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(protocol.duplicated(rows, np.array([[3.0, 4.0], [0.0, 1.0]])), [False, True])
    tasks = [replace(TASK, split=split) for split in range(20)]
    assert any((r := protocol.run(task)[0])["nll"] != r["nll_no_duplicates"] for task in tasks)


def test_the_extent_is_the_one_asked_for():
    tasks = list(extent())
    assert len(tasks) == len(set(tasks))
    count = {}
    for task in tasks:
        key = (task.protocol, task.table, task.method)
        count[key] = count.get(key, 0) + 1
        assert task.cpu_cap == CAPS[task.table]
    for table in SMALL:
        assert count["standard", table, "gwi"] == count["standard", table, "exact GP"] == 10
        assert count["standard", table, "GWI-net (paper)"] == 3
        assert count["gap", table, "gwi"] == count["tail", table, "NGBoost"] == count["gap", table, "exact GP, treated"] == 5
    assert count["standard", "naval", "SVGP"] == 5
    assert count["standard", "protein", "deep ensemble"] == 2
    assert ("standard", "protein", "GWI: SVGP (paper)") not in count
    assert ("standard", "kin8nm", "exact GP") not in count
    assert count["gap", "kin8nm", "GWI-net"] == count["tail", "kin8nm", "gwi"] == 5
    assert ("gap", "kin8nm", "exact GP") not in count
    assert ("standard", "kin8nm", "NGBoost, treated") not in count
    assert ("gap", "naval", "gwi") not in count


def test_tails_are_the_highest_fifth():
    x = torch.stack([torch.arange(10.0), torch.ones(10), -torch.arange(10.0)], dim=1)
    found = tail_splits(x)
    assert [split.name for split in found] == ["tail-0", "tail-2"]
    assert [sorted(split.test.tolist()) for split in found] == [[8, 9], [0, 1]]
    assert all(len(split.train) == 8 for split in found)


def test_a_peer_that_is_too_sure_gets_the_scale_and_the_tails_of_its_errors():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = x[:, 0] + 0.3 * rng.standard_t(4, size=600)

    def fit(x, y, seed, budget):
        return Fitted(lambda new: Law(new[:, 0][None], np.full((1, len(new)), 0.1)), {}, 0.0, 0.0)

    law = treated(fit)(x, y, 0, Budget(10.0)).predict(x[:3])
    assert law.degrees_of_freedom < 10
    assert 0.35 < law.std[0, 0] < 0.5


@pytest.mark.parametrize("method", [peers.ngboost, peers.histogram_boosting, networks.deep_ensemble])
def test_a_fit_without_a_fold_takes_the_settings_of_the_whole(method):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x[:, 0] + 0.3 * rng.normal(size=60)
    whole = method(x, y, 0, Budget(10.0, 0.01))
    part = method(x[:50], y[:50], 0, Budget(10.0, 0.01, whole.settings))
    assert part.settings == whole.settings


def test_a_file_of_an_earlier_version_gets_the_columns_it_lacks(tmp_path):
    path = tmp_path / "records.sqlite"
    Store(path).add([protocol.identity(TASK, "gwi") | {"nll": 1.5}])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE fits DROP COLUMN interval_score_95")
    store = Store(path)
    store.add([protocol.identity(TASK, "NGBoost") | {"nll": 1.0, "interval_score_95": 2.0}])
    assert {row["method"]: row["interval_score_95"] for row in store.rows()} == {"gwi": None, "NGBoost": 2.0}


def test_rows_left_out_of_an_exact_gp_are_those_of_gps_without_them():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(25, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=25)
    fitted, (mean, std) = exact_gp_and_left_out(x, y, Budget(20.0))
    law = fitted.predict(x)
    # With K the covariance of y: y − mean = σ² K⁻¹ y, and a row left out errs by (K⁻¹ y)_i/(K⁻¹)_ii with variance 1/(K⁻¹)_ii.
    noise_variance = fitted.settings["noise_variance"] * y.var()
    np.testing.assert_allclose(mean, y - (y - law.mean[0]) * std**2 / noise_variance, atol=1e-6)
    assert (std >= law.std[0] - 1e-9).all()


def test_a_record_is_written_once(tmp_path):
    store = Store(tmp_path / "records.sqlite")
    record = protocol.identity(TASK, "gwi") | {"nll": 1.5, "settings": {"a": 1}}
    store.add([record])
    with pytest.raises(Exception, match="UNIQUE"):
        store.add([protocol.identity(TASK, "gwi, W₂"), record])
    # The transaction was undone as a whole.
    assert store.keys() == {Key("standard", "boston", 0, "gwi")}
    assert store.rows()[0]["nll"] == 1.5
    store.add(protocol.failed(replace(TASK, method="NGBoost"), "ValueError: no"))
    assert store.keys(failed=True) == {Key("standard", "boston", 0, "NGBoost")}
    store.forget(store.keys(failed=True))
    assert len(store.keys()) == 1


def test_a_method_that_fails_is_recorded_with_its_reason_and_the_rest_goes_on(tmp_path):
    from distributed import Client, LocalCluster

    def function(task):
        if task.method == "NGBoost":
            raise ValueError("nothing to boost")
        return [
            protocol.identity(task, key.method) | {"nll": 0.0, "fit_seconds": 1.0, "cpu_seconds": 1.0} for key in task.records()
        ]

    store = Store(tmp_path / "records.sqlite")
    tasks = [replace(TASK, method=method, split=split) for method in ("NGBoost", "SVGP", "gwi") for split in range(4)]
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster, Client(cluster) as client:
        command.work(tasks, store, client, retries=1, function=function)
    assert store.keys() == {key for task in tasks for key in task.records()}
    assert {key.method for key in store.keys(failed=True)} == {"NGBoost"}
    assert "nothing to boost" in next(row["failure"] for row in store.rows() if row["method"] == "NGBoost")


@pytest.mark.usefixtures("uci_folder")
def test_the_small_version_runs_and_resumes(tmp_path, capsys, monkeypatch, thorough):
    sets = command.QUICK_SETS[: None if thorough else 1]
    monkeypatch.setattr(command, "QUICK_SETS", sets)
    # Another process takes as long to start as the fits take.
    arguments = ["--quick", "--workers", "1" if thorough else "0", "--records", str(tmp_path / "records.sqlite")]
    command.main(arguments)
    with (tmp_path / "records.csv").open() as file:
        first = list(csv.DictReader(file))
    assert list(first[0]) == list(command.COLUMNS)
    assert len(first) == len(sets) * (4 + len(methods.ABLATIONS))
    assert all(np.isfinite(float(row[column])) for row in first for column in command.COLUMNS[4:])
    capsys.readouterr()
    command.main(arguments)
    assert "NLL" not in capsys.readouterr().out
    with (tmp_path / "records.csv").open() as file:
        assert list(csv.DictReader(file)) == first


@pytest.mark.slow
@pytest.mark.usefixtures("uci_folder")
def test_killed_ten_times_every_fit_is_there_once(tmp_path):
    path = tmp_path / "records.sqlite"
    line = [sys.executable, "-W", "ignore", "-m", "benchmarks.tables.uci", "--quick", "--records", str(path)]
    rng = random.Random(0)
    wanted = {key for task in command.wanted(command.parse(["--quick"])) for key in task.records()}
    seen: dict[Key, str] = {}
    for _ in range(10):
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(5, 25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if path.exists():
            rows = Store(path).rows()
            now = {Key(r["protocol"], r["set"], r["split"], r["method"]): r["finished"] for r in rows}
            assert len(now) == len(rows)
            # What was finished stays, and is not made again.
            assert seen.items() <= now.items()
            seen = now
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    rows = Store(path).rows()
    assert len(rows) == len(wanted)
    now = {Key(r["protocol"], r["set"], r["split"], r["method"]): r["finished"] for r in rows}
    assert set(now) == wanted
    assert seen.items() <= now.items()


def test_steps_are_planned_from_what_later_steps_cost(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.process_time", lambda: clock[0])
    monkeypatch.setattr(methods, "Budget", lambda seconds: interface.Budget(seconds, started=clock[0]))

    def fit(steps):
        clock[0] += 2.5 + sum(0.02 if step < 20 else 0.08 for step in range(steps))

    budget = methods.Budget(60.0)
    steps = methods.affordable_steps(fit, budget, most=2000)
    fit(steps)
    assert 45 < budget.spent() <= 60
    assert methods.affordable_steps(lambda steps: None, methods.Budget(60.0), most=100) == 100
