"""A model file is read with suspicion: kinds of files, numbers out of range, sizes beyond those of the file, names that act."""

import json
import os
import stat
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gwi
from gwi import GWIClassifier, GWIRegressor, cli
from gwi.core.kernels import default_kernel
from gwi.core.means import KernelMean
from gwi.core.measures import GaussianMeasure
from gwi.estimators.persistence import from_content
from gwi.exceptions import ModelFileError, UnsavableError
from gwi.parts import Covariance
from gwi.storage.container import from_bytes, to_bytes
from gwi.storage.header import parsed, read_document
from gwi.storage.kernels import Writer
from gwi.storage.means import encode_mean

pytestmark = pytest.mark.unchecked

STORED = Path(__file__).parents[1] / "golden" / "models"
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (30, 2))


@pytest.fixture(scope="module")
def regressor():
    return GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=5)).fit(X, X[:, 0] ** 2)


def content(name):
    return from_bytes((STORED / f"{name}.gwi").read_bytes())


def forged(name, place, value):
    """The stored model with one field of its document, or one tensor, replaced; the checksum is right."""
    document, tensors = content(name)
    if place[0] == "tensor":
        tensors[place[1]] = value(tensors[place[1]])
    else:
        node = document
        for key in place[:-1]:
            node = node[key]
        node[place[-1]] = value
    return to_bytes(document, tensors)


def refused(data, match):
    start = time.process_time()
    with pytest.raises(ModelFileError, match=match) as caught:
        from_content(data)
    assert time.process_time() - start < 5
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


NUMBERS = {
    "a jitter that is no number": ("regressor-svgp", ("model", "kernel", "jitter"), "nan", "jitter"),
    "a negative jitter": ("regressor-svgp", ("model", "kernel", "jitter"), -1.0, "jitter"),
    "a negative scale of the target": ("regressor-svgp", ("tensor", "y_scale"), torch.neg, "scale is not positive"),
    "a scale of zero": ("regressor-svgp", ("tensor", "x_scale"), torch.zeros_like, "scale is not positive"),
    "a negative tempering factor": ("regressor-svgp", ("tensor", "tempering_factor"), torch.neg, "tempering"),
    "scores in disorder": ("regressor-svgp", ("tensor", "scores"), lambda t: t.flip(1), "ascending"),
    "noise beyond all numbers": ("regressor-svgp", ("tensor", "noise.0.log_level"), lambda t: t + 1e4, "level of the noise"),
    "a negative scale of the noise": ("regressor-svgp", ("tensor", "noise.0.scale"), torch.neg, "scale of the noise"),
    "degrees of freedom as text": ("regressor-svgp", ("model", "degrees_of_freedom"), ["inf"], "degrees of freedom"),
    "a kernel from the end": ("regressor-svgp", ("model", "kernel", "prior"), -1, "place of a kernel"),
    "labels of 60 MB a cell": ("classifier-stack", ("model", "classes", "dtype"), "<U15000000", "labels"),
    "labels in disorder": ("classifier-stack", ("model", "classes", "values"), ["cedar", "birch", "ash"], "not in order"),
    "a negative scale of logits": ("classifier-stack", ("model", "logit_scale"), -1.0, "logits"),
    "a summary that speaks to the terminal": ("regressor-svgp", ("summary", "num_rows"), "\x1b]0;mine\x07", "summary"),
    "a likelihood that is none": ("regressor-svgp", ("parameters", "likelihood"), ["gaussian"], "parameters"),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_a_number_out_of_range_is_refused_before_it_is_used(case):
    name, place, value, match = NUMBERS[case]
    refused(forged(name, place, value), match)


def test_a_version_of_five_thousand_digits_is_refused():
    data = (STORED / "regressor-svgp.gwi").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header["__metadata__"]["version"] = "9" * 5000
    text = json.dumps(header).encode()
    refused(len(text).to_bytes(8, "little") + text, "upgrade gwi")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        "[NaN]",
        "[Infinity]",
        "[1e400]",
        "[" * 100 + "]" * 100,
        "[" * 10**6,
        "[[]," * 1000,
        "9" * 5000,
        "1" + "0" * 400,
    ],
)
def test_json_with_two_meanings_or_none_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parsed(text)


def with_points(num_points):
    """A small file that asks for k(Z, Z) of so many points."""
    document, tensors = content("regressor-svgp")
    z = torch.randn(num_points, 4, dtype=torch.float64)
    tensors |= {"mean.inducing_points": z, "whitened_factor": torch.ones(1, num_points, dtype=torch.float64)}
    document["model"]["mean"] = {"type": "constant", "values": "y_centre"}
    return to_bytes(document, tensors)


def test_twelve_thousand_inducing_points_from_a_small_file_are_refused():
    refused(with_points(12_000), "far larger than the file")
    assert from_content(with_points(200)).model_.posterior.kernel.inducing_points.shape[0] == 200


def test_thirty_thousand_layers_from_a_small_file_are_refused():
    document, tensors = content("regressor-svgp")
    tensors["w"] = torch.eye(2)
    document["model"]["mean"] = {"type": "network", "module": {"type": "layers", "layers": [["w", None]] * 30_000}}
    refused(to_bytes(document, tensors), "more than 10000 layers")


def test_one_tensor_named_thousands_of_times_is_refused():
    document, tensors = content("regressor-svgp")
    tensors["w"] = torch.zeros(400, 400)
    document["model"]["mean"] = {"type": "network", "module": {"type": "layers", "layers": [["w", None]] * 9000}}
    refused(to_bytes(document, tensors), "more often than there are")


def test_many_kernel_means_on_many_points_are_refused():
    document, tensors = content("regressor-svgp")
    tensors |= {"z": torch.randn(3000, 4, dtype=torch.float64), "v": torch.zeros(1, 3000, dtype=torch.float64)}
    mean = {"type": "kernel", "kernel": 0, "jitter": 0.0, "inducing_points": "z", "whitened_coefficients": "v"}
    document["model"]["mean"] = {"type": "sum", "means": [mean] * 50}
    refused(to_bytes(document, tensors), "far larger than the file")


def test_an_empty_tensor_with_a_huge_axis_is_refused():
    document, tensors = content("regressor-svgp")
    refused(to_bytes(document, tensors | {"w": torch.zeros(0, 10**9)}), "values that no model has")


def test_what_is_too_large_to_be_read_is_not_written():
    with pytest.raises(UnsavableError, match="text columns"):
        to_bytes({"text": "x" * 100_000_001}, {})
    points = torch.randn(4001, 1, dtype=torch.float64)
    mean = KernelMean(default_kernel(1), points, torch.zeros(1, 4001, dtype=torch.float64))
    with pytest.raises(UnsavableError, match="up to 4000"):
        encode_mean(mean, Writer(), "mean")


@pytest.fixture
def odd(tmp_path):
    """A folder, a pipe, a link to it, and a device of our own."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    found = {"folder": "a folder", "pipe": "a pipe", "link": "a pipe"}
    if os.geteuid() == 0:
        os.mknod(tmp_path / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        found["device"] = "a device"
    return tmp_path, found


def test_pipes_devices_and_folders_are_refused_before_they_are_opened(odd, capsys):
    folder, found = odd
    (folder / "rows.csv").write_text("a\n1\n")
    for name, kind in found.items():
        with pytest.raises(ModelFileError, match=f"is {kind}, not a model file"):
            gwi.load(folder / name)
        for command in (["info"], ["predict", str(folder / "rows.csv"), "-o", str(folder / "out.csv")]):
            assert cli.run([command[0], str(folder / name), *command[1:]]) == 2
            error = capsys.readouterr().err
            assert f"is {kind}, not a model file" in error
            assert error.count("\n") == 1


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(odd, regressor, capsys):
    folder, found = odd
    for name in set(found) - {"folder"}:
        with pytest.raises(OSError, match="is not an ordinary file"):
            regressor.save(folder / name, overwrite=True)
        assert cli.run(["demo", "-o", str(folder / name), "--force"]) == 2
        assert "is not an ordinary file" in capsys.readouterr().err
        assert not (folder / name).is_file()


def test_a_file_is_overwritten_only_when_asked(regressor, tmp_path):
    path = regressor.save(tmp_path / "model.gwi")
    before = path.read_bytes()
    other = GWIRegressor("svgp", random_state=1, covariance=Covariance(num_inducing=4)).fit(X, X[:, 1])
    with pytest.raises(FileExistsError, match="overwrite=True"):
        other.save(path)
    assert path.read_bytes() == before
    assert other.save(path, overwrite=True).read_bytes() != before


def test_info_reads_the_header_of_a_large_file_without_torch(tmp_path):
    data = (STORED / "table.gwi").read_bytes()
    document, tensors = from_bytes(data)
    path = tmp_path / "large.gwi"
    path.write_bytes(to_bytes(document, tensors | {"unused": torch.zeros(5 * 10**7)}))
    tracemalloc.start()
    assert read_document(path) == document
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
    code = (
        "import sys; from gwi.cli.commands import run; code = run(['info', sys.argv[1]]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert document["table"]["columns"]["target"] in done.stdout


def test_info_says_that_a_file_was_cut_off(tmp_path, capsys):
    path = tmp_path / "model.gwi"
    path.write_bytes((STORED / "table.gwi").read_bytes()[:-100])
    assert cli.run(["info", str(path)]) == 2
    assert "cut off" in capsys.readouterr().err


def test_names_in_a_file_are_shown_and_not_obeyed(tmp_path, capsys):
    document, tensors = content("table")
    hostile = "\x1b]0;mine\x07\x9b2J\u202e"
    columns = document["table"]["columns"]
    columns["target"] = columns["columns"][0]["name"] = hostile
    document["summary"]["note"] = hostile
    path = tmp_path / "model.gwi"
    path.write_bytes(to_bytes(document, tensors))
    assert cli.run(["info", str(path)]) == 0
    assert all(c.isprintable() or c == "\n" for c in capsys.readouterr().out)
    assert cli.run(["info", str(path), "--json"]) == 0
    out = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in out)
    assert json.loads(out)["target"] == hostile
    (tmp_path / "rows.csv").write_text("a\n1\n")
    assert cli.run(["predict", str(path), str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv")]) == 2
    assert all(c.isprintable() or c == "\n" for c in capsys.readouterr().err)


def test_a_column_of_very_many_values_is_read_in_time_proportional_to_their_number(tmp_path):
    document, tensors = content("table")
    values = [str(i) for i in range(50_000)]
    column = {
        "name": "w",
        "kind": "categories",
        "kept": list(range(50_000)),
        "fill": [0.0] * 50_000,
        "values": values,
        "shares": [],
    }
    document["table"]["columns"]["columns"].append(column)
    path = tmp_path / "model.gwi"
    path.write_bytes(to_bytes(document, tensors))
    start = time.process_time()
    assert cli.run(["info", str(path), "--json"]) == 0
    assert time.process_time() - start < 5


def test_labels_of_every_kind_survive(tmp_path):
    for i, labels in enumerate((["a", "bb"], [1, 5], [0.0, 1.0], [False, True])):
        y = np.array(labels)[(X[:, 0] > 0).astype(int)]
        model = GWIClassifier("linear", random_state=0).fit(X, y)
        loaded = gwi.load(model.save(tmp_path / f"{i}.gwi"))
        assert loaded.classes_.dtype == model.classes_.dtype
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_predictions_that_overflow_are_refused_and_not_returned(regressor):
    far = from_content(to_bytes(*content("regressor-svgp")))
    weights = far.model_.posterior.mean.whitened_coefficients
    with torch.no_grad():
        weights.copy_(torch.full_like(weights, 1e308))
    broken = replace(far.model_, posterior=GaussianMeasure(far.posterior_.mean, far.posterior_.kernel))
    with pytest.raises(ValueError, match=r"not finite at \d of 2 rows, the first is row \d: "):
        broken.law(np.zeros((2, 4)))
