"""Rows beyond memory: sources, passes over them, many processes, checkpoints."""

from gwi.tables.rows import Chunk as Chunk
from gwi.tables.rows import RowSource as RowSource

__all__ = ["Chunk", "RowSource"]
