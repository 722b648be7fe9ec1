"""The Bayesian neural process: context points are combined by Bayes' rule (Volpp et al. 2021)."""

from typing import ClassVar

from bnnp.neural_processes.aggregate import BayesianAggregation
from bnnp.neural_processes.latent_base import LatentProcess


class BNP(LatentProcess):
    """The Bayesian neural process (Volpp et al. 2021): every point is an observation of the latent variable.

    A point's code has a predicted variance, and codes are combined by Bayes' rule from the prior `N(0, 1)`, which is
    the posterior of an empty context. Its arguments, and the paper's settings, are those of `NP`.

    Example:
        >>> bnp = bnnp.neural_processes.BNP(in_size=1, out_size=1, hidden=(8, 8), latent_size=4, seed=0)
        >>> bnp.condition(x, y, num_samples=10, seed=0).predict(x_new).samples.shape
        (10, 2, 1)
    """

    aggregation_kind: ClassVar = BayesianAggregation
