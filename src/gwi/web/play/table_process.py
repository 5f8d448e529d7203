"""A process that holds one table of the page: reads it, fits, predicts, reports. What goes wrong in it ends nothing else.

Runs as `python -m gwi.web.play.table_process NAME` in the folder of the file; reads one JSON object a line, and answers each with
lines of JSON: `{"stage", "share"}` of what is under way, at the end `{"done"}` or `{"error"}`, a sentence.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from gwi._progress import printable, told_to
from gwi.exceptions import GWIWarning, UnsavableError, UserError

# Of a table on the page: bytes of its text, cells, columns.
MOST_TEXT, MOST_CELLS, MOST_COLUMNS = 1 << 28, 20_000_000, 2000
# Share of the rows held out for the scores, and rows that the report looks at.
HELD_OUT, REPORTED_ROWS = 0.2, 5000
# Bytes that the process may allocate.
MOST_MEMORY = 6 << 30
# Seconds between words on how far one stage is.
BETWEEN_WORDS = 0.1
MODEL, REPORT = "model.gwi", "report.html"
ELSEWHERE = "for larger ones use `gwi fit` on the command line"


class TableSession:
    """A table and the model of it.

    Args:
        path: of the file.
        tell: hears stages and shares.
    """

    def __init__(self, path: Path, tell: Callable[[str, float], None]):
        self._path, self._tell = path, tell
        self._everything: Any = None
        self._inputs: Any = None

    def open(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Read the file, and say what is in it."""
        from gwi.tables.source import open_table, read_table
        from gwi.web.play.words import shown

        source = open_table(self._path)
        if len(source.header) > MOST_COLUMNS:
            raise UserError(f"The table has {len(source.header)} columns; the page takes up to {MOST_COLUMNS}, {ELSEWHERE}.")
        _check_size(source)
        table = self._everything = read_table(source)
        first = table.data.slice(0, 3).to_pydict()
        examples = [", ".join(shown(value) for value in first[name] if value not in (None, "")) for name in table.names]
        columns = [{"name": shown(name), "examples": shown(cells)} for name, cells in zip(table.names, examples, strict=True)]
        return {"columns": columns, "num_rows": len(table)}

    def fit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Fit to most rows and score on the others, then fit to all; the model is in its file."""
        from gwi.estimators.table_targets import guess_task
        from gwi.estimators.tables import FEWEST_ROWS, Choices, evaluate_tables, fit_table, split, target_of
        from gwi.report.examination import examine_rows
        from gwi.report.page import report_page
        from gwi.tables.structure import noticed
        from gwi.web.play.inputs import Inputs
        from gwi.web.play.words import shown

        # What an earlier fit left is not this one's, should this one leave none.
        self._inputs = None
        for left in (MODEL, REPORT):
            Path(left).unlink(missing_ok=True)
        if self._everything is None:
            self.open({})
        everything = self._everything
        target = everything.names[int(asked["target"])]
        task = guess_task(everything, target) if asked["task"] == "auto" else asked["task"]
        table, y = target_of(everything, target, task)
        seconds = asked["max_time"]
        choices = Choices(max_time=seconds)
        training, held = split(table, y, HELD_OUT, task, choices)
        is_scored = len(held) > 0 and len(training) >= FEWEST_ROWS
        scores: dict[str, float] = {}
        notes = [f"{said.replace('Pass --', 'On the command line pass --')}" for said in noticed(table, target)]
        if len(table) < len(everything):
            notes.insert(0, f"{len(everything) - len(table)} rows without {target!r} are left out.")
        findings = 0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", GWIWarning)
            if is_scored:
                choices = replace(choices, max_time=seconds / 2)
                with told_to(lambda stage, share: self._tell(f"first fit: {stage}", share)):
                    model = fit_table(table[training], y[training], target, task, (), choices)
                self._tell("scores on held-out rows", 0.0)
                scores = evaluate_tables(model, [table[held]])
                self._tell("report", 0.0)
                shown_rows = table[held[:REPORTED_ROWS]]
                found = examine_rows(model, shown_rows, len(held), lambda stage, share: self._tell(f"report: {stage}", share))
                findings = len(found.checked.findings)
                Path(REPORT).write_text(report_page(found, "the first fit", printable(self._path.name)), encoding="utf-8")
            with told_to(lambda stage, share: self._tell(f"fit to all rows: {stage}" if is_scored else stage, share)):
                model = fit_table(table, y, target, task, (), choices)
        model.held_out_scores_ = scores
        notes += dict.fromkeys(str(warning.message) for warning in caught)
        notes += [f"Column {name!r} is not used: it {reason}." for name, reason in model.encoder_.encoder_.dropped[:20]]
        try:
            model.save(MODEL, overwrite=True)
        except UnsavableError as error:
            notes.append(str(error))
        self._inputs = Inputs(model, table)
        return {
            "task": task,
            "target": shown(target),
            "scores": scores,
            "summary": printable(str(model.summary_)),
            "notes": [printable(note) for note in notes],
            "controls": self._inputs.controls(),
            "num_rows": len(table),
            "has_report": is_scored,
            "findings": findings,
        }

    def predict(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The prediction of one row, and the training rows nearest to it."""
        if self._inputs is None:
            raise UserError("Fit a model first.")
        row = self._inputs.row(asked["cells"])
        return self._inputs.predicted(row) | {"nearest": self._inputs.nearest(row)}

    def explain(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Why the model is unsure at one row."""
        if self._inputs is None:
            raise UserError("Fit a model first.")
        return self._inputs.explained(self._inputs.row(asked["cells"]))


def _check_size(source: Any) -> None:
    """Refuse what is small and becomes large, before it is read."""
    from gwi.tables.parquet import ParquetReader
    from gwi.tables.text import BLOCK

    if source.is_parquet:
        count = sum(ParquetReader(source.path).group_sizes) * len(source.header)
        if count > MOST_CELLS:
            raise UserError(f"The table has {count:,} cells; the page takes up to {MOST_CELLS:,}, {ELSEWHERE}.")
        return
    size = 0
    with source.text() as text:
        while block := text.read(BLOCK):
            size += len(block)
            if size > MOST_TEXT:
                raise UserError(f"The table has more than {MOST_TEXT >> 20} MB of text; {ELSEWHERE}.")


def limit_memory() -> None:
    """Let what would need too much memory fail here, and not the machine."""
    try:
        import resource
    except ImportError:  # Not on Windows.
        return
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    bound = MOST_MEMORY if most == resource.RLIM_INFINITY else min(MOST_MEMORY, most)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, most))


def serve(name: str, commands: TextIO, answers: TextIO) -> None:
    """Do what each line says until there are no more."""

    def answer(node: dict[str, Any]) -> None:
        answers.write(f"{json.dumps(node)}\n")
        answers.flush()

    last = ("", 0.0)

    def tell(stage: str, share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if stage != last[0] or now > last[1] + BETWEEN_WORDS:
            last = (stage, now)
            answer({"stage": printable(stage), "share": share})

    session = TableSession(Path(name), tell)
    known = {"open": session.open, "fit": session.fit, "predict": session.predict, "explain": session.explain}
    for line in commands:
        asked = json.loads(line)
        try:
            answer({"done": known[asked["do"]](asked)})
            # What takes seconds to import is there once the user has chosen.
            import_module("gwi.web.play.inputs")
        except UserError as error:
            answer({"error": printable(str(error))})
        except MemoryError:
            answer({"error": f"There is not enough memory for this table; {ELSEWHERE}."})
        except Exception as error:
            print(printable("".join(traceback.format_exception(error))), file=sys.stderr, flush=True)
            answer({"error": "This is a bug in gwi; please report it with the message in the terminal."})


def main() -> None:
    """The process."""
    limit_memory()
    # What libraries print is no answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin, answers)


if __name__ == "__main__":
    main()
