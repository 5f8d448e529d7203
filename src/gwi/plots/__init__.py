"""Pictures of a fitted estimator."""

from gwi.plots.charts import plot_calibration, plot_errors, plot_pit, plot_prediction, plot_spectrum, plot_uncertainty_map

__all__ = ["plot_calibration", "plot_errors", "plot_pit", "plot_prediction", "plot_spectrum", "plot_uncertainty_map"]
