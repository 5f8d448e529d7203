"""The `gwi` command: fit, predict, evaluate, report, compare, info, demo. Heavy imports wait for the command that needs them.

Exit codes: 0 done, 1 a bug of ours, 2 a mistake in what was asked for or in a file, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import secrets
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from gwi.cli.console import (
    DataFile,
    Force,
    Json,
    ModelFile,
    Quiet,
    check_max_time,
    check_output,
    check_task,
    failed,
    mistaken,
    names,
    note,
    noted_warnings,
    on_cluster,
    print_json,
    show,
)
from gwi.cli.launch import PARTNER_TIME, is_given_up, is_launched
from gwi.exceptions import UserError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def main() -> None:
    """The front door."""
    raise SystemExit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say; the exit code. A user's mistake is one sentence on the error stream."""
    if is_launched() and is_given_up():
        return 0
    try:
        result = app(list(arguments), prog_name="gwi", standalone_mode=False)
    except UserError as error:
        return mistaken(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return failed("interrupted; no output was written.", 130)
    except typer.Exit as error:
        return error.exit_code
    except BrokenPipeError:
        # The reader of a pipe, such as head, has seen enough; Python would complain once more when it closes the stream.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    except Exception as error:
        # What typer raises for wrong arguments; the class has moved between its versions.
        if hasattr(error, "format_message"):
            return mistaken(error.format_message())
        # A partner that found a mistake leaves the group first, which ends the others, and then says so.
        if is_launched() and is_given_up(wait=PARTNER_TIME):
            return 0
        traceback.print_exc()
        return failed("this is a bug in gwi; please report the lines above.", 1)
    return result if isinstance(result, int) else 0


def _version(shown: bool) -> bool:
    if shown:
        from gwi import __version__

        print(f"gwi {__version__}")
        raise typer.Exit
    return shown


@app.callback()
def gwi(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")] = False) -> None:
    """Predictions with honest uncertainty from a table, by Gaussian Wasserstein inference."""


@app.command()
def fit(
    data: DataFile,
    target: Annotated[str, typer.Option("--target", "-t", help="the column to predict", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="where the model goes", show_default=False)],
    task: Annotated[str, typer.Option(help="regression, classification, or auto to guess it")] = "auto",
    mean: Annotated[str, typer.Option(help="auto, svgp, svgp-all, network, svgp+network, linear or boosting")] = "auto",
    preset: Annotated[str | None, typer.Option(help="paper: the paper's protocol (regression)")] = None,
    drop: Annotated[str, typer.Option(help="columns to leave out, parted by commas")] = "",
    max_time: Annotated[float | None, typer.Option(help="seconds to aim for, all fits together (regression)")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="of everything random")] = 0,
    holdout: Annotated[float, typer.Option(help="share of the rows held out for the scores; 0 for none")] = 0.2,
    refit: Annotated[bool, typer.Option(help="fit again to all rows after scoring")] = True,
    jobs: Annotated[int | None, typer.Option(help="fits of boosting and linear means side by side; -1 for all cores")] = None,
    cluster: Annotated[str | None, typer.Option(help="tcp://... of a Dask cluster that does these fits")] = None,
    checkpoints: Annotated[Path | None, typer.Option(help="folder where the fit of a large table keeps its progress")] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fit a model to a table, score it on rows held out, and write it to a file."""
    check_output(output, force, data)
    check_task(task)
    check_max_time(max_time)
    if preset not in (None, "paper"):
        raise UserError(f"--preset is paper, or left out; got {preset!r}.")
    if not 0 <= holdout <= 0.9:
        raise UserError(f"--holdout lies between 0 and 0.9; got {holdout:g}.")
    from gwi.estimators.large import is_large
    from gwi.estimators.table_model import (
        FEWEST_ROWS,
        Choices,
        TaskName,
        all_scores,
        fit_tool,
        guess_task,
        judge,
        split,
        target_of,
    )
    from gwi.streaming.process_group import joined
    from gwi.tables.source import open_table, read_table

    leave_out = names(drop)
    with joined() as processes, on_cluster(cluster):
        source = open_table(data)
        if is_large(source):
            choices = Choices(mean, cast(Literal["paper"] | None, preset), max_time, seed, not quiet and processes.is_first, jobs)
            _fit_large(source, target, cast(Any, task), leave_out, choices, holdout, checkpoints, output, as_json)
            return
    everything = read_table(data)
    chosen = guess_task(everything, target) if task == "auto" else cast(TaskName, task)
    table, y = target_of(everything, target, chosen)
    if len(table) < len(everything):
        note(f"{len(everything) - len(table)} rows without {target!r} are left out.", quiet)
    if chosen == "classification" and max_time is not None:
        note("--max-time is for regression; it is not used.", quiet)
    training, held = split(y, holdout, chosen, seed)
    is_scored = len(held) > 0 and len(training) >= FEWEST_ROWS
    num_fits = 2 if is_scored and refit else 1
    choices = Choices(
        mean, cast(Literal["paper"] | None, preset), None if max_time is None else max_time / num_fits, seed, not quiet, jobs
    )
    scores: dict[str, float] = {}
    with noted_warnings(quiet), on_cluster(cluster):
        if is_scored:
            tool = fit_tool(table[training], y[training], target, chosen, leave_out, choices)
            scores = all_scores(tool, [judge(tool, table[held])])
        if not is_scored or refit:
            tool = fit_tool(table, y, target, chosen, leave_out, choices)
    _keep(replace(tool, scores=scores), len(table), output, as_json, quiet)


def _fit_large(
    source: Any,
    target: str,
    task: Any,
    drop: list[str],
    choices: Any,
    holdout: float,
    checkpoints: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    """Fit a table that is read some rows at a time, alone or with other processes; the first writes and prints."""
    import contextlib

    from gwi.estimators.large import as_parquet, fit_large
    from gwi.streaming.process_group import ProcessGroup

    quiet, is_first = not choices.verbose, ProcessGroup.current().is_first
    source, said = as_parquet(source)
    if said:
        note(said, quiet)
    with noted_warnings(quiet), contextlib.redirect_stdout(io.StringIO()):
        tool = fit_large(source, target, task, drop, choices, holdout, checkpoints, lambda fitted: fitted.save(output))
    if is_first:
        _keep(tool, tool.estimator.summary_.num_rows, output, as_json, quiet)


def _keep(tool: Any, num_rows: int, output: Path, as_json: bool, quiet: bool) -> None:
    """Write a fitted model and say what it is, what it chose and how it did."""
    tool = replace(tool, scores={name: value for name, value in tool.scores.items() if value - value == 0})
    for name, reason in tool.columns.dropped:
        note(f"column {name!r} is not used: it {reason}.", quiet)
    tool.save(output)
    if as_json:
        print_json(_description(tool, output))
        return
    if tool.scores:
        show(f"Scores on {tool.scores['rows']:.0f} rows held out", tool.scores)
    num_columns = len(tool.columns.columns)
    print(f"{tool.task.capitalize()} of {tool.columns.target!r} from {num_columns} columns, {num_rows} rows: {output}")
    if not quiet:
        print(tool.estimator.summary_)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def launch(context: typer.Context) -> None:
    """Run a command on several processes or machines: gwi launch [options of torchrun] fit ...

    A process that dies is started again with the others and goes on from the last checkpoint (fit --checkpoints FOLDER).
    """
    from gwi.cli.launch import launch as start

    if code := start(context.args):
        raise typer.Exit(code)


@app.command()
def predict(
    model: ModelFile,
    data: DataFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV, .gz or Parquet by its name; - for the output stream")],
    coverage: Annotated[float, typer.Option(help="probability that the interval holds the target")] = 0.95,
    keep: Annotated[str, typer.Option(help="columns to copy, parted by commas; unused, all or none")] = "unused",
    chunk_size: Annotated[int, typer.Option(min=1, help="rows held at a time")] = 20_000,
    excel_safe: Annotated[
        bool, typer.Option("--excel-safe", help="escape text that a spreadsheet would take for a formula")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Predict each row of a table: prediction, spread and interval, or probabilities; and how far it is from known rows."""
    if not 0 < coverage < 1:
        raise UserError(f"--coverage lies strictly between 0 and 1; got {coverage:g}.")
    to_stream = str(output) == "-"
    if not to_stream:
        check_output(output, force, model, data)
    from gwi._progress import progress
    from gwi.estimators.table_model import load_tool, predictions
    from gwi.tables.source import open_table, read_parts
    from gwi.tables.writer import Writer, kept_names

    tool, source = load_tool(model), open_table(data)
    used = [column.name for column in tool.columns.columns]
    kept = kept_names(keep, source.header, used, data)
    known = {*kept, *used}
    extra = [name for name in source.header if name not in known]
    if extra:
        note(f"columns that the model does not use: {', '.join(extra[:8])}{' …' * (len(extra) > 8)}.", quiet)
    beside = output.with_name(f".{output.name}.{secrets.token_hex(8)}")
    try:
        with Writer(None if to_stream else beside, output.suffixes, excel_safe) as writer, progress(not quiet) as report:
            for table, share in read_parts(source, chunk_size):
                writer.write(table, kept, predictions(tool, table, coverage))
                report("rows", share)
        if not to_stream:
            beside.replace(output)
    finally:
        beside.unlink(missing_ok=True)


@app.command()
def evaluate(
    model: ModelFile,
    data: DataFile,
    chunk_size: Annotated[int, typer.Option(min=1, help="rows held at a time")] = 20_000,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Score a model on a table that has the target."""
    from gwi._progress import progress
    from gwi.estimators.table_model import all_scores, judge, load_tool
    from gwi.tables.source import open_table, read_parts

    tool, source = load_tool(model), open_table(data)
    with progress(not quiet) as report:

        def judged() -> Iterator[Any]:
            for table, share in read_parts(source, chunk_size):
                yield judge(tool, table)
                report("rows", share)

        scores = all_scores(tool, judged())
    if as_json:
        print_json(scores)
    else:
        show(f"{model} on {data}", scores)


@app.command()
def report(
    model: ModelFile,
    data: DataFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="where the page goes")] = Path("report.html"),
    max_rows: Annotated[int, typer.Option(min=1, help="rows looked at; of more a random sample")] = 100_000,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write one HTML page on how a model does on a table that has the target."""
    check_output(output, force, model, data)
    from gwi._files import write_atomically
    from gwi._progress import progress
    from gwi.estimators.table_model import load_tool
    from gwi.report.examination import examine
    from gwi.report.page import report_page
    from gwi.tables.source import open_table

    tool, source = load_tool(model), open_table(data)
    with noted_warnings(quiet), progress(not quiet) as shown:
        found = examine(tool, source, 20_000, shown, max_rows)
        write_atomically(output, report_page(found, model.name, data.name).encode())
    for finding in found.findings:
        note(f"{finding.severity}: {finding.what} {finding.remedy}", quiet or finding.severity == "note")
    print(f"{len(found.table)} of {found.num_rows} rows, {len(found.findings)} findings: {output}")


@app.command()
def compare(
    data: DataFile,
    target: Annotated[str, typer.Option("--target", "-t", help="the column to predict", show_default=False)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="picture or page: .png, .svg or .html")] = None,
    task: Annotated[str, typer.Option(help="regression, classification, or auto to guess it")] = "auto",
    folds: Annotated[int, typer.Option(min=2, max=100, help="each row is predicted once")] = 5,
    gp_rows: Annotated[int, typer.Option(min=10, help="training rows of the exact GP; of more a random sample")] = 1000,
    drop: Annotated[str, typer.Option(help="columns to leave out, parted by commas")] = "",
    max_time: Annotated[float | None, typer.Option(help="seconds to aim for, of each of our fits (regression)")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="of everything random")] = 0,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare the default with an exact GP, boosting and a linear model on a table, all on the same folds."""
    check_task(task)
    check_max_time(max_time)
    if output is not None:
        check_output(output, force, data)
    from gwi._files import write_atomically
    from gwi._progress import progress
    from gwi.estimators.table_model import TaskName, guess_task, target_of
    from gwi.report.comparison import compare as compare_methods
    from gwi.report.comparison_page import check_kind, content, print_comparison
    from gwi.tables.source import read_table

    if output is not None:
        check_kind(output)
    everything = read_table(data)
    chosen = guess_task(everything, target) if task == "auto" else cast(TaskName, task)
    table, y = target_of(everything, target, chosen)
    options: dict[str, Any] = {"num_folds": folds, "seed": seed, "gp_rows": gp_rows, "max_time": max_time}
    with noted_warnings(quiet), progress(not quiet) as shown:
        found = compare_methods(table, y, target, chosen, names(drop), report=shown, **options)
    if output is not None:
        write_atomically(output, content(found, data.name, output.suffix.lower()))
    if as_json:
        print_json(found.to_json())
    else:
        print_comparison(found)


def _description(tool: Any, path: Path) -> dict[str, Any]:
    columns = tool.columns
    found = {
        "file": str(path),
        "task": tool.task,
        "target": columns.target,
        "rows": tool.estimator.summary_.num_rows,
        "columns": {column.name: column.kind for column in columns.columns},
        "inputs": list(columns.features),
        "not_used": dict(columns.dropped),
        "held_out_scores": tool.scores,
        "summary": str(tool.estimator.summary_),
    }
    return found | ({"classes": tool.estimator.classes_.tolist()} if tool.task == "classification" else {})


@app.command()
def info(model: ModelFile, as_json: Json = False) -> None:
    """Say what a model file holds."""
    from gwi.estimators.table_model import load_tool

    found = _description(load_tool(model), model)
    if as_json:
        print_json(found)
        return
    shown = {name: found[name] for name in ("task", "target")}
    shown["columns"] = "\n".join(f"{name}: {kind}" for name, kind in list(found["columns"].items())[:40])
    if found["not_used"]:
        shown["not used"] = "\n".join(f"{name}: it {reason}" for name, reason in list(found["not_used"].items())[:20])
    shown["inputs"] = len(found["inputs"])
    shown |= {"classes": ", ".join(found["classes"])} if "classes" in found else {}
    shown |= {f"held-out {name}": value for name, value in found["held_out_scores"].items() if name != "rows"}
    show(str(model), {**shown, "fit": found["summary"]})


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="where the picture goes")] = Path("demo.png"),
    force: Force = False,
) -> None:
    """Train a network with a covariance on one-dimensional data with a gap, and draw it."""
    check_output(output, force)
    from gwi.cli.demo import run as run_demo

    run_demo(output)
