"""The encoder of tables as a scikit-learn transformer: data frames in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from gwi._typing import Array
from gwi.exceptions import UserError
from gwi.tables.encoder import Encoder
from gwi.tables.frames import array_table, frame_table, is_frame
from gwi.tables.source import Table
from gwi.tables.unlike import Unlike


@dataclass(frozen=True)
class Encoded:
    """Rows of which an encoder has made numbers already."""

    numbers: Float[Array, "N F"]


class TableEncoder(TransformerMixin, BaseEstimator):
    """From a data frame to numbers, learned from one frame and the same for every later one; the target plays no part.

    | column | becomes |
    | --- | --- |
    | numbers | themselves |
    | text, categories or booleans with up to 20 values | one column for each value, 1 or 0 |
    | text with more values | up to 20 numbers, alike for texts that share runs of letters |
    | dates | year, month, day, weekday, hour, seconds since 1970 |
    | durations | seconds |
    | missing cells | the median, and a column that says so if there were some in training |

    The last number of each row is 0 in training. It is large in rows with a text, or a missing cell, that training rows did not
    have, so that a kernel sees how far away they are. Columns with one value, without values, of row numbers, and text that
    differs in most rows are left out: `dropped_` says why.

    Attributes:
        encoder_: what was learned of each column.
        dropped_: columns that are left out, each with the reason.
        n_features_in_: columns of the training frame.
        feature_names_in_: their names.

    Examples:
        >>> import pandas as pd
        >>> from gwi.tables import TableEncoder
        >>> homes = pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm"], "rooms": [3, None, 5]})
        >>> TableEncoder().set_output(transform="pandas").fit_transform(homes).iloc[:, :4]
           town = Bonn  town = Ulm  rooms  rooms is missing
        0          0.0         1.0    3.0               0.0
        1          1.0         0.0    4.0               1.0
        2          0.0         1.0    5.0               0.0
    """

    encoder_: Encoder
    dropped_: tuple[tuple[str, str], ...]

    @staticmethod
    def of(encoder: Encoder, names: Sequence[str]) -> TableEncoder:
        """The transformer of what was learned from a table with columns of these names, in this order."""
        found = TableEncoder()
        found.encoder_, found.dropped_ = encoder, encoder.dropped
        found.n_features_in_, found.feature_names_in_ = len(names), np.array(names, dtype=object)
        return found

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn from training rows what each column is.

        Args:
            X: a data frame of pandas, polars or Arrow, or an array.
            y: ignored.

        Raises:
            UserError: naming a column whose values are of no kind that can be used.
        """
        self.encoder_ = Encoder.fit(self._table(X, reset=True))
        self.dropped_ = self.encoder_.dropped
        return self

    def transform(self, X: Any) -> Float[Array, "N F"]:
        """The numbers of each row; columns are found by name, in any order.

        Raises:
            UserError: when columns are missing, or naming a cell that is not what its column held in training.
        """
        check_is_fitted(self)
        return self.encoder_.transform(self._table(X, reset=False))

    def unlike(self, X: Any) -> Unlike:
        """What rows have that no training row had: texts, and missing cells, counted by column."""
        check_is_fitted(self)
        found = Unlike()
        self.encoder_.transform(self._table(X, reset=False), found)
        return found

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The names of the numbers."""
        check_is_fitted(self)
        return np.array(self.encoder_.features, dtype=object)

    def to_json(self) -> dict[str, Any]:
        """What was learned as plain dictionaries, lists, numbers and text; `from_json` makes an encoder of it."""
        check_is_fitted(self)
        return self.encoder_.to_json() | {"names": list(self._names)}

    @staticmethod
    def from_json(document: Any) -> TableEncoder:
        """The encoder that `to_json` described.

        Raises:
            ValueError: when it is something else.
        """
        encoder = Encoder.from_json(document)
        names = document.get("names", [*encoder.inputs, *(name for name, _ in encoder.dropped)])
        known = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not known or len(set(names)) < len(names) or not set(encoder.inputs) <= set(names):
            raise ValueError("The description of the columns names others than it describes.")
        return TableEncoder.of(encoder, names)

    @property
    def _names(self) -> Sequence[str]:
        """Of the columns of the training rows; those of an array are called by their number."""
        return list(getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)]))

    def _table(self, X: Any, *, reset: bool) -> Table:
        """Columns as they came, by the names that scikit-learn has for them."""
        if isinstance(X, Table):
            return X
        if is_frame(X):
            table = frame_table(X)
            if reset:
                if not len(table) or not table.names:
                    raise UserError(f"X has {len(table)} rows and {len(table.names)} columns; there is nothing to learn from.")
                self.n_features_in_, self.feature_names_in_ = len(table.names), np.array(table.names, dtype=object)
            return table
        rows = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        rows = rows if rows.dtype.kind in "fiub" else rows.astype(object)
        return array_table(rows, self._names)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags
