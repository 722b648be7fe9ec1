"""The noise of models whose hidden weights start uncertain: it is held while inference is learned, then chosen."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.base import MetaLearner
from bnnp.recipe.judging import scores_of
from bnnp.tasks.task import Split

NOISES = (0.25, 0.5, 1.0, 2.0)
"""What the noise is multiplied by after a round of inference, if that predicts better."""


def take_best_noise(model: MetaLearner, splits: Sequence[Split], num_samples: int) -> None:
    """Give a model the noise that predicts tasks best.

    Args:
        model: The model.
        splits: Tasks whose outputs inference has not learned from.
        num_samples: Samples of the hidden layers.
    """
    scores = {}
    for share in NOISES:
        tried = copy.deepcopy(model)
        multiply_noise(tried, share)
        scores[share] = scores_of(tried, splits, num_samples)["marginal_lppd"]
    multiply_noise(model, max(NOISES, key=scores.__getitem__))


@torch.no_grad()
def multiply_noise(model: MetaLearner, share: float) -> None:
    """Multiply the noise of a Gaussian likelihood, where it is learned."""
    if isinstance(model.likelihood, Gaussian) and model.likelihood.learnable and share != 1:
        model.likelihood.set_noise(share * model.likelihood.noise)


def take_noise(model: MetaLearner, other: MetaLearner) -> None:
    """Give a model the noise of another one."""
    assert isinstance(model.likelihood, Gaussian)
    assert isinstance(other.likelihood, Gaussian)
    if model.likelihood.learnable:
        model.likelihood.set_noise(other.likelihood.noise.detach())


@contextmanager
def held(model: MetaLearner) -> Iterator[None]:
    """Hold the prior and the noise of a model where they are."""
    prior, noise = model.weight_prior, [one for one in model.likelihood.parameters() if one.requires_grad]
    assert prior is not None
    share = prior.learnability
    prior.set_learnability(0)
    for parameter in noise:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        prior.set_learnability(share)
        for parameter in noise:
            parameter.requires_grad_(True)
