"""What a user's targets become: numbers in columns, or places among classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch.utils.data import DataLoader

from gwi._typing import Array
from gwi._validation import as_array
from gwi.exceptions import ModelFileError
from gwi.streaming.batches import indices, labels_and_shape


class NumberTargets:
    """One number or several for each row; `one` says whether the user gave one axis."""

    are_labels = False
    checks = {"multi_output": True, "y_numeric": True}  # noqa: RUF012
    one = True

    def learn(self, y: Any) -> Array:
        """The targets, one column each, noting how they came."""
        self.one = y.ndim == 1
        return self.encode(y)

    def encode(self, y: Any) -> Array:
        """The targets, one column each."""
        values = check_array(as_array(y), dtype=np.float64, ensure_2d=False, input_name="y")
        return values.reshape(len(values), -1)

    def learn_source(self, values: NDArray[Any] | None, asked: Any, num_outputs: int) -> None:
        """Note how the columns of a source were asked for."""
        self.one = num_outputs == 1 and not isinstance(asked, list | tuple)

    def from_source(self, values: NDArray[Any], asked: Any) -> NDArray[Any]:
        """Targets of a source in memory as a user would pass them."""
        return values[:, 0] if values.shape[1] == 1 and not isinstance(asked, list | tuple) else values

    def restore(self, model: Any, one: bool, name: str) -> None:
        """What a file says of the targets."""
        if one and len(model.noises) != 1:
            raise ModelFileError(f"{name} says one target and has {len(model.noises)}; save the model again.")
        self.one = one

    def look_through(self, loader: DataLoader[Any]) -> tuple[int, ...]:
        """Note how the targets of a loader come; the shape of its rows."""
        for rows, targets in loader:
            self.learn(as_array(targets))
            return tuple(rows.shape[1:])
        raise ValueError("The loader is empty; a fit needs rows.")


class LabelTargets:
    """One label for each row; `classes` are the labels in order."""

    are_labels = True
    checks: dict[str, Any] = {}  # noqa: RUF012
    classes: NDArray[Any]

    def learn(self, y: Any) -> NDArray[np.int64]:
        """The place of each label, noting the classes."""
        y = column_or_1d(as_array(y), warn=True)
        check_classification_targets(y)
        self.classes, places = np.unique(y, return_inverse=True)
        if len(self.classes) < 2:
            raise ValueError(f"A classifier needs rows of at least two classes; got one class, {self.classes[0]!r}.")
        return places.astype(np.int64)

    def encode(self, y: Any) -> NDArray[np.int64]:
        """The place of each label among the classes."""
        return indices(y, self.classes)

    def learn_source(self, values: NDArray[Any] | None, asked: Any, num_outputs: int) -> None:
        """Note the classes of a source."""
        assert values is not None
        self.classes = values

    def from_source(self, values: NDArray[Any], asked: Any) -> NDArray[Any]:
        """Labels of a source in memory as a user would pass them."""
        return np.array(values.tolist())

    def restore(self, model: Any, one: bool, name: str) -> None:
        """What a file says of the targets."""
        self.classes = model.classes

    def look_through(self, loader: DataLoader[Any]) -> tuple[int, ...]:
        """Note the classes of a loader; the shape of its rows."""
        labels, shape = labels_and_shape(loader)
        self.learn(labels)
        return shape
