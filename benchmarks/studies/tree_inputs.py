"""What trees see of a mixed table: the encoder's numbers, or missing cells as missing and categories as categories.

    python -m benchmarks.studies.tree_inputs [--splits 5] [--most-rows 5000]

writes results/tree_inputs.csv: RMSE in units of the target's standard deviation, or log loss, of the boosting and the extra trees
in the default's stack, each alone, on the mixed practice tables. Extra trees take no categories: they see missing cells as
missing, and the encoder's columns else. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

from benchmarks.studies.mixed_tables import CLASSES, HELD_OUT, MOST_CATEGORIES, NUMBERS, frame_of
from benchmarks.tables.common.records import append, read
from gwi._typing import Array
from gwi.fitting.plan import classification_members, regression_members
from gwi.predictors.logits import PROBABILITY_FLOOR
from gwi.tables import TableEncoder

Inputs = Callable[[pd.DataFrame, pd.DataFrame], tuple[Any, Any]]
BOOSTING = (HistGradientBoostingRegressor, HistGradientBoostingClassifier)
TREES = (*BOOSTING, ExtraTreesRegressor, ExtraTreesClassifier)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--most-rows", type=int, default=5000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], int(r["split"])) for r in read("tree_inputs")}
    for split in range(arguments.splits):
        for name in (*NUMBERS, *CLASSES):
            if (name, split) not in done:
                append("tree_inputs", measure(name, split, arguments.most_rows))
                print(name, split, flush=True)


def measure(name: str, split: int, most_rows: int) -> list[dict[str, Any]]:
    """Errors of each member with each way of seeing the rows."""
    frame, y, groups = frame_of(name, most_rows)
    splitter = ShuffleSplit if groups is None else GroupShuffleSplit
    train, test = next(splitter(1, test_size=HELD_OUT, random_state=split).split(frame, y, groups))
    first, second = (frame.iloc[part].reset_index(drop=True) for part in (train, test))
    found = []
    for way, inputs in WAYS.items():
        x, x_new = inputs(first, second)
        for member in members(name, len(train), frame.shape[1], len(np.unique(y))):
            if way == "own" and isinstance(member, BOOSTING):
                member.set_params(categorical_features="from_dtype")
            elif way == "own":
                x, x_new = missing_as_missing(first, second)
            member.set_params(random_state=split).fit(x, y[train])
            found.append(
                {
                    "table": name,
                    "split": split,
                    "member": type(member).__name__,
                    "way": way,
                    "loss": loss(member, x_new, y, train, test),
                }
            )
    return found


def members(name: str, num_rows: int, num_features: int, num_classes: int) -> list[Any]:
    """The trees of the default's stack."""
    whole = (
        regression_members(num_rows, num_features)
        if name in NUMBERS
        else classification_members(num_rows, num_features, num_classes)
    )
    return [member for member in whole if isinstance(member, TREES)]


def loss(member: Any, x: Any, y: Any, train: Any, test: Any) -> float:
    """RMSE over the standard deviation, or log loss."""
    if hasattr(member, "predict_proba"):
        # As in the stack, where no class is impossible.
        return float(log_loss(y[test], np.clip(member.predict_proba(x), PROBABILITY_FLOOR, None), labels=member.classes_))
    error: Array = member.predict(x) - y[test]
    return float(np.sqrt(np.mean(error**2)) / y[train].std())


def encoded(train: pd.DataFrame, test: pd.DataFrame) -> tuple[Any, Any]:
    """The encoder's numbers, as in the stack."""
    encoder = TableEncoder().fit(train)
    return encoder.transform(train), encoder.transform(test)


def missing_as_missing(train: pd.DataFrame, test: pd.DataFrame) -> tuple[Any, Any]:
    """The encoder's numbers, missing where the cell is."""
    encoder = TableEncoder().fit(train)
    parts = []
    for frame in (train, test):
        x = encoder.transform(frame)
        for column, place in encoder.encoder_.places():
            x[np.ix_(frame[column.name].isna().to_numpy(), np.arange(place.start, place.stop))] = np.nan
        parts.append(x)
    return parts[0], parts[1]


def own(train: pd.DataFrame, test: pd.DataFrame) -> tuple[Any, Any]:
    """Categories as such, the most frequent where there are too many, and missing cells as missing."""
    parts = []
    for frame in (train, test):
        columns = {}
        for name in frame:
            values = frame[name]
            if values.dtype == object or values.dtype == bool or str(values.dtype) in ("str", "string", "category"):
                known = train[name].map(str, na_action="ignore").value_counts().index[: MOST_CATEGORIES - 1]
                values = pd.Categorical(values.map(str, na_action="ignore").astype(object), categories=list(known))
            columns[name] = values
        parts.append(pd.DataFrame(columns))
    return parts[0], parts[1]


WAYS: dict[str, Inputs] = {"encoded": encoded, "own": own}


if __name__ == "__main__":
    main()
