"""What an estimator says of itself is in the user's own units, and the same as text, dictionary and HTML."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from gwi import GWIClassifier, GWIRegressor, diagnose, load
from waves import wave

pytestmark = pytest.mark.unchecked


def fitted(factor=1.0, mean="svgp"):
    x, y = wave(80)
    return GWIRegressor(mean, random_state=0).fit(x, factor * y)


def test_scores_of_the_summary_are_in_the_units_of_the_target(tmp_path):
    """A target in cents has a hundred times the error of one in euros, and log 100 more NLL."""
    euros, cents = fitted().summary_, fitted(100.0).summary_
    assert np.isclose(cents.members[0].scores[0], 100 * euros.members[0].scores[0], rtol=1e-3)
    assert np.allclose(np.subtract(cents.held_out_nll, euros.held_out_nll), np.log(100), atol=1e-3)
    assert np.isclose(euros.target_std[0], wave(80)[1].std())
    assert f"its standard deviation is {cents.target_std[0]:.4g}" in str(cents)
    model = fitted(100.0)
    assert load(model.save(tmp_path / "m.gwi")).summary_ == model.summary_


def test_each_target_has_an_error_of_its_own():
    x, y = wave(60)
    model = GWIRegressor(LinearRegression(), random_state=0).fit(x, np.column_stack([y, 1000 * y]))
    small, large = model.summary_.members[0].scores
    assert np.isclose(large, 1000 * small)
    assert f"{small:.4g}, {large:.4g}" in str(model.summary_)


def test_the_summary_of_classes_says_how_many_are_right():
    x = np.random.default_rng(0).normal(size=(1200, 2))
    y = x[:, 0] + 0.5 * np.random.default_rng(1).normal(size=1200) > 0.3
    model = GWIClassifier("linear", random_state=0).fit(x[:200], y[:200])
    assert abs(model.summary_.held_out_accuracy - model.score(x[200:], y[200:])) < 0.06
    assert f"{model.summary_.held_out_accuracy:.1%} accuracy on held-out rows" in str(model.summary_)


def test_summary_and_diagnosis_are_text_dictionary_and_escaped_html():
    x, y = wave(80)
    model = fitted()
    found = diagnose(model, x + 50, y + 50)
    assert found.findings
    summary = replace(model.summary_, note="<script>alert(1)</script>")
    for said, key in ((summary, "members"), (found, "findings")):
        as_dict = said.to_dict()
        assert as_dict[key]
        assert as_dict[key][0].keys()
        assert json.loads(json.dumps(as_dict))[key]
    page = summary._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert all(finding.what.replace('"', "&quot;").replace("'", "&#x27;") in found._repr_html_() for finding in found.findings)


def test_a_diagnosis_names_errors_in_the_units_of_the_target():
    x, y = wave(80)
    model = fitted(1000.0, mean="svgp-all")
    wrong = 1000 * y + 5000
    found = {finding.kind: finding for finding in diagnose(model, x, wrong).findings}
    typical = np.median(np.abs(wrong - model.predict(x)))
    assert f"median error {typical:.3g}" in found["mean-and-kernel-disagree"].what
