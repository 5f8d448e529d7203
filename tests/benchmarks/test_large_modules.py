"""Large torch modules: the study's machinery on small ones, and the whole size in the slow suite."""

import numpy as np
import pytest
import torch
from benchmarks.studies import large_modules

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize("name", ["text", "vision"])
@pytest.mark.parametrize("method", list(large_modules.METHODS))
def test_each_method_runs_on_each_kind_of_module(name, method):
    found = large_modules.measure(name, method, small=True)
    assert found["fit_cpu_seconds"] > 0
    assert found["peak_mb"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("text", 6.5e7), ("vision", 8.5e7)])
def test_modules_of_usual_size(name, least):
    module, rows, labels = large_modules.problem(name)
    assert sum(parameter.numel() for parameter in module.parameters()) > least
    before = {key: value.clone() for key, value in module.state_dict().items()}
    columns = large_modules.gwi(module, rows, labels)()
    total = sum(values for name, values in columns.items() if name.startswith("probability_"))
    np.testing.assert_allclose(total, 1.0, atol=1e-9)
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
