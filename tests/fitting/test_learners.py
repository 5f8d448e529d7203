"""Fits that are done side by side, or on a cluster whose workers die, give what they give one after another."""

from typing import ClassVar

import numpy as np
import pytest
from joblib import parallel_config
from joblib.parallel import get_active_backend
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import Ridge

from gwi import GWIClassifier, GWIRegressor
from gwi.parts import Covariance

pytestmark = pytest.mark.unchecked


def rows(count=120, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    return x, x[:, 0] + np.sin(2 * x[:, 1]) + 0.1 * rng.normal(size=count)


def fitted(n_jobs=None):
    means = [ExtraTreesRegressor(5), Ridge(), ExtraTreesRegressor(5)]
    return GWIRegressor(means, random_state=0, n_jobs=n_jobs, covariance=Covariance(num_inducing=10)).fit(*rows())


def test_the_number_of_jobs_changes_nothing():
    x, y = rows()
    alone = fitted().predict(x, return_std=True)
    with parallel_config(backend="threading", n_jobs=2):
        for found, wanted in zip(fitted().predict(x, return_std=True), alone, strict=True):
            np.testing.assert_array_equal(found, wanted)
    classifier = GWIClassifier(ExtraTreesClassifier(5), random_state=0, covariance=Covariance(num_inducing=10))
    with parallel_config(backend="threading", n_jobs=2):
        several = classifier.fit(x, y > 0).predict_proba(x)
    np.testing.assert_array_equal(several, classifier.fit(x, y > 0).predict_proba(x))


class Noting(Ridge):
    """Notes where its own parallel parts would be done."""

    backends: ClassVar[list[str]] = []

    def fit(self, X, y, sample_weight=None):
        self.backends.append(type(get_active_backend()[0]).__name__)
        return super().fit(X, y, sample_weight)


def test_on_a_cluster_the_parts_of_one_fit_stay_with_their_worker():
    distributed = pytest.importorskip("distributed")
    Noting.backends.clear()
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    with cluster, distributed.Client(cluster), parallel_config(backend="dask"):
        GWIRegressor(Noting(), random_state=0, covariance=Covariance(num_inducing=10)).fit(*rows())
    assert set(Noting.backends) == {"ThreadingBackend"}


@pytest.mark.slow
def test_processes_and_a_cluster_give_the_same():
    distributed = pytest.importorskip("distributed")
    x, _ = rows()
    wanted = fitted().predict(x)
    np.testing.assert_array_equal(fitted(n_jobs=2).predict(x), wanted)
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, distributed.Client(cluster), parallel_config(backend="dask"):
        np.testing.assert_array_equal(fitted().predict(x), wanted)


@pytest.mark.parametrize("labels", [("no", "yes"), (False, True)], ids=str)
def test_a_class_of_one_row_leaves_a_fold_with_a_single_class(labels):
    x, _ = rows(30)
    y = np.array(labels)[(np.arange(30) == 3).astype(int)]
    for mean in ("auto", "linear"):
        probabilities = GWIClassifier(mean, random_state=0).fit(x, y).predict_proba(x)
        assert np.isfinite(probabilities).all()
        assert probabilities[:, 1].mean() < 0.3
