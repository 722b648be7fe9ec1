"""The exact predictive of a Gaussian process: the best that any model can do on tasks that come from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown


@dataclass(frozen=True, eq=False, repr=False)
class ExactPredictive(Shown):
    """The predictive distribution of the true process at new inputs.

    Attributes:
        mean: Mean at each input (points, 1).
        covariance: Covariance (points, points) of the function itself, without noise.
        noise: Standard deviation of the observations about the function.

    Example:
        >>> exact = bnnp.tasks.gp(noise=0.1).oracle(x, y, x_new)
        >>> exact.mean.shape, exact.covariance.shape
        (torch.Size([2, 1]), torch.Size([2, 2]))
    """

    mean: Float[Tensor, "points 1"]
    covariance: Float[Tensor, "points points"]
    noise: float

    @property
    def std(self) -> Float[Tensor, "points 1"]:
        """Standard deviation of a new observation."""
        return (self.covariance.diagonal() + self.noise**2).sqrt().unsqueeze(-1)

    def marginal_log_prob(self, y: Float[Tensor, "points 1"]) -> Float[Tensor, "points"]:
        """Log-density of each observation, irrespective of the others."""
        return torch.distributions.Normal(self.mean, self.std).log_prob(y).squeeze(-1)

    def joint_log_prob(self, y: Float[Tensor, "points 1"]) -> float:
        """Log-density of all observations together."""
        n = len(self.mean)
        factor = torch.linalg.cholesky(self.covariance + self.noise**2 * torch.eye(n, dtype=self.covariance.dtype))
        z = torch.linalg.solve_triangular(factor, y.to(factor) - self.mean, upper=False)
        return float(-0.5 * z.square().sum() - factor.diagonal().log().sum() - 0.5 * n * math.log(2 * math.pi))

    def sample(self, num_samples: int, generator: torch.Generator) -> Float[Tensor, "samples points 1"]:
        """Draw functions, without observation noise.

        Args:
            num_samples: Number of functions.
            generator: Source of randomness.

        Returns:
            Values of each function at each input.
        """
        values, vectors = torch.linalg.eigh(self.covariance)
        root = vectors * values.clamp(min=0).sqrt()  # rounding may leave tiny negative eigenvalues
        z = torch.randn(num_samples, len(self.mean), generator=generator, dtype=root.dtype)
        return self.mean + (z @ root.T).unsqueeze(-1)

    def _described(self) -> dict[str, object]:
        return {"points": len(self.mean), "noise": self.noise}


def gaussian_process_posterior(
    mean: Callable[[Tensor], Tensor],
    covariance: Callable[[Tensor, Tensor], Tensor],
    noise: float,
    x: Float[Tensor, "context 1"],
    y: Float[Tensor, "context 1"],
    x_new: Float[Tensor, "points 1"],
) -> ExactPredictive:
    """Textbook GP regression. `O(n^3)` in the context size.

    Args:
        mean: Prior mean as a function of inputs.
        covariance: Prior covariance as a function of two sets of inputs.
        noise: Standard deviation of the observations.
        x: Inputs of the context.
        y: Outputs of the context.
        x_new: Inputs to predict at.

    Returns:
        The predictive at `x_new`; that of the prior if the context is empty.
    """
    prior_mean, prior_covariance = mean(x_new), covariance(x_new, x_new)
    if len(x) == 0:
        return ExactPredictive(prior_mean, prior_covariance, noise)
    factor = torch.linalg.cholesky(covariance(x, x) + noise**2 * torch.eye(len(x), dtype=x.dtype))
    half = torch.linalg.solve_triangular(factor, covariance(x, x_new), upper=False)
    whitened = torch.linalg.solve_triangular(factor, y - mean(x), upper=False)
    return ExactPredictive(prior_mean + half.T @ whitened, prior_covariance - half.T @ half, noise)
