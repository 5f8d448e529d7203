"""A model file that predicts frames, here and in other processes, lazily."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gwi
from gwi import GWIClassifier, GWIRegressor, Predictor


def homes(num_rows, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"area": rng.uniform(30, 120, num_rows), "town": rng.choice(["Ulm", "Bonn"], num_rows)})
    return frame, 10 * frame["area"].to_numpy() + 300 * (frame["town"] == "Ulm").to_numpy() + rng.normal(0, 30, num_rows)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    frame, y = homes(80)
    numbers = GWIRegressor("svgp", random_state=0).fit(frame, y)
    classes = GWIClassifier("svgp", random_state=0).fit(frame, np.where(y > 900, "dear", "cheap"))
    return numbers, numbers.save(folder / "numbers.gwi"), classes, classes.save(folder / "classes.gwi")


def test_columns_are_those_of_the_estimators_own_methods(saved):
    model, path, *_ = saved
    new, _ = homes(20, seed=1)
    found = Predictor(path, coverage=0.8, quantiles=[0.1, 0.75])(new)
    mean, std = model.predict(new, return_std=True)
    parts = model.decompose(new)
    wanted = {
        "prediction": mean,
        "std": std,
        "lower": model.predict_interval(new, 0.8)[:, 0],
        "upper": model.predict_interval(new, 0.8)[:, 1],
        "quantile_0.1": model.predict_quantiles(new, [0.1])[:, 0],
        "quantile_0.75": model.predict_quantiles(new, [0.75])[:, 0],
        "epistemic": parts.epistemic,
        "aleatoric": parts.aleatoric,
        "ood_score": model.ood_score(new),
    }
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12)


def test_classes_have_probabilities_and_entropies(saved):
    *_, model, path = saved
    new, _ = homes(20, seed=1)
    found, parts = Predictor(path)(new), model.decompose(new)
    assert list(found) == ["prediction", "probability_cheap", "probability_dear", "epistemic", "aleatoric", "ood_score"]
    np.testing.assert_allclose(found[["probability_cheap", "probability_dear"]], model.predict_proba(new), rtol=1e-12)
    np.testing.assert_allclose(found["epistemic"] + found["aleatoric"], parts.total, rtol=1e-6)


def test_a_frame_comes_back_of_the_library_it_came_in(saved):
    _, path, *_ = saved
    new, _ = homes(10, seed=1)
    new.index = [f"home {i}" for i in range(10)]
    predict = Predictor(path)
    assert list(predict(new).index) == list(new.index)
    for other, kind in ((pl.from_pandas(new), pl.DataFrame), (pa.Table.from_pandas(new, preserve_index=False), pa.Table)):
        found = predict(other)
        assert isinstance(found, kind)
        np.testing.assert_array_equal(np.asarray(found["prediction"]), predict(new)["prediction"])


def test_it_is_lazy_and_pickled_by_its_path(saved, tmp_path):
    _, path, *_ = saved
    missing = Predictor(tmp_path / "none.gwi")
    with pytest.raises(FileNotFoundError):
        missing(homes(2)[0])
    predict, new = Predictor(path), homes(10, seed=1)[0]
    wanted = predict(new)
    again = pickle.dumps(predict)
    assert len(again) < 1000
    pd.testing.assert_frame_equal(pickle.loads(again)(new), wanted)


@pytest.mark.parametrize("options", [{"coverage": 1.0}, {"quantiles": [0.0]}, {"coverage": float("nan")}])
def test_levels_are_probabilities(options):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        Predictor("model.gwi", **options)


def test_scores_of_a_file_of_frames_are_those_of_the_frame(saved, tmp_path):
    model, _, classifier, _ = saved
    frame, y = homes(60, seed=2)
    labels = np.where(y > 900, "dear", "cheap")
    whole = frame.assign(rent=y, label=labels)
    whole.loc[3, ["rent", "label"]] = None
    pq.write_table(pa.Table.from_pandas(whole), tmp_path / "new.parquet")
    known = np.arange(60) != 3
    scores = gwi.score_source(model, tmp_path / "new.parquet", "rent")
    assert scores.rmse == pytest.approx(float(np.sqrt(np.mean((model.predict(frame[known]) - y[known]) ** 2))))
    found = gwi.score_source(classifier, tmp_path / "new.parquet", "label")
    assert found.nll == pytest.approx(classifier.nll(frame[known], labels[known]))
