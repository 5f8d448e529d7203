"""Scores, as plain functions and scorers; checks and the diagnosis."""

from gwi.evaluation.metrics import coverage as coverage
from gwi.evaluation.metrics import crps as crps
from gwi.evaluation.metrics import interval_score as interval_score
from gwi.evaluation.metrics import nll as nll
from gwi.evaluation.metrics import pit as pit
from gwi.evaluation.metrics import scorer as scorer
