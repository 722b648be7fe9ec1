"""`bnnp.infer`: the weights of one data set, or of many at once, by a method of the user's choice."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp._core.progress import ProgressBar
from bnnp._core.random import Seed, as_integer, child
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.base import Diagnostics, Effort, Method
from bnnp.inference.mcmc.nuts import NUTS
from bnnp.inference.mcmc.steps import HMC, SGHMC, SGLD
from bnnp.inference.modes.modes import Ensemble, Laplace
from bnnp.inference.modes.swag import SWAG
from bnnp.inference.target import Target
from bnnp.inference.vi.gaussian import GaussianVI
from bnnp.inference.vi.inducing import GIVI
from bnnp.inference.vi.single_task import SingleTaskBNNP
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.networks.base import AnyNetwork
from bnnp.prediction.sampled import SampledPredictive
from bnnp.prediction.weights import WeightSamples
from bnnp.priors.base import Prior
from bnnp.tasks.task import Task

METHODS: dict[str, Method] = {
    "mfvi": GaussianVI("mfvi"),
    "ucvi": GaussianVI("ucvi"),
    "lcvi": GaussianVI("lcvi"),
    "fcvi": GaussianVI("fcvi"),
    "givi": GIVI(),
    "bnnp": SingleTaskBNNP(),
    "hmc": HMC(),
    "nuts": NUTS(),
    "lmc": HMC(leapfrog_steps=1),
    "sghmc": SGHMC(),
    "sgld": SGLD(),
    "swag": SWAG(),
    "laplace": Laplace(),
    "last_layer_laplace": Laplace(last_layer=True),
    "ensemble": Ensemble(),
}
_START, _RUN, _SAMPLE = range(3)


class InferenceWarning(UserWarning):
    """Something speaks against the result of an inference; `post.diagnostics.warnings` says what."""


@dataclass(frozen=True, eq=False, repr=False)
class InferredPosterior(WeightSamples):
    """Samples of the weights given one data set: `predict` and `functions` as for a BNNP's posterior.

    chains: how many Markov chains the samples come from, one after the other; 1 for other methods.
    """

    of_network: AnyNetwork
    of_likelihood: Likelihood
    of_columns: Columns
    weights: list[Float[Tensor, "samples _d _out"]]
    chains: int
    diagnostics: Diagnostics

    @property
    def network(self) -> AnyNetwork:
        return self.of_network

    @property
    def likelihood(self) -> Likelihood:
        return self.of_likelihood

    @property
    def columns(self) -> Columns:
        return self.of_columns

    def predict(self, x: ArrayLike | Tensor) -> SampledPredictive:
        """Predictions at new inputs (points, in), made of the functions of all weight samples."""
        return self.predict_by_samples(x)

    def _described(self) -> dict[str, object]:
        return {**super()._described(), "chains": self.chains, "warnings": len(self.diagnostics.warnings)}


def infer(
    prior: Prior,
    network: AnyNetwork,
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    *,
    method: str | Method = "nuts",
    likelihood: Likelihood | None = None,
    num_samples: int = 1000,
    steps: int | None = None,
    learning_rate: tuple[float, float] = (5e-3, 1e-4),
    chains: int = 4,
    warmup: int = 500,
    thin: int = 1,
    climb: int = 0,
    whitened: bool = True,
    seed: Seed = 0,
    progress: bool = False,
) -> InferredPosterior:
    """The posterior over a network's weights for one data set, under any prior of the library, learned or not.

    method: a name from `bnnp.inference.METHODS`, or a record of choices, as `bnnp.inference.HMC(leapfrog_steps=30)`.
    likelihood: as for a model; a trained model's own is `model.likelihood`. Default: `Gaussian(0.1)`, held fixed.
    steps, learning_rate: of the optimiser, for the variational methods and those that climb to modes.
    chains, warmup, thin: of the samplers; `steps` are those after warm-up, of which every `thin`-th is kept.
    climb: steps up the log posterior before a chain begins; 0 leaves it at a draw of the prior.
    whitened: samplers, and what climbs to modes, move in coordinates in which the prior is standard normal, instead of
        the weights themselves.

    Example: `post = bnnp.infer(model.prior, model.network, x, y, method="hmc", likelihood=model.likelihood, seed=0)`
    """
    effort = Effort(steps, learning_rate, chains=chains, warmup=warmup, thin=thin, climb=climb)
    (posterior,) = infer_many(
        prior,
        network,
        [(x, y)],
        method=method,
        likelihood=likelihood,
        num_samples=num_samples,
        effort=effort,
        whitened=whitened,
        seed=seed,
        progress=progress,
    )
    return posterior


def infer_many(
    prior: Prior,
    network: AnyNetwork,
    data_sets: Sequence[tuple[ArrayLike | Tensor, ArrayLike | Tensor] | Task],
    *,
    method: str | Method = "nuts",
    likelihood: Likelihood | None = None,
    num_samples: int = 1000,
    effort: Effort | None = None,
    whitened: bool = True,
    seed: Seed = 0,
    progress: bool = False,
) -> list[InferredPosterior]:
    """`infer` for many data sets at once, side by side on a leading axis; sizes may differ."""
    choice = _method(method)
    effort = Effort() if effort is None else effort
    if num_samples < 1:
        raise ValueError(f"num_samples: got {num_samples}, expected a positive number")
    number = as_integer(seed)
    target = Target.of(prior, network, data_sets, likelihood or Gaussian(0.1), whitened and choice.whitened)
    steps = choice.num_steps(effort, num_samples)
    state = choice.init(target, effort, num_samples, child(number, _START))
    generator = child(number, _RUN)
    with ProgressBar(steps, enabled=progress, label="inferring") as bar:
        for _ in range(steps):
            state = choice.step(target, state, generator)
            bar.advance()
    drawn = choice.sample(target, state, num_samples, child(number, _SAMPLE))
    _warn(drawn.diagnostics)
    return [
        InferredPosterior(
            network,
            target.likelihood,
            prior.view.columns,
            [w[i] for w in drawn.weights],
            drawn.chains,
            drawn.diagnostics[i],
        )
        for i in range(target.sets)
    ]


def _warn(diagnostics: Sequence[Diagnostics]) -> None:
    """One warning for all data sets, with the first reason as an example."""
    found = [(i, one.warnings) for i, one in enumerate(diagnostics) if one.warnings]
    if found:
        index, reasons = found[0]
        which = "" if len(diagnostics) == 1 else f"{len(found)} of {len(diagnostics)} data sets; number {index}: "
        warnings.warn(which + "; ".join(reasons), InferenceWarning, stacklevel=4)


def _method(method: str | Method) -> Method:
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise ValueError(f"method: got {method!r}, expected one of {', '.join(METHODS)}")
    return METHODS[method]
