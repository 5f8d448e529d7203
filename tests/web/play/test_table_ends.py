"""However the process of a table ends, the page hears what happened, and nothing of it stays."""

import asyncio
import os
import sys
import time

import pytest

from gwi.exceptions import UserError
from gwi.web.play import tables
from gwi.web.play.table_process import MODEL, REPORT, TableSession
from gwi.web.play.tables import PlayTable, PlayTables

pytestmark = pytest.mark.unchecked
# In the place of the process, and quick to begin: it does what the cells say.
PROCESS = """
import json, subprocess, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    do = asked.get("cells", {}).get("0") or asked["do"]
    if do == "wait" or (do == "fit" and asked["max_time"] > 100):
        child = subprocess.Popen(["sleep", "60"])
        print(json.dumps({"stage": str(child.pid), "share": 0.5}), flush=True)
        time.sleep(60)
    elif do == "end":
        sys.exit(1)
    elif do == "open" and len(sys.argv) > 1:
        print(json.dumps({"error": "It is empty."}), flush=True)
        continue
    elif do == "long":
        print("x" * 100_000, flush=True)
    elif do == "nonsense":
        print("hello", flush=True)
    print(json.dumps({"done": {"columns": [{}, {}], "do": do}}), flush=True)
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table whose process is quick to begin."""
    usual = asyncio.create_subprocess_exec
    monkeypatch.setattr(tables, "LONGEST_ANSWER", 50_000)

    def quick(*command, **options):
        more = command[3:] if command[1] == "-c" else ()
        return usual(sys.executable, "-c", PROCESS, *more, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", quick)
    return PlayTable(tmp_path, "data.csv")


async def fitted(table, max_time=1.0):
    """Open the table and begin a fit, to its end where it has one."""
    table.read()
    await table._work
    table.fit(0, "auto", max_time)
    if max_time < 100:
        await table._work


async def said(question):
    with pytest.raises(UserError) as caught:
        await question
    return str(caught.value)


@pytest.mark.parametrize(
    ("do", "why"),
    [
        ("wait", "took more than 0 s and was ended, and with it the process that held the model"),
        ("end", "its process has ended, perhaps for lack of memory"),
    ],
)
@pytest.mark.parametrize("question", ["predict", "explain"])
def test_a_model_that_is_lost_says_why_and_a_new_fit_mends_it(table, do, why, question, monkeypatch):
    monkeypatch.setattr(tables, "SECONDS_TO_PREDICT", 0.3)
    monkeypatch.setattr(tables, "SECONDS_TO_EXPLAIN", 0.3)

    async def run():
        await fitted(table)
        # One that waits for the first hears it, too, and those after.
        first, second = getattr(table, question)({"0": do}), table.predict({})
        sentences = await asyncio.gather(said(first), said(second))
        sentences.append(await said(table.explain({})))
        for sentence in sentences:
            assert sentence.startswith("The model is no longer at hand: ")
            assert why in sentence
            assert sentence.endswith("Fit again, with fewer rows or columns.")
        assert table.state == "fitted"
        table.fit(0, "auto", 1.0)
        await table._work
        monkeypatch.setattr(tables, "SECONDS_TO_PREDICT", 10.0)
        assert (await table.predict({}))["do"] == "predict"
        await table.close()

    asyncio.run(run())


@pytest.mark.parametrize("do", ["long", "nonsense"])
def test_what_is_no_answer_is_a_sentence(table, do):
    async def run():
        await fitted(table)
        assert "does not answer as it should" in await said(table.predict({"0": do}))
        assert "its process gave an answer that cannot be read" in await said(table.predict({}))
        await table.close()

    asyncio.run(run())


def test_a_process_that_cannot_be_had_leaves_no_table_that_is_read_for_ever(table, monkeypatch):
    def none(*command, **options):
        raise OSError("no more processes")

    async def run():
        monkeypatch.setattr(asyncio, "create_subprocess_exec", none)
        table.read()
        await table._work
        assert table.state == "refused"
        assert "does not answer as it should (OSError)" in table.error

    asyncio.run(run())


def test_a_file_that_is_refused_keeps_no_process(table, monkeypatch):
    usual = asyncio.create_subprocess_exec

    async def run():
        begun = []

        async def refuses(*command, **options):
            begun.append(await usual("", "-c", PROCESS, "refuse", **options))
            return begun[0]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", refuses)
        table.read()
        await table._work
        assert (table.state, table.error) == ("refused", "It is empty.")
        assert table._process is None
        assert begun[0].returncode is not None

    asyncio.run(run())


def is_there(process):
    """Whether it runs; one that has ended and was not waited for by whoever inherited it does not."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are looked up in /proc")
def test_a_cancelled_fit_ends_the_processes_that_it_started(table):
    async def run():
        await fitted(table, 600.0)
        while not table.stage:
            await asyncio.sleep(0.01)
        child = int(table.stage)
        assert is_there(child)
        # However often it is asked for; a fit that begins after the first goes on.
        ends = [asyncio.create_task(table.cancel()) for _ in range(3)]
        await ends[0]
        table.fit(0, "auto", 1.0)
        await asyncio.gather(*ends)
        await table._work
        assert table.state == "fitted"
        end = time.monotonic() + 10
        while is_there(child):
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        await table.close()

    asyncio.run(run())


def test_a_table_that_is_closed_starts_no_process(table):
    async def run():
        await fitted(table)
        waiting = asyncio.create_task(table.predict({"0": "wait"}))
        after = asyncio.create_task(table.predict({}))
        while not table.stage:
            await asyncio.sleep(0.01)
        await table.close()
        assert [await said(waiting), await said(after)] == [tables.CLOSED] * 2
        assert table._process is None
        assert not table.folder.exists()

    asyncio.run(run())


def test_many_files_at_a_time_are_no_more_tables_than_there_may_be(monkeypatch):
    monkeypatch.setattr(PlayTable, "read", lambda table: None)

    async def run():
        kept = PlayTables()
        assert kept._folder is None
        found = await asyncio.gather(*(kept.add(f"{i}.csv", b"a,b") for i in range(12)), return_exceptions=True)
        assert len(kept._tables) == tables.MOST_TABLES
        assert all(str(one) == tables.CLOSED for one in found if isinstance(one, Exception))
        assert {known for known, _ in (one for one in found if isinstance(one, tuple))} >= set(kept._tables)
        assert len(list(kept._folder.iterdir())) == tables.MOST_TABLES
        folder = kept._folder
        await kept.close()
        assert not folder.exists()

    asyncio.run(run())


def test_a_fit_leaves_nothing_of_the_fit_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("a,b\n" + "".join(f"{i},{i}\n" for i in range(3)))
    for name in (MODEL, REPORT):
        (tmp_path / name).write_text("of the fit before")
    with pytest.raises(UserError):
        TableSession(tmp_path / "data.csv", lambda stage, share: None).fit(
            {"target": 0, "task": "classification", "max_time": 1.0}
        )
    assert not (tmp_path / MODEL).exists()
    assert not (tmp_path / REPORT).exists()
