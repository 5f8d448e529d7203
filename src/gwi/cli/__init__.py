"""The command `gwi`."""

from gwi._extras import require

require("cli", "The command gwi")

from gwi.cli.commands import main, run

__all__ = ["main", "run"]
