"""What the image table was meant to show, and whether its records show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.render.markdown import table as markdown
from benchmarks.tables.common.statistics import Comparison
from benchmarks.tables.common.words import NOTHING, number
from benchmarks.tables.images.methods import OURS

FASHION, CIFAR = "fashion-mnist", "cifar10-20k"
MAP, SCALED = "MAP", "MAP, temperature"
# Ours with more than scales learned from the validation labels, with two looks at each image, and with five networks.
ENSEMBLE = "gwi, ensemble"
# Ours with another score.
ENERGY = "gwi, with energy"
VARIANTS = {FASHION: ("gwi, corrected",), CIFAR: ("gwi, corrected", "gwi, mirrored", ENSEMBLE)}
LAPLACE = ("Kronecker Laplace", "Kronecker Laplace, damped")
# Whom the score for outliers must be above, by the better of their entropy and their own score.
RIVALS = {FASHION: (MAP, "MC dropout", "mean-field VI", *LAPLACE), CIFAR: (MAP, *LAPLACE)}
IN_WORDS = {
    FASHION: "MAP, MC dropout, mean-field VI and both Laplace approximations",
    CIFAR: "MAP and both Laplace approximations",
}


# Of goals that may be missed: what was tried, and what stands in the way. By set and the start of the goal.
OBSTACLES = {
    (FASHION, "accuracy at least"): "The network is frozen and its logits are scaled, so its labels stay what they are: the goal "
    "is one for the network. Two looks at each image (*gwi, mirrored*) and five networks (*gwi, ensemble*) have more; the "
    "paper's number is one of its trials, chosen by the test, of a training that took a hundred epochs.",
    (FASHION, "accuracy of *gwi, ensemble*"): "Five networks of this size and training agree on this many; more of them, or "
    "larger ones, are the way.",
    (CIFAR, "NLL at most"): "At the best temperature the network is calibrated, and what is left of its NLL are its errors, "
    "which no scale of logits or covariance mends: the score says which images are strange, and test images are not. Tried: "
    "tempering by class (no gain worth the name on validation images that took no part), kernels on other features, corrections "
    "of the logits (*gwi, corrected*). What does mend it is a better mean: two looks at each image (*gwi, mirrored*) or five "
    "networks (*gwi, ensemble*).",
    (CIFAR, "NLL of *gwi, corrected*"): "2,000 validation images are too few to learn much more from than scales: corrections "
    "that gain on some of them lose on others. A peer that learns from them, too, *MAP, last layer refitted*, does better than "
    "ours, but not by enough either.",
    (CIFAR, "NLL of *gwi, mirrored*"): "Two looks are what two looks give: see *MAP, temperature, mirrored*.",
    (CIFAR, "NLL of *gwi, ensemble*"): "Five networks are what five networks give: see *deep ensemble, temperature*.",
    (CIFAR, "AUROC at least"): "It depends on the network: trainings of one recipe differ by more than the choices do. Tried, "
    "against outliers of no test, with both networks: the place and number of inducing points, the length-scale "
    "and shape of the kernel, which layers, centred or not ([the table](../../classification.md#which-kernel)); channels' means, "
    "maxima or deviations for their root mean squares, whitened features, those of two networks side by side, which are not in "
    "the table. On average over the kinds of outliers none was better by more than 0.005. What does help is the energy of the "
    "logits beside the share of the variance: *gwi, with energy*.",
    (CIFAR, "AUROC of *gwi, with energy*"): "As of gwi: it depends on the network.",
}


@dataclass(frozen=True)
class Goal:
    """One goal.

    Attributes:
        dataset: the image set.
        what: is asked of ours.
        found: in the records; empty when they are not there.
        met: whether it is reached; None when the records are not there.
    """

    dataset: str
    what: str
    found: str = ""
    met: bool | None = None


def goals(found: Comparison) -> list[Goal]:
    """All of them, each by means over the seeds that all methods of the goal finished."""
    result = []
    for dataset in (FASHION, CIFAR):
        result += [*against_others(found, dataset), *levels(found, dataset)]
    return result


def against_others(found: Comparison, dataset: str) -> list[Goal]:
    """Goals that compare ours with another method, or with the network alone."""
    everyone = (OURS, *RIVALS[dataset])
    rivals = {name: best_auroc(found, dataset, name, everyone) for name in RIVALS[dataset]}
    known = {name: auroc for name, auroc in rivals.items() if auroc is not None}
    rival = max(known, key=known.__getitem__, default="")
    whole = len(known) == len(rivals)
    result = [
        limit(
            dataset,
            f"AUROC above that of {IN_WORDS[dataset]}",
            value(found, dataset, OURS, "auroc_score", everyone),
            known.get(rival) if whole else None,
            f"{rival} ",
            "above",
        )
    ]
    for name in (OURS, *VARIANTS[dataset]):
        what = "NLL" if name == OURS else f"NLL of *{name}*"
        nll, scaled = (value(found, dataset, method, "nll", (name, SCALED)) for method in (name, SCALED))
        if dataset == CIFAR:
            below = None if scaled is None else 0.95 * scaled
            result.append(limit(dataset, f"{what} at most 0.95 of that of {SCALED}", nll, below, "at most ", "at most"))
        else:
            result.append(limit(dataset, f"{what} no worse than that of {SCALED}", nll, scaled, f"{SCALED} ", "at most"))
    if dataset == CIFAR:
        return result
    error, scaled = (value(found, dataset, method, "ece", (OURS, SCALED)) for method in (OURS, SCALED))
    result.append(limit(dataset, f"ECE no worse than that of {SCALED}", error, scaled, f"{SCALED} ", "at most"))
    own, plain = (value(found, dataset, method, "accuracy", (OURS, MAP)) for method in (OURS, MAP))
    gap = None if plain is None or own is None else 100 * abs(own - plain)
    result.append(limit(dataset, "accuracy within 0.1 points of that of MAP", gap, 0.1, "", "at most", digits=2))
    result.append(ratio(found, dataset, "fit in at most 0.2 of the shared training", "fit_seconds", "training_seconds", 0.2))
    what = "probabilities of the test images in at most twice the time of the bare network"
    return [*result, ratio(found, dataset, what, "predict_seconds", "forward_seconds", 2.0)]


def levels(found: Comparison, dataset: str) -> list[Goal]:
    """Goals that are numbers."""
    wanted: dict[str, tuple[tuple[str, str, str, float, str], ...]] = {
        FASHION: (
            (OURS, "accuracy", "accuracy at least 93.25 %", 93.25, "at least"),
            (ENSEMBLE, "accuracy", f"accuracy of *{ENSEMBLE}* at least 93.25 %", 93.25, "at least"),
            (OURS, "nll", "NLL at most 0.20", 0.20, "at most"),
            (OURS, "auroc_score", "AUROC at least 0.997", 0.997, "at least"),
        ),
        CIFAR: (
            (OURS, "auroc_score", "AUROC at least 0.93", 0.93, "at least"),
            (ENERGY, "auroc_score", f"AUROC of *{ENERGY}* at least 0.93", 0.93, "at least"),
        ),
    }
    result = []
    for method, name, what, level, sense in wanted[dataset]:
        own = value(found, dataset, method, name)
        if name == "accuracy":
            percent = None if own is None else 100 * own
            result.append(limit(dataset, what, percent, level, "", sense, digits=2))
        else:
            result.append(limit(dataset, what, own, level, "", sense))
    return result


def value(found: Comparison, dataset: str, method: str, metric: str, among: Iterable[str] = ()) -> float | None:
    """A mean over the seeds that the method shares with all those among which it stands; none where there is no such seed."""
    finished = [set(found.records.get((dataset, name), {})) for name in {method, *among}]
    seeds = sorted(set.intersection(*finished))
    score = found.score(dataset, method, metric, seeds) if seeds else None
    return None if score is None else score.mean


def best_auroc(found: Comparison, dataset: str, method: str, among: Iterable[str]) -> float | None:
    """A peer's, by its entropy or by its own score, whichever is better on the outliers of the test: a choice in its favour."""
    values = [value(found, dataset, method, f"auroc_{scorer}", among) for scorer in ("entropy", "score")]
    known = [auroc for auroc in values if auroc is not None]
    return max(known, default=None)


def limit(dataset: str, what: str, own: float | None, bound: float | None, beside: str, sense: str, *, digits: int = 4) -> Goal:
    """A number against a bound; `beside` says what the bound is, where the goal does not."""
    if own is None or bound is None:
        return Goal(dataset, what)
    met = {"above": own > bound, "at least": own >= bound, "at most": own <= bound}[sense]
    found = number(own, digits) + (f"; {beside}{number(bound, digits)}" if beside else "")
    return Goal(dataset, what, found, met)


def ratio(found: Comparison, dataset: str, what: str, numerator: str, denominator: str, most: float) -> Goal:
    """Of two costs of ours."""
    above, below = (value(found, dataset, OURS, name) for name in (numerator, denominator))
    if above is None or not below:
        return Goal(dataset, what)
    return Goal(dataset, what, f"{number(above / below, 3)} ({above:.1f} s of {below:.1f} s)", above / below <= most)


def shown(all_goals: Sequence[Goal]) -> str:
    """How many are met, and each of them."""
    known = [goal for goal in all_goals if goal.met is not None]
    met = sum(goal.met is True for goal in known)
    answers = {True: "yes", False: "**no**", None: "not there yet"}
    lines = [[goal.dataset, goal.what, goal.found or NOTHING, answers[goal.met]] for goal in all_goals]
    text = f"Of {len(all_goals)} goals for {OURS}, {met} are met and {len(known) - met} are missed"
    text += f"; for {len(all_goals) - len(known)} the records are not there yet." if len(known) < len(all_goals) else "."
    return f"{text}\n\n{markdown(['set', 'goal', 'found', 'met'], lines)}"


def obstacles(all_goals: Sequence[Goal]) -> str:
    """For each goal that is missed, what was tried and what stands in the way; empty when none is."""
    lines = [[goal.dataset, goal.what, obstacle(goal)] for goal in all_goals if goal.met is False]
    return markdown(["set", "missed", "what was tried, what stands in the way"], lines) if lines else ""


def obstacle(goal: Goal) -> str:
    """As far as it is known."""
    known = (said for (dataset, start), said in OBSTACLES.items() if goal.dataset == dataset and goal.what.startswith(start))
    return next(known, NOTHING)
