"""Predictive laws: what is said of y at each row. One file a kind; `protocol` says what each of them can."""
