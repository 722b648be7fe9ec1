"""Mixtures of log-normals with equal weights: what predictions of positive outputs are."""

import math

import torch

from bnnp._core.shapes import Float, Tensor


def moments(
    means: Float[Tensor, "samples *shape"], variances: Float[Tensor, "samples *shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Mean and standard deviation of `exp(z)`, where `z` has a mixture of normals.

    They are computed by logarithms: the square of a mean may overflow where its ratio to the variance does not.

    Args:
        means: Means of the normals.
        variances: Variances of the normals.
    """
    count = math.log(len(means))
    first = torch.logsumexp(means + variances / 2, 0) - count
    second = torch.logsumexp(2 * means + 2 * variances, 0) - count
    return first.exp(), first.exp() * torch.expm1((second - 2 * first).clamp(min=0)).sqrt()
