"""Other people's fitted models as means that a file can hold."""
