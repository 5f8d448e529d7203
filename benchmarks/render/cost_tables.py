"""Tables of the documentation that say what fits and predictions cost."""

from __future__ import annotations

from benchmarks.render.markdown import table
from benchmarks.tables.common.records import read


def speed() -> str:
    shown = [r for r in read("speed") if r["set"] != "generated"]
    return table(["quantity", "set", "value", "note"], [[r["quantity"], r["set"], r["value"], r["note"]] for r in shown])


def prediction_speed() -> str:
    """Microseconds a row before and after, and peak memory."""
    rows = [
        [
            record["model"],
            record["inducing_points"],
            f"{int(record['rows']):,}",
            "peak, MB" if record["quantity"] == "peak_megabytes" else "µs a row",
            *(f"{float(record[name]):.3g}" if record[name] else "" for name in ("before", "after", "ratio")),
        ]
        for record in read("prediction_speed")
    ]
    return table(["model", "inducing points", "rows", "", "before", "after", "before/after"], rows)


def play_redraw() -> str:
    """Milliseconds from a change on the page to its picture, by mean and number of points."""
    words = {"gp": "Gaussian process", "trees": "boosted trees", "line": "straight line", "network": "network"}
    pictures = {"moving": "while a point moves", "first": "the first one", "whole": "what stays"}
    found = {(r["mean"], r["picture"], int(r["num_points"])): r for r in read("play_redraw")}
    sizes = sorted({size for _, _, size in found})
    if not sizes:
        return "Not measured yet."
    rows = []
    for mean, name in words.items():
        for picture, said in pictures.items():
            cells = [found.get((mean, picture, size)) for size in sizes]
            if any(cells):
                for kind, key in (("seen", ""), ("processor", "processor_")):
                    pairs = (f"{float(r[f'{key}p50_ms']):.0f} / {float(r[f'{key}p95_ms']):.0f}" if r else "–" for r in cells)
                    rows.append([name, said, kind, *pairs])
    return table(["mean", "picture", "", *(f"{size} points" for size in sizes)], rows)


def stream_speed() -> str:
    """Rows, seconds, rows a second and peak memory of fits and predictions from Parquet, and the other quantities as they are."""
    found = {r["quantity"]: float(r["value"]) for r in read("speed") if r["set"] == "generated"}
    counts = sorted(int(name.split("_")[-2]) for name in found if name.startswith("stream_fit_seconds_"))
    if not counts:
        return "Not measured yet."
    rows = [
        [
            f"{count:,}",
            *(
                f"{found[f'stream_{work}_{what}_{count}_rows']:,.0f}"
                for work in ("fit", "predict")
                for what in ("seconds", "rows_per_second", "megabytes")
            ),
        ]
        for count in counts
    ]
    header = [f"{work}, {what}" for work in ("fit", "predict") for what in ("seconds", "rows/s", "peak MB")]
    names = {"stream_fit_exponent": "exponent of the fit in N", "stream_predict_exponent": "of the prediction"}
    names |= {"stream_over_memory_std": "standard deviation of y, streamed over in memory"}
    names |= {"stream_over_memory_variance_of_f": "variance of f, streamed over in memory"}
    said = "; ".join(f"{text} {found[name]:.3g}" for name, text in names.items() if name in found)
    return f"{table(['rows', *header], rows)}\n\n{said[0].upper()}{said[1:]}."


def processes() -> str:
    found = read("processes")
    if not found:
        return "Not measured yet."
    alone = {r["rows"]: sum(float(r[key]) for key in ("sketch_seconds", "sums_seconds")) for r in found if r["ranks"] == "1"}
    rows = [
        [
            f"{int(r['rows']):,}",
            r["ranks"],
            *(f"{float(r[key]):.1f}" for key in ("sketch_seconds", "sums_seconds")),
            # What is done by all processes, shared by as many of them as there are cores.
            f"{alone[r['rows']] / min(int(r['ranks']), int(r['cores'])):.1f}",
            f"{float(r['processor_seconds']):.1f}",
        ]
        for r in found
    ]
    header = ["rows", "processes", "first pass, s", "sums, s", "both by the model, s", "processor seconds of all, start included"]
    return table(header, rows)


def deaths() -> str:
    """What came of fits whose workers were killed, and of one on two hosts, in words."""
    killed, hosts = read("kills"), read("hosts")
    if not killed or not hosts:
        return "Not measured yet."
    by = {r["what"]: r for r in killed if r["what"] not in ("kill", "dask kill")}
    steps = [int(float(r["value"])) for r in killed if r["what"] == "kill"]
    cluster = by["dask difference"]
    over = sum(float(r["value"]) for r in hosts if r["what"] == "bytes") / 1e6
    (apart,) = (r for r in hosts if r["what"] == "difference")
    when = (
        f"with {min(steps)} to {max(steps)} steps in the checkpoint" if max(steps) else "all before its training had a checkpoint"
    )
    sentences = [
        f"{len(steps)} kills of one worker of a fit on two processes, at random moments, {when}: exit code "
        f"{float(by['exit code']['value']):.0f}, largest difference of a number in the model file "
        f"from a fit left alone {float(by['difference']['value']):.2g}; of {int(by['unreadable snapshots']['number']):,} "
        f"checkpoints read meanwhile {float(by['unreadable snapshots']['value']):.0f} were not whole.",
        f"One cross-validated fit on two Dask workers, of which one was killed {int(cluster['number'])} times: largest "
        f"difference of a prediction from a fit left alone {float(cluster['value']):.2g}.",
        "Two hosts, network namespaces of one machine with nothing but a virtual cable between them: "
        f"{over:.0f} MB went over it, and the largest difference of a number in the model file from that of the fit on "
        f"{apart['number']} processes of one host is {float(apart['value']):.2g}.",
    ]
    return "\n".join(f"- {sentence}" for sentence in sentences)


def scaling() -> str:
    """Seconds of a fit by the cost model: a fixed part, a part that machines share, and messages that grow with their number."""
    found = {r["quantity"]: float(r["value"]) for r in read("speed") if r["set"] == "generated"}
    counts = sorted(int(name.split("_")[-2]) for name in found if name.startswith("stream_fit_seconds_"))
    if len(counts) < 2:
        return "Not measured yet."
    low, high = (found[f"stream_fit_seconds_{count}_rows"] for count in (counts[0], counts[-1]))
    a_row = (high - low) / (counts[-1] - counts[0])
    fixed = max(low - a_row * counts[0], 0.0)
    size = 8 * (200**2 + 200) + 240_000 * 13

    def seconds(num_rows: float, machines: int) -> float:
        return fixed + a_row * num_rows / machines + (2 * size / 1e8 * (machines - 1) / machines + 1e-4 * machines)

    def shown(value: float) -> str:
        return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min" if value < 36_000 else f"{value / 3600:.0f} h"

    machines = (1, 4, 16, 64)
    rows = [
        [f"10{power}", *(shown(seconds(10.0**n, m)) for m in machines)] for n, power in zip(range(6, 10), "⁶⁷⁸⁹", strict=True)
    ]
    said = f"Fixed {fixed:.1f} s, {a_row * 1e6:.1f} s for a million rows on one core."
    return f"{table(['rows', *(f'{m} machine' + 's' * (m > 1) for m in machines)], rows)}\n\n{said}"
