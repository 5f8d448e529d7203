"""Scores on training rows are told from scores on new ones."""

from pathlib import Path

import numpy as np
import pytest

from gwi import GWIClassifier, GWIRegressor, cli, load
from gwi.models import seen
from gwi.models.seen import SeenRows


def rows(num_rows=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, 2))
    return x, x[:, 0] + 0.1 * rng.normal(size=num_rows)


@pytest.mark.parametrize("estimator", [GWIRegressor, GWIClassifier])
def test_a_model_knows_its_training_rows_through_a_file_and_can_be_saved_without(estimator, tmp_path):
    x, y = rows()
    y = y if estimator is GWIRegressor else np.where(y > 0, "up", "down")
    new = rows(40, seed=1)[0]
    model = estimator("svgp", random_state=0).fit(x, y)
    mixed, targets = np.concatenate([x[:10], new[:30]]), np.concatenate([y[:10], y[:30]])
    kept = load(model.save(tmp_path / "with.gwi"))
    assert model.share_seen(mixed, targets) == kept.share_seen(mixed, targets) == 0.25
    assert np.isnan(load(model.save(tmp_path / "without.gwi", hashes=False)).share_seen(mixed, targets))
    # The same features with another target are another row.
    assert model.share_seen(x, np.roll(y, 1) if estimator is GWIRegressor else np.where(y == "up", "down", "up")) < 0.1


def test_of_many_rows_a_sample_of_hashes_is_kept(monkeypatch):
    monkeypatch.setattr(seen, "MOST_HASHES", 500)
    x, y = rows(5000)
    known = SeenRows.of(x, y)
    assert len(known.hashes) == 500
    new_x, new_y = rows(5000, seed=1)
    share = known.share_of(np.concatenate([x[:2500], new_x[:2500]]), np.concatenate([y[:2500], new_y[:2500]]))
    assert share == pytest.approx(0.5, abs=0.1)


def test_hashes_have_64_bits_are_at_most_a_hundred_thousand_and_not_those_of_other_models():
    x = np.arange(100_500.0)[:, None]
    known = SeenRows.of(x, x)
    assert (known.hashes.dtype, len(known.hashes)) == (np.uint64, 100_000)
    one, other = (SeenRows.of(x[:count], x[:count]) for count in (60, 61))
    assert not set(one.hashes) & set(other.hashes)


def test_the_page_says_what_hashes_reveal_and_how_to_leave_them_out():
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    said = page.split("## What the hashes in a model file reveal")[1].split("\n## ")[0]
    for words in ("can tell whether it was a training row", "hashes=False", f"{seen.MOST_HASHES:,}"):
        assert words in said


def test_the_command_says_when_it_scores_training_rows(tmp_path, capsys):
    x, y = rows(80)
    table, new = tmp_path / "rows.csv", tmp_path / "new.csv"
    for path, (a, b) in ((table, (x, y)), (new, rows(30, seed=5))):
        np.savetxt(path, np.column_stack([a, b]), delimiter=",", header="a,b,y", comments="", fmt="%.9f")
    model = str(tmp_path / "model.gwi")
    assert cli.run(["fit", str(table), "-t", "y", "-o", model, "--mean", "svgp", "-q"]) == 0
    capsys.readouterr()
    assert cli.run(["evaluate", model, str(table)]) == 0
    assert "note: 100% of the rows were in the training data; these scores say little about new rows." in capsys.readouterr().err
    assert cli.run(["evaluate", model, str(new)]) == 0
    assert "fitted to" not in capsys.readouterr().err


def test_a_report_says_when_it_is_of_training_rows(tmp_path, capsys):
    x, y = rows()
    np.savetxt(tmp_path / "rows.csv", np.column_stack([x, y]), delimiter=",", header="a,b,y", comments="", fmt="%.9f")
    data, model = f"{tmp_path}/rows.csv", f"{tmp_path}/m.gwi"
    assert cli.run(["fit", data, "-t", "y", "-o", model, "--mean", "linear", "-q"]) == 0
    capsys.readouterr()
    assert cli.run(["report", model, data, "-o", f"{tmp_path}/r.html"]) == 0
    assert "100% of the rows were in the training data" in capsys.readouterr().err
