"""The fault campaign: it sees what brings a process down, goes on where it was, and finds no fault in some hundred trials."""

import csv

import pytest
from benchmarks.campaign import running
from benchmarks.campaign.__main__ import main
from benchmarks.campaign.running import num_faults, run

pytestmark = pytest.mark.unchecked

TROUBLED = "tests.benchmarks.troubled"


def test_every_way_to_go_down_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "MOST_TIME", 4)
    monkeypatch.setattr(running, "MOST_CPU", 1)
    (line,) = run(TROUBLED, 8, 1, tmp_path)
    wanted = {"fine": 1, "wrong": 1, "killed": 1, "hung": 2, "crashed": 2, "starved": 1}
    assert {name: int(line[name]) for name in wanted} == wanted
    assert num_faults(TROUBLED, [line]) == 7
    assert "3 crashed ZeroDivisionError: by purpose" in line["faulty"]
    assert "5 wrong three words more" in line["faulty"]


def test_a_campaign_that_was_stopped_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "BATCH", 1)
    assert len(run(TROUBLED, 1, 1, tmp_path)) == 1
    record = tmp_path / "campaign_troubled.csv"
    record.write_text(record.read_text().replace("0,1,1,0", "0,1,17,0"))
    assert [int(line["fine"]) for line in run(TROUBLED, 1, 1, tmp_path)] == [17]


def test_some_hundred_mutated_and_forged_model_files_are_refused_or_answer(tmp_path):
    assert main(["mutated", "forged", "--count", "100", "--jobs", "1", "--folder", str(tmp_path)]) == 0
    for kind in ("mutated", "forged"):
        with (tmp_path / f"campaign_{kind}.csv").open() as file:
            lines = list(csv.DictReader(file))
        assert sum(int(line["trials"]) for line in lines) == 100
        assert sum(int(line["refused"]) for line in lines) > 60


def test_a_kind_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["mutatde"])
    assert "there is no kind mutatde" in capsys.readouterr().err
