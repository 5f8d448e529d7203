"""The paper: measures, means, kernels, likelihoods, divergences, objectives, and the closed forms. Tensors in, tensors out."""
