"""Likelihoods by the names that files and the command line use."""

from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.bernoulli import Bernoulli
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.likelihoods.heteroscedastic import HeteroscedasticGaussian

LIKELIHOODS: dict[str, type[Gaussian] | type[HeteroscedasticGaussian] | type[Bernoulli] | type[Categorical]] = {
    "gaussian": Gaussian,
    "heteroscedastic": HeteroscedasticGaussian,
    "bernoulli": Bernoulli,
    "categorical": Categorical,
}


def from_config(config: dict) -> Likelihood:
    """The likelihood that `Likelihood.config` describes."""
    arguments = dict(config)
    return LIKELIHOODS[arguments.pop("name")](**arguments)
