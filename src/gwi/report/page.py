"""A report on a model and a table with known targets: one HTML page that needs nothing else.

All text that comes from the table or the model is escaped; there are no scripts, and pictures and style are part of the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from gwi.report.charts import Figure, figures, verdict
from gwi.report.examination import Examined, heard_columns
from gwi.report.model_part import bar, columns_table, fitted
from gwi.report.svg import percent, shown

# Columns and classes that are listed; of more the first, and how many are left.
MOST_HEARD, MOST_SHOWN_COLUMNS, MOST_CLASSES = 20, 6, 12
LONGEST_CELL = 60
TITLES = {
    "mean-and-kernel-disagree": "Confident and wrong",
    "few-inducing-points": "Too few inducing points",
    "length-scales-at-bounds": "Length-scales are off",
    "variance-collapsed": "The variance has collapsed",
    "tempering-far-from-one": "The variance had to be corrected by much",
    "miscalibrated": "Promises are not kept",
    "duplicates": "Rows that training has seen",
    "far-from-training": "Rows far from training rows",
    "classes-have-shifted": "Shares of the classes have changed",
}
SEVERITIES = {"severe": "severe", "warning": "warning", "note": "note-level"}
SCORE_NAMES = {
    "rmse": ("RMSE", "root of the mean squared error, in the unit of the target"),
    "mae": ("MAE", "mean absolute error"),
    "crps": ("CRPS", "error of the whole predicted law; for a law without spread it is the MAE"),
    "nll": ("NLL", "minus the logarithm of the probability given to what happened; lower is better"),
    "coverage_90": ("coverage of 90 % intervals", "share of rows inside"),
    "coverage_95": ("coverage of 95 % intervals", "share of rows inside"),
    "width_90": ("width of 90 % intervals", "mean, in the unit of the target"),
    "width_95": ("width of 95 % intervals", "mean, in the unit of the target"),
    "calibration_error": ("calibration error", "root mean square gap between promised and found shares"),
    "accuracy": ("accuracy", "share of rows predicted right"),
    "brier": ("Brier score", "squared distance of the probabilities from what happened, 0 to 2"),
    "ece": ("ECE", "mean gap between confidence and accuracy in 15 groups"),
}
# A number with a point, and as long as one is shown with all its digits.
FRACTION, LONGEST_FRACTION = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?"), 8
# Names of cells, the cells of a row, and which of them are numbers.
Described = tuple[list[str], Callable[[int], list[str]], tuple[int, ...]]
SHARES = ("coverage_90", "coverage_95", "calibration_error", "accuracy", "ece")


def report_page(found: Examined, model_name: str, data_name: str) -> str:
    """The page."""
    target = found.tool.columns.target
    kind = "Classes of" if found.tool.task == "classification" else "Predictions of"
    sections = [
        _head(found, model_name, data_name),
        _findings(found),
        _section(
            "Can its uncertainty be trusted?",
            "Every picture is drawn from the rows of the test file; grey is what chance alone would do.",
            f'<div class="figures">{"".join(map(_figure, figures(found)))}</div>',
        ),
        _classes(found) if found.tool.task == "classification" else "",
        _rows_to_look_at(found),
        _kernel(found),
        _section("All scores", "", _scores(found)),
        _section("What was fitted", "", fitted(found.tool) + columns_table(found.tool)),
    ]
    style = files("gwi.report").joinpath("report.css").read_text()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{kind} {escape(target)}: report</title><style>{style}</style></head>"
        f'<body><div class="page">{"".join(sections)}{_foot()}</div></body></html>\n'
    )


def _say(text: str) -> str:
    """Our own words, where a number and its percent sign stay together."""
    return escape(text).replace(" %", "\u00a0%")


def _section(title: str, lead: str, content: str) -> str:
    words = f'<p class="lead">{escape(lead)}</p>' if lead else ""
    return f"<section><h2>{escape(title)}</h2>{words}{content}</section>"


def _head(found: Examined, model_name: str, data_name: str) -> str:
    num_rows, target = len(found.table), found.tool.columns.target
    facts = (("test file", data_name), ("model", model_name), ("rows", shown(num_rows)), ("task", found.tool.task))
    line = "".join(f"<span>{escape(name)} <b>{escape(value)}</b></span>" for name, value in facts)
    looked = num_rows + found.num_without_target
    notes = []
    if looked < found.num_rows:
        notes.append(f"The file has {shown(found.num_rows)} rows; {shown(looked)} of them, drawn at random, are looked at here.")
    if found.num_without_target:
        notes.append(f"{shown(found.num_without_target)} rows have no value of {target!r} and are left out.")
    note = f'<p class="note">{escape(" ".join(notes))}</p>' if notes else ""
    words, tiles = (_class_summary if found.tool.task == "classification" else _summary)(found)
    return (
        f'<header><p class="over">Model report</p><h1>How well is <em>{escape(target)}</em> predicted?</h1>'
        f'<p class="facts">{line}</p><p class="verdict">{_say(words)}</p>{note}<div class="tiles">{"".join(tiles)}</div></header>'
    )


def _tile(name: str, value: str, why: str, mood: str = "") -> str:
    return (
        f'<div class="tile {mood}"><p class="name">{_say(name)}</p><p class="value">{_say(value)}</p>'
        f'<p class="why">{_say(why)}</p></div>'
    )


def _summary(found: Examined) -> tuple[str, list[str]]:
    """A verdict in words, and the numbers that matter, for a regression."""
    scores, y = found.scores, found.judged.y
    num_rows = len(y)
    said = verdict(round(scores["coverage_95"] * num_rows), num_rows, 0.95)
    low, high = (end / num_rows for end in binom.interval(0.95, num_rows, 0.95))
    spread = float(y.std())
    words = f"95 % intervals hold {percent(scores['coverage_95'], 1)} of {shown(num_rows)} rows: {said}."
    ratio = scores["rmse"] / spread if spread > 0 else math.nan
    if ratio == ratio:
        better = "less than" if ratio < 0.99 else "no better than" if ratio < 1.01 else "worse than"
        words += f" The typical error is {shown(scores['rmse'])}, {better} the {shown(spread)} of always predicting the mean."
    held = found.tool.scores.get("crps")
    expected = f"{shown(held)} on rows held out at the fit" if held is not None else "lower is better"
    tiles = [
        _tile(
            "95 % intervals hold",
            percent(scores["coverage_95"], 1),
            f"{said}; by chance {percent(low, 1)} to {percent(high, 1)}",
            "good" if said == "as promised" else "" if said.startswith("a little") else "bad",
        ),
        _tile("Typical error (RMSE)", shown(scores["rmse"]), f"the target's own spread is {shown(spread)}", _mood(ratio)),
        _tile("Width of 95 % intervals", shown(scores["width_95"]), "on average, in the unit of the target"),
        _tile("CRPS", shown(scores["crps"]), expected),
    ]
    return words, tiles


def _mood(ratio: float) -> str:
    return "" if math.isnan(ratio) else "good" if ratio < 0.99 else "bad" if ratio > 1.01 else ""


def _class_summary(found: Examined) -> tuple[str, list[str]]:
    """The same for a classification."""
    scores, y, probabilities = found.scores, found.judged.y, found.judged.first
    common = np.bincount(y).max() / len(y)
    sure = float(probabilities.max(1).mean())
    shares = np.bincount(y) / len(y)
    guess = -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())
    is_off = any(finding.kind == "miscalibrated" for finding in found.findings)
    balance = "probabilities match" if not is_off else "too sure" if sure > scores["accuracy"] else "too modest"
    words = (
        f"{percent(scores['accuracy'], 1)} of {shown(len(y))} rows are predicted right, with a mean confidence of "
        f"{percent(sure, 1)}: {balance}. Always naming the most common class would be right at {percent(common, 1)}."
    )
    ratio = (1 - scores["accuracy"]) / (1 - common) if common < 1 else math.nan
    tiles = [
        _tile("Predicted right", percent(scores["accuracy"], 1), f"the most common class: {percent(common, 1)}", _mood(ratio)),
        _tile("Mean confidence", percent(sure, 1), balance, "bad" if is_off else "good"),
        _tile(
            "NLL",
            shown(scores["nll"]),
            f"with the classes' shares alone: {shown(guess)}",
            _mood(scores["nll"] / guess if guess else math.nan),
        ),
        _tile("Calibration error (ECE)", percent(scores["ece"], 1), "mean gap of confidence and accuracy"),
    ]
    return words, tiles


def _findings(found: Examined) -> str:
    items = []
    for finding in found.findings:
        title = TITLES.get(finding.kind, finding.kind.replace("-", " ").capitalize())
        items.append(
            f'<li class="finding {SEVERITIES[finding.severity]}"><h3><span class="mark">{finding.severity}</span>'
            f'{escape(title)}</h3><p>{escape(finding.what)}</p><p class="remedy">{escape(finding.remedy)}</p></li>'
        )
    if not items:
        text = f"{found.num_checks} checks, nothing found." if found.num_checks else "There are too few rows for the checks."
        items = [f'<li class="finding fine"><h3><span class="mark">fine</span>{escape(text)}</h3></li>']
    return _section("Findings", "", f'<ul class="findings">{"".join(items)}</ul>')


def _figure(figure: Figure) -> str:
    return (
        f"<figure><h3>{_say(figure.title)}</h3>{figure.picture}{figure.legend}"
        f"<figcaption>{_say(figure.reading)}</figcaption></figure>"
    )


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = (), look: str = "") -> str:
    """A table of cells that are HTML already; records become lists of names and values on a narrow page."""
    right = set(numeric)
    head = "".join(f'<th class="{"n" if i in right else ""}">{escape(name)}</th>' for i, name in enumerate(names))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{"n" if i in right else ""}" data-name="{escape(names[i])}"><span>{cell}</span></td>'
            for i, cell in enumerate(cells)
        )
        + "</tr>"
        for cells in rows
    )
    return f'<div class="card"><table class="{look}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _scores(found: Examined) -> str:
    held = found.tool.scores
    names = ["score", "this file", *(["held out at the fit"] if held else [])]
    rows = []
    for name, value in found.scores.items():
        if name in SCORE_NAMES:
            show = (lambda v: percent(v, 1)) if name in SHARES else shown
            old = [show(held.get(name, math.nan))] if held else []
            label, meaning = SCORE_NAMES[name]
            rows.append([f"{escape(label)}<small>{escape(meaning)}</small>", show(value), *old])
    note = ""
    if held:
        note = f'<p class="note">At the fit {shown(held.get("rows", math.nan))} rows were held out of a model of the others.</p>'
    return _table(names, rows, range(1, len(names))) + note


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"


def _cell(value: object) -> str:
    return escape(_short(value))


def _input_cell(value: object) -> str:
    """A cell of the user's table; of a fraction with many digits the first five, the others where a pointer rests on it."""
    text = _short(value)
    if len(text) <= LONGEST_FRACTION or not FRACTION.fullmatch(text):
        return escape(text)
    number = float(text)
    return f'<span title="{escape(text)}">{number:.{5 if abs(number) < 1e5 else 12}g}</span>'


def _shown_columns(found: Examined) -> list[str]:
    """Columns that tell rows apart come first, then those that the kernel listens to most."""
    columns = found.tool.columns
    used = [column.name for column in columns.columns]
    spare = [name for name in found.table.names if name not in used and name != columns.target]
    heard = [heard.name for heard in heard_columns(found.tool)] or used
    return (spare[:2] + heard)[:MOST_SHOWN_COLUMNS]


def _rows_to_look_at(found: Examined) -> str:
    chosen = np.concatenate([found.most_uncertain, found.most_surprising])
    lines = dict(zip(chosen.tolist(), found.table.source.lines(found.table.rows[chosen].tolist()), strict=True))
    columns = _shown_columns(found)
    where = "row" if found.table.source.is_parquet else "line"
    cells = found.table[chosen].data.select(columns).to_pydict()
    values = {int(row): [_input_cell(cells[name][i]) for name in columns] for i, row in enumerate(chosen)}
    own, describe, numeric = (_class_cells if found.tool.task == "classification" else _number_cells)(found)
    names = [where, *own, *columns]
    tables = []
    for title, rows in (("Most uncertain", found.most_uncertain), ("Most surprising", found.most_surprising)):
        body = [[str(lines[int(row)]), *describe(int(row)), *values[int(row)]] for row in rows]
        tables.append(f'<h3 class="above">{title}</h3>{_table(names, body, [0, *(1 + i for i in numeric)], "records")}')
    lead = "The widest predictions, where a measurement would teach the model most; and the targets it least expected."
    if found.tool.task == "classification":
        lead = "The rows it is least sure of, where a label would teach the model most; and the classes it least expected."
    return _section("Rows to look at", lead, "".join(tables))


def _number_cells(found: Examined) -> Described:
    law, y = found.law, found.judged.y
    inside = (law.quantile(0.025) <= y) & (y <= law.quantile(0.975))
    marks = {True: '<span class="mark good">inside</span>', False: '<span class="mark bad">outside</span>'}

    def describe(row: int) -> list[str]:
        numbers = (float(v[row]) for v in (law.mean[0], law.std[0], y))
        return [*map(shown, numbers), marks[bool(inside[row])]]

    return ["predicted", "± std", "found", "95 % interval"], describe, (0, 1, 2)


def _class_cells(found: Examined) -> Described:
    probabilities, y, classes = found.judged.first, found.judged.y, found.tool.estimator.classes_
    best = probabilities.argmax(1)
    marks = {True: '<span class="mark good">right</span>', False: '<span class="mark bad">wrong</span>'}

    def describe(row: int) -> list[str]:
        return [
            _cell(classes[best[row]]),
            percent(float(probabilities[row, best[row]]), 1),
            _cell(classes[y[row]]),
            percent(float(probabilities[row, y[row]]), 1),
            marks[bool(best[row] == y[row])],
        ]

    return ["predicted", "probability", "found", "its probability", ""], describe, (1, 3)


def _classes(found: Examined) -> str:
    """Confusion counts, and what was said of each class."""
    probabilities, y, classes = found.judged.first, found.judged.y, found.tool.estimator.classes_
    best, count = probabilities.argmax(1), len(classes)
    confusion = np.zeros((count, count), dtype=np.int64)
    np.add.at(confusion, (y, best), 1)
    title = "Found, and predicted"
    if count <= MOST_CLASSES:
        left = _confusion(confusion, classes.tolist())
    else:
        title = "Most common mistakes"
        wrong = [(int(confusion[i, j]), i, j) for i, j in np.argwhere(confusion * (1 - np.eye(count, dtype=np.int64)))]
        rows = [[_cell(classes[i]), _cell(classes[j]), shown(n)] for n, i, j in sorted(wrong, reverse=True)[:15]]
        left = _table(["found", "predicted instead", "rows"], rows, [2]) if rows else "<p>Every row is predicted right.</p>"
    order = np.argsort(-confusion.sum(1), kind="stable")[: 2 * MOST_CLASSES]
    rows = []
    for j in order:
        num, named = int(confusion[j].sum()), int(confusion[:, j].sum())
        right = int(confusion[j, j])
        rows.append(
            [
                _cell(classes[j]),
                shown(num),
                shown(float(probabilities[:, j].sum())),
                percent(right / num) if num else "–",
                percent(right / named) if named else "–",
            ]
        )
    names = ["class", "rows", "expected", "recall", "precision"]
    more = f'<p class="note">The {len(order)} most common of {count} classes.</p>' if count > len(order) else ""
    return _section(
        "Class by class",
        "Expected is the sum of the probabilities of a class: about as many rows as it has, if they are right. Recall: the share "
        "of its rows that are found again. Precision: how often it is right when it is predicted.",
        f'<div class="two"><div><h3 class="above">{title}</h3>'
        f'{left}</div><div><h3 class="above">Each class</h3>{_table(names, rows, (1, 2, 3, 4))}{more}</div></div>',
    )


def _confusion(confusion: NDArray[np.int64], classes: Sequence[object]) -> str:
    head = "".join(f"<th>{_cell(name)}</th>" for name in classes)
    share = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    body = ""
    for i, name in enumerate(classes):
        cells = "".join(
            f'<td class="{"hit" if i == j else "miss"}{" deep" if share[i, j] > 0.6 else ""}" '
            f'style="--depth: {85 * share[i, j]:.0f}%">{confusion[i, j]}</td>'
            for j in range(len(confusion))
        )
        body += f"<tr><th>{_cell(name)}</th>{cells}</tr>"
    return (
        '<div class="card"><table class="confusion"><thead><tr><th>found ↓ predicted →</th>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _kernel(found: Examined) -> str:
    heard = heard_columns(found.tool)
    if not heard:
        return ""
    top = heard[0].share
    bars = ""
    for item in heard[:MOST_HEARD]:
        unit = "" if math.isnan(item.own_unit) else f" = {shown(item.own_unit, 3)} in its unit"
        note = f"{shown(item.lengthscale, 3)} std{unit}"
        bars += bar(_short(item.name), item.share / top, percent(item.share), note)
    rest = heard[MOST_HEARD:]
    if rest:
        share = sum(item.share for item in rest)
        bars += bar(f"{len(rest)} more columns", share / top, percent(share), " ")
    return _section(
        "Which columns the kernel listens to",
        "The share of each column in what makes two rows different for the kernel, which gives the uncertainty its shape; below "
        "it the length-scale: how far one has to go until the function changes. Trees and networks choose for themselves.",
        f'<div class="card"><div class="bars">{bars}</div></div>',
    )


def _foot() -> str:
    from gwi import __version__

    return (
        f"<footer>Written by gwi {escape(__version__)}. The page holds all it shows; nothing is fetched from the network."
        "</footer>"
    )
