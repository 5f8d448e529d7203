"""Pages with tables: a page marks where one goes with ``<!-- table: name -->`` and ``<!-- end -->``."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.render import (
    choice_tables,
    context_tables,
    cost_tables,
    evidence_tables,
    explanation_tables,
    export_tables,
    frame_tables,
    likelihood_tables,
    record_tables,
    serving_tables,
    set_tables,
    speed_tables,
    summary_tables,
)
from benchmarks.tables.common.records import ROOT, read


def figure(name: str) -> Callable[[], str]:
    """What a figure's own module says in numbers of its records."""
    return lambda: importlib.import_module(f"benchmarks.figures.{name}").words()


def uci() -> str:
    """Mean NLL of each method on each UCI table, from the fits that its table exported."""
    # The module brings every method along.
    from benchmarks.tables.uci.page import short

    return short({**record, "split": int(record["split"]), "nll": float(record["nll"])} for record in read("uci"))


FIGURES = ("one_dimension", "comparison", "two_dimensions", "spectrum", "misspecification", "calibration", "shrinkage")

TABLES: dict[str, Callable[[], str]] = {
    f.__name__: f
    for f in (
        record_tables.coverage,
        record_tables.covariance,
        record_tables.covariance_summary,
        context_tables.context,
        context_tables.context_summary,
        record_tables.robust_max,
        record_tables.hostile,
        record_tables.convergence,
        record_tables.hyper_priors,
        record_tables.estimator_coverage,
        record_tables.small_tables,
        record_tables.ablation,
        record_tables.ablation_within,
        cost_tables.speed,
        cost_tables.prediction_speed,
        cost_tables.play_redraw,
        speed_tables.fit_speed,
        speed_tables.fit_scores,
        speed_tables.max_time_kept,
        speed_tables.label_speed,
        speed_tables.practice_scores,
        cost_tables.stream_speed,
        cost_tables.processes,
        cost_tables.scaling,
        cost_tables.deaths,
        record_tables.bayesian_optimisation,
        record_tables.classification,
        record_tables.feature_choice,
        record_tables.images,
        record_tables.optimism,
        record_tables.campaign,
        record_tables.who_judges,
        uci,
        summary_tables.uci_answer,
        summary_tables.uci_scores,
        summary_tables.uci_losses,
        summary_tables.uci_extent,
        summary_tables.images_missed,
        summary_tables.images_cost,
        evidence_tables.pays_covariance,
        evidence_tables.pays_tails,
        evidence_tables.pays_mean,
        evidence_tables.pays_network,
        evidence_tables.better_elsewhere,
        evidence_tables.pays_wasserstein,
        evidence_tables.joint_predictions,
        evidence_tables.active_learning,
        evidence_tables.ood_tables,
        evidence_tables.infinite_kl,
        evidence_tables.region_folds,
        evidence_tables.gap_spread,
        evidence_tables.handover,
        evidence_tables.one_rule,
        explanation_tables.explanation_background,
        explanation_tables.explanation_cost,
        frame_tables.mixed_tables,
        frame_tables.mixed_losses,
        frame_tables.mixed_coverage,
        frame_tables.wrapped_models,
        frame_tables.versions,
        frame_tables.large_modules,
        frame_tables.text_columns,
        frame_tables.tree_inputs,
        evidence_tables.network_mean,
        evidence_tables.network_smooth,
        evidence_tables.few_rows,
        record_tables.diagnostics_faults,
        record_tables.diagnostics_uci,
        choice_tables.known,
        choice_tables.chosen,
        choice_tables.leaves,
        likelihood_tables.likelihoods_places,
        likelihood_tables.likelihoods_count,
        likelihood_tables.likelihoods_folds,
        likelihood_tables.prior_draws,
        *likelihood_tables.BY_FAMILY,
        set_tables.label_sets,
        set_tables.stratum_intervals,
        set_tables.set_scores,
        export_tables.onnx_export,
        serving_tables.serving,
        serving_tables.serving_borne,
    )
} | {f"figure_{name}": figure(name) for name in FIGURES}


def rendered(text: str) -> str:
    """The page with every marked table renewed."""

    def replace(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", replace, text, flags=re.DOTALL)


def pages() -> list[Path]:
    """All that may hold a table."""
    return [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
