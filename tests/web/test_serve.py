"""The server says what `gwi predict` says, with the same names, digits and sentences, and is not brought down by anything."""

import csv
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.studies import serving_cases
from benchmarks.studies.serving import is_right

import gwi
from gwi.cli import commands as cli
from gwi.exceptions import UserError
from gwi.web.guard import Limits
from gwi.web.serve.app import Service, accepted, kind_of
from gwi.web.serve.bodies import is_packed, rows_of
from gwi.web.serve.served import open_models
from gwi.web.serve.server import listening, server_of

pytestmark = pytest.mark.unchecked

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models of numbers, classes and times, and rows to ask about."""
    path = tmp_path_factory.mktemp("serve")
    rng = np.random.default_rng(0)
    days = [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(60)]
    lines = []
    for i in range(60):
        x, town = rng.normal(), rng.choice(["Ulm", "Bonn"])
        y = 2 * x + (town == "Ulm") + 0.1 * rng.normal()
        lines.append([f"n{i}", x, town, days[i], y, "high" if y > 0 else "low", int(rng.random() < 0.7), float(np.exp(y / 4))])
    names = ["id", "x", "town", "day", "y", "class", "event", "time"]

    def write(name, rows, kept):
        with (path / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(kept)
            writer.writerows([row[names.index(name)] for name in kept] for row in rows)

    write("train.csv", lines, names)
    write("new.csv", lines[:5], ["id", "x", "town", "day"])
    common = ["--mean", "linear", "--quiet", "--holdout", "0"]
    for target, others, more in (
        ("y", "class,event,time", []),
        ("class", "y,event,time", []),
        ("time", "y,class", ["--event", "event"]),
    ):
        fit = ["fit", f"{path}/train.csv", "-t", target, "-o", f"{path}/{target}.gwi", "--drop", f"id,{others}", *more, *common]
        assert cli.run(fit) == 0
    return path


@pytest.fixture(scope="module")
def server(folder):
    """One that answers, in a thread; `asked` has what its log was told."""
    service = Service(open_models([f"{folder}/y.gwi", f"labels={folder}/class.gwi", f"{folder}/time.gwi"]), 3000)
    at, asked = listening("127.0.0.1", 0), []
    running = server_of(service, Limits(body=1 << 21, seconds_to_send=0.5, seconds=20.0), None, asked.append)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [at]})
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield SimpleNamespace(port=at.getsockname()[1], asked=asked, service=service, running=running)
    running.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


def ask(server, body=b"", kind=JSON, path="/models/y/predict", method="POST", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, body, {"Content-Type": kind, **headers})
    answer = connection.getresponse()
    found = SimpleNamespace(status=answer.status, body=answer.read(), headers=answer.headers)
    connection.close()
    return found


def table(folder):
    with (folder / "new.csv").open() as file:
        return [{**row, "x": float(row["x"])} for row in csv.DictReader(file)]


def arrow(rows):
    return serving_cases.stream(pa.Table.from_pylist(rows))


def predicted(folder, model, *options):
    """The bytes that `gwi predict` writes."""
    output = folder / "predicted.csv"
    command = ["predict", f"{folder}/{model}.gwi", f"{folder}/new.csv", "-o", str(output), "--force", "--quiet", *options]
    assert cli.run(command) == 0
    return output.read_bytes()


@pytest.mark.parametrize("model", ["y", "labels", "time"])
def test_csv_is_that_of_gwi_predict_to_the_byte(folder, server, model):
    given = (folder / "new.csv").read_bytes()
    for keep in ("none", "unused", "all", "town,id"):
        found = ask(server, given, CSV, f"/models/{model}/predict?parts=false&keep={keep}&coverage=0.8")
        expected = predicted(folder, "class" if model == "labels" else model, "--keep", keep, "--coverage", "0.8")
        assert (found.status, found.body) == (200, expected)


def test_every_form_gives_the_same_digits(folder, server):
    rows = table(folder)
    query = "/models/y/predict?quantiles=0.1,0.9&coverage=0.9"
    expected = gwi.Predictor(folder / "y.gwi", coverage=0.9, quantiles=[0.1, 0.9]).columns(pa.Table.from_pylist(rows))
    as_rows = json.loads(ask(server, json.dumps(rows), JSON, query).body)["predictions"]
    as_columns = json.loads(ask(server, json.dumps({n: [row[n] for row in rows] for n in rows[0]}), JSON, query).body)[
        "predictions"
    ]
    from_arrow = pa.ipc.open_stream(ask(server, arrow(rows), ARROW, query).body).read_all()
    from_csv = list(csv.DictReader(io.StringIO(ask(server, arrow(rows), ARROW, query, Accept=CSV).body.decode())))
    assert list(expected) == list(as_columns) == from_arrow.column_names == list(as_rows[0]) == list(from_csv[0])
    for name, values in expected.items():
        assert [row[name] for row in as_rows] == as_columns[name] == from_arrow[name].to_pylist() == values.tolist()
        assert [float(row[name]) for row in from_csv] == values.tolist()
    one = json.loads(ask(server, json.dumps(rows[0]), JSON, query).body)
    assert list(one) == ["model", "predictions", "notes"]
    np.testing.assert_allclose(list(one["predictions"].values()), list(as_rows[0].values()), rtol=1e-9)


def test_times_and_classes_have_their_own_columns(folder, server):
    row = json.dumps(table(folder)[0])
    found = json.loads(ask(server, row, path="/models/time/predict?times=1,2&parts=false").body)["predictions"]
    assert list(found) == ["median", "lower", "upper", "survival_1", "survival_2", "ood_score"]
    found = json.loads(ask(server, row, path="/models/labels/predict").body)["predictions"]
    assert list(found) == ["prediction", "probability_high", "probability_low", "epistemic", "aleatoric", "ood_score"]
    for path, said in (
        ("/models/labels/predict?quantiles=0.5", "quantiles are for models of numbers; labels predicts classes"),
        ("/models/y/predict?times=1", "times is for models of times to an event (gwi fit --event); y predicts numbers."),
    ):
        refused = ask(server, row, path=path)
        assert refused.status == 422
        assert said in json.loads(refused.body)["error"]


def test_sentences_are_those_of_the_command(folder, server, capsys):
    (folder / "wrong.csv").write_text("x,towm,day\n1,Ulm,2024-05-01\n")
    for content in ("x,towm,day\n1,Ulm,2024-05-01\n", "x,town,day\n1,Ulm,2024-05-01\nabc,Ulm,2024-05-01\n", "x,town,day\n1,2\n"):
        (folder / "wrong.csv").write_text(content)
        capsys.readouterr()
        assert cli.run(["predict", f"{folder}/y.gwi", f"{folder}/wrong.csv", "-o", "-", "--quiet"]) == 2
        said = capsys.readouterr().err.removeprefix("gwi: ").strip().replace(f"{folder}/wrong.csv", "The body")
        found = ask(server, content.encode(), CSV)
        assert (found.status, json.loads(found.body)["error"]) == (422, said)


def test_notes_say_what_is_unlike_the_rows_of_the_fit(folder, server):
    row = table(folder)[0] | {"town": "Paris", "x": 1e6}
    notes = json.loads(ask(server, json.dumps(row)).body)["notes"]
    assert "1 row has a value of 'town' that the training rows did not have ('Paris')" in notes[0]
    assert "far outside" in notes[1]
    assert notes[2] == "columns that the model does not use: id."
    assert json.loads(ask(server, arrow([row]), ARROW).headers["gwi-notes"]) == notes


def test_the_schema_is_of_the_models_own_columns(server):
    document = json.loads(ask(server, path="/openapi.json", method="GET").body)
    paths = document["paths"]
    assert {f"/models/{name}/predict" for name in ("y", "labels", "time")} <= set(paths)
    content = paths["/models/y/predict"]["post"]["requestBody"]["content"]
    assert set(content) == {JSON, CSV, ARROW}
    row = content[JSON]["schema"]["anyOf"][0]
    assert list(row["properties"]) == row["required"] == ["x", "town", "day"]
    assert [column["x-gwi-kind"] for column in row["properties"].values()] == ["number", "categories", "date"]
    assert row["properties"]["town"]["examples"] == ["Bonn", "Ulm"]
    # The example is one that the model takes.
    assert ask(server, json.dumps(row["example"])).status == 200
    answer = paths["/models/labels/predict"]["post"]["responses"]["200"]["content"][JSON]["schema"]["properties"]
    assert answer["predictions"]["anyOf"][0]["properties"]["prediction"] == {"type": ["string", "null"]}


def test_health_metrics_models_and_the_page(folder, server):
    assert json.loads(ask(server, path="/health", method="GET").body) == {"status": "ok"}
    assert ask(server, path="/ready", method="GET").status == 200
    known = json.loads(ask(server, path="/models", method="GET").body)["models"]
    assert [(model["name"], model["task"], model["predict"]) for model in known] == [
        ("y", "regression", "/models/y/predict"),
        ("labels", "classification", "/models/labels/predict"),
        ("time", "regression", "/models/time/predict"),
    ]
    assert str(folder) not in json.dumps(known)
    page = ask(server, path="/", method="GET")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    before = server.service.metrics.rows["y"]
    ask(server, json.dumps(table(folder)))
    text = ask(server, path="/metrics", method="GET").body.decode()
    assert f'gwi_rows_total{{model="y"}} {before + 5}\n' in text
    assert 'gwi_request_seconds_bucket{path="/models/y/predict",le="+Inf"} ' in text
    for line in text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0


def test_many_rows_in_parts_and_many_at_a_time_are_those_of_one(folder, server, monkeypatch):
    rows = table(folder) * 500
    whole = pa.ipc.open_stream(ask(server, arrow(rows), ARROW, "/models/y/predict?keep=town").body).read_all()
    monkeypatch.setattr("gwi.web.serve.served.PART", 700)
    parts = pa.ipc.open_stream(ask(server, arrow(rows), ARROW, "/models/y/predict?keep=town").body).read_all()
    assert parts["town"].to_pylist() == [row["town"] for row in rows]
    np.testing.assert_allclose(parts["std"].to_numpy(), whole["std"].to_numpy(), rtol=1e-9)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda i: ask(server, arrow(rows[: 1 + 100 * (i % 8)]), ARROW), range(40)):
            np.testing.assert_allclose(
                pa.ipc.open_stream(found.body).read_all()["prediction"][:1].to_numpy(),
                whole["prediction"][:1].to_numpy(),
                rtol=1e-9,
            )
    assert server.service.metrics.running == 0


def hostile(limit):
    """Cases for these limits: a body of two megabytes and 3,000 rows."""
    for case in serving_cases.cases(mutated=limit):
        path = case.path.replace("/predict", "/models/y/predict", 1) if case.path.startswith("/predict") else case.path
        larger = (*case.expected, 413) if len(case.body) > 1 << 21 or case.body.count(b"\n") > 3000 else case.expected
        yield serving_cases.Case(case.name, case.body, case.kind, larger, path, case.method, case.headers)


def test_nothing_gets_more_than_a_status_and_a_sentence(server, capfd):
    count = 0
    for case in hostile(60):
        found = ask(server, case.body, case.kind, case.path, case.method, **case.headers)
        assert is_right(case, found.status, found.body), (case.name, found.status, found.body[:300])
        count += 1
    for raw in serving_cases.raw_cases(slow=False):
        status, said = serving_cases.ask_raw(server.port, raw)
        assert status in raw.expected, (raw.name, status, said[:300])
        count += 1
    assert count > 340
    assert ask(server, json.dumps(serving_cases.ROW)).status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_who_comes_byte_by_byte_is_not_waited_for(server, monkeypatch):
    monkeypatch.setattr("gwi.web.serve.server.HEAD_SECONDS", 0.3)
    start = b"POST /models/y/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    drip = tuple((0.1, b"X: y\r\n") for _ in range(8))
    for name, parts, expected in (
        ("a head", ((0.0, start), *drip), None),
        ("no head", ((0.0, b""),), None),
        ("a body", ((0.0, start + b"Content-Length: 100\r\n\r\n"), *((0.1, b" ") for _ in range(8))), 408),
    ):
        begun = time.monotonic()
        assert serving_cases.ask_raw(server.port, serving_cases.RawCase(name, parts, (expected,)))[0] == expected
        assert time.monotonic() - begun < 3
    # A head that comes in time may have a connection that lasts longer.
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for pause in (0.0, 0.5):
        time.sleep(pause)
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"ok"}'


def test_kinds_of_bodies_and_answers_are_named():
    assert kind_of("text/csv; charset=UTF-8") == "csv"
    assert kind_of("Application/JSON") == "json"
    assert accepted("", "csv") == "csv"
    assert accepted("*/*", "arrow") == "arrow"
    assert accepted("text/csv;q=0.5, application/json", "arrow") == "json"
    assert accepted("application/json;q=0.2, text/*", "json") == "csv"
    assert accepted("text/html, */*;q=0.1", "csv") == "csv"


def test_packed_arrow_is_told_by_its_own_words():
    table = pa.table({"a": ["x" * 100] * 100, "b": pa.array(["y"] * 100).dictionary_encode()})
    for codec in (None, "zstd", "lz4"):
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(serving_cases.stream(table, compression=codec)))
        found = [(message.type, is_packed(message.metadata.to_pybytes())) for message in messages]
        assert found == [("schema", False), ("dictionary", codec is not None), ("record batch", codec is not None)]


def test_a_key_that_comes_twice_is_seen_however_it_is_written():
    for body in (
        b'{"x":1,"x":2}',
        b'{"x":1,"x" :2}',
        b'{"x":1,"\\u0078":2}',
        b'[{"x":"a:b"},{"x":":","x":2}]',
        b'{"y":{"a":1},"x":1,"x":1}',
    ):
        with pytest.raises(Exception, match="a key appears twice"):
            rows_of(body, "json", ["x"], "none", 10)
    assert len(rows_of(b'[{"x":"a:b"},{"x" : "c"}]', "json", ["x"], "none", 10).table) == 2


def test_a_date_that_is_missing_in_every_row_is_missing(server):
    found = ask(server, json.dumps(serving_cases.ROW | {"day": None}))
    assert "no value of 'day'" in json.loads(found.body)["notes"][0]
    no_days = pa.table({"x": [1.0], "town": ["Ulm"], "day": pa.nulls(1)})
    assert ask(server, serving_cases.stream(no_days), ARROW).status == 200


def test_names_of_models_are_names(folder):
    assert list(open_models([f"a={folder}/y.gwi"])) == ["a"]
    for given, said in (
        ([f"../x={folder}/y.gwi"], "cannot be part of an address"),
        ([f"{folder}/y.gwi", f"{folder}/y.gwi"], "Two models are called y"),
        ([f"{folder}/train.csv"], "not a gwi model file"),
        ([f"{folder}/none.gwi"], "cannot be read"),
    ):
        with pytest.raises(UserError, match=said):
            open_models(given)


def test_others_are_not_let_in_without_a_token(folder, capsys, monkeypatch):
    monkeypatch.delenv("GWI_TOKEN", raising=False)
    assert cli.run(["serve", f"{folder}/y.gwi", "--host", "0.0.0.0"]) == 2
    assert "needs a token" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli.run(["serve", f"{folder}/y.gwi", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "fastapi", None)
    for name in [name for name in sys.modules if name.startswith("gwi.web.serve")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.run(["serve", f"{folder}/y.gwi"]) == 2
    assert "pip install 'gwi[serve]'" in capsys.readouterr().err


def test_the_command_asks_for_its_token_and_ends_in_order(folder, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "gwi", "serve", f"{folder}/y.gwi", "--port", str(port)]
        process = subprocess.Popen(command, stderr=log, env=os.environ | {"GWI_TOKEN": "0123456789abcdef"})
    while f":{port};" not in (tmp_path / "log").read_text():
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.02)
    at, right = SimpleNamespace(port=port), {"Authorization": "Bearer 0123456789abcdef"}
    assert ask(at, json.dumps(serving_cases.ROW), path="/predict").status == 401
    assert ask(at, json.dumps(serving_cases.ROW), path="/predict", **right).status == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    said = (tmp_path / "log").read_text()
    assert said.endswith("note: stopped.\n")
    assert "0123456789abcdef" not in said


def test_a_model_of_an_array_is_served_with_the_digits_of_the_model(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    model = gwi.GWIRegressor("svgp", random_state=0).fit(X, X[:, 0] + 0.1 * rng.normal(size=40))
    labels = gwi.GWIClassifier("linear", random_state=0).fit(X, X[:, 0] > 0)
    models = open_models([str(model.save(tmp_path / "array.gwi")), str(labels.save(tmp_path / "labels.gwi"))])
    running = server_of(Service(models, 3000), Limits(), None, lambda answered: None)
    at = listening("127.0.0.1", 0)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [at]})
    thread.start()
    while not running.started:
        time.sleep(0.01)
    server = SimpleNamespace(port=at.getsockname()[1])
    try:
        rows = [{"x2": row[2], "x0": row[0], "x1": row[1]} for row in X[:5].tolist()]
        found = json.loads(ask(server, json.dumps(rows), path="/models/array/predict").body)["predictions"]
        assert [row["prediction"] for row in found] == model.predict(X[:5]).tolist()
        found = json.loads(ask(server, json.dumps(rows), path="/models/labels/predict").body)["predictions"]
        assert [row["prediction"] for row in found] == labels.predict(X[:5]).tolist()
        for change, sentence in (
            ({"x1": None}, "The body, row 0, column 'x1': the cell is missing"),
            ({"x1": "blue"}, "The body, row 0, column 'x1': 'blue' is not a number."),
            ({"x1": 1, "x3": 0}, None),
        ):
            answer = ask(server, json.dumps([{**rows[0], **change}]), path="/models/array/predict")
            assert answer.status == (200 if sentence is None else 422)
            assert sentence is None or json.loads(answer.body)["error"].startswith(sentence)
        lacking = ask(server, json.dumps([{"x0": 1, "a": 2}]), path="/models/array/predict")
        assert (lacking.status, b"lacks 2 of the 3 columns of the model: 'x1', 'x2'" in lacking.body) == (422, True)
        known = json.loads(ask(server, path="/models", method="GET").body)["models"][0]
        assert known["columns"] == dict.fromkeys(["x0", "x1", "x2"], "number")
        row = json.loads(ask(server, path="/openapi.json", method="GET").body)["paths"]["/models/array/predict"]["post"]
        example = row["requestBody"]["content"][JSON]["example"]
        assert ask(server, json.dumps(example), path="/models/array/predict").status == 200
        assert b"regression. Gives: prediction" in ask(server, path="/", method="GET").body
    finally:
        running.should_exit = True
        thread.join(10)
