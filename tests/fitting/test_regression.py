"""Means of all kinds inside the regressor: several targets, weights, and judges that have not seen the rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gwi import GWIRegressor, Trained, load
from gwi.core.kernels import default_kernel
from gwi.core.measures import kernel_matrix
from gwi.core.networks import mlp
from gwi.fitting.plan import regression_members
from gwi.parts import Covariance, Gaussian
from waves import wave

pytestmark = pytest.mark.unchecked


def test_many_columns_and_few_rows_do_not_make_a_kernel_mean_look_better_than_it_is():
    inside, claimed, true = [], [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, noise = rng.normal(size=(560, 20)), rng.normal(size=560)
        y = x[:, 0] + noise
        model = GWIRegressor("svgp", random_state=0, likelihood=Gaussian("constant")).fit(x[:60], y[:60])
        lower, upper = model.predict_interval(x[60:]).T
        inside.append(((lower <= y[60:]) & (y[60:] <= upper)).mean())
        claimed.append(model.summary_.held_out_nll[1])
        true.append(model.nll(x[60:], y[60:]))
    assert np.mean(inside) > 0.88
    assert np.mean(true) < np.mean(claimed) + 0.3


def test_the_default_takes_several_targets_and_so_does_a_mean_that_knows_only_one(tmp_path):
    x, y = wave(60)
    both = np.column_stack([y, 3 - 2 * x[:, 0]])
    boosting = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=5)
    model = GWIRegressor(["svgp", boosting], random_state=0).fit(x, both)
    assert model.predict(x).shape == both.shape
    assert model.score(x, both) > 0.9
    loaded = load(model.save(tmp_path / "model.gwi"))
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    alone = GWIRegressor(boosting, random_state=0).fit(x, both)
    assert alone.predict(x, return_std=True)[1].shape == both.shape
    assert any(isinstance(getattr(part, "estimator", None), HistGradientBoostingRegressor) for part in regression_members(300, 2))
    assert GWIRegressor(random_state=0).fit(x, both).predict(x).shape == both.shape


@pytest.mark.parametrize(
    "mean", [make_pipeline(StandardScaler(), Ridge()), KNeighborsRegressor(3)], ids=["pipeline", "neighbours"]
)
def test_a_row_that_stands_there_twice_and_equal_weights_are_no_matter_to_means_without_weights(mean):
    x, y = wave(60)
    doubled = np.concatenate([x, x[:1]]), np.concatenate([y, y[:1]])
    assert np.isfinite(GWIRegressor(mean, random_state=0).fit(*doubled).predict(x)).all()
    assert np.isfinite(GWIRegressor(mean, random_state=0).fit(x, y, sample_weight=np.full(60, 0.1)).predict(x)).all()


def test_weights_that_a_mean_cannot_take_are_refused_before_anything_is_trained():
    x, y = wave(60)
    with pytest.raises(ValueError, match="KNeighborsRegressor takes no sample_weight"):
        GWIRegressor(KNeighborsRegressor(3)).fit(x, y, sample_weight=np.linspace(0.5, 2, 60))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"covariance": Covariance(weight=-1.0)}, 'weight must be "auto" or a positive number; got -1.0.'),
        ({"covariance": Covariance(weight=0)}, "positive number; got 0"),
        ({"tempering": 0.0}, 'tempering must be "auto", None or a positive number; got 0.0.'),
        ({"tempering": float("nan")}, "positive number; got nan"),
        ({"covariance": Covariance(kernel_fit="everything")}, 'kernel_fit must be "targets" or "residuals"'),
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(options, words):
    with pytest.raises(ValueError, match=words):
        GWIRegressor(**options).fit(*wave(20))


def test_one_row_however_often_is_too_few():
    x, y = np.ones((5, 1)), np.ones(5)
    with pytest.raises(ValueError, match="at least two rows that differ"):
        GWIRegressor().fit(x, y)
    with pytest.raises(ValueError, match="at least two rows that differ"):
        GWIRegressor().fit(*wave(2), sample_weight=[1, 0])


def test_validation_rows_have_the_columns_of_the_training_rows():
    x, y = wave(60)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 0] ** 2})
    line = Ridge().fit(frame[:30], y[:30])
    with pytest.raises(ValueError, match="validation: X lacks 1 of the 2 columns of the model: 'b'"):
        GWIRegressor(line).fit(frame[:30], y[:30], validation=(frame[["a"]][30:], y[30:]))
    with pytest.raises(ValueError, match=r"validation: .*y.* contains NaN"):
        GWIRegressor(line).fit(frame[:30], y[:30], validation=(frame[30:], np.full(30, np.nan)))
    with pytest.raises(ValueError, match=r"validation must be a pair"):
        GWIRegressor(line).fit(frame[:30], y[:30], validation=frame[30:])


def test_a_model_that_showed_its_progress_can_be_pickled(capsys):
    model = GWIRegressor("svgp", verbose=1, random_state=0).fit(*wave(30))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(wave(9)[0]), model.predict(wave(9)[0]))


def test_batch_normalisation_never_sees_a_single_row(monkeypatch):
    monkeypatch.setattr("gwi.fitting.task.FEWEST_EPOCHS", 1)
    monkeypatch.setattr("gwi.fitting.task.MOST_EPOCHS", 1)
    network = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    assert np.isfinite(GWIRegressor(Trained(network), random_state=0).fit(*wave(65)).predict(wave(65)[0])).all()


def test_rows_that_stand_there_often_count_as_often():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (240, 1)).astype(float)
    y = np.round(np.sin(x[:, 0]) + 0.5 * rng.standard_normal(240), 1)
    merged = GWIRegressor("svgp", random_state=0, likelihood=Gaussian(conformal=True)).fit(x, y)
    apart = GWIRegressor("svgp", random_state=0).fit(x, y + 1e-6 * rng.standard_normal(240))
    assert merged.summary_.num_rows == 240
    np.testing.assert_allclose(merged.decompose(x[:9]).epistemic, apart.decompose(x[:9]).epistemic, rtol=0.5)
    lower, upper = merged.predict_interval(x, 0.9).T
    assert 0.85 <= ((lower <= y) & (y <= upper)).mean() <= 0.97


def test_a_row_that_hardly_counts_does_not_make_f_known():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 3, 60), rng.uniform(6, 9, 60)])[:, None]
    y = np.sin(2 * x[:, 0]) + 0.2 * rng.standard_normal(120)
    model = GWIRegressor("svgp", random_state=0).fit(x, y, sample_weight=np.repeat([1.0, 1e-8], 60))
    known, unknown = model.ood_score([[1.5], [7.5]])
    assert known < 0.05
    assert unknown > 0.9


def test_one_mean_is_unsure_across_a_gap_and_who_gives_a_weight_gets_the_distance():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(0, 3, 40), rng.uniform(6, 9, 40)])[:, None]
    y = np.sin(1.5 * x[:, 0]) + 0.2 * rng.standard_normal(80)
    model = GWIRegressor("svgp", random_state=0).fit(x, y)
    assert model.summary_.covariance == "titsias"
    assert model.ood_score([[4.5]])[0] > 10 * model.ood_score([[1.5]])[0]
    assert GWIRegressor("svgp", random_state=0, covariance=Covariance(weight=5.0)).fit(x, y).summary_.covariance == "wasserstein"
    few = GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=20)).fit(x, y)
    assert few.summary_.covariance == "titsias"
    assert few.ood_score([[4.5]])[0] > 10 * few.ood_score([[1.5]])[0]


def test_a_stack_is_as_unsure_across_a_gap_as_one_mean():
    held = {"svgp": [], "stack": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = np.concatenate([rng.uniform(0, 3, 40), rng.uniform(5.9, 8.9, 40)])[:, None]
        new = np.linspace(3, 5.9, 40)[:, None]
        everything = torch.from_numpy(np.concatenate([x, new]))
        values, vectors = torch.linalg.eigh(kernel_matrix(default_kernel(1, lengthscale=1.0), everything).detach())
        f = (vectors * values.clamp_min(0).sqrt()).numpy() @ rng.standard_normal(120)
        y = f + 0.2 * rng.standard_normal(120)
        for name, means in (("svgp", ["svgp"]), ("stack", ["svgp", KNeighborsRegressor()])):
            model = GWIRegressor(means, random_state=0).fit(x, y[:80])
            assert model.summary_.covariance == "titsias"
            low, high = model.predict_interval(new).T
            held[name].append(np.mean((low <= y[80:]) & (y[80:] <= high)))
    assert np.mean(held["stack"]) > 0.85
    assert abs(np.mean(held["stack"]) - np.mean(held["svgp"])) < 0.1


def test_a_clean_target_is_not_blurred_by_a_noisy_one_beside_it():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (120, 1))
    clean, noisy = np.sin(3 * x[:, 0]), np.cos(2 * x[:, 0]) + rng.standard_normal(120)
    grid = np.linspace(-1.8, 1.8, 50)[:, None]
    both = GWIRegressor("svgp", random_state=0).fit(x, np.column_stack([clean, noisy])).predict(grid)
    assert np.abs(both[:, 0] - np.sin(3 * grid[:, 0])).max() < 0.02


@pytest.mark.parametrize("num_outputs", [1, 3])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_network_with_other_outputs_than_targets_is_refused(num_outputs, frozen):
    x, y = wave(60)
    both = np.column_stack([y, -y])
    module = mlp(1, num_outputs)
    with pytest.raises(ValueError, match=f"gives {num_outputs} outputs per row; there are 2 target"):
        GWIRegressor(module if frozen else Trained(module)).fit(x[:40], both[:40], validation=(x[40:], both[40:]))
