"""The guard lets in who may ask, whole bodies of a bearable size, and nothing else."""

import asyncio
import json

import pytest

from gwi.exceptions import UserError
from gwi.web.guard import Answered, Guard, Limits, answer, checked_token, is_loopback

HOST, TOKEN = (b"host", b"127.0.0.1:8000"), "0123456789abcdef"


async def echo(scope, receive, send):
    await answer(send, 200, (await receive())["body"], "text/plain")


def ask(guard, parts=((b"hi", False),), headers=(HOST,), path="/", wait=0.0):
    """Status and body; parts of the body come one after the other, and then nothing more."""
    sent, left = [], list(parts)

    async def receive():
        if not left:
            await asyncio.sleep(100)
        await asyncio.sleep(wait)
        body, more = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers), "client": ("127.0.0.1", 1)}
    asyncio.run(asyncio.wait_for(guard(scope, receive, send), 10))
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "localhost.:80", "127.9.9.9"]
)
def test_this_machine_is_let_in(host):
    assert ask(Guard(echo), headers=[(b"host", host.encode())]) == (200, b"hi")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "0.0.0.0", "localhost@evil", "localhost:1:2", "[::2]"]
)
def test_a_name_that_was_pointed_at_this_machine_is_not(host):
    assert ask(Guard(echo), headers=[(b"host", host.encode())])[0] == 421
    assert ask(Guard(echo), headers=[HOST, (b"host", host.encode())])[0] == 421
    assert ask(Guard(echo), headers=[])[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8000", "http://127.0.0.1:8001"])
def test_a_page_of_another_site_is_not(origin):
    assert ask(Guard(echo), headers=[HOST, (b"origin", origin.encode())])[0] == 403
    assert ask(Guard(echo), headers=[HOST, (b"origin", b"http://127.0.0.1:8000")])[0] == 200


def test_without_the_token_there_is_nothing():
    guard = Guard(echo, token=TOKEN, open_paths=("/health",))
    given = [(), [(b"authorization", b"Bearer " + TOKEN[:-1].encode())], [(b"authorization", b"Basic " + TOKEN.encode())]]
    given += [[(b"authorization", f"Bearer {TOKEN}".encode())] * 2, [(b"authorization", b"Bearer \xff\xfe")]]
    for headers in given:
        for path in ("/", "/predict", "/metrics", "/openapi.json", "/nothing", "/health/", "//health"):
            assert ask(guard, headers=headers, path=path)[0] == 401
        assert ask(guard, headers=headers, path="/health")[0] == 200
    # Off loopback the name and the origin are anybody's: the token says who may ask.
    right = [(b"authorization", f"bearer {TOKEN}".encode()), (b"host", b"models.example"), (b"origin", b"https://app.example")]
    assert ask(guard, headers=right) == (200, b"hi")


def test_others_need_a_token_that_is_not_guessed():
    assert checked_token("127.0.0.1", None) is None
    assert checked_token("localhost", "") is None
    assert checked_token("0.0.0.0", TOKEN) == TOKEN
    with pytest.raises(UserError, match="GWI_TOKEN"):
        checked_token("0.0.0.0", None)
    for token in ("short", "has a blank in it 12345", "ünïcödé-0123456789"):
        with pytest.raises(UserError, match="at least 16"):
            checked_token("127.0.0.1", token)
    assert not any(map(is_loopback, ("0.0.0.0", "::", "example.com", "192.168.0.1", "")))


def test_a_body_has_a_size_a_time_and_no_packing():
    guard = Guard(echo, limits=Limits(body=10, bodies=15, seconds_to_send=0.1, seconds=0.1))
    assert ask(guard, [(b"12345", True), (b"67890", False)]) == (200, b"1234567890")
    assert ask(guard, [(b"12345", True), (b"678901", True), (b"2", False)])[0] == 413
    assert ask(guard, headers=[HOST, (b"content-length", b"11")])[0] == 413
    assert ask(guard, headers=[HOST, (b"content-encoding", b"gzip")])[0] == 415
    assert ask(guard, [(b"1", True)] * 50, wait=0.01)[0] in (408, 413)
    assert ask(guard, [(b"1", True)])[0] == 408
    assert guard._held == 0


def test_a_length_of_any_number_of_digits_is_too_large():
    for digits in (19, 5000):
        assert ask(Guard(echo), headers=[HOST, (b"content-length", b"9" * digits)])[0] == 413


def test_bodies_together_have_a_size_too():
    inside = []

    async def slow(scope, receive, send):
        inside.append(1)
        await asyncio.sleep(0.2)
        await answer(send, 200, b"", "text/plain")

    guard, statuses = Guard(slow, limits=Limits(body=10, bodies=15)), []

    async def one():
        async def receive():
            return {"type": "http.request", "body": bytes(10), "more_body": False}

        async def send(message):
            statuses.append(message.get("status"))

        await guard({"type": "http", "method": "POST", "path": "/", "headers": [HOST]}, receive, send)

    async def both():
        await asyncio.gather(one(), one())

    asyncio.run(both())
    assert sorted(filter(None, statuses)) == [200, 503]
    assert len(inside) == 1


def test_an_answer_has_a_time_and_a_fault_a_sentence(capsys):
    async def slow(scope, receive, send):
        await asyncio.sleep(5)

    async def faulty(scope, receive, send):
        raise KeyError("secret")

    status, said = ask(Guard(slow, limits=Limits(seconds=0.05)))
    assert (status, "0.05 s" in json.loads(said)["error"]) == (503, True)
    status, said = ask(Guard(faulty))
    assert (status, b"secret" in said) == (500, False)
    assert "KeyError: 'secret'" in capsys.readouterr().err


def test_every_request_is_told_without_its_secrets():
    seen = []
    ask(
        Guard(echo, token=TOKEN, observe=seen.append),
        headers=[(b"authorization", f"Bearer {TOKEN}".encode())],
        path="/a\x1b[2J\n",
    )
    ask(Guard(echo, observe=seen.append), headers=[])
    assert [answered.status for answered in seen] == [200, 421]
    assert TOKEN not in str(seen[0])
    assert str(seen[0]).startswith("127.0.0.1 POST /a\\u001b[2J\\n 200 ")
    assert str(Answered("-", "GET", "/" + "a" * 9000, 200, 0.0, 0)).count("a") == 199


def test_a_websocket_is_closed():
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(echo)({"type": "websocket", "path": "/", "headers": []}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
