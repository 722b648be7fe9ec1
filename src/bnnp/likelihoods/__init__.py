"""Likelihoods: how outputs of the network become observations."""

from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.bernoulli import Bernoulli
from bnnp.likelihoods.by_name import from_config
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.likelihoods.heteroscedastic import HeteroscedasticGaussian

__all__ = ["Bernoulli", "Categorical", "Gaussian", "HeteroscedasticGaussian", "Likelihood", "from_config"]
