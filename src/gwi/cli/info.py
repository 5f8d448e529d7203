"""The command that says what a model file holds."""

from __future__ import annotations

from typing import Any

import gwi.cli.console as console


def info(model: console.ModelFile, as_json: console.Json = False) -> None:
    """Show what a model file contains."""
    from gwi.storage.description import description_of

    known = description_of(model)
    if as_json:
        console.print_json(known)
        return
    shown: dict[str, Any] = {name: known[name] for name in ("task", "target", "event", "likelihood") if known.get(name)}
    shown["columns"] = "\n".join(f"{console.shortened(name, 40)}: {kind}" for name, kind in list(known["columns"].items())[:40])
    if known["not_used"]:
        reasons = list(known["not_used"].items())[:20]
        shown["not used"] = "\n".join(f"{console.shortened(name, 40)}: it {reason}" for name, reason in reasons)
    shown["inputs"] = len(known["inputs"])
    shown |= {name: ", ".join(map(str, known[name])) for name in ("classes", "levels") if name in known}
    shown |= {f"held-out {name}": value for name, value in known["held_out_scores"].items() if name != "rows"}
    console.show(str(model), {**shown, "fit": known["summary"]})
