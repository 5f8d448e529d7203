"""Files at addresses are read and written like files of this machine: whole or not at all, and with one sentence for a fault."""

import functools
import http.server
import pickle
import threading
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import gwi
from gwi import Covariance, GWIRegressor, Predictor, predict_source, score_source
from gwi.cli import commands as cli
from gwi.exceptions import CheckpointWarning, ModelFileError, OutputError, UserError
from gwi.fitting import stream_data as streams
from gwi.streaming.checkpoints import Checkpoints
from gwi.tables.addresses import Remote, as_path
from gwi.tables.files import atomic_file, check_writable, write_atomically

pytestmark = pytest.mark.unchecked


class Flaky(MemoryFileSystem):
    """A disk in memory that fails as `fault` says, in the midst of a transfer."""

    protocol = "flaky"
    store, pseudo_dirs, fault = {}, [""], None

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("flaky://", "memory://"))

    def put_file(self, local, remote, **options):
        data = Path(local).read_bytes()
        if self.fault is not None:
            self.pipe_file(remote, data[: len(data) // 2])
            raise self.fault
        self.pipe_file(remote, data)


@pytest.fixture
def memory():
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/", recursive=True)


@pytest.fixture
def flaky(monkeypatch):
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    monkeypatch.setattr(Flaky, "store", {})
    return Flaky


def table(count=400, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, count))
    return pa.table({"a": a, "b": b, "y": np.sin(a) + b})


@pytest.fixture
def folder(tmp_path, memory):
    """The same files here and at an address."""
    (tmp_path / "rows").mkdir()
    for i in range(3):
        pq.write_table(table(seed=i), tmp_path / "rows" / f"{i}.parquet", row_group_size=150)
        memory.put_file(str(tmp_path / "rows" / f"{i}.parquet"), f"/bucket/rows/{i}.parquet")
    return tmp_path


@pytest.fixture
def served(tmp_path):
    """The address of a web server that shows a folder, and gives no parts of files."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.func.log_message = lambda *given: None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def fitted(data, **options):
    return GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=15)).fit(data, "y", **options)


X = np.random.default_rng(9).normal(size=(20, 2))


@pytest.mark.parametrize("few", [10**7, 0])
def test_a_fit_to_files_at_an_address_is_that_to_the_files_here(folder, monkeypatch, few):
    monkeypatch.setattr(streams, "FEW_NUMBERS", few)
    here, there = fitted(folder / "rows"), fitted("memory://bucket/rows")
    np.testing.assert_array_equal(there.predict(X), here.predict(X))
    np.testing.assert_array_equal(fitted(f"file://{folder}/rows").predict(X), here.predict(X))
    written = predict_source(there, "memory://bucket/rows", "memory://bucket/out/predicted.parquet")
    predict_source(here, folder / "rows", folder / "predicted.parquet")
    assert written.read_bytes() == (folder / "predicted.parquet").read_bytes()
    assert score_source(there, "memory://bucket/rows", "y") == score_source(here, folder / "rows", "y")


def test_columns_in_the_names_of_folders_are_features_at_an_address_too(folder, memory):
    wanted = table().append_column("year", pa.array([2020] * 200 + [2021] * 200))
    pq.write_to_dataset(wanted, folder / "years", partition_cols=["year"])
    for file in (folder / "years").rglob("*.parquet"):
        memory.put_file(str(file), f"/bucket/years/{file.relative_to(folder / 'years')}")
    here, there = fitted(folder / "years"), fitted("memory://bucket/years/")
    assert there.feature_names_in_.tolist() == ["a", "b", "year"]
    rows = np.column_stack([X, np.full(20, 2020.0)])
    np.testing.assert_array_equal(there.predict(rows), here.predict(rows))


def test_files_of_a_web_server_without_ranges_are_read(folder, served, monkeypatch):
    monkeypatch.setattr(streams, "FEW_NUMBERS", 0)
    here, there = fitted(folder / "rows" / "0.parquet"), fitted(f"{served}/rows/0.parquet")
    np.testing.assert_array_equal(there.predict(X), here.predict(X))
    here.save(folder / "m.gwi")
    np.testing.assert_array_equal(gwi.load(f"{served}/m.gwi").predict(X), here.predict(X))
    # One that was replaced meanwhile is not remembered.
    fitted(folder / "rows" / "1.parquet").save(folder / "m.gwi", overwrite=True)
    np.testing.assert_array_equal(gwi.load(f"{served}/m.gwi").predict(X), gwi.load(folder / "m.gwi").predict(X))


def test_models_and_predictors_have_addresses(folder, memory):
    model = fitted(folder / "rows")
    assert str(model.save("memory://bucket/m.gwi")) == "memory://bucket/m.gwi"
    with pytest.raises(FileExistsError, match=r"memory://bucket/m.gwi exists already; .* overwrite=True"):
        model.save("memory://bucket/m.gwi")
    model.save("memory://bucket/m.gwi", overwrite=True)
    np.testing.assert_array_equal(gwi.load("memory://bucket/m.gwi").predict(X), model.predict(X))
    predict = pickle.loads(pickle.dumps(Predictor("memory://bucket/m.gwi")))
    np.testing.assert_array_equal(np.asarray(predict(X)["prediction"]), model.predict(X))
    memory.pipe_file("/bucket/cut.gwi", memory.cat_file("/bucket/m.gwi")[:-7])
    with pytest.raises(ModelFileError, match=r"memory://bucket/cut.gwi was altered or cut off"):
        gwi.load("memory://bucket/cut.gwi")


def test_a_fit_goes_on_from_checkpoints_at_an_address(folder, memory, monkeypatch):
    monkeypatch.setattr(streams, "FEW_NUMBERS", 0)
    count, plain = [], streams.sketch
    monkeypatch.setattr(streams, "sketch", lambda *given, **named: (count.append(1), plain(*given, **named))[1])
    first, again = (fitted(folder / "rows", checkpoints="memory://bucket/kept/") for _ in range(2))
    assert len(count) == 1
    np.testing.assert_array_equal(first.predict(X), again.predict(X))
    assert Checkpoints.seed("memory://bucket/kept", 5) == Checkpoints.seed("memory://bucket/kept", 6) == 5
    kept = Checkpoints.of("memory://bucket/kept", "fit")
    kept.clear()
    assert memory.find("/bucket/kept") == []


def test_the_command_takes_addresses(memory, capsys):
    lines = "\n".join(f"{i % 7},{i % 3},{i % 7 + 0.5 * (i % 3) + 0.1 * (i % 5)}" for i in range(120))
    memory.pipe_file("/bucket/rows.csv", f"a,b,y\n{lines}\n".encode())
    data, model, out = "memory://bucket/rows.csv", "memory://bucket/m.gwi", "memory://bucket/out.csv"
    assert cli.run(["fit", data, "-t", "y", "-o", model, "--mean", "linear", "--quiet"]) == 0
    assert cli.run(["predict", model, data, "-o", out, "--quiet"]) == 0
    assert memory.cat_file("/bucket/out.csv").count(b"\n") == 121
    assert cli.run(["info", model]) == 0
    assert cli.run(["evaluate", model, data, "--quiet"]) == 0
    capsys.readouterr()
    assert cli.run(["predict", model, data, "-o", out]) == 2
    assert cli.run(["predict", model, data, "-o", data, "--force"]) == 2
    assert cli.run(["predict", "memory://bucket/none.gwi", data, "-o", out, "--force"]) == 2
    assert cli.run(["predict", model, "memory://bucket/none.csv", "-o", out, "--force"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "gwi: memory://bucket/out.csv exists; give --force to overwrite it.",
        "gwi: memory://bucket/rows.csv is also read; write to another file.",
        "gwi: memory://bucket/none.gwi does not exist.",
        "gwi: memory://bucket/none.csv does not exist.",
    ]
    assert [name for name in memory.find("/bucket") if ".gwi-" in name] == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (OSError(28, "No space left on device"), r"flaky://disk/m.bin cannot be written \(No space left on device\)"),
        (PermissionError("Access denied"), r"flaky://disk/m.bin cannot be written \(Access denied\)"),
        (RuntimeError("the line broke\nand more"), r"flaky://disk/m.bin cannot be written \(the line broke\)"),
        (KeyboardInterrupt("by hand"), "by hand"),
    ],
)
def test_a_transfer_that_breaks_leaves_the_file_as_it_was(flaky, monkeypatch, fault, said):
    write_atomically("flaky://disk/m.bin", b"the old one")
    monkeypatch.setattr(Flaky, "fault", fault)
    with pytest.raises(KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else OutputError, match=said):
        write_atomically("flaky://disk/m.bin", b"a new one, longer")
    assert {name: file.getvalue() for name, file in flaky.store.items()} == {"/disk/m.bin": b"the old one"}
    if isinstance(fault, OSError):
        with pytest.warns(CheckpointWarning, match=r"the checkpoint .* could not be written|there is no earlier one"):
            assert not Checkpoints.of("flaky://disk/kept", "fit").write("network", {"steps": 1}, {})


def test_an_error_while_writing_uploads_nothing(flaky):
    def fail():
        with atomic_file("flaky://disk/m.bin") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert flaky.store == {}
    check_writable("flaky://disk/m.bin")
    assert flaky.store == {}


def test_what_cannot_be_reached_is_one_sentence(folder, served):
    fsspec.register_implementation("nothere", "no_such_package.Files", clobber=True, errtxt="Install nothere-fs to access it")
    model = fitted(folder / "rows")
    for call, kind, said in (
        (lambda: gwi.load("nothere://b/m.gwi"), UserError, r"nothere://b/m.gwi needs a package .*\(Install nothere-fs"),
        (lambda: model.save("nothere://b/m.gwi"), UserError, r"nothere://b/m.gwi needs a package"),
        (lambda: fitted("nothere://b/rows"), UserError, r"nothere://b/rows needs a package"),
        (lambda: gwi.load("s33://b/m.gwi"), UserError, r"there is no file system s33://"),
        (lambda: gwi.load("memory://b/none.gwi"), FileNotFoundError, r"^memory://b/none.gwi does not exist.$"),
        (lambda: fitted("memory://b/none/"), FileNotFoundError, r"memory://b/none/ does not exist"),
        (lambda: gwi.load(f"{served}/none.gwi"), FileNotFoundError, r"none.gwi does not exist"),
        (lambda: fitted(f"{served}/none.parquet"), FileNotFoundError, r"none.parquet does not exist"),
        (lambda: gwi.load("http://127.0.0.1:9/m.gwi"), UserError, r"http://127.0.0.1:9/m.gwi cannot be read \(.*127.0.0.1"),
        (lambda: model.save(f"{served}/m.gwi"), UserError, r"http:// is for reading; write .* to another place"),
        (lambda: gwi.load(Path("s3://bucket/m.gwi")), UserError, r"s3:/bucket/m.gwi was an address .* give it as text"),
    ):
        with pytest.raises(kind, match=said) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_file_that_may_not_be_read_says_so(flaky, monkeypatch):
    def refuse(*given, **named):
        raise PermissionError("Forbidden")

    write_atomically("flaky://disk/m.gwi", b"x")
    monkeypatch.setattr(Flaky, "cat_file", refuse)
    with pytest.raises(UserError, match=r"flaky://disk/m.gwi cannot be read \(Forbidden\)"):
        gwi.load("flaky://disk/m.gwi")


def test_paths_of_this_machine_stay_what_they_are(tmp_path):
    assert as_path("a/b.csv") == Path("a/b.csv")
    assert as_path(tmp_path) == tmp_path
    assert as_path(f"file://{tmp_path}/a.csv") == tmp_path / "a.csv"
    found = as_path("s3://bucket/a/b.csv.gz")
    assert found == Remote("s3://bucket/a/b.csv.gz") == as_path(found)
    assert (found.name, found.suffix, found.suffixes) == ("b.csv.gz", ".gz", [".csv", ".gz"])
    assert as_path("http://h/a.parquet?key=1.csv").suffix == ".parquet"
    # Drives of Windows are no protocols.
    assert isinstance(as_path("C:/a.csv"), Path)
