"""The columns that several Parquet files have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def joint_schema(files: Sequence[tuple[str, Any]]) -> Any:
    """The columns of all files in the order of the first, each of a type that holds the values of all.

    Args:
        files: the name and the Arrow schema of each.

    Raises:
        ValueError: naming two files with different columns, or a column of which the types cannot be reconciled.
    """
    import pyarrow as pa

    first, schema = files[0]
    if len(files) == 1:
        return schema
    for other, its in files[1:]:
        if different := set(its.names) ^ set(schema.names):
            shown = ", ".join(map(repr, sorted(different)[:8]))
            raise ValueError(f"{other} has other columns than {first} ({shown}); files of a folder must be parts of one table.")
    try:
        return pa.unify_schemas([its for _, its in files], promote_options="permissive")
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"The files beside {first} hold different kinds of values in a column: {reason}.") from error
