"""Counts and times of requests, in the text format that Prometheus reads."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from gwi.web.guard import Answered

# Seconds, the upper ends of the histogram's bins; a row further from training rows than the last is counted as an outlier.
BINS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OUTLIER = 0.5


@dataclass
class Metrics:
    """What has happened since the start; only the event loop writes to it.

    Attributes:
        paths: that are counted by name; requests for others are counted together.
        rows, outliers: predicted, by model.
        running: predictions that are under way.
    """

    paths: frozenset[str]
    rows: Counter[str] = field(default_factory=Counter)
    outliers: Counter[str] = field(default_factory=Counter)
    running: int = 0
    _answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    _bins: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0] * (len(BINS) + 1)))
    _seconds: Counter[str] = field(default_factory=Counter)

    def observe(self, answered: Answered) -> None:
        """Count a request that is done."""
        path = answered.path if answered.path in self.paths else "other"
        self._answers[path, answered.status] += 1
        self._bins[path][sum(answered.seconds > end for end in BINS)] += 1
        self._seconds[path] += answered.seconds  # type: ignore[assignment]

    def text(self) -> str:
        """All of it; paths and names of models hold no character that would have to be escaped."""
        lines = _head("gwi_requests_total", "counter", "Requests by path and status; 499 if the client disconnected.")
        lines += [f'gwi_requests_total{{path="{p}",status="{s}"}} {n}' for (p, s), n in sorted(self._answers.items())]
        lines += _head("gwi_request_seconds", "histogram", "Seconds from the head of a request to the end of its answer.")
        for path, bins in sorted(self._bins.items()):
            ends = [*map(str, BINS), "+Inf"]
            below = [sum(bins[: i + 1]) for i in range(len(bins))]
            lines += [f'gwi_request_seconds_bucket{{path="{path}",le="{end}"}} {n}' for end, n in zip(ends, below, strict=True)]
            lines += [f'gwi_request_seconds_sum{{path="{path}"}} {self._seconds[path]:.6f}']
            lines += [f'gwi_request_seconds_count{{path="{path}"}} {below[-1]}']
        for name, values, what in (
            ("gwi_rows_total", self.rows, "Rows predicted."),
            ("gwi_outlier_rows_total", self.outliers, f"Rows predicted with an ood_score above {OUTLIER}."),
        ):
            lines += _head(name, "counter", what)
            lines += [f'{name}{{model="{model}"}} {count}' for model, count in sorted(values.items())]
        lines += [*_head("gwi_running", "gauge", "Predictions in progress."), f"gwi_running {self.running}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, what: str) -> list[str]:
    return [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
