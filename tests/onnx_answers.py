"""What ONNX Runtime says of a fitted model's file, and what the model says itself."""

import numpy as np
import pytest

from gwi.onnx.export import LEVELS, content

runtime = pytest.importorskip("onnxruntime")


def session(data):
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def exported(model, X, levels=LEVELS):
    """Outputs by name."""
    opened = session(content(model, levels))
    return dict(zip((output.name for output in opened.get_outputs()), opened.run(None, {"X": X}), strict=True))


def said(model, X, levels=LEVELS):
    """The same from the model."""
    if hasattr(model, "classes_"):
        decomposed = model.decompose(X)
        return {
            "probabilities": model.predict_proba(X),
            "epistemic": decomposed.mutual_information,
            "aleatoric": decomposed.expected,
            "outlier_score": model.ood_score(X),
            "outlier_score_with_energy": model.ood_score(X, energy=True),
        }
    inner = model.model_
    rows = model._rows(X)
    parts = inner.parts(rows)
    one = len(inner.noises) == 1
    values = dict(zip(("mean", "std"), inner.law_of(parts), strict=True))
    values |= dict(zip(("epistemic", "aleatoric"), inner.variances_of(parts), strict=True))
    found = {name: value[0] if one else value.T for name, value in values.items()}
    found["outlier_score"] = inner.prior_share(rows, parts)
    if levels:
        ends = inner.quantiles_of(parts, levels)
        found["quantiles"] = ends[0] if one else ends.transpose(1, 0, 2)
    if inner.num_levels:
        found["probabilities"] = inner.laws_of(parts)[0].probabilities.T
    return found


def differences(model, X, y=None, levels=LEVELS, seen=None):
    """The largest differences by name, in units of the target, or of the values where these are larger."""
    there, here = exported(model, X if seen is None else seen, levels), said(model, X, levels)
    assert set(there) == set(here)
    spread = 1.0 if y is None else float(np.std(y))
    units = {"epistemic": spread**2, "aleatoric": spread**2, "mean": spread, "std": spread, "quantiles": spread}
    for name, values in here.items():
        assert there[name].shape == values.shape, name
        assert there[name].dtype == np.float64
    return {
        name: float((np.abs(there[name] - v) / np.maximum(np.abs(v), units.get(name, 1.0))).max()) for name, v in here.items()
    }


def rows_near_and_far(X, seed=0, ranges=30):
    """Training rows, rows between them, and rows up to so many ranges away."""
    rng = np.random.default_rng(seed)
    low, high = X.min(0), X.max(0)
    near = rng.uniform(low, high, (40, X.shape[1]))
    far = rng.uniform(low - ranges * (high - low), high + ranges * (high - low), (20, X.shape[1]))
    return np.concatenate([X[:40], near, far])
