"""A source gives every row once whatever it is made of; its moments and its sample do not depend on how it is read."""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

from gwi._validation import is_source
from gwi.fitting.stream_data import stream_data
from gwi.streaming import loaders as sources
from gwi.streaming.batches import Sample, priorities
from gwi.streaming.loaders import ArraySource, as_source, in_order, shares_of, shuffled
from gwi.streaming.process_group import ProcessGroup
from gwi.streaming.summary import Moments, sketch
from gwi.tables.parquet import parquet_source
from gwi.tables.rows import Chunk


def rows(count=1000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal([1e6, 0, -3], [1, 1e-3, 5], (count, 3))
    return x, rng.normal(size=(count, 1))


class Stream(IterableDataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        return iter(zip(self.x, self.y, strict=True))


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The same rows as arrays, as one file, as a folder, as a dataset, and as three kinds of loader."""
    monkeypatch.setattr(sources, "GROUP_SIZE", 190)
    x, y = rows()
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "y": y[:, 0], "c": x[:, 2]})
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=170)
    folder = tmp_path / "folder"
    folder.mkdir()
    for i in range(3):
        pq.write_table(table.slice(400 * i, 400), folder / f"part{i}.parquet", row_group_size=130)
    tensors = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    return {
        "arrays": ArraySource(x, y, group_size=170),
        "file": as_source(tmp_path / "one.parquet", "y"),
        "folder": as_source(str(folder), "y"),
        "dataset": as_source(ds.dataset(folder), "y"),
        "loader": as_source(DataLoader(tensors, batch_size=64), None),
        "shuffling loader": as_source(DataLoader(tensors, batch_size=64, shuffle=True), None),
        "stream": as_source(DataLoader(Stream(x, y), batch_size=64), None),
    }


KINDS = ["arrays", "file", "folder", "dataset", "loader", "shuffling loader", "stream"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [50, 1000])
def test_every_source_gives_the_same_rows_under_the_same_numbers(made, kind, size):
    x, y = rows()
    source = made[kind]
    assert sum(source.group_sizes) == len(x)
    whole = Chunk.join(list(in_order(source, range(len(source.group_sizes)), size)))
    np.testing.assert_array_equal(whole.number, np.arange(len(x)))
    np.testing.assert_array_equal(whole.x, x)
    np.testing.assert_array_equal(whole.y, y)


@pytest.mark.parametrize("kind", KINDS)
def test_shuffling_gives_every_row_once_in_another_order_each_time(made, kind):
    source = made[kind]
    groups = range(len(source.group_sizes))
    first, again, other = (Chunk.join(list(shuffled(source, groups, seed, size=50, mixed=3))).number for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(np.sort(first), np.arange(1000))
    assert not (first == other).all()
    # Neighbours in the file are not neighbours in the order.
    assert (np.abs(np.diff(first)) == 1).mean() < 0.1


def test_a_sampler_of_a_subset_is_read_by_place(monkeypatch):
    monkeypatch.setattr(sources, "GROUP_SIZE", 190)
    x, y = rows()
    chosen = np.random.default_rng(0).permutation(1000)[:400]
    tensors = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    source = as_source(DataLoader(tensors, batch_size=64, sampler=SubsetRandomSampler(chosen.tolist())), None)
    assert source.group_sizes == (190, 190, 20)
    for _ in range(2):
        whole = Chunk.join(list(in_order(source, range(3))))
        np.testing.assert_array_equal(whole.x, x[np.sort(chosen)])


class Restless(Stream):
    def __iter__(self):
        order = torch.randperm(len(self.x)).tolist()
        return iter([(self.x[i], self.y[i]) for i in order])


def test_a_loader_whose_order_changes_is_refused_where_its_rows_judge():
    x, y = rows(200)
    drawn = WeightedRandomSampler([1.0] * 200, 200)
    for loader in (
        DataLoader(Restless(x, y), batch_size=64),
        DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=64, sampler=drawn),
    ):
        source = as_source(loader, None)
        with pytest.raises(ValueError, match=r"in a different order each time.* pass validation="):
            stream_data(source, torch.Generator().manual_seed(0))
        # Where other rows judge, any order will do.
        assert stream_data(source, torch.Generator().manual_seed(0), validation=(x, y)).num_rows == 200


def test_shares_are_even_and_complete():
    sizes = [10, 1, 1, 7, 3, 9]
    for num_processes in range(1, 9):
        shares = shares_of(sizes, num_processes)
        assert sorted(group for share in shares for group in share) == list(range(6))
        loads = [sum(sizes[group] for group in share) for share in shares]
        assert max(loads) - min(loads) <= max(sizes)


def test_merged_moments_are_numpys():
    x, _ = rows(500)
    whole = Moments.of(x[:0]) + Moments.of(x[:7]) + Moments.of(x[7:100]) + Moments.of(x[100:])
    assert whole.count == 500
    np.testing.assert_allclose(whole.mean, x.mean(0), rtol=1e-14)
    np.testing.assert_allclose(whole.std, x.std(0), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_depends_on_seed_and_row_numbers_alone(made, kind):
    found = sketch(made[kind], 3, num_sampled=60, num_judges=40)
    lowest = np.argsort(priorities(np.arange(1000), 3))
    np.testing.assert_array_equal(found.sample.number, lowest[:100])
    np.testing.assert_array_equal(found.judges.number, lowest[:40])
    np.testing.assert_array_equal(np.flatnonzero(found.is_judge(np.arange(1000))), np.sort(lowest[:40]))
    np.testing.assert_array_equal(found.learning.x, rows()[0][lowest[40:100]])


def test_samples_of_parts_merge_to_the_sample_of_the_whole():
    x, y = rows()
    lowest = np.argsort(priorities(np.arange(1000), 5))[:50]
    merged = Sample(50, 5)
    for part in np.array_split(np.arange(1000), 7):
        own = Sample(50, 5)
        own.add(Chunk(x[part], y[part], part))
        merged.add(own.rows())
    np.testing.assert_array_equal(merged.rows().number, lowest)
    np.testing.assert_array_equal(merged.in_order().x, x[np.sort(lowest)])


def test_a_sample_holds_little_more_than_it_needs():
    sample = Sample(100, 0)
    for part in np.array_split(np.arange(100_000), 1000):
        sample.add(Chunk(np.zeros((len(part), 1)), part, part))
        assert sum(map(len, sample._parts)) <= 100 + 1000 + 100
    assert sample.num_seen == 100_000
    np.testing.assert_array_equal(sample.rows().y, np.argsort(priorities(np.arange(100_000), 0))[:100])


def test_every_row_is_as_likely_to_be_sampled():
    numbers = np.arange(200)
    chosen = np.zeros(200)
    for seed in range(2000):
        chosen[np.argsort(priorities(numbers, seed))[:20]] += 1
    # 2000 draws with chance 1/10: a standard deviation of 13.4.
    assert np.abs(chosen - 200).max() < 5 * 13.4
    assert abs(((chosen - 200) ** 2).mean() / 180 - 1) < 0.4


def test_scales_of_a_sketch_are_those_of_the_arrays(made):
    x, y = rows()
    found = sketch(made["file"], 0).scales()
    wanted = sources_scales(x, y)
    np.testing.assert_allclose(found.x_centre, wanted.x_centre, rtol=1e-13)
    np.testing.assert_allclose(found.x_scale, wanted.x_scale, rtol=1e-9)
    np.testing.assert_allclose(found.y_scale, wanted.y_scale, rtol=1e-12)


def sources_scales(x, y):
    from gwi.core.scaling import Scales

    return Scales.of(x, y, np.ones(len(x)))


def test_labels_are_counted(tmp_path):
    pq.write_table(pa.table({"a": np.arange(10.0), "c": ["b", "a"] * 5}), tmp_path / "c.parquet", row_group_size=3)
    found = sketch(as_source(tmp_path / "c.parquet", "c", labels=True), 0, labels=True)
    assert found.labels == {"a": 5, "b": 5}
    assert sorted(found.sample.y.tolist()) == ["a"] * 5 + ["b"] * 5


def test_labels_are_there_and_plain(tmp_path):
    path = tmp_path / "c.parquet"
    features = {"a": np.arange(4.0)}
    pq.write_table(pa.table({**features, "c": ["b", None, "a", "b"]}), path)
    with pytest.raises(ValueError, match="Row 2, column 'c' has no label"):
        sketch(as_source(path, "c", labels=True), 0, labels=True)
    days = np.array(["2020-01-01", "2020-01-02"] * 2, dtype="datetime64[D]")
    amounts = pa.array([1, 2, 1, 2]).cast(pa.decimal128(25, 1))
    for column, wanted in ((days, {"2020-01-01": 2, "2020-01-02": 2}), (amounts, {"1.0": 2, "2.0": 2})):
        pq.write_table(pa.table({**features, "c": column}), path)
        assert sketch(as_source(path, "c", labels=True), 0, labels=True).labels == wanted


def whole(source):
    return Chunk.join(list(in_order(source, range(len(source.group_sizes)))))


def test_files_of_a_folder_may_differ_in_the_order_and_type_of_columns(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "b": [1.5, 2.5], "y": [1.0, 2.0]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"y": [3, 4], "b": pa.array([1, 2], pa.int8()), "a": [3.5, 4.5]}), tmp_path / "1.parquet")
    found = whole(as_source(tmp_path, "y"))
    assert found.x.tolist() == [[1, 1.5], [2, 2.5], [3.5, 1], [4.5, 2]]
    assert found.y[:, 0].tolist() == [1, 2, 3, 4]
    pq.write_table(pa.table({"a": [3.5], "b": [1.0], "c": [1.0], "y": [3.0]}), tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=r"has other columns than .* \('c'\); files of a folder must be parts of one table"):
        as_source(tmp_path, "y")


def test_columns_in_the_names_of_folders_are_features(tmp_path):
    table = pa.table({"year": [2020] * 3 + [2021] * 3, "a": np.arange(6.0), "y": np.arange(6.0)})
    pq.write_to_dataset(table, tmp_path, partition_cols=["year"])
    for data in (tmp_path, ds.dataset(tmp_path, partitioning="hive")):
        source = as_source(data, "y")
        assert source.features == ("a", "year")
        assert whole(source).x.tolist() == [[a, 2020 if a < 3 else 2021] for a in range(6)]


def test_a_dataset_with_options_of_its_own_is_read_by_its_scanner(tmp_path):
    pq.write_table(pa.table({"a": [1.0, 2.0], "k": ["u", "v"]}), tmp_path / "t.parquet")
    dataset = ds.dataset(tmp_path / "t.parquet", format=ds.ParquetFileFormat(read_options={"dictionary_columns": ["k"]}))
    assert whole(as_source(dataset, "k", labels=True)).y.tolist() == ["u", "v"]


def test_a_large_row_group_is_not_decoded_whole(tmp_path):
    x = np.random.default_rng(0).normal(size=(1_000_000, 2))
    pq.write_table(pa.table({"a": x[:, 0], "y": x[:, 1]}), tmp_path / "t.parquet", row_group_size=len(x))
    source = as_source(tmp_path / "t.parquet", "y")
    before = pa.total_allocated_bytes()
    reader = source.read(0, 1 << 12)
    np.testing.assert_array_equal(next(reader).x[:, 0], x[: 1 << 12, 0])
    assert pa.total_allocated_bytes() - before < x.nbytes / 2


def test_what_is_no_source_is_said_in_one_sentence(tmp_path):
    pq.write_table(pa.table({"a": [1.0, float("nan")], "t": ["x", "y"], "y": [1, 2]}), tmp_path / "t.parquet")
    assert is_source("a.parquet")
    assert not is_source(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="Column 't' holds string"):
        parquet_source(tmp_path / "t.parquet", "y")
    with pytest.raises(ValueError, match="no column 'z' to predict"):
        parquet_source(tmp_path / "t.parquet", "z")
    with pytest.raises(FileNotFoundError):
        as_source(tmp_path / "none.parquet", "y")
    pq.write_table(pa.table({"a": [1.0, float("nan")], "y": [1, 2]}), tmp_path / "n.parquet")
    with pytest.raises(ValueError, match="Row 2, column 'a' is missing"):
        sketch(parquet_source(tmp_path / "n.parquet", "y"), 0)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ValueError, match="is a damaged Parquet file"):
        parquet_source(tmp_path / "bad.parquet", "y")


def test_a_process_alone_is_its_whole_group():
    processes = ProcessGroup.current()
    (total,) = processes.total([torch.arange(3)])
    assert total.tolist() == [0, 1, 2]
    assert processes.gathered(lambda: 1) == [1]
    assert processes.from_first(lambda: 5) == 5
