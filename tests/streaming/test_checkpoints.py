"""A checkpoint is whole or the last one stays, and one of another fit is passed over."""

import resource

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor
from torch.utils.data import DataLoader, TensorDataset

from gwi import GWIRegressor
from gwi.core.kernels import default_kernel
from gwi.fitting import stream_data
from gwi.parts import Covariance
from gwi.streaming.checkpoints import Checkpoints
from gwi.streaming.fingerprint import described
from gwi.streaming.loaders import ArraySource, LoaderSource, fingerprint_of


def test_a_checkpoint_comes_back_to_the_last_bit(tmp_path):
    checkpoints = Checkpoints.of(tmp_path / "new", {"seed": 1})
    assert checkpoints.read("network") is None
    value = torch.randn(5, generator=torch.Generator().manual_seed(0))
    assert checkpoints.write("network", {"steps": 7}, {"w": value})
    progress, tensors = Checkpoints.of(tmp_path / "new", {"seed": 1}).read("network")
    assert progress == {"steps": 7}
    assert torch.equal(tensors["w"], value)
    assert Checkpoints.of(tmp_path / "new", {"seed": 2}).read("network") is None
    checkpoints.clear()
    assert checkpoints.read("network") is None


def test_checkpoints_are_private_and_their_seed_goes_with_them(tmp_path):
    folder = tmp_path / "new"
    assert Checkpoints.seed(folder, 7) == 7
    checkpoints = Checkpoints.of(folder, "fit")
    checkpoints.write("network", {"steps": 1}, {"w": torch.ones(3)})
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "network.checkpoint": 0o600,
        "seed.json": 0o600,
    }
    # One that others may read, from before, does not stay so.
    (folder / "network.checkpoint").chmod(0o644)
    checkpoints.write("network", {"steps": 2}, {"w": torch.ones(3)})
    assert (folder / "network.checkpoint").stat().st_mode & 0o777 == 0o600
    checkpoints.clear()
    assert list(folder.iterdir()) == []


def test_a_full_disk_leaves_the_last_checkpoint_and_says_so(tmp_path):
    checkpoints = Checkpoints.of(tmp_path, "fit")
    checkpoints.write("network", {"steps": 1}, {"w": torch.ones(2000)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The system refuses to let a file grow beyond 4 kB, as it does on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.warns(RuntimeWarning, match=r"could not be written \(.+\); the previous one is kept"):
            assert not checkpoints.write("network", {"steps": 2}, {"w": torch.ones(2000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoints.read("network")[0] == {"steps": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["network.checkpoint"]


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(tmp_path):
    checkpoints = Checkpoints.of(tmp_path, "fit")
    checkpoints.write("network", {"steps": 1}, {"w": torch.ones(3)})
    path = tmp_path / "network.checkpoint"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.warns(RuntimeWarning, match="starts again"):
        assert checkpoints.read("network") is None


def test_without_a_folder_nothing_is_kept():
    assert not Checkpoints().write("network", {}, {})
    assert Checkpoints().read("network") is None


def fitted(path, target="y", folder=None, num_inducing=10, **options):
    options = {"mean": "svgp", "covariance": Covariance(num_inducing=num_inducing), "random_state": 0, **options}
    return GWIRegressor(**options).fit(path, target, checkpoints=folder)


@pytest.fixture
def passes(monkeypatch):
    """How many first passes over the rows there were; a fit that goes on from a checkpoint has none."""
    monkeypatch.setattr(stream_data, "FEW_NUMBERS", 0)
    count = []
    plain = stream_data.sketch
    monkeypatch.setattr(stream_data, "sketch", lambda *given, **named: (count.append(1), plain(*given, **named))[1])
    return count


def write(path, y):
    pq.write_table(pa.table({"a": np.linspace(0, 1, len(y)), "b": np.cos(np.arange(len(y))), "y": y}), path, row_group_size=100)
    return path


@pytest.mark.unchecked
def test_a_fit_goes_on_where_only_the_manner_changed_and_not_where_the_rows_did(tmp_path, passes):
    y = np.sin(np.arange(400.0))
    path = write(tmp_path / "rows.parquet", y)
    first = fitted(path, folder=tmp_path / "kept")
    again = fitted(path, folder=tmp_path / "kept", n_jobs=2, verbose=0)
    assert len(passes) == 1
    np.testing.assert_array_equal(first.model_.law(np.ones((1, 2)))[0], again.model_.law(np.ones((1, 2)))[0])
    # As many rows in as many groups, with other values.
    write(path, 1000 - 50 * y)
    other = fitted(path, folder=tmp_path / "kept")
    assert len(passes) == 2
    assert other.model_.law(np.ones((1, 2)))[0] > 500
    fitted(path, folder=tmp_path / "kept", num_inducing=11)
    fitted(path, "a", folder=tmp_path / "kept")
    assert len(passes) == 4


@pytest.mark.unchecked
def test_a_fit_without_a_seed_goes_on_with_the_one_it_drew(tmp_path, passes):
    path = write(tmp_path / "rows.parquet", np.sin(np.arange(400.0)))
    first, again = (fitted(path, folder=tmp_path / "kept", random_state=None) for _ in range(2))
    assert len(passes) == 1
    np.testing.assert_array_equal(first.model_.law(np.ones((1, 2)))[0], again.model_.law(np.ones((1, 2)))[0])


def test_arrays_and_loaders_of_other_rows_have_other_fingerprints():
    x = np.arange(20.0).reshape(10, 2)
    assert fingerprint_of(ArraySource(x, x)) == fingerprint_of(ArraySource(x.copy(), x.copy()))
    assert fingerprint_of(ArraySource(x, x)) != fingerprint_of(ArraySource(x, -x))
    loaders = [DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y))) for y in (x, x, -x)]
    one, same, other = (fingerprint_of(LoaderSource(loader)) for loader in loaders)
    assert one == same != other


def test_descriptions_tell_values_apart_and_not_objects():
    def net(value):
        module = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Tanh())
        torch.nn.init.constant_(module[0].weight, value)
        torch.nn.init.constant_(module[0].bias, value)
        return module

    x = np.arange(6.0)[:, None]
    for one, same, other in [
        (net(1.0), net(1.0), net(2.0)),
        (default_kernel(2), default_kernel(2), default_kernel(3)),
        (Ridge(1.0), Ridge(1.0), Ridge(2.0)),
        (Ridge().fit(x, x[:, 0]), Ridge().fit(x, x[:, 0]), Ridge().fit(x, -x[:, 0])),
        (lambda v: v + 1, lambda v: v + 1, lambda v: v + 2),
        (x, x.copy(), x + 1),
    ]:
        assert described(one) == described(same) != described(other)
    trees = [DecisionTreeRegressor(random_state=0).fit(x, sign * x[:, 0]) for sign in (1, 1, -1)]
    assert described(trees[0]) == described(trees[1]) != described(trees[2])


def test_large_checkpoints_are_farther_apart(tmp_path):
    kept = Checkpoints.of(tmp_path, "fit", interval=2.0)
    assert kept.wait_after(0.001) == 2.0
    # One that takes a second comes after a hundred at the earliest.
    assert kept.wait_after(1.0) == pytest.approx(100.0)
    assert Checkpoints.of(tmp_path, "fit", interval=0.0).wait_after(1.0) == 0.0
