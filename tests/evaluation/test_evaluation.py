"""Scores against naive NumPy, the oracle against the known best, and the shapes that evaluation takes."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import bnnp
from bnnp._core.columns import Columns
from bnnp.evaluation import lppd, score, with_noise
from bnnp.prediction.sampled import SampledPredictive
from bnnp.tasks import Split, Task


def predictive(
    samples: int = 30, points: int = 4, out: int = 1, noise: float = 0.3, shift: float = 0.0, scale: float = 1.0
) -> SampledPredictive:
    outputs = torch.randn(samples, points, out, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    columns = Columns(1, out)
    columns.y_shift.fill_(shift)
    columns.y_scale.fill_(scale)
    return SampledPredictive(outputs, bnnp.Gaussian([noise] * out), columns)


def normal_density(y, mean, std):
    return np.exp(-0.5 * ((y - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))


# --- the three log predictive densities ------------------------------------------------------------------------------


def test_lppd_against_naive_loops():
    densities = np.random.default_rng(0).uniform(0.1, 3, (5, 3))
    joint = marginal = pooled = 0.0
    for k in range(5):
        product = 1.0
        for n in range(3):
            product *= densities[k, n]
            pooled += densities[k, n] / 15
        joint += product / 5
    for n in range(3):
        marginal += np.log(sum(densities[k, n] for k in range(5)) / 5) / 3
    result = lppd(torch.from_numpy(densities).log())
    assert result == pytest.approx({"joint": np.log(joint) / 3, "marginal": marginal, "pooled": np.log(pooled)})


def test_lppd_of_tiny_densities_does_not_underflow():
    result = lppd(torch.full((4, 3), -1e5, dtype=torch.float64))
    assert result == pytest.approx({"joint": -1e5, "marginal": -1e5, "pooled": -1e5})


@pytest.mark.parametrize("seed", range(5))
def test_pooled_is_at_least_marginal_is_at_least_the_mean_log_density(seed):
    terms = 3 * torch.randn(20, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    result = lppd(terms)
    assert result["pooled"] >= result["marginal"] >= terms.mean()  # Jensen, over points and over samples
    assert result["joint"] >= terms.mean()


def test_all_three_agree_for_one_point():
    result = lppd(torch.randn(20, 1, generator=torch.Generator().manual_seed(0)))
    assert result["joint"] == pytest.approx(result["marginal"])
    assert result["joint"] == pytest.approx(result["pooled"])


def test_joint_and_marginal_agree_for_one_sample():
    result = lppd(torch.randn(1, 8, generator=torch.Generator().manual_seed(0)))
    assert result["joint"] == pytest.approx(result["marginal"])


# --- the scores of one task ------------------------------------------------------------------------------------------


def test_scores_of_a_task_against_numpy_in_the_users_units():
    given, y = predictive(out=2, shift=1000.0, scale=50.0), 1000 + 50 * torch.linspace(-2, 2, 8).reshape(4, 2).double()
    result = score(given, y, seed=3)
    functions = 1000 + 50 * given.outputs.numpy()
    mean, observed = functions.mean(0), y.numpy()
    densities = normal_density(observed, functions, 50 * 0.3).prod(-1)
    assert result["joint_lppd@30"] == pytest.approx(np.log(densities.prod(1).mean()) / 4)
    assert result["marginal_lppd@30"] == pytest.approx(np.log(densities.mean(0)).mean())
    assert result["pooled_lppd@30"] == pytest.approx(np.log(densities.mean()))
    assert result["mae"] == pytest.approx(np.abs(mean - observed).mean())
    assert result["rmse"] == pytest.approx(np.sqrt(((mean - observed) ** 2).mean()))
    draws = given.observations(3)
    for level in (50, 90, 95):
        low, high = (np.quantile(draws, 0.5 + sign * level / 200, axis=0) for sign in (-1, 1))
        assert result[f"coverage_{level}"] == np.mean((low <= observed) & (observed <= high))


def test_crps_against_its_definition():
    given, y = predictive(), torch.tensor([[0.0], [1.0], [-3.0], [0.2]], dtype=torch.float64)
    draws, observed = given.observations(3)[..., 0], y[:, 0].numpy()
    expected = []
    for n in range(4):
        spread = np.abs(draws[:, None, n] - draws[None, :, n]).sum() / (2 * 30 * 29)
        expected.append(np.abs(draws[:, n] - observed[n]).mean() - spread)
    assert score(given, y, seed=3)["crps"] == pytest.approx(np.mean(expected))


def test_crps_of_many_samples_is_that_of_the_normal_distribution():
    outputs = torch.zeros(20_000, 1, 1, dtype=torch.float64)
    given = SampledPredictive(outputs, bnnp.Gaussian(2.0), Columns(1, 1))
    # at the mean of N(0, s^2) the CRPS is s (sqrt(2) - 1) / sqrt(pi); its standard error here is about 0.006
    exact = 2 * (np.sqrt(2) - 1) / np.sqrt(np.pi)
    assert score(given, torch.zeros(1, 1, dtype=torch.float64))["crps"] == pytest.approx(exact, abs=0.025)


def test_noise_replaces_the_learned_one_in_the_users_units():
    given, y = predictive(shift=1000.0, scale=50.0), 1000 + 50 * torch.randn(4, 1).double()
    functions = 1000 + 50 * given.outputs.numpy()[..., 0]
    other = with_noise(given, 7.0)
    expected = np.log(normal_density(y[:, 0].numpy(), functions, 7.0).mean(0))
    np.testing.assert_allclose(other.log_prob(y), expected, rtol=1e-5)
    np.testing.assert_array_equal(other.mean, given.mean)


def test_noise_is_for_gaussian_likelihoods_only():
    binary = SampledPredictive(torch.zeros(3, 2, 1), bnnp.Bernoulli(), Columns(1, 1))
    with pytest.raises(ValueError, match=r"noise: got 0\.1, but the likelihood is not Gaussian"):
        with_noise(binary, 0.1)


def test_classes_are_scored_by_accuracy_and_density():
    logits = torch.log(torch.tensor([[[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], [[0.5, 0.4, 0.1], [0.5, 0.3, 0.2]]]))
    given = SampledPredictive(logits.double(), bnnp.Categorical(3), Columns(1, 3))
    result = score(given, torch.tensor([[0.0], [1.0]]).double())
    assert result["accuracy"] == 0.5
    assert result["marginal_lppd@2"] == pytest.approx((np.log(0.6) + np.log(0.3)) / 2, rel=1e-5)
    assert set(result) == {"joint_lppd@2", "marginal_lppd@2", "pooled_lppd@2", "accuracy"}


# --- the record ------------------------------------------------------------------------------------------------------


def example_scores() -> bnnp.Scores:
    return bnnp.Scores(pd.DataFrame({"joint_lppd@8": [1.0, 2.0, 6.0], "mae": [0.1, 0.1, 0.4]}, index=["a", "b", "c"]))


def test_means_and_standard_errors_over_tasks():
    scores = example_scores()
    assert scores["mae"] == pytest.approx(0.2)
    assert scores["joint_lppd"] == scores["joint_lppd@8"] == 3.0
    assert scores.standard_error("joint_lppd") == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert scores.names() == ["joint_lppd@8", "mae"]
    with pytest.raises(KeyError, match="accuracy: expected one of joint_lppd@8, mae"):
        scores["accuracy"]


def test_the_table_has_a_row_per_score():
    table = example_scores().table()
    assert list(table.index) == ["joint_lppd@8", "mae"]
    assert table.loc["mae", "mean"] == pytest.approx(0.2)
    assert table.loc["mae", "standard error"] == pytest.approx(0.1)
    assert "0.2000" in str(example_scores())


def test_json_holds_everything():
    scores = example_scores()
    record = json.loads(scores.to_json())
    assert record == scores.to_dict()
    assert record["tasks"] == 3
    assert record["scores"]["mae"] == {"mean": scores["mae"], "standard_error": scores.standard_error("mae")}
    pd.testing.assert_frame_equal(pd.DataFrame(record["per_task"], index=record["task"]), scores.per_task)


def test_the_standard_error_of_one_task_is_unknown():
    scores = bnnp.Scores(pd.DataFrame({"mae": [0.1]}))
    assert np.isnan(scores.standard_error("mae"))
    assert json.loads(scores.to_json())["scores"]["mae"] == {"mean": 0.1, "standard_error": None}


# --- evaluate --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> bnnp.BNNP:
    return bnnp.BNNP(1, 1, hidden=(3,), seed=0)


def test_splits_are_scored_as_they_are(model):
    source, random = bnnp.tasks.sawtooth(points=(6, 8)), torch.Generator().manual_seed(0)
    splits = [
        Split(task.take(torch.arange(2)), task.take(torch.arange(2, len(task)))) for task in source.draw(3, random)
    ]
    scores = bnnp.evaluate(model, splits, num_samples=5, seed=4)
    assert len(scores.per_task) == 3
    for i, split in enumerate(splits):
        alone = model.condition(split.context.x, split.context.y, num_samples=5)  # the same points, other samples
        assert scores.per_task["mae"].iloc[i] == pytest.approx(
            score(alone.predict(split.target.x), split.target.y)["mae"], abs=1.0
        )
    assert "joint_lppd@5 integrated" in scores.names()


def test_evaluation_is_reproducible(model):
    source = bnnp.tasks.sawtooth(points=(6, 8))
    first, again, other = (bnnp.evaluate(model, source, num_samples=3, num_tasks=2, seed=s) for s in (1, 1, 2))
    pd.testing.assert_frame_equal(first.per_task, again.per_task)
    assert first["mae"] != other["mae"]


def test_all_tasks_of_a_collection_are_scored_by_name(model):
    tasks = bnnp.tasks.from_arrays([(np.arange(5.0), np.arange(5.0)) for _ in range(3)], names=["a", "b", "c"])
    scores = bnnp.evaluate(model, tasks, num_samples=3, num_tasks=1)
    assert list(scores.per_task.index) == ["a", "b", "c"]


def test_roles_of_a_collection_are_kept():
    table = pd.DataFrame({"task": 1, "x": [0.0, 1, 2, 3], "y": 0.0, "role": ["context", "target", "context", "target"]})
    tasks = bnnp.tasks.from_table(table, task="task", x="x", y="y", role="role")

    class Spy:
        seen: list[list[float]] = []  # noqa: RUF012

        def condition(self, x, y, *, num_samples=5, seed):
            self.seen.append(x.flatten().tolist())
            return self

        def predict(self, x):
            self.seen.append(x.flatten().tolist())
            return predictive(points=len(x))

    bnnp.evaluate(Spy(), tasks)
    assert Spy.seen == [[0.0, 2.0], [1.0, 3.0]]


def test_contexts_have_the_asked_size(model):
    seen = []

    class Spy:
        def condition(self, x, y, *, num_samples=2, seed):
            seen.append(len(x))
            return model.condition(x, y, num_samples=num_samples, seed=seed)

    source = bnnp.tasks.sawtooth(points=(20, 20))
    bnnp.evaluate(Spy(), source, num_samples=2, num_tasks=3, context_share=0.25)
    bnnp.evaluate(Spy(), source, num_samples=2, num_tasks=2, context_count=0)
    assert seen == [5, 5, 5, 0, 0]


def test_evaluation_under_another_noise(model):
    source = bnnp.tasks.sawtooth(points=(6, 8))
    plain, noisy = (bnnp.evaluate(model, source, num_samples=3, num_tasks=2, noise=noise) for noise in (None, 3.0))
    assert noisy["mae"] == plain["mae"]
    assert noisy["crps"] > plain["crps"] + 0.2


@pytest.mark.parametrize(
    ("tasks", "arguments", "message"),
    [
        ([], {}, "tasks: got none"),
        ([Task.of([1, 2], [1, 2])], {}, r"tasks: expected a task source, or a list of bnnp.tasks.Split"),
        (bnnp.tasks.sawtooth(), {"num_samples": 0}, "num_samples: got 0"),
        (bnnp.tasks.sawtooth(), {"num_tasks": 0}, "num_tasks: got 0"),
        (bnnp.tasks.sawtooth(), {"context_share": 2.0}, "context_share"),
        (bnnp.tasks.sawtooth(), {"noise": -1.0, "num_samples": 2, "num_tasks": 1}, "noise: got"),
        (bnnp.tasks.from_arrays([(np.ones((3, 2)), np.ones(3))]), {}, "x: got 2 columns, expected 1"),
    ],
)
def test_bad_arguments_are_refused_by_name(model, tasks, arguments, message):
    with pytest.raises(ValueError, match=message):
        bnnp.evaluate(model, tasks, **arguments)


# --- the oracle ------------------------------------------------------------------------------------------------------


def test_the_papers_sawtooth_sets_have_their_shape():
    tests = bnnp.tasks.sawtooth_tests()
    assert len(tests) == len(tests.splits) == 16
    assert {len(task) for task in tests.tasks} == {50}
    assert all(len(split.context) + len(split.target) == 50 for split in tests.splits)
    assert not tests.standardise


def test_the_papers_posterior_quality_set_has_its_shape():
    task = bnnp.tasks.posterior_quality_test()
    assert (task.x.shape, task.y.shape) == ((25, 1), (25, 1))


def test_the_oracle_reaches_the_known_best_on_the_papers_sawtooth_sets():
    source, tests = bnnp.tasks.sawtooth(), bnnp.tasks.sawtooth_tests()
    scores = bnnp.evaluate(bnnp.Oracle(source), tests, num_samples=4000)
    assert round(scores["pooled_lppd"], 2) == 1.64
    assert round(scores["mae"], 3) == 0.043
    # the marginal density from samples is the one in closed form
    exact = [
        float(source.oracle(s.context.x, s.context.y, s.target.x).marginal_log_prob(s.target.y).mean())
        for s in tests.splits
    ]
    assert scores["marginal_lppd"] == pytest.approx(np.mean(exact), abs=2e-3)


def test_the_oracle_covers_as_often_as_it_says():
    source = bnnp.tasks.sawtooth()
    scores = bnnp.evaluate(bnnp.Oracle(source), source, num_samples=400, num_tasks=60)
    # quantiles of 400 samples cost less than 0.003; three levels beyond 4 standard errors over tasks: 2e-4
    for level in (50, 90, 95):
        assert abs(scores[f"coverage_{level}"] - level / 100) < 4 * scores.standard_error(f"coverage_{level}") + 0.003
    # a noise twice as large covers too much, and is seen
    wrong = bnnp.evaluate(bnnp.Oracle(source), source, num_samples=400, num_tasks=60, noise=0.1)
    assert wrong["coverage_50"] - 0.5 > 10 * wrong.standard_error("coverage_50")


def test_nobody_beats_the_oracle():
    source = bnnp.tasks.sawtooth()
    best = bnnp.evaluate(bnnp.Oracle(source), source, num_samples=200, num_tasks=20)
    for wrong in (bnnp.tasks.sawtooth(height=1.2), bnnp.tasks.sawtooth(noise=0.08), bnnp.tasks.gp()):
        other = bnnp.evaluate(bnnp.Oracle(wrong), source, num_samples=200, num_tasks=20)
        assert other["marginal_lppd"] < best["marginal_lppd"]
        assert other["crps"] > best["crps"]


def test_the_oracle_predicts_the_same_twice():
    posterior = bnnp.Oracle(bnnp.tasks.gp()).condition([[0.0]], [[1.0]], num_samples=3, seed=torch.Generator())
    np.testing.assert_array_equal(posterior.predict([[1.0]]).samples, posterior.predict([[1.0]]).samples)


def test_a_process_without_exact_predictive_has_no_oracle():
    with pytest.raises(ValueError, match="source: got Heaviside, which has no exact predictive"):
        bnnp.Oracle(bnnp.tasks.heaviside())  # pyright: ignore[reportArgumentType]
