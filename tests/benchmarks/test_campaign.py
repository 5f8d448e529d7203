"""The fault campaign: it sees what brings a process down, goes on where it was, and finds no fault in some trials a kind."""

import csv
import importlib
import pkgutil
import warnings

import pytest
from benchmarks.campaign import kinds, running
from benchmarks.campaign.__main__ import main
from benchmarks.campaign.running import num_faults, outcomes, run, slow

pytestmark = pytest.mark.unchecked

TROUBLED = "tests.benchmarks.troubled"


@pytest.mark.slow
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


@pytest.mark.parametrize(("faults", "seconds", "code"), [(0, 1.5, 0), (1, 1.5, 1), (0, 9.0, 1)])
def test_the_command_ends_with_one_after_a_fault_or_a_slow_trial(tmp_path, capsys, faults, seconds, code):
    fine, bad = outcomes("benchmarks.campaign.kinds.default_fits")
    took = "; ".join(f"{k} small {seconds if k == 3 else 1.0}" for k in range(10))
    line = {
        "first": 0,
        "trials": 10,
        fine[0]: 10 - faults,
        bad[0]: faults,
        **dict.fromkeys((*fine[1:], *bad[1:]), 0),
        "took": took,
    }
    with (tmp_path / "campaign_default_fits.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(line))
        writer.writeheader()
        writer.writerow(line)
    assert main(["default_fits", "--count", "10", "--folder", str(tmp_path)]) == code
    said = capsys.readouterr().out
    assert said.startswith(f"default_fits: 10 trials, {faults} faults")
    assert ("3 (small) took 9.0 s" in said) == (seconds == 9)


def test_a_smaller_count_leaves_the_record_of_a_larger_one(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "BATCH", 1)
    (tmp_path / "campaign_troubled.csv").write_text("first,trials,fine\n0,1,1\n1,1,1\n2,1,1\n")
    assert [int(line["first"]) for line in run(TROUBLED, 2, 1, tmp_path)] == [0, 1]
    assert len((tmp_path / "campaign_troubled.csv").read_text().splitlines()) == 4


def test_trials_over_three_times_the_median_of_their_size_are_named():
    took = [{"took": f"{2 * k} small 1.0; {2 * k + 1} large {4.0 if k else 13.0}"} for k in range(6)]
    assert slow(took) == (12, ["1 (large) took 13.0 s, the median is 4.00 s"])
    assert slow([*took[:2], {"took": ""}, {}]) == (0, [])


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        pytest.param("mutated", range(60), marks=pytest.mark.slow),
        ("forged", range(40)),
        pytest.param("light_fits", range(8), marks=pytest.mark.slow),
        pytest.param("default_fits", (3, 19), marks=pytest.mark.slow),
        pytest.param("kills", (0,), marks=pytest.mark.slow),
        pytest.param("odd_files", (0, 60, 100, 120), marks=pytest.mark.slow),
        pytest.param("threads", (0, 4), marks=pytest.mark.slow),
        ("one_row", (1, 5)),
        pytest.param("updates", (1,), marks=pytest.mark.slow),
    ],
)
def test_some_trials_of_each_kind_come_out_right(kind, numbers, monkeypatch):
    module = importlib.import_module(f"benchmarks.campaign.kinds.{kind}")
    monkeypatch.setattr(module, "NUM_UPDATES", 30, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [module.trial(number).partition(": ")[0] for number in numbers]
    assert set(found) <= set(module.FINE), found


def test_every_kind_says_how_many_trials_a_campaign_has():
    for found in pkgutil.iter_modules(kinds.__path__):
        module = importlib.import_module(f"{kinds.__name__}.{found.name}")
        assert module.COUNT > 0
        assert set(module.FINE).isdisjoint(module.FAULTS)


def test_a_kind_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["mutatde"])
    assert "there is no kind mutatde" in capsys.readouterr().err
