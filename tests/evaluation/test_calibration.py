"""Simulation-based calibration: exact posteriors pass, wrong ones are caught."""

import numpy as np
import pytest
import torch

from bnnp import plots
from bnnp.evaluation import Calibration, simulation_based_calibration
from bnnp.evaluation.evidence import LogEvidence, divergence
from bnnp.inference import NUTS, Effort
from support.inference import linear

X = np.random.default_rng(0).normal(size=(6, 3))


def ranked(method, simulations: int = 200, num_samples: int = 19, **options) -> Calibration:
    model = linear()
    return simulation_based_calibration(
        model.prior,
        model.network,
        X,
        likelihood=model.likelihood,
        method=method,
        simulations=simulations,
        num_samples=num_samples,
        **options,
    )


def conditioned(spread: float = 1.0, shift: float = 0.0):
    """The exact posterior of the linear model, or one that is made too wide or shifted."""
    model = linear()

    def posteriors(sets):
        found = []
        for i, task in enumerate(sets):
            post = model.condition(task.x, task.y, num_samples=19, seed=i)
            w = post.weights[0]
            w.copy_(w.mean(0) + spread * (w - w.mean(0)) + shift)
            found.append(post)
        return found

    return posteriors


def test_the_exact_posterior_has_uniform_ranks_and_wrong_ones_do_not():
    right = ranked(conditioned())
    assert right.ranks.shape == (200, 7)
    assert right.names[-1] == "log-likelihood"
    assert right.ranks.min() >= 0
    assert right.ranks.max() <= 19
    assert right.uniform()
    narrow = ranked(conditioned(spread=0.6))
    wide = ranked(conditioned(spread=1.7))
    shifted = ranked(conditioned(shift=0.3))
    for wrong in (narrow, wide, shifted):
        assert not wrong.uniform()
    ends = narrow.histogram()[:, [0, -1]].sum(1)
    assert (ends[:-1] > 2 * 200 / 10).mean() > 0.5  # two horns
    assert (wide.histogram()[:, [0, -1]].sum(1)[:-1] < 2 * 200 / 10).all()  # a hump
    figure = plots.rank_histograms(right)
    assert len(figure.axes) == 8


@pytest.mark.filterwarnings("ignore::bnnp.inference.InferenceWarning")
def test_a_sampler_and_laplace_are_calibrated_for_a_linear_model():
    assert ranked(NUTS(0.2, 4), simulations=100, effort=Effort(chains=19, warmup=25, thin=2)).uniform()
    quick = Effort(steps=300, learning_rate=(5e-2, 1e-4))
    assert ranked("laplace", simulations=100, effort=quick).uniform()
    assert not ranked("ensemble", simulations=100, effort=quick).uniform()


def test_what_is_looked_at_can_be_chosen_and_units_are_the_users():
    model = linear()
    model.columns.y_scale.fill_(3.0)
    model.columns.x_shift.fill_(0.5)
    seen = []

    def posteriors(sets):
        seen.extend(sets)
        return [model.condition(t.x, t.y, num_samples=19, seed=i) for i, t in enumerate(sets)]

    found = simulation_based_calibration(
        model.prior,
        model.network,
        X,
        likelihood=model.likelihood,
        method=posteriors,
        simulations=200,
        num_samples=19,
        at=np.zeros((1, 3)),
    )
    assert found.names == ("f1(0, 0, 0)", "f2(0, 0, 0)", "log-likelihood")
    assert found.uniform()
    assert torch.stack([t.y for t in seen]).std() > 3


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match="simulations and num_samples: got 0 and 19"):
        ranked("hmc", simulations=0)
    with pytest.raises(ValueError, match="got 19 samples of a posterior, expected 9"):
        ranked(conditioned(), simulations=2, num_samples=9)
    with pytest.raises(ValueError, match="bins: got 7, expected a divisor of 20"):
        ranked(conditioned(), simulations=2).histogram(7)


def test_the_distance_to_the_posterior_has_an_error_and_says_when_it_is_not_to_be_trusted():
    good = divergence(LogEvidence(13.88, 0.03, 5000), 13.5, 0.04)
    assert good.value == pytest.approx(0.38)
    assert good.standard_error == pytest.approx(0.05)
    assert good.doubt == ""
    assert str(good) == "0.38 ± 0.05"
    assert "2.0 effective draws" in str(divergence(LogEvidence(13.88, 0.03, 2), 13.5, 0.04))
    assert "a standard error of 7.3 nats" in str(divergence(LogEvidence(13.88, 7.3, 5000), 13.5, 0.04))
    assert "negative" in divergence(LogEvidence(10.0, 0.03, 5000), 13.5, 0.04).doubt
