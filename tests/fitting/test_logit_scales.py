"""The scales of a classification are those of a thorough search, found at less cost."""

import numpy as np
import pytest
import torch

from gwi.fitting.logit_scales import (
    FEWEST_ROWS,
    FIRST_NUMBERS,
    Judgement,
    checked_tempering,
    choose_scales,
    minimum_by_steps,
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


def test_some_rows_hold_so_many_numbers_and_few_rows_are_all(judgement):
    some = judgement.some(FIRST_NUMBERS)
    count = max(FEWEST_ROWS, FIRST_NUMBERS // 5)
    assert some.mean.shape == some.variance.shape == (5, count)
    assert len(some.label) == len(some.weight) == count
    assert some.num_rows == judgement.num_rows
    assert judgement.some(10**9) is judgement
    assert judgement.some(1).mean.shape == (5, FEWEST_ROWS)


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


def test_a_close_function_leads_to_the_minimum_of_another():
    """Though it has its own minimum elsewhere, and by less than a tenth of the values that a search without it takes."""
    asked = []

    def exact(point):
        asked.append(point)
        return float(0.5 * (point[0] - 1.3) ** 2 + (point[1] + 2) ** 2 + 0.3 * point[0] * point[1])

    def close(point):
        return float(0.6 * (point[0] - 0.7) ** 2 + 1.2 * (point[1] + 1.5) ** 2)

    def searched():
        found = yield from minimum_by_steps(close, np.zeros(2), np.array([0.1, -1.0]))
        yield found, None

    search = searched()
    point = next(search)
    while not isinstance(point, tuple):
        point = search.send(exact(point))
    found = point[0]
    grid = np.stack(np.meshgrid(np.linspace(-3, 6, 181), np.linspace(-5, 3, 161)), -1).reshape(-1, 2)
    taken = len(asked)
    assert exact(found) < min(map(exact, grid)) + 2e-3
    assert taken <= 33


@pytest.mark.parametrize("num_classes", [2, 5])
@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_the_close_likelihood_is_close(num_classes, spread):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(num_classes, 2000, generator=generator, dtype=torch.float64)
    label = torch.multinomial(logits.softmax(0).mT, 1, generator=generator)[:, 0]
    variance = spread * torch.rand(num_classes, 2000, generator=generator, dtype=torch.float64)
    unseen = Judgement(logits, variance, None, label, torch.ones(2000, dtype=torch.float64), 2000, None)
    exact, close = unseen.nll(1.0, np.ones(num_classes), 0.0), unseen.close_nll(1.0, np.ones(num_classes), 0.0)
    assert close == pytest.approx(exact, abs=1e-3 if spread == 0 else 0.05)
    if spread == 0:
        assert exact == pytest.approx(unseen.nll_of_mean(), abs=1e-4)
