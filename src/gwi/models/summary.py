"""What a fit has chosen, and why, for a reader; without torch, which `gwi info` does not need."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class MemberSummary:
    """One mean that was tried.

    Attributes:
        name: as asked for.
        weights: in the mean of each output.
        scores: on held-out rows: the root mean squared error of each target in its own units; of logits, the NLL with the
            temperature that suits them best.
        seconds: it took.
    """

    name: str
    weights: tuple[float, ...]
    scores: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class Summary:
    """What was chosen, and why.

    Attributes:
        num_rows: N.
        members: the means that were tried.
        score_name: what the members' scores are.
        covariance: which S.
        num_inducing: M of the covariance.
        stores_all_rows: whether every row is an inducing point or the centre of a basis function, so that a file holds them all.
        divergence_weight: β of each output; zero where the covariance has none.
        tempering: α of each output.
        disagreement_weight: γ of each output: stacked means that disagree add γ d² to the variance of f.
        held_out_nll: on rows the mean had not seen: before and after tempering, in the targets' own units and summed over them;
            of logits, of the mean with its temperature alone and of the posterior.
        seconds: of the whole fit.
        noise: penalty of the noise model of each target; infinity is constant noise, zero noise by a network; none for classes.
        degrees_of_freedom: of each target's predictive law, Student's t; infinity is the normal law; none for classes.
        num_classes: J; zero for numbers.
        logit_scale: s, the inverse temperature of logits.
        target_std: standard deviation of each target, in its own units; none for classes.
        held_out_accuracy: share of rows whose most probable class is right, by the mean, on rows it had not seen;
            None for numbers.
        note: what else a reader should know.
        likelihood: of numbers.
        machine_speed: by which a plan for `max_time` was made, NaN without one; `gwi.MaxTime(seconds, speed)` takes it.
        dispersion: of the likelihood, averaged over held-out rows; NaN where it has none, or noise and degrees of freedom.
    """

    num_rows: int
    members: tuple[MemberSummary, ...]
    score_name: str
    covariance: str
    num_inducing: int
    stores_all_rows: bool
    divergence_weight: tuple[float, ...]
    tempering: tuple[float, ...]
    disagreement_weight: tuple[float, ...]
    held_out_nll: tuple[float, float]
    seconds: float
    noise: tuple[float, ...] = ()
    degrees_of_freedom: tuple[float, ...] = ()
    num_classes: int = 0
    logit_scale: float = 1.0
    target_std: tuple[float, ...] = ()
    held_out_accuracy: float | None = None
    note: str = ""
    likelihood: str = "gaussian"
    dispersion: float = math.nan
    machine_speed: float = math.nan

    def __str__(self) -> str:
        classes = f"{self.num_classes} classes, " if self.num_classes else ""
        kept = "labels" if self.num_classes else "targets"
        lines = [f"{self.num_rows} rows, {classes}{self.num_inducing} inducing points, {self.seconds:.1f} s"]
        if self.stores_all_rows:
            lines.append(
                "  every training row is an inducing or basis point: a saved model contains the inputs of all rows, "
                f"but no {kept}"
            )
        for member in self.members:
            score = f"held-out {self.score_name} {listed(member.scores, '.4g')}"
            lines.append(f"  mean {member.name:<16} weight {listed(member.weights, '.2f')}  {score}  {member.seconds:.1f} s")
        lines += self._of_classes() if self.num_classes else self._of_numbers()
        if any(self.disagreement_weight):
            shown = listed(self.disagreement_weight, ".2f")
            lines.insert(-1, f"  disagreement of the means adds {shown} times their spread to the variance")
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else [])])

    def to_dict(self) -> dict[str, Any]:
        """Every field by its name, the means as dictionaries too."""
        return asdict(self)

    def _repr_html_(self) -> str:
        head, *lines = str(self).splitlines()
        return html_table(head, ([line.strip()] for line in lines))

    def _of_numbers(self) -> list[str]:
        if not self.degrees_of_freedom:
            return self._of_likelihood()
        kinds = ", ".join("constant" if p == math.inf else "by a network" if p == 0 else "input-dependent" for p in self.noise)
        weight = "" if self.covariance == "titsias" else f", W₂² weight {listed(self.divergence_weight, '.3g')}"
        tails = ", ".join("normal" if d == math.inf else f"t with {d:g} degrees of freedom" for d in self.degrees_of_freedom)
        before, after = self.held_out_nll
        if self.likelihood == "log-normal":
            units = "RMSE is of the target's logarithm, whose"
        else:
            units = "RMSE and NLL are in the target's own units; its"
        return [
            *([] if self.likelihood in ("gaussian", "student-t") else [f"  likelihood {self.likelihood}"]),
            f"  covariance {self.covariance}{weight}; noise {kinds}",
            f"  held-out NLL {before:.4g}, after tempering (variance times {listed(self.tempering, '.3f')}) {after:.4g}; "
            f"tails {tails}",
            f"  {units} standard deviation is {listed(self.target_std, '.4g')}",
        ]

    def _of_likelihood(self) -> list[str]:
        weight = "" if self.covariance == "titsias" else f", W₂² weight {listed(self.divergence_weight, '.3g')}"
        spread = "" if math.isnan(self.dispersion) else f", dispersion {self.dispersion:.3g}"
        depends = ", varying by row" if self.noise and math.isfinite(self.noise[0]) and spread else ""
        tempered = "" if self.tempering[0] == 1 else f"; variance of f multiplied by {self.tempering[0]:.3g}"
        before, after = self.held_out_nll
        return [
            f"  likelihood {self.likelihood}{spread}{depends}",
            f"  covariance {self.covariance}{weight}{tempered}",
            f"  held-out {self.score_name}: mean alone {before:.4g}, with covariance {after:.4g}",
        ]

    def _of_classes(self) -> list[str]:
        low, high = min(self.tempering), max(self.tempering)
        factors = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
        before, after = self.held_out_nll
        return [
            f"  covariance {self.covariance}; logits multiplied by {self.logit_scale:.3g}, their variance by {factors}",
            f"  held-out NLL: mean alone {before:.4f}, with covariance {after:.4f}, "
            f"equal probabilities {math.log(self.num_classes):.4f}",
            *([] if self.held_out_accuracy is None else [f"  {self.held_out_accuracy:.1%} accuracy on held-out rows"]),
        ]


def listed(values: Sequence[float], form: str) -> str:
    """Each value in this form; one where all are equal."""
    shown = list(dict.fromkeys(f"{value:{form}}" for value in values))
    return shown[0] if len(shown) == 1 else ", ".join(f"{value:{form}}" for value in values)


def html_table(title: str, rows: Iterable[Sequence[object]]) -> str:
    """A table for a notebook, all text escaped."""
    cells = ("".join(f"<td style='text-align: left'>{html.escape(str(cell))}</td>" for cell in row) for row in rows)
    return f"<table><caption>{html.escape(title)}</caption>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
