"""Faults on purpose, thousands of them: each must end as a right answer or as one clear sentence.

A kind of fault is one module in `benchmarks/campaign/kinds/`, named after the fault, with

- a docstring whose first line says what is done,
- `FINE`, the outcomes that are right, and `FAULTS`, those that are not, as tuples of words,
- `trial(number)`, which does the trial of that number, the same each time, and returns one of these words, alone or with a few
  more words after a colon.

Trials run in processes of their own with bounds on time and memory: what kills, hangs or starves a process is counted as well, so
a trial need not protect itself. An exception that a trial lets through is a crash.
"""
