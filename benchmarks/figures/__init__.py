"""The pictures of the paper and of the method, each from a small script: `python -m benchmarks.figures`.

A module has `compute`, which measures and writes records, `draw`, which makes PNG and SVG of them, and `words`, which says in
numbers of the same records what is to be seen.
"""
