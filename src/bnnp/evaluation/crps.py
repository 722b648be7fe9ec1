"""The continuous ranked probability score of a mixture of Gaussians, or of log-normals, with equal weights."""

import math

import numpy as np
import torch

MANY = 100
"""Number of components above which the closed form, a sum over all pairs, is slower than the integral."""
NUMBERS_AT_ONCE = 2**22
STEPS_PER_DEVIATION = 2.0
"""Steps of the trapezoidal rule per least standard deviation: the integrand is analytic, the error below 1e-15."""


def crps_of_mixture(observed: np.ndarray, means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """The score of each of n observations under its own mixture of K Gaussians.

    It is `E|X - y| - E|X - X'|/2`, where `E|X - X'|/2 = integral of F (1 - F)`: in closed form up to K = 100, by the
    integral to 1e-12 above. Cost per observation: `O(K^2)` up to K = 100, `O(K range / least standard deviation)`
    above.

    Args:
        observed: Observations (n,).
        means: Means of the components (n, K).
        deviations: Standard deviations of the components (n, K).

    Returns:
        Scores (n,).
    """
    count, components = means.shape
    size = max(1, NUMBERS_AT_ONCE // components**2 if components <= MANY else 1)
    parts = [slice(start, start + size) for start in range(0, count, size)]
    by_part = _closed_form if components <= MANY else _by_integral
    found = [by_part(observed[part], means[part], deviations[part]) for part in parts]
    return np.concatenate(found) if found else np.empty(0)


def crps_of_lognormals(observed: np.ndarray, means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """The score of each of n positive observations under its own mixture of K log-normals, in closed form.

    It is `E|X - y| - E|X - X'|/2`. Cost per observation: `O(K^2)`.

    Args:
        observed: Observations (n,).
        means: Means of the logarithm under every component (n, K).
        deviations: Standard deviations of the logarithm under every component (n, K).

    Returns:
        Scores (n,).
    """
    size = max(1, NUMBERS_AT_ONCE // means.shape[1] ** 2)
    parts = zip(*(torch.from_numpy(values).split(size) for values in (observed, means, deviations)), strict=True)
    return np.concatenate([_of_lognormals(*part).numpy() for part in parts])


def _of_lognormals(y: torch.Tensor, means: torch.Tensor, deviations: torch.Tensor) -> torch.Tensor:
    def sign(scaled: torch.Tensor) -> torch.Tensor:  # mean of the sign of a normal variable of unit variance
        return torch.special.erf(scaled / math.sqrt(2))

    size, variances = (means + deviations.square() / 2).exp(), deviations.square()
    scaled = (y.log().unsqueeze(-1) - means) / deviations
    distance = y.unsqueeze(-1) * sign(scaled) - size * sign(scaled - deviations)
    both = (variances.unsqueeze(-1) + variances.unsqueeze(-2)).sqrt()
    above = (means.unsqueeze(-1) - means.unsqueeze(-2) + variances.unsqueeze(-1)) / both
    return distance.mean(-1) - (size.unsqueeze(-1) * sign(above)).mean((-2, -1))  # half of the sum over both of a pair


def _closed_form(observed: np.ndarray, means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    import scoringrules

    return np.asarray(scoringrules.crps_mixnorm(observed, means, deviations))


def _by_integral(observed: np.ndarray, means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    import scoringrules

    alone = np.asarray(scoringrules.crps_normal(observed[:, None], means, deviations))
    distance = alone + deviations / math.sqrt(math.pi)
    low, high = (means - 9 * deviations).min(), (means + 9 * deviations).max()  # beyond, F (1 - F) is below 1e-18
    steps = math.ceil(STEPS_PER_DEVIATION * (high - low) / deviations.min())
    mean, deviation = (torch.from_numpy(values).unsqueeze(-1) for values in (means, deviations))
    width, total = (high - low) / steps, 0.0
    at_once = max(1, NUMBERS_AT_ONCE // means.shape[1])
    for start in range(0, steps, at_once):
        at = low + width * torch.arange(start, min(start + at_once, steps), dtype=torch.float64)
        below = torch.special.ndtr((at - mean) / deviation).mean(1)
        total = total + (below * (1 - below)).sum(-1).numpy()
    return distance.mean(1) - width * total
