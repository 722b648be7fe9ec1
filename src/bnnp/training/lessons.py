r"""Lessons for inference networks: draws of the prior, of which all weights are known.

A draw of the prior gives functions, and what each hidden unit does at each point. The inference networks learn to tell
that from the point alone: the pseudo-observation of a unit, together with the unit's prior, should give what the unit
did the highest density. No posterior is sampled, so a step costs little, and training then begins with inference that
already looks at the outputs.
"""

import torch

from bnnp._core.progress import ProgressBar
from bnnp._core.random import child, normal
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.evidence import WeightModel
from bnnp.networks.base import run
from bnnp.numerics.records import UnitPrior
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.task import TaskBatch

RATE = 3e-3
"""Learning rate of the first step; it falls to 0 along a cosine."""
BATCH = 16
"""Draws per step."""
POINTS = 32
"""Largest number of points per draw."""


def can_teach(model: object) -> bool:
    """Whether draws of the model's prior can teach its inference networks.

    The prior must keep the outputs of a layer independent, points must not see each other, and outputs must be numbers.
    """
    return (
        isinstance(model, WeightModel)
        and isinstance(model.likelihood, Gaussian)
        and not model.prior.couples_outputs
        and not model.network.mixes_points
    )


def teach_inference(model: WeightModel, tasks: TaskSource, steps: int, *, progress: bool, seed: int) -> None:
    """Train the inference networks of the hidden layers on draws of the prior, at the inputs of tasks, by Adam.

    Cost per step: `O(points d^2)` per draw and unit.

    Args:
        model: A model whose prior has been started (`can_teach`).
        tasks: A task source, of which only the inputs are used.
        steps: Number of steps.
        progress: Whether to show a progress bar.
        seed: Seed of the draws.
    """
    generator = child(seed, 6)
    count = min(BATCH, len(tasks)) if isinstance(tasks, Collection) else BATCH
    taught = [parameter for layer in model.layers[: model.network.num_layers - 1] for parameter in layer.parameters()]
    optimiser = torch.optim.Adam(taught, lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    with ProgressBar(steps, enabled=progress, label="inference") as bar:
        for _ in range(steps):
            some = [
                task.take(torch.randperm(len(task), generator=generator)[:POINTS])
                for task in tasks.drawn(count, generator)
            ]
            batch = model.prepare(TaskBatch.of(some, device=model.device))
            value = lesson(model, batch, generator)
            optimiser.zero_grad()
            (-value).backward()
            optimiser.step()
            schedule.step()
            bar.advance({"log-density per unit": float(value.detach())})


def lesson(model: WeightModel, batch: TaskBatch, generator: torch.Generator) -> Float[Tensor, ""]:
    """Mean log-density of what hidden units of one draw per task did, given their prior and pseudo-observations.

    Args:
        model: The model.
        batch: Prepared points, of which the inputs are used.
        generator: The generator of the draws.
    """
    prior, last = model.prior, model.network.num_layers - 1
    whitened: list[Tensor] = []
    seen: list[tuple[Tensor, Tensor, UnitPrior]] = []

    def outputs(layer: int, phi: Tensor) -> Tensor:
        units = prior.layer(layer, whitened)
        whitened.append(normal((1, len(phi), *prior.unit_shape(layer)), units.factor, generator))
        did = phi @ prior.from_units(layer, units.weights(whitened[-1]))[0]
        seen.append((phi, did, units))
        return did

    with torch.no_grad():
        clean = run(model.network.program(batch.x), outputs)
        y = clean + model.noise_at(batch.x) * normal(clean.shape, clean, generator)
    drawn, before = TaskBatch(batch.x, y, batch.mask), [batch.x, *(did for _, did, _ in seen)]
    values = []
    for layer, (phi, did, units) in enumerate(seen[:last]):
        pseudo = model.pseudo_observations(layer, drawn, before[layer].unsqueeze(1))
        mean, variance = _moments(units, phi)
        precision = variance.reciprocal() + pseudo.inverse_noise[:, 0].mT.square()
        centre = (mean / variance + pseudo.inverse_noise[:, 0].mT.square() * pseudo.y[:, 0].mT) / precision
        density = 0.5 * (precision.log() - precision * (did - centre).square())
        values.append(density[batch.mask].mean())
    return torch.stack(values).sum()


@torch.no_grad()
def _moments(
    units: UnitPrior, phi: Float[Tensor, "tasks points d"]
) -> tuple[Float[Tensor, "tasks points units"], Float[Tensor, "tasks points units"]]:
    """Means and variances of what the units of a layer do at features, under their prior."""
    mean = torch.einsum("tnd,tud->tnu", phi, units.mean[0].expand(len(phi), -1, -1))
    if units.is_diagonal:
        return mean, torch.einsum("tnd,ud->tnu", phi.square(), units.covariance)
    return mean, torch.einsum("tnd,ude->tnue", phi, units.factor).square().sum(-1)
