"""A model at the rows of a table with known targets: what every part of the report reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.estimators.tables import Estimator
from gwi.evaluation.checks import Finding
from gwi.evaluation.judged import Judged
from gwi.tables.encoder import Encoder
from gwi.tables.source import Table

NUM_UNCERTAIN, NUM_SURPRISING = 10, 5


@dataclass(frozen=True)
class Checked:
    """What is wrong with the predictions, and which of them to look at.

    Attributes:
        findings: what is wrong, the worst first.
        num_checks: how many things were looked for.
        doubt: of each row, what the most uncertain ones have most of.
        surprise: of each row, how improbable its target was.
    """

    findings: tuple[Finding, ...]
    num_checks: int
    doubt: Float[Array, " N"]
    surprise: Float[Array, " N"]

    @property
    def most_uncertain(self) -> NDArray[np.int64]:
        """Rows with the widest prediction, the widest first."""
        return np.argsort(-self.doubt, kind="stable")[:NUM_UNCERTAIN]

    @property
    def most_surprising(self) -> NDArray[np.int64]:
        """Rows whose target was the least expected."""
        return np.argsort(-self.surprise, kind="stable")[:NUM_SURPRISING]


@dataclass(frozen=True)
class Examined:
    """A model at the rows of a table that have a target.

    Attributes:
        estimator: the model.
        encoder: of its columns.
        table: the rows.
        judged: predictions and targets.
        ood: the outlier score of each row.
        scores: of the predictions.
        num_rows: of the whole file; more than are in the table where it is a sample.
        num_without_target: of the rows looked at, those left out because they have none.
        checked: what is wrong.
    """

    estimator: Estimator
    encoder: Encoder
    table: Table
    judged: Judged
    ood: Float[Array, " N"]
    scores: dict[str, float]
    num_rows: int
    num_without_target: int
    checked: Checked
