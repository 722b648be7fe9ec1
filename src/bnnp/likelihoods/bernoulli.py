"""Outputs between 0 and 1."""

import torch
from torch.nn import functional

from bnnp._core.shapes import Tensor
from bnnp.likelihoods.base import Likelihood


class Bernoulli(Likelihood):
    """Observations in [0, 1] with cross-entropy as log-density: binary outcomes, or grey values as in the paper.

    The network's outputs are log-odds.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8,), likelihood=bnnp.Bernoulli(), seed=0)
        >>> post = model.condition(x, [[0], [1], [1]], num_samples=5, seed=0)
        >>> probabilities = post.predict(x_new).mean
        >>> bool(((probabilities >= 0) & (probabilities <= 1)).all())
        True
    """

    real_valued = False

    def for_outputs(self, out_size: int) -> "Bernoulli":
        return Bernoulli()

    def y_size(self, out_size: int) -> int:
        return out_size

    def check(self, y: Tensor) -> None:
        if y.numel() and not bool(((y >= 0) & (y <= 1)).all()):
            raise ValueError(f"y: got values from {y.min():g} to {y.max():g}, expected values in [0, 1] for Bernoulli")

    def encode(self, y: Tensor) -> Tensor:
        return y

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        f, y = torch.broadcast_tensors(f, y)
        return -functional.binary_cross_entropy_with_logits(f, y, reduction="none").sum(-1)

    def slope(self, f: Tensor, y: Tensor) -> Tensor:
        return y - torch.sigmoid(f)

    def curvature_root(self, f: Tensor) -> Tensor:
        return torch.diag_embed(self.variance(f).sqrt())

    def mean(self, f: Tensor) -> Tensor:
        return torch.sigmoid(f)

    def variance(self, f: Tensor) -> Tensor:
        p = torch.sigmoid(f)
        return p * (1 - p)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        uniform = torch.rand(f.shape, generator=generator, dtype=f.dtype, device=generator.device).to(f.device)
        return (uniform < torch.sigmoid(f)).to(f.dtype)

    def config(self) -> dict:
        return {"name": "bernoulli"}
