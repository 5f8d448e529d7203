"""What each part of a fit brings at home, in gaps and in tails: differences of NLL on the UCI tables.

    python -m benchmarks.figures.parts

draws docs/assets/figures/parts.{png,svg} from the records of the UCI tables.
"""

from __future__ import annotations

from statistics import mean

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.figures.style import BLUE, GREY, PICTURES, VERMILION, canvas, look, save
from benchmarks.tables.common.records import Record, read

NAME = "parts"
# Each part: the row with it, and the row without.
PARTS = {
    "noise that depends on x": ("gwi, no r", "gwi, constant variance"),
    "covariance r": ("gwi, no disagreement", "gwi, no r"),
    "disagreement of the means": ("gwi", "gwi, no disagreement"),
    "Student's tails": ("gwi", "gwi, normal tails"),
}
PLACES = {"standard": "at home: rows at random", "gap": "in gaps: middle third of a column", "tail": "in tails: highest fifth"}
LINEAR = 0.1


def differences(records: list[Record], place: str, one: str, other: str, score: str = "nll") -> dict[str, list[float]]:
    """One method's score minus another's at each split that both have, by set."""
    found: dict[tuple[str, str, str], float] = {
        (r["set"], r["split"], r["method"]): float(r[score]) for r in records if r["protocol"] == place and r[score]
    }
    result: dict[str, list[float]] = {}
    for (table, split, method), value in found.items():
        if method == one and (table, split, other) in found:
            result.setdefault(table, []).append(value - found[table, split, other])
    return result


def draw() -> None:
    records = read("uci")
    with look():
        figure = canvas(10.5, 2.9)
        for axes, (place, title) in zip(figure.subplots(1, len(PLACES), sharey=True, sharex=True), PLACES.items(), strict=True):
            axes.axvline(0, color=GREY, lw=1)
            for height, (one, other) in enumerate(reversed(PARTS.values())):
                found = {table: mean(values) for table, values in differences(records, place, one, other).items()}
                for shift, value in enumerate(sorted(found.values())):
                    better = value < 0
                    offset = 0.3 * (shift / max(len(found) - 1, 1) - 0.5)
                    axes.plot(
                        value,
                        height + offset,
                        "o" if better else "D",
                        color=BLUE if better else VERMILION,
                        mfc=BLUE if better else "white",
                        ms=5,
                    )
            axes.set_yticks(range(len(PARTS)), list(reversed(PARTS)))
            axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.8)
            axes.xaxis.set_major_locator(FixedLocator([-10, -1, -LINEAR, 0, LINEAR, 1, 10]))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
            axes.set_title(title)
        figure.axes[0].set_xlim(-12, 12)
        figure.supxlabel("change of NLL by the part, one mark a table; left of zero (filled) it helps", fontsize=9)
        save(figure, NAME, PICTURES)


if __name__ == "__main__":
    draw()
