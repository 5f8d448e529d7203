"""Scores, as plain functions and scorers; checks and the diagnosis."""

from gwi.evaluation.metrics import coverage as coverage
from gwi.evaluation.metrics import crps as crps
from gwi.evaluation.metrics import interval_score as interval_score
from gwi.evaluation.metrics import nll as nll
from gwi.evaluation.metrics import pit as pit
from gwi.evaluation.metrics import scorer as scorer
from gwi.evaluation.survival import brier_at as brier_at
from gwi.evaluation.survival import concordance as concordance
from gwi.evaluation.survival import integrated_brier as integrated_brier
from gwi.evaluation.survival import kaplan_meier as kaplan_meier
from gwi.evaluation.survival_calibration import calibration_at as calibration_at
from gwi.evaluation.survival_calibration import d_calibration as d_calibration
