"""The points of several data sets, as methods of inference need them."""

from collections.abc import Sequence

import torch

from bnnp._core.shapes import Float, Int, Tensor
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.gaussian import at_points
from bnnp.networks.base import AnyNetwork
from bnnp.tasks.task import TaskBatch


def beside_each_other(data: TaskBatch, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, outputs and a weight for every point (0 for padding), repeated for the samples of every data set."""
    parts = (data.x, data.y, data.mask.to(data.x.dtype))
    x, y, share = (part.repeat_interleave(samples, 0) if samples > 1 else part for part in parts)
    return x, y, share


def one_set(data: TaskBatch, index: int) -> TaskBatch:
    """One data set, without its padding."""
    count = int(data.mask[index].sum())
    here = (slice(index, index + 1), slice(0, count))
    return TaskBatch(data.x[here], data.y[here], data.mask[here])


def random_rows(data: TaskBatch, count: int, generator: torch.Generator) -> Int[Tensor, "sets count"]:
    """Indices of `count` random points of every data set; padding comes last."""
    keys = torch.rand(data.mask.shape, generator=generator).to(data.mask.device)
    return keys.masked_fill(~data.mask, 2.0).argsort(1)[:, :count]


def rows_of(
    values: Float[Tensor, "sets points columns"], rows: Int[Tensor, "sets count"]
) -> Float[Tensor, "sets count columns"]:
    return values.gather(1, rows.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def log_likelihood(
    network: AnyNetwork, likelihood: Likelihood, weights: Sequence[Tensor], batch: TaskBatch
) -> Float[Tensor, "sets samples points"]:
    """Log-density of every point under every sample's weights; 0 for padding."""
    outputs = network(weights, batch.x.unsqueeze(1), batch.mask.unsqueeze(1))
    return at_points(likelihood, batch.x.unsqueeze(1)).log_prob(outputs, batch.y.unsqueeze(1)) * batch.mask.unsqueeze(1)
