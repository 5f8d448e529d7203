"""The golden record: what fits, commands and stored model files give, number by number and word by word.

Everything is asked for through the public names of `gwi` and through `gwi.cli.run`, so that a module may move and the record
still says whether anything changed.

    python -m tests.golden record              # tests/golden/record and tests/golden/models
    python -m tests.golden record --to FOLDER  # elsewhere, to be compared
    python -m tests.golden compare A B         # 1 if anything differs in bits
"""
