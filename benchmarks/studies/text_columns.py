"""Text of many values: its letters, the share of the rows that have it, one column for each value, or nothing.

    python -m benchmarks.studies.text_columns [--splits 10]

writes results/text_columns.csv: NLL and RMSE in units of the target's standard deviation, a fifth of the rows held out at random,
of practice tables with such a column. The means are a GP, a linear model and boosting, all else is the default. *Letters* is what
the encoder does. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import ShuffleSplit

from benchmarks.tables.common.records import append, read
from gwi import GWIRegressor
from gwi._typing import Array

# File, target, the column of text, what gives the target away, and at most so many rows.
TABLES: dict[str, tuple[str, str, str, tuple[str, ...], int]] = {
    "ames, neighbourhood": ("mixed/ames", "Sale_Price", "Neighborhood", (), 1200),
    "storms, name": ("mixed/storms", "wind", "name", ("status", "category"), 1500),
    "orthodont, subject": ("grouped/orthodont", "distance", "Subject", (), 1000),
}
MOST_CATEGORIES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], int(r["split"]), r["way"]) for r in read("text_columns")}
    for split in range(arguments.splits):
        for table in TABLES:
            for way in WAYS:
                if (table, split, way) not in done:
                    append("text_columns", [measure(table, split, way)])
                    print(table, split, way, flush=True)


def measure(table: str, split: int, way: str) -> dict[str, object]:
    """Scores of one way on one split."""
    file, target, column, given_away, most_rows = TABLES[table]
    frame = pd.read_csv(Path(os.environ["GWI_DATA"]) / "practice" / f"{file}.csv.gz")
    frame = frame.sample(min(most_rows, len(frame)), random_state=0).reset_index(drop=True)
    y = frame[target].to_numpy(dtype=np.float64)
    frame = frame.drop(columns=[target, *given_away])
    train, test = next(ShuffleSplit(1, test_size=0.2, random_state=split).split(frame))
    x, x_new = WAYS[way](frame.iloc[train].reset_index(drop=True), frame.iloc[test].reset_index(drop=True), column)
    boosting = HistGradientBoostingRegressor(max_iter=300, learning_rate=0.05, max_leaf_nodes=15, min_samples_leaf=10)
    model = GWIRegressor(["svgp", "linear", boosting], random_state=split).fit(x, y[train])
    unit = float(y[train].std())
    rmse: Array = np.sqrt(np.mean((model.predict(x_new) - y[test]) ** 2))
    return {
        "table": table,
        "split": split,
        "way": way,
        "nll": model.nll(x_new, y[test]) - math.log(unit),
        "rmse": float(rmse) / unit,
        "num_values": frame[column].nunique(),
    }


Way = Callable[[pd.DataFrame, pd.DataFrame, str], tuple[pd.DataFrame, pd.DataFrame]]


def letters(train: pd.DataFrame, test: pd.DataFrame, column: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """As they are: the encoder's way."""
    return train, test


def left_out(train: pd.DataFrame, test: pd.DataFrame, column: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Without the column."""
    return train.drop(columns=column), test.drop(columns=column)


def share(train: pd.DataFrame, test: pd.DataFrame, column: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The share of the training rows that have the value."""
    known = train[column].value_counts(normalize=True)
    first, second = (frame.assign(**{column: frame[column].map(known).fillna(0.0).astype(float)}) for frame in (train, test))
    return first, second


def one_hot(train: pd.DataFrame, test: pd.DataFrame, column: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A column for each of the most frequent values."""
    values = train[column].value_counts().index[:MOST_CATEGORIES]
    first, second = (
        frame.drop(columns=column).assign(**{f"{column} = {value}": (frame[column] == value).astype(float) for value in values})
        for frame in (train, test)
    )
    return first, second


WAYS: dict[str, Way] = {"letters": letters, "share": share, "one column a value": one_hot, "left out": left_out}


if __name__ == "__main__":
    main()
