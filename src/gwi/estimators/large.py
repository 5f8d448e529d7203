"""`gwi fit` for tables of any size, alone or on many processes: an encoder learned from a sample, rows read some at a time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gwi.estimators.table_targets import TARGETS, TaskName, guess_task
from gwi.estimators.tables import Choices, Estimator, estimator_for, evaluate_tables, fit_of, known_rows, target_of, with_encoder
from gwi.exceptions import GWIWarning, UserError
from gwi.streaming.batches import Sample, in_share
from gwi.streaming.process_group import ProcessGroup
from gwi.tables.addresses import AnyPath, Remote
from gwi.tables.encoder import Encoder
from gwi.tables.files import atomic_file
from gwi.tables.parquet import ParquetReader, ParquetSource
from gwi.tables.rows import Chunk
from gwi.tables.source import DECIMAL, Source, Table, open_table, read_parts

# Rows from which the encoder learns, and the most that are held out for the scores.
NUM_LEARNED, MOST_HELD_OUT = 20_000, 100_000


def as_parquet(source: Source) -> tuple[Source, str]:
    """A large text file as a Parquet file beside it, written once, and what to say of it."""
    if source.is_parquet:
        return source, ""
    if isinstance(source.path, Remote):
        raise UserError(f"{source.path} is a large text file; copy it to this machine, or write it as Parquet there.")
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
        note = f"{output}, converted from {source.path} before, is read instead."
    return open_table(output), note


def convert_to_parquet(source: Source, output: Path) -> None:
    """A text file as a Parquet file of the same cells, some rows at a time, all of it or nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in source.header], metadata={DECIMAL: source.decimal.encode()})
    with atomic_file(output) as file, pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
        for table, _ in read_parts(source, 1 << 17):
            writer.write_table(table.data.cast(schema))


def sampled_table(source: Source, seed: int, count: int = NUM_LEARNED) -> Table:
    """A sample of the rows, by the numbers they have in the file; the first process reads it for all."""

    def read() -> Table:
        sample: Sample[Table] = Sample(count, seed)
        for data, number in ParquetReader(source.path).tables():
            sample.add(Table(source, data, number))
        if not sample.num_seen:
            raise UserError(f"{source.path} has a header line but no rows.")
        return sample.in_order()

    return ProcessGroup.current().from_first(read)


def table_source(source: Source, encoder: Encoder, task: TaskName, seed: int, share: float) -> ParquetSource:
    """Encoded rows to fit: those that have a target, without the share of them held out for the scores."""

    def convert(data: Any, number: NDArray[np.int64]) -> Chunk:
        table = Table(source, data, number)[~in_share(number, seed, share)]
        known, y = target_of(table, encoder.target, task, encoder.number_labels)
        x = encoder.transform(known) if len(known) else np.empty((0, len(encoder.features)))
        return Chunk(x, TARGETS[task].columns(y), known.number)

    conversion = [encoder.to_json(), task, seed, share, source.decimal]
    return ParquetSource(ParquetReader(source.path), convert, [*encoder.inputs, encoder.target], None, conversion)


def held_out_tables(source: Source, encoder: Encoder, seed: int, share: float) -> Iterator[Table]:
    """The rows held out for the scores, as they are in the file."""
    for data, number in ParquetReader(source.path).tables([*encoder.inputs, encoder.target]):
        held = in_share(number, seed, share)
        if held.any():
            yield Table(source, data, number)[held]


def fit_large(
    source: Source,
    target: str,
    task: TaskName | Literal["auto"],
    drop: Sequence[str],
    choices: Choices,
    holdout: float,
    checkpoints: AnyPath | None = None,
    on_fitted: Callable[[Estimator], Any] = lambda model: None,
) -> Estimator:
    """Fit encoder and estimator to a table of any size, with scores on rows held out, on the first process.

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
    # Once, from the sample: chunks that each decide for themselves would give one label two names.
    encoder = replace(Encoder.fit(known, target, drop), number_labels=TARGETS[chosen].number_labels(sample, target))
    share = min(holdout, MOST_HELD_OUT / sum(ParquetReader(source.path).group_sizes))
    # Another seed than the sample's: rows held out for the scores take no part in the fit, not even as judges.
    split_seed = choices.seed + 1
    estimator = estimator_for(chosen, choices)
    rows = table_source(source, encoder, chosen, split_seed, share)
    with fit_of(source.path):
        estimator.fit(rows, checkpoints=checkpoints)
    with_encoder(estimator, encoder, [name for name in source.header if name != target])
    if not ProcessGroup.current().is_first:
        return estimator
    on_fitted(estimator)
    if share:
        estimator.held_out_scores_ = _held_out_scores(estimator, held_out_tables(source, encoder, split_seed, share))
    return estimator


def _held_out_scores(estimator: Estimator, tables: Iterator[Table]) -> dict[str, float]:
    """Scores on the rows whose label the model knows; a warning says how many others there are."""
    num_unknown = 0

    def of_known_labels() -> Iterator[Table]:
        nonlocal num_unknown
        for table in tables:
            present, y = known_rows(estimator, table)
            is_known = TARGETS[estimator.task].is_known(y, estimator)
            num_unknown += int((~is_known).sum())
            yield present[is_known]

    scores = evaluate_tables(estimator, of_known_labels())
    if num_unknown:
        warnings.warn(
            f"{num_unknown} held-out rows have a label that no training row has; they are left out of the scores.",
            GWIWarning,
            stacklevel=2,
        )
    return scores
