"""The study of the network mean: what its peers are."""

import numpy as np
import torch
from benchmarks.studies import network_mean
from sklearn.linear_model import Ridge


def test_the_spread_of_ridge_regression_is_that_of_rows_left_out():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=20)
    law = network_mean.ridge(x, y, 0)(x[:1])
    z, t = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()

    def left_out(penalty: float) -> float:
        errors = []
        for i in range(20):
            rest = np.arange(20) != i
            model = Ridge(penalty).fit(z[rest], t[rest])
            errors.append(t[i] - model.predict(z[i : i + 1])[0])
        return float(np.square(errors).mean())

    least = min(left_out(penalty) for penalty in np.logspace(-3, 4, 15))
    np.testing.assert_allclose(law.std[0, 0], y.std() * least**0.5, rtol=1e-6)


def test_a_network_is_kept_as_it_was_when_unseen_rows_liked_it_best(monkeypatch):
    monkeypatch.setattr(network_mean, "MAX_EPOCHS", 8)
    torch.manual_seed(0)
    x, y = torch.randn(40, 2), torch.randn(40)
    learn, judge = torch.arange(30), torch.arange(30, 40)
    model = torch.nn.Linear(2, 2)

    @torch.no_grad()
    def judged() -> float:
        mean, variance = network_mean.moments(model, x[judge])
        return float((((y[judge] - mean) ** 2 / variance + variance.log()) / 2).mean())

    start = judged()
    # Targets that cannot be learned: more training only hurts, and the best state is no worse than any on the way.
    network_mean.stopped_early(model, x, y, learn, judge, batch_size=10)
    assert judged() <= start
