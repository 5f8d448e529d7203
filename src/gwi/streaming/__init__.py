"""Rows beyond memory: sources, passes over them, many processes, checkpoints."""
