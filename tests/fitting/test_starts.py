"""Hyper-parameters from several starts: the evidence has several tops where few of many columns count."""

import numpy as np
import torch

from gwi.core.kernels import with_lengthscales_times
from gwi.fitting.hyperparameters import SAME_TOP, STARTS, prior_for, row_kernel


def few_of_many(num_rows=100, num_columns=20):
    """y of two columns, in a way that no line sees."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.7, 1.7, size=(num_rows, num_columns))
    noise = 0.02 * rng.normal(size=num_rows)
    return x, np.sin(4 * x[:, 0]) * x[:, 1] + noise


def test_the_highest_of_several_tops_of_the_evidence_is_taken():
    x, y = few_of_many()
    rows, targets = torch.from_numpy(x), torch.from_numpy((y - y.mean()) / y.std())[None]
    kernel, _ = row_kernel("rbf", x.shape[1])
    given = (kernel, rows, targets, torch.ones(len(x), dtype=torch.float64), rows)
    best = prior_for(*given, torch.Generator().manual_seed(0), starts=STARTS)
    each = [prior_for(*given, torch.Generator().manual_seed(0), starts=[start]).log_evidence for start in STARTS]
    assert best.log_evidence >= max(each) - SAME_TOP
    # Worth the trouble: tops differ by far.
    assert max(each) - min(each) > 10


def test_lengthscales_are_multiplied_in_a_copy():
    kernel, _ = row_kernel("matern52", 3)
    before = kernel.base_kernel.lengthscale.detach().clone()
    after = with_lengthscales_times(kernel, 0.5).base_kernel.lengthscale
    torch.testing.assert_close(after.detach(), before / 2)
    torch.testing.assert_close(kernel.base_kernel.lengthscale.detach(), before)
