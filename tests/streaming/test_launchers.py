"""The files of docs/distributed.md, as they stand there, on two processes: torchrun, Ray Train and Fabric give one model."""

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import torch

import gwi
from gwi import Covariance, GWIRegressor, predict_source
from gwi.fitting import stream_data as streams
from gwi.storage.container import from_bytes

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
LAUNCHERS = {"torchrun": [*TORCHRUN, "together.py"], "ray": ["together_ray.py"], "fabric": ["together_fabric.py"]}
PACKAGES = {"ray": "ray", "fabric": "lightning_fabric"}

# The same rows to learn from on each process, as one process reads them from files too.
ALONE = """
import json, sys
import gwi.fitting.stream_data as streams
from gwi import Covariance, GWIRegressor
from gwi.streaming.process_group import joined

streams.FEW_NUMBERS = 0
with joined() as processes:
    model = GWIRegressor("svgp", covariance=Covariance(num_inducing=40), random_state=0, verbose=0).fit("rows", "price")
    if processes.is_first:
        model.save("svgp.gwi")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The programs of the page, and tables for them."""
    path = tmp_path_factory.mktemp("launched")
    for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (path / name).write_text(text)
    # Thousands of steps would tell no more than some hundred, and each is a message that two processes wait for.
    program = (path / "together.py").read_text()
    (path / "together.py").write_text(f"import gwi.streaming.training\n\ngwi.streaming.training.FEWEST_STEPS = 200\n{program}")
    (path / "alone.py").write_text(ALONE)
    rng = np.random.default_rng(0)
    for name, count in (("rows/a", 2400), ("rows/b", 1100), ("unseen/a", 900), ("new/a", 1500), ("new/b", 800)):
        area, age, noise = rng.uniform(50, 200, count), rng.uniform(0, 80, count), rng.standard_normal(count)
        (path / name).parent.mkdir(exist_ok=True)
        table = pa.table({"area": area, "age": age, "price": area * np.exp(-age / 100) + 5 * noise})
        pq.write_table(table, path / f"{name}.parquet", row_group_size=500)
    return path


def require(launcher):
    """A test that is passed over because of a package would say nothing."""
    if launcher in PACKAGES and find_spec(PACKAGES[launcher]) is None:
        pytest.fail(f"{PACKAGES[launcher]} is not installed; run `make launchers`, which `make test-all` does by itself.")


def run(command, folder):
    """What a program and its processes print, with one thread each."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as short:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(folder), "RAY_TMPDIR": short}
        environment |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=1200
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def digits(printed):
    """What each process printed, by its number."""
    found = {int(rank): json.loads(values) for rank, values in re.findall(r"process (\d) of 2: (\[.*?\])", printed)}
    assert sorted(found) == [0, 1], printed
    return found


def without_seconds(node):
    """A document but for how long things took."""
    if isinstance(node, dict):
        return {key: without_seconds(value) for key, value in node.items() if key != "seconds"}
    return [without_seconds(part) for part in node] if isinstance(node, list) else node


# One test: side by side the launchers would only wait for each other.
def test_two_processes_under_any_launcher_give_one_model_and_its_predictions_to_the_last_bit(folder, tmp_path):
    for launcher in LAUNCHERS:
        require(launcher)
    printed, models = {}, {}
    for launcher, command in LAUNCHERS.items():
        printed[launcher] = digits(run([*command, "rows", "new", launcher], folder))
        models[launcher] = from_bytes((folder / launcher / "price.gwi").read_bytes())
    wanted = gwi.load(folder / "torchrun" / "price.gwi")
    whole = pq.read_table(predict_source(wanted, folder / "new", tmp_path / "whole.parquet"))
    document, tensors = models["torchrun"]
    for launcher, (found, others) in models.items():
        # The model of each process, and of each launcher.
        assert printed[launcher] == dict.fromkeys([0, 1], wanted.predict([[100.0, 20.0]]).tolist()), launcher
        assert without_seconds(found) == without_seconds(document)
        assert {name: value.numpy().tobytes() for name, value in others.items()} == {
            name: value.numpy().tobytes() for name, value in tensors.items()
        }
        # The predictions of both processes, in order, are those of one.
        files = sorted((folder / launcher / "predicted").iterdir())
        assert [file.name for file in files] == ["00000.parquet", "00001.parquet"]
        assert [pq.read_metadata(file).num_rows for file in files] == [1000, 1300]
        assert ds.dataset(folder / launcher / "predicted").to_table().equals(whole)


def test_two_processes_share_what_the_page_promises_with_one(folder, monkeypatch):
    monkeypatch.setattr(streams, "FEW_NUMBERS", 0)
    run([*TORCHRUN, "alone.py"], folder)
    model = GWIRegressor("svgp", covariance=Covariance(num_inducing=40), random_state=0).fit(folder / "rows", "price")
    model.save(folder / "one.gwi")
    (_, two), (_, one) = (from_bytes((folder / name).read_bytes()) for name in ("svgp.gwi", "one.gwi"))
    same = {name for name in one if torch.equal(one[name], two[name])}
    scales = {"x_centre", "x_scale", "y_centre", "y_scale"}
    assert {*scales, "mean.inducing_points", "kernel.0.raw_lengthscale", "kernel.0.raw_outputscale"} <= same
    x = pq.read_table(folder / "new").select(["area", "age"]).to_pandas().to_numpy()
    mean, std = model.predict(x, return_std=True)
    found = gwi.load(folder / "svgp.gwi").predict(x, return_std=True)
    np.testing.assert_allclose(found[0], mean, rtol=0, atol=1e-8 * mean.std())
    np.testing.assert_allclose(found[1], std, rtol=1e-6)


def test_a_network_that_fabric_trained_gets_one_covariance(folder):
    require("fabric")
    found = digits(run(["network_fabric.py", "rows", "unseen", "."], folder))
    assert found[0] == found[1]
    mean, std = found[0]
    # Trained on 3,500 rows with noise of 5 to within a few units; the truth is 81.9.
    assert abs(mean - 81.9) < 10
    assert 3 < std < 15
