"""Requests that a server should answer with a status and a sentence: malformed, huge, slow and hostile ones.

They are made for a model with the columns `x`, a number, `town`, text, and `day`, a date.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
ROW = {"x": 0.5, "town": "Ulm", "day": "2024-05-01"}
SCRIPT = "<script>alert(1)</script>"
NO_NUMBERS: tuple[Any, ...] = ([], {}, [1], {"x": 1}, [[]], True, "abc", "1,5", "0x10", "١٢", "\x00", "\ud800", SCRIPT)
TOWNS = (True, False, None, 1, 1.5, "", "\x00", "née \u202e", SCRIPT, "'; DROP TABLE x; --", "../../etc/passwd")
NO_TOWNS: tuple[Any, ...] = ([], {}, ["Ulm"], "\ud800")
NO_DAYS: tuple[Any, ...] = (1, True, "yesterday", "2024-13-45", "31/12/2024", "99999-01-01", [], "2024-05-01T25:00:00")
NO_ROWS: tuple[Any, ...] = (
    [],
    {},
    [{}],
    [[]],
    [1],
    [None],
    "x",
    1,
    None,
    True,
    [ROW, 1],
    [ROW, None],
    {"x": [], "town": [], "day": []},
)
# Of HTTP no library would send, what does no harm.
HARMLESS = ("a folded header", "HTTP/9")
# Of bodies that were altered at random: some are still right.
ANY = (200, 400, 413, 415, 422)


@dataclass(frozen=True)
class Case:
    """One request, and the statuses that would be right.

    Attributes:
        name: what is wrong.
        body: bytes.
        kind: its Content-Type.
        expected: statuses.
        path: after the address.
        method: of HTTP.
        headers: more of them.
    """

    name: str
    body: bytes
    kind: str = JSON
    expected: tuple[int, ...] = (422,)
    path: str = "/predict"
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RawCase:
    """A connection.

    Attributes:
        name: what is wrong.
        parts: bytes, each with the seconds to wait before.
        expected: the statuses that would be right; None for a connection that ends without.
        is_cut_off: whether the client says that nothing more will come.
    """

    name: str
    parts: tuple[tuple[float, bytes], ...]
    expected: tuple[int | None, ...]
    is_cut_off: bool = False


def stream(table: Any, **options: Any) -> bytes:
    """A table as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def arrow_table(count: int = 3) -> Any:
    """Rows that are right."""
    return pa.table({name: [value] * count for name, value in ROW.items()})


def dumps(value: Any) -> bytes:
    return json.dumps(value).encode()


def json_cases() -> Iterator[Case]:
    """Bodies of JSON."""
    for text in (
        "",
        " ",
        "{",
        "[",
        "]",
        "{]",
        "nul",
        "'x'",
        '{"x":}',
        '{"x":1,}',
        "[1,]",
        "\x00",
        '"',
        "{}{}",
        '{"x":01}',
        "{x:1}",
    ):
        yield Case(f"no JSON: {text!r}", text.encode(), expected=(400,))
    for depth in (100, 1_000, 50_000):
        for opening, ending in (("[", "]"), ('{"x":', "}")):
            body = opening * depth + ("1" if opening != "[" else "") + ending * depth
            yield Case(f"nested {depth} deep", body.encode(), expected=(400, 413, 422))
            yield Case(
                f"nested {depth} deep in a cell", f'{{"x":{body},"town":"a","day":null}}'.encode(), expected=(400, 413, 422)
            )
    for number in ("NaN", "Infinity", "-Infinity"):
        yield Case(number, f'{{"x":{number},"town":"Ulm","day":null}}'.encode(), expected=(400,))
    for number in ("1e999", "-1e999", "1" + "0" * 400):
        yield Case(f"too large: {number[:8]}", f'{{"x":{number},"town":"Ulm","day":null}}'.encode(), expected=(400, 422))
    yield Case("a number of 5,000 digits", f'{{"x":{"9" * 5000},"town":"Ulm","day":null}}'.encode(), expected=(400,))
    for number in ("1e308", "-1e308", str(2**63), str(2**64), str(-(2**70)), "1e-400", "-0.0"):
        yield Case(f"far: {number}", f'{{"x":{number},"town":"Ulm","day":null}}'.encode(), expected=(200,))
    for cell in NO_NUMBERS:
        yield Case(f"a cell {cell!r}"[:60], dumps(ROW | {"x": cell}), expected=(400, 422))
    for cell in TOWNS:
        yield Case(f"a town {cell!r}", dumps(ROW | {"town": cell}), expected=(200,))
    for cell in NO_TOWNS:
        yield Case(f"a town {cell!r}", dumps(ROW | {"town": cell}), expected=(400, 422))
    for cell in NO_DAYS:
        yield Case(f"a day {cell!r}", dumps(ROW | {"day": cell}))
    yield Case("a duplicate key", b'{"x":1,"x":2,"town":"Ulm","day":null}', expected=(400,))
    yield Case("a duplicate key, apart", b'{"x" :1,"x":2,"town":"Ulm","day":null}', expected=(400,))
    yield Case("a duplicate key, escaped", b'{"x":1,"\\u0078":2,"town":"Ulm","day":null}', expected=(400,))
    yield Case("a duplicate key in a row", b'[{"x":1,"town":"Ulm","town":"Ulm","day":null}]', expected=(400,))
    for rows in NO_ROWS:
        yield Case(f"no rows: {dumps(rows)[:40]!r}", dumps(rows))
    yield Case("a row lacks a column", dumps([ROW, {"x": 1, "town": "Ulm"}]))
    yield Case("columns of different lengths", dumps({"x": [1, 2], "town": ["Ulm"], "day": [None]}))
    yield Case("columns and a cell", dumps({"x": [1], "town": "Ulm", "day": None}))
    yield Case("kinds in one column", dumps([ROW, ROW | {"x": "a"}]))
    yield Case("numbers and truth values", dumps([ROW, ROW | {"x": True}]))
    yield Case("100,000 columns", dumps(ROW | {f"c{i}": i for i in range(100_000)}), expected=(200,))
    yield Case("100,000 columns and none of ours", dumps({f"c{i}": i for i in range(100_000)}))
    yield Case("names of NUL, scripts and nothing", dumps(ROW | {"\x00": 1, "": 2, "<script>": 3, "\u202e": 4}), expected=(200,))
    yield Case("hostile names and none of ours", dumps({"\x00\x1b[2J": 1, "<script>alert(1)</script>": 3}))
    yield Case("a string of 10 MB", dumps(ROW | {"town": "a" * 10_000_000}), expected=(413,))
    yield Case("a name of 10 MB", dumps({"a" * 10_000_000: 1}))
    yield Case("half a million rows", b"[" + b",".join([dumps(ROW)] * 300_000) + b"]", expected=(413,))
    yield Case("a million lists", b"[" + b",".join([b"[]"] * 1_000_000) + b"]", expected=(413,))
    yield Case("a million numbers", b"[" + b",".join([b"1"] * 1_000_000) + b"]", expected=(413, 422))
    yield Case("40 MB", b" " * 40_000_000, expected=(413,))
    for name in ("latin-1", "utf-16", "utf-32", "utf-8-sig"):
        text = json.dumps(ROW | {"town": "Köln"}, ensure_ascii=False)
        yield Case(f"encoded as {name}", text.encode(name), expected=(200,) if name == "utf-8-sig" else (400,))


def table_cases() -> Iterator[Case]:
    """Bodies of CSV and Arrow."""
    head = b"x,town,day\n"
    good = head + b"1,Ulm,2024-05-01\n"
    for name, body in {
        "empty": b"",
        "blank lines": b"\n\n\n",
        "only names": head,
        "no names": b"1,2,3\n4,5,6\n",
        "a row too long": good + b"1,2,3,4\n",
        "a row too short": good + b"1\n",
        "a quotation without end": good + b'"1,Ulm,2024-05-01\n',
        "NUL": good + b"\x00",
        "not UTF-8": good + b"1,\xff\xfe,2024-05-01\n",
        "names twice": b"x,x,town,day\n1,1,Ulm,\n",
        "a name missing": b"x,town,\n1,a,b\n",
        "other names": b"a,b,c\n1,2,3\n",
        "no number": head + b"abc,Ulm,2024-05-01\n",
        "infinite": head + b"inf,Ulm,2024-05-01\n",
        "too large": head + b"1e999,Ulm,2024-05-01\n",
        "no date": head + b"1,Ulm,soon\n",
        "JSON": dumps([ROW]),
        "HTML": b"<html></html>",
        "gzip": gzip.compress(good),
        "a long line": head + b"1," + b"a" * 9_000_000 + b",\n",
        "100,001 columns": b",".join(b"c%d" % i for i in range(100_001)) + b"\n" + b",".join([b"1"] * 100_001),
        "numbers as names": b"1,2,3\n4,5,6\n",
        "a spreadsheet": b"PK\x03\x04" + bytes(100),
        "Parquet": b"PAR1" + bytes(100),
    }.items():
        yield Case(f"CSV: {name}", body, CSV, (413, 422))
    yield Case("CSV: 200,000 rows", head + b"1,Ulm,2024-05-01\n" * 200_000, CSV, (413,))
    yield Case("CSV: formulas", head + b"1,=cmd|' /C calc'!A0,2024-05-01\n", CSV, (200,), "/predict?keep=all")
    for body in (b"", b"ARROW1\x00\x00", b"\xff" * 100, bytes(100)):
        yield Case(f"Arrow: {body[:10]!r}", body, ARROW, (400, 422))
    whole = stream(arrow_table())
    for size in range(0, len(whole) - 8, max(len(whole) // 60, 1)):
        yield Case(f"Arrow: cut off after {size} bytes", whole[:size], ARROW, (200, 400, 422))
    for codec in ("zstd", "lz4"):
        bomb = pa.table({"x": pa.array([0.0] * 90_000), "town": ["a" * 500] * 90_000, "day": [None] * 90_000})
        yield Case(f"Arrow: packed by {codec}", stream(bomb, compression=codec), ARROW, (415,))
    town = pa.DictionaryArray.from_arrays(pa.array([0] * 90_000, pa.int32()), ["a" * 100_000])
    many = {"x": [1.0] * 90_000, "day": pa.nulls(90_000)}
    yield Case("Arrow: a long text again and again", stream(pa.table({**many, "town": town})), ARROW, (413,))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), pa.array([1.0]))
    yield Case("Arrow: two thousand million rows in a run", stream(pa.table({"x": runs})), ARROW, (413,))
    # Not pa.nulls, which would take memory for them.
    nulls = pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])
    yield Case("Arrow: as many missing cells", stream(pa.table({"x": nulls})), ARROW, (413,))
    for name, values in {
        "lists": [[1.0]],
        "objects": [{"a": 1}],
        "bytes": [b"a"],
        "infinite": [float("inf")],
        "text": ["abc"],
    }.items():
        yield Case(f"Arrow: {name}", stream(pa.table({"x": values, "town": ["Ulm"], "day": ["2024-05-01"]})), ARROW)
    twice = pa.Table.from_arrays([pa.array([1.0])] * 2 + [pa.array(["a"])] * 2, names=["x", "x", "town", "day"])
    yield Case("Arrow: names twice", stream(twice), ARROW)
    yield Case("Arrow: no rows", stream(arrow_table(0)), ARROW)
    yield Case("Arrow: no columns", stream(pa.table({})), ARROW)


def request_cases() -> Iterator[Case]:
    """What is wrong is not the body."""
    good = dumps(ROW)
    for kind in (
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/xml",
        "image/png",
        "/",
        "a" * 5000,
    ):
        yield Case(f"Content-Type {kind[:40]!r}", good, kind, (415,))
    yield Case("a charset", good, "application/json; charset=utf-16", (415,))
    for coding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "x"):
        yield Case(
            f"Content-Encoding {coding}", gzip.compress(bytes(10_000_000)), JSON, (415,), headers={"Content-Encoding": coding}
        )
    for accept in ("text/html", "image/*", "application/json;q=0", "garbage", "," * 100):
        yield Case(f"Accept {accept[:30]}", good, JSON, (200, 406), headers={"Accept": accept})
    for query in (
        "coverage=0",
        "coverage=1",
        "coverage=nan",
        "coverage=",
        "coverage=x",
        "coverage=0.5&coverage=0.6",
        "quantiles=2",
        "quantiles=" + "0.5," * 200,
        "quantiles=inf",
        "times=1",
        "parts=maybe",
        "unknown=1",
        "coverge=0.5",
        "keep=nothing",
        "%00=1",
        "keep=%00",
        "keep=%FF%FE",
        "coverage=%F0%9F%92%A9",
        "quantiles=0.5;DROP",
        "coverage=1e-999999",
    ):
        yield Case(f"query {query[:40]}", good, path=f"/predict?{query}")
    for path in (
        "/predict/",
        "/models/../../etc/passwd/predict",
        "/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd/predict",
        "/models//predict",
        "/models/other/predict",
        "/models/%00/predict",
        "//predict",
        "/models/y.gwi/predict",
        "/docs",
        "/redoc",
        "/static/../app.py",
        "/..%5c..%5cwindows",
        "/%F0%9F%92%A9",
        "/" + "a" * 8000,
        "/predict/../../metrics",
    ):
        yield Case(f"path {path[:50]}", good, path=path, expected=(404, 405))
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"):
        yield Case(f"method {method}", good, method=method, expected=(405,))
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "",
        "localhost.evil.example:80",
        "0.0.0.0",
        "169.254.169.254",
        "localhost@evil",
    ):
        yield Case(f"Host {host!r}", good, expected=(400, 421), headers={"Host": host})
    for origin in ("http://evil.example", "null", "https://127.0.0.1.evil.example", "file://", "http://localhost:1"):
        yield Case(f"Origin {origin}", good, expected=(403,), headers={"Origin": origin})


def mutated_cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Right bodies with bytes altered, left out, doubled or moved."""
    rng = random.Random(seed)
    bodies = [
        (JSON, dumps([ROW, ROW])),
        (JSON, dumps({name: [value] * 3 for name, value in ROW.items()})),
        (CSV, b"x,town,day\n1,Ulm,2024-05-01\n2.5,Bonn,2024-06-01\n"),
        (ARROW, stream(arrow_table())),
        (ARROW, stream(pa.table({"x": [1.0, 2.0], "town": pa.array(["a", "b"]).dictionary_encode(), "day": ["2024-05-01"] * 2}))),
    ]
    for number in range(count):
        kind, body = bodies[number % len(bodies)]
        data = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(data))
            what = rng.randrange(4)
            if what == 0:
                data[place] = rng.randrange(256)
            elif what == 1:
                del data[place : place + rng.randint(1, 8)]
            elif what == 2:
                data[place:place] = data[: rng.randint(1, 20)]
            else:
                data[place : place + 4] = rng.choice([b"\xff\xff\xff\x7f", bytes(4), b"\x80\x00\x00\x00", b'[{",', b"\n\n,,"])
            if not data:
                break
        yield Case(f"altered {number}", bytes(data), kind, ANY)


def raw_cases(slow: bool) -> Iterator[RawCase]:
    """What no library of HTTP would send; some of them wait for longer than the server does."""
    start = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    for name, data in {
        "no HTTP": b"hello\r\n\r\n",
        "only ends of lines": b"\r\n" * 100,
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
        "a head without end": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200_000,
        "many headers": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 40_000 + b"\r\n",
        "two hosts": b"GET /models HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        "no host": b"GET /models HTTP/1.1\r\n\r\n",
        "no host in HTTP/1.0": b"GET /models HTTP/1.0\r\n\r\n",
        "two lengths": start + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "length and chunks": start + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "a negative length": start + b"Content-Length: -1\r\n\r\n",
        "a chunk of no size": start + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "an unknown coding": start + b"Transfer-Encoding: gzip\r\n\r\n",
        "NUL in a header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: \x00\r\n\r\n",
        "a folded header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\r\n\tb\r\n\r\n",
        "HTTP/9": b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        "an absolute path": b"GET http://evil.example/models HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "a websocket": b"GET / HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "a proxy's request": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
    }.items():
        yield RawCase(name, ((0.0, data),), (400, 404, 405, 421, 431, 501, 505, 200 if name in HARMLESS else 400, None))
    for size in (b"40000000", b"9" * 20):
        yield RawCase(
            f"announces {size.decode()} bytes", ((0.0, start + b"Content-Length: " + size + b"\r\n\r\n"), (0.0, b"")), (413,)
        )
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    endless = (start + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 700)
    yield RawCase("chunks without end", tuple((0.0, part) for part in endless), (413, None))
    yield RawCase("a body cut off", ((0.0, start + b"Content-Length: 100\r\n\r\n{}"), (0.1, b"")), (None, 408), True)
    if slow:
        drip = tuple((0.5, b"X: y\r\n") for _ in range(40))
        yield RawCase("a head byte by byte", ((0.0, b"GET / HTTP/1.1\r\nHost: a\r\n"), *drip), (None, 408))
        yield RawCase("no head at all", ((0.0, b""), (25.0, b"")), (None,))
        body = tuple((0.5, b" ") for _ in range(80))
        yield RawCase("a body byte by byte", ((0.0, start + b"Content-Length: 1000\r\n\r\n"), *body), (408, None))


def cases(mutated: int = 250) -> Iterator[Case]:
    """All that are whole requests."""
    yield from json_cases()
    yield from table_cases()
    yield from request_cases()
    yield from mutated_cases(mutated)


def ask_raw(port: int, case: RawCase, patience: float = 45.0) -> tuple[int | None, bytes]:
    """The status that a connection gets and what came with it; None where it ended without."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as connection:
        try:
            for wait, part in case.parts:
                time.sleep(wait)
                connection.sendall(part)
            if case.is_cut_off:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            # It was closed while we wrote; an answer may be there all the same.
            pass
        try:
            while part := connection.recv(65536):
                found += part
                head, _, body = found.partition(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), None
                )
                if length is not None and len(body) >= length:
                    break
        except OSError:
            pass
    return (int(found.split(b" ", 2)[1]) if found.startswith(b"HTTP/") else None), found
