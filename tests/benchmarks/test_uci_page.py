"""The UCI page says what the records say: ranks, critical differences, who is first, what failed, what is missing."""

import csv
import math
import re
import sqlite3

import pytest
from benchmarks.render import pages
from benchmarks.tables.common import records
from benchmarks.tables.common.statistics import (
    best_published,
    compare,
    critical_difference,
    estimate,
    fields,
    rank,
    read_published,
)
from benchmarks.tables.uci import page, protocol, tables
from benchmarks.tables.uci.caveats import missing, over_cap, test_selection
from benchmarks.tables.uci.methods import ABLATIONS, METHODS
from benchmarks.tables.uci.store import Key, Store

test_selection.__test__ = False
RECORDS = records.RESULTS / "uci.sqlite"


def record(table, split, method, nll, **others):
    scores = {"nll": nll, "nll_no_duplicates": nll, "crps": nll / 2, "rmse": nll, "coverage_95": 0.95, "calibration_error": 0.03}
    costs = {"fit_seconds": 10.0, "cpu_seconds": 9.0, "cpu_cap": 60.0, "seed": split, "num_train": 90, "num_test": 10}
    return {"protocol": "standard", "set": table, "split": split, "method": method} | scores | costs | others


def comparison(nll, fewer=()):
    """Of NLL by set, method and split."""
    rows = [record(t, s, m, x) for t, ms in nll.items() for m, xs in ms.items() for s, x in xs.items()]
    names = dict.fromkeys(m for ms in nll.values() for m in ms)
    parts = [m for m in names if m in ABLATIONS]
    return compare(rows, sets=list(nll), methods=[m for m in names if m not in parts], parts=parts, fewer=fewer)


@pytest.fixture
def store(tmp_path):
    """Two sets, two splits, ours first on one of them; one fit failed, most are missing."""
    store = Store(tmp_path / "uci.sqlite")
    nll = {"gwi": 2.0, "GWI-net (paper)": 2.4, "exact GP": 2.5, "NGBoost": 3.0, "histogram boosting": 2.75}
    parts = {"gwi, W₂": 2.1, "gwi, normal tails": 2.0625, "gwi, no r": 2.25, "gwi, constant variance": 2.5}
    parts["gwi, no disagreement"] = 2.125
    rows = []
    for table, better in (("boston", 0.0), ("yacht", 0.75)):
        for split in (0, 1):
            for method, value in (nll | parts).items():
                own = 1.0 + value + 0.125 * split - (better if method == "exact GP" else 0.0)
                if method != "GWI-net (paper)" or split == 0:
                    rows.append(record(table, split, method, own, versions={"python": "3"}, coverage_95=0.91 if better else 0.95))
    rows.append({"protocol": "standard", "set": "yacht", "split": 1, "method": "SVGP", "failure": "ValueError: a | b\nc"})
    store.add(rows)
    return store


def text_of(store, selection=records.RESULTS / "none.csv"):
    return page.text(store.rows(), read_published(page.PUBLISHED), selection)


def section(text, heading):
    return re.split(r"\n#{2,3} ", text.partition(f"# {heading}\n")[2])[0]


def test_mean_and_standard_error_by_hand():
    found = estimate([1.0, 2.0, 6.0])
    assert (found.mean, found.count) == (3.0, 3)
    assert found.error == pytest.approx(math.sqrt(7 / 3))
    assert math.isnan(estimate([1.0]).error)
    assert estimate([]) is None


def test_tied_methods_share_the_mean_of_their_places():
    found = rank("nll", {"one": {"a": 1.0, "b": 2.0, "c": 2.0}, "two": {"a": 3.0, "b": 1.0, "c": 2.0}})
    assert found.ranks == {"b": 1.75, "a": 2.0, "c": 2.25}


def test_friedmans_test_by_hand():
    # Ranks 1, 2, 3 on each of four sets: 12 · 4 / (3 · 4) · ((1 − 2)² + 0 + (3 − 2)²) = 8, and P(χ²₂ > 8) = exp(−4).
    found = rank("nll", {str(i): {"a": 1.0 + i, "b": 2.0 + i, "c": 3.0 + i} for i in range(4)})
    assert found.p_value == pytest.approx(math.exp(-4))
    assert rank("nll", {"one": dict.fromkeys("abc", 1.0), "two": dict.fromkeys("abc", 2.0)}).p_value == 1.0


@pytest.mark.parametrize(("num_methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_difference_is_that_of_the_table_of_demsar(num_methods, q):
    expected = q * math.sqrt(num_methods * (num_methods + 1) / (6 * 14))
    assert critical_difference(num_methods, 14) == pytest.approx(expected, abs=1e-3)


def test_methods_are_alike_below_the_critical_difference():
    means = {str(i): {name: float(place) for place, name in enumerate("abcdef")} for i in range(8)}
    found = rank("nll", means)
    assert 2 < found.critical_difference < 3
    assert found.alike() == [tuple("abc"), tuple("bcd"), tuple("cde"), tuple("def")]


def test_methods_are_compared_on_the_splits_that_all_finished():
    found = comparison({"boston": {"a": {0: 1.0, 1: 2.0, 2: 9.0}, "b": {0: 3.0, 1: 3.0}, "few": {0: 0.0}}}, fewer=["few"])
    assert found.splits["boston"] == (0, 1)
    assert found.compared["boston"] == ("a", "b")
    assert found.score("boston", "a", "nll").mean == 1.5
    gap = found.difference("boston", "b", "a", "nll")
    assert (gap.mean, gap.error, gap.count) == (1.5, 0.5, 2)


def test_a_method_with_few_splits_does_not_take_them_from_the_others():
    found = comparison({"boston": {"a": dict.fromkeys(range(5), 1.0), "b": dict.fromkeys(range(5), 2.0), "c": {0: 0.0, 1: 0.0}}})
    assert found.compared["boston"] == ("a", "b")
    assert len(found.splits["boston"]) == 5
    assert list(found.means("boston", "nll")) == ["a", "b"]


def test_ranks_have_no_holes_and_no_parts_of_ours():
    one, both = dict.fromkeys(range(3), 1.0), dict.fromkeys(range(2), 2.0)
    large = {"gwi": one, "a": both, "b": both, "gwi, no r": one}
    found = comparison({"boston": large | {"exact": both, "few": {0: 1.0}}, "naval": large, "power": large}, fewer=["few"])
    got = [(field.methods, {table: len(splits) for table, splits in field.splits.items()}) for field in fields(found)]
    assert got == [
        (("gwi", "a", "b"), {"boston": 2, "naval": 2, "power": 2}),
        (("gwi", "a", "b", "exact"), {"boston": 2}),
        (("gwi", "a", "b", "exact", "few"), {"boston": 1}),
    ]


def test_published_numbers_chosen_by_test_rows_or_in_doubt_are_never_the_best():
    published = read_published(page.PUBLISHED)
    assert {p.table for p in published} == set(protocol.SETS)
    assert all(math.isfinite(float(p.printed)) and p.source for p in published)
    assert all(p.honest() != p.method.endswith("*") for p in published if p.method.startswith("GWI"))
    best = {table: best_published(published, "nll", table) for table in protocol.SETS}
    assert (best["boston"].method, best["wine_red"].method) == ("FBNN", "DeepEvid")
    assert all(p.honest() for p in best.values())


def test_every_method_has_a_description():
    assert set(page.FUNCTIONS) == set(METHODS)
    assert all(page.sentence(function).endswith(".") for function in page.FUNCTIONS.values())


def test_the_page_says_who_is_first_and_plainly_when_it_is_not_us(store):
    text = text_of(store)
    boston, yacht = section(text, "boston"), section(text, "yacht")
    assert "gwi is first in NLL, 3.06 ± 0.06, ahead of exact GP by 0.500 ± 0.000." in boston
    assert "not first" not in boston
    assert "gwi is **not first** in NLL: exact GP is, 2.81 ± 0.06; gwi is second of 4, 3.06 ± 0.06, behind by 0.250" in yacht
    assert "gwi is **not first** in CRPS" in yacht


def test_the_page_gives_the_parts_of_our_score(store):
    said = section(text_of(store), "boston")
    parts = ("mean −0.250", "noise model −0.250", "covariance r −0.125", "disagreement −0.125", "tails −0.062")
    for part in (*parts, "W₂ for Titsias +0.100"):
        assert part in said
    assert "the mean gains most" in said


def test_the_best_is_bold_and_never_a_preset_or_a_part(store):
    lines = [line for line in section(text_of(store), "NLL").splitlines() if line.startswith("|")]
    assert sum("**" in line for line in lines) == 2
    assert "| gwi | **3.06 ± 0.06** | 3.06 ± 0.06 |" in lines
    assert "| GWI-net (paper) | 3.40 (1) | 3.40 (1) |" in lines
    assert "| *gwi, no r* | 3.31 ± 0.06 | 3.31 ± 0.06 |" in lines


def test_the_page_says_where_intervals_miss_their_band(store):
    assert "on 1 of 2 sets; outside: yacht (91.0 %)" in text_of(store)


def test_the_page_lists_failures_and_what_is_missing(store):
    text = text_of(store)
    planned = page.plan()
    assert f"**This is a part of the run**: of {len(planned)} planned records 38 are there, failed for good: 1" in text
    assert "| standard | yacht | 1 | SVGP | ValueError: a \\| b c |" in section(text, "Failures")
    left = section(text, "Not there yet")
    assert f"{len(planned) - 39} planned records" in left
    assert re.search(r"\| standard \| exact GP \| \d+ \| boston 2–9, concrete 0–9", left)


def test_pictures_are_small_and_linked_only_when_drawn(store, tmp_path):
    page.render(store, folder=tmp_path / "results", others=())
    text = (tmp_path / "results" / "records" / "uci.md").read_text()
    linked = set(re.findall(r"\]\(\.\./(\w+\.png)\)", text))
    assert linked == {path.name for path in (tmp_path / "results").glob("*.png")}
    assert linked == {f"uci_{kind}_standard.png" for kind in ("ranks", "coverage", "differences")}
    assert all(5_000 < path.stat().st_size < 150_000 for path in (tmp_path / "results").glob("*.png"))


@pytest.mark.parametrize("methods", [(), ("gwi",), ("exact GP",), ("exact GP", "NGBoost"), ("GWI-net (paper)",)], ids=str)
def test_any_part_of_a_run_renders(methods, tmp_path):
    rows = [record("boston", 0, method, 1.0) | {"failure": None, "versions": None} for method in methods]
    text = page.text(rows, read_published(page.PUBLISHED), tmp_path / "none.csv")
    assert "This is a part of the run" in text
    assert not re.search(r"\bnan\b|\bNone\b", text)
    for name in page.PROTOCOLS:
        for path, draw in page.drawings(name, page.compared(rows, name)).items():
            draw(tmp_path / path)
            assert f"(../{path})" in text


def test_tiny_scores_are_shown_as_powers_of_ten():
    found = comparison({"naval": {"gwi": {0: 3.1e-4, 1: 3.3e-4}, "a": {0: 1.0e-3, 1: 1.0e-3}}})
    assert "| gwi | **3.20 ± 0.10** |" in tables.scores(found, tables.RMSE)
    assert "naval (2), 10⁻⁴" in tables.scores(found, tables.RMSE)
    assert "gwi is first in RMSE, (3.20 ± 0.10) · 10⁻⁴" in tables.first(found, "naval", tables.RMSE)


def test_choosing_by_test_nll_is_measured_from_its_records(store, tmp_path):
    path = tmp_path / "test_selection.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["set", "method", "trial", "nll"])
        writer.writerows(["boston", "gwi", trial, nll] for trial, nll in enumerate([1.0, 2.0, 6.0]))
    text = text_of(store, path)
    assert "| boston | gwi | 3 | 3.00 ± 1.53 | 1.00 | 2.00 |" in section(text, "Choosing by test NLL")
    assert "not there yet" in test_selection(tmp_path / "none.csv")


def test_fits_over_the_cap_are_listed():
    rows = [record("boston", split, "NGBoost", 1.0, cpu_seconds=50.0 + 10 * split) for split in range(4)]
    assert "| standard | boston | NGBoost | 2 of 4 | 80 | 60 |" in over_cap(rows)
    assert over_cap(rows[:2]) == "No fit took more processor seconds than its cap."


def test_a_complete_run_has_nothing_missing():
    keys = {Key("standard", "boston", 0, "gwi")}
    assert missing(keys, keys) == "Nothing: every planned fit has a record."


def test_the_readme_shows_the_compared_methods(store):
    text = page.short(store.rows())
    assert "| gwi | **3.06** | 3.06 |" in text
    assert "paper" not in text
    assert "no r" not in text
    assert page.short([]) == "No records yet."
    assert "<!-- table: uci -->" in page.README.read_text()
    assert "uci" in pages.TABLES


@pytest.mark.skipif(not RECORDS.is_file(), reason="no records")
def test_the_page_is_that_of_the_records(tmp_path):
    with sqlite3.connect(f"file:{RECORDS}?mode=ro", uri=True) as source, sqlite3.connect(tmp_path / "uci.sqlite") as copy:
        source.backup(copy)
    rows = Store(tmp_path / "uci.sqlite").rows()
    if sum(row["failure"] is None for row in rows) != len(records.read("uci")):
        pytest.skip("a run is under way: it exports its records and renders the page at its end")
    text = page.text(rows, read_published(page.PUBLISHED))
    assert (page.FOLDER / "records" / "uci.md").read_text() == text, "run `python -m benchmarks.tables.uci --render`"
