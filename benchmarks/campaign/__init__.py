"""Faults on purpose, thousands of them: each must end as a right answer or as one clear sentence.

A kind of fault is one module in `benchmarks/campaign/kinds/`, named after the fault, with

- a docstring whose first line says what is done,
- `FINE`, the outcomes that are right, and `FAULTS`, those that are not, as tuples of words,
- `COUNT`, how many trials a campaign does,
- `trial(number)`, which does the trial of that number, the same each time, and returns one of these words, alone or with a few
  more words after a colon,
- where trials are long, `BATCH`, how many a line of the record holds, and `MOST_CPU`, the seconds that one may take,
- where the time is looked at, `size(number)`, a word for trials whose times are alike: none that is "answered" should take three
  times the median of its size.

Trials run in processes of their own with bounds on time and memory: what kills, hangs or starves a process is counted as well, so
a trial need not protect itself. An exception that a trial lets through is a crash.
"""
