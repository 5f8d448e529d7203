"""Cells come back from the numbers that they became, where these tell."""

import numpy as np
import pandas as pd

from gwi.tables import TableEncoder
from gwi.tables.decoding import UNKNOWN, cell_text, cells_of


def test_numbers_and_categories_come_back_and_missing_cells_say_so():
    frame = pd.DataFrame(
        {
            "town": ["Ulm", "Bonn", None, "Ulm"],
            "rooms": [3.0, np.nan, 5.25, 1.0],
            "when": pd.to_datetime(["2020-01-01", "2021-02-03", "2022-03-05", "2023-04-06"]),
        }
    )
    encoder = TableEncoder().fit(frame)
    found = cells_of(encoder.encoder_, encoder.transform(frame))
    assert found == [["Ulm", "3", UNKNOWN], ["Bonn", "missing", UNKNOWN], ["missing", "5.25", UNKNOWN], ["Ulm", "1", UNKNOWN]]


def test_cells_are_short():
    assert [cell_text(value) for value in (1.23456789, 1234567.0, None, float("nan"), True, "a", 3)] == [
        *("1.2346", "1234567", "missing", "missing", "True", "a", "3")
    ]
