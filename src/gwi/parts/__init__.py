"""The parts of an estimator, each with its own options: what a string names in its default form, an object sets in detail.

They have scikit-learn's `get_params` and `set_params`, so `clone` copies them and a grid search reaches inside
(``covariance__weight``). They hold what was asked for and check nothing until `fit`.
"""

from gwi.parts.checks import require_choice as require_choice
from gwi.parts.checks import require_count as require_count
from gwi.parts.checks import require_cv as require_cv
from gwi.parts.checks import require_positive as require_positive
from gwi.parts.checks import require_seconds as require_seconds
from gwi.parts.covariance import ContextChoice as ContextChoice
from gwi.parts.covariance import Covariance as Covariance
from gwi.parts.covariance import DivergenceKind as DivergenceKind
from gwi.parts.covariance import covariance_part as covariance_part
from gwi.parts.covariance import covariance_under as covariance_under
from gwi.parts.likelihoods import LIKELIHOODS as LIKELIHOODS
from gwi.parts.likelihoods import Beta as Beta
from gwi.parts.likelihoods import Censored as Censored
from gwi.parts.likelihoods import FewValues as FewValues
from gwi.parts.likelihoods import Gamma as Gamma
from gwi.parts.likelihoods import Gaussian as Gaussian
from gwi.parts.likelihoods import LogNormal as LogNormal
from gwi.parts.likelihoods import NegativeBinomial as NegativeBinomial
from gwi.parts.likelihoods import NoiseKind as NoiseKind
from gwi.parts.likelihoods import Ordinal as Ordinal
from gwi.parts.likelihoods import Poisson as Poisson
from gwi.parts.likelihoods import Robust as Robust
from gwi.parts.likelihoods import RobustMax as RobustMax
from gwi.parts.likelihoods import Softmax as Softmax
from gwi.parts.likelihoods import StudentT as StudentT
from gwi.parts.means import Features as Features
from gwi.parts.means import Frozen as Frozen
from gwi.parts.means import Joint as Joint
from gwi.parts.means import Network as Network
from gwi.parts.means import Paper as Paper
from gwi.parts.means import Trained as Trained
from gwi.parts.means import check_means as check_means
from gwi.parts.stored import decode_parameter as decode_parameter
from gwi.parts.stored import encode_parameter as encode_parameter
from gwi.parts.time import MaxTime as MaxTime
from gwi.parts.time import time_part as time_part
