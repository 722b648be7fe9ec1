"""The one recipe: training decides by left-out tasks how long it goes on."""

import numpy as np
import pytest

import bnnp
from bnnp.recipe import judging, rounds
from bnnp.training.draws import DrawsOfPrior
from bnnp.training.features import train_features
from bnnp.training.run import TrainingDiverged

LINES = 24


def lines(count: int = LINES, seed: int = 0) -> bnnp.tasks.Collection:
    random = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        x = random.uniform(-1, 1, (8, 1))
        pairs.append((x, random.normal() * x + random.normal() + 0.1 * random.normal(size=x.shape)))
    return bnnp.tasks.from_arrays(pairs)


def small() -> bnnp.BNNP:
    return bnnp.BNNP(1, 1, hidden=(4,), activation="silu", last_layer="likelihood", seed=0)


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch):
    monkeypatch.setattr(rounds, "FIRST_STEPS", {rounds.LARGE: 1, rounds.FEATURES: 2, rounds.EVERYTHING: 3})
    monkeypatch.setattr("bnnp.priors.starts.freedom.BRANCHES", ())  # the start has tests of its own
    monkeypatch.setattr("bnnp.priors.starts.minimise.ITERATIONS", 2)
    monkeypatch.setattr(judging, "LEFT_OUT", (0.25, 6))
    monkeypatch.setattr(rounds, "MANY_TASKS", 0)
    monkeypatch.setattr(judging, "DIVISIONS", 1)
    monkeypatch.setattr("bnnp.priors.starts.search.SLOPES", (1.0,))
    monkeypatch.setattr("bnnp.priors.starts.search.DENSITIES", (0.0,))


def test_few_tasks_stay_at_the_start():
    learned = bnnp.learn(small(), lines(5), progress=False)
    assert learned.decisions == ["The model stays where it started: 5 data sets are too few to judge training by."]
    start = small()
    bnnp.start_prior(start, lines(5), "empirical", seed=0)
    assert learned.model.prior.sample(1, 0)[0].equal(start.prior.sample(1, 0)[0])


def test_rounds_that_do_not_help_leave_the_start(monkeypatch):
    monkeypatch.setattr(rounds, "LEAST_GAIN", 1e9)
    learned = bnnp.learn(small(), lines(), progress=False)
    assert not learned.history.steps
    for sentence, part in zip(learned.decisions[1:4], rounds.FIRST_STEPS, strict=True):
        steps = rounds.FIRST_STEPS[part]
        assert f"Training {part} ended after 0 rounds: round 1, of {steps} steps, changed" in sentence
    start = small()
    bnnp.start_prior(start, lines(), "empirical", seed=0)
    assert learned.model.prior.sample(1, 0)[-1].equal(start.prior.sample(1, 0)[-1])


def helps(monkeypatch, *answers: bool) -> None:
    """Let the first rounds help or not, as told; later ones do not."""
    told = [*answers, False, False, False]
    monkeypatch.setattr(judging.LeftOut, "gain", lambda *_, **__: (1.0 if told.pop(0) else -1.0, 0.0))


def counted(monkeypatch) -> list[tuple[str, int, int]]:
    """A list that fills with the part, the number of tasks and the steps of every round."""
    calls = []

    def all_of_it(model, tasks, **options):
        calls.append(("everything", len(tasks), options["steps"]))
        return bnnp.fit(model, tasks, **options)

    def features(model, tasks, steps, **options):
        calls.append(("features", len(tasks), steps))
        return train_features(model, tasks, steps, **options)

    monkeypatch.setattr(rounds, "fit", all_of_it)
    monkeypatch.setattr(rounds, "train_features", features)
    return calls


def test_rounds_that_help_are_done_again_with_all_tasks(monkeypatch):
    calls = counted(monkeypatch)
    helps(monkeypatch, True, False, True, False, True)
    learned = bnnp.learn(small(), lines(), progress=False)
    first = [("features", 18, steps) for steps in (1, 2, 2, 4)] + [("everything", 18, 3), ("everything", 18, 6)]
    assert calls == [*first, ("features", 24, 1), ("features", 24, 2), ("everything", 24, 3)]
    assert [record["step"] for record in learned.history.steps] == [3]
    assert learned.scores is not None
    assert len(learned.scores.per_task) == 6


def test_of_several_models_the_better_one_is_taken_after_some_rounds():
    models = [bnnp.BNNP(1, 1, hidden=(4,), activation=name, seed=0) for name in ("silu", "relu")]
    learned = bnnp.learn(models, lines(), progress=False)
    told = next(sentence for sentence in learned.decisions if "The network has" in sentence)
    values = [float(told.split(f" with {name}")[0].split()[-1]) for name in ("silu", "relu")]
    assert learned.model is models[int(np.argmax(values))]
    assert f"The network has {('tanh', 'relu')[int(np.argmax(values))]} units" in told
    assert models[int(np.argmin(values))].prior.is_standard()


@pytest.mark.parametrize(("errors", "rounds_kept"), [(1.5, "0 rounds"), (2.5, "1 round")])
def test_a_round_must_gain_two_standard_errors(monkeypatch, errors, rounds_kept):
    gains = iter([(0.1 * errors, 0.1), *[(-1.0, 0.0)] * 3])
    monkeypatch.setattr(judging.LeftOut, "gain", lambda *_, **__: next(gains))
    learned = bnnp.learn(small(), lines(), progress=False)
    assert f"Training {rounds.LARGE} ended after {rounds_kept}:" in " ".join(learned.decisions)


def test_models_race_for_two_rounds_if_these_help(monkeypatch):
    calls, models = counted(monkeypatch), [small(), small()]
    helps(monkeypatch, False, False, *[True] * 4)  # no start is worse than the other; then two rounds of each
    bnnp.learn(models, lines(), progress=False)
    assert calls[:4] == [("features", 18, steps) for steps in (1, 2)] * 2
    assert calls[4] == ("features", 18, 4)


def levels(count: int = LINES) -> bnnp.tasks.Collection:
    random = np.random.default_rng(0)
    x = np.linspace(-3, 3, 12)[:, None]
    noise = 0.02 * random.normal(size=(count, *x.shape))
    return bnnp.tasks.from_arrays([(x, np.sign(np.sin(x + k)) + noise[k]) for k in range(count)])


def test_inference_on_finite_tasks_learns_from_draws_and_is_judged_by_all_of_them(
    monkeypatch,
):
    monkeypatch.setattr(rounds, "FIRST_STEPS", {rounds.INFERENCE: 2, rounds.EVERYTHING: 3})
    monkeypatch.setattr(rounds, "LESSONS", 2)
    learned_from, judged_by = [], []

    def watched(model, tasks, **options):
        learned_from.append((type(tasks), model.weight_prior.learnability, options["checkpoint"]))
        return bnnp.fit(model, tasks, **options)

    monkeypatch.setattr(rounds, "fit", watched)
    monkeypatch.setattr(judging.LeftOut, "gain", lambda self, *_, **__: (judged_by.append(self.count), (-1.0, 0.0))[1])
    model = bnnp.BNNP(1, 1, (4, 4), "tanh", last_layer="likelihood", seed=0)
    bnnp.learn(model, levels(), progress=False)
    assert learned_from == [(DrawsOfPrior, 0, None), (bnnp.tasks.Collection, 1, None)]
    assert judged_by == [LINES, 6]


@pytest.mark.parametrize(("clearly", "trained"), [(0.0, 1), (1e9, 2)])
def test_a_model_that_starts_clearly_worse_is_not_trained(monkeypatch, clearly, trained):
    monkeypatch.setattr(rounds, "CLEARLY", clearly)
    monkeypatch.setattr(rounds, "LEAST_GAIN", 1e9)
    calls = counted(monkeypatch)
    bnnp.learn([bnnp.BNNP(1, 1, (4,), name, seed=0) for name in ("silu", "relu")], lines(), progress=False)
    assert calls.count(("features", 18, 1)) == trained


def test_bending_units_are_left_out_for_outputs_without_levels_unless_there_is_no_other_model():
    tanh, relu, other = (bnnp.BNNP(1, 1, hidden=(4,), activation=name, seed=0) for name in ("tanh", "relu", "tanh"))
    learned = bnnp.learn([tanh, relu], lines(), progress=False)
    assert learned.model is relu
    assert "The network with tanh units was not tried" in " ".join(learned.decisions)
    assert bnnp.learn([tanh, other], lines(), progress=False).model is other


def test_a_few_dozen_tasks_train_the_features_of_the_first_model_only(monkeypatch):
    monkeypatch.setattr(rounds, "MANY_TASKS", 19)
    calls, models = counted(monkeypatch), [small(), small()]
    helps(monkeypatch, True)
    learned = bnnp.learn(models, lines(), progress=False)
    assert calls == [("features", 18, 2), ("features", 18, 4), ("features", 24, 2)]
    assert learned.model is models[0]
    assert models[1].prior.is_standard()


def test_models_without_a_closed_form_train_everything(monkeypatch):
    calls = counted(monkeypatch)
    helps(monkeypatch)
    model = bnnp.BNNP(1, 1, hidden=(4,), seed=0).set_prior_learnability(0.5)
    bnnp.learn(model, lines(), progress=False)
    assert [call[0] for call in calls] == ["everything"]


def test_training_that_diverges_with_all_tasks_keeps_the_model_of_some(monkeypatch):
    helps(monkeypatch, True)

    def diverging(model, tasks, steps, **options):
        if len(tasks) == LINES:
            raise TrainingDiverged(1, None, "a test says so")
        train_features(model, tasks, steps, **options)

    monkeypatch.setattr(rounds, "train_features", diverging)
    model = small()
    learned = bnnp.learn(model, lines(), progress=False)
    assert "learned from part of the data sets" in learned.decisions[-1]
    start = small()
    bnnp.start_prior(start, lines(), "empirical", seed=0)
    assert not model.prior.sample(1, 0)[0].equal(start.prior.sample(1, 0)[0])


def test_ctrl_c_in_a_round_of_features_keeps_what_was_learned_before(monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(rounds, "train_features", stopped)
    learned = bnnp.learn(small(), lines(), progress=False)
    assert learned.interrupted
    assert "Training the features by large steps was stopped in round 1." in learned.decisions
    assert not learned.model.prior.is_standard()


def test_the_time_ends_the_rounds_of_a_source():
    learned = bnnp.learn(small(), bnnp.tasks.sawtooth(), minutes=1e-9, progress=False)
    assert "because the time was up" in learned.decisions[1]
    assert not learned.model.prior.is_standard()


def test_a_stopped_run_goes_on_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(judging.LeftOut, "gain", lambda *_, **__: (-1.0, 0.0))
    whole = bnnp.learn(small(), lines(), folder=tmp_path, progress=False)
    again = bnnp.learn(small(), lines(), folder=tmp_path, progress=False)
    for one, other in zip(whole.model.prior.sample(1, 0), again.model.prior.sample(1, 0), strict=True):
        assert one.equal(other)


def test_a_time_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="minutes: got 0, expected a positive number"):
        bnnp.learn(small(), lines(), minutes=0)
