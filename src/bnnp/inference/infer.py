"""`bnnp.infer`: the weights of one data set, or of many at once, by a method of the user's choice."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from numpy.typing import ArrayLike

from bnnp._random import Seed, as_integer, child
from bnnp._shapes import Float, Tensor
from bnnp.inference.gaussian_vi import GaussianVI
from bnnp.inference.inducing import GIVI
from bnnp.inference.mcmc import HMC, SGHMC, SGLD, run
from bnnp.inference.optimise import Schedule, climb
from bnnp.inference.single_task import SingleTaskBNNP
from bnnp.inference.target import Target
from bnnp.likelihoods import Gaussian, Likelihood
from bnnp.network import AnyNetwork
from bnnp.prediction import WeightSamples
from bnnp.priors.base import Prior
from bnnp.tasks.standardise import Standardiser
from bnnp.tasks.task import Task, TaskBatch, as_columns
from bnnp.training.progress import ProgressBar

Sampler = HMC | SGHMC | SGLD
Variational = GaussianVI | GIVI | SingleTaskBNNP
Method = Sampler | Variational

METHODS: dict[str, Method] = {
    "mfvi": GaussianVI("mfvi"),
    "ucvi": GaussianVI("ucvi"),
    "lcvi": GaussianVI("lcvi"),
    "fcvi": GaussianVI("fcvi"),
    "givi": GIVI(),
    "bnnp": SingleTaskBNNP(),
    "hmc": HMC(),
    "lmc": HMC(leapfrog_steps=1),
    "sghmc": SGHMC(),
    "sgld": SGLD(),
}
BOUND_SAMPLES = 10_000
_START, _RUN, _SAMPLE, _BOUND = range(4)


@dataclass(frozen=True)
class Diagnostics:
    """How inference went. What a method does not have is None.

    acceptance: mean probability of the proposals of every chain.  step_size: of every chain, after warm-up.
    elbo: the estimates of the evidence lower bound during the optimisation.
    bound, bound_error: the bound at its end, from `BOUND_SAMPLES` samples, and its standard error, in nats and in the
        units of the model.
    """

    acceptance: Float[Tensor, "chains"] | None = None
    step_size: Float[Tensor, "chains"] | None = None
    elbo: Float[Tensor, "steps"] | None = None
    bound: float | None = None
    bound_error: float | None = None


@dataclass(frozen=True)
class InferredPosterior(WeightSamples):
    """Samples of the weights given one data set: `predict` and `functions` as for a BNNP's posterior.

    chains: how many Markov chains the samples come from, one after the other; 1 for other methods.
    """

    of_network: AnyNetwork
    of_likelihood: Likelihood
    of_standardiser: Standardiser
    weights: list[Float[Tensor, "samples _d _out"]]
    chains: int
    diagnostics: Diagnostics = field(repr=False)

    @property
    def network(self) -> AnyNetwork:
        return self.of_network

    @property
    def likelihood(self) -> Likelihood:
        return self.of_likelihood

    @property
    def standardiser(self) -> Standardiser:
        return self.of_standardiser


@dataclass(frozen=True)
class Effort:
    """How much work goes into it.

    steps: of the optimiser, or of every Markov chain after its warm-up; None: as many as the samples need.
    learning_rate, elbo_samples: of the optimiser, first and last rate; weight samples a step.
    chains, warmup, thin: Markov chains, steps of each that are thrown away, and how many make one sample.
    """

    steps: int | None = None
    learning_rate: tuple[float, float] = (5e-3, 1e-4)
    elbo_samples: int = 8
    chains: int = 4
    warmup: int = 500
    thin: int = 1


def infer(
    prior: Prior,
    network: AnyNetwork,
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    *,
    method: str | Method = "hmc",
    likelihood: Likelihood | None = None,
    num_samples: int = 1000,
    steps: int | None = None,
    learning_rate: tuple[float, float] = (5e-3, 1e-4),
    chains: int = 4,
    warmup: int = 500,
    thin: int = 1,
    whitened: bool = True,
    seed: Seed = 0,
    progress: bool = False,
) -> InferredPosterior:
    """The posterior over a network's weights for one data set, under any prior of the library, learned or not.

    method: a name from `bnnp.inference.METHODS`, or a record of choices, as `bnnp.inference.HMC(leapfrog_steps=30)`.
    likelihood: as for a model; a trained model's own is `model.likelihood`. Default: `Gaussian(0.1)`, held fixed.
    steps, learning_rate: of the optimiser, for the variational methods.
    chains, warmup, thin: of the samplers; `steps` are those after warm-up, of which every `thin`-th is kept.
    whitened: samplers move in coordinates in which the prior is standard normal, instead of the weights themselves.

    Example: `post = bnnp.infer(model.prior, model.network, x, y, method="hmc", likelihood=model.likelihood, seed=0)`
    """
    effort = Effort(steps, learning_rate, chains=chains, warmup=warmup, thin=thin)
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
    method: str | Method = "hmc",
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
    likelihood = (likelihood or Gaussian(0.1)).for_outputs(network.sizes[-1])
    dtype = prior.standardiser.x_shift.dtype
    data = _prepared(prior, network, likelihood.to(dtype), data_sets)
    target = Target(prior, network, likelihood, data, whitened and isinstance(choice, Sampler))
    if isinstance(choice, Sampler):
        weights, diagnostics = _by_sampling(choice, target, num_samples, effort, number, progress)
    else:
        weights, diagnostics = _by_climbing(choice, target, num_samples, effort, number, progress)
    used = effort.chains if isinstance(choice, Sampler) else 1
    return [
        InferredPosterior(
            network, likelihood, prior.standardiser, [w[i, :num_samples] for w in weights], used, diagnostics[i]
        )
        for i in range(target.sets)
    ]


def _method(method: str | Method) -> Method:
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise ValueError(f"method: got {method!r}, expected one of {', '.join(METHODS)}")
    return METHODS[method]


def _prepared(prior: Prior, network: AnyNetwork, likelihood: Likelihood, data_sets: Sequence) -> TaskBatch:
    """The data sets as a padded batch in the units of the model."""
    if len(data_sets) == 0:
        raise ValueError("data_sets: got none, expected at least one pair (x, y)")
    y_size = likelihood.y_size(network.sizes[-1])
    tasks = []
    for data in data_sets:
        x, y = (data.x, data.y) if isinstance(data, Task) else data
        inputs, outputs = as_columns(x, "x", network.sizes[0]), as_columns(y, "y", y_size)
        if len(inputs) != len(outputs):
            raise ValueError(f"x and y: got {len(inputs)} and {len(outputs)} points, expected as many of each")
        likelihood.check(outputs)
        tasks.append(Task(inputs, outputs))
    batch = TaskBatch.of(tasks, device=prior.standardiser.x_shift.device)
    dtype = prior.standardiser.x_shift.dtype
    y = prior.standardiser.y(batch.y) if likelihood.real_valued else batch.y
    return TaskBatch(prior.standardiser.x(batch.x).to(dtype), y.to(dtype), batch.mask)


def _by_sampling(
    method: Sampler, target: Target, num_samples: int, effort: Effort, seed: int, progress: bool
) -> tuple[list[Tensor], list[Diagnostics]]:
    per_chain = math.ceil(num_samples / effort.chains)
    thin = effort.thin if effort.steps is None else max(1, effort.steps // per_chain)
    start = target.draw_prior(effort.chains, child(seed, _START))
    with ProgressBar(effort.warmup + per_chain * thin, enabled=progress, label="sampling") as bar:
        drawn = run(
            method,
            target,
            start,
            warmup=effort.warmup,
            draws=per_chain,
            thin=thin,
            generator=child(seed, _RUN),
            advance=bar.advance,
        )
    with torch.no_grad():
        weights = target.weights(drawn.positions.flatten(1, 2))
    diagnostics = [
        Diagnostics(acceptance=drawn.acceptance[i], step_size=drawn.step_size[i]) for i in range(target.sets)
    ]
    return weights, diagnostics


def _by_climbing(
    method: Variational, target: Target, num_samples: int, effort: Effort, seed: int, progress: bool
) -> tuple[list[Tensor], list[Diagnostics]]:
    approximation = method.init(target, child(seed, _START))
    generator = child(seed, _RUN)
    schedule = Schedule(5000 if effort.steps is None else effort.steps, effort.learning_rate)

    def bound(samples: int, generator: torch.Generator) -> Float[Tensor, "sets samples"]:
        return method.bound(target, approximation, samples, generator)  # pyright: ignore

    def objective() -> Float[Tensor, "sets"]:
        return bound(effort.elbo_samples, generator).mean(1)

    parameters = [p for p in approximation.parameters() if p.requires_grad and p.numel()]
    with ProgressBar(schedule.steps, enabled=progress, label="optimising") as bar:
        trace = climb(objective, parameters, schedule, lambda value: bar.advance({"elbo": value}))
    bound_generator = child(seed, _BOUND)
    with torch.no_grad():
        weights = method.sample(target, approximation, num_samples, child(seed, _SAMPLE))  # pyright: ignore
        final = _in_parts(lambda count: bound(count, bound_generator), BOUND_SAMPLES)
    errors = final.std(1) / math.sqrt(BOUND_SAMPLES)
    return weights, [
        Diagnostics(elbo=trace[:, i], bound=float(final[i].mean()), bound_error=float(errors[i]))
        for i in range(target.sets)
    ]


def _in_parts(draw: Callable[[int], Float[Tensor, "sets _"]], samples: int) -> Float[Tensor, "sets samples"]:
    """Samples in parts that keep memory bounded."""
    size = 500
    return torch.cat([draw(min(size, samples - start)) for start in range(0, samples, size)], dim=1).double()
