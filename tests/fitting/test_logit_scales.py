"""The scales of a classification are those of a thorough search, found at less cost."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from gwi.fitting.logit_scales import (
    FEWEST_ROWS,
    JUDGED_NUMBERS,
    Judgement,
    SampledNLL,
    checked_tempering,
    choose_scales,
)

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def judgement():
    """Logits that are half as large as they should be, at 3,000 rows of five classes: more than the first search looks at."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(5, 3000, generator=generator, dtype=torch.float64)
    label = torch.multinomial(logits.softmax(0).mT, 1, generator=generator)[:, 0]
    weight = torch.ones(3000, dtype=torch.float64)
    return Judgement(logits / 2, torch.full_like(logits, 0.3), None, label, weight, 3000, None)


def test_the_search_finds_what_a_thorough_one_finds(judgement):
    scale, alpha, gamma = choose_scales(judgement, "auto")

    def thorough(parameters):
        s, a = np.exp(parameters)
        return judgement.nll(s, np.full(5, a), 0.0) + 0.5 * ((np.log(a) / 1.5) ** 2 + (np.log(s) / 0.3) ** 2) / 3000

    found = np.log([scale, alpha[0]])
    # The objective is smooth and has one valley: nothing around is lower, near or far.
    around = [found + length * np.array(step) for length in (0.05, 0.5) for step in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 2))]
    assert thorough(found) < min(thorough(other) for other in around) + 2e-4
    assert scale > 1.8
    assert gamma == 0


def test_many_rows_are_judged_by_some_of_them(judgement):
    columns = (judgement.mean.repeat(1, 3), judgement.variance.repeat(1, 3), None, judgement.label.repeat(3))
    many = Judgement(*columns, judgement.weight.repeat(3), 9000, None)
    some, all_of_them = many.sampled(), judgement.sampled()
    count = max(FEWEST_ROWS, JUDGED_NUMBERS // 5)
    assert some.mean.shape == some.variance.shape == (5, count)
    assert len(some.label) == len(some.weight) == count
    assert some.num_rows == 9000
    assert all_of_them.mean.shape == judgement.mean.shape


def test_a_few_rows_that_are_all_told_apart_do_not_ask_for_endless_logits():
    logits = 6.0 * torch.eye(3, dtype=torch.float64).repeat(1, 100)
    certain = Judgement(logits, torch.full_like(logits, 0.5), None, logits.argmax(0), torch.ones(300).double(), 300, None)
    scale, _, _ = choose_scales(certain, "auto")
    assert scale < 1.5


@pytest.mark.parametrize("factor", [2, np.float32(2.0), np.float64(2.0), np.int64(2)], ids=repr)
def test_a_factor_may_be_any_real_number(factor, judgement):
    found = checked_tempering(factor)
    assert type(found) is float
    scale, alpha, _ = choose_scales(judgement, found)
    assert scale == 1.0
    assert alpha.tolist() == [2.0] * 5


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf"), True, "all", [1.0], 1j], ids=repr)
def test_what_is_no_factor_is_refused(factor):
    with pytest.raises(ValueError, match="a factor of at least zero, or None"):
        checked_tempering(factor)


@pytest.mark.parametrize("num_classes", [2, 5])
@pytest.mark.parametrize(("spread", "error"), [(0.0, 1e-4), (0.3, 1e-3), (3.0, 4e-3)])
def test_the_sampled_likelihood_is_that_of_the_integral(num_classes, spread, error):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(num_classes, 2000, generator=generator, dtype=torch.float64)
    label = torch.multinomial(logits.softmax(0).mT, 1, generator=generator)[:, 0]
    variance = spread * torch.rand(num_classes, 2000, generator=generator, dtype=torch.float64)
    unseen = Judgement(logits, variance, variance.flip(0), label, torch.ones(2000, dtype=torch.float64), 2000, None)
    scales = torch.tensor([1.2, 0.8, 0.5], requires_grad=True)
    (sampled,) = SampledNLL(unseen)(*scales)
    exact = partial(unseen.nll, alpha=np.full(num_classes, 0.8), gamma=0.5)
    assert sampled.item() == pytest.approx(exact(1.2), abs=error)
    if spread == 0:
        assert unseen.nll(1.0, np.ones(num_classes), 0.0) == pytest.approx(unseen.nll_of_mean(), abs=1e-4)
    sampled.backward()
    assert float(scales.grad[0]) == pytest.approx((exact(1.21) - exact(1.19)) / 0.02, abs=error)


def test_parts_of_the_rows_add_up_to_all_of_them(judgement, monkeypatch):
    one = torch.tensor(1.0)
    whole = list(SampledNLL(judgement)(one, one, one))
    monkeypatch.setattr("gwi.fitting.logit_scales.HELD_DRAWS", 32 * 5 * 700)
    parts = list(SampledNLL(judgement)(one, one, one))
    assert (len(whole), len(parts)) == (1, 5)
    assert float(sum(parts)) == pytest.approx(float(whole[0]), abs=2e-3)


def test_robust_max_has_the_variance_that_a_thorough_search_finds(judgement):
    robust = replace(judgement, epsilon=0.01)
    scale, alpha, _ = choose_scales(robust, "auto")

    def thorough(log_alpha):
        return robust.nll(1.0, np.full(5, np.exp(log_alpha)), 0.0) + 0.5 * (log_alpha / 1.5) ** 2 / 3000

    best = minimize_scalar(thorough, bounds=(-8, 2), method="bounded", options={"xatol": 1e-4}).x
    assert scale == 1.0
    assert np.log(alpha[0]) == pytest.approx(best, abs=0.05)
