"""The tables of the paper with all peers, a fit a record: `python -m benchmarks.tables.uci` and `.images`."""
