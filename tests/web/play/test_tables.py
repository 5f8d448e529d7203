"""Tables of the page: read and fitted in a process of their own, and whatever a file holds does no harm."""

import gzip
import io
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gwi
from gwi.exceptions import UserError
from gwi.web.play import table_process
from gwi.web.play.table_process import TableSession, serve
from gwi.web.play.tables import file_name
from gwi.web.play.words import LONGEST_SHOWN
from odd_files import CASES, Odd, text

pytestmark = pytest.mark.unchecked
FILE = "application/octet-stream"
SCRIPT = '<img src=x onerror="document.title=1"><script>alert(1)</script>'


def bomb(folder):
    """Two hundred bytes for each megabyte."""
    path = folder / "data.csv"
    with gzip.open(path, "wb") as file:
        file.write(b"a,b\n")
        for _ in range(20):
            file.write(b"1,2\n" * (1 << 18))
    return path


def parquet_bomb(folder):
    """A number a thousand million times, in a small file."""
    path = folder / "data.parquet"
    run = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 22, dtype=np.int8)), pa.array(["x" * 1000]))
    with pq.ParquetWriter(path, pa.schema([("a", run.type), ("b", run.type), ("c", run.type)])) as writer:
        for _ in range(2):
            writer.write_table(pa.table({"a": run, "b": run, "c": run}))
    return path


HOSTILE = {
    "gzip bomb": (bomb, "more than 16 MB of text"),
    "Parquet bomb": (parquet_bomb, "25,165,824 cells; the page takes up to 20,000,000"),
    "a hundred thousand columns": (
        ",".join(f"c{i}" for i in range(100_000)) + "\n" + ",".join("1" * 100_000),
        "takes up to 2000",
    ),
    "more columns than can be": (",".join(f"c{i}" for i in range(100_001)) + "\n", "at most 100000 can be read"),
    "zip with another name": (b"PK\x03\x04" + bytes(100), "spreadsheet or a zip archive"),
    "binary": (b"\x89PNG\r\n\x1a\n" + bytes(range(1, 256)), "the text is not UTF-8"),
    "NUL": ("a,b\n1,\x002\n", "NUL character"),
    "empty": ("", "is empty"),
    "no rows": ("a,b\n", "no rows"),
    "twice": ("a,a\n1,2\n", "more than one column is called 'a'"),
    "HTML": ("<!doctype html><p>", "a page of HTML"),
    "a quotation without end": ('a,b\n1,2\n"3,4\n5,6\n', "never ends"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_sentence(name, tmp_path, monkeypatch):
    content, said = HOSTILE[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table_process, "MOST_TEXT", 1 << 24)
    path = Odd(content).path(tmp_path)
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        TableSession(path.relative_to(tmp_path), print).open({})
    sentence = str(caught.value)
    assert len(sentence) < 400
    assert str(tmp_path) not in sentence


def opened_or_said(path):
    """What is in a file, or the sentence that refuses it."""
    try:
        return TableSession(path, print).open({}), ""
    except UserError as error:
        return None, str(error)


@pytest.mark.parametrize("name", CASES)
def test_every_odd_file_is_read_or_refused_with_a_sentence(name, tmp_path):
    path = CASES[name].path(tmp_path)
    # The page sends content; pipes, links and folders do not come to it.
    found, said = opened_or_said(path) if path.is_file() else (None, "no file")
    if found is None:
        assert 0 < len(said) < 400
        assert "\n" not in said
        return
    assert found["num_rows"] >= 1
    for column in found["columns"]:
        assert 0 < len(column["name"]) <= LONGEST_SHOWN
        assert len(column["examples"]) <= LONGEST_SHOWN
    json.dumps(found)


def test_most_odd_files_can_be_read(tmp_path):
    """So that the test above cannot pass because all are refused."""
    folders = {name: tmp_path / str(i) for i, name in enumerate(CASES)}
    for folder in folders.values():
        folder.mkdir()
    paths = {name: odd.path(folders[name]) for name, odd in CASES.items()}
    read = [name for name, path in paths.items() if path.is_file() and opened_or_said(path)[0]]
    assert len(read) > 60
    assert "plain" in read


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A session whose table has names and cells that would do something elsewhere, and its answer."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rng = np.random.default_rng(0)
        lines = [f'"{SCRIPT.replace(chr(34), chr(34) * 2)}",\u202eevil,long,y']
        for i in range(40):
            x = rng.normal()
            lines.append(f"{x:.3f},{('<b>up</b>', chr(0x202E) + 'nwod')[i % 2]},{'z' * 3000 + str(i % 3)},{2 * x + i % 2:.3f}")
        (folder / "data.csv").write_text("\n".join(lines), encoding="utf-8")
        session = TableSession(folder / "data.csv", lambda stage, share: None)
        opened = session.open({})
        answer = session.fit({"target": 3, "task": "auto", "max_time": 2.0})
        yield session, opened, answer, folder


def test_names_and_cells_are_text_and_short(fitted):
    session, opened, answer, folder = fitted
    assert opened["columns"][0]["name"] == SCRIPT
    assert opened["columns"][1]["name"] == "\\u202eevil"
    controls = {control["name"]: control for control in answer["controls"]}
    assert set(controls["\\u202eevil"]["values"]) == {"<b>up</b>", "\\u202enwod"}
    assert all(len(value) <= LONGEST_SHOWN for value in controls["long"]["values"])
    assert "<script>alert" not in (folder / "report.html").read_text()
    predicted = session.predict({"cells": {str(i): control["value"] for i, control in enumerate(answer["controls"])}})
    assert predicted["values"]["lower"] < predicted["values"]["prediction"] < predicted["values"]["upper"]
    assert predicted["notes"] == []
    assert "\u202e" not in json.dumps(predicted, ensure_ascii=False)


def test_the_model_file_gives_the_predictions_of_the_page(fitted):
    session, _, answer, folder = fitted
    model, table = gwi.load(folder / "model.gwi"), session._everything
    usual = {str(i): control["value"] for i, control in enumerate(answer["controls"])}
    nearest = session.predict({"cells": usual})["nearest"]
    for cells, setting in zip(nearest["rows"], nearest["settings"], strict=True):
        line = int(cells[0])
        page = session.predict({"cells": setting})
        frame = table.data.slice(line - 2, 1).drop_columns(["y"]).to_pandas()
        assert page["values"]["prediction"] == pytest.approx(float(model.predict(frame)[0]), abs=1e-9)
        assert page["nearest"]["rows"][0][0] == str(line)


def test_reasons_are_those_of_the_model(fitted, monkeypatch):
    session, _, answer, folder = fitted
    model, table = gwi.load(folder / "model.gwi"), session._everything
    usual = {str(i): control["value"] for i, control in enumerate(answer["controls"])}
    nearest = session.predict({"cells": usual})["nearest"]
    found = session.explain({"cells": nearest["settings"][0]})
    expected = model.explain(table.data.slice(int(nearest["rows"][0][0]) - 2, 1).drop_columns(["y"]).to_pandas())
    assert found["variance"] == pytest.approx(float(expected.variance[0]), rel=1e-9)
    assert [part["part"] for part in found["parts"]] == pytest.approx([part for _, _, part, _ in expected.largest(0)], rel=1e-6)
    assert found["base"] + sum(part["part"] for part in found["parts"]) == pytest.approx(found["variance"])
    assert {part["column"] for part in found["parts"]} == {SCRIPT, "\\u202eevil", "long"}
    assert all(len(part["cell"]) <= LONGEST_SHOWN for part in found["parts"])
    assert "\u202e" not in json.dumps(found, ensure_ascii=False)
    # Of a model that keeps no rows to compare with.
    monkeypatch.setattr("gwi.estimators.explaining.StandardisedRows", io.StringIO)
    with pytest.raises(UserError, match="pass background="):
        session.explain({"cells": usual})


def test_values_that_cannot_be_are_sentences_without_a_line(fitted):
    session, _, answer, _ = fitted
    place = next(i for i, control in enumerate(answer["controls"]) if control["kind"] == "number")
    for value, said in (
        ("x", "takes a number; got 'x'"),
        (True, "a number or text"),
        ([], "a number or text"),
        ("9" * 500, "up to 400"),
    ):
        with pytest.raises(UserError, match=said) as caught:
            session.predict({"cells": {str(place): value}})
        assert "line" not in str(caught.value)
    far = session.predict({"cells": {str(place): 1e6}})
    assert far["values"]["ood_score"] > 0.9
    assert any("far outside" in note or "no value" in note for note in far["notes"])


def test_a_process_answers_each_line_and_survives_faults(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text(text())
    monkeypatch.setattr(TableSession, "predict", lambda self, asked: 1 / 0)
    commands = [{"do": "open"}, {"do": "predict"}, {"do": "fit", "target": 0, "task": "classification", "max_time": 2}]
    out = io.StringIO()
    serve("data.csv", io.StringIO("".join(f"{json.dumps(command)}\n" for command in commands)), out)
    opened, fault, refused = (found for found in map(json.loads, out.getvalue().splitlines()) if "stage" not in found)
    assert opened["done"]["num_rows"] == 24
    assert "bug in gwi" in fault["error"]
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert "different labels" in refused["error"]
    monkeypatch.setattr(TableSession, "open", lambda self, asked: bytearray(1 << 62))
    out = io.StringIO()
    serve("data.csv", io.StringIO('{"do": "open"}\n'), out)
    assert "not enough memory" in json.loads(out.getvalue())["error"]


def test_memory_has_a_bound():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        table_process.limit_memory()
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] <= table_process.MOST_MEMORY
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("houses.csv", "houses.csv"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\evil.csv", "evil.csv"),
        ("", "table.csv"),
        ("..", "table.csv"),
        ("model.gwi", "table.csv"),
        ("-rf.csv", "table.csv"),
        ("a\x00b\n.csv", "a_b_.csv"),
        ("\u202eevil.csv", "_evil.csv"),
        ("größe 名.csv", "größe 名.csv"),
        ("x" * 500 + ".parquet", "x" * 80 + ".parquet"),
        ("<script>.csv", "_script_.csv"),
    ],
)
def test_names_of_files_are_safe(name, kept):
    assert file_name(name) == kept


def test_a_table_is_fitted_cancelled_and_let_go(served, houses):
    status, found = served.json("POST", "/api/tables", houses.read_bytes(), **{"content-type": FILE, "x-file-name": "houses.csv"})
    assert (status, found["state"]) == (200, "reading")
    known = found["table"]
    opened = served.wait(known, "open", "refused")
    assert [column["name"] for column in opened["opened"]["columns"]] == ["town", "rooms", "area", "built", "price"]
    for question in ("predict", "explain"):
        assert served.json("POST", f"/api/tables/{known}/{question}", {"cells": {}})[1]["refused"] == "Fit a model first."
    for body, said in (
        ({"target": 9, "max_time": 5}, "one of the table's columns"),
        ({"target": True, "max_time": 5}, "Choose the target"),
        ({"target": 4, "max_time": 1e9}, "between 1 and 3600 seconds"),
        ({"target": 4, "max_time": 5, "task": "x"}, "Choose the target"),
    ):
        status, answer = served.json("POST", f"/api/tables/{known}/fit", body)
        assert status == 200
        assert said in answer["refused"]
    fit = {"target": 4, "max_time": 600}
    assert served.json("POST", f"/api/tables/{known}/fit", fit)[1]["state"] == "fitting"
    assert served.json("POST", f"/api/tables/{known}/fit", fit)[1]["refused"].startswith("The table is not ready")
    status, found = served.json("POST", f"/api/tables/{known}/cancel", {})
    assert found["state"] == "open"
    assert served.ask("GET", f"/report/{known}/{found['ticket']}")[0] == 404
    assert served.ask("DELETE", f"/api/tables/{known}")[0] == 200
    assert served.ask("GET", f"/api/tables/{known}")[0] == 404
