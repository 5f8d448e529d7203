"""What a command writes is whole or not there, whatever ends it; and it says what happened in one sentence."""

import os
import resource
import signal
import stat
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

import processes
from gwi import GWIRegressor
from gwi.cli import commands as cli
from gwi.estimators import large, tables
from odd_files import text

pytestmark = pytest.mark.unchecked

# The command, which says when it predicts and then takes its time.
SLOW = """
import sys, time
from gwi.cli import commands
from gwi.estimators import tables
plain = tables.predict_table
def predict(self, table, *given):
    if table.number[0]:
        print("working", file=sys.stderr, flush=True)
        time.sleep(60)
    return plain(self, table, *given)
tables.predict_table = predict
commands.main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("outputs")
    (path / "data.csv").write_text(text())
    common = ["--mean", "linear", "-q", "--json", "--holdout", "0"]
    assert cli.run(["fit", f"{path}/data.csv", "-t", "y", "--drop", "label", "-o", f"{path}/y.gwi", *common]) == 0
    return path


def started(code, *arguments):
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *code, *map(str, arguments)]
    return subprocess.Popen(command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


# The others below, without a process that takes its time to start.
LATER = [pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGHUP, signal.SIGINT)]


@pytest.mark.parametrize("number", [signal.SIGTERM, *LATER])
def test_a_signal_removes_what_is_not_whole_and_says_so(folder, tmp_path, number):
    output = tmp_path / "out.csv"
    output.write_text("old")
    options = ["-o", output, "-q", "--force", "--chunk-size", 5]
    with processes.started(["-c", SLOW], "predict", folder / "y.gwi", folder / "data.csv", *options) as process:
        assert process.stderr.readline() == "working\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(number)
        assert process.stderr.read() == "gwi: interrupted; no output was written.\n"
        assert process.wait() == 128 + number
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.csv", "old")]


@pytest.fixture
def own_handlers():
    """Signals and hooks as they were, when the test is over."""
    numbers, hook = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT), sys.unraisablehook
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield
    sys.unraisablehook = hook
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_in_the_midst_of_a_prediction_leaves_the_old_file(folder, tmp_path, number, monkeypatch, capsys, own_handlers):
    output, plain = tmp_path / "out.csv", tables.predict_table
    output.write_text("old")
    half_done = []

    def predict(self, table, *given):
        if table.number[0]:
            half_done.extend(path.name for path in tmp_path.iterdir())
            signal.raise_signal(number)
        return plain(self, table, *given)

    monkeypatch.setattr(tables, "predict_table", predict)
    # As in a fresh process, whatever runs the tests has made of them.
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    options = ["-o", str(output), "-q", "--force", "--chunk-size", "5"]
    with cli.console.stopping_in_order():
        assert callable(signal.getsignal(number))
        assert cli.run(["predict", f"{folder}/y.gwi", f"{folder}/data.csv", *options]) == 128 + number
    assert len(half_done) == 2
    assert capsys.readouterr().err == "gwi: interrupted; no output was written.\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.csv", "old")]


def test_an_ignored_hangup_stays_ignored(own_handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with cli.console.stopping_in_order():
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert callable(signal.getsignal(signal.SIGTERM))
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_signal_that_falls_into_a_callback_is_not_lost(own_handlers, capsys):
    class Held:
        pass

    def callback(_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)

    def work():
        held = Held()
        references.append(weakref.ref(held, callback))
        with cli.console.stopping_in_order():
            del held
            time.sleep(30)

    references, hook = [], sys.unraisablehook
    with pytest.raises(SystemExit) as end:
        work()
    assert end.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "gwi: interrupted; no output was written.\n"
    assert references[0]() is None
    assert sys.unraisablehook is hook


def test_after_the_work_a_signal_just_ends_the_process(own_handlers):
    # A shell that starts the tests in the background has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with cli.console.stopping_in_order():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == [signal.SIG_DFL] * 2


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_fault(folder):
    """`gwi predict ... -o - | head -1`, and a reader that leaves before the first byte."""
    predict = ["predict", folder / "y.gwi", folder / "data.csv", "-o", "-", "-q", "--chunk-size", 1]
    for arguments, num_lines in ((predict, 1), (["info", folder / "y.gwi"], 0), (["--help"], 0)):
        with started(["-m", "gwi"], *arguments) as process:
            for _ in range(num_lines):
                assert process.stdout.readline().startswith("y,label,prediction")
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait(60) == 0


def test_a_broken_connection_to_something_else_is_no_success(folder, monkeypatch, capsys):
    def broken(*arguments):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(tables, "load_for_tables", broken)
    assert cli.run(["evaluate", f"{folder}/y.gwi", f"{folder}/data.csv"]) == 1
    assert "bug in gwi" in capsys.readouterr().err


def test_a_full_output_stream_is_one_sentence(folder):
    for arguments in (["predict", folder / "y.gwi", folder / "data.csv", "-o", "-", "-q"], ["info", folder / "y.gwi", "--json"]):
        with open("/dev/full", "w") as full, processes.started(["-m", "gwi"], *arguments, stdout=full) as process:
            said = process.stderr.read()
            assert said.startswith("gwi: Standard output cannot be written (No space left on device); free some space")
            assert said.count("\n") == 1
            assert process.wait() == 2


def test_an_interrupt_says_what_is_left(folder, tmp_path, capsys, monkeypatch):
    plain = tables.predict_table

    def interrupted(self, table, *given):
        if table.number[0]:
            raise KeyboardInterrupt
        return plain(self, table, *given)

    monkeypatch.setattr(tables, "predict_table", interrupted)
    arguments = ["predict", f"{folder}/y.gwi", f"{folder}/data.csv", "-q", "--chunk-size", "5"]
    assert cli.run([*arguments, "-o", f"{tmp_path}/out.csv"]) == 130
    assert capsys.readouterr().err == "gwi: interrupted; no output was written.\n"
    assert cli.run([*arguments, "-o", "-"]) == 130
    assert capsys.readouterr().err == "gwi: interrupted; the output is incomplete.\n"

    def interrupt(*arguments):
        raise KeyboardInterrupt

    # A large table's model is written before it is scored.
    monkeypatch.setattr(tables, "FEW_BYTES", 0)
    monkeypatch.setattr(large, "evaluate_tables", interrupt)
    output = tmp_path / "m.gwi"
    data = tmp_path / "data.csv"
    data.write_text(text())
    assert cli.run(["fit", str(data), "-t", "y", "-o", str(output), "--mean", "linear", "-q"]) == 130
    assert capsys.readouterr().err == f"gwi: interrupted; {output} was written, without scores.\n"
    assert output.exists()


def test_an_output_that_cannot_be_written_is_refused_before_the_work(folder, tmp_path, capsys, monkeypatch):
    def work(*arguments, **options):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("gwi.tables.source.open_table", work)
    monkeypatch.setattr("gwi.tables.source.read_table", work)
    monkeypatch.setattr(tables, "load_for_tables", work)
    monkeypatch.setattr("gwi.cli.demo.fit", work)
    os.mkfifo(tmp_path / "pipe")
    data, model = folder / "data.csv", folder / "y.gwi"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for command in (
        ["fit", data, "-t", "y"],
        ["predict", model, data],
        ["report", model, data],
        ["compare", data, "-t", "y"],
        ["demo"],
    ):
        for output, said in (("pipe", "is not an ordinary file"), (".", "is a folder"), ("none/a.png", "create it first")):
            assert cli.run([*map(str, command), "-o", f"{tmp_path}/{output}", "--force"]) == 2
            found = capsys.readouterr().err
            assert said in found
            assert found.count("\n") == 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
        try:
            assert cli.run([*map(str, command), "-o", f"{tmp_path}/a.png"]) == 2
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert f"{tmp_path}/a.png cannot be written (File too large); free some space" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
    assert cli.run(["demo", "-o", f"{tmp_path}/demo.txt"]) == 2
    assert "the name of the picture must end in" in capsys.readouterr().err


def test_force_replaces_no_device_no_pipe_and_no_folder(folder, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    if os.geteuid() == 0:
        os.mknod(tmp_path / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    for path in sorted(tmp_path.iterdir()):
        kind = path.lstat().st_mode
        code = cli.run(["predict", f"{folder}/y.gwi", f"{folder}/data.csv", "-o", str(path), "--force", "-q"])
        assert path.lstat().st_mode == kind
        assert code == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_disk_that_fills_during_a_prediction_leaves_the_old_file(folder, tmp_path, capsys):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name in ("out.csv", "out.parquet", "out.csv.gz"):
        output = tmp_path / name
        output.write_text("old")
        data = tmp_path / "long.csv"
        data.write_text("x,town\n" + "".join(f"{x},Ulm\n" for x in np.random.default_rng(0).normal(size=1000)))
        # Room for the trial before the work, not for the table.
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        try:
            assert cli.run(["predict", str(folder / "y.gwi"), str(data), "-o", str(output), "--force", "-q"]) == 2
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert f"gwi: {output} cannot be written (File too large); free some space" in capsys.readouterr().err
        assert output.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 4


def test_checkpoints_stay_until_the_model_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tables, "FEW_BYTES", 0)
    monkeypatch.setattr("gwi.fitting.stream_data.FEW_NUMBERS", 0)
    data, kept, output = tmp_path / "data.csv", tmp_path / "kept", tmp_path / "m.gwi"
    data.write_text(text() + 3 * text().split("\n", 1)[1])
    arguments = ["fit", str(data), "-t", "y", "-o", str(output), "--mean", "svgp", "--checkpoints", str(kept), "-q", "--force"]
    with monkeypatch.context() as patch:
        patch.setattr(GWIRegressor, "save", lambda self, path, **_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert cli.run(arguments) == 130
    assert list(kept.glob("*.checkpoint"))
    assert cli.run(arguments) == 0
    assert output.exists()
    assert list(kept.iterdir()) == []
