"""Tables with text, categories and missing cells: the default beside boosting that takes such tables as they are.

    pip install -e .[boosters]
    python -m benchmarks.studies.mixed_tables [--splits 5] [--most-rows 5000]

writes results/mixed_tables.csv: NLL, CRPS or Brier score, coverage and CPU seconds of each method, a fifth of the rows held out,
storms by name. Boosters get text as categories and stop by a fifth of the training rows; then they learn all rows. CatBoost has
a variance of its own; the others, and CatBoost once more, have one variance by five out-of-fold fits, normal and with tails that
are chosen as ours. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline

from benchmarks.tables.common.records import append, read
from benchmarks.tables.uci.treated import shape_of
from gwi import GWIClassifier, GWIRegressor
from gwi._typing import Array
from gwi.evaluation.regression import Law, score

# Target, column of groups, and columns that give the target away.
NUMBERS: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "ames": ("Sale_Price", None, ()),
    "diamonds": ("price", None, ()),
    "mpg": ("mpg", None, ()),
    "penguins": ("body_mass_g", None, ()),
    "storms": ("wind", "name", ("status", "category")),
}
CLASSES = {"credit": "Status", "churn": "churn", "taxi_tip": "tip"}
MOST_TREES, PATIENCE, HELD_OUT, MOST_CATEGORIES = 1000, 50, 0.2, 255

# What is predicted, by what is added to the method's name.
Predict = Callable[[pd.DataFrame], dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--most-rows", type=int, default=5000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {(r["table"], int(r["split"]), r["method"]) for r in read("mixed_tables")}
    for split in range(arguments.splits):
        for name in (*NUMBERS, *CLASSES):
            for method in OF_NUMBERS if name in NUMBERS else OF_CLASSES:
                if (name, split, method) not in done:
                    append("mixed_tables", list(measure(name, split, method, arguments.most_rows)))
                    print(name, split, method, flush=True)


def frame_of(name: str, most_rows: int) -> tuple[pd.DataFrame, Any, Any]:
    """Rows, targets and groups of a table."""
    frame = pd.read_csv(Path(os.environ["GWI_DATA"]) / "practice" / "mixed" / f"{name}.csv.gz")
    target, group, dropped = NUMBERS[name] if name in NUMBERS else (CLASSES[name], None, ())
    frame = frame.dropna(subset=[target])
    if len(frame) > most_rows:
        frame = frame.sample(most_rows, random_state=0)
    groups = None if group is None else frame[group].to_numpy()
    y = frame[target].to_numpy()
    leave = [target, *dropped, *([] if group is None else [group])]
    return frame.drop(columns=leave).reset_index(drop=True), y if name in CLASSES else y.astype(np.float64), groups


def measure(name: str, split: int, method: str, most_rows: int) -> Iterator[dict[str, Any]]:
    """Scores of a method on one split; those of the same fits with tails beside those without."""
    frame, y, groups = frame_of(name, most_rows)
    splitter = ShuffleSplit if groups is None else GroupShuffleSplit
    train, test = next(splitter(1, test_size=HELD_OUT, random_state=split).split(frame, y, groups))
    inside, start = None if groups is None else groups[train], time.process_time()
    fit = (OF_NUMBERS if name in NUMBERS else OF_CLASSES)[method]
    predict = fit(frame.iloc[train].reset_index(drop=True), y[train], inside, split)
    for called, found in predict(frame.iloc[test].reset_index(drop=True)).items():
        scores = of_numbers(found, y[test], float(y[train].std())) if name in NUMBERS else of_classes(found, y[test], y)
        seconds = time.process_time() - start
        yield {"table": name, "split": split, "method": f"{method}{called}", **scores, "cpu_seconds": seconds}


def of_numbers(law: Any, y: Array, unit: float) -> dict[str, float]:
    """In units of the target's standard deviation."""
    found = score(law, y)
    return {"nll": found.nll - math.log(unit), "loss": found.crps / unit, "coverage_95": found.coverage_95}


def of_classes(probabilities: Any, y: Any, every: Any) -> dict[str, float]:
    """NLL and Brier score."""
    place = np.searchsorted(np.unique(every), y)
    p = np.clip(np.asarray(probabilities), 1e-15, 1.0)
    right = np.eye(p.shape[1])[place]
    return {
        "nll": float(-np.log(p[np.arange(len(p)), place]).mean()),
        "loss": float(((p - right) ** 2).sum(1).mean()),
        "coverage_95": math.nan,
    }


def as_categories(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Text as categories of the training rows; a value that they did not have is missing."""
    text = [name for name in like if not pd.api.types.is_numeric_dtype(like[name])]
    kinds = {name: pd.CategoricalDtype(sorted(like[name].dropna().astype(str).unique())) for name in text}
    made = {name: frame[name].where(frame[name].isna(), frame[name].astype(str)).astype(kinds[name]) for name in text}
    return frame.assign(**made)


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """As CatBoost wants it: no text cell is missing."""
    text = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.assign(**{name: frame[name].fillna("missing").astype(str) for name in text})


def gwi_numbers(frame: pd.DataFrame, y: Array, groups: Any, seed: int) -> Predict:
    """Ours."""
    model = GWIRegressor(random_state=seed).fit(frame, y, groups=groups)

    def predict(new: pd.DataFrame) -> dict[str, Any]:
        return {"": model.predict_dist(new).laws[0]}

    return predict


def gwi_classes(frame: pd.DataFrame, y: Any, groups: Any, seed: int) -> Predict:
    """Ours."""
    model = GWIClassifier(random_state=seed).fit(frame, y, groups=groups)
    return lambda new: {"": model.predict_proba(new)}


def catboost(frame: pd.DataFrame, y: Any, seed: int, trees: int | None, loss: str) -> tuple[Any, int]:
    """CatBoost, and how many trees it has: as many as held-out rows ask for unless they are given."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    kind = CatBoostClassifier if loss == "classes" else CatBoostRegressor
    given = {} if loss == "classes" else {"loss_function": loss}
    text = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]

    def model(count: int) -> Any:
        return kind(
            iterations=count,
            cat_features=text,
            random_seed=seed,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
            **given,
        )

    if trees is None:
        judge, learn = halves(len(frame), seed)
        tried = model(MOST_TREES)
        tried.fit(frame.iloc[learn], y[learn], eval_set=(frame.iloc[judge], y[judge]), early_stopping_rounds=PATIENCE)
        trees = max(tried.get_best_iteration() + 1, 1)
    return model(trees).fit(frame, y), trees


def lightgbm(frame: pd.DataFrame, y: Any, seed: int, trees: int | None, loss: str) -> tuple[Any, int]:
    """LightGBM, with as many trees as held-out rows ask for."""
    import lightgbm as lgb

    kind = lgb.LGBMClassifier if loss == "classes" else lgb.LGBMRegressor

    def model(count: int) -> Any:
        return kind(n_estimators=count, random_state=seed, n_jobs=1, verbose=-1)

    if trees is None:
        judge, learn = halves(len(frame), seed)
        tried = model(MOST_TREES)
        stop = lgb.early_stopping(PATIENCE, verbose=False)
        tried.fit(frame.iloc[learn], y[learn], eval_set=[(frame.iloc[judge], y[judge])], callbacks=[stop])
        trees = max(tried.best_iteration_ or 1, 1)
    return model(trees).fit(frame, y), trees


def histogram(frame: pd.DataFrame, y: Any, seed: int, trees: int | None, loss: str) -> tuple[Any, int]:
    """scikit-learn's, which stops by held-out rows of its own."""
    kind = HistGradientBoostingClassifier if loss == "classes" else HistGradientBoostingRegressor
    # It takes at most so many categories: of more their places.
    many = [name for name in frame if frame[name].dtype == "category" and len(frame[name].cat.categories) > MOST_CATEGORIES]
    if many:
        places = make_column_transformer((AsPlaces(), many), remainder="passthrough", verbose_feature_names_out=False)
        rest = make_pipeline(places.set_output(transform="pandas"), _histogram(kind, seed))
        return rest.fit(frame, y), 0
    return _histogram(kind, seed).fit(frame, y), 0


class AsPlaces(TransformerMixin, BaseEstimator):
    """Categories as their places."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> AsPlaces:
        """There is nothing to learn."""
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """They, missing as NaN."""
        return X.apply(lambda column: column.cat.codes.astype(float).where(column.notna()))

    def get_feature_names_out(self, names: Any = None) -> Any:
        """As they came."""
        return names


def _histogram(kind: Any, seed: int) -> Any:
    model = kind(categorical_features="from_dtype", early_stopping=True, max_iter=MOST_TREES, n_iter_no_change=PATIENCE)
    return model.set_params(random_state=seed)


def halves(num_rows: int, seed: int) -> tuple[Any, Any]:
    """A fifth to judge, and the rest."""
    order = np.random.default_rng(seed).permutation(num_rows)
    return order[: num_rows // 5], order[num_rows // 5 :]


def catboost_own(frame: pd.DataFrame, y: Array, groups: Any, seed: int) -> Predict:
    """CatBoost with a mean and a variance."""
    model, _ = catboost(as_text(frame), y, seed, None, "RMSEWithUncertainty")

    def predict(new: pd.DataFrame) -> dict[str, Any]:
        mean, variance = model.predict(as_text(new)).T
        return {"": Law(mean[None], np.sqrt(variance)[None])}

    return predict


def out_of_fold(fit: Any, prepare: Any) -> Callable[[pd.DataFrame, Array, Any, int], Predict]:
    """One variance for all rows, by fits that have not seen them: normal, and with tails as ours are chosen."""

    def fitted(frame: pd.DataFrame, y: Array, groups: Any, seed: int) -> Predict:
        model, trees = fit(prepare(frame, frame), y, seed, None, "RMSE")
        unseen = np.empty_like(y)
        folds = KFold(5, shuffle=True, random_state=seed) if groups is None else GroupKFold(5)
        for learn, judge in folds.split(frame, y, groups):
            part = frame.iloc[learn]
            unseen[judge] = fit(prepare(part, part), y[learn], seed, trees, "RMSE")[0].predict(prepare(frame.iloc[judge], part))
        std = float(np.sqrt(np.mean((y - unseen) ** 2)))
        shape = shape_of((y - unseen) / std)

        def predict(new: pd.DataFrame) -> dict[str, Any]:
            mean = model.predict(prepare(new, frame))
            scaled = np.full_like(mean, std * math.sqrt(shape.factor))
            return {
                "": Law(mean[None], np.full_like(mean, std)[None]),
                ", tails": Law(mean[None], scaled[None], shape.degrees_of_freedom),
            }

        return predict

    return fitted


def of_labels(fit: Any, prepare: Any) -> Callable[[pd.DataFrame, Any, Any, int], Predict]:
    """A classifier's own probabilities."""

    def fitted(frame: pd.DataFrame, y: Any, groups: Any, seed: int) -> Predict:
        model, _ = fit(prepare(frame, frame), y, seed, None, "classes")
        return lambda new: {"": model.predict_proba(prepare(new, frame))}

    return fitted


def _text(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    return as_text(frame)


OF_NUMBERS: dict[str, Any] = {
    "gwi": gwi_numbers,
    "CatBoost's own variance": catboost_own,
    "LightGBM": out_of_fold(lightgbm, as_categories),
    "HistGB": out_of_fold(histogram, as_categories),
    "CatBoost": out_of_fold(catboost, _text),
}
OF_CLASSES: dict[str, Any] = {
    "gwi": gwi_classes,
    "CatBoost": of_labels(catboost, _text),
    "LightGBM": of_labels(lightgbm, as_categories),
    "HistGB": of_labels(histogram, as_categories),
}


if __name__ == "__main__":
    main()
