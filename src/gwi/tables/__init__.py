"""Files and tables to numbers, and back."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gwi.tables.transformer import TableEncoder as TableEncoder

__all__ = ["TableEncoder"]


def __getattr__(name: str) -> Any:
    """The encoder, on first use: scikit-learn takes a second to import, and the command often does without it."""
    if name == "TableEncoder":
        from gwi.tables.transformer import TableEncoder

        return TableEncoder
    raise AttributeError(f"module 'gwi.tables' has no attribute {name!r}")
