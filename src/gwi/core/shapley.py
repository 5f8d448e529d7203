"""Shapley values of games between columns: what each adds to a value, averaged over all orders in which they may come.

In the game of a background row b the value of a coalition is that of the row whose columns in the coalition are those of x and
whose others are those of b (the interventional game of Lundberg & Lee, 2017); columns in which x and b are equal add nothing and
do not play. Games with few players are solved by their definition, all coalitions at once, the others by orders drawn at random,
each with its reverse, so that parts add up exactly either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Rows that are evaluated together.
CHUNK_ROWS = 2048
# Pairs of orders beyond the first of a background row that tell by how much others differ, too.
FEWEST_REPEATED = 4
# With more players a table of all coalitions is never made.
MOST_ENUMERATED = 16

# From coalitions, and the background row of each, to the value of each output.
Game = Callable[[Bool[Tensor, "n D"], Int[Tensor, " n"]], Float[Tensor, "J n"]]


@dataclass(frozen=True)
class Shapley:
    """What each player adds, averaged over background rows.

    Attributes:
        parts: of each output and player; with `base` they add up to `whole`.
        base: mean value of the background rows.
        whole: the value of x.
        standard_error: of each part, of orders drawn at random; zero where all coalitions were looked at.
        num_evaluations: of the game.
    """

    parts: Float[Tensor, "J D"]
    base: Float[Tensor, " J"]
    whole: Float[Tensor, " J"]
    standard_error: Float[Tensor, "J D"]
    num_evaluations: int

    @property
    def is_exact(self) -> bool:
        """Whether no part was found by drawing."""
        return not bool(self.standard_error.any())


@cache
def coalitions(num_players: int) -> Bool[Tensor, "C n"]:
    """All of them, the empty one first, the whole last."""
    return (torch.arange(2**num_players)[:, None] >> torch.arange(num_players)) % 2 == 1


@cache
def coalition_weights(num_players: int) -> Float[Tensor, "n C"]:
    """What the value of each coalition counts for each player: |S − 1|! (n − |S|)!/n! for those in it, less for the others."""
    inside, n = coalitions(num_players), num_players
    size = inside.sum(1)
    of_size = torch.tensor([1 / (n * math.comb(n - 1, s)) for s in range(n)], dtype=torch.float64)
    gained, lost = of_size[(size - 1).clamp_min(0)], of_size[size.clamp_max(n - 1)]
    return torch.where(inside.T, gained, -lost)


@dataclass(frozen=True)
class _Plan:
    """The coalitions of one background row that are evaluated, and how parts follow from them.

    Attributes:
        players: who play.
        chosen: coalitions of these.
        num_pairs: of orders drawn at random; zero where all coalitions are there.
        orders: places of the players in each order; each is followed by its reverse.
    """

    players: Int[Tensor, " n"]
    chosen: Bool[Tensor, "C n"]
    num_pairs: int = 0
    orders: Int[Tensor, "P n"] | None = None

    def parts(self, values: Float[Tensor, "J C"], empty: Float[Tensor, " J"], whole: Float[Tensor, " J"]) -> Tensor:
        """What each player adds: of all coalitions one answer, of orders one of each pair; (J, P, n)."""
        if self.orders is None:
            values = torch.cat([empty[:, None], values, whole[:, None]], dim=1)
            return (values @ coalition_weights(len(self.players)).to(values).T)[:, None]
        n = len(self.players)
        inner = values.reshape(len(values), 2 * self.num_pairs, n - 1)
        first, last = (end[:, None, None].expand(-1, 2 * self.num_pairs, 1) for end in (empty, whole))
        gains = torch.cat([first, inner, last], dim=2).diff(dim=2)
        placed = torch.empty_like(gains).scatter_(2, self.orders.expand_as(gains), gains)
        return placed.reshape(len(values), self.num_pairs, 2, n).mean(2)


def _plan(players: Int[Tensor, " n"], budget: int, generator: torch.Generator) -> _Plan:
    n = len(players)
    if n <= MOST_ENUMERATED and 2**n <= max(budget, 4):
        return _Plan(players, coalitions(n)[1:-1].to(players.device))
    num_pairs = max(1, budget // (2 * (n - 1)))
    drawn = torch.stack([torch.randperm(n, generator=generator) for _ in range(num_pairs)])
    orders = torch.stack([drawn, drawn.flip(1)], dim=1).flatten(0, 1)
    rank = torch.argsort(orders, dim=1)
    chosen = rank[:, None, :] <= torch.arange(n - 1)[:, None]
    return _Plan(players, chosen.flatten(0, 1).to(players.device), num_pairs, orders.to(players.device))


@torch.no_grad()
def shapley_values(
    game: Game,
    differs: Bool[Tensor, "B D"],
    whole: Float[Tensor, " J"],
    background_values: Float[Tensor, "J B"],
    *,
    budget: int,
    generator: torch.Generator,
) -> Shapley:
    """What each column of one row adds to its value.

    Args:
        game: gives values of coalitions with background rows.
        differs: whether the row and a background row differ in a column.
        whole: the value of the row.
        background_values: of the background rows themselves.
        budget: evaluations at most, of all background rows together, but of each at least one pair of orders.
        generator: of the orders.
    """
    num_background, num_players = differs.shape
    plans, left = [], 0
    for row in differs:
        # What one leaves is for the next: pairs of many players are large parts of the budget.
        left += budget // num_background
        plans.append(_plan(row.nonzero()[:, 0], left, generator))
        left = max(left - len(plans[-1].chosen), 0) if plans[-1].num_pairs else 0
    values = _evaluated(game, plans, num_players, whole)
    found = whole.new_zeros(len(whole), num_background, num_players)
    # Of pairs with the same background row, over all rows that have several: sums of squares, and degrees of freedom.
    squares, freedom = whole.new_zeros(len(whole), num_players), whole.new_zeros(num_players)
    square_error = torch.zeros_like(squares)
    single = []
    for b, (plan, own) in enumerate(zip(plans, values, strict=True)):
        if not len(plan.players):
            continue
        parts = plan.parts(own, background_values[:, b], whole)
        found[:, b, plan.players] = parts.mean(1)
        if plan.num_pairs > 1:
            square_error[:, plan.players] += parts.var(1) / (plan.num_pairs * num_background**2)
            squares[:, plan.players] += parts.var(1) * (plan.num_pairs - 1)
            freedom[plan.players] += plan.num_pairs - 1
        elif plan.num_pairs:
            single.append(b)
    if single and bool((freedom[differs[single].any(0)] >= FEWEST_REPEATED).all()):
        # As far apart as pairs are with other background rows.
        square_error += squares / freedom.clamp_min(1) * differs[single].sum(0) / num_background**2
    elif len(single) > 1:
        # One pair each: that background rows differ, too, makes this larger than the error of the orders alone.
        square_error += found[:, single].var(1) * len(single) / num_background**2
    elif single:
        square_error = square_error + torch.nan
    base, parts = background_values.mean(1), found.mean(1)
    count = sum(len(plan.chosen) for plan in plans)
    return Shapley(parts, base, whole, square_error.sqrt(), count)


def _evaluated(game: Game, plans: Sequence[_Plan], num_players: int, whole: Tensor) -> Sequence[Float[Tensor, "J C"]]:
    """Values of the coalitions of each plan, of all plans some at a time."""
    places = torch.cat([torch.full((len(plan.chosen),), b, device=whole.device) for b, plan in enumerate(plans)])
    inside = torch.zeros(len(places), num_players, dtype=torch.bool, device=whole.device)
    start = 0
    for plan in plans:
        inside[start : start + len(plan.chosen), plan.players] = plan.chosen
        start += len(plan.chosen)
    values = [game(*pair) for pair in zip(inside.split(CHUNK_ROWS), places.split(CHUNK_ROWS), strict=True)] if start else []
    joined = torch.cat(values, dim=1) if values else whole.new_zeros(len(whole), 0)
    return joined.split([len(plan.chosen) for plan in plans], dim=1)
