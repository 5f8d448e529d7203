"""`gwi fit` for tables of any size, alone or on many processes: columns learned from a sample, rows read some at a time."""

from __future__ import annotations

import gzip
import secrets
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gwi.estimators.table_model import (
    Choices,
    Judged,
    TaskName,
    Tool,
    all_scores,
    estimator_for,
    guess_task,
    judge,
    labels_are_numbers,
    of_known_labels,
    target_of,
)
from gwi.exceptions import GWIWarning, UserError
from gwi.fitting.stream_rows import FEW_NUMBERS
from gwi.streaming.parquet import ArrowSource
from gwi.streaming.process_group import ProcessGroup
from gwi.streaming.rows import Chunk
from gwi.streaming.summary import priorities
from gwi.tables.encoder import Columns
from gwi.tables.source import DECIMAL, Source, Table, open_table, parquet_files, read_parts

# Rows from which the columns are learned, and the most that are held out for the scores.
NUM_LEARNED, MOST_HELD_OUT = 20_000, 100_000
# Bytes of text that are read into memory.
FEW_BYTES = 1 << 30


def is_large(source: Source) -> bool:
    """Whether a table is better read some rows at a time."""
    if ProcessGroup.current().size > 1 or source.path.is_dir():
        return True
    if not source.is_parquet:
        return source.path.stat().st_size > FEW_BYTES or (source.is_compressed and _unpacks_to_more_than(source.path, FEW_BYTES))
    import pyarrow.parquet as pq

    return sum(pq.ParquetFile(path).metadata.num_rows for path in parquet_files(source.path)) * len(source.header) > FEW_NUMBERS


def _unpacks_to_more_than(path: Path, limit: int) -> bool:
    # What gzip makes of zeros: no text is packed more densely.
    if path.stat().st_size * 1032 <= limit:
        return False
    count = 0
    with gzip.open(path) as file:
        try:
            while count <= limit and (block := file.read(1 << 20)):
                count += len(block)
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(f"{path} is a damaged gzip file ({error}).") from error
    return count > limit


def as_parquet(source: Source) -> tuple[Source, str]:
    """A large text file as a Parquet file beside it, written once, and what to say of it."""
    if source.is_parquet:
        return source, ""
    output = source.path.with_name(f"{source.path.name}.parquet")

    def converted() -> bool:
        if output.exists() and output.stat().st_mtime >= source.path.stat().st_mtime:
            return False
        convert_to_parquet(source, output)
        return True

    # One process looks and converts: others might look after it has converted, and not wait for it.
    if ProcessGroup.current().from_first(converted):
        note = f"{source.path} was converted to {output}, once; later fits read that file."
    else:
        note = f"{output}, converted from {source.path} before, is read in its place."
    return open_table(output), note


def convert_to_parquet(source: Source, output: Path) -> Path:
    """A text file as a Parquet file of the same cells, some rows at a time, all of it or nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in source.header], metadata={DECIMAL: source.decimal.encode()})
    beside = output.with_name(f".{output.name}.{secrets.token_hex(8)}")
    try:
        with pq.ParquetWriter(beside, schema, compression="zstd") as writer:
            for table, _ in read_parts(source, 1 << 17):
                writer.write_table(table.data.cast(schema))
        beside.replace(output)
    finally:
        beside.unlink(missing_ok=True)
    return output


def sampled_table(source: Source, seed: int, count: int = NUM_LEARNED) -> Table:
    """Rows of lowest priority, by the numbers they have in the file; the first process reads them for all."""
    import pyarrow as pa

    raw = _arrow(source, list(source.header), _not_encoded)
    num_rows = sum(raw.group_sizes)
    if not num_rows:
        raise UserError(f"{source.path} has names of columns and no rows.")

    def read() -> Table:
        # Which rows they are is known before any is read.
        lowest = np.full(0, 0, dtype=np.int64)
        for start in range(0, num_rows, 1 << 20):
            numbers = np.concatenate([lowest, np.arange(start, min(start + (1 << 20), num_rows))])
            lowest = numbers[np.argsort(priorities(numbers, seed), kind="stable")[:count]]
        lowest.sort()
        parts = []
        for table, numbers in _checked(raw, source):
            first, last = np.searchsorted(lowest, [numbers[0], numbers[-1] + 1])
            if last > first:
                parts.append(table.take(lowest[first:last] - numbers[0]))
        return Table(source, pa.concat_tables(parts).combine_chunks(), lowest)

    return ProcessGroup.current().from_first(read)


def _checked(raw: ArrowSource, source: Source) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """The tables of all groups.

    Raises:
        UserError: when a file is damaged in its middle.
    """
    import pyarrow as pa

    try:
        for group in range(len(raw.group_sizes)):
            yield from raw.tables(group)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{source.path} cannot be read: {str(error).splitlines()[0]}") from error


def _not_encoded(table: Any, numbers: NDArray[np.int64]) -> Chunk:
    raise TypeError("A table whose columns have not been learned yet is read as tables.")


def _arrow(source: Source, columns: list[str], convert: Any, conversion: Any = None) -> ArrowSource:
    files = [str(path) for path in parquet_files(source.path)]
    try:
        return ArrowSource(files, convert, columns, None, conversion)
    except ValueError as error:
        raise UserError(str(error)) from error


def table_source(
    source: Source, columns: Columns, task: TaskName, seed: int, share: float, part: Literal["fit", "scores"]
) -> ArrowSource:
    """Encoded rows that have a target: those to fit, or the share of them held out for the scores, told by their numbers."""
    border = np.uint64(min(int(share * 2**64), 2**64 - 1))

    def convert(data: Any, numbers: NDArray[np.int64]) -> Chunk:
        held = priorities(numbers, seed) < border
        chosen = held if part == "scores" else ~held
        table = Table(source, data, numbers)[chosen]
        known, y = target_of(table, columns.target, task, columns.number_labels)
        x = columns.transform(known) if len(known) else np.empty((0, len(columns.features)))
        return Chunk(x, y if task == "classification" else y[:, None], known.rows)

    conversion = [columns.to_json(), task, seed, share, part, source.decimal]
    return _arrow(source, [*(column.name for column in columns.columns), columns.target], convert, conversion)


def held_out_tables(source: Source, columns: Columns, seed: int, share: float) -> Iterator[Table]:
    """The rows held out for the scores, as they are in the file."""
    names = [*(column.name for column in columns.columns), columns.target]
    raw = _arrow(source, names, _not_encoded)
    border = np.uint64(min(int(share * 2**64), 2**64 - 1))
    for data, numbers in _checked(raw, source):
        held = priorities(numbers, seed) < border
        if held.any():
            yield Table(source, data, numbers)[held]


def fit_large(
    source: Source,
    target: str,
    task: TaskName | Literal["auto"],
    drop: Sequence[str],
    choices: Choices,
    holdout: float,
    checkpoints: Path | None = None,
    on_fitted: Callable[[Tool], Any] = lambda tool: None,
) -> Tool:
    """Fit columns and estimator to a table of any size, with scores on rows held out, on the first process.

    Args:
        source: the table.
        target: the column to predict.
        task: what is predicted, or auto to guess it.
        drop: columns to leave out.
        choices: how to fit.
        holdout: the share of the rows for the scores.
        checkpoints: the folder of checkpoints.
        on_fitted: called on the first process before the scores are computed, so that a fit is kept whatever they meet.

    Raises:
        UserError: when the table or the choices do not fit.
    """
    sample = sampled_table(source, choices.seed)
    chosen = guess_task(sample, target) if task == "auto" else task
    known, _ = target_of(sample, target, chosen)
    columns = Columns.fit(known, target, drop)
    if chosen == "classification":
        # Once, from the sample: chunks that each decide for themselves would give one label two names.
        columns = replace(columns, number_labels=labels_are_numbers(sample, target))
    num_rows = sum(_arrow(source, [target], _not_encoded).group_sizes)
    share = min(holdout, MOST_HELD_OUT / num_rows)
    # Another seed than the sample's: rows held out for the scores take no part in the fit, not even as judges.
    split_seed = choices.seed + 1
    estimator = estimator_for(chosen, choices).set_params(verbose=int(choices.verbose))
    rows = table_source(source, columns, chosen, split_seed, share, "fit")
    try:
        estimator.fit(rows, checkpoints=checkpoints)
    except (ValueError, FloatingPointError) as error:
        raise UserError(f"{source.path}: {error}") from error
    estimator.set_params(verbose=0)
    tool = Tool(estimator, columns, {})
    if ProcessGroup.current().is_first:
        on_fitted(tool)
        if share:
            tool = replace(tool, scores=_held_out_scores(tool, held_out_tables(source, columns, split_seed, share)))
    return tool


def _held_out_scores(tool: Tool, tables: Iterable[Table]) -> dict[str, float]:
    """Scores on the rows whose label the model knows; a warning says how many others there are."""
    num_strange = 0

    def judged() -> Iterator[Judged]:
        nonlocal num_strange
        for table in tables:
            present, _ = target_of(table, tool.columns.target, tool.task, tool.columns.number_labels)
            known = of_known_labels(tool, present)
            num_strange += len(present) - len(known)
            yield judge(tool, known)

    scores = all_scores(tool, judged())
    if num_strange:
        warnings.warn(
            f"{num_strange} rows held out have a label that is in no row of the fit; they are left out of the scores.",
            GWIWarning,
            stacklevel=2,
        )
    return scores
