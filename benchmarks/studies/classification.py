"""Classification of tables: ours beside scikit-learn's GP classifier, calibrated boosting and a network, on its bundled sets.

    python -m benchmarks.studies.classification [--splits 3]

adds to results/classification.csv, one row a fit, what is not there yet. Splits are stratified, a fifth of the rows for the test;
nothing is chosen by test rows. Seconds are the processor's, one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.tables.common.records import append, read
from gwi import GWIClassifier
from gwi.evaluation.classification import score_classes

SETS = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
NAME = "classification"


def gp_classifier(seed: int) -> Any:
    """Laplace, one class against the rest; one length-scale and an amplitude by its marginal likelihood, on standardised rows."""
    kernel = ConstantKernel(1.0) * RBF(5.0)
    return make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=seed))


def boosting(seed: int) -> Any:
    """Early stopping, then sigmoid calibration by five folds; isotonic needs more rows than there are."""
    return CalibratedClassifierCV(HistGradientBoostingClassifier(random_state=seed, early_stopping=True), cv=5)


def network(seed: int) -> Any:
    """Two layers of a hundred units with early stopping, on standardised rows."""
    return make_pipeline(
        StandardScaler(), MLPClassifier((100, 100), early_stopping=True, max_iter=1000, n_iter_no_change=20, random_state=seed)
    )


METHODS: dict[str, Callable[[int], ClassifierMixin]] = {
    "gwi": lambda seed: GWIClassifier(random_state=seed),
    "gwi, svgp": lambda seed: GWIClassifier("svgp", random_state=seed),
    "GP classifier": gp_classifier,
    "boosting, calibrated": boosting,
    "network": network,
}


def record(name: str, split: int, method: str) -> dict[str, Any]:
    """One fit and its scores."""
    x, y = SETS[name](return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=split, stratify=y)
    model: Any = METHODS[method](split)
    start = time.process_time()
    model.fit(x_train, y_train)
    fitted = time.process_time()
    probabilities = model.predict_proba(x_test)
    done = time.process_time()
    scores = score_classes(np.clip(probabilities, 1e-15, 1.0), y_test)
    return {
        "set": name,
        "split": split,
        "method": method,
        "accuracy": scores.accuracy,
        "nll": scores.nll,
        "brier": scores.brier,
        "ece": scores.ece,
        "fit_seconds": fitted - start,
        "predict_seconds": done - fitted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    num_splits = parser.parse_args().splits
    torch.set_num_threads(1)
    known = {(row["set"], int(row["split"]), row["method"]) for row in read(NAME)}
    for split in range(num_splits):
        for name in SETS:
            for method in METHODS:
                if (name, split, method) not in known:
                    found = record(name, split, method)
                    append(NAME, [found])
                    print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items()), flush=True)


if __name__ == "__main__":
    main()
