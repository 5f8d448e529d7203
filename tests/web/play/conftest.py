"""A server of the page in this process, asked over the network as a browser asks it."""

import contextlib
import http.client
import json
import os
import threading
import time
from dataclasses import dataclass

import pytest
import uvicorn

from gwi.web.play.app import play_app
from gwi.web.play.running import bound

KEY = "a-key-that-is-only-for-tests"
SECONDS = 60


@dataclass
class Served:
    """Where the page is."""

    port: int
    key: str = KEY

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method, path, body=b"", **headers):
        """Status, headers, body of an answer; JSON with the key unless told otherwise."""
        if isinstance(body, dict | list):
            body = json.dumps(body).encode()
        sent = {"x-gwi-play": KEY, "content-type": "application/json", "host": f"127.0.0.1:{self.port}"}
        sent["content-length"] = str(len(body))
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def json(self, method, path, body=b"", **headers):
        status, _, answer = self.ask(method, path, body, **headers)
        return status, json.loads(answer)

    def wait(self, table, *states):
        """The table, once it is in one of the states."""
        for _ in range(20 * SECONDS):
            _, found = self.json("GET", f"/api/tables/{table}")
            if found["state"] in states:
                return found
            time.sleep(0.05)
        raise TimeoutError(found)


@pytest.fixture(scope="session")
def served():
    """The page's server. Its processes are not checked for shapes, which would take them seconds to begin."""
    listener, _ = bound(0)
    server = uvicorn.Server(uvicorn.Config(play_app(KEY), log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield Served(listener.getsockname()[1])
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture(scope="session")
def houses(tmp_path_factory):
    """A table with numbers, categories, dates and text."""
    import numpy as np

    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("tables") / "houses.csv"
    lines = ["town,rooms,area,built,price"]
    for _ in range(80):
        town, rooms = rng.choice(["Ulm", "Bonn", "Köln"]), rng.integers(1, 7)
        area = 22 * rooms + rng.normal(0, 8)
        price = 1000 * area * (1.3 if town == "Köln" else 1) + rng.normal(0, 4000)
        day = f"{rng.integers(1960, 2020)}-0{rng.integers(1, 9)}-1{rng.integers(0, 9)}"
        lines.append(f"{town},{rooms},{area:.1f},{day},{price:.0f}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


os.environ.setdefault("OMP_NUM_THREADS", "1")
