"""From committed records to the tables and sentences of the documentation: `python -m benchmarks.render`."""
