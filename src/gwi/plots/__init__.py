"""Pictures of a fitted estimator: what it predicts, whether it keeps its promises, and where it knows nothing.

Every function draws on the axes it is given, or on new ones, and returns them; nothing is shown, saved or set globally. Colours
are Okabe and Ito's, told apart by all eyes, and 600 pixels are wide enough to read them.
"""

from gwi._extras import require

require("plots", "gwi.plots")

from gwi.plots.any_target import plot_calibration, plot_pit
from gwi.plots.calibration import plot_coverage_by_prediction
from gwi.plots.counts import plot_rootogram
from gwi.plots.errors import plot_actual_vs_predicted, plot_errors
from gwi.plots.explanation import plot_explanation
from gwi.plots.histograms import plot_confidence, plot_outlier_scores
from gwi.plots.scores import plot_scores
from gwi.plots.slices import plot_prediction, plot_uncertainty_map
from gwi.plots.spectrum import plot_spectrum
from gwi.plots.survival import plot_survival

__all__ = [
    "plot_actual_vs_predicted",
    "plot_calibration",
    "plot_confidence",
    "plot_coverage_by_prediction",
    "plot_errors",
    "plot_explanation",
    "plot_outlier_scores",
    "plot_pit",
    "plot_prediction",
    "plot_rootogram",
    "plot_scores",
    "plot_spectrum",
    "plot_survival",
    "plot_uncertainty_map",
]
