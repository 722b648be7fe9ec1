r"""Training of features: hidden weights at the means of their prior, and the last layer integrated.

With the hidden weights at fixed values, a task's outputs are Gaussian given its inputs. Their log-density is then what
PP-AVI becomes, `log q(Y_t | D_c) + ELBO(D_c) = log p(Y_t, Y_c)`, without samples and without inference networks. So a
step costs a fraction of one of `bnnp.fit`, and its gradient has no noise but that of the choice of tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bnnp._core.progress import ProgressBar
from bnnp._core.random import child
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.base import MetaLearner
from bnnp.networks.base import features_of_layer
from bnnp.numerics.densities import log_normaliser
from bnnp.numerics.gaussian import Observations, UnitPrior, with_missing
from bnnp.numerics.health import FactorisationError
from bnnp.numerics.last_layer import condition_last_layer
from bnnp.priors import Prior
from bnnp.priors.starts.mixed import LEAST_NOISE
from bnnp.priors.starts.sensitivity import HIDDEN_NOISE, moves_of_functions
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.task import Task, TaskBatch
from bnnp.training.run import TrainingDiverged

BATCH = 16
"""Tasks per step."""
CLIP_NORM = 10.0
"""Bound on the norm of the gradient of the log-density per point."""
POINTS = 200
"""Largest number of points per task and step."""


@dataclass(frozen=True)
class Pace:
    """How far parameters move per step.

    Attributes:
        rate: Learning rate of the first step; it falls to 0 along a cosine.
        largest_move: At the first rate, a step that moves all weights of a hidden layer at random moves functions by
            this many times the noise at most.
    """

    rate: float
    largest_move: float


SMALL_STEPS, LARGE_STEPS = Pace(3e-3, 1.0), Pace(3e-2, 10.0)
"""Small steps end nearer to the best features. Large ones find, in a tenth of the time, those that are far away."""


def can_train_features(model: MetaLearner) -> bool:
    """Whether the last layer has a closed form, all of the prior may be learned, and points do not see each other."""
    prior = model.weight_prior
    return (
        prior is not None
        and isinstance(model.likelihood, Gaussian)
        and prior.learnability == 1
        and not prior.network.mixes_points
        and prior.network.num_layers > 1
    )


def train_features(
    model: MetaLearner, tasks: TaskSource, steps: int, *, pace: Pace = SMALL_STEPS, progress: bool, seed: int
) -> None:
    """Train hidden weights, the last layer's prior and the noise by the evidence of whole tasks, by Adam.

    The hidden weights' prior keeps a small uncertainty about its new means, as after `bnnp.starts.Empirical`. The model
    changes only after the last step. Cost per step: `O(n d^2 + min(n, d)^3)` per task and output.

    Args:
        model: A model whose prior has been started (`can_train_features`).
        tasks: A task source.
        steps: Number of steps.
        pace: How far parameters move per step.
        progress: Whether to show a progress bar.
        seed: Seed of the batches.

    Raises:
        TrainingDiverged: If the evidence is not finite, or the last layer's covariance becomes singular; the model has
            not changed.
    """
    prior = model.weight_prior
    assert prior is not None
    generator = child(seed, 5)
    count = min(BATCH, len(tasks)) if isinstance(tasks, Collection) else BATCH
    first = _prepared(model, tasks.drawn(count, generator), generator)
    free = _Free(model, first, pace)
    optimiser = torch.optim.Adam(free.parameters(), lr=pace.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    with ProgressBar(steps, enabled=progress, label="features") as bar:
        for step in range(steps):
            batch = _prepared(model, tasks.drawn(count, generator), generator)
            density = _step(free, batch, optimiser, step)
            schedule.step()
            bar.advance({"log-density per point": density})
    if torch.linalg.cholesky_ex(free.covariance()).info.any():
        raise TrainingDiverged(steps, None, "the covariance of the last layer's weights became singular")
    free.write(first.x[first.mask])


def _step(free: "_Free", batch: TaskBatch, optimiser: torch.optim.Optimizer, step: int) -> float:
    """Take one step, and return the log-density per point before it."""
    try:
        density = free.log_evidence(batch).sum() / batch.mask.sum()
    except FactorisationError as error:
        raise TrainingDiverged(step + 1, error.task, str(error)) from error
    optimiser.zero_grad()
    (-density).backward()
    norm = nn.utils.clip_grad_norm_(free.parameters(), CLIP_NORM)
    if not bool(torch.isfinite(norm) & torch.isfinite(density)):
        raise TrainingDiverged(step + 1, None, "the log-evidence or its gradient is not finite")
    optimiser.step()
    free.bound_noise()
    return float(density.detach())


class _Free(nn.Module):
    """What is trained, in coordinates in which Adam may move every parameter at the same rate.

    Args:
        model: The model.
        batch: A prepared batch. Its inputs tell how much hidden weights move functions, and its outputs their scale, of
            which the noise stays at least a small share.
        pace: How far parameters move per step.
    """

    def __init__(self, model: MetaLearner, batch: TaskBatch, pace: Pace):
        super().__init__()
        likelihood, prior, x = model.likelihood, model.weight_prior, batch.x[batch.mask]
        assert isinstance(likelihood, Gaussian)
        assert prior is not None
        self.likelihood, self.prior = [likelihood], [prior]  # in lists, so that their parameters are not trained here
        self.hidden, self.centre, self.factor = _of_prior(prior)
        self.learns_noise = likelihood.learnable
        noise_at = likelihood.noise_at(x).detach().double().cpu()
        moves = moves_of_functions(prior.network, self.hidden, x, self.centre, _square(self.factor), noise_at)
        self.scales = [min(1.0, pace.largest_move / pace.rate / float(move.max())) for move in moves]
        self.moved = nn.ParameterList([torch.zeros_like(weights) for weights in self.hidden])
        self.shift, self.log_scale = (nn.Parameter(torch.zeros_like(self.centre)) for _ in range(2))
        self.lower = nn.Parameter(torch.zeros_like(self.factor)) if self.factor.ndim == 3 else None
        noise = likelihood.noise.detach().double().cpu()
        self.log_noise = nn.Parameter(noise.log(), requires_grad=likelihood.learnable)
        self.least = (LEAST_NOISE * batch.y[batch.mask].std(0, correction=0).to(noise)).log()

    def weights(self) -> list[Float[Tensor, "_d _out"]]:
        """The hidden weights."""
        return [w + scale * by for w, scale, by in zip(self.hidden, self.scales, self.moved, strict=True)]

    def last_layer(self) -> UnitPrior:
        """The prior of the last layer, one unit per output."""
        scale = self.log_scale.exp()
        if self.lower is None:
            return UnitPrior((self.centre + self.factor * self.shift)[None, None], self.factor * scale)
        mean = self.centre + (self.factor @ self.shift.unsqueeze(-1))[..., 0]
        own = torch.diag_embed(scale) + self.lower.tril(-1)
        return UnitPrior(mean[None, None], self.factor @ own)

    def covariance(self) -> Float[Tensor, "out d d"]:
        """Covariance of the last layer's weights into each output."""
        factor = _square(self.last_layer().factor.detach())
        return factor @ factor.mT

    def log_evidence(self, batch: TaskBatch) -> Float[Tensor, "tasks"]:
        """Log-density of all outputs of each task of a prepared batch."""
        likelihood, network = self.likelihood[0], self.prior[0].network
        relative = likelihood.noise_at(batch.x).detach() / likelihood.noise.detach()
        inverse = torch.exp(-self.log_noise) / relative.double()
        seen = with_missing(Observations(batch.y.mT.unsqueeze(1), inverse.mT.unsqueeze(1)), batch.mask)
        phi = features_of_layer(network.program(batch.x), self.weights()).unsqueeze(1)
        layer = condition_last_layer(self.last_layer(), phi, seen)
        return layer.log_evidence.sum((-2, -1)) - log_normaliser(seen.inverse_noise).sum((-3, -2, -1))

    @torch.no_grad()
    def bound_noise(self) -> None:
        """Keep a noise that is learned above its least value, from which weights are inferred accurately."""
        if self.learns_noise:
            self.log_noise.clamp_(min=self.least)

    @torch.no_grad()
    def write(self, x: Float[Tensor, "points x"]) -> None:
        """Give the prior and the likelihood what was learned."""
        prior, likelihood, noise = self.prior[0], self.likelihood[0], self.log_noise.exp()
        hidden, last = self.weights(), self.last_layer()
        factor = _square(last.factor)
        noise_at = likelihood.noise_at(x).double().cpu() / likelihood.noise.double().cpu() * noise
        moves = moves_of_functions(prior.network, hidden, x, last.mean[0, 0], factor, noise_at)
        for layer, weights in enumerate(hidden):
            prior.assign_layer(layer, weights, (HIDDEN_NOISE / moves[layer]).amin().expand(weights.shape))
        covariance = self.covariance()
        for unit, mean in enumerate(last.mean[0, 0]):
            prior.assign_unit(prior.network.num_layers - 1, unit, mean, covariance[unit])
        if likelihood.learnable:
            likelihood.set_noise(noise)


def _prepared(model: MetaLearner, tasks: Sequence[Task], generator: torch.Generator) -> TaskBatch:
    """A batch as the model sees it, in float64, with some of the points of large tasks."""
    some = [task.take(torch.randperm(len(task), generator=generator)[:POINTS]) for task in tasks]
    batch = model.prepare(TaskBatch.of(some, device=model.device))
    return TaskBatch(batch.x.double().cpu(), batch.y.double().cpu(), batch.mask.cpu())


@torch.no_grad()
def _of_prior(prior: Prior) -> tuple[list[Tensor], Float[Tensor, "out d"], Tensor]:
    """Means of the hidden weights; mean and factor of each output's last-layer weights."""
    network, hidden, earlier = prior.network, [], []
    for layer in range(network.num_layers - 1):
        units = prior.layer(layer, earlier).mean.double().cpu()
        hidden.append(prior.from_units(layer, units)[0, 0])
        earlier.append(torch.zeros_like(units).to(prior.layer(0, []).mean))
    last = prior.layer(network.num_layers - 1, earlier)
    d, out = network.weight_shapes[-1]
    mean = last.mean.double().cpu().reshape(out, d)
    factor = last.factor.double().cpu()
    if factor.ndim == 2 or not prior.couples_outputs:
        return hidden, mean, factor.reshape(out, d) if factor.ndim == 2 else factor
    blocks = (factor @ factor.mT)[0].unflatten(0, (out, d)).unflatten(2, (out, d))
    return hidden, mean, torch.linalg.cholesky(torch.stack([blocks[i, :, i] for i in range(out)]))


def _square(factor: Tensor) -> Float[Tensor, "out d d"]:
    return torch.diag_embed(factor) if factor.ndim == 2 else factor
