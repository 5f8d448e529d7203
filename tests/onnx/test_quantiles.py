"""Quantiles of counts and gamma variables in a graph are those of the laws, however wide f is beside the noise."""

import numpy as np
import pytest

from gwi.core.laws.mixed import MixedLaw
from gwi.core.likelihoods.families import GammaFamily, NegativeBinomialFamily, PoissonFamily
from gwi.onnx.graph import Graph
from gwi.onnx.quantiles import mixed_quantiles
from onnx_answers import session

pytestmark = pytest.mark.unchecked

LEVELS = (0.001, 0.025, 0.5, 0.975, 0.999)
SPREADS = {"known f": (-14, -8), "some f": (-6, -2), "wide f": (-2, 2)}
NOISES = {"little noise": (-9, -5), "some noise": (-4, -1), "much noise": (-1, 1)}


def quantiles(family, *columns):
    g = Graph()
    inputs = [g.input(name, ["rows", 1]) for name in ("mean", "variance", "phi")]
    found = mixed_quantiles(g, family, *(value for value, _ in inputs), LEVELS, 1.0)
    opened = session(g.model([declared for _, declared in inputs], {"y": (found, ["rows", len(LEVELS)])}, {}))
    given = {name: column[:, None] for name, column in zip(("mean", "variance", "phi"), columns, strict=True)}
    return opened.run(None, given)[0], MixedLaw(family, *columns)


# A Poisson law has no dispersion.
CASES = [(family, noise) for family in (GammaFamily(), NegativeBinomialFamily()) for noise in NOISES]
CASES.append((PoissonFamily(), "some noise"))


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(("family", "noise"), CASES, ids=[f"{family.name}, {noise}" for family, noise in CASES])
def test_quantiles_are_those_of_the_law(family, spread, noise):
    rng = np.random.default_rng(0)
    columns = rng.uniform(-2, 5, 6), np.exp(rng.uniform(*SPREADS[spread], 6)), np.exp(rng.uniform(*NOISES[noise], 6))
    found, law = quantiles(family, *columns)
    # Counts are the same counts.
    wanted = np.stack([law.quantile(level) for level in LEVELS], 1)
    np.testing.assert_allclose(found, wanted, rtol=0 if family.is_discrete else 1e-9)
