"""The paper: measures, means, kernels, likelihoods, divergences, objectives, and the closed forms. Tensors in, tensors out."""

from gwi.core.covariance import (
    covariance_problem,
    matched_divergence_weight,
    paper_initial_covariance,
    titsias_covariance,
    trained_covariance,
    wasserstein_covariance,
)
from gwi.core.divergences import (
    gaussian_wasserstein_squared,
    kl_divergence,
    wasserstein,
    wasserstein_squared,
    wasserstein_squared_two_sample,
)
from gwi.core.features import NetworkFeatures
from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import FeatureKernel, ShrunkenKernel, SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.robust_max import GaussianLikelihood, RobustMaxLikelihood
from gwi.core.likelihoods.softmax import SoftmaxLikelihood, softmax_moments
from gwi.core.means import ConvexMean, FixedMean, KernelMean, ModuleMean, SumMean
from gwi.core.measures import GaussianMeasure
from gwi.core.networks import AveragedNetworks, AveragedViews, mlp
from gwi.core.objectives import generalized_loss, mean_loss
from gwi.core.prior import PriorFit, collapsed_bound, fit_prior, log_marginal_likelihood
from gwi.core.row_sums import RowSums, row_sums
from gwi.core.training import train

__all__ = [
    "AveragedNetworks",
    "AveragedViews",
    "ConvexMean",
    "FeatureKernel",
    "FixedMean",
    "GaussianLikelihood",
    "GaussianMeasure",
    "KernelMean",
    "ModuleMean",
    "NetworkFeatures",
    "PriorFit",
    "RobustMaxLikelihood",
    "RowSums",
    "ShrunkenKernel",
    "SoftmaxLikelihood",
    "SparsePosteriorKernel",
    "SumMean",
    "choose_inducing_points",
    "collapsed_bound",
    "covariance_problem",
    "default_kernel",
    "fit_prior",
    "gaussian_wasserstein_squared",
    "generalized_loss",
    "kl_divergence",
    "log_marginal_likelihood",
    "matched_divergence_weight",
    "mean_loss",
    "mlp",
    "paper_initial_covariance",
    "row_sums",
    "softmax_moments",
    "titsias_covariance",
    "train",
    "trained_covariance",
    "wasserstein",
    "wasserstein_covariance",
    "wasserstein_squared",
    "wasserstein_squared_two_sample",
]
