"""Files made to do harm: the answer is right or one sentence, memory stays bounded, and the terminal gets no commands."""

import csv
import gzip
import json
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gwi._progress import printable
from gwi.cli import commands as cli
from gwi.estimators import tables
from gwi.tables.writer import excel_safe

pytestmark = pytest.mark.unchecked

QUICK = ["--mean", "linear", "--holdout", "0"]
# Turns the text red, clears the screen in eight bits, and turns its direction.
EVIL = "\x1b[31m\x9b2J\u202e"
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


def mistake(capsys, *arguments):
    capsys.readouterr()
    assert cli.run([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gwi: ")
    assert said.count("\n") == 1
    assert len(said) < 2100
    return said


def big(path, start, piece, size, opener=open):
    with opener(path, "wb") as file:
        file.write(start)
        for _ in range(size // len(piece)):
            file.write(piece)
    return path


LINE = "has more than 8388608 characters; write one row of the table per line"
LARGE = {
    "no line end": ("a.csv", b"", b"x" * 2**20, f"line 1: the line {LINE}"),
    "names without end": ("a.csv", b"", b"ab," * 2**18, f"line 1: the line {LINE}"),
    "a row without end": ("a.csv", b"a,b\n1,2\n", b"x" * 2**20, f"line 3: the line {LINE}"),
    "a packed line": ("a.csv.gz", b"", b"x" * 2**20, f"line 1: the line {LINE}"),
    "packed blank lines": ("a.csv.gz", b"", b"\n" * 2**20, "begins with more than 1000000 blank lines"),
    "a quoted cell without end": (
        "a.csv",
        b'a,b\n1,"',
        b"x\n" * 2**19,
        "line 2: a quotation mark opens a cell that never ends, or",
    ),
}


@pytest.mark.parametrize(("name", "start", "piece", "said"), LARGE.values(), ids=LARGE)
def test_a_file_of_any_size_needs_little_memory_to_be_refused(tmp_path, name, start, piece, said):
    """A quarter of a GB of text, of which a part is looked at; packed into a quarter of a MB."""
    path = big(tmp_path / name, start, piece, 2**28, gzip.open if name.endswith(".gz") else open)
    code = f"""
import resource, sys
from pathlib import Path
from gwi.exceptions import UserError
from gwi.tables.source import open_table, read_parts
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    for part in read_parts(open_table(Path({str(path)!r})), 1000): pass
except UserError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    path.unlink()
    sentence, megabytes = found.stdout.splitlines()
    assert sentence.startswith(f"{path}")
    assert said in sentence
    assert int(megabytes) < 200


def test_a_packed_table_that_does_not_fit_is_not_read_into_memory(tmp_path, capsys, monkeypatch):
    path = big(tmp_path / "a.csv.gz", b"a,y\n", b"1,2\n2,3\n" * 2**10, 2**20, gzip.open)
    monkeypatch.setattr(tables, "FEW_BYTES", 2**18)
    assert "is too large to compare methods in memory; give a sample" in mistake(capsys, "compare", path, "-t", "y", "-q")


def test_long_cells_and_many_columns_are_one_sentence(tmp_path, capsys):
    path, fit = tmp_path / "a.csv", ["fit", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "m.gwi", "-q"]
    rows = "".join(f"{i * i},{i}\n" for i in range(9))
    path.write_text(f"a,y\n{rows}{'x' * 10**7},3\n")
    assert "line 11: the line has more than" in mistake(capsys, *fit)
    path.write_text(f"{'x' * 10**7},y\n{rows}")
    assert "line 1: the line has more than" in mistake(capsys, *fit)
    path.write_text(",".join(f"c{i}" for i in range(200_000)) + "\n" + "1," * 199_999 + "1\n")
    assert "there are 200000 columns; at most 100000 can be read" in mistake(capsys, *fit)
    # What fits is said in short.
    path.write_text(f"a,y\n{rows}{'x' * 10**5},3\n")
    assert "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' is not a number" in mistake(capsys, *fit)
    path.write_text(f"{'x' * 10**5},y\n{rows}")
    assert "has no column 'z'; it has 'xxx" in mistake(capsys, "fit", path, "-t", "z", "-o", tmp_path / "m.gwi")


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A table, a model and names of files, all with commands to the terminal."""
    folder = tmp_path_factory.mktemp("evil") / f"{EVIL}\udcff"
    folder.mkdir()
    rng = np.random.default_rng(0)
    with (folder / "data.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([f"x{EVIL}", f"same{EVIL}", f"town{EVIL}", f"y{EVIL}"])
        for x in rng.normal(size=30):
            writer.writerow([x, 1, rng.choice([f"Ulm{EVIL}", f"Bonn{EVIL}"]), rng.choice([f"up{EVIL}", f"down{EVIL}"])])
    return folder


def test_no_command_sends_commands_to_the_terminal(evil, capsys):
    data, model, target = f"{evil}/data.csv", f"{evil}/m.gwi", f"y{EVIL}"
    other = evil / "other.csv"
    other.write_text((evil / "data.csv").read_text().replace("up\x1b", "sideways\x1b"))
    wrong = evil / "wrong.csv"
    wrong.write_text((evil / "data.csv").read_text() + f"z{EVIL},1,Ulm,up\n")
    runs = [
        (0, ["fit", data, "-t", target, "-o", model, *QUICK, "--drop", f"same{EVIL}"]),
        (0, ["fit", data, "-t", target, "-o", f"{evil}/n.gwi", *QUICK, "--json"]),
        (0, ["info", model]),
        (0, ["info", model, "--json"]),
        (0, ["evaluate", model, data]),
        (0, ["predict", model, data, "-o", f"{evil}/p.csv"]),
        (0, ["report", model, data, "-o", f"{evil}/r.html"]),
        (0, ["compare", data, "-t", target, "--folds", "2", "-q"]),
        (2, ["evaluate", model, other]),
        (2, ["predict", model, wrong, "-o", "-"]),
        (2, ["fit", data, "-t", f"z{EVIL}", "-o", model, "--force"]),
        (2, ["fit", data, "-t", target, "-o", model]),
        (2, ["info", data]),
        (2, ["info", f"{evil}/none"]),
        (2, [f"{EVIL}"]),
        (2, ["fit", f"--{EVIL}"]),
    ]
    # rich colours its own tables on a terminal; here there is none.
    for code, arguments in runs:
        capsys.readouterr()
        assert cli.run([str(argument) for argument in arguments]) == code, arguments
        out, err = capsys.readouterr()
        assert not COMMANDS.search(out + err), (arguments, out, err)
        if "--json" in arguments:
            assert json.loads(out)["target"] == target


def test_a_bug_sends_no_commands_to_the_terminal(capsys, monkeypatch):
    def broken(path):
        raise RuntimeError(EVIL)

    monkeypatch.setattr(tables, "load_for_tables", broken)
    assert cli.run(["evaluate", "m.gwi", "data.csv"]) == 1
    assert not COMMANDS.search(capsys.readouterr().err)


def test_a_prediction_is_exact_in_a_pipe_and_safe_on_a_terminal(tmp_path):
    text = f"a,{EVIL}\n".encode()
    code = f"from gwi.cli.console import OutputStream; OutputStream().write({text!r})"
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True).stdout == text
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", code], env=environment, stdout=theirs, check=True)
    os.close(theirs)
    assert os.read(ours, 1000).decode() == f"a,{printable(EVIL)}\r\n"
    os.close(ours)


def test_damaged_pages_and_text_that_is_none_are_found(tmp_path, capsys):
    rng = np.random.default_rng(0)
    train = tmp_path / "train.csv"
    train.write_text("x,y\n" + "".join(f"{x},{2 * x}\n" for x in rng.normal(size=30)))
    model = tmp_path / "m.gwi"
    assert cli.run(["fit", f"{train}", "-t", "y", "-o", f"{model}", "-q", *QUICK]) == 0
    data, output = tmp_path / "data.parquet", tmp_path / "out.parquet"
    pq.write_table(
        pa.table({"x": rng.normal(size=3000)}), data, compression="none", use_dictionary=False, write_page_checksum=True
    )
    assert cli.run(["predict", f"{model}", f"{data}", "-o", f"{output}", "-q"]) == 0
    for path in (data, output):
        # One bit of a number in the middle, which is still a number.
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    said = mistake(capsys, "predict", model, data, "-o", tmp_path / "p.csv", "-q")
    assert "data.parquet is a damaged Parquet file (could not verify page integrity" in said
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        pq.read_table(output, page_checksum_verification=True)
    town = pa.array([b"Ulm\xed\xa0\x80"] * 10, pa.binary()).view(pa.string())
    pq.write_table(pa.table({"x": np.arange(10.0), "town": town}), data)
    said = mistake(capsys, "predict", model, data, "-o", tmp_path / "p.csv", "-q")
    assert "damaged Parquet file (In column 1: Invalid: Invalid UTF8" in said


def test_what_a_spreadsheet_takes_for_a_formula_is_escaped():
    evil = [
        "=1",
        " =1",
        "\t=1",
        "\n=1",
        "\r\n=1",
        "\u00a0@a",
        "\ufeff+a",
        "＝1",
        "＋1",
        "－1",
        "＠a",
        " －a",
        "\ttext",
        "\ntext",
        "\rtext",
        "- 1",
        "−a",
    ]
    assert [excel_safe(cell) for cell in evil] == [f"'{cell}" for cell in evil]
    plain = ["a=1", "a -1", " -1.5", "+3", "-1e5", " text", "", " ", "1\t2", -1.5, None]
    assert [excel_safe(cell) for cell in plain] == plain


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_labels_that_differ_in_their_last_digit_stay_apart(tmp_path, capsys, kind):
    labels = [9007199254740992 + i % 2 for i in range(20)]
    data, model = tmp_path / f"data.{kind}", tmp_path / "m.gwi"
    if kind == "csv":
        data.write_text("x,y\n" + "".join(f"{i % 2 + i / 100},{label}\n" for i, label in enumerate(labels)))
    else:
        pq.write_table(pa.table({"x": [i % 2 + i / 100 for i in range(20)], "y": labels}), data)
    arguments = ["fit", data, "-t", "y", "--task", "classification", "-o", model, "-q", "--json", *QUICK]
    assert cli.run([str(argument) for argument in arguments]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == ["9007199254740992", "9007199254740993"]
    assert cli.run(["evaluate", str(model), str(data), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1


@pytest.mark.parametrize("scale", ["e-300", "e-320"])
def test_a_target_too_small_for_its_square_is_one_sentence(tmp_path, capsys, scale):
    path = tmp_path / "a.csv"
    path.write_text("a,y\n" + "".join(f"{i * i},{i}.5{scale}\n" for i in range(12)))
    assert "so small that their squares underflow; rescale" in mistake(
        capsys, "fit", path, "-t", "y", "-o", tmp_path / "m.gwi", "-q"
    )
