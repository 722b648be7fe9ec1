"""`bnnp.infer`: the posterior over weights for one data set, or for many, by a method of the user's choice."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypedDict, Unpack, overload

from numpy.typing import ArrayLike

from bnnp._core.checks import check_choice, check_flag, check_samples
from bnnp._core.progress import ProgressBar
from bnnp._core.random import Seed, as_integer, child
from bnnp._core.shapes import Tensor
from bnnp.inference.base import Diagnostics, Effort, Method
from bnnp.inference.mcmc.nuts import NUTS
from bnnp.inference.mcmc.steps import HMC, SGHMC, SGLD
from bnnp.inference.modes.modes import Ensemble, Laplace
from bnnp.inference.modes.swag import SWAG
from bnnp.inference.posterior import InferenceWarning, InferredPosterior
from bnnp.inference.subject import Subject, positional
from bnnp.inference.target import Target
from bnnp.inference.vi.gaussian import GaussianVI
from bnnp.inference.vi.inducing import GIVI
from bnnp.inference.vi.single_task import SingleTaskBNNP
from bnnp.likelihoods.base import Likelihood
from bnnp.models.amortised import AmortisedModel
from bnnp.networks.base import AnyNetwork
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
"""Methods by name, with their default settings."""
_START, _RUN, _SAMPLE = range(3)

Array = ArrayLike | Tensor
Progress = bool | Callable[[int, int], None]
DataSets = Sequence[tuple[Array, Array] | Task]


class Options(TypedDict, total=False):
    """Options of both forms of `infer`; `infer` and `Effort` explain each of them."""

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
    progress: Progress


class OptionsOfMany(TypedDict, total=False):
    """Options of both forms of `infer_many`."""

    method: str | Method
    num_samples: int
    effort: Effort | None
    whitened: bool
    seed: Seed
    progress: Progress


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
    progress: Progress = False,
    **effort: Any,
) -> InferredPosterior:
    """Infer the posterior over a network's weights for one data set, under any prior of the library, learned or not.

    `infer(model, x, y)` takes the prior, the network and the likelihood, with its learned noise, from a model.
    `infer(prior, network, x, y, likelihood=...)` takes them one by one.

    Args:
        subject: A model, or a prior.
        *data: The inputs (points, in) and the outputs (points, out) of the data set. After a prior, the network comes
            before them.
        method: A name from `bnnp.inference.METHODS`, or a method with its settings, such as `bnnp.inference.HMC()`.
        likelihood: The likelihood, held fixed. Only with a prior; a model brings its own.
        num_samples: Number of weight samples.
        whitened: Whether Markov chains and searches for modes work in coordinates in which the prior is standard
            normal.
        seed: Seed of all draws.
        progress: Whether to show a progress bar; or a function of the steps done and of all steps, which is called
            after every step. It may raise an exception of its own, which ends the inference.
        **effort: Fields of `bnnp.inference.Effort`, as in `steps=1000`.

    Returns:
        Weight samples, with predictions, functions and diagnostics.

    Raises:
        ValueError: If an argument does not fit, or the model has no prior over weights.

    Example:
        >>> found = bnnp.infer(model, x, y, method="ensemble", num_samples=3, steps=5)
        >>> found.predict(x_new).mean.shape
        (2, 1)
        >>> parts = model.prior, model.network
        >>> found = bnnp.infer(*parts, x, y, likelihood=bnnp.Gaussian(0.1), method="ensemble", num_samples=3, steps=5)
        >>> found.num_samples
        3
    """
    *network, x, y = positional(subject, data, "x, y")
    unknown = sorted(effort.keys() - {field.name for field in fields(Effort)})
    if unknown:
        raise ValueError(
            f"infer: got the option {unknown[0]!r}, expected fields of bnnp.inference.Effort, as in steps=10"
        )
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
    effort: Effort | None = None,
    num_samples: int = 1000,
    whitened: bool = True,
    seed: Seed = 0,
    progress: Progress = False,
) -> list[InferredPosterior]:
    """Infer the posteriors of many data sets at once, as `infer` does for one. The data sets may differ in size.

    Args:
        subject: A model, or a prior.
        *data: The data sets, as pairs `(x, y)` or tasks. After a prior, the network comes before them.
        method: As for `infer`.
        likelihood: As for `infer`.
        effort: How much work goes into the inference.
        num_samples: Number of weight samples per data set.
        whitened: As for `infer`.
        seed: Seed of all draws.
        progress: As for `infer`.

    Returns:
        One posterior per data set.

    Raises:
        ValueError: If an argument does not fit, or there are no data sets.

    Example:
        >>> effort = bnnp.inference.Effort(steps=5)
        >>> sets = [(x, y), (x[:2], y[:2])]
        >>> found = bnnp.inference.infer_many(model, sets, method="ensemble", num_samples=3, effort=effort)
        >>> [one.num_samples for one in found]
        [3, 3]
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
    progress: Progress,
) -> list[InferredPosterior]:
    choice = _method(method)
    check_samples(num_samples)
    check_flag("whitened", whitened)
    if not callable(progress):
        check_flag("progress", progress)
    number = as_integer(seed)
    prior, network = subject.prior, subject.network
    target = Target.of(prior, network, data_sets, subject.likelihood, whitened and choice.whitened)
    steps = choice.num_steps(effort, num_samples)
    state = choice.init(target, effort, num_samples, child(number, _START))
    generator = child(number, _RUN)
    with ProgressBar(steps, enabled=progress is True, label="inferring") as bar:
        for done in range(1, steps + 1):
            state = choice.step(target, state, generator)
            bar.advance()
            if callable(progress):
                progress(done, steps)
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
    if isinstance(method, Method):
        return method
    check_choice("method", method, METHODS)
    return METHODS[method]
