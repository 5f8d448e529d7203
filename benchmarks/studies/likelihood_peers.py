"""Peers of the likelihoods, each with the settings that its authors recommend, chosen inside the training rows where they say so.

    pip install -r benchmarks/requirements-peers.txt --no-deps

scikit-survival is GPL: it is no dependency of the package, nor of its tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize_scalar
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV, PoissonRegressor
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from benchmarks.studies.mixed_tables import as_categories, as_text, catboost, halves
from gwi._typing import Array
from gwi.core.laws.discrete import DiscreteLaw
from gwi.core.laws.gaussian import Law
from gwi.core.laws.transformed import LogLaw

# From rows to a law of each.
Predict = Callable[[pd.DataFrame], Any]
NUM_FOLDS, MOST_STAGES, PATIENCE = 5, 2000, 100
# How far sums over counts go.
LAST = 1 - 1e-12
PENALTIES = (0.001, 0.01, 0.1)
# Rows that must differ from the rest for a column to be used by lifelines.
FEWEST = 10
# Of a forest of survival times: as in the user guide of scikit-survival; and how many different times it is shown at most.
FOREST = {"n_estimators": 300, "min_samples_split": 10, "min_samples_leaf": 15, "n_jobs": 1}
MOST_TIMES = 200
# Of a quantile forest, which then gives a law in steps of 1/400.
LEAVES, LEVELS = (1, 5, 10, 20), (np.arange(400) + 0.5) / 400


@dataclass(frozen=True)
class OfScipy:
    """Counts by a distribution of SciPy's.

    Attributes:
        law: frozen, with an entry a row.
    """

    law: Any
    is_discrete: bool = True

    def expectation(self) -> Array:
        """E Y."""
        return np.asarray(self.law.mean())

    def log_density(self, y: Array) -> Array:
        """log P(Y = y)."""
        return np.asarray(self.law.logpmf(y))

    def cumulative(self, y: Array) -> Array:
        """P(Y ≤ y)."""
        return np.asarray(self.law.cdf(y))

    def quantile(self, level: float) -> Array:
        """The least number with this probability at or below it."""
        return np.asarray(self.law.ppf(level))

    def crps(self, y: Array) -> Array:
        """Σ (P(Y ≤ k) − 1{y ≤ k})² over whole numbers."""
        counts = np.arange(int(max(np.max(self.quantile(LAST)), y.max())) + 1)[:, None]
        found: Array = np.square(self.law.cdf(counts) - (y <= counts)).sum(0)
        return found


@dataclass(frozen=True)
class OfFunction:
    """Survival by a function of rows and times.

    Attributes:
        of: from times in ascending order to (N, T).
    """

    of: Callable[[Array], Array]

    def at(self, times: Array) -> Array:
        """P(T > t)."""
        return self.of(times)

    def own(self, times: Array) -> Array:
        """P(T > t) with a time for each row."""
        known, place = np.unique(times, return_inverse=True)
        return self.of(known)[np.arange(len(times)), place]


def poisson_law(mean: Array) -> OfScipy:
    """Poisson."""
    return OfScipy(stats.poisson(np.maximum(mean, 1e-9)))


def negative_binomial_law(mean: Array, dispersion: float) -> OfScipy:
    """With the variance m + φ m²."""
    mean = np.maximum(mean, 1e-9)
    return OfScipy(stats.nbinom(1 / dispersion, 1 / (1 + dispersion * mean)))


def dispersion_of(y: Array, mean: Array) -> float:
    """φ by the likelihood of counts whose mean is known."""

    def loss(log: float) -> float:
        return -float(negative_binomial_law(mean, float(np.exp(log))).log_density(y).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(-12, 4), method="bounded").x))


def columns(linear: bool) -> Any:
    """Numbers with medians where a cell is missing and a column that says so; text as zeros and ones, or as places for trees."""
    median = SimpleImputer(strategy="median", add_indicator=True)
    one_hot = OneHotEncoder(drop="first", handle_unknown="ignore", sparse_output=False)
    places = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    numbers = make_pipeline(median, StandardScaler()) if linear else median
    return make_column_transformer(
        (one_hot if linear else places, make_column_selector(dtype_exclude="number")),
        (numbers, make_column_selector(dtype_include="number")),
        verbose_feature_names_out=False,
    )


# Counts.


def poisson_glm(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
    """scikit-learn's, its penalty by cross-validation."""
    grid = {"poissonregressor__alpha": np.logspace(-5, 0, 6)}
    model = make_pipeline(columns(True), PoissonRegressor(max_iter=2000))
    folds = KFold(NUM_FOLDS, shuffle=True, random_state=seed)
    found = GridSearchCV(model, grid, scoring="neg_mean_poisson_deviance", cv=folds).fit(frame, y)
    return lambda new: poisson_law(found.predict(new))


def negative_binomial_glm(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
    """statsmodels' NB2 by maximum likelihood."""
    from statsmodels.discrete.discrete_model import NegativeBinomial

    coded = columns(True).fit(frame)

    def rows(new: pd.DataFrame) -> Array:
        found = np.asarray(coded.transform(new), dtype=np.float64)
        return np.column_stack([np.ones(len(found)), found])

    found = NegativeBinomial(y, rows(frame)).fit(method="bfgs", maxiter=2000, disp=False)
    return lambda new: negative_binomial_law(np.asarray(found.predict(rows(new))), float(found.params[-1]))


def lightgbm_counts(frame: pd.DataFrame, y: Array, seed: int) -> Callable[[pd.DataFrame], tuple[Array, float]]:
    """LightGBM with the loss of Poisson's law: leaves and rounds by cross-validation; its mean, and φ by out-of-fold rows."""
    import lightgbm as lgb

    folds = list(KFold(NUM_FOLDS, shuffle=True, random_state=seed).split(frame))
    rows = as_categories(frame, frame)
    best: tuple[float, dict[str, Any], int, Array] | None = None
    for leaves in (4, 15, 31):
        options = {"objective": "poisson", "learning_rate": 0.05, "num_leaves": leaves, "seed": seed, "num_threads": 1}
        options["verbose"] = -1
        data = lgb.Dataset(rows, y, free_raw_data=False)
        stop = lgb.early_stopping(PATIENCE // 2, verbose=False)
        found: Any = lgb.cv(options, data, MOST_STAGES // 2, folds=folds, callbacks=[stop], return_cvbooster=True)
        loss = found["valid poisson-mean"]
        if best is None or loss[-1] < best[0]:
            unseen = np.empty_like(y)
            for (_, judge), booster in zip(folds, found["cvbooster"].boosters, strict=True):
                unseen[judge] = booster.predict(rows.iloc[judge], num_iteration=len(loss))
            best = loss[-1], options, len(loss), unseen
    assert best is not None
    model = lgb.train(best[1], lgb.Dataset(rows, y), best[2])
    dispersion = dispersion_of(y, best[3])
    return lambda new: (np.asarray(model.predict(as_categories(new, frame))), dispersion)


def lightgbm_poisson(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
    """With Poisson's law."""
    predict = lightgbm_counts(frame, y, seed)
    return lambda new: poisson_law(predict(new)[0])


def lightgbm_negative_binomial(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
    """The same means with the dispersion that out-of-fold rows ask for."""
    predict = lightgbm_counts(frame, y, seed)
    return lambda new: negative_binomial_law(*predict(new))


def ngboost(kind: str) -> Callable[[pd.DataFrame, Array, int], Predict]:
    """NGBoost: trees of depth 3, rate 0.01, stages by a fifth of the rows, then all rows."""

    def fitted(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
        import ngboost.distns
        from ngboost import NGBRegressor

        coded = columns(False).fit(frame)

        def model(stages: int) -> Any:
            tree = DecisionTreeRegressor(criterion="friedman_mse", max_depth=3, random_state=seed)
            law = getattr(ngboost.distns, kind)
            return NGBRegressor(
                law, Base=tree, n_estimators=stages, learning_rate=0.01, random_state=seed, verbose=False, natural_gradient=True
            )

        # Poisson's law takes whole numbers as such.
        x, z = np.asarray(coded.transform(frame), dtype=np.float64), y.astype(int) if kind == "Poisson" else y
        judge, learn = halves(len(x), seed)
        tried = model(MOST_STAGES).fit(x[learn], z[learn], x[judge], z[judge], early_stopping_rounds=PATIENCE)
        stages = MOST_STAGES if tried.best_val_loss_itr is None else int(tried.best_val_loss_itr) + 1
        found = model(stages).fit(x, z)

        def predict(new: pd.DataFrame) -> Any:
            law = found.pred_dist(np.asarray(coded.transform(new), dtype=np.float64))
            if kind == "Poisson":
                return poisson_law(np.asarray(law.mean()))
            # SciPy's words: s is the deviation of the logarithm, scale the exponential of its mean.
            return LogLaw(Law(np.log(np.atleast_2d(law.params["scale"])), np.atleast_2d(law.params["s"])))

        return predict

    return fitted


# Positive numbers.


def catboost_of_log(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
    """CatBoost with a mean and a variance of the logarithm."""
    model, _ = catboost(as_text(frame), np.log(y), seed, None, "RMSEWithUncertainty")

    def predict(new: pd.DataFrame) -> LogLaw:
        mean, variance = model.predict(as_text(new)).T
        return LogLaw(Law(mean[None], np.sqrt(variance)[None]))

    return predict


def catboost_of_price(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
    """CatBoost with a mean and a variance of the number itself."""
    model, _ = catboost(as_text(frame), y, seed, None, "RMSEWithUncertainty")

    def predict(new: pd.DataFrame) -> Law:
        mean, variance = model.predict(as_text(new)).T
        return Law(mean[None], np.sqrt(variance)[None])

    return predict


# Levels in order.


def ordered(link: str) -> Callable[[pd.DataFrame, Array, int], Predict]:
    """statsmodels' thresholds on a linear function: proportional odds with "logit"."""

    def fitted(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
        from statsmodels.miscmodels.ordinal_model import OrderedModel

        coded = columns(True).fit(frame)
        values = np.unique(y)
        place = np.searchsorted(values, y)
        found = OrderedModel(place, np.asarray(coded.transform(frame)), distr=link).fit(method="bfgs", maxiter=1000, disp=False)

        def predict(new: pd.DataFrame) -> DiscreteLaw:
            return DiscreteLaw(values, np.asarray(found.model.predict(found.params, np.asarray(coded.transform(new)))).T)

        return predict

    return fitted


def multinomial(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
    """Logistic regression that knows of no order, its penalty by cross-validation."""
    found = make_pipeline(
        columns(True),
        LogisticRegressionCV(Cs=8, cv=NUM_FOLDS, scoring="neg_log_loss", max_iter=2000, use_legacy_attributes=False),
    ).fit(frame, y)
    return lambda new: DiscreteLaw(np.unique(y), found.predict_proba(new).T)


# Few values.


def quantile_forest(frame: pd.DataFrame, y: Array, seed: int) -> Predict:
    """A quantile forest of 500 trees, the size of its leaves by out-of-bag CRPS."""
    from quantile_forest import RandomForestQuantileRegressor

    coded, values = columns(False).fit(frame), np.unique(y)
    x = np.asarray(coded.transform(frame), dtype=np.float64)

    def law(model: Any, rows: Array, unseen: bool) -> DiscreteLaw:
        quantiles = model.predict(rows, quantiles=list(LEVELS), interpolation="nearest", oob_score=unseen)
        return DiscreteLaw(values, np.array([np.isclose(quantiles, value).mean(1) for value in values]))

    def model(leaf: int) -> Any:
        options: Any = {"min_samples_leaf": leaf, "bootstrap": True, "random_state": seed, "n_jobs": 1}
        return RandomForestQuantileRegressor(500, max_features=1 / 3, **options).fit(x, y)

    tried = [model(leaf) for leaf in LEAVES]
    best = min(tried, key=lambda one: float(law(one, x, True).crps(y).mean()))
    return lambda new: law(best, np.asarray(coded.transform(new), dtype=np.float64), False)


# Times to an event.


def of_lifelines(kind: str) -> Callable[[pd.DataFrame, NDArray[Any], int], Predict]:
    """A fitter of lifelines, its penalty by the likelihood in three folds."""

    def fitted(frame: pd.DataFrame, y: NDArray[Any], seed: int) -> Predict:
        import lifelines
        from lifelines.utils import k_fold_cross_validation

        coded = columns(True).fit(frame)

        def rows(new: pd.DataFrame) -> pd.DataFrame:
            found = np.asarray(coded.transform(new), dtype=np.float64)
            return pd.DataFrame(found, columns=[f"x{i}" for i in range(found.shape[1])])

        # Newton's method stops where a column has one value in a fold.
        found = rows(frame)
        varies = [name for name in found if len(found) - found[name].value_counts().max() >= FEWEST]
        data, make = found[varies].assign(time=y["time"], event=y["event"].astype(int)), getattr(lifelines, kind)
        options: Any = {"duration_col": "time", "event_col": "event"}
        # With whole steps Cox's fit does not converge on some tables with far values.
        more: Any = {"fit_options": {"step_size": 0.5}} if kind == "CoxPHFitter" else {}
        folds: Any = {"k": 3, "scoring_method": "log_likelihood", "seed": seed, "fitter_kwargs": more}

        def judged(penalty: float) -> float:
            return float(np.mean(k_fold_cross_validation(make(penalizer=penalty), data, **options, **folds)))

        model = make(penalizer=max(PENALTIES, key=judged)).fit(data, **options, **more)

        def predict(new: pd.DataFrame) -> OfFunction:
            coded_rows = rows(new)[varies]
            return OfFunction(lambda times: model.predict_survival_function(coded_rows, times=times).to_numpy().T)

        return predict

    return fitted


def survival_forest(frame: pd.DataFrame, y: NDArray[Any], seed: int) -> Predict:
    """scikit-survival's forest. With many different times they are rounded up to some two hundred: a leaf holds a curve."""
    from sksurv.ensemble import RandomSurvivalForest

    coded = columns(False).fit(frame)
    y = y.copy()
    known = np.unique(y["time"])
    if len(known) > MOST_TIMES:
        steps = np.unique(np.quantile(known, np.linspace(0, 1, MOST_TIMES + 1)[1:], method="higher"))
        y["time"] = steps[np.searchsorted(steps, y["time"])]
    found = RandomSurvivalForest(**FOREST, random_state=seed).fit(np.asarray(coded.transform(frame), dtype=np.float64), y)

    def predict(new: pd.DataFrame) -> OfFunction:
        curves = found.predict_survival_function(np.asarray(coded.transform(new), dtype=np.float64), return_array=True)
        curves = np.column_stack([np.ones(len(curves)), curves])

        def at(times: Array) -> Array:
            return curves[:, np.searchsorted(found.unique_times_, times, side="right")]

        return OfFunction(at)

    return predict


PEERS: dict[str, dict[str, Callable[[pd.DataFrame, Any, int], Predict]]] = {
    "counts": {
        "Poisson GLM": poisson_glm,
        "negative-binomial GLM": negative_binomial_glm,
        "NGBoost, Poisson": ngboost("Poisson"),
        "LightGBM, Poisson": lightgbm_poisson,
        "LightGBM, negative-binomial": lightgbm_negative_binomial,
    },
    "censored": {
        "Cox": of_lifelines("CoxPHFitter"),
        "Weibull AFT": of_lifelines("WeibullAFTFitter"),
        "log-normal AFT": of_lifelines("LogNormalAFTFitter"),
        "survival forest": survival_forest,
    },
    "positive": {
        "NGBoost, log-normal": ngboost("LogNormal"),
        "CatBoost of the logarithm": catboost_of_log,
        "CatBoost of the number": catboost_of_price,
    },
    "ordered": {"ordered logit": ordered("logit"), "ordered probit": ordered("probit"), "multinomial": multinomial},
    "few-valued": {"quantile forest": quantile_forest},
}
