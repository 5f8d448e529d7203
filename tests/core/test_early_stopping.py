"""Networks that stop when rows they have not seen gain no more."""

import numpy as np
import pytest
import torch

from gwi.core.early_stopping import Judges, train_early_stopped
from gwi.core.kernels import column_relevances, default_kernel
from gwi.core.networks import EnsembleMLP
from gwi.core.training import FlatAdam


def squared(outputs, targets):
    return (outputs - targets).square().sum(-1)


def rows(count=120, num_features=3, noise=0.1, seed=0):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(count, num_features, generator=rng)
    return x, (2 * x[:, :1]).sin() + noise * torch.randn(count, 1, generator=rng)


def trained(x, y, judge_y=None, *, max_steps=200, judged=True, hidden=(16,)):
    """Two members for each of three folds, and what they predict at rows that they have not seen."""
    fold = torch.arange(len(x)) % 3
    learned = torch.stack([fold != k for k in range(3)])
    some = fold if judged else fold[:0]
    judges = Judges(x[: len(some)], (y if judge_y is None else judge_y)[: len(some)], torch.ones(len(some)), some, some)
    network = EnsembleMLP(x.shape[1], 1, num_members=6, hidden=hidden, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    found = train_early_stopped(
        network, squared, x, y, torch.ones(len(x)), learned, judges, max_steps=max_steps, generator=generator
    )
    return network, found, fold


def test_a_network_starts_as_its_linear_path():
    network = EnsembleMLP(3, 2, num_members=4, generator=torch.Generator().manual_seed(0))
    coefficients = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(1))
    network.linear.data.copy_(coefficients)
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(network.members(x), x @ coefficients)


def test_some_members_answer_as_they_do_among_all():
    network, _, _ = trained(*rows())
    x = torch.randn(5, 3)
    torch.testing.assert_close(network.members(x, slice(1, None, 3)), network.members(x)[1::3])


def test_settling_changes_no_value():
    network, _, _ = trained(*rows())
    x = torch.randn(50, 3)
    before = network.members(x)
    assert network.log_scales is not None
    after = network.settled().members(x.double())
    assert network.log_scales is None
    torch.testing.assert_close(after.float(), before, atol=1e-5, rtol=1e-5)


def test_a_member_learns_nothing_from_its_own_fold():
    x, y = rows()
    changed = y.clone()
    changed[torch.arange(len(x)) % 3 == 1] += 100.0
    one, _, _ = trained(x, y, judged=False)
    other, _, _ = trained(x, changed, judged=False)
    grid = torch.randn(40, 3)
    assert torch.equal(one.members(grid)[1::3], other.members(grid)[1::3])
    assert not torch.allclose(one.members(grid)[0::3], other.members(grid)[0::3])


def test_what_is_predicted_at_a_fold_does_not_depend_on_its_own_targets():
    # The step is chosen by the others; the targets that are learned from stay as they are. All say when training ends, which
    # it never does in so few steps.
    x, y = rows(noise=0.5)
    told = y.clone()
    told[torch.arange(len(x)) % 3 == 2] = torch.randn(len(x) // 3, 1, generator=torch.Generator().manual_seed(5)) * 10
    _, found, fold = trained(x, y, max_steps=50)
    _, other, _ = trained(x, y, told, max_steps=50)
    torch.testing.assert_close(found[fold == 2], other[fold == 2])


def test_training_ends_early_on_noise_and_late_on_functions():
    x, y = rows(300)
    noise = torch.randn(300, 1, generator=torch.Generator().manual_seed(7))
    shares = {}

    def steps(targets, name):
        fold = torch.arange(len(x)) % 3
        judges = Judges(x, targets, torch.ones(len(x)), fold, fold)
        network = EnsembleMLP(3, 1, num_members=3, hidden=(16, 16), generator=torch.Generator().manual_seed(1))
        learned = torch.stack([fold != k for k in range(3)])
        found = train_early_stopped(
            network,
            squared,
            x,
            targets,
            torch.ones(len(x)),
            learned,
            judges,
            max_steps=1000,
            on_step=lambda share: shares.__setitem__(name, share),
        )
        return float((found - targets).square().mean() / targets.square().mean())

    assert steps(noise, "noise") < 1.05
    assert steps(y, "function") < 0.1
    assert shares["noise"] < shares["function"]


def test_rows_far_away_are_seen_at_the_end_of_the_span():
    span = (torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 2.0]))
    network = EnsembleMLP(2, 1, num_members=2, hidden=(4,), span=span, generator=torch.Generator().manual_seed(0))
    network.linear.data.fill_(1.0)
    far = torch.tensor([[50.0, 0.5], [-50.0, -1e9]])
    torch.testing.assert_close(network(far), torch.tensor([[1.5], [-3.0]]))


def test_flat_adam_is_adamw():
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (4,), (2, 2, 2)]
    ours = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    theirs = [p.detach().clone().requires_grad_() for p in ours]
    optimiser = FlatAdam(
        [{"params": ours[:2], "lr": 0.1, "weight_decay": 0.2}, {"params": ours[2:], "lr": 0.03, "weight_decay": 0.0}]
    )
    reference = torch.optim.AdamW(
        [{"params": theirs[:2], "lr": 0.1, "weight_decay": 0.2}, {"params": theirs[2:], "lr": 0.03, "weight_decay": 0.0}]
    )
    for _ in range(20):
        for parameters, moved in ((ours, optimiser), (theirs, reference)):
            moved.zero_grad()
            sum((p.sin() + p.square()).sum() for p in parameters).backward()
            moved.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q)
    assert torch.equal(optimiser.values, torch.cat([p.detach().reshape(-1) for p in ours]))


@pytest.mark.parametrize("num_features", [1, 4])
def test_relevances_are_inverse_length_scales_with_mean_square_one(num_features):
    lengthscale = torch.arange(1.0, num_features + 1)
    found = column_relevances(default_kernel(num_features, lengthscale=lengthscale), num_features)
    np.testing.assert_allclose(found * lengthscale, float(found[0]))
    np.testing.assert_allclose(found.square().mean(), 1)


def test_a_kernel_without_length_scales_for_columns_finds_all_alike():
    assert column_relevances(default_kernel(3, ard=False), 3).tolist() == [1, 1, 1]
