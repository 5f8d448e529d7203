"""The user's own predictors of data frames as means: asked as they are, in the form that they know, and fitted inside folds."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import gwi
import processes
from gwi import GWIClassifier, GWIRegressor
from gwi.exceptions import UnsavableError, UserError

pytestmark = pytest.mark.unchecked
catboost, lightgbm, xgboost = (pytest.importorskip(name) for name in ("catboost", "lightgbm", "xgboost"))
LIBRARIES = {"pandas": lambda f: f, "polars": pl.from_pandas, "Arrow": lambda f: pa.Table.from_pandas(f, preserve_index=False)}
NUMBERS = ["rooms", "size"]


def homes(num_rows, seed):
    """Text, whole numbers, numbers some of which are missing, and a price."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "town": rng.choice(["Ulm", "Bonn", "Jena"], num_rows),
            "rooms": rng.integers(1, 7, num_rows),
            "size": rng.normal(80.0, 20.0, num_rows),
        }
    )
    price = 2.0 * frame["size"] + 5.0 * frame["rooms"] + 20.0 * (frame["town"] == "Ulm") + rng.normal(0.0, 3.0, num_rows)
    frame.loc[::17, "size"] = np.nan
    return frame, price.to_numpy()


def as_categories(frame):
    return frame.astype({"town": "category"})


def columns(last):
    numeric = make_pipeline(SimpleImputer(), StandardScaler())
    return make_pipeline(make_column_transformer((OneHotEncoder(), ["town"]), (numeric, NUMBERS)), last)


class Embedding(torch.nn.Module):
    """A town's place in a table of vectors, and two numbers."""

    def __init__(self):
        super().__init__()
        self.towns = torch.nn.Embedding(3, 2)
        self.last = torch.nn.Linear(4, 1)

    def predict(self, frame):
        towns = torch.tensor([["Bonn", "Jena", "Ulm"].index(town) for town in frame["town"]])
        numbers = torch.tensor(np.nan_to_num(frame[NUMBERS].to_numpy(dtype=np.float32), nan=80.0))
        with torch.no_grad():
            return self.last(torch.cat([self.towns(towns), numbers], 1))[:, 0].numpy()


def by_rooms(frame):
    return 160.0 + 5.0 * np.asarray(frame["rooms"], dtype=np.float64)


class OfFrames:
    """An object with nothing but predict, as those of other packages."""

    def __init__(self, module):
        self.module = module

    def predict(self, frame):
        return self.module.predict(frame)


TRAIN, Y = homes(150, 0)
UNSEEN, Y_UNSEEN = homes(120, 1)
NEW, _ = homes(40, 2)


def fitted_models():
    train, y = as_categories(TRAIN), Y
    forest = columns(RandomForestRegressor(10, random_state=0))
    codes = make_column_transformer((OrdinalEncoder(), ["town"]), ("passthrough", NUMBERS))
    torch.manual_seed(0)
    return {
        "pipeline": (columns(Ridge()).fit(TRAIN, y), TRAIN),
        "forest": (forest.fit(TRAIN, y), TRAIN),
        "histogram": (HistGradientBoostingRegressor(categorical_features="from_dtype", max_iter=20).fit(train, y), train),
        "histogram of codes": (make_pipeline(codes, HistGradientBoostingRegressor(max_iter=20)).fit(TRAIN, y), TRAIN),
        "LightGBM": (lightgbm.LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1).fit(train, y), train),
        "XGBoost": (xgboost.XGBRegressor(n_estimators=20, enable_categorical=True, n_jobs=1).fit(train, y), train),
        "CatBoost": (catboost.CatBoostRegressor(20, verbose=0, cat_features=["town"], thread_count=1).fit(TRAIN, y), TRAIN),
        "native LightGBM": (
            lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(train, y), 20),
            train,
        ),
        "module": (OfFrames(Embedding()), TRAIN),
        "function": (by_rooms, TRAIN),
    }


MODELS = fitted_models()
STORED = ("pipeline", "forest", "histogram of codes", "LightGBM", "XGBoost", "CatBoost", "native LightGBM")


def own_prediction(model, frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(model.predict(frame) if hasattr(model, "predict") else model(frame), dtype=np.float64)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", MODELS)
def test_the_mean_is_the_models_own_on_frames_of_every_library(name, library, tmp_path):
    model, like = MODELS[name]
    of, wanted = LIBRARIES[library], own_prediction(model, NEW.astype(like.dtypes))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        wrapped = GWIRegressor(mean=model, random_state=0).fit(of(TRAIN), Y, validation=(of(UNSEEN), Y_UNSEEN))
        found = wrapped.predict(of(NEW))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    # In another order, and of another library.
    shuffled = NEW[["size", "town", "rooms"]]
    np.testing.assert_allclose(wrapped.predict(shuffled), wanted, rtol=1e-12)
    low, high = np.asarray(wrapped.predict_interval(of(NEW))).T
    assert ((low < found) & (found < high)).all()
    if name not in STORED:
        with pytest.raises(UnsavableError, match="pickle or joblib"):
            wrapped.save(tmp_path / "model.gwi")


def test_boosters_and_pipelines_are_stored_and_predict_the_same_in_another_process(tmp_path):
    NEW.to_parquet(tmp_path / "new.parquet")
    wanted = []
    for i, name in enumerate(STORED):
        wrapped = GWIRegressor(mean=[MODELS[name][0], "svgp"], random_state=0).fit(TRAIN, Y, validation=(UNSEEN, Y_UNSEEN))
        wrapped.save(tmp_path / f"{i}.gwi")
        wanted.append(wrapped.predict(NEW, return_std=True))
    script = (
        "import sys, numpy, pandas, gwi; frame = pandas.read_parquet(sys.argv[1]); "
        "found = [gwi.load(path).predict(frame, return_std=True) for path in sys.argv[3:]]; numpy.save(sys.argv[2], found)"
    )
    paths = [tmp_path / f"{i}.gwi" for i in range(len(STORED))]
    # On one thread as here: sums of other threads round otherwise.
    processes.run(["-c", script], tmp_path / "new.parquet", tmp_path / "out.npy", *paths, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), np.array(wanted), rtol=1e-12)


def test_unfitted_predictors_are_fitted_on_frames_inside_the_folds():
    booster = lightgbm.LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1)
    model = GWIRegressor(mean=[columns(Ridge()), booster, "svgp"], random_state=0).fit(as_categories(TRAIN), Y)
    assert [member.name for member in model.summary_.members] == ["Pipeline", "LGBMRegressor", "svgp"]
    # Nothing was fitted to the rows that judge it: a booster of single rows would have no error.
    alone = cross_val_predict(columns(Ridge()), TRAIN, Y, cv=KFold(5, shuffle=True, random_state=0))
    np.testing.assert_allclose(model.summary_.members[0].scores[0], np.sqrt(np.mean((alone - Y) ** 2)), rtol=0.1)
    assert np.corrcoef(model.predict(UNSEEN), Y_UNSEEN)[0, 1] > 0.9


def test_members_that_see_frames_stack_with_those_that_see_numbers(tmp_path):
    booster = lightgbm.LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1)
    forest = RandomForestRegressor(10, random_state=0)
    model = GWIRegressor(mean=[booster, "svgp", "network", "linear", forest], random_state=0).fit(as_categories(TRAIN), Y)
    post, x = model.posterior_, model._rows(NEW)
    rows = model.model_.scales.rows(x, "cpu")
    np.testing.assert_allclose(post.marginals(rows)[0], model.model_.cached.marginals(rows)[0], rtol=1e-9, atol=1e-9)
    # The forest takes no text: it gets the encoder's numbers, as it always did.
    assert x.shape[1] == model.model_.embedding.num_own + 1
    assert model.share_seen(TRAIN, Y) == 1.0
    before = model.predict(UNSEEN)
    assert np.abs(model.update(UNSEEN, Y_UNSEEN).predict(UNSEEN) - Y_UNSEEN).mean() < np.abs(before - Y_UNSEEN).mean()
    assert gwi.diagnose(model, NEW, model.predict(NEW)).num_rows == len(NEW)


LABELS = np.where(Y > 190, "dear", np.where(Y > 150, "fair", "cheap"))
UNSEEN_LABELS = np.where(Y_UNSEEN > 190, "dear", np.where(Y_UNSEEN > 150, "fair", "cheap"))
CODES = np.unique(LABELS, return_inverse=True)[1]
UNSEEN_CODES = np.unique(UNSEEN_LABELS, return_inverse=True)[1]


def classifiers():
    train = as_categories(TRAIN)
    many = {"objective": "multiclass", "num_class": 3, "verbose": -1, "num_threads": 1}
    return {
        "pipeline": (columns(LogisticRegression()).fit(TRAIN, LABELS), LABELS, UNSEEN_LABELS),
        "LightGBM": (lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1).fit(train, LABELS), LABELS, UNSEEN_LABELS),
        "XGBoost": (
            xgboost.XGBClassifier(n_estimators=20, enable_categorical=True, n_jobs=1).fit(train, CODES),
            CODES,
            UNSEEN_CODES,
        ),
        "CatBoost": (
            catboost.CatBoostClassifier(20, verbose=0, cat_features=["town"], thread_count=1).fit(TRAIN, LABELS),
            LABELS,
            UNSEEN_LABELS,
        ),
        "native LightGBM": (lightgbm.train(many, lightgbm.Dataset(train, CODES), 20), CODES, UNSEEN_CODES),
    }


@pytest.mark.parametrize("name", classifiers())
def test_logits_are_those_of_the_classifiers_own_probabilities(name, tmp_path):
    model, labels, unseen_labels = classifiers()[name]
    frame, unseen, new = (pl.from_pandas(part) for part in (TRAIN, UNSEEN, NEW))
    wrapped = GWIClassifier(mean=model, random_state=0).fit(frame, labels, validation=(unseen, unseen_labels))
    own = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    known = NEW if name in ("pipeline", "CatBoost") else NEW.astype(as_categories(TRAIN).dtypes)
    logits = wrapped._rows(new)[:, wrapped.model_.embedding.num_own :]
    np.testing.assert_allclose(softmax(logits, axis=1), own(known), rtol=1e-5, atol=1e-3)
    loaded = gwi.load(wrapped.save(tmp_path / "model.gwi"))
    np.testing.assert_allclose(loaded.predict_proba(NEW), wrapped.predict_proba(NEW), rtol=1e-12)


@pytest.mark.parametrize("name", ["LightGBM", "XGBoost", "CatBoost"])
def test_boosters_of_arrays_are_means_too_and_are_stored(name, tmp_path):
    x, new = (part[NUMBERS].fillna(80.0).to_numpy() for part in (TRAIN, NEW))
    booster = clone(MODELS[name][0]) if name != "CatBoost" else catboost.CatBoostRegressor(20, verbose=0, thread_count=1)
    model = GWIRegressor(mean=booster, random_state=0).fit(x, Y)
    # Few rows are put in an order of their own, on which some boosters depend.
    assert np.corrcoef(model.predict(new), clone(booster).fit(x, Y).predict(new))[0, 1] > 0.98
    assert np.array_equal(gwi.load(model.save(tmp_path / "model.gwi")).predict(new), model.predict(new))


@pytest.mark.parametrize(
    ("mean", "frame", "validation", "said"),
    [
        (MODELS["pipeline"][0], TRAIN, None, "may have been trained on these rows"),
        (
            MODELS["pipeline"][0],
            TRAIN[["town", "size"]],
            (UNSEEN[["town", "size"]], Y_UNSEEN),
            "Pipeline does not take these rows",
        ),
        (clone(MODELS["pipeline"][0]), TRAIN, (UNSEEN.to_numpy(), Y_UNSEEN), "pass a data frame"),
        (lambda frame: np.zeros(3), TRAIN, (UNSEEN, Y_UNSEEN), "one value, or one row of values, for each"),
        (lambda frame: np.full(len(frame), np.nan), TRAIN, (UNSEEN, Y_UNSEEN), "no finite number"),
        (lambda frame: np.zeros((len(frame), 2)), TRAIN, (UNSEEN, Y_UNSEEN), "gives 2 outputs per row"),
    ],
    ids=["judged by known rows", "a column is missing", "validation without names", "too few", "NaN", "two outputs"],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_what_cannot_be_a_mean_is_said_in_one_sentence(mean, frame, validation, said):
    with pytest.raises((UserError, ValueError), match=said):
        GWIRegressor(mean=mean).fit(frame, Y, validation=validation)


def test_rows_without_names_are_refused_by_a_model_of_frames():
    model = GWIRegressor(mean=by_rooms, random_state=0).fit(TRAIN, Y, validation=(UNSEEN, Y_UNSEEN))
    with pytest.raises(UserError, match="pass a data frame"):
        model.predict(NEW.to_numpy())


def test_a_model_from_python_predicts_a_text_file_by_the_command(tmp_path):
    model = GWIRegressor(mean=MODELS["LightGBM"][0], random_state=0).fit(TRAIN, Y, validation=(UNSEEN, Y_UNSEEN))
    path = model.save(tmp_path / "model.gwi")
    NEW.to_csv(tmp_path / "new.csv", index=False)
    processes.run(["-m", "gwi"], "predict", path, tmp_path / "new.csv", "-o", tmp_path / "out.csv", check=True)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["prediction"], model.predict(NEW), rtol=1e-9)


def test_a_category_that_xgboost_refuses_is_a_missing_cell(tmp_path):
    model = GWIRegressor(mean=MODELS["XGBoost"][0], random_state=0).fit(TRAIN, Y, validation=(UNSEEN, Y_UNSEEN))
    gone = as_categories(TRAIN).dtypes["town"]
    wanted = own_prediction(MODELS["XGBoost"][0], NEW.assign(town=pd.Series([None] * len(NEW), dtype=gone)))
    for some in (model, gwi.load(model.save(tmp_path / "model.gwi"))):
        with pytest.warns(gwi.exceptions.GWIWarning, match="'Oslo'"):
            found = some.predict(NEW.assign(town="Oslo"))
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
