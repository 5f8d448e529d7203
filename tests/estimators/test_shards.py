"""Predictions in parts, by processes that know nothing of each other, are those of one process: to the last bit."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gwi import Covariance, GWIClassifier, GWIRegressor, predict_source
from gwi.estimators.bulk import groups_of_shard
from gwi.streaming.loaders import ArraySource

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of uneven row groups, one of which is larger than what is predicted at a time."""
    path = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    for name, count, size in (("a", 36_000, 34_000), ("b", 900, 100), ("c", 3_000, 1_000)):
        columns = {"x": rng.normal(size=count), "z": rng.uniform(size=count), "town": rng.choice(["Ulm", "Bonn"], count)}
        pq.write_table(pa.table(columns), path / f"{name}.parquet", row_group_size=size)
    return path


def models():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=150), "z": rng.uniform(size=150), "town": rng.choice(["Ulm", "Bonn"], 150)})
    y = np.sin(2 * frame["x"]) + frame["z"] + (frame["town"] == "Ulm")
    options = {"random_state": 0, "covariance": Covariance(num_inducing=30)}
    return {
        "numbers": GWIRegressor(["svgp", "linear"], **options).fit(frame[["z", "x"]], y),
        "frames": GWIRegressor("svgp", **options).fit(frame, y),
        "classes": GWIClassifier("svgp", **options).fit(frame, np.where(y > 1, "high", "low")),
    }


@pytest.fixture(scope="module")
def fitted():
    return models()


@pytest.fixture(scope="module")
def wholes(folder, fitted, tmp_path_factory):
    """Predictions without shards."""
    path = tmp_path_factory.mktemp("whole")
    return {kind: predict_source(model, folder, path / f"{kind}.parquet") for kind, model in fitted.items()}


@pytest.mark.parametrize("count", [1, 2, 20])
@pytest.mark.parametrize("kind", ["numbers", "frames", "classes"])
def test_shards_in_order_are_the_one_file_to_the_last_bit(folder, fitted, wholes, tmp_path, kind, count):
    whole = pq.read_table(wholes[kind])
    files = [
        predict_source(fitted[kind], folder, tmp_path / f"{place:05d}.parquet", shard=(place, count)) for place in range(count)
    ]
    # Tables of Arrow are equal where every bit is, but for NaN, of which there is none.
    assert pa.concat_tables([pq.read_table(file) for file in files]).equals(whole)
    rows = [pq.read_metadata(file).num_rows for file in files]
    assert sum(rows) == 39_900
    # There are 14 row groups, one with most of the rows: some of 20 shards are empty, and tables all the same.
    assert (min(rows) == 0) == (count > 2)
    if count == 1:
        assert files[0].read_bytes() == wholes[kind].read_bytes()


def test_shards_of_a_source_of_ones_own_are_the_whole(fitted, tmp_path):
    x = np.random.default_rng(2).normal(size=(5000, 2))
    source = ArraySource(x, np.zeros(5000), group_size=700)
    whole = pq.read_table(predict_source(fitted["numbers"], source, tmp_path / "whole.parquet"))
    parts = [pq.read_table(predict_source(fitted["numbers"], source, tmp_path / f"{i}.parquet", shard=(i, 3))) for i in range(3)]
    assert pa.concat_tables(parts).equals(whole)


@pytest.mark.parametrize("seed", range(20))
def test_shards_are_complete_follow_each_other_and_are_even(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 1000, rng.integers(1, 40)).tolist()
    for count in (1, 2, 5, 50):
        shards = [list(groups_of_shard(sizes, (place, count))) for place in range(count)]
        assert [group for shard in shards for group in shard] == list(range(len(sizes)))
        loads = [sum(sizes[group] for group in shard) for shard in shards]
        assert max(loads) <= sum(sizes) / count + max(sizes)


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0), (0.5, 2), 1, (1, 2, 3), "ab"])
def test_what_is_no_shard_is_said(shard):
    with pytest.raises(ValueError, match=r"shard must be \(i, n\): one of n parts"):
        groups_of_shard([5, 5], shard)


def test_what_is_no_shard_writes_nothing(folder, fitted, tmp_path):
    with pytest.raises(ValueError, match="shard must be"):
        predict_source(fitted["numbers"], folder, tmp_path / "out.parquet", shard=(2, 2))
    assert list(tmp_path.iterdir()) == []
