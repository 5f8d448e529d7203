"""The FAQ quotes errors as they are: each one is provoked here, the way a user would."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from gwi import GWIRegressor, load
from gwi.exceptions import GWIWarning

pytestmark = pytest.mark.unchecked

PAGE = (Path(__file__).parent.parent / "docs" / "faq.md").read_text()
QUOTED = re.findall(r"```text\n(\w+): (.*?)\n```", PAGE, re.DOTALL)
GENERATOR = np.random.default_rng(0)
X, Y = GENERATOR.standard_normal((40, 10)), GENERATOR.standard_normal(40)
FRAME = pd.DataFrame(X, columns=list("abcdefghij"))


def missing_columns(folder):
    GWIRegressor("linear", likelihood="gaussian").fit(FRAME, Y).predict(FRAME.drop(columns=["b", "c"]))


def no_validation(folder):
    GWIRegressor(Ridge().fit(X, Y)).fit(X, Y)


def seen_validation(folder):
    GWIRegressor(Ridge().fit(X, Y)).fit(X, Y, validation=(X, Y))


def missing_cells(folder):
    GWIRegressor("linear").fit(np.where(X > 2, np.nan, X), Y)


def text_targets(folder):
    GWIRegressor("linear").fit(X, ["a", "b"] * 20)


def unsavable(folder):
    GWIRegressor(lambda rows: rows[:, 0]).fit(X[:20], Y[:20], validation=(X[20:], Y[20:])).save(folder / "model.gwi")


def damaged_file(folder):
    path = GWIRegressor("linear", likelihood="gaussian").fit(X, Y).save(folder / "model.gwi")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    load(path)


def file_exists(folder):
    model = GWIRegressor("linear", likelihood="gaussian").fit(X, Y)
    model.save(folder / "model.gwi")
    model.save(folder / "model.gwi")


def far_rows(folder):
    model = GWIRegressor("linear", likelihood="gaussian").fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GWIWarning)
        model.predict(X[:2] + 100 * np.eye(10)[0])


PROVOKED = (
    *(missing_columns, no_validation, seen_validation, missing_cells, text_targets, unsavable, damaged_file, file_exists),
    far_rows,
)


@pytest.mark.parametrize(
    ("provoke", "quoted"), list(zip(PROVOKED, QUOTED, strict=True)), ids=[provoke.__name__ for provoke in PROVOKED]
)
def test_an_error_of_the_faq_is_quoted_as_it_is(provoke, quoted, tmp_path):
    name, sentence = quoted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GWIWarning)
        with pytest.raises((Exception, Warning)) as caught:
            provoke(tmp_path)
    assert type(caught.value).__name__ == name
    pattern = ".*".join(re.escape(part) for part in sentence.split("…"))
    assert re.fullmatch(pattern, str(caught.value), re.DOTALL), str(caught.value)
