"""Text of a file as the page shows it."""

from __future__ import annotations

from gwi._progress import printable

# Characters of a name or a cell that are shown.
LONGEST_SHOWN = 80


def shown(text: object) -> str:
    """Text of a file, short, and without characters that turn its direction or cannot be seen."""
    safe = printable(str(text)).replace("\n", " ").replace("\t", " ")
    half = LONGEST_SHOWN // 2
    # Its end, too: long texts often differ there only.
    return safe if len(safe) <= LONGEST_SHOWN else f"{safe[: half - 1]}…{safe[-half:]}"
