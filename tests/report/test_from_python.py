"""A report from Python is the command's page on rows in memory."""

import numpy as np
import pandas as pd
import pytest
import torch

from gwi import GWIClassifier, GWIRegressor
from gwi.exceptions import UserError
from gwi.report import from_python, reasons

pytestmark = pytest.mark.unchecked


def rows(count=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3))
    return X, X[:, 0] + np.sin(X[:, 1]) + 0.1 * rng.normal(size=count)


def test_arrays_and_frames_have_a_page_with_reasons():
    X, y = rows()
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(X, y)
    test = rows(seed=1)
    page = model.report(*test)
    assert "How well is <em>y</em> predicted?" in page
    assert "Why the model is unsure" in page
    worst = int(np.argmax(model.ood_score(test[0])))
    assert f"Row {worst}: " in page
    assert "Which columns matter to the kernel" in page
    assert "3 columns as 3 numbers" in page
    assert "this file" not in page
    assert page == model.report(*test)

    names = ["length", "<b>width</b>", "colour"]
    colour = np.where(X[:, 2] > 0, "red", "blue")
    frame = pd.DataFrame({names[0]: X[:, 0], names[1]: X[:, 1], names[2]: colour})
    of_frame = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(frame, y)
    page = of_frame.report(frame, pd.Series(y, name="weight & more"))
    assert "How well is <em>weight &amp; more</em> predicted?" in page
    assert "<b>width" not in page
    assert "colour = " in page


def test_plain_frames_are_found_by_their_names():
    X, y = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(frame, y)
    page = model.report(frame[["c", "a", "b"]], y)
    assert "Why the model is unsure" in page
    assert model.report(frame, y).count("<figure>") == page.count("<figure>")


def test_classes_have_a_page(tmp_path):
    X, y = rows()
    model = GWIClassifier("linear", random_state=0).fit(X, np.where(y > 0, "up", "down"))
    page = model.report(X, np.where(y > 0, "up", "down"), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page
    assert "variance of the logit of" in page
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model.report(X, np.where(y > 0, "up", "down"), tmp_path / "page.html")


def test_large_tables_are_sampled(monkeypatch):
    X, y = rows()
    model = GWIRegressor("linear", likelihood="gaussian", random_state=0).fit(X, y)
    monkeypatch.setattr(from_python, "MOST_ROWS", 30)
    assert "There are 80 rows; 30 of them, drawn at random, are used here." in model.report(X, y)


def test_models_that_cannot_say_why_have_a_page_without_it():
    X, y = rows()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model = GWIRegressor(network, kernel="features", likelihood="gaussian", random_state=0)
    model.fit(X[:40], y[:40], validation=(X[40:], y[40:]))
    page = model.report(X, y)
    assert "Rows to look at" in page
    assert "Why the model is unsure" not in page


def test_what_has_no_report_is_refused_in_one_sentence():
    X, y = rows()
    model = GWIRegressor("linear", likelihood="gaussian", random_state=0).fit(X, y)
    with pytest.raises(UserError, match="rows and a target for each; got 80 rows and 3 targets"):
        model.report(X, y[:3])
    with pytest.raises(UserError, match="got 0 rows"):
        model.report(X[:0], y[:0])
    several = GWIRegressor("linear", likelihood="gaussian", random_state=0).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="Scores need a model of one target; this one has 2"):
        several.report(X, np.column_stack([y, y]))
    images = np.random.default_rng(0).normal(size=(40, 1, 8, 8)).astype(np.float32)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(72, 2))
    of_images = GWIClassifier(network, random_state=0)
    of_images.fit(images[:20], y[:20] > 0, validation=(images[20:], y[20:40] > 0))
    with pytest.raises(UserError, match=r"fitted to rows of shape \(1, 8, 8\)"):
        of_images.report(images, y[:40] > 0)
    with pytest.raises(UserError, match=r"fitted to rows of shape \(1, 8, 8\)"):
        of_images.explain(images[:1])


def test_reasons_of_far_rows_name_no_known_row():
    X, y = rows()
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(X, y)
    page = model.report(np.vstack([X, np.full((1, 3), 1e4)]), np.append(y, 0.0))
    assert "Row 80: 100 % of the prior’s variance is left" in page.replace("\u00a0", " ")
    assert "No training row is informative about it." in page
    assert page.count("of the prior’s variance is left") == 2 * reasons.NUM_ROWS
