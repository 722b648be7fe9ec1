"""The lines that say what was learned."""

import numpy as np

import bnnp
from bnnp.evaluation.scores import evaluate
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.recipe.judging import divided
from bnnp.recipe.learning import Judged
from bnnp.recipe.summary import summary
from bnnp.tasks.split import context_size


def waves(count: int) -> bnnp.tasks.Collection:
    random = np.random.default_rng(0)
    sizes = [5 + task % 3 for task in range(count)]
    return bnnp.tasks.from_arrays([(x, 100 * x + random.normal()) for x in (random.normal(size=(n, 1)) for n in sizes)])


def test_data_noise_and_scores_are_told():
    tasks = waves(24)
    model = bnnp.BNNP(1, 1, hidden=(4,), seed=0)
    bnnp.start_prior(model, tasks, "spread")
    known, left_out = divided(tasks, context_size((0.1, 0.5)), 0)
    scores, population = evaluate(model, left_out.splits), evaluate(model, left_out.without_contexts())
    judged = Judged(model, known, left_out.once(), population)
    learned = bnnp.Learned(model, bnnp.History(), [], scores, judged=judged)
    data, noise, density, calibration = summary(learned, tasks)
    assert data == f"Data: 24 data sets, {sum(len(task) for task in tasks.tasks)} points, 5 to 7 per data set."
    value = float(noise.removesuffix(".").split()[-1])
    assert isinstance(model.likelihood, Gaussian)
    assert np.isclose(value, model.likelihood.noise.item() * model.columns.y_scale.item(), rtol=0.01)
    assert f"{scores['marginal_lppd']:.3f}" in density
    assert f"{population['marginal_lppd']:.3f} from what all data sets share" in density
    assert f"{100 * scores['coverage_90']:.0f} % of hidden points" in calibration


def test_without_left_out_tasks_nothing_is_said_of_predictions():
    learned = bnnp.Learned(bnnp.BNNP(1, 1, hidden=(4,)), bnnp.History())
    assert [line.split(":")[0] for line in summary(learned, waves(3))] == ["Data", "Noise (standard deviation)"]
