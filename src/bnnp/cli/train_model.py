"""The model that `bnnp train` is asked for, from its options."""

from dataclasses import dataclass

import torch

from bnnp._core.show import listed
from bnnp.cli.words import numbers
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.bernoulli import Bernoulli
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.likelihoods.heteroscedastic import HeteroscedasticGaussian
from bnnp.models import MetaLearner
from bnnp.models.bnnp import BNNP
from bnnp.neural_processes import PEERS
from bnnp.tasks.source import Collection, TaskSource

AUTO = "auto"


@dataclass(frozen=True)
class ModelOptions:
    """The options of the group `Model`, as they were given."""

    kind: str
    hidden: str
    activation: str
    prior: str
    learnability: float
    likelihood: str | None
    noise: float
    max_noise: float | None

    def learner(self, tasks: TaskSource, seed: int) -> MetaLearner:
        labels = tasks.y_names[0] if isinstance(tasks, Collection) and tasks.has_labels else None
        kind = "categorical" if labels and self.likelihood is None else kind_of_likelihood(self.kind, self.likelihood)
        if labels and kind not in ("categorical", "bernoulli"):
            raise ValueError(
                f"likelihood: got {kind!r}, expected categorical, since {labels!r} holds words; leave it out"
            )
        likelihood, outputs = _likelihood(kind, self.noise, self.max_noise, tasks)
        sizes = numbers(self.hidden, int, "hidden")
        if self.kind == "bnnp":
            dtype = torch.float64 if isinstance(tasks, Collection) else torch.float32
            last = "likelihood" if kind == "gaussian" else None
            model = BNNP(
                *(tasks.in_size, outputs, sizes, self.activation, self.prior, likelihood),
                **{"last_layer": last, "dtype": dtype, "seed": seed},
            )
            return model.set_prior_learnability(self.learnability)
        if self.kind not in PEERS:
            raise ValueError(f"model: got {self.kind!r}, expected bnnp, {', '.join(PEERS)}")
        if self.learnability != 1:
            raise ValueError(f"learnability: got {self.learnability}, but a neural process has no prior over weights")
        return PEERS[self.kind](tasks.in_size, outputs, sizes, self.activation, likelihood, seed=seed)


def learnable_share(learnability: str) -> float:
    """The learnable share of the prior: all of it for "auto", where left-out tasks decide how far to use it."""
    if learnability == AUTO:
        return 1.0
    try:
        return float(learnability)
    except ValueError:
        raise ValueError(f"learnability: got {learnability!r}, expected auto, or a number from 0 to 1") from None


def kind_of_likelihood(model: str, likelihood: str | None) -> str:
    if likelihood is not None:
        return likelihood
    return "gaussian" if model == "bnnp" else "heteroscedastic"


def _likelihood(name: str, noise: float, max_noise: float | None, tasks: TaskSource) -> tuple[Likelihood, int]:
    """The likelihood, and the number of network outputs it needs for these tasks."""
    if name == "gaussian":
        return Gaussian(noise, max_noise=max_noise), tasks.out_size
    if name == "heteroscedastic":
        return HeteroscedasticGaussian(), tasks.out_size
    if name == "bernoulli":
        return Bernoulli(), tasks.out_size
    if name == "categorical" and isinstance(tasks, Collection):
        classes = _classes(tasks)
        return Categorical(classes), classes
    raise ValueError(
        f"likelihood: got {name!r}, expected gaussian, heteroscedastic, bernoulli, or categorical with a table of "
        "labels 0, 1, ..."
    )


def _classes(tasks: Collection) -> int:
    """The number of classes of labels that are words, or numbers from 0."""
    if tasks.encodings is not None and tasks.encodings.classes:
        return len(tasks.encodings.classes)
    found = torch.cat([task.y for task in tasks.tasks]).unique()
    count = int(found.max()) + 1
    whole = bool((found == found.round()).all()) and float(found.min()) >= 0
    if not whole or len(found) < 2 or count > 2 * len(found):
        raise ValueError(
            f"likelihood: got the labels {listed([f'{label:g}' for label in found.tolist()])}, expected 0, 1, ... for "
            "categorical, or words"
        )
    return count
