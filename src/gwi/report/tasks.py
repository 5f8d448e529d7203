"""What differs between regression and classification in a report: one module a task."""

from __future__ import annotations

from typing import Any, Protocol

from jaxtyping import Float

from gwi._typing import Array
from gwi.estimators.table_model import TableModel
from gwi.estimators.table_targets import TaskName
from gwi.evaluation.judged import Judged
from gwi.report import classification, regression
from gwi.report.examined import Checked, Examined
from gwi.report.rendering import Cell


class Task(Protocol):
    """A module with these names; its template is called like the task.

    Attributes:
        CELLS: names of what a row says of its prediction, and which are numbers.
    """

    CELLS: dict[str, bool]

    def check(self, tool: TableModel, X: Float[Array, "N D"], judged: Judged) -> Checked:
        """What is wrong with the predictions."""
        ...

    def details(self, found: Examined) -> dict[str, Any]:
        """Numbers and pictures for the template."""
        ...

    def cells(self, found: Examined, row: int) -> list[str | Cell]:
        """Of one row, under the names of `CELLS`."""
        ...


TASKS: dict[TaskName, Task] = {"regression": regression, "classification": classification}
