"""What a reader sees of a model file, and what of it needs no torch: summary, labels, columns and scores."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi.exceptions import ModelFileError, UnsavableError, UserError
from gwi.models.summary import MemberSummary, Summary
from gwi.storage.header import number, printable, read_document, refuse_if, user_errors, whole
from gwi.tables.addresses import AnyPath
from gwi.tables.encoder import Encoder
from gwi.tables.plain import numbered

# Columns of a model that names none: more would be read into no memory.
MOST_COLUMNS = 10**7
# Kinds of labels that JSON can hold, and the dtypes of their arrays; of text with its width.
_LABELS = ("int", "float", "bool", "str")
_DTYPES = re.compile(r"u?int(?:8|16|32|64)|float(?:16|32|64)|bool|object|[<>=|]U(\d{1,7})")
# Of a summary: counts, texts, numbers, lists that become tuples, and those that may hold infinity, which JSON has not.
_COUNTS, _NUMBERS = ("num_rows", "num_inducing", "num_classes"), ("logit_scale",)
_TEXTS = ("score_name", "covariance", "note", "likelihood")
_LISTS = ("divergence_weight", "tempering", "disagreement_weight", "held_out_nll", "noise", "degrees_of_freedom", "target_std")
_INFINITE = ("noise", "degrees_of_freedom")


@dataclass(frozen=True)
class Description:
    """What the header of a file says that the command wrote.

    Attributes:
        task: what is predicted.
        encoder: from a table to numbers.
        scores: on rows held out, from a fit without them.
        summary: of the fit.
        labels: of classes; none for numbers.
        levels: names of levels in order; none for others.
    """

    task: str
    encoder: Encoder
    scores: dict[str, float]
    summary: Summary
    labels: list[Any]
    levels: list[Any] = field(default_factory=list)

    @staticmethod
    def of(document: Mapping[str, Any], name: str) -> Description:
        """What this document says.

        Raises:
            UserError: when it is of a model whose rows no table has.
            ModelFileError: when the summary is none.
            LookupError, TypeError, ValueError: when parts are missing or of another kind.
        """
        encoder, scores = table_part(document, name)
        model = document["model"]
        labels = decode_labels(model["classes"]).tolist() if "classes" in model else []
        task = "classification" if "classes" in model else "regression"
        levels = decode_labels(document["levels"], in_order=False).tolist() if "levels" in document else []
        return Description(task, encoder, scores, decode_summary(document["summary"]), labels, levels)


def description_of(path: AnyPath) -> dict[str, Any]:
    """What the header of a model file says, for `gwi info` and as JSON."""
    with user_errors(path):
        known = Description.of(read_document(path), str(path))
    encoder = known.encoder
    description = {
        "file": str(path),
        "task": known.task,
        "target": encoder.target,
        "rows": known.summary.num_rows,
        "columns": {column.name: column.kind for column in encoder.columns},
        "inputs": list(encoder.features),
        "not_used": dict(encoder.dropped),
        "held_out_scores": known.scores,
        "summary": str(known.summary),
        "fit": known.summary.to_dict(),
    }
    if not known.labels:
        description["likelihood"] = known.summary.likelihood
    for name, value in {"event": encoder.event, "levels": known.levels, "classes": known.labels}.items():
        description |= {name: value} if value else {}
    return description


def table_part(document: Mapping[str, Any], name: str) -> tuple[Encoder, dict[str, float]]:
    """How a table becomes the rows of the model, and its scores on rows held out.

    Raises:
        UserError: when it is of a model whose rows no table has.
        LookupError, TypeError, ValueError: when it is something else.
    """
    part = document.get("table")
    if part is None:
        return Encoder.plain(_plain_names(document, name)), {}
    return Encoder.from_json(part["columns"]), {key: number(value, "a score") for key, value in part["scores"].items()}


def _plain_names(document: Mapping[str, Any], name: str) -> list[str]:
    """The columns of a model that was fitted to numbers: those of its frame, or of an array their numbers."""
    names, embedding = document.get("feature_names"), document["model"]["embedding"]
    shape = embedding["shape"]
    refuse_if(not isinstance(shape, list) or not all(type(size) is int for size in shape), "a row has no shape")
    has_inputs = embedding.get("network", {}).get("type") == "laid-out"
    if len(shape) != 1 or has_inputs:
        rows = "the inputs of a module" if has_inputs else f"rows of shape {tuple(shape)}"
        raise UserError(f"{name} was fitted to {rows}, which a table cannot give; to predict, open it in Python with gwi.load.")
    if names is None:
        return numbered(whole(shape[0], "the number of columns", MOST_COLUMNS))
    refuse_if(not isinstance(names, list) or not all(isinstance(one, str) for one in names), "columns have no names")
    return names


def encode_labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels for JSON.

    Raises:
        UnsavableError: when they are of a kind that it has not.
    """
    values = classes.tolist()
    kinds = ", ".join(sorted({type(value).__name__ for value in values}))
    if kinds in _LABELS:
        return {"kind": kinds, "values": values, "dtype": str(classes.dtype)}
    raise UnsavableError(f"Labels of type {kinds} cannot be stored; whole numbers, numbers, text and booleans can, of one kind.")


def decode_labels(node: Any, *, in_order: bool = True, least: int = 2) -> NDArray[Any]:
    """The labels that were encoded; ValueError when they are none, fewer, or not in ascending order where they must be."""
    kind, values, dtype = node["kind"], node["values"], _DTYPES.fullmatch(str(node["dtype"]))
    alike = isinstance(values, list) and len(values) >= least and all(type(value).__name__ == kind for value in values)
    refuse_if(not alike, "labels are not of one kind")
    refuse_if(kind not in _LABELS or dtype is None, "labels are of an unknown kind")
    assert dtype is not None
    # Every label takes the width of the array, which a file could make as large as it likes.
    longest = max(len(str(value)) for value in values)
    refuse_if(int(dtype[1] or 0) > 100 + 10 * longest, "labels have room for far longer ones")
    classes = np.array(values, dtype=dtype[0])
    known = np.unique(classes)
    fits = classes.tolist() == values and (np.array_equal(known, classes) if in_order else len(known) == len(classes))
    refuse_if(not fits, "labels repeat, are not in order, or do not fit their kind")
    return classes


def encode_summary(summary: Summary) -> dict[str, Any]:
    """A summary for JSON, which has no infinity."""
    node = asdict(summary)
    for name in ("dispersion", "machine_speed"):
        if math.isnan(node[name]):
            del node[name]
    return node | {key: [None if value == math.inf else value for value in node[key]] for key in _INFINITE}


def decode_summary(node: Any) -> Summary:
    """The summary that was encoded.

    Raises:
        ModelFileError: when it is none.
    """
    try:
        read: dict[str, Any] = {key: whole(node[key], key, 10**15) for key in _COUNTS if key in node}
        read |= {key: _text(node[key], key) for key in _TEXTS if key in node}
        read |= {key: number(node[key], key) for key in ("seconds", *_NUMBERS) if key in node}
        read |= {key: _numbers(node[key], key) for key in _LISTS if key in node}
        read |= {key: number(node[key], key) for key in ("dispersion", "machine_speed") if key in node}
        accuracy = node.get("held_out_accuracy")
        read["held_out_accuracy"] = None if accuracy is None else number(accuracy, "held_out_accuracy")
        refuse_if(type(node["stores_all_rows"]) is not bool, "stores_all_rows is neither true nor false")
        members = tuple(
            MemberSummary(
                _text(part["name"], "a name"),
                _numbers(part["weights"], "weights"),
                _numbers(part["scores"], "scores"),
                number(part["seconds"], "seconds"),
            )
            for part in node["members"]
        )
        summary = Summary(**read, members=members, stores_all_rows=node["stores_all_rows"])
        str(summary)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelFileError(f"The summary in the file is invalid ({printable(error, 100)}); save the model again.") from error
    return summary


def _text(value: Any, what: str) -> str:
    refuse_if(not isinstance(value, str) or len(value) > 10_000, f"{what} is not text of up to 10,000 characters")
    return value


def _numbers(values: Any, what: str) -> tuple[float, ...]:
    refuse_if(not isinstance(values, list), f"{what} is not a list")
    return tuple(math.inf if value is None and what in _INFINITE else number(value, what) for value in values)
