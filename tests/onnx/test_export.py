"""The file: it runs without torch, says what it is, and what cannot be in it is named in one sentence."""

import json
import subprocess
import sys
from functools import cache

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import gwi
from gwi import GWIClassifier, GWIRegressor, cli
from gwi.exceptions import UnexportableError, UserError
from onnx_answers import differences, exported, rows_near_and_far, runtime, said

pytestmark = [pytest.mark.unchecked, pytest.mark.filterwarnings("ignore::gwi.exceptions.GWIWarning")]


@cache
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (80, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=80)


@cache
def fitted():
    return GWIRegressor("svgp", random_state=0).fit(*table())


ALONE = """
import sys
sys.modules["torch"] = sys.modules["gwi"] = sys.modules["sklearn"] = None
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
names = [output.name for output in session.get_outputs()]
found = dict(zip(names, session.run(None, {"X": np.load(sys.argv[2])})))
np.savez(sys.argv[3], **found)
"""


def test_a_process_without_torch_says_the_same(tmp_path):
    X, _ = table()
    fitted().export_onnx(tmp_path / "model.onnx")
    np.save(tmp_path / "rows.npy", X)
    arguments = [str(tmp_path / name) for name in ("model.onnx", "rows.npy", "found.npz")]
    subprocess.run([sys.executable, "-c", ALONE, *arguments], check=True, timeout=60)
    found = np.load(tmp_path / "found.npz")
    for name, values in said(fitted(), X).items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-10)


def test_a_model_from_a_file_is_exported_by_the_command(tmp_path, capsys):
    X, _ = table()
    fitted().save(tmp_path / "model.gwi")
    arguments = ["export", f"{tmp_path}/model.gwi", f"{tmp_path}/model.onnx", "--levels", "0.1, 0.9"]
    assert cli.run(arguments) == 0
    assert "model.onnx" in capsys.readouterr().err
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"X": X}), strict=True))
    np.testing.assert_allclose(found["quantiles"], fitted().predict_quantiles(X, (0.1, 0.9)), rtol=1e-9)
    assert cli.run(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert cli.run([*arguments[:3], "--force", "--levels", "2"]) == 2
    assert "strictly between 0 and 1" in capsys.readouterr().err


def test_the_command_names_what_cannot_be_exported(tmp_path, capsys):
    X, y = table()
    pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "high", "low"), "y": y}).to_csv(tmp_path / "t.csv", index=False)
    common = ["--mean", "svgp", "--holdout", "0", "-q"]
    assert cli.run(["fit", f"{tmp_path}/t.csv", "-t", "y", "-o", f"{tmp_path}/m.gwi", *common]) == 0
    assert cli.run(["export", f"{tmp_path}/m.gwi", f"{tmp_path}/m.onnx"]) == 2
    assert "'b' of text or dates cannot be exported" in capsys.readouterr().err
    assert not (tmp_path / "m.onnx").exists()


def test_the_file_says_what_it_is(tmp_path):
    X, y = table()
    frame = pd.DataFrame(X, columns=["width", "height"])
    model = GWIRegressor("svgp", random_state=0).fit(frame, y)
    session = runtime.InferenceSession(str(model.export_onnx(tmp_path / "m.onnx", levels=[0.5])))
    notes = session.get_modelmeta().custom_metadata_map
    assert json.loads(notes["columns"]) == ["width", "height"]
    assert (json.loads(notes["levels"]), notes["task"], notes["gwi"]) == ([0.5], "regression", gwi.__version__)
    classes = GWIClassifier("svgp", random_state=0).fit(X, np.where(y > 0, "up", "down"))
    session = runtime.InferenceSession(str(classes.export_onnx(tmp_path / "c.onnx")))
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == ["down", "up"]


def test_a_file_that_is_there_is_not_replaced_without_a_word(tmp_path):
    path = fitted().export_onnx(tmp_path / "m.onnx")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        fitted().export_onnx(path)
    assert fitted().export_onnx(path, overwrite=True) == path


def test_missing_cells_of_a_frame_are_filled_in_the_graph():
    rng = np.random.default_rng(0)
    X, y = table()
    # Missing in training in one column, never in the other, and a third that never changes.
    frame = pd.DataFrame({"a": np.where(rng.uniform(size=80) < 0.2, np.nan, X[:, 0]), "b": X[:, 1], "same": 1.0})
    model = GWIRegressor("svgp", random_state=0).fit(frame, y)
    cells = pd.DataFrame({"a": [0.3, np.nan, 0.3, np.nan], "b": [0.1, 0.1, np.nan, np.nan], "same": 1.0})
    used = cells[list(model.encoder_.encoder_.inputs)].to_numpy()
    assert max(differences(model, cells, y, seen=used).values()) < 1e-9
    assert exported(model, used)["outlier_score"][2] > 0.5


def test_levels_in_order_come_with_their_probabilities():
    X, y = table()
    levels = pd.Series(
        pd.Categorical(np.array(["low", "mid", "high"])[np.digitize(y, [-0.7, 0.7])], ["low", "mid", "high"], True)
    )
    model = GWIRegressor("svgp", random_state=0).fit(X, levels)
    found = exported(model, rows_near_and_far(X))["probabilities"]
    expected = model.predict_columns(rows_near_and_far(X))
    np.testing.assert_allclose(found, np.column_stack([expected[f"probability_{n}"] for n in ("low", "mid", "high")]), atol=1e-10)


class OfLength(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x).reshape(len(x), 1)


def refused():
    X, y = table()
    other = np.random.default_rng(1).uniform(-2, 2, (40, 2))
    held = other, np.sin(2 * other[:, 0])
    yield "update", lambda: GWIRegressor("svgp", random_state=0).fit(X, y).update(X[:3] + 1, y[:3])
    yield "of type sin|of type <lambda>", lambda: GWIRegressor(lambda rows: rows[:, 0], random_state=0).fit(X, y, validation=held)
    yield (
        "PeriodicKernel",
        lambda: GWIRegressor(
            "svgp", kernel=gpytorch.kernels.ScaleKernel(gpytorch.kernels.PeriodicKernel()).double(), random_state=0
        ).fit(X, y),
    )
    yield (
        "Quantiles under the likelihood beta",
        lambda: GWIRegressor("svgp", likelihood="beta", random_state=0).fit(X[:30], 1 / (1 + np.exp(-y[:30]))),
    )
    torch.manual_seed(0)
    yield "another number of rows", lambda: GWIRegressor(OfLength(), random_state=0).fit(X, y, validation=held)


@pytest.mark.parametrize(("name", "make"), list(refused()), ids=lambda value: value if isinstance(value, str) else "")
def test_what_has_no_form_in_onnx_is_named_and_leaves_no_file(name, make, tmp_path):
    with pytest.raises(UnexportableError, match=name):
        make().export_onnx(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_without_the_library_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    model = fitted()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"gwi\[onnx\]"):
        model.export_onnx(tmp_path / "m.onnx")
