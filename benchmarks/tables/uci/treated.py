"""Peers with what ours has: tails and a scale of their own by rows that their fits have not seen.

Each is fitted six times: on all rows, which chooses its settings within the budget, and with these settings without each of
five folds. The exact GP leaves rows out one at a time in closed form instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from sklearn.model_selection import KFold

from benchmarks.tables.uci import peers
from benchmarks.tables.uci.interface import Budget, Fitted, standardised
from gwi._typing import Array
from gwi.core.distributions import Tails, choose_tails, match_coverage
from gwi.core.laws.protocol import PredictiveLaw
from gwi.core.noise import noise_features
from gwi.evaluation.regression import Law
from gwi.fitting.regression import choose_noise

Fit = Callable[[Array, Array, int, Budget], Fitted]
# Moments of a law at rows: mean and standard deviation.
Moments = tuple[Array, Array]


def moments(law: PredictiveLaw) -> Moments:
    """Mean and standard deviation at each row."""
    return law.expectation(), np.sqrt(law.variance())


def shape_of(z: Array) -> Tails:
    """Scale and tails of standardised errors at unseen rows, as ours are chosen."""
    ones = np.ones_like(z)
    return match_coverage(z, ones, choose_tails(z, ones))


def treated(fit: Fit) -> Fit:
    """The method with Student's tails and a scale by out-of-fold rows."""

    def fitted(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
        whole = fit(x, y, seed, budget)
        return shaped(whole, y, out_of_fold(fit, x, y, seed, Budget(budget.seconds, budget.share_of_steps, whole.settings)))

    return fitted


def treated_gp(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """The exact GP with Student's tails and a scale by rows that are left out one at a time, in closed form."""
    whole, unseen = peers.exact_gp_and_left_out(x, y, budget)
    return shaped(whole, y, unseen)


def shaped(whole: Fitted, y: Array, unseen: Moments) -> Fitted:
    """The method with the scale and the tails that its errors at unseen rows ask for."""
    shape = shape_of((y - unseen[0]) / unseen[1])

    def predict(new: Array) -> Law:
        centre, spread = moments(whole.predict(new))
        return Law(centre[None], spread[None] * math.sqrt(shape.factor), shape.degrees_of_freedom)

    settings = dict(whole.settings) | {"tempering": shape.factor, "degrees_of_freedom": shape.degrees_of_freedom}
    return replace(whole, predict=predict, settings=settings)


def treated_mean(fit: Fit) -> Fit:
    """A method with one variance for all rows: with our noise of out-of-fold residuals, and tails."""

    def fitted(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
        whole = fit(x, y, seed, budget)
        mean, _ = out_of_fold(fit, x, y, seed, Budget(budget.seconds, budget.share_of_steps, whole.settings))
        data = standardised(x, y)
        rows, level = torch.from_numpy(data.x), torch.from_numpy((mean - data.y_centre) / data.y_scale)[None]
        residuals = torch.from_numpy(data.y) - level[0]
        features = noise_features(rows, level)
        noise = choose_noise(residuals, torch.zeros_like(residuals), features, torch.ones_like(residuals), "auto")
        shape = shape_of((residuals / noise.unseen.sqrt()).numpy())

        @torch.no_grad()
        def predict(new: Array) -> Law:
            centre = moments(whole.predict(new))[0]
            at = torch.from_numpy((centre - data.y_centre) / data.y_scale)[None]
            variance = noise.noise(noise_features(torch.from_numpy(data.rows(new)), at)).numpy() * shape.factor
            return Law(centre[None], np.sqrt(variance)[None] * data.y_scale, shape.degrees_of_freedom)

        settings = dict(whole.settings) | {"noise": noise.penalty, "degrees_of_freedom": shape.degrees_of_freedom}
        return replace(whole, predict=predict, settings=settings)

    return fitted


def out_of_fold(fit: Fit, x: Array, y: Array, seed: int, budget: Budget) -> Moments:
    """Mean and standard deviation at each row by a fit without its fold, with the settings that are known."""
    mean, std = np.empty_like(y), np.empty_like(y)
    for train, test in KFold(5, shuffle=True, random_state=seed).split(x):
        found = fit(x[train], y[train], seed, Budget(budget.seconds, budget.share_of_steps, budget.known))
        mean[test], std[test] = moments(found.predict(x[test]))
    return mean, std
