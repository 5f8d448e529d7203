"""What was fitted, for a report: means and weights, kernel, covariance, noise and tails, and how columns became numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import torch

from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.regressor import GWIRegressor
from gwi.estimators.table_model import Tool
from gwi.report.svg import percent, shown
from gwi.tables.encoder import Column

# Names of means for readers; others are shown as they are.
MEANS = {
    "svgp": "Gaussian process (svgp)",
    "svgp-all": "Gaussian process on all rows",
    "network": "networks",
    "HistGradientBoostingRegressor": "boosted trees",
    "HistGradientBoostingClassifier": "boosted trees",
    "ExtraTreesRegressor": "extra trees",
    "ExtraTreesClassifier": "extra trees",
    "RidgeCV": "linear (ridge)",
    "linear": "linear",
}
MOST_COLUMNS = 60
KERNELS = {"RBFKernel": "squared exponential (RBF)", "MaternKernel": "Matérn", "RQKernel": "rational quadratic"}


def fitted(tool: Tool) -> str:
    """Two lists: the model, and its means."""
    rows = _regression(tool) if isinstance(tool.estimator, GWIRegressor) else _classification(tool)
    return f'<div class="two"><div><h3 class="above">Model</h3><div class="card">{_list(rows)}</div></div>{_means(tool)}</div>'


def _list(rows: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return f'<dl class="list">{items}</dl>'


def _common(tool: Tool) -> list[tuple[str, str]]:
    summary, columns = tool.estimator.summary_, tool.columns
    every = ", every training row" if summary.num_inducing == summary.num_rows else ""
    inputs = f"{shown(len(columns.columns))} columns as {shown(len(columns.features))} numbers"
    return [
        ("task", f"{tool.task} of {columns.target}"),
        ("training rows", shown(summary.num_rows)),
        ("inputs", inputs),
        ("kernel", _kernel(tool)),
        ("inducing points (M)", shown(summary.num_inducing) + every),
    ]


def _kernel(tool: Tool) -> str:
    kernel = tool.estimator.posterior_.kernel.prior_kernel
    base = getattr(kernel, "base_kernel", kernel)
    name = KERNELS.get(type(base).__name__, type(base).__name__)
    if type(base).__name__ == "MaternKernel":
        name += f" {base.nu:g}"
    count = base.lengthscale.numel() if base.has_lengthscale else 0
    own = "one length-scale for all columns" if count == 1 else "a length-scale for each number"
    outputscale = getattr(kernel, "outputscale", None)
    prior = "" if outputscale is None else f", prior standard deviation {shown(float(outputscale.detach().mean().sqrt()))}"
    return f"{name}, {own}{prior}" + (" of that of the target" if prior and tool.task == "regression" else "")


def _regression(tool: Tool) -> list[tuple[str, str]]:
    assert isinstance(tool.estimator, GWIRegressor)
    summary, model = tool.estimator.summary_, tool.estimator.model_
    with torch.no_grad():
        level = float((model.noises[0].log_level / 2).exp()) * float(model.scales.y_scale[0])
    constant = math.isinf(summary.noise[0])
    degrees = summary.degrees_of_freedom[0]
    factor = summary.tempering[0]
    rows = _common(tool)
    rows.append(("covariance", _covariance(summary.covariance, summary.divergence_weight)))
    rows.append(("noise", f"{'constant' if constant else 'depends on the row, about'} {shown(level)} (standard deviation)"))
    rows.append(("tempering", f"variance times {shown(factor)}, chosen on unseen rows"))
    rows.append(("tails", "normal" if math.isinf(degrees) else f"Student’s t with {shown(degrees)} degrees of freedom"))
    if any(summary.disagreement_weight):
        rows.append(("disagreement", f"{shown(summary.disagreement_weight[0])} times the spread of the means is added"))
    rows.append(("fit", f"{shown(summary.seconds)} s"))
    return rows + ([("note", summary.note)] if summary.note else [])


def _classification(tool: Tool) -> list[tuple[str, str]]:
    assert isinstance(tool.estimator, GWIClassifier)
    summary, names = tool.estimator.summary_, [str(name) for name in tool.estimator.classes_]
    low, high = min(summary.tempering), max(summary.tempering)
    rows = _common(tool)
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    rows.insert(1, ("classes", f"{summary.num_classes}: {listed}"))
    rows.append(("covariance", _covariance(summary.covariance, summary.divergence_weight)))
    rows.append(("noise", "none: the class is drawn from the softmax of the logits"))
    rows.append(("scale of the logits", f"times {shown(summary.logit_scale)}, chosen on unseen rows"))
    rows.append(("tempering", f"variance times {shown(low)}{'' if low == high else f' to {shown(high)}'}, chosen on unseen rows"))
    if summary.disagreement_weight:
        rows.append(("disagreement", f"{shown(summary.disagreement_weight)} times the spread of the means is added"))
    rows.append(("fit", f"{shown(summary.seconds)} s"))
    return rows + ([("note", summary.note)] if summary.note else [])


def _covariance(name: str, weights: Sequence[float]) -> str:
    names = {"wasserstein": "optimal under W₂²", "titsias": "Titsias’", "zero": "zero at the inducing points"}
    if name == "titsias" or not weights:
        return names.get(name, name)
    low, high = min(weights), max(weights)
    return f"{names.get(name, name)}, weight β = {shown(low)}{'' if low == high else f' to {shown(high)}'}"


def bar(name: str, share: float, amount: str, note: str = "") -> str:
    """One bar of a list of bars, with its name, number and a smaller note."""
    small = f"<small>{escape(note)}</small>" if note else ""
    return (
        f'<div class="item{" long" if note else ""}"><span class="name">{escape(name)}</span><div class="track">'
        f'<div class="fill" style="width: {100 * min(max(share, 0.0), 1.0):.1f}%"></div></div>'
        f'<span class="amount">{escape(amount)}{small}</span></div>'
    )


def _means(tool: Tool) -> str:
    """Each mean that was tried, with a bar for its weight."""
    if isinstance(tool.estimator, GWIRegressor):
        judged, unit = "RMSE", "is of the target’s standard deviation"
        found = [(member.name, member.weights[0], member.unseen_rmse) for member in tool.estimator.summary_.members]
    else:
        judged, unit = "NLL", "is of each alone, with its best temperature"
        found = [(member.name, member.weight, member.unseen_nll) for member in tool.estimator.summary_.members]
    bars = "".join(
        bar(MEANS.get(name, name), weight, percent(weight), f"unseen {judged} {shown(score)}") for name, weight, score in found
    )
    return (
        f'<div><h3 class="above">Means and their weights</h3><div class="card"><div class="bars">{bars}</div></div>'
        f'<p class="note">Weights are chosen on rows that the means had not seen; {judged} {unit}.</p></div>'
    )


def _becomes(column: Column) -> str:
    if column.kind == "number":
        text = "itself"
    elif column.kind == "categories":
        text = f"1 or 0 for each of {len(column.values)} values: {', '.join(column.values[:6])}{' …' * (len(column.values) > 6)}"
    elif column.kind == "frequency":
        text = f"the share of training rows with the same of {len(column.values)} values"
    else:
        parts = [name.split(" of ")[0] for i, name in enumerate(column.all_features[:-1]) if i in column.kept]
        text = ", ".join(parts)
    missing = len(column.all_features) - 1 in column.kept
    return text + ("; and whether it is missing" if missing else "")


def columns_table(tool: Tool) -> str:
    """How each column became numbers, and which were left out."""
    columns = tool.columns.columns
    rows = "".join(
        f"<tr><td>{escape(c.name)}</td><td>{c.kind}</td><td>{escape(_becomes(c))}</td></tr>" for c in columns[:MOST_COLUMNS]
    )
    rows += "".join(
        f'<tr><td>{escape(name)}</td><td class="dim">not used</td><td class="dim">it {escape(reason)}</td></tr>'
        for name, reason in tool.columns.dropped[:MOST_COLUMNS]
    )
    left = max(len(columns) - MOST_COLUMNS, 0) + max(len(tool.columns.dropped) - MOST_COLUMNS, 0)
    more = f'<p class="note">{shown(left)} more columns are not listed.</p>' if left else ""
    return (
        '<h3 class="above">How columns became numbers</h3><div class="card"><table class="columns"><thead><tr><th>column</th>'
        f"<th>kind</th><th>becomes</th></tr></thead><tbody>{rows}</tbody></table></div>{more}"
    )
