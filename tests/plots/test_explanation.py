"""Bars lead from the variance of background rows to that of the row."""

from functools import cache

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from gwi import GWIClassifier, GWIRegressor
from gwi.plots import plot_explanation

mpl.use("Agg")


@cache
def explained():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    return GWIRegressor("svgp", likelihood="gaussian", random_state=0, verbose=0).fit(X, X[:, 0]).explain(2 * X[:2])


def test_bars_begin_where_the_one_above_ends():
    found = explained()
    ax = plot_explanation(found, 1)
    bars = sorted(ax.patches, key=lambda bar: bar.get_y())
    assert len(bars) == 5
    starts = [bar.get_x() for bar in bars]
    ends = [bar.get_x() + bar.get_width() for bar in bars]
    assert starts[0] == pytest.approx(found.base)
    np.testing.assert_allclose(starts[1:], ends[:-1])
    assert ends[-1] == pytest.approx(found.variance[1])
    low, high = ax.get_xlim()
    assert low < min(starts + ends)
    assert max(starts + ends) < high
    plt.close(ax.figure)


def test_least_parts_are_added_up_in_the_last_bar():
    found = explained()
    ax = plot_explanation(found, 0, most=3)
    assert [text.get_text() for text in ax.get_yticklabels()][2] == "3 more columns"
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(found.variance[0] - found.base)
    plt.close(ax.figure)


def test_of_classes_the_most_probable_one_is_drawn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    model = GWIClassifier("svgp", random_state=0).fit(X, np.where(X[:, 0] > 0, "$up$", "down"))
    found = model.explain(X[:1])
    ax = plot_explanation(found)
    assert ax.get_xlabel() == f"variance of the logit of {model.predict(X[:1])[0]}"
    other = plot_explanation(found, output=1 - int(found.shown[0]), ax=ax)
    assert other is ax
    plt.close(ax.figure)


def test_rows_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="row must be between 0 and 1"):
        plot_explanation(explained(), 5)
    with pytest.raises(ValueError, match="most must be a number of bars"):
        plot_explanation(explained(), most=0)
