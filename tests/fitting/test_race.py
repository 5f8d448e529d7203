"""Who cannot add anything any more stops; who leads, or gains, goes on."""

import pytest
import torch

from gwi.core.means import AffineMean, ConstantMean, ConvexMean
from gwi.fitting.late import LateMean, settled
from gwi.fitting.race import Race

F64 = torch.float64


@pytest.fixture
def race():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(1, 400, dtype=F64, generator=generator)
    others = y + 0.1 * torch.randn(1, 400, dtype=F64, generator=generator)
    return Race(lambda outputs, targets: (outputs - targets).square().sum(-1), y, torch.ones(400, dtype=F64), others)


def outputs(race, error, seed=1, like=0.0):
    """Predictions that err by so much; a share of the errors is that of the others."""
    own = torch.randn(race.y.shape, dtype=F64, generator=torch.Generator().manual_seed(seed))
    return (race.y + error * own + like * (race.others - race.y)).mT


def stops_at(race, errors, most=400, like=0.0):
    runner = race.runner(most)
    for steps, error in errors:
        values = outputs(race, error, like=like)
        if runner(steps, race.mean_loss(values.mT), values):
            return steps
    return None


def test_who_would_end_far_behind_stops_once_he_has_had_a_fair_start(race):
    slow = [(steps, 1.0 * steps**-0.05) for steps in range(10, 400, 10)]
    stop = stops_at(race, slow)
    assert stop is not None
    assert 40 <= stop < 100


def test_who_leads_never_stops(race):
    assert stops_at(race, [(steps, 0.05) for steps in range(10, 400, 10)]) is None


def test_who_falls_fast_enough_to_catch_up_goes_on(race):
    assert stops_at(race, [(steps, 2.0 / steps) for steps in range(10, 400, 10)]) is None


def test_who_adds_to_the_stack_goes_on_until_that_stagnates(race):
    # Errors of their own help a mix, though each alone is worse.
    falling = [(steps, 0.5 * (steps / 10) ** -0.4) for steps in range(10, 400, 10)]
    standing = [(steps, 0.13) for steps in range(10, 400, 10)]
    assert stops_at(race, falling) is None
    assert stops_at(race, standing) is not None


def test_who_errs_where_the_others_err_and_more_besides_stops(race):
    assert stops_at(race, [(steps, 0.08 + 0.1 / steps) for steps in range(10, 400, 10)], like=1.0) is not None


def test_without_outputs_only_the_loss_counts(race):
    runner = race.runner(400)
    assert not any(runner(steps, 0.02, None) for steps in range(10, 400, 10))
    assert any(race.runner(400)(steps, 1.0, None) for steps in (10, 20)) is False
    lost = race.runner(400)
    assert any(lost(steps, 1.0, None) for steps in range(10, 400, 10))


def test_who_is_done_is_worth_it_where_a_mix_with_the_others_is_better(race):
    some = torch.arange(400) < 80
    own_errors, same_errors = outputs(race, 0.1).mT, outputs(race, 0.01, like=1.0).mT
    assert race.is_worth_it(own_errors)
    assert race.gain(own_errors) == pytest.approx(0.5, abs=0.1)  # Errors that know nothing of each other halve.
    assert not race.is_worth_it(same_errors)
    assert race.at(some).gain(own_errors[:, some]) == pytest.approx(race.gain(own_errors), abs=0.15)
    # A loss below zero, as of a density, has no shares.
    below = Race(lambda outputs, targets: race.loss(outputs, targets) - 1, race.y, race.weight, race.others)
    assert below.is_worth_it(same_errors)


def test_a_late_mean_is_fitted_once_and_only_when_asked():
    calls = []

    def fit():
        calls.append(1)
        return ConstantMean(torch.tensor([2.0], dtype=F64))

    one, unused = LateMean(fit), LateMean(lambda: pytest.fail("nobody asked"))
    mean = ConvexMean([AffineMean(one, torch.tensor([1.0], dtype=F64), torch.tensor([3.0], dtype=F64))], torch.ones(1, dtype=F64))
    whole = settled(mean)
    assert not any(isinstance(part, LateMean) for part in whole.modules())
    torch.testing.assert_close(whole(torch.zeros(2, 1, dtype=F64)), torch.full((1, 2), 7.0, dtype=F64))
    assert settled(one)(torch.zeros(1, 1, dtype=F64)).item() == 2.0
    assert len(calls) == 1
    assert unused._found == []
