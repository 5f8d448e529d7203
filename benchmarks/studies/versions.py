"""Model files between versions of scikit-learn and LightGBM: do they load, and predict the same?

    python -m benchmarks.studies.versions save FOLDER
    python -m benchmarks.studies.versions check FOLDER

The first writes a file of each kind of model with the versions that are installed, and what it predicts; the second, with other
versions, reads them and adds to results/versions.csv the largest relative difference.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import sklearn
import torch
from sklearn import ensemble
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import gwi
from benchmarks.tables.common.records import append
from gwi import GWIClassifier, GWIRegressor
from gwi._typing import Array

NUM_ROWS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["save", "check"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    (save if arguments.what == "save" else check)(arguments.folder)


def versions() -> str:
    """Those that are installed."""
    return f"scikit-learn {sklearn.__version__}, LightGBM {lightgbm.__version__}"


def homes() -> tuple[pd.DataFrame, Array]:
    """Text, numbers, missing cells, and a target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "town": rng.choice(["Ulm", "Bonn", "Jena"], NUM_ROWS),
            "rooms": rng.integers(1, 7, NUM_ROWS),
            "size": rng.normal(80.0, 20.0, NUM_ROWS),
        }
    )
    y = 2.0 * frame["size"] + 5.0 * frame["rooms"] + 20.0 * (frame["town"] == "Ulm") + rng.normal(0.0, 3.0, NUM_ROWS)
    frame.loc[::17, "size"] = np.nan
    return frame, y.to_numpy()


def fits() -> dict[str, tuple[Any, Any]]:
    """Fitted models, and the rows that they predict."""
    frame, y = homes()
    x = frame[["rooms", "size"]].fillna(80.0).to_numpy()
    labels = np.where(y > 180.0, "dear", "cheap")
    rest = (make_pipeline(SimpleImputer(), StandardScaler()), ["rooms", "size"])
    columns = make_column_transformer((OneHotEncoder(), ["town"]), rest)
    places = make_column_transformer((OrdinalEncoder(), ["town"]), ("passthrough", ["rooms", "size"]))
    booster = lightgbm.LGBMRegressor(n_estimators=50, verbose=-1, n_jobs=1)
    numbers = {
        "default": "auto",
        "decision tree": DecisionTreeRegressor(max_depth=5),
        "random forest": ensemble.RandomForestRegressor(20, random_state=0),
        "extra trees": ensemble.ExtraTreesRegressor(20, random_state=0),
        "gradient boosting": ensemble.GradientBoostingRegressor(n_estimators=30),
        "histogram boosting": ensemble.HistGradientBoostingRegressor(max_iter=30),
        "LightGBM": booster,
    }
    frames = {
        "pipeline of ridge": make_pipeline(columns, Ridge()),
        "pipeline of boosting": make_pipeline(places, ensemble.HistGradientBoostingRegressor(max_iter=30)),
        "pipeline of LightGBM": make_pipeline(columns, booster),
    }
    found: dict[str, tuple[Any, Any]] = {
        name: (GWIRegressor(mean, random_state=0).fit(x, y), x) for name, mean in numbers.items()
    }
    found |= {name: (GWIRegressor(mean, random_state=0).fit(frame, y), frame) for name, mean in frames.items()}
    classifier = ensemble.HistGradientBoostingClassifier(max_iter=30)
    return found | {"classes by boosting": (GWIClassifier(classifier, random_state=0).fit(x, labels), x)}


def predicted(model: Any, rows: Any) -> Array:
    """What a model says of rows."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(rows))
    return np.stack(model.predict(rows, return_std=True))


def save(folder: Path) -> None:
    """Write files and predictions."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "versions.json").write_text(json.dumps(versions()))
    for name, (model, rows) in fits().items():
        model.save(folder / f"{name}.gwi", overwrite=True)
        np.save(folder / f"{name}.npy", predicted(model, rows))


def check(folder: Path) -> None:
    """Read files and compare."""
    frame, _ = homes()
    x = frame[["rooms", "size"]].fillna(80.0).to_numpy()
    written, records = json.loads((folder / "versions.json").read_text()), []
    for path in sorted(folder.glob("*.gwi")):
        model, wanted = gwi.load(path), np.load(path.with_suffix(".npy"))
        found = predicted(model, frame if path.stem.startswith("pipeline") else x)
        worst = float(np.abs(found - wanted).max() / np.abs(wanted).max())
        records.append({"model": path.stem, "written_by": written, "read_by": versions(), "relative_difference": worst})
        print(path.stem, worst, flush=True)
    append("versions", records)


if __name__ == "__main__":
    main()
