"""What an inference is about: a model, or a network under a prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bnnp.likelihoods.base import Likelihood, checked_likelihood
from bnnp.models.amortised import AmortisedModel
from bnnp.models.base import MetaLearner
from bnnp.networks.base import AnyNetwork
from bnnp.priors.base import Prior


@dataclass(frozen=True)
class Subject:
    """The prior, the network and the likelihood of an inference."""

    prior: Prior
    network: AnyNetwork
    likelihood: Likelihood

    @staticmethod
    def of(subject: Any, network: Sequence[Any], likelihood: Likelihood | None) -> Subject:
        """A subject from a model, or from a prior, its network (a list of one) and a likelihood."""
        if isinstance(subject, AmortisedModel):
            if likelihood is not None:
                raise ValueError(
                    f"likelihood: got {type(likelihood).__name__} beside a model, which has its own; leave it out, or "
                    "give model.prior and model.network in place of the model"
                )
            return Subject(subject.prior, subject.network, subject.likelihood)
        if likelihood is None:
            raise ValueError(
                "likelihood: got nothing beside a prior, expected one such as likelihood=bnnp.Gaussian(0.1); a trained "
                "model brings its own: bnnp.infer(model, x, y)"
            )
        checked_likelihood(likelihood)
        subject.check_fits(network[0])
        return Subject(subject, network[0], likelihood)


def positional(subject: Any, data: Sequence[Any], names: str) -> Sequence[Any]:
    """The positional arguments after the subject, once their number is checked."""
    if isinstance(subject, AmortisedModel):
        form, expected = f"(model, {names})", names.count(",") + 1
    elif isinstance(subject, Prior):
        form, expected = f"(prior, network, {names}, likelihood=...)", names.count(",") + 2
    elif isinstance(subject, MetaLearner):
        raise ValueError(
            f"model: got a {type(subject).__name__}, which has no prior over weights to infer under, expected a BNNP, "
            "AttBNNP or BNAM; predict with its own `condition(x, y)`"
        )
    else:
        raise ValueError(f"model: got {type(subject).__name__}, expected a model such as bnnp.BNNP, or a prior")
    if len(data) != expected:
        raise ValueError(f"infer: got {1 + len(data)} positional arguments, expected {1 + expected}: {form}")
    return data
