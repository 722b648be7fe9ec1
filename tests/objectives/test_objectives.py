import math

import numpy as np
import pytest
import torch

from bnnp import BNNP, Gaussian
from bnnp.objectives import AVI, NPML, NPVI, PPAVI, TELLAVI, Terms
from bnnp.tasks.task import Split, SplitBatch, Task
from support import reference

K = 5
OBJECTIVES = {
    PPAVI: {"predictive": "predictive_weight", "likelihood": "likelihood_weight", "kl": "kl_weight"},
    AVI: {"likelihood": "likelihood_weight", "kl": "kl_weight"},
    NPML: {"predictive": "predictive_weight"},
    NPVI: {"likelihood": "likelihood_weight", "kl": "kl_weight"},
    TELLAVI: {"target": "target_weight", "likelihood": "likelihood_weight", "kl": "kl_weight"},
}
every_objective = pytest.mark.parametrize("objective", list(OBJECTIVES), ids=lambda objective: objective.__name__)
every_prior = pytest.mark.parametrize("prior", ["unitwise", "networkwise"])


def tiny_model(prior: str = "unitwise") -> BNNP:
    model = BNNP(
        2, 2, hidden=(3,), activation="tanh", prior=prior, likelihood=Gaussian([0.6, 0.9]), dtype=torch.float64, seed=0
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.prior.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def some_task(points: int, seed: int) -> Task:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(points, 4, generator=generator, dtype=torch.float64)
    return Task(values[:, :2], values[:, 2:])


SPLITS = [Split(some_task(3, 1), some_task(2, 2)), Split(some_task(5, 3), some_task(1, 4))]
BATCH = SplitBatch.of(SPLITS, torch.float64)
"""Contexts and targets of unequal size, so that both are padded."""


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def terms_of(objective, model: BNNP) -> dict[str, np.ndarray]:
    return {name: reference.array(values) for name, values in objective(model, BATCH, generator()).by_name.items()}


def log_likelihood(model: BNNP, weights: list[torch.Tensor], task: Task) -> float:
    """`log p(Y | W)`, a point and a column at a time."""
    f = reference.network([reference.array(w) for w in weights], task.x.numpy(), "tanh")
    noise = reference.array(model.likelihood.noise)  # pyright: ignore[reportArgumentType]
    total = 0.0
    for n, d in np.ndindex(f.shape):
        total += -0.5 * ((task.y[n, d].item() - f[n, d]) / noise[d]) ** 2 - math.log(noise[d] * math.sqrt(2 * math.pi))
    return float(total)


def samples(model: BNNP, tasks: list[Task]) -> list[list[list[torch.Tensor]]]:
    """The weight samples that an objective draws, by task and sample."""
    batch = SplitBatch.of([Split(task, task) for task in tasks], torch.float64).context
    weights = model.infer(batch, K, generator()).weights
    return [[[w[t, k] for w in weights] for k in range(K)] for t in range(len(tasks))]


def naive(model: BNNP) -> dict[str, list[float]]:
    """Every term of every objective that conditions on the context alone."""
    terms = {"predictive": [], "target": [], "likelihood": [], "kl": []}
    for split, drawn in zip(SPLITS, samples(model, [split.context for split in SPLITS]), strict=True):
        target = [log_likelihood(model, weights, split.target) for weights in drawn]
        context = [log_likelihood(model, weights, split.context) for weights in drawn]
        kl = [sum(reference.model_kl(model, weights, split.context.x, split.context.y)) for weights in drawn]
        terms["predictive"].append(math.log(sum(math.exp(value) for value in target) / K))
        terms["target"].append(sum(target) / K)
        terms["likelihood"].append(sum(context) / K)
        terms["kl"].append(-sum(kl) / K)
    return terms


@every_prior
@pytest.mark.parametrize("objective", [PPAVI, AVI, NPML, TELLAVI], ids=lambda objective: objective.__name__)
def test_terms_are_those_of_a_naive_loop(objective, prior):
    model = tiny_model(prior)
    expected = naive(model)
    found = terms_of(objective(num_samples=K, integrate=False), model)
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-9, err_msg=name)


@every_prior
def test_npvi_is_that_of_a_naive_loop(prior):
    """Weights drawn given everything; their log-ratio to the posterior given the context estimates the KL."""
    model = tiny_model(prior)
    context_sizes, target_sizes = [3, 5], [2, 1]
    longest = BATCH.context.x.shape[1]
    x, y = torch.cat([BATCH.context.x, BATCH.target.x], 1), torch.cat([BATCH.context.y, BATCH.target.y], 1)
    mask = torch.cat([BATCH.context.mask, BATCH.target.mask], 1)
    weights = model.infer(type(BATCH.context)(x, y, mask), K, generator()).weights
    expected = {"likelihood": [], "kl": []}
    for t, split in enumerate(SPLITS):
        rows = [*range(context_sizes[t]), *range(longest, longest + target_sizes[t])]
        drawn = [[w[t, k] for w in weights] for k in range(K)]
        log_ratio = [
            reference.model_log_density(model, w, x[t, rows], y[t, rows])
            - reference.model_log_density(model, w, split.context.x, split.context.y)
            for w in drawn
        ]
        expected["likelihood"].append(sum(log_likelihood(model, w, split.target) for w in drawn) / K)
        expected["kl"].append(-sum(log_ratio) / K)
    found = terms_of(NPVI(num_samples=K, integrate=False), model)
    np.testing.assert_allclose(found["likelihood"], expected["likelihood"], rtol=1e-9)
    np.testing.assert_allclose(found["kl"], expected["kl"], rtol=1e-9)


def test_npvi_of_a_linear_model_has_the_exact_kl_on_average():
    """Within 4.5 standard errors (probability 7e-6 per task of failing by chance); 10% more is caught."""
    model = BNNP(2, 2, hidden=(), likelihood=Gaussian([0.6, 0.9]), last_layer="likelihood", dtype=torch.float64)
    count = 20_000
    terms = NPVI(num_samples=count, integrate=False)(model, BATCH, generator()).by_name
    prior = reference.prior_moments(model.prior)
    noise = reference.array(model.likelihood.noise)  # pyright: ignore[reportArgumentType]
    for t, split in enumerate(SPLITS):
        both = Task(torch.cat([split.context.x, split.target.x]), torch.cat([split.context.y, split.target.y]))
        given_both, given_context = (
            reference.layer_posterior(
                *prior, reference.features(0, d.x.numpy(), "relu"), d.y.numpy(), np.tile(noise, (len(d), 1))
            )
            for d in (both, split.context)
        )
        draws = np.random.default_rng(0).multivariate_normal(*given_both, size=count)
        ratio = [reference.log_density(w, *given_both) - reference.log_density(w, *given_context) for w in draws[:2000]]
        error = np.std(ratio) / math.sqrt(count)
        expected = reference.kl(*given_both, *given_context)
        assert abs(-terms["kl"][t].item() - expected) < 4.5 * error
        assert abs(-terms["kl"][t].item() - 1.1 * expected) > 4.5 * error


@every_objective
def test_terms_have_the_names_of_their_weights_in_order(objective):
    assert list(terms_of(objective(num_samples=2), tiny_model())) == list(OBJECTIVES[objective])


@every_objective
def test_each_weight_scales_its_own_term(objective):
    model = tiny_model()
    plain = terms_of(objective(num_samples=K), model)
    for name, weight in OBJECTIVES[objective].items():
        weighted = terms_of(objective(num_samples=K, **{weight: 0.1}), model)
        for other, values in weighted.items():
            np.testing.assert_allclose(values, plain[other] * (0.1 if other == name else 1), rtol=1e-12)


@every_objective
def test_total_is_the_sum_of_the_terms_of_each_task(objective):
    terms = objective(num_samples=K)(tiny_model(), BATCH, generator())
    assert terms.total().shape == (2,)
    torch.testing.assert_close(terms.total(), sum(terms.by_name.values()), rtol=1e-12, atol=1e-12)


def test_total_adds_by_task():
    assert Terms({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([10.0, 20.0])}).total().tolist() == [11.0, 22.0]


def test_ppavi_is_npml_plus_avi_for_the_same_draws():
    model = tiny_model()
    ppavi, npml, avi = (o(num_samples=K)(model, BATCH, generator()).total() for o in (PPAVI, NPML, AVI))
    torch.testing.assert_close(ppavi, npml + avi, rtol=1e-12, atol=1e-12)


def test_tellavi_is_a_lower_bound_of_ppavi_and_equal_for_one_sample():
    """Jensen's inequality for the same draws."""
    model = tiny_model()
    ppavi, tellavi = (o(num_samples=K)(model, BATCH, generator()).total() for o in (PPAVI, TELLAVI))
    assert bool((tellavi < ppavi).all())
    ppavi, tellavi = (o(num_samples=1, integrate=False)(model, BATCH, generator()).total() for o in (PPAVI, TELLAVI))
    torch.testing.assert_close(ppavi, tellavi, rtol=1e-12, atol=1e-12)


@every_objective
def test_number_of_samples_must_be_positive(objective):
    with pytest.raises(ValueError, match="num_samples"):
        objective(num_samples=0)


@every_objective
def test_every_parameter_that_matters_gets_a_gradient(objective):
    model = tiny_model()
    objective(num_samples=2)(model, BATCH, generator()).total().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in model.parameters())  # pyright: ignore
