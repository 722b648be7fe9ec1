"""A few lines that say what was learned from which data, and how well it predicts."""

from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.base import MetaLearner
from bnnp.recipe.learning import Learned
from bnnp.tasks.source import Collection, TaskSource

LEVEL = 90
"""The intervals whose coverage is told, in percent."""


def summary(learned: Learned, tasks: TaskSource) -> list[str]:
    """What was learned, one sentence per line.

    Args:
        learned: What `bnnp.learn` gave back.
        tasks: The tasks that it learned from.
    """
    return [*_data(tasks), *_noise(learned.model), *_predictions(learned)]


def _data(tasks: TaskSource) -> list[str]:
    if not isinstance(tasks, Collection):
        return []
    sizes = sorted(len(task) for task in tasks.tasks)
    points = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    return [f"Data: {len(sizes)} data sets, {sum(sizes)} points, {points} per data set."]


def _noise(model: MetaLearner) -> list[str]:
    if not isinstance(model.likelihood, Gaussian):
        return []
    noise = (model.likelihood.noise.detach().cpu() * model.columns.y_scale.cpu()).tolist()
    named = ", ".join(f"{name} {value:.3g}" for name, value in zip(model.columns.y_names, noise, strict=True))
    what = "standard deviation of the logarithm" if model.columns.positive else "standard deviation"
    return [f"Noise ({what}): {named}{', varying with the inputs' if model.likelihood.varies else ''}."]


def _predictions(learned: Learned) -> list[str]:
    scores, judged = learned.scores, learned.judged
    if scores is None or judged is None or judged.population is None:
        return []
    value, error = scores["marginal_lppd"], scores.standard_error("marginal_lppd")
    lines = [
        f"Log-density per hidden point of left-out data sets: {value:.3f} (standard error {error:.3f}); "
        f"{judged.population['marginal_lppd']:.3f} from what all data sets share, without known points."
    ]
    if f"coverage_{LEVEL}" in scores.names():
        inside = 100 * scores[f"coverage_{LEVEL}"]
        lines.append(f"Calibration: {inside:.0f} % of hidden points lie within their {LEVEL} % intervals.")
    return lines
