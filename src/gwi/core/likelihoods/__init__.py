"""Likelihoods: expected log-likelihoods and predictive laws under a Gaussian measure."""
