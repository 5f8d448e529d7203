"""Tables of the documentation on W₂ with context rows."""

from __future__ import annotations

from benchmarks.render.markdown import table
from benchmarks.tables.common.records import Record, read

SHOWN = {
    "exact": "exact posterior",
    "Titsias": "Titsias",
    "W₂ on data, Z = X": "W₂ on data, Z = X",
    "W₂ on data": "W₂ on data",
    "W₂ with context, box": "W₂, box",
    "W₂ with context, mixtures": "W₂, mixtures",
}
REACHING = "W₂ with context, Z reaching it"


def context() -> str:
    """One row a dimension, noise and place, one column an S: coverage of f, and NLL above the exact posterior's."""
    records = read("context")
    cells = sorted({(int(r["dimension"]), float(r["noise_std"])) for r in records})
    rows = []
    for dimension, noise_std in cells:
        some = [r for r in records if (int(r["dimension"]), float(r["noise_std"])) == (dimension, noise_std)]
        draws = sum(int(r["functions"]) for r in some if r["covariance"] == "exact")
        rows += [
            [str(dimension), f"{noise_std:g}", str(draws), place, *(_cell(some, kind, place) for kind in SHOWN)]
            for place in ("gap", "data")
        ]
    return table(["D", "σ", "draws", "where", *SHOWN.values()], rows)


def context_summary() -> str:
    """Certificates, weights, and Z that reach into the context, in words."""
    records = read("context")
    box = [r for r in records if r["covariance"] == "W₂ with context, box"]
    if not box:
        return "Not measured yet."

    def ends(rows: list[Record], name: str) -> tuple[float, float]:
        values = [float(r[name]) for r in rows]
        return min(values), max(values)

    shares, at_bound = ends(box, "context_share"), sum(float(r["largest_eigenvalue"]) > 0.999 for r in box)
    said = (
        f"With a box the duality gap is at most {ends(box, 'duality_gap')[1]:.1e} in {len(box)} fits, no eigenvalue of S is "
        f"above {ends(box, 'largest_eigenvalue')[1]:.6f}, and in {at_bound} of them the bound S ⪯ I is reached. The context has "
        f"{100 * shares[0]:.1f} to {100 * shares[1]:.1f} % of ρ's mass."
    )
    places: dict[tuple[str, str], list[Record]] = {(r["dimension"], r["noise_std"]): [] for r in box}
    for r in box:
        places[r["dimension"], r["noise_std"]].append(r)
    found = [
        (100 * _mean(rows, f"expected_coverage_{place}"), _mean(rows, f"expected_excess_{place}"))
        for rows in places.values()
        for place in ("gap", "data")
    ]
    covered, above = zip(*found, strict=True)
    said += (
        f" Without the noise of draws, from the variances alone: coverage {min(covered):.1f} to {max(covered):.1f} %, NLL up to "
        f"{max(above):.3f} above the exact posterior's."
    )
    reaching = [r for r in records if r["covariance"] == REACHING]
    if not reaching:
        return said
    shown = []
    for dimension, noise_std in sorted({(r["dimension"], r["noise_std"]) for r in reaching}):
        some = [r for r in records if (r["dimension"], r["noise_std"]) == (dimension, noise_std)]
        shown.append(f"D = {dimension}, σ = {noise_std}: {_cell(some, REACHING, 'gap')} and {_cell(some, REACHING, 'data')}")
    draws = sum(int(r["functions"]) for r in reaching) // len(shown)
    return f"{said} Z that reach into the context, {draws} draws each, gap and data: {'; '.join(shown)}."


def _cell(some: list[Record], kind: str, place: str) -> str:
    """Coverage in percent, and the mean NLL less that of the exact posterior on the same draws."""
    own = [r for r in some if r["covariance"] == kind]
    tables = {r["table"] for r in own}
    exact = [r for r in some if r["covariance"] == "exact" and r["table"] in tables]
    over = _mean(own, f"nll_{place}") - _mean(exact, f"nll_{place}")
    covered = f"{100 * _mean(own, f'coverage_{place}'):.1f}"
    return covered if kind == "exact" else f"{covered} ({over:+.3f})"


def _mean(rows: list[Record], name: str) -> float:
    return sum(float(r[name]) for r in rows) / len(rows)
