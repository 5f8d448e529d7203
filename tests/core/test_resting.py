"""Means at rest have the values that they had."""

import copy

import numpy as np
import pytest
import torch

from gwi.core.means import AffineMean, FixedMean, JoinedMean, LinkMean, ModuleMean, OriginalRowsMean, RescaledMean
from gwi.core.networks import EnsembleMLP, FlatEnsemble
from gwi.core.resting import at_rest
from gwi.core.scaling import Scales
from gwi.predictors.trees import plain_trees
from tree_cases import fitted

F64 = torch.float64


def rows(num_rows, dim=4, seed=0):
    return torch.randn(num_rows, dim, dtype=F64, generator=torch.Generator().manual_seed(seed))


def ensemble(hidden, num_outputs=1, span=None):
    generator = torch.Generator().manual_seed(0)
    network = EnsembleMLP(4, num_outputs, num_members=3, hidden=hidden, span=span, generator=generator)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 5)
    return network


def in_loops(network, x):
    """Each member, row and layer by itself."""
    found = np.zeros((len(x), network.linear.shape[2]))
    for i, row in enumerate(x.clamp(network.low, network.high).numpy()):
        for e in range(network.num_members):
            h = row
            for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
                h = h @ weight[e].numpy() + bias[e, 0].numpy()
                h = h / (1 + np.exp(-h)) if layer < len(network.weights) - 1 else h
            found[i] += (h + row @ network.linear[e].numpy()) / network.num_members
    return found


@pytest.mark.parametrize("hidden", [(), (6,), (5, 5), (4, 4, 4)])
@pytest.mark.parametrize("num_outputs", [1, 3])
def test_a_flat_ensemble_is_the_mean_of_its_members(hidden, num_outputs):
    span = (torch.full((4,), -1.0), torch.full((4,), 1.5))
    network = ensemble(hidden, num_outputs, span).settled()
    flat = FlatEnsemble(network)
    for x in (rows(1), rows(7), rows(600)):
        torch.testing.assert_close(flat(x), network(x), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(flat(rows(5)).numpy(), in_loops(network, rows(5)), atol=1e-13)
    assert torch.autograd.gradcheck(flat, rows(3, seed=1).requires_grad_())


def test_a_row_alone_gets_what_it_gets_among_others():
    flat = FlatEnsemble(ensemble((16, 16)).settled())
    with torch.no_grad():
        alone = torch.cat([flat(row) for row in rows(300).split(1)])
        torch.testing.assert_close(flat(rows(300)), alone, rtol=0, atol=1e-13)


def test_a_network_that_is_learned_stays_as_it_is():
    learned = ModuleMean(ensemble((6,)))
    assert at_rest(learned) is learned
    settled = ModuleMean(ensemble((6,)).settled(), prior_mean=lambda x: x[None, :, 0])
    resting = at_rest(settled)
    assert type(resting.module) is FlatEnsemble
    torch.testing.assert_close(resting(rows(5)), settled(rows(5)))


def test_trees_inside_of_other_means_are_joined_and_those_means_stay_as_they_are():
    inner = FixedMean(plain_trees(fitted("boosting")))
    scales = Scales(np.zeros(4), np.full(4, 2.0), np.ones(1), np.full(1, 3.0))
    one = torch.ones(1, dtype=F64)
    wrapped = [
        inner,
        OriginalRowsMean(inner, scales),
        RescaledMean(inner, scales),
        AffineMean(OriginalRowsMean(inner, scales), one, 2 * one),
        LinkMean(inner, "log", margin=1e-3),
        JoinedMean([inner, OriginalRowsMean(inner, scales)]),
    ]
    for mean in wrapped:
        before = copy.deepcopy(mean)
        resting = at_rest(mean)
        assert torch.equal(resting(rows(3)), before(rows(3)))
        predictors = [part.predictor for part in resting.modules() if isinstance(part, FixedMean)]
        assert predictors
        assert all(predictor.joins for predictor in predictors)
        assert not any(part.predictor.joins for part in mean.modules() if isinstance(part, FixedMean))


def test_what_has_no_other_form_stays_as_it_is():
    mean = FixedMean(lambda x: x[:, 0])
    assert at_rest(mean) is mean
