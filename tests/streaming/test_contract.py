"""A source of a user's own fits, predicts and is scored like arrays; what breaks its contract is one sentence."""

import sqlite3
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import gwi
from gwi import Covariance, GWIClassifier, GWIRegressor, predict_source, score_source
from gwi.fitting import stream_data as streams
from gwi.streaming import Chunk, RowSource
from gwi.streaming.contract import CheckedSource
from gwi.streaming.loaders import ArraySource, as_source, fingerprint_of, in_order

pytestmark = pytest.mark.unchecked
SIZES = (300, 0, 250, 50)


def rows():
    rng = np.random.default_rng(0)
    x = rng.normal([10, 0], [1, 4], (600, 2))
    return x, np.sin(x[:, 0]) + 0.1 * x[:, 1] + 0.05 * rng.normal(size=600)


class Cursor:
    """Rows of a table of SQLite, each group one query."""

    features, group_sizes = ("a", "b"), SIZES

    def __init__(self, path):
        self.path = path

    def read(self, group, size=1 << 15):
        start = sum(self.group_sizes[:group])
        with sqlite3.connect(self.path) as base:
            query = "SELECT a, b, y FROM t WHERE id >= ? AND id < ? ORDER BY id"
            cursor = base.execute(query, (start, start + self.group_sizes[group]))
            while values := cursor.fetchmany(min(size, 70)):
                table = np.array(values)
                yield Chunk(table[:, :2], table[:, 2], np.arange(start, start + len(table)))
                start += len(table)


class Own:
    """Rows of arrays; `spoil` makes of each chunk what a faulty source would give."""

    features = None

    def __init__(self, x=None, y=None, sizes=SIZES, spoil=lambda chunk: chunk):
        if x is None:
            x, y = rows()
        self.x, self.y, self.group_sizes, self.spoil = x, y, sizes, spoil

    def read(self, group, size=1 << 15):
        start = sum(self.group_sizes[:group])
        place = slice(start, start + self.group_sizes[group])
        yield self.spoil(Chunk(self.x[place], self.y[place], np.arange(place.start, place.stop)))


@pytest.fixture
def cursor(tmp_path):
    x, y = rows()
    with sqlite3.connect(tmp_path / "rows.db") as base:
        base.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a REAL, b REAL, y REAL)")
        values = [(i, *row, target) for i, (row, target) in enumerate(zip(x.tolist(), y.tolist(), strict=True))]
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", values)
    return Cursor(tmp_path / "rows.db")


def model(source, y=None, **options):
    return GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=20), **options).fit(source, y)


def test_rows_of_a_database_fit_the_model_of_the_same_rows_as_arrays(cursor, monkeypatch):
    x, y = rows()
    assert isinstance(cursor, RowSource)
    assert gwi.streaming.RowSource is RowSource
    few = model(cursor).predict(x[:50], return_std=True)
    # Few rows are fitted as arrays are.
    np.testing.assert_array_equal(few, model(x, y).predict(x[:50], return_std=True))
    monkeypatch.setattr(streams, "FEW_NUMBERS", 0)
    streamed = model(cursor)
    assert streamed.feature_names_in_.tolist() == ["a", "b"]
    wanted = model(ArraySource(x, y[:, None], group_size=300)).predict(x[:50], return_std=True)
    np.testing.assert_allclose(streamed.predict(x[:50], return_std=True), wanted, rtol=0, atol=1e-8)


def test_rows_of_a_source_are_predicted_and_scored_by_the_names_of_their_columns(cursor, tmp_path):
    x, y = rows()
    fitted = model(cursor)

    class Turned(Cursor):
        features = ("b", "a")

        def read(self, group, size=1 << 15):
            for chunk in super().read(group, size):
                yield Chunk(chunk.x[:, ::-1], chunk.y, chunk.number)

    turned = Turned(cursor.path)
    for source in (cursor, turned):
        predict_source(fitted, source, tmp_path / "out.parquet")
        np.testing.assert_allclose(pq.read_table(tmp_path / "out.parquet")["prediction"], fitted.predict(x), rtol=1e-12)
        assert score_source(fitted, source).rmse == pytest.approx(np.sqrt(np.mean((fitted.predict(x) - y) ** 2)))
    turned.features = ("b", "c")
    for use in (lambda: predict_source(fitted, turned, tmp_path / "out.parquet"), lambda: score_source(fitted, turned)):
        with pytest.raises(ValueError, match="The source lacks 1 of 2 columns: 'a'"):
            use()
    with pytest.raises(ValueError, match="has 3 columns; the model was fitted to 2"):
        predict_source(model(Own()), Own(np.zeros((600, 3)), y), tmp_path / "none.parquet")
    frame = GWIRegressor("linear", random_state=0).fit(pd.DataFrame({"a": x[:, 0], "b": np.where(y > 0, "u", "v")}), y)
    for use in (lambda: predict_source(frame, cursor, tmp_path / "out.parquet"), lambda: score_source(frame, cursor)):
        with pytest.raises(ValueError, match="fitted to a data frame, and a source gives numbers"):
            use()
    # Targets are not needed to predict.
    predict_source(fitted, Own(x, np.full(600, np.nan)), tmp_path / "out.parquet")


def test_labels_of_a_source_are_classes():
    x, y = rows()
    labels = np.where(y > 0, "up", "down").astype(object)
    found = GWIClassifier("svgp", random_state=0).fit(Own(x, labels))
    assert found.classes_.tolist() == ["down", "up"]
    assert score_source(found, Own(x, labels)).accuracy > 0.9
    labels[320] = None
    with pytest.raises(ValueError, match="Group 2 of the source gave rows without a label"):
        GWIClassifier("svgp").fit(Own(x, labels))


FAULTS = {
    "fewer rows": (lambda c: c[:-1], r"Group 0 of the source gave 299 rows, and group_sizes says 300"),
    "more rows": (lambda c: Chunk.join([c, c]), r"Group 0 of the source numbered|gave more than 300 rows"),
    "a tuple": (lambda c: (c.x, c.y), r"gave tuple; read must yield gwi.streaming.Chunk"),
    "one axis": (lambda c: Chunk(c.x[:, 0], c.y, c.number), r"gave x of shape \(300,\) and type float64"),
    "text": (lambda c: Chunk(c.x.astype(str), c.y, c.number), r"gave x of shape \(300, 2\) and type <U\d+; it must be numbers"),
    "complex": (lambda c: Chunk(c.x, c.y.astype(complex), c.number), r"gave y of shape \(300,\) and type complex128"),
    "cut targets": (
        lambda c: SimpleNamespace(x=c.x, y=c.y[:-1], number=c.number),
        r"shapes \(300, 2\), \(299,\) and \(300,\); each must have all",
    ),
    "NaN": (lambda c: Chunk(np.where(c.number[:, None] == 7, np.nan, c.x), c.y, c.number), r"row 8: column 1 of x is NaN"),
    "infinite": (lambda c: Chunk(c.x, np.where(c.number == 9, np.inf, c.y), c.number), r"row 10: column 1 of y is NaN or inf"),
    "numbers from one": (lambda c: Chunk(c.x, c.y, c.number + 1), r"numbered its rows 1, …; the number of a row is its place"),
    "numbers of a group": (lambda c: Chunk(c.x, c.y, np.arange(len(c))), r"here from 300 on: np.arange\(300, 550\)"),
    "other columns": (
        lambda c: c if 300 not in c.number else Chunk(np.hstack([c.x, c.x]), c.y, c.number),
        r"gave 4 columns and 1 targets in rows from 301 on, and 2 columns and 1 targets before",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_source_that_breaks_its_contract_is_refused_in_one_sentence(fault, monkeypatch):
    monkeypatch.setattr(streams, "FEW_NUMBERS", 0)
    spoil, said = FAULTS[fault]
    with pytest.raises(ValueError, match=said):
        model(Own(spoil=spoil))


class Twice(Own):
    """Another order, or nothing, from the second pass on."""

    def __init__(self, later):
        super().__init__()
        self.later, self.seen = later, set()

    def read(self, group, size=1 << 15):
        for chunk in super().read(group, size):
            yield self.later(chunk) if group in self.seen else chunk
        self.seen.add(group)


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (lambda c: c[:0], r"gave 0 rows \(the first time it gave as many as it should\).* must start again"),
        (lambda c: Chunk(c.x[::-1], c.y[::-1], c.number), r"gave other rows than the first time, or .* in another order.* sort"),
        (lambda c: Chunk(c.x, c.y + 1e-9, c.number), r"gave other rows than the first time"),
    ],
)
def test_rows_that_change_between_passes_are_refused(later, said, monkeypatch):
    monkeypatch.setattr(streams, "FEW_NUMBERS", 0)
    with pytest.raises(ValueError, match=said):
        model(Twice(later))


def test_the_same_rows_in_other_chunks_are_the_same_rows():
    x, y = rows()
    for targets, labels in ((y, False), (np.where(y > 0, "up", "down").astype(object), True)):
        source = CheckedSource(Own(x, targets), labels=labels)
        for size in (1000, 64, 7):
            chunks = list(in_order(source, range(len(SIZES)), size))
            assert max(map(len, chunks)) <= size
            np.testing.assert_array_equal(np.concatenate([chunk.x for chunk in chunks]), x)


@pytest.mark.parametrize("sizes", [7, (1.5, 2), (-1, 3), "abc"])
def test_sizes_of_groups_are_counts(sizes):
    with pytest.raises(ValueError, match=r"group_sizes of the source is .* a tuple with the number of rows"):
        as_source(Own(sizes=sizes), None)


@pytest.mark.parametrize("names", ["ab", ("a", "a"), (1, 2)])
def test_names_of_columns_are_names(names):
    source = Own()
    source.features = names
    with pytest.raises(ValueError, match="features of the source is"):
        as_source(source, None)
    source.features = ("a", "b", "c")
    with pytest.raises(ValueError, match="gave 2 columns; features names 3"):
        list(as_source(source, None).read(0))


def test_a_source_brings_its_targets_and_needs_no_fingerprint():
    with pytest.raises(ValueError, match="leave y out"):
        model(Own(), "y")
    x, y = rows()
    one, same, other = (fingerprint_of(as_source(Own(x, targets), None)) for targets in (y, y.copy(), -y))
    assert one == same != other


def test_a_loader_with_a_share_for_each_process_is_read_whole():
    x, y = rows()
    tensors = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    shares = [DistributedSampler(tensors, num_replicas=2, rank=rank) for rank in range(2)]
    for sampler in shares:
        source = as_source(DataLoader(tensors, batch_size=64, sampler=sampler), None)
        np.testing.assert_array_equal(Chunk.join(list(in_order(source, [0]))).x, x)
