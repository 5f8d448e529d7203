"""Gaussian Wasserstein inference in function space: honest uncertainty for any predictor."""

__version__ = "0.1.0"
