"""The Bayesian neural process: context points are combined by Bayes' rule (Volpp et al. 2021)."""

from typing import ClassVar

from bnnp.neural_processes.aggregate import BayesianAggregation
from bnnp.neural_processes.latent_base import LatentProcess


class BNP(LatentProcess):
    """The Bayesian neural process (Volpp et al. 2021): every point is an observation of the latent variable.

    A point's code has a predicted variance, and codes are combined by Bayes' rule from the prior `N(0, 1)`, which is
    the posterior of an empty context. The paper's settings are those of `NP`.

    Args:
        in_size: Number of input columns.
        out_size: Number of outputs (for `Categorical`, the number of classes).
        hidden: Units of the hidden layers of encoder and decoder.
        activation: Name of the nonlinearity.
        likelihood: See `NeuralProcess`.
        latent_size: Size of the latent variable.
        heads: Only for `ANP`.
        dtype: Precision of the model.
        seed: Seed of the starting weights.

    Raises:
        ValueError: If a size is not positive, `hidden` is empty or `heads` is given.

    Example:
        >>> bnp = bnnp.neural_processes.BNP(in_size=1, out_size=1, hidden=(8, 8), latent_size=4, seed=0)
        >>> bnp.condition(x, y, num_samples=10, seed=0).predict(x_new).samples.shape
        (10, 2, 1)
    """

    aggregation_kind: ClassVar = BayesianAggregation
