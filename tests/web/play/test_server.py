"""Who may ask the page's server, and what it answers to what is not one of the page's."""

import json
import socket
import subprocess
import sys

import pytest

from gwi.cli import commands as cli
from gwi.exceptions import UserError
from gwi.web.play import running

POINTS = {"points": [[0, 0], [1, 1], [2, 0], [3, 1]], "window": [-1, 4]}


def test_a_fit_has_every_curve_and_the_source_runs(served):
    status, found = served.json("POST", "/api/points", POINTS)
    assert status == 200
    for name in ("x", "mean", "f_low", "f_high", "y_low", "y_high", "prior_share"):
        assert len(found[name]) == len(found["x"]) > 100
    status, found = served.json("POST", "/api/source", POINTS)
    assert status == 200
    compile(found["source"], "play.py", "exec")


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/api/points", b"not json", 200, "not JSON"),
        ("/api/points", b"[" * 100_000, 200, "not JSON"),
        ("/api/points", [1], 200, "one JSON object"),
        ("/api/points", {}, 200, "points must be a list"),
        ("/api/points", {**POINTS, "likelihood": "log-normal"}, 200, "positive"),
        ("/api/points", b" " * 300_000, 413, "The request is too large"),
        ("/api/tables/../points/fit", {}, 404, ""),
        ("/api/tables/none/fit", {"target": 0, "max_time": 5}, 404, "no longer here"),
        ("/api/tables/none/predict", {"cells": {}}, 404, "no longer here"),
    ],
)
def test_what_is_no_request_is_a_sentence(served, path, body, status, said):
    found, _, answer = served.ask("POST", path, body)
    assert found == status
    node = json.loads(answer)
    assert said in node.get("refused", node.get("error", ""))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-gwi-play": None}, 401),
        ({"x-gwi-play": "another"}, 401),
        ({"x-gwi-play": "ä"}, 401),
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-encoding": "gzip"}, 415),
    ],
)
def test_other_pages_and_programs_cannot_ask(served, headers, status):
    found, answered, _ = served.ask("POST", "/api/points", POINTS, **headers)
    assert found == status
    assert not any(name.lower().startswith("access-control") for name in answered)


def test_no_other_site_is_let_in_before_it_asks(served):
    preflight = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    status, answered, _ = served.ask("OPTIONS", "/api/points", **preflight)
    assert status == 403
    assert not any(name.lower().startswith("access-control") for name in answered)


def test_the_page_allows_nothing_but_itself(served):
    status, headers, body = served.ask("GET", "/", **{"x-gwi-play": None})
    headers = {name.lower(): value for name, value in headers.items()}
    assert status == 200
    assert served.key.encode() not in body
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in headers
    # Nothing is fetched from elsewhere, and nothing in the page is a script or a style of its own.
    text = body.decode()
    assert "http" not in text.replace("http-equiv", "")
    assert "<style" not in text
    assert " style=" not in text
    assert text.count("<script") == text.count('<script type="module" src="/static/main.js"></script>') == 1


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "missing.js", "", "%00", "/etc/passwd"])
def test_only_the_pages_own_files_are_served(served, name):
    status, _, answer = served.ask("GET", f"/static/{name}")
    assert status == 404
    assert b"import" not in answer


def test_a_file_that_is_too_large_is_refused_before_it_is_read(served, monkeypatch):
    monkeypatch.setattr("gwi.web.guard.DRAIN_SECONDS", 0.1)
    status, _, answer = served.ask(
        "POST", "/api/tables", **{"content-type": "application/octet-stream", "content-length": str(1 << 40)}
    )
    assert status == 413
    assert b"bytes" in answer


def test_a_port_that_is_taken_is_left_for_the_next(monkeypatch):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        listener, taken = running.bound(port)
        with listener:
            assert taken
            assert listener.getsockname()[1] > port
        monkeypatch.setattr(running, "MORE_PORTS", 1)
        with pytest.raises(UserError, match=f"No port from {port} upwards is free"):
            running.bound(port)


def test_without_its_packages_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.run(["play", "--no-browser"]) == 2
    assert capsys.readouterr().err == "gwi: gwi play needs uvicorn, which is not installed: pip install 'gwi[play]'\n"


def test_a_file_that_is_not_there_is_a_sentence(capsys, tmp_path):
    assert cli.run(["play", str(tmp_path / "none.csv"), "--no-browser"]) == 2
    assert "is not a file; give a CSV or Parquet file" in capsys.readouterr().err
    with (tmp_path / "big.csv").open("wb") as file:
        file.truncate(65 << 20)
    assert cli.run(["play", str(tmp_path / "big.csv"), "--no-browser"]) == 2
    assert "Use gwi fit for larger tables." in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_the_command_says_where_the_page_is_and_ends_in_order(houses):
    import re
    import signal
    import urllib.request

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        command = [sys.executable, "-m", "gwi", "play", str(houses), "--no-browser", "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert re.fullmatch(f"Port {port} is taken, so the page is on \\d+.\n", process.stdout.readline())
            address = re.search(r"http://127\.0\.0\.1:(\d+)/#(\S{20,})", process.stdout.readline())
            request = urllib.request.Request(f"http://127.0.0.1:{address[1]}/api/begin", headers={"x-gwi-play": address[2]})
            begin = json.load(urllib.request.urlopen(request, timeout=20))
            assert begin["table"]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
    assert out.endswith("The page has stopped.\n")
    assert (process.returncode, err) == (0, "")
