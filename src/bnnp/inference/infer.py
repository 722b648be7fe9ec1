"""`bnnp.infer`: the weights of one data set, or of many at once, by a method of the user's choice."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

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
from bnnp.inference.subject import Subject, positional
from bnnp.inference.target import Target
from bnnp.inference.vi.gaussian import GaussianVI
from bnnp.inference.vi.inducing import GIVI
from bnnp.inference.vi.single_task import SingleTaskBNNP
from bnnp.likelihoods.base import Likelihood
from bnnp.models.amortised import AmortisedModel
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


class Options(TypedDict, total=False):
    """What both forms of `infer` take; `infer` and `Effort` say what each option means."""

    method: str | Method
    num_samples: int
    steps: int | None
    learning_rate: tuple[float, float]
    elbo_samples: int
    chains: int
    warmup: int
    thin: int
    climb: int
    whitened: bool
    seed: Seed
    progress: bool


class OptionsOfMany(TypedDict, total=False):
    """What both forms of `infer_many` take."""

    method: str | Method
    num_samples: int
    effort: Effort | None
    whitened: bool
    seed: Seed
    progress: bool


Array = ArrayLike | Tensor
DataSets = Sequence[tuple[Array, Array] | Task]


@overload
def infer(model: AmortisedModel, x: Array, y: Array, /, **options: Unpack[Options]) -> InferredPosterior: ...
@overload
def infer(
    prior: Prior, network: AnyNetwork, x: Array, y: Array, /, *, likelihood: Likelihood, **options: Unpack[Options]
) -> InferredPosterior: ...
def infer(
    subject: AmortisedModel | Prior,
    /,
    *data: Any,
    method: str | Method = "nuts",
    likelihood: Likelihood | None = None,
    num_samples: int = 1000,
    whitened: bool = True,
    seed: Seed = 0,
    progress: bool = False,
    **effort: Any,
) -> InferredPosterior:
    """The posterior over a network's weights for one data set, under any prior of the library, learned or not.

    `infer(model, x, y)` takes prior, network and likelihood, with its learned noise, from a model;
    `infer(prior, network, x, y, likelihood=...)` is given each of them.

    Args:
        subject: A model, or a prior.
        *data: The inputs (points, in) and outputs (points, out) of a data set; after a prior, the network first.
        method: A name from `bnnp.inference.METHODS`, or a record of choices such as `bnnp.inference.HMC()`.
        likelihood: For the form with a prior. It is held fixed.
        num_samples: Weight samples.
        whitened: Whether samplers, and what climbs to modes, move in coordinates in which the prior is standard normal.
        seed: Of all draws.
        progress: Show a progress bar.
        **effort: The fields of `bnnp.inference.Effort`, as in `steps=1000`.

    Example:
        >>> import bnnp
        >>> post = bnnp.infer(bnnp.BNNP(1, 1, (4,)), [0.0, 1.0], [0.5, -0.5], method="laplace", steps=10)
    """
    *network, x, y = positional(subject, data, "x, y")
    whose, work = Subject.of(subject, network, likelihood), Effort(**effort)
    (posterior,) = _infer_many(whose, [(x, y)], method, num_samples, work, whitened, seed, progress)
    return posterior


@overload
def infer_many(
    model: AmortisedModel, data_sets: DataSets, /, **options: Unpack[OptionsOfMany]
) -> list[InferredPosterior]: ...
@overload
def infer_many(
    prior: Prior,
    network: AnyNetwork,
    data_sets: DataSets,
    /,
    *,
    likelihood: Likelihood,
    **options: Unpack[OptionsOfMany],
) -> list[InferredPosterior]: ...
def infer_many(
    subject: AmortisedModel | Prior,
    /,
    *data: Any,
    method: str | Method = "nuts",
    likelihood: Likelihood | None = None,
    num_samples: int = 1000,
    effort: Effort | None = None,
    whitened: bool = True,
    seed: Seed = 0,
    progress: bool = False,
) -> list[InferredPosterior]:
    """`infer` for many data sets at once, side by side on a leading axis; sizes may differ.

    Args:
        subject: A model, or a prior.
        *data: The data sets, pairs `(x, y)` or tasks; after a prior, the network first.
        method: As for `infer`.
        likelihood: As for `infer`.
        num_samples: As for `infer`.
        effort: How much work goes into it.
        whitened: As for `infer`.
        seed: Of all draws.
        progress: Show a progress bar.

    Returns:
        A posterior for every data set.
    """
    *network, data_sets = positional(subject, data, "data_sets")
    whose = Subject.of(subject, network, likelihood)
    return _infer_many(whose, data_sets, method, num_samples, effort or Effort(), whitened, seed, progress)


def _infer_many(
    subject: Subject,
    data_sets: DataSets,
    method: str | Method,
    num_samples: int,
    effort: Effort,
    whitened: bool,
    seed: Seed,
    progress: bool,
) -> list[InferredPosterior]:
    choice = _method(method)
    if num_samples < 1:
        raise ValueError(f"num_samples: got {num_samples}, expected a positive number")
    number = as_integer(seed)
    prior, network = subject.prior, subject.network
    target = Target.of(prior, network, data_sets, subject.likelihood, whitened and choice.whitened)
    steps = choice.num_steps(effort, num_samples)
    state = choice.init(target, effort, num_samples, child(number, _START))
    generator = child(number, _RUN)
    with ProgressBar(steps, enabled=progress, label="inferring") as bar:
        for _ in range(steps):
            state = choice.step(target, state, generator)
            bar.advance()
    drawn = choice.sample(target, state, num_samples, child(number, _SAMPLE))
    _warn(drawn.diagnostics)
    found = zip(zip(*drawn.weights, strict=True), drawn.diagnostics, strict=True)
    return [
        InferredPosterior(network, target.likelihood, prior.view.columns, list(weights), drawn.chains, diagnostics)
        for weights, diagnostics in found
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
