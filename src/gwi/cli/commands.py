"""The `gwi` command: fit, predict, evaluate, report, compare, info, export, serve, play, demo. Heavy imports wait.

Exit codes: 0 done, 1 a bug of ours, 2 a mistake in what was asked for or in a file, 130 interrupted.
"""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from typer.main import get_command

import gwi.cli.console as console
from gwi._progress import printable
from gwi.cli.export import export
from gwi.cli.info import info
from gwi.cli.launch import MISTAKE, end_with_launcher
from gwi.cli.play import play
from gwi.cli.serve import serve
from gwi.exceptions import UnexportableError, UnsavableError, UserError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def main() -> None:
    """The front door."""
    with console.stopping_in_order():
        end_with_launcher()
        console.watch_output_stream()
        code = run(sys.argv[1:])
    raise SystemExit(code)


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say; the exit code. A user's mistake is one sentence on the error stream."""
    if os.path.exists(os.environ.get(MISTAKE, "")):
        # Started again because another process ended after a mistake of the user's.
        return 0
    # Not `app()`, which turns an interrupt and a reader that has left into exit codes of its own.
    command, code = get_command(app), 0
    try:
        try:
            with command.make_context("gwi", list(arguments) or ["--help"]) as context:
                command.invoke(context)
        except typer.Exit as end:
            code = end.exit_code
        sys.stdout.flush()
        return code
    except (UserError, UnsavableError, UnexportableError) as error:
        return console.mistaken(str(error))
    except (KeyboardInterrupt, typer.Abort) as error:
        return console.interrupted(error)
    except Exception as error:
        # What typer raises for wrong arguments; the class has moved between its versions.
        if hasattr(error, "format_message"):
            return console.mistaken(error.format_message())
        if isinstance(error, OSError) and (said := console.system_fault(error)) is not None:
            return said
        print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr)
        return console.failed("this is a bug in gwi; please report the lines above.", 1)


def _version(shown: bool) -> bool:
    if shown:
        from gwi import __version__

        print(f"gwi {__version__}")
        raise typer.Exit
    return shown


@app.callback()
def gwi(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="show it")] = False) -> None:
    """Predictions with calibrated uncertainty from a table, by Gaussian Wasserstein inference."""


@app.command()
def fit(
    data: console.DataFile,
    target: Annotated[str, typer.Option("--target", "-t", help="the column to predict", show_default=False)],
    output: Annotated[console.Place, console.output("file to write the model to", show_default=False)],
    task: Annotated[str, typer.Option(help="regression, classification, or auto to guess it")] = "auto",
    mean: Annotated[str, typer.Option(help="auto, svgp, svgp-all, network, svgp+network, linear or boosting")] = "auto",
    preset: Annotated[str | None, typer.Option(help="paper: the paper's protocol (regression)")] = None,
    drop: Annotated[str, typer.Option(help="columns to leave out, separated by commas")] = "",
    groups: Annotated[
        str | None, typer.Option(help="column that groups rows, such as the patient; whole groups are held out")
    ] = None,
    time: Annotated[str | None, typer.Option(help="column with the time of each row; the latest rows are held out")] = None,
    likelihood: Annotated[
        str, typer.Option(help="for numbers: auto, or a name such as poisson, negative-binomial, gamma, ordinal, student-t")
    ] = "auto",
    event: Annotated[
        str | None,
        typer.Option(help="column that says whether the event happened (0 or 1); the target is then the time to the event"),
    ] = None,
    levels: Annotated[str, typer.Option(help="levels of an ordered target, lowest first, separated by commas")] = "",
    max_time: Annotated[
        float | None, typer.Option(help="time to aim for, in seconds, for all fits together (regression)")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="random seed")] = 0,
    holdout: Annotated[float, typer.Option(help="share of the rows to hold out for scores; 0 for none")] = 0.2,
    refit: Annotated[bool, typer.Option(help="fit again to all rows after scoring")] = True,
    jobs: Annotated[int | None, typer.Option(help="fits of boosting and linear means side by side; -1 for all cores")] = None,
    cluster: Annotated[str | None, typer.Option(help="tcp://... of a Dask cluster that does these fits")] = None,
    checkpoints: console.Checkpoints = None,
    force: console.Force = False,
    quiet: console.Quiet = False,
    as_json: console.Json = False,
) -> None:
    """Fit a model to a table, score it on held-out rows, and write it to a file."""
    console.check_output(output, force, data)
    console.check_choices(task, max_time)
    if preset not in (None, "paper"):
        raise UserError(f"--preset can only be paper; got {preset!r}.")
    if groups is not None and time is not None:
        raise UserError("--groups and --time both decide which rows are held out; pass one of the two.")
    if not 0 <= holdout <= 0.9:
        raise UserError(f"--holdout must be between 0 and 0.9; got {holdout:g}.")
    from gwi.estimators.likelihood_targets import checked_likelihood
    from gwi.estimators.table_targets import TaskName, guess_task
    from gwi.estimators.tables import FEWEST_ROWS, Choices, evaluate_tables, fit_table, is_large, split, target_of
    from gwi.tables.source import open_table, read_table
    from gwi.tables.structure import in_time, noticed

    leave_out, source = console.names(drop), open_table(data)
    asks_for_numbers = likelihood != "auto" or event is not None or bool(levels)
    if asks_for_numbers and task not in ("auto", "regression"):
        raise UserError("--likelihood, --event and --levels are not for classes; leave --task out.")
    choices = Choices(mean, cast(Literal["paper"] | None, preset), max_time, seed, not quiet, jobs, groups, time)
    # With other processes a table of any size is read by all of them, some rows at a time; the first writes and prints.
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or is_large(source):
        if groups is not None or time is not None:
            raise UserError(f"{data} is read a part at a time, which does not work with --groups and --time; pass fewer rows.")
        if likelihood not in ("auto", "gaussian") or event is not None or levels:
            raise UserError(f"{data} is read a part at a time, which works with a Gaussian likelihood only; pass fewer rows.")
        from gwi.estimators.large import as_parquet, fit_large
        from gwi.streaming.checkpoints import Checkpoints
        from gwi.streaming.process_group import joined

        with console.on_cluster(cluster), joined() as processes:
            quiet = quiet or not processes.is_first
            source, said = as_parquet(source)
            if said:
                console.note(said, quiet)
            choices = replace(choices, verbose=not quiet)
            with console.noted_warnings(quiet), console.interrupt_after(output) as keep:
                model = fit_large(source, target, cast(Any, task), leave_out, choices, holdout, checkpoints, keep)
            if processes.is_first:
                _keep(model, model.summary_.num_rows, output, as_json, quiet)
                Checkpoints(checkpoints).clear()
        return
    everything = read_table(source)
    if time is not None:
        everything = in_time(everything, time)
    if asks_for_numbers:
        likelihood, named_levels = checked_likelihood(likelihood, event, console.names(levels), everything, target)
        choices = replace(choices, likelihood=likelihood, event=event, levels=named_levels)
    chosen = "regression" if asks_for_numbers else guess_task(everything, target) if task == "auto" else cast(TaskName, task)
    table, y = target_of(everything, target, choices.column(chosen))
    if len(table) < len(everything):
        missing = repr(target) if event is None else f"{target!r} or {event!r}"
        console.note(f"{len(everything) - len(table)} rows without {missing} are left out.", quiet)
    if groups is None and time is None:
        for remark in noticed(table, target, tuple(leave_out)):
            console.note(remark, quiet)
    training, held = split(table, y, holdout, chosen, choices)
    is_scored = len(held) > 0 and len(training) >= FEWEST_ROWS
    if max_time is not None and is_scored and refit:
        choices = replace(choices, max_time=max_time / 2)
    scores: dict[str, float] = {}
    with console.noted_warnings(quiet), console.on_cluster(cluster):
        if is_scored:
            model = fit_table(table[training], y[training], target, chosen, leave_out, choices)
            scores = evaluate_tables(model, [table[held]])
        if not is_scored or refit:
            model = fit_table(table, y, target, chosen, leave_out, choices)
    model.held_out_scores_ = scores
    _keep(model, len(table), output, as_json, quiet)


def _keep(model: Any, num_rows: int, output: Path, as_json: bool, quiet: bool) -> None:
    """Write a fitted model and say what it is, what it chose and how it did."""
    scores = {name: value for name, value in getattr(model, "held_out_scores_", {}).items() if math.isfinite(value)}
    model.held_out_scores_, encoder = scores, model.encoder_.encoder_
    for name, reason in encoder.dropped:
        console.note(f"column {name!r} is not used: it {reason}.", quiet)
    model.save(output, overwrite=True)
    if as_json:
        from gwi.storage.description import description_of

        console.print_json(description_of(output) | {"held_out_scores": scores})
        return
    if scores:
        console.show(f"Scores on {scores['rows']:.0f} held-out rows", scores)
    event = "" if encoder.event is None else f" (event {encoder.event!r})"
    of, num_columns = f"{model.task.capitalize()} of {encoder.target!r}{event}", len(encoder.columns)
    console.say(f"{of} from {num_columns} columns, {num_rows} rows: {console.sized(output)}")
    if not quiet:
        console.say(str(model.summary_))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def launch(context: typer.Context) -> None:
    """Run a command on several processes or machines: gwi launch [options of torchrun] fit ...

    A process that dies is started again with the others and goes on from the last checkpoint (fit --checkpoints FOLDER).
    """
    from gwi.cli.launch import launch as start

    start(context.args)


@app.command()
def predict(
    model: console.ModelFile,
    data: console.DataFile,
    output: Annotated[console.Place, console.output("file to write, CSV, .gz or Parquet by its name; - for standard output")],
    coverage: Annotated[float, typer.Option(help="probability that the interval contains the target")] = 0.95,
    times: Annotated[
        str, typer.Option(help="for times to an event: times at which to give the probability of no event so far")
    ] = "",
    keep: Annotated[str, typer.Option(help="columns to copy, separated by commas; or unused, all or none")] = "unused",
    chunk_size: Annotated[int, typer.Option(min=1, help="rows in memory at once")] = 20_000,
    excel_safe: Annotated[
        bool, typer.Option("--excel-safe", help="escape text that a spreadsheet would read as a formula")
    ] = False,
    force: console.Force = False,
    quiet: console.Quiet = False,
) -> None:
    """Predict each row of a table: prediction, spread and interval, or probabilities; and how unlike training rows it is."""
    if not 0 < coverage < 1:
        raise UserError(f"--coverage must be strictly between 0 and 1; got {coverage:g}.")
    to_stream = str(output) == "-"
    if not to_stream:
        console.check_output(output, force, model, data)
    from gwi._progress import progress
    from gwi.estimators.columns import encoder_of
    from gwi.estimators.tables import load_for_tables, predict_table, require_times
    from gwi.tables.files import atomic_file
    from gwi.tables.source import open_table, read_parts
    from gwi.tables.unlike import Unlike
    from gwi.tables.writer import Writer, kept_names, unused_columns, with_copied

    fitted, source, at = load_for_tables(model), open_table(data), console.times_of(times)
    if at:
        require_times(fitted, "--times", str(model))
    used = encoder_of(fitted).inputs
    kept = kept_names(keep, source.header, used, data)
    if extra := unused_columns(source.header, [*kept, *used]):
        console.note(extra, quiet)
    num_rows, unlike = 0, Unlike()
    opened: Any = console.OutputStream() if to_stream else atomic_file(output)
    with opened as file, Writer(file, () if to_stream else output.suffixes, excel_safe) as writer, progress(not quiet) as report:
        for table, share in read_parts(source, chunk_size):
            writer.write(with_copied(table, kept, predict_table(fitted, table, coverage, unlike, at)))
            num_rows += len(table)
            report("rows", share)
    console.note_unlike(fitted, unlike, quiet)
    if not to_stream:
        console.note(f"predictions of {num_rows} rows are in {console.sized(output)}.", quiet)


@app.command()
def evaluate(
    model: console.ModelFile,
    data: console.DataFile,
    target: console.Target = None,
    event: console.Event = None,
    chunk_size: Annotated[int, typer.Option(min=1, help="rows in memory at once")] = 20_000,
    quiet: console.Quiet = False,
    as_json: console.Json = False,
) -> None:
    """Score a model on a table that has the target."""
    from gwi._progress import progress
    from gwi.estimators.tables import evaluate_tables, load_for_tables, with_target
    from gwi.tables.source import open_table, read_parts
    from gwi.tables.unlike import Unlike

    fitted, source, unlike = load_for_tables(model), open_table(data), Unlike()
    encoder = with_target(fitted, target, event, str(model))
    with progress(not quiet) as report:

        def tables() -> Iterator[Any]:
            for table, share in read_parts(source, chunk_size):
                yield table
                report("rows", share)

        scores = evaluate_tables(fitted, tables(), unlike, encoder)
    console.note_unlike(fitted, unlike, quiet)
    if as_json:
        console.print_json(scores)
    else:
        console.show(f"{model} on {data}", scores)


@app.command()
def report(
    model: console.ModelFile,
    data: console.DataFile,
    output: Annotated[console.Place, console.output("file to write the page to")] = Path("report.html"),
    target: console.Target = None,
    event: console.Event = None,
    max_rows: Annotated[int, typer.Option(min=1, help="most rows to use; of larger tables a random sample")] = 100_000,
    force: console.Force = False,
    quiet: console.Quiet = False,
) -> None:
    """Write an HTML report on a model's predictions for a table that has the target."""
    console.check_page("report", "gwi report", output, force, model, data)
    from gwi._progress import progress
    from gwi.estimators.tables import load_for_tables, with_target
    from gwi.report.examination import examine
    from gwi.report.page import report_page
    from gwi.tables.files import write_atomically
    from gwi.tables.source import open_table
    from gwi.tables.unlike import Unlike

    fitted, source, unlike = load_for_tables(model), open_table(data), Unlike()
    encoder = with_target(fitted, target, event, str(model))
    with console.noted_warnings(quiet), progress(not quiet) as shown:
        examined = examine(fitted, source, 20_000, shown, max_rows, unlike, encoder)
        write_atomically(output, report_page(examined, printable(model.name), printable(data.name)).encode())
    console.note_unlike(fitted, unlike, quiet)
    for finding in examined.checked.findings:
        console.note(f"{finding.severity}: {finding.what} {finding.command_remedy}", quiet or finding.severity == "note")
    shown_rows = f"{len(examined.table)} of {examined.num_rows} rows"
    num_found = len(examined.checked.findings)
    console.say(f"{shown_rows}, {num_found} finding{'s' * (num_found != 1)}: {console.sized(output)}")


@app.command()
def compare(
    data: console.DataFile,
    target: Annotated[str, typer.Option("--target", "-t", help="the column to predict", show_default=False)],
    output: Annotated[console.Place | None, console.output("picture or page to write: .png, .svg or .html")] = None,
    task: Annotated[str, typer.Option(help="regression, classification, or auto to guess it")] = "auto",
    folds: Annotated[int, typer.Option(min=2, max=100, help="number of cross-validation folds")] = 5,
    gp_rows: Annotated[int, typer.Option(min=10, help="most training rows of the exact GP; of more a random sample")] = 1000,
    drop: Annotated[str, typer.Option(help="columns to leave out, separated by commas")] = "",
    max_time: Annotated[float | None, typer.Option(help="time to aim for, in seconds, for each fit of gwi (regression)")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="random seed")] = 0,
    force: console.Force = False,
    quiet: console.Quiet = False,
    as_json: console.Json = False,
) -> None:
    """Compare the default with an exact GP, boosting and a linear model on a table, all on the same folds."""
    console.check_choices(task, max_time)
    console.check_page("report", "gwi compare", output, force, data)
    from gwi._progress import progress
    from gwi.estimators.table_targets import TaskName, guess_task
    from gwi.estimators.tables import is_large, target_of
    from gwi.report.comparison import compare_table
    from gwi.report.comparison_page import check_kind, content, print_comparison
    from gwi.tables.files import write_atomically
    from gwi.tables.source import open_table, read_table

    if output is not None:
        check_kind(output)
    source = open_table(data)
    if is_large(source):
        raise UserError(f"{data} is too large to compare methods in memory; give a sample of its rows.")
    everything = read_table(source)
    chosen = guess_task(everything, target) if task == "auto" else cast(TaskName, task)
    table, y = target_of(everything, target, chosen)
    options: dict[str, Any] = {"num_folds": folds, "seed": seed, "gp_rows": gp_rows, "max_time": max_time}
    with console.noted_warnings(quiet), progress(not quiet) as shown:
        comparison = compare_table(table, y, target, chosen, console.names(drop), report=shown, **options)
    if output is not None:
        write_atomically(output, content(comparison, printable(data.name), output.suffix.lower()))
        console.note(f"the comparison is in {console.sized(output)}.", quiet)
    if as_json:
        console.print_json(comparison.to_json())
    else:
        print_comparison(comparison)


app.command()(info)
app.command()(export)
app.command()(serve)
app.command()(play)


@app.command()
def demo(
    output: Annotated[console.Place, console.output("file to write the picture to")] = Path("demo.png"),
    force: console.Force = False,
) -> None:
    """Train a network with a covariance on one-dimensional data with a gap, and draw it."""
    console.check_page("plots", "gwi demo", output, force)
    from gwi.cli.demo import run as run_demo

    run_demo(output)
