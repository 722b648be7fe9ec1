"""The one recipe: training decides by left-out tasks how long it goes on."""

import numpy as np
import pytest

import bnnp
from bnnp import recipe

LINES = 24


def lines(count: int = LINES, seed: int = 0) -> bnnp.tasks.Collection:
    random = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        x = random.uniform(-1, 1, (8, 1))
        pairs.append((x, random.normal() * x + random.normal() + 0.1 * random.normal(size=x.shape)))
    return bnnp.tasks.from_arrays(pairs)


def small() -> bnnp.BNNP:
    return bnnp.BNNP(1, 1, hidden=(8, 8), activation="silu", last_layer="likelihood", seed=0)


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch):
    monkeypatch.setattr(recipe, "FIRST_STEPS", 3)
    monkeypatch.setattr("bnnp.priors.starts.freedom.BRANCHES", ())  # the start has tests of its own
    monkeypatch.setattr("bnnp.priors.starts.empirical.SLOPES", (1.0,))
    monkeypatch.setattr("bnnp.priors.starts.empirical.DENSITIES", (0.0,))


def test_few_tasks_stay_at_the_start():
    learned = bnnp.learn(small(), lines(5), progress=False)
    assert learned.decisions == ["The model stays where it started: 5 data sets are too few to judge training by."]
    start = small()
    bnnp.start_prior(start, lines(5), "empirical", seed=0)
    assert learned.model.prior.sample(1, 0)[0].equal(start.prior.sample(1, 0)[0])


def test_rounds_that_do_not_help_leave_the_start(monkeypatch):
    monkeypatch.setattr(recipe, "LEAST_GAIN", 1e9)
    learned = bnnp.learn(small(), lines(), progress=False)
    assert not learned.history.steps
    assert "Training ended after 0 rounds: round 1, of 3 steps, changed" in learned.decisions[1]
    start = small()
    bnnp.start_prior(start, lines(), "empirical", seed=0)
    assert learned.model.prior.sample(1, 0)[-1].equal(start.prior.sample(1, 0)[-1])


def test_rounds_that_help_are_done_again_with_all_tasks(monkeypatch):
    calls = []
    monkeypatch.setattr(recipe, "_gain", lambda found, before: (1.0 if len(calls) < 2 else -1.0, 0.0))
    fit = bnnp.fit

    def counted(model, tasks, **options):
        calls.append((len(tasks), options["steps"]))
        return fit(model, tasks, **options)

    monkeypatch.setattr(recipe, "fit", counted)
    learned = bnnp.learn(small(), lines(), progress=False)
    assert calls == [(18, 3), (18, 6), (24, 3)]
    assert [record["step"] for record in learned.history.steps] == [3]
    assert learned.scores is not None
    assert len(learned.scores.per_task) == 6 * recipe.DIVISIONS


def test_a_source_tries_both_starts_and_the_time_ends_it():
    learned = bnnp.learn(small(), bnnp.tasks.sawtooth(), minutes=1e-9, progress=False)
    assert "because the time was up" in learned.decisions[1]
    assert not learned.model.prior.is_standard()


def test_a_stopped_run_goes_on_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "_gain", lambda found, before: (-1.0, 0.0))
    whole = bnnp.learn(small(), lines(), folder=tmp_path, progress=False)
    again = bnnp.learn(small(), lines(), folder=tmp_path, progress=False)
    for one, other in zip(whole.model.prior.sample(1, 0), again.model.prior.sample(1, 0), strict=True):
        assert one.equal(other)


def test_a_time_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="minutes: got 0, expected a positive number"):
        bnnp.learn(small(), lines(), minutes=0)
