"""Measurements of one question each: `python -m benchmarks.studies.<name>`, records in results/<name>.csv."""
