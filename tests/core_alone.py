"""What the core does without extras: fits, predicts, saves and loads arrays. Run with the packages that must not be loaded."""

import sys
import tempfile
from pathlib import Path

import numpy as np

from gwi import *  # noqa: F403
from gwi import GWIClassifier, GWIRegressor, diagnose, load

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
y = X[:, 0] + 0.1 * rng.normal(size=60)
labels = np.where(y > 0, "a", "b")
unseen = rng.normal(size=(40, 2))

with tempfile.TemporaryDirectory() as folder:
    model = GWIRegressor(["svgp", "linear"], random_state=0).fit(X, y)
    model.save(Path(folder) / "model.gwi")
    mean, std = load(Path(folder) / "model.gwi").predict(unseen, return_std=True)
    classifier = GWIClassifier("linear", random_state=0).fit(X, labels)
    classifier.save(Path(folder) / "classes.gwi")
    probabilities = load(Path(folder) / "classes.gwi").predict_proba(unseen)
np.testing.assert_array_equal(mean, model.predict(unseen))
np.testing.assert_array_equal(std, model.predict(unseen, return_std=True)[1])
np.testing.assert_array_equal(probabilities, classifier.predict_proba(unseen))
# It has learned something.
assert np.abs(mean - unseen[:, 0]).mean() < 0.2
assert ((probabilities[:, 0] > 0.5) == (unseen[:, 0] > 0)).mean() > 0.8
model.explain(unseen[:2])
diagnose(model, unseen, unseen[:, 0])
assert (model.predict_dist(unseen).crps(unseen[:, 0]) > 0).all()

loaded = {name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:])
assert not loaded, loaded
print("done")
