"""The study of sets of labels and strata: scores, what chance does, and records."""

import numpy as np
import pytest
from benchmarks.render.set_tables import bounds, inside
from benchmarks.studies.sets import cells, label_scores
from benchmarks.tables.common.records import read


def test_scores_of_labels_are_those_of_loops():
    rng = np.random.default_rng(0)
    p, u = rng.dirichlet(np.ones(4), size=20), rng.uniform(size=(20, 1))
    found = label_scores(p, u)
    for i in range(20):
        order = sorted(range(4), key=lambda j: -p[i, j])
        for j in range(4):
            rank = order.index(j)
            above = sum(p[i, k] for k in order[:rank])
            assert found["LAC"][i, j] == pytest.approx(1 - p[i, j])
            assert found["APS"][i, j] == pytest.approx(above + p[i, j])
            randomised = above + u[i, 0] * p[i, j]
            assert found["APS, randomised"][i, j] == pytest.approx(randomised)
            assert found["RAPS, randomised"][i, j] == pytest.approx(randomised + 0.1 * max(rank - 1, 0))
            top = max(p[i])
            saps = u[i, 0] * top if rank == 0 else top + 0.1 * (rank - 1 + u[i, 0])
            assert found["SAPS, randomised"][i, j] == pytest.approx(saps)


def test_chance_is_that_of_rows_that_judge_and_of_new_ones():
    rng = np.random.default_rng(0)
    num_judged, num_new, counts = 60, 80, []
    for _ in range(4000):
        limit = np.sort(rng.uniform(size=num_judged))[55 - 1]  # ⌈61 · 0.9⌉ = 55
        counts.append((rng.uniform(size=num_new) <= limit).sum())
    low, high = bounds({"num_judged": "60", "num_new": "80"})
    assert 0.985 <= np.mean([low <= count <= high for count in counts]) <= 0.999
    assert bounds({"num_judged": "5", "num_new": "80"}) == (80, 80)
    record = {"num_judged": "60", "num_new": "80"}
    assert inside([record | {"covered": str(count)} for count in (40, 72, 80)]) == "1, 0 of 3"


def test_a_cell_counts_its_own_rows_and_leaves_infinite_sizes_out_of_the_mean():
    new, hit = np.array(["a", "a", "b"]), np.array([True, False, True])
    whole, a, b = cells({}, np.array(["a", "b", "b"]), new, hit, np.array([1.0, np.inf, 3.0]))
    assert (whole["covered"], whole["num_new"], whole["size"], whole["odd"]) == (2, 3, 2.0, pytest.approx(1 / 3))
    assert (a["cell"], a["num_judged"], a["num_new"], a["size"]) == ("a", 1, 2, 1.0)
    assert (b["num_judged"], b["covered"]) == (2, 1)


def test_the_record_of_sets_keeps_its_promise():
    """Of 99 % bounds few cells may be outside; by class and by stratum none is far below."""
    ours = [r for r in read("sets") if r["method"].startswith("gwi") and r["by"] and r["cell"]]
    below = [r for r in ours if int(r["covered"]) < bounds(r)[0]]
    assert len(ours) > 300
    assert len(below) <= 0.02 * len(ours)
