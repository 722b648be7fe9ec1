"""The scores of one prediction."""

import math

import numpy as np
import torch

from bnnp._core.random import Seed
from bnnp.evaluation.crps import crps_of_lognormals, crps_of_mixture
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian, GaussianNoise
from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.prediction.sampled import SampledPredictive

COVERAGE_LEVELS = (0.5, 0.9, 0.95)


def score(predictive: Predictive, y: torch.Tensor, seed: Seed = 0, estimator: str | None = None) -> dict[str, float]:
    """All scores of one prediction: log densities (see `lppd`), errors, CRPS and coverage, or accuracy for classes.

    Args:
        predictive: The prediction.
        y: The true outputs (points, out), in the user's units.
        seed: Seed of the observations, where a score needs draws of them.
        estimator: The part after the `@` in the names of log densities; by default the result of `estimator_of`.

    Returns:
        The scores by name.

    Example:
        >>> import torch
        >>> found = bnnp.evaluation.score(post.predict(x), torch.as_tensor(y))
        >>> sorted(found)[:3]
        ['coverage_50', 'coverage_90', 'coverage_95']
    """
    terms = predictive.pointwise_log_prob(y)
    densities = {**lppd(terms), "joint": predictive.joint_log_prob(y) / len(y)}  # not all know it from single points
    name = estimator_of(predictive, len(terms)) if estimator is None else estimator
    result = {f"{kind}_lppd@{name}": value for kind, value in densities.items()}
    if isinstance(predictive.likelihood, Categorical):
        labels = y.squeeze(-1).numpy()
        return {**result, "accuracy": float((predictive.mean.argmax(-1) == labels).mean())}
    observed = y.numpy()
    error = predictive.mean - observed
    result["mae"] = float(np.abs(error).mean())
    result["rmse"] = float(np.sqrt(np.square(error).mean()))
    if isinstance(predictive, MixturePredictive):
        means, spreads = (values.reshape(len(values), -1).T for values in predictive.standard_components())
        of_mixture = crps_of_lognormals if predictive.columns.positive else crps_of_mixture
        result["crps"] = float(of_mixture(observed.reshape(-1), means, spreads).mean())
        ranks = predictive.cdf(y)
    else:
        import scoringrules

        draws = predictive.observations(seed)
        # the estimator of probability-weighted moments is the unbiased one in K log K, not K^2
        crps = scoringrules.crps_ensemble(observed, draws, m_axis=0, estimator="pwm")
        result["crps"], ranks = float(np.mean(np.asarray(crps))), None
    for level in COVERAGE_LEVELS:
        ends = (1 - level) / 2, (1 + level) / 2
        if ranks is None:
            low, high = np.quantile(draws, ends, axis=0)
            inside = (observed >= low) & (observed <= high)
        else:
            inside = (ranks >= ends[0]) & (ranks <= ends[1])
        result[f"coverage_{round(100 * level)}"] = float(inside.mean())
    return result


def estimator_of(predictive: Predictive, samples: int) -> str:
    """How log-densities are estimated: from a number of samples, with the last layer integrated or not, or exactly."""
    if not isinstance(predictive, MixturePredictive):
        return str(samples)
    return "exact" if predictive.components.exact else f"{samples} integrated"


def lppd(terms: torch.Tensor) -> dict[str, float]:
    """The three kinds of log predictive density per point.

    - joint: `(1/n) log (1/K) sum_k prod_n p_kn`
    - marginal: `(1/n) sum_n log (1/K) sum_k p_kn`
    - pooled: `log 1/(K n) sum_k sum_n p_kn`

    Args:
        terms: Log-densities `log p_kn` (samples, points).

    Returns:
        The three values by name.

    Example:
        >>> import torch
        >>> bnnp.evaluation.lppd(torch.zeros(2, 3))
        {'joint': 0.0, 'marginal': 0.0, 'pooled': 0.0}
    """
    samples, points = terms.shape
    return {
        "joint": float((torch.logsumexp(terms.sum(1), 0) - math.log(samples)) / points),
        "marginal": float((torch.logsumexp(terms, 0) - math.log(samples)).mean()),
        "pooled": float(torch.logsumexp(terms.flatten(), 0) - math.log(samples * points)),
    }


def with_noise(predictive: Predictive, noise: float) -> Predictive:
    """The same prediction with another Gaussian observation noise.

    Args:
        predictive: The prediction.
        noise: Standard deviation of the new noise, in the user's units; of the logarithm, for positive outputs.

    Returns:
        The prediction of the same functions with the new noise.

    Raises:
        ValueError: If the likelihood is not Gaussian with one noise, or the functions depend on the model's noise.

    Example:
        >>> pred = post.predict(x_new)
        >>> other = bnnp.evaluation.with_noise(pred, 2.0)
        >>> bool((other.std >= 2.0).all()), bool((other.mean == pred.mean).all())
        (True, True)
    """
    if isinstance(predictive, MixturePredictive):
        return predictive.with_noise(noise)
    assert isinstance(predictive, SampledPredictive)
    if not isinstance(predictive.likelihood, GaussianNoise):
        raise ValueError(
            f"noise: got {noise}, but the likelihood is not Gaussian with a noise that is the same everywhere; "
            "leave it out"
        )
    if predictive.drawn is not None:
        raise ValueError(f"noise: got {noise}, but these functions were drawn with the model's own noise; leave it out")
    scaled = (noise / predictive.columns.y_scale).tolist()
    return SampledPredictive(predictive.outputs, Gaussian(scaled, learnable=False), predictive.columns)
