"""Random configurations: any model with any prior, likelihood, objective, precision, scale of the data and chunks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import bnnp
from bnnp import neural_processes, objectives
from bnnp.models import MetaLearner
from bnnp.neural_processes import PEERS
from bnnp.priors import PRIORS

WEIGHT_MODELS, LATENT = ("BNNP", "AttBNNP", "BNAM"), ("NP", "ANP", "BNP")
IMPOSSIBLE = 0.1
"""Share of configurations whose objective and likelihood need not suit the model."""
OBJECTIVES = ("PPAVI", "AVI", "NPML", "NPVI", "TELLAVI")
LIKELIHOODS = ("gaussian", "heteroscedastic", "bernoulli", "categorical")
REFUSALS = (
    r"^objective: the ELBO of a context needs a prior over weights",
    r"^objective: NPVI needs a latent variable",
    r"^likelihood: got HeteroscedasticGaussian, which is for neural processes",
)
"""Refusals that the documentation names: what a model cannot do in principle."""


@dataclass(frozen=True)
class Configuration:
    """One configuration, drawn from its number."""

    kind: str
    prior: str
    objective: str
    likelihood: str
    dtype: torch.dtype
    x_scale: float
    y_scale: float
    chunk_size: int
    sizes: tuple[int, int]
    number: int

    @staticmethod
    def drawn(number: int) -> Configuration:
        random = np.random.default_rng(number)
        kind = str(random.choice([*WEIGHT_MODELS, *WEIGHT_MODELS, *(kind.upper() for kind in PEERS)]))
        objectives_of_it, likelihoods_of_it = (
            (OBJECTIVES, LIKELIHOODS) if random.random() < IMPOSSIBLE else suiting(kind)
        )
        return Configuration(
            kind,
            str(random.choice(list(PRIORS))),
            str(random.choice(objectives_of_it)),
            str(random.choice(likelihoods_of_it)),
            [torch.float32, torch.float64][random.integers(2)],
            float(10 ** random.uniform(-6, 6)),
            float(10 ** random.uniform(-6, 6)),
            int(random.integers(1, 9)),
            (int(random.integers(1, 4)), int(random.integers(1, 4))),
            number,
        )

    def model(self) -> MetaLearner:
        outputs = 3 if self.likelihood == "categorical" else self.sizes[1]
        likelihood = {
            "gaussian": bnnp.Gaussian(0.3),
            "heteroscedastic": bnnp.HeteroscedasticGaussian(),
            "bernoulli": bnnp.Bernoulli(),
            "categorical": bnnp.Categorical(3),
        }[self.likelihood]
        choices: dict[str, Any] = {"likelihood": likelihood, "dtype": self.dtype, "seed": self.number}
        if self.kind == "BNAM":
            return bnnp.BNAM(self.sizes[0], outputs, bnnp.Transformer(width=4, heads=2), prior=self.prior, **choices)
        if self.kind in WEIGHT_MODELS:
            return getattr(bnnp, self.kind)(self.sizes[0], outputs, (4, 4), prior=self.prior, **choices)
        return getattr(neural_processes, self.kind)(self.sizes[0], outputs, (4, 4), **choices)

    def data(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Related data sets of unequal size, in units of the configuration's scales, far from 0 by up to ten units."""
        random = np.random.default_rng(self.number + 10**6)
        x_shift, y_shift = random.uniform(-10, 10, 2)
        sets = []
        for _ in range(5):
            x = random.normal(size=(int(random.integers(2, 12)), self.sizes[0]))
            f = np.sin(x.sum(1, keepdims=True) + random.normal(size=self.sizes[1])) + 0.1 * random.normal(
                size=(len(x), 1)
            )
            sets.append((self.x_scale * (x + x_shift), self._outputs(f, y_shift)))
        return sets

    def _outputs(self, f: np.ndarray, shift: float) -> np.ndarray:
        if self.likelihood == "categorical":
            return np.digitize(f[:, :1], [-0.5, 0.5]).astype(float)
        return (f > 0).astype(float) if self.likelihood == "bernoulli" else self.y_scale * (f + shift)

    def fit(self, model: MetaLearner, chunk_size: int | None) -> None:
        settings = bnnp.FitSettings(chunk_size=chunk_size)
        objective = getattr(objectives, self.objective)(4)
        tasks = bnnp.tasks.from_arrays(self.data())
        bnnp.fit(model, tasks, objective=objective, steps=2, settings=settings, progress=False, seed=self.number)


def suiting(kind: str) -> tuple[Sequence[str], Sequence[str]]:
    """The objectives and likelihoods that suit a kind of model."""
    if kind in WEIGHT_MODELS:
        return OBJECTIVES, [name for name in LIKELIHOODS if name != "heteroscedastic"]
    return (("NPML", "NPVI") if kind in LATENT else ("NPML",)), LIKELIHOODS


def in_other_precision(model: MetaLearner) -> MetaLearner:
    """The same model in float64 if it is in float32, and the other way round."""
    other = copy.deepcopy(model)
    return other.to(torch.float32 if model.dtype == torch.float64 else torch.float64)


def predictions(model: MetaLearner, configuration: Configuration, **choices: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of predictions from one data set at the inputs of another, in the model's units."""
    (x, y), (x_new, _) = configuration.data()[:2]
    found = model.condition(x, y, num_samples=16, seed=0, **choices).predict(x_new)
    if not model.likelihood.real_valued:
        return found.mean, found.std
    shift, scale = (value.double().numpy() for value in (model.columns.y_shift, model.columns.y_scale))
    return (found.mean - shift) / scale, found.std / scale
