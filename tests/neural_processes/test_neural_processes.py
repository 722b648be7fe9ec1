"""Neural processes: laws that all of them obey, and each one against its equations in slow NumPy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import bnnp
from bnnp import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian
from bnnp._core.random import child
from bnnp._core.tensor_files import read_tensors, write_tensors
from bnnp.neural_processes import ANP, ARTNP, BNP, CNP, NP, TNP
from bnnp.neural_processes.aggregate import DiagonalGaussian, gaussian_product, mean_of_points
from bnnp.neural_processes.latent_base import Latent, LatentProcess
from bnnp.objectives import AVI, NPML, NPVI, PPAVI, TELLAVI
from bnnp.tasks.task import Split, SplitBatch, Task, TaskBatch
from support import reference
from support.attention import layer_norm
from support.training import in_records

IN, OUT, K = 3, 2, 4
FLOAT64 = torch.float64
SMALL: dict[str, Any] = {"hidden": (6, 4), "activation": "tanh", "seed": 0}
BLOCKS: dict[str, Any] = {"hidden": (8, 8), "heads": 2, "activation": "tanh", "seed": 0}


def build(name: str, dtype: torch.dtype = FLOAT64) -> Any:
    """A model whose biases, norms and start tokens do something."""
    generator = torch.Generator().manual_seed(3)
    model = MODELS[name](dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=FLOAT64).to(dtype)
    return model


MODELS: dict[str, Any] = {
    "CNP": lambda dtype: CNP(IN, OUT, **SMALL, dtype=dtype),
    "NP": lambda dtype: NP(IN, OUT, **SMALL, latent_size=5, dtype=dtype),
    "ANP": lambda dtype: ANP(IN, OUT, **SMALL, latent_size=5, heads=2, dtype=dtype),
    "BNP": lambda dtype: BNP(IN, OUT, **SMALL, latent_size=5, dtype=dtype),
    "TNP": lambda dtype: TNP(IN, OUT, **BLOCKS, dtype=dtype),
    "ARTNP": lambda dtype: ARTNP(IN, OUT, **BLOCKS, dtype=dtype),
    "ARCNP": lambda dtype: CNP(IN, OUT, **SMALL, autoregressive=True, dtype=dtype),
    "BNP-one_noise": lambda dtype: BNP(IN, OUT, **SMALL, likelihood=Gaussian([0.2, 0.4]), latent_size=5, dtype=dtype),
    "ANP-bernoulli": lambda dtype: ANP(IN, OUT, **SMALL, likelihood=Bernoulli(), latent_size=5, heads=2, dtype=dtype),
    "ARTNP-labels": lambda dtype: ARTNP(IN, OUT, **BLOCKS, likelihood=Categorical(OUT), dtype=dtype),
}
LATENT = ["NP", "ANP", "BNP"]
every_model = pytest.mark.parametrize("name", MODELS)
every_latent = pytest.mark.parametrize("name", LATENT)


def task(points: int, seed: int = 0, name: str = "") -> Task:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, IN, generator=generator, dtype=FLOAT64)
    y = torch.randn(points, OUT, generator=generator, dtype=FLOAT64)
    if name.endswith("labels"):
        return Task(x, (y[:, :1] > 0).double())
    return Task(x, (y > 0).double() if name.endswith("bernoulli") else y)


def batch_of(*tasks: Task) -> TaskBatch:
    return TaskBatch.of(tasks, FLOAT64)


def decoded(model, context: TaskBatch, x: torch.Tensor) -> list[torch.Tensor]:
    """All that a model makes of contexts: outputs at x (for given latent samples), moments of the latent variable."""
    if not isinstance(model, LatentProcess):
        return [model.decode(model.represent(context), x)]
    given = model.given(context)
    z = torch.randn(1, K, 5, generator=torch.Generator().manual_seed(1), dtype=FLOAT64).expand(len(context), -1, -1)
    return [model.decode(Latent(z, model.codes(context)), x), given.mean, given.log_std]


def assert_all_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def terms_of(objective, model, batch: SplitBatch) -> dict[str, torch.Tensor]:
    return objective(model, batch, torch.Generator().manual_seed(0)).by_name


# --- laws ------------------------------------------------------------------------------------------------------------


@every_model
def test_order_of_the_context_does_not_matter(name):
    model, context, x_new = build(name), task(6, name=name), task(3, seed=9).x
    shuffled = context.take(torch.tensor([3, 0, 5, 1, 4, 2]))
    one, other = (model.condition(t.x, t.y, num_samples=K, seed=0).predict(x_new) for t in (context, shuffled))
    np.testing.assert_allclose(one.samples, other.samples, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(one.std, other.std, rtol=1e-9, atol=1e-9)


@every_model
@pytest.mark.parametrize("points", [0, 3])
@torch.no_grad()
def test_padding_does_not_matter(name, points):
    model, context, x = build(name), task(points, name=name), task(4, seed=9).x[None]
    padded = TaskBatch(
        torch.cat([context.x, torch.full((5, IN), 1e3)])[None],
        torch.cat([context.y, torch.ones(5, context.y.shape[1])])[None],
        (torch.arange(points + 5) < points)[None],
    )
    for one, other in zip(decoded(model, padded, x), decoded(model, batch_of(context), x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


@every_model
@torch.no_grad()
def test_a_batch_is_its_tasks_one_at_a_time(name):
    model, tasks, x = build(name), [task(n, seed=n, name=name) for n in (5, 2, 0)], task(4, seed=9).x
    batch = decoded(model, batch_of(*tasks), x.expand(3, -1, -1))
    for i, one in enumerate(tasks):
        assert_all_close([values[i : i + 1] for values in batch], decoded(model, batch_of(one), x[None]))


@every_model
@torch.no_grad()
def test_log_likelihood_is_the_likelihoods_at_every_target_and_0_where_there_is_none(name):
    model, targets = build(name), [task(4, seed=1, name=name), task(2, seed=2, name=name)]
    latent = model.infer(batch_of(*(task(3, seed=s, name=name) for s in (3, 4))), K, child(0)).latent
    batch = batch_of(*targets)
    found, outputs = model.log_likelihood(latent, batch), model.decode(latent, batch.x)
    assert found.shape[1] == (K if isinstance(model, LatentProcess) else 1)
    for t, target in enumerate(targets):
        expected = model.likelihood.log_prob(outputs[t, :, : len(target)], target.y)
        torch.testing.assert_close(found[t, :, : len(target)], expected)
        assert not found[t, :, len(target) :].any()


@pytest.mark.parametrize(
    ("name", "objective"), [*((name, NPML(2)) for name in MODELS), *((name, NPVI(2)) for name in LATENT)]
)
def test_derivatives_agree_with_finite_differences(name, objective):
    """Along a random direction in all parameters, one of the contexts being empty."""
    model = build(name)
    contexts = [task(n, seed=n, name=name) for n in (3, 0)]
    batch = SplitBatch(batch_of(*contexts), batch_of(*(task(4, seed=s, name=name) for s in (7, 8))))
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(5)
    direction = [torch.randn(p.shape, generator=generator, dtype=FLOAT64) for p in parameters]

    def total(step: float = 0.0) -> torch.Tensor:
        with torch.no_grad():
            for p, v in zip(parameters, direction, strict=True):
                p += step * v
        return objective(model, batch, torch.Generator().manual_seed(0)).total().sum()

    gradients = torch.autograd.grad(total(), parameters)
    slope = sum((g * v).sum().item() for g, v in zip(gradients, direction, strict=True))
    up, down = total(1e-6).item(), total(-2e-6).item()
    assert (up - down) / 2e-6 == pytest.approx(slope, rel=1e-5, abs=1e-5)


@every_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_save_and_load_give_the_same_numbers(name, dtype, tmp_path):
    model, context = build(name, dtype), task(5, name=name)
    model.columns.x_shift.fill_(0.3)
    loaded = bnnp.load(model.save(tmp_path / "m.bnnp"))
    assert type(loaded) is type(model)
    assert loaded.config() == model.config()
    assert loaded.dtype == dtype
    one, other = (m.condition(context.x, context.y, num_samples=3, seed=1).predict(context.x) for m in (model, loaded))
    np.testing.assert_array_equal(one.observations(2), other.observations(2))
    np.testing.assert_array_equal(one.log_prob(context.y), other.log_prob(context.y))
    assert one.joint_log_prob(context.y) == other.joint_log_prob(context.y)


@every_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_empty_context_and_dtypes(name, dtype):
    model, nothing = build(name, dtype), task(0, name=name)
    pred = model.condition(nothing.x, nothing.y, num_samples=K).predict(task(3).x)
    assert pred.outputs.dtype == dtype
    assert pred.samples.shape == (K, 3, OUT)
    assert np.isfinite(pred.std).all()
    assert np.isfinite(pred.joint_log_prob(task(3, name=name).y))
    nowhere = model.condition(nothing.x, nothing.y, num_samples=K).predict(nothing.x)
    assert nowhere.samples.shape == (K, 0, OUT)


@every_model
def test_evaluation_needs_no_special_case(name):
    model = build(name)
    splits = [Split(task(4, seed=s, name=name), task(3, seed=s + 5, name=name)) for s in range(3)]
    scores = bnnp.evaluate(model, splits, num_samples=K, seed=0)
    for split, joint in zip(splits, scores.per_task[f"joint_lppd@{K}"], strict=True):
        assert math.isfinite(joint)
        if isinstance(model, CNP | TNP) and not model.autoregressive:  # independent targets
            pred = model.condition(split.context.x, split.context.y, num_samples=1).predict(split.target.x)
            assert joint == pytest.approx(pred.log_prob(split.target.y).mean())


@every_model
def test_more_points_are_as_if_they_had_been_there(name):
    model, context = build(name), task(6, name=name)
    first, rest = context.take(torch.arange(4)), context.take(torch.arange(4, 6))
    post = model.condition(first.x, first.y, num_samples=K, seed=2)
    updated = post.update(rest.x, rest.y).predict(first.x)
    whole = model.condition(context.x, context.y, num_samples=K, seed=2).predict(first.x)
    np.testing.assert_allclose(updated.samples, whole.samples, rtol=1e-12)
    assert len(post.task) == 4


@every_model
def test_the_seed_decides_and_the_global_state_is_left_alone(name):
    before = torch.get_rng_state()
    one, again = (MODELS[name](FLOAT64) for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), again.parameters(), strict=True))
    context = task(3, name=name)
    draws = [one.condition(context.x, context.y, num_samples=2, seed=s).predict(context.x) for s in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0].observations(), draws[1].observations())
    if isinstance(one, LatentProcess) or one.autoregressive:
        assert not np.array_equal(draws[0].samples, draws[2].samples)
    assert torch.equal(before, torch.get_rng_state())


# --- aggregation -----------------------------------------------------------------------------------------------------


def test_bayesian_aggregation_is_the_exact_product_of_gaussians():
    """By Bayes' rule with full matrices; standard deviations in the place of variances are caught."""
    rng = np.random.default_rng(0)
    size, counts = 3, (4, 1, 0)
    observed, log_variance = rng.normal(size=(2, 3, 4, size))
    mask = np.arange(4) < np.array(counts)[:, None]
    found = gaussian_product(torch.tensor(observed), torch.tensor(log_variance), torch.tensor(mask))
    for t, n in enumerate(counts):
        features = np.tile(np.eye(size), (n, 1))
        variances = np.exp(log_variance[t, :n]).ravel()

        y = observed[t, :n].ravel()

        def posterior(noise, features=features, y=y):
            covariance = np.linalg.inv(np.eye(size) + features.T @ np.diag(1 / noise) @ features)
            return covariance @ features.T @ np.diag(1 / noise) @ y, np.diag(covariance)

        mean, variance = posterior(variances)
        np.testing.assert_allclose(found.mean[t], mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.log_std[t].exp() ** 2, variance, rtol=1e-12)
        if n:
            assert not np.allclose(found.mean[t], posterior(np.sqrt(variances))[0], rtol=1e-3)


@torch.no_grad()
def test_without_points_a_bnp_has_its_prior_exactly():
    given = build("BNP").given(batch_of(task(0)))
    assert torch.equal(given.mean, torch.zeros(1, 5, dtype=FLOAT64))
    assert torch.equal(given.log_std, torch.zeros(1, 5, dtype=FLOAT64))


def test_mean_of_points_is_of_those_that_are_there():
    values = torch.tensor([[[1.0], [3.0], [100.0]], [[7.0], [8.0], [9.0]]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_of_points(values, mask).tolist() == [[2.0], [0.0]]


def test_kl_of_gaussians_is_the_references_and_not_negative():
    generator = torch.Generator().manual_seed(0)
    p, q = (DiagonalGaussian(*torch.randn(2, 3, 4, generator=generator, dtype=FLOAT64)) for _ in range(2))
    for t in range(3):
        moments = [(g.mean[t].numpy(), np.diag(np.exp(2 * g.log_std[t].numpy()))) for g in (p, q)]
        assert p.kl(q)[t].item() == pytest.approx(reference.kl(*moments[0], *moments[1]))
    assert bool((p.kl(q) > 0).all())
    assert not p.kl(p).any()


# --- each against its equations --------------------------------------------------------------------------------------


def perceptron(encoder, x: np.ndarray) -> np.ndarray:
    return reference.network([reference.array(w) for w in encoder.weights], x, "tanh")


@torch.no_grad()
def test_cnp_is_its_equation():
    model, context, x = build("CNP"), task(5), task(3, seed=1).x
    code = perceptron(model.encoder, np.hstack([context.x, context.y])).mean(0)
    expected = perceptron(model.decoder, np.hstack([np.tile(code, (3, 1)), x]))
    pred = model.condition(context.x, context.y, num_samples=K).predict(x)
    np.testing.assert_allclose(pred.mean, expected[:, :OUT], rtol=1e-10)
    np.testing.assert_allclose(pred.std, 0.5 * np.exp(expected[:, OUT:]), rtol=1e-10)
    y = task(3, seed=1).y.numpy()
    density = stats.norm.logpdf(y, expected[:, :OUT], 0.5 * np.exp(expected[:, OUT:])).sum(1)
    np.testing.assert_allclose(pred.log_prob(y), density, rtol=1e-10)
    assert pred.joint_log_prob(y) == pytest.approx(density.sum())


@pytest.mark.parametrize("name", ["NP", "BNP"])
@torch.no_grad()
def test_latent_processes_are_their_equations(name):
    model, context, x = build(name), task(5), task(3, seed=1).x
    codes = perceptron(model.aggregation.encoder, np.hstack([context.x, context.y]))
    if name == "NP":
        mean, log_std = np.split(perceptron(model.aggregation.head, codes.mean(0, keepdims=True))[0], 2)
        std = np.exp(log_std)
    else:
        precision = 1 + np.exp(-codes[:, 5:]).sum(0)
        mean, std = (codes[:, :5] * np.exp(-codes[:, 5:])).sum(0) / precision, precision**-0.5
    post = model.condition(context.x, context.y, num_samples=K, seed=4)
    noise = torch.randn(1, K, 5, generator=torch.Generator().manual_seed(4), dtype=FLOAT64)[0].numpy()
    pred = post.predict(x)
    for k in range(K):
        z = np.tile(mean + std * noise[k], (3, 1))
        np.testing.assert_allclose(pred.samples[k], perceptron(model.decoder, np.hstack([z, x]))[:, :OUT], rtol=1e-9)


def attended(module, queries, keys, values, visible) -> np.ndarray:
    """Multi-head attention, a head and a query at a time; each query sees the keys that `visible` says."""
    mha = module.attention
    width, heads = mha.embed_dim, mha.num_heads
    weights = np.split(reference.array(mha.in_proj_weight), 3)
    biases = np.split(reference.array(mha.in_proj_bias), 3)
    q, k, v = (h @ w.T + b for h, w, b in zip((queries, keys, values), weights, biases, strict=True))
    out, size = np.zeros((len(q), width)), width // heads
    for head in range(heads):
        here = slice(head * size, (head + 1) * size)
        for i in range(len(q)):
            seen = np.flatnonzero(visible[i])
            scores = np.array([q[i, here] @ k[j, here] / math.sqrt(size) for j in seen])
            out[i, here] = np.exp(scores) / np.exp(scores).sum() @ v[seen][:, here]
    return out @ reference.array(mha.out_proj.weight).T + reference.array(mha.out_proj.bias)


@pytest.mark.parametrize("points", [0, 1, 5])
@torch.no_grad()
def test_anp_looks_up_what_attention_says(points):
    model, context, x = build("ANP"), task(points), task(3, seed=1).x
    path = model.path
    start = [reference.array(token.token)[None] for token in (path.start_key, path.start_value)]
    keys = np.vstack([start[0], perceptron(path.places, context.x.numpy())])
    values = np.vstack([start[1], perceptron(path.contents, np.hstack([context.x, context.y]))])
    looked_up = attended(path.attention, perceptron(path.places, x.numpy()), keys, values, np.ones((3, points + 1)))
    post = model.condition(context.x, context.y, num_samples=K, seed=4)
    for k in range(K):
        z = np.tile(post.latent.z[0, k], (3, 1))
        expected = perceptron(model.decoder, np.hstack([z, x, looked_up]))
        np.testing.assert_allclose(post.predict(x).samples[k], expected[:, :OUT], rtol=1e-9)


@pytest.mark.parametrize("points", [0, 1, 5])
@torch.no_grad()
def test_tnp_is_one_masked_transformer_over_context_and_targets(points):
    """As Nguyen and Grover write it: one sequence of tokens, all of which see the context and nothing else."""
    model, context, x = build("TNP"), task(points), task(3, seed=1).x
    rows = [np.hstack([context.x, context.y, np.ones((points, 1))]), np.hstack([x, np.zeros((3, OUT + 1))])]
    h = np.vstack([reference.array(model.start.token)[None], perceptron(model.embedding, np.vstack(rows))])
    visible = np.zeros((len(h), len(h)))
    visible[:, : points + 1] = 1
    for block in model.blocks:
        normed = layer_norm(h, block.norms[0])
        h = h + attended(block.attention, normed, normed, normed, visible)
        h = h + perceptron(block.perceptron, layer_norm(h, block.norms[1]))
    expected = perceptron(model.head, layer_norm(h[points + 1 :], model.norm))
    pred = model.condition(context.x, context.y, num_samples=K).predict(x)
    np.testing.assert_allclose(pred.mean, expected[:, :OUT], rtol=1e-9)
    np.testing.assert_allclose(pred.std, 0.5 * np.exp(expected[:, OUT:]), rtol=1e-9)


@pytest.mark.parametrize("name", ["CNP", "NP", "ANP", "BNP", "TNP"])
def test_targets_do_not_see_each_other(name):
    model, context, x = build(name), task(4), task(5, seed=1).x
    post = model.condition(context.x, context.y, num_samples=K, seed=0)
    together = post.predict(x).outputs
    for i in range(5):
        torch.testing.assert_close(post.predict(x[i : i + 1]).outputs[:, 0], together[:, i], rtol=1e-10, atol=1e-12)
    crowd = post.predict(torch.cat([x, torch.full((7, IN), 50.0)])).outputs[:, :5]
    torch.testing.assert_close(crowd, together, rtol=1e-10, atol=1e-12)


# --- one target after the other --------------------------------------------------------------------------------------


def standardised(name: str):
    """A model in other units than the user's."""
    model = build(name)
    if model.likelihood.real_valued:
        model.columns.y_shift.copy_(torch.tensor([0.5, -1.0]))
        model.columns.y_scale.copy_(torch.tensor([2.0, 0.3]))
    return model


@pytest.mark.parametrize("name", ["ARTNP", "ARCNP", "ARTNP-labels"])
@pytest.mark.parametrize("points", [0, 4])
def test_the_joint_density_is_the_sum_of_conditionals_given_true_targets(name, points):
    model, context, target = standardised(name), task(points, name=name), task(5, seed=1, name=name)
    found = model.condition(context.x, context.y, num_samples=1, seed=5).predict(target.x).joint_log_prob(target.y)
    kind = TNP if isinstance(model, ARTNP) else type(model)
    one_by_one = kind(**{**model.config(), "likelihood": model.likelihood, "autoregressive": False}).double()
    one_by_one.load_state_dict(model.state_dict())
    post, expected = one_by_one.condition(context.x, context.y, num_samples=1), 0.0
    order = torch.randperm(5, generator=child(5, 0))
    for i in order:
        point = target.take(i.reshape(1))
        expected += post.predict(point.x).log_prob(point.y).item()
        post = post.update(point.x, point.y)
    assert found == pytest.approx(expected, rel=1e-9)
    if name == "ARTNP":  # the order matters, so that a wrong one would be seen
        other = model.condition(context.x, context.y, num_samples=1, seed=7).predict(target.x).joint_log_prob(target.y)
        assert abs(other - found) > 1e-6


def test_every_target_is_drawn_from_its_conditional_given_the_draws_before_it():
    model, context, x = standardised("ARTNP"), task(4), task(5, seed=1).x
    pred = model.condition(context.x, context.y, num_samples=K, seed=5).predict(x)
    drawn, plain = pred.observations(), TNP(IN, OUT, **BLOCKS, dtype=FLOAT64)
    plain.load_state_dict(model.state_dict())
    order = torch.randperm(5, generator=child(5, 0)).tolist()
    assert order != np.argsort(order).tolist()  # an order that is not its own inverse
    for k in range(K):
        post = plain.condition(context.x, context.y, num_samples=1)
        for i in order:
            torch.testing.assert_close(post.predict(x[[i]]).outputs[0, 0], pred.outputs[k, i], rtol=1e-8, atol=1e-10)
            post = post.update(x[[i]], drawn[k, [i]])
        np.testing.assert_allclose(post.predict(x).mean, pred.samples[k], rtol=1e-8)


def test_draws_have_the_moments_of_their_conditionals():
    """Of 4000 draws, 12 statistics, each within 4.5 standard errors (8e-5 to fail by chance)."""
    model, context, x = build("ARCNP"), task(4), task(3, seed=1).x
    pred = model.condition(context.x, context.y, num_samples=4000, seed=0).predict(x)
    mean, std = pred.outputs[..., :OUT].numpy(), 0.5 * np.exp(pred.outputs[..., OUT:].numpy())
    z = (pred.observations() - mean) / std
    assert np.abs(z.mean(0)).max() < 4.5 / math.sqrt(4000)
    assert np.abs((z**2).mean(0) - 1).max() < 4.5 * math.sqrt(2 / 4000)
    assert np.abs(((1.1 * z) ** 2).mean(0) - 1).max() > 4.5 * math.sqrt(2 / 4000)


def test_draws_in_parts_are_draws_of_the_same(monkeypatch):
    model, context, x = build("ARTNP"), task(4), task(3, seed=1)
    whole = model.condition(context.x, context.y, num_samples=5, seed=5).predict(x.x)
    monkeypatch.setattr("bnnp.neural_processes.autoregressive.NUMBERS_AT_ONCE", 1)
    parts = model.condition(context.x, context.y, num_samples=5, seed=5).predict(x.x)
    assert parts.samples.shape == whole.samples.shape
    assert len(np.unique(parts.samples[:, 0, 0])) == 5
    assert parts.joint_log_prob(x.y) == pytest.approx(whole.joint_log_prob(x.y), rel=1e-10)


# --- functions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LATENT, "ANP-bernoulli"])
def test_a_latent_sample_is_a_function(name):
    model, context, x = build(name), task(4, name=name), task(5, seed=1).x
    post = model.condition(context.x, context.y, num_samples=K, seed=0)
    functions = post.functions()
    assert len(functions) == K
    for k, function in enumerate(functions):
        np.testing.assert_allclose(function(x), post.predict(x).samples[k], rtol=1e-10)
        np.testing.assert_allclose(function(x[:2]), function(x)[:2], rtol=1e-10)


def test_a_function_drawn_point_by_point_is_the_same_for_the_same_inputs():
    model, context, x = build("ARTNP"), task(4), task(5, seed=1).x
    first, second = model.condition(context.x, context.y, num_samples=2, seed=0).functions()
    np.testing.assert_array_equal(first(x), first(x))
    assert first(x).shape == (5, OUT)
    assert not np.allclose(first(x), second(x))


@pytest.mark.parametrize("name", ["CNP", "TNP"])
def test_single_predictions_have_no_functions_until_drawn_point_by_point(name):
    model, context = build(name), task(4)
    post = model.condition(context.x, context.y, num_samples=K)
    assert not post.predict(context.x).function_std.any()
    with pytest.raises(ValueError, match=r"functions: .*as_autoregressive"):
        post.functions()
    other = model.as_autoregressive()
    assert not model.autoregressive
    assert not model.config()["autoregressive"]
    assert len(other.condition(context.x, context.y, num_samples=K).functions()) == K
    assert all(p is q for p, q in zip(model.parameters(), other.parameters(), strict=True))


# --- objectives and training -----------------------------------------------------------------------------------------


def split_batch(*sizes: tuple[int, int]) -> SplitBatch:
    return SplitBatch.of([Split(task(n, seed=n), task(m, seed=m + 20)) for n, m in sizes], FLOAT64)


def joined(one: Task, other: Task) -> Task:
    return Task(torch.cat([one.x, other.x]), torch.cat([one.y, other.y]))


@every_latent
@torch.no_grad()
def test_npvi_has_the_closed_form_kl_between_the_two_posteriors(name):
    model, batch = build(name), split_batch((3, 2), (0, 4))
    kl = -terms_of(NPVI(2), model, batch)["kl"]
    for t, (n, m) in enumerate([(3, 2), (0, 4)]):
        context, target = task(n, seed=n), task(m, seed=m + 20)
        both = joined(context, target)
        moments = [
            (g.mean[0].numpy(), np.diag(np.exp(2 * g.log_std[0].numpy())))
            for g in (model.given(batch_of(both)), model.given(batch_of(context)))
        ]
        assert kl[t].item() == pytest.approx(reference.kl(*moments[0], *moments[1]))
    assert bool((kl > 0).all())


@torch.no_grad()
def test_npvi_is_a_lower_bound_of_the_log_marginal_likelihood():
    """Of a BNP with one latent number and no context, whose prior is known; the integral is done on a grid.

    The bound is averaged over 20,000 samples, and must lie 5 standard errors below (its gap is far more than that).
    """
    model = BNP(1, 1, **SMALL, likelihood=Gaussian(0.5), latent_size=1, dtype=FLOAT64)
    target = Task(torch.tensor([[0.3], [-1.0]], dtype=FLOAT64), torch.tensor([[0.4], [-0.2]], dtype=FLOAT64))
    batch = SplitBatch(TaskBatch.of([target.take(torch.arange(0))], FLOAT64), TaskBatch.of([target], FLOAT64))
    grid = torch.linspace(-8, 8, 4001, dtype=FLOAT64)
    density = model.log_likelihood(Latent(grid[None, :, None], None), batch.target).sum(-1)[0]
    evidence = float(
        torch.trapezoid(torch.exp(density + torch.distributions.Normal(0.0, 1.0).log_prob(grid)), grid).log()
    )
    q = model.infer_with_targets(batch.context, batch.target, 20_000, child(0))
    samples = model.log_likelihood(q.latent, batch.target).sum(-1)[0] - q.total_kl()
    error = float(samples.std() / math.sqrt(20_000))
    assert samples.mean() < evidence - 5 * error
    assert terms_of(NPML(20_000), model, batch)["predictive"].item() == pytest.approx(evidence, abs=0.02)


@torch.no_grad()
def test_the_deterministic_path_does_not_see_targets_in_training():
    model, batch = build("ANP"), split_batch((3, 2))
    both = TaskBatch.of([joined(task(3, seed=3), task(2, seed=22))], FLOAT64)
    codes = model.infer_with_targets(batch.context, both, 2, child(0)).latent.codes
    assert torch.equal(codes.values, model.codes(batch.context).values)


@torch.no_grad()
def test_npml_of_single_predictions_is_the_log_density_of_the_targets():
    model, batch = build("TNP"), split_batch((3, 2), (0, 4))
    found = terms_of(NPML(7), model, batch)["predictive"]
    for t, (n, m) in enumerate([(3, 2), (0, 4)]):
        context, target = task(n, seed=n), task(m, seed=m + 20)
        pred = model.condition(context.x, context.y, num_samples=1).predict(target.x)
        assert found[t].item() == pytest.approx(pred.log_prob(target.y).sum())


@pytest.mark.parametrize("name", ["CNP", "NP", "ANP", "BNP", "TNP"])
def test_objectives_that_need_what_is_not_there_are_refused(name):
    model, batch = build(name), split_batch((3, 2))
    for objective in (PPAVI(2), AVI(2), TELLAVI(2)):
        with pytest.raises(ValueError, match=rf"objective: .*prior over weights, and a {name} has none.*NPML"):
            terms_of(objective, model, batch)
    if name not in LATENT:
        with pytest.raises(ValueError, match=rf"objective: NPVI needs a latent variable, and a {name} has none"):
            terms_of(NPVI(2), model, batch)


def quick(model, steps: int = 80, **options) -> bnnp.FitResult:
    choices = {"batch_size": 8, "learning_rate": (3e-3, 3e-3), "progress": False, "seed": 0, **options}
    source = bnnp.tasks.gp(low=-2, high=2, length_scale=2.0, points=(12, 20), noise=0.1)
    return bnnp.fit(model, source, steps=steps, **in_records(choices))


@pytest.mark.parametrize("peer", [CNP, NP, ANP, BNP, TNP])
def test_training_improves_the_objective(peer):
    history = quick(peer(1, 1, hidden=(16, 16))).history.to_frame()
    # maximum likelihood, where nothing is asked for
    assert [*history.columns[3:]] == ["objective", "predictive", "float64", "whitened"]
    assert history["objective"].iloc[-2:].mean() > history["objective"].iloc[0] + 2


@pytest.mark.parametrize("peer", [NP, ANP, BNP])
def test_training_by_npvi(peer):
    history = quick(peer(1, 1, hidden=(16, 16)), objective=NPVI(8)).history.to_frame()
    assert max(history["kl"]) <= 0
    assert history["objective"].iloc[-2:].mean() > history["objective"].iloc[0] + 2


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(tmp_path):
    whole = quick(TNP(1, 1, hidden=(8,)), steps=6, checkpoint=tmp_path / "a").model

    def stop(_) -> dict[str, float]:
        raise KeyboardInterrupt

    quick(TNP(1, 1, hidden=(8,)), steps=6, checkpoint=tmp_path / "b", evaluation=stop, evaluate_every=3)
    again = quick(TNP(1, 1, hidden=(8,)), steps=6, checkpoint=tmp_path / "b").model
    assert all(torch.equal(p, q) for p, q in zip(whole.parameters(), again.parameters(), strict=True))


def test_training_in_the_users_units():
    x = np.linspace(0, 1, 9)
    tasks = bnnp.tasks.from_arrays([(x, 1000 + 5 * np.sin(6 * x + a)) for a in range(6)])
    model = bnnp.fit(CNP(1, 1, hidden=(16,)), tasks, steps=60, progress=False).model
    pred = model.condition(x, 1000 + 5 * np.sin(6 * x), num_samples=50).predict(x)
    assert 990 < pred.mean.min() < pred.mean.max() < 1010
    assert 0.1 < pred.std.mean() < 10


# --- noise, and other outputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["CNP", "NP", "ANP", "BNP", "TNP"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_predicted_noise_has_no_floor(name, dtype):
    model, context = build(name, dtype), task(4)
    last = model.head if name == "TNP" else model.decoder
    with torch.no_grad():
        last.weights[-1].zero_()
        last.set_output_bias(slice(OUT, 2 * OUT), -20.0)
    pred = model.condition(context.x, context.y, num_samples=3).predict(context.x)
    np.testing.assert_allclose(pred.std, 0.5 * math.exp(-20), rtol=1e-4)
    exact = np.zeros((4, OUT))
    np.testing.assert_allclose(
        pred.log_prob(exact), OUT * (20 - math.log(0.5) - 0.5 * math.log(2 * math.pi)), rtol=1e-6
    )


def test_the_gaussian_with_predicted_noise_is_scipys():
    likelihood = HeteroscedasticGaussian(0.3).for_outputs(4)
    f, y = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=FLOAT64)
    y, std = y[..., :2], 0.3 * np.exp(f[..., 2:].numpy())
    expected = stats.norm.logpdf(y.numpy(), f[..., :2].numpy(), std).sum(-1)
    np.testing.assert_allclose(likelihood.log_prob(f, y), expected, rtol=1e-12)
    np.testing.assert_allclose(likelihood.variance(f), std**2, rtol=1e-12)
    assert likelihood.y_size(4) == 2
    many = likelihood.sample(f[:1].expand(20_000, 3, 4), child(0)).numpy()
    z = (many - f[0, :, :2].numpy()) / std[0]  # 12 statistics within 4.5 standard errors, as above
    assert np.abs(z.mean(0)).max() < 4.5 / math.sqrt(20_000)
    assert np.abs((z**2).mean(0) - 1).max() < 4.5 * math.sqrt(2 / 20_000)


@pytest.mark.parametrize("name", ["CNP", "ARTNP"])
def test_a_noise_of_ones_own_is_refused_where_the_model_predicts_it(name):
    with pytest.raises(ValueError, match="noise: got"):
        bnnp.evaluate(build(name), [Split(task(3), task(2))], num_samples=2, noise=0.1)


# --- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CNP(0, 1), "in_size"),
        (lambda: CNP(1, 1, hidden=()), "hidden"),
        (lambda: NP(1, 1, latent_size=0), "latent_size"),
        (lambda: ANP(1, 1, heads=3), "heads"),
        (lambda: ANP(1, 1, heads=0), "heads"),
        (lambda: NP(1, 1, heads=2), "heads: got 2, but a NP has no attention; use ANP"),
        (lambda: ARTNP(1, 1, autoregressive=False), "autoregressive: got False, expected True for an ARTNP; use TNP"),
        (lambda: TNP(1, 1, hidden=(8, 4)), "hidden"),
        (lambda: TNP(1, 1, hidden=()), "hidden"),
        (lambda: TNP(1, 1, hidden=(6,), heads=4), "heads"),
        (lambda: BNP(1, 1, activation="sine"), "activation"),
        (lambda: CNP(1, 1, likelihood=Categorical(3)), "out_size"),
        (lambda: CNP(1, 1, seed=None), "seed"),  # pyright: ignore[reportArgumentType]
        (lambda: HeteroscedasticGaussian(0.0), "noise"),
        (lambda: bnnp.BNNP(1, 2, likelihood=HeteroscedasticGaussian()), "likelihood: got HeteroscedasticGaussian"),
        (lambda: quick(CNP(1, 1), chunk_size=5), "chunk_size: contexts of a CNP"),
        (lambda: quick(CNP(2, 1)), "tasks: got 1 input"),
        (lambda: CNP(1, 1).condition([0.0], [0.0], num_samples=0), "num_samples"),
        (lambda: CNP(2, 1).condition([[0.0, math.nan]], [0.0]), "row 0, column 1"),
        (lambda: TNP(1, 1).condition([0.0], [0.0, 1.0]), "1 and 2 points"),
        (lambda: TNP(1, 1).condition([0.0], [0.0]).predict([[0.0, 1.0]]), "x: got 2 columns"),
        (lambda: TNP(1, 1).condition([0.0], [0.0]).update([[0.0, 1.0]], [1.0]), "x: got 2 columns"),
        (lambda: NP(1, 1, likelihood=Bernoulli()).condition([0.0], [2.0]), "y: got values from"),
        (
            lambda: ARTNP(1, 1).condition([0.0], [0.0], num_samples=1).predict([0.0]).joint_log_prob([1.0, 2.0]),
            "y: got 2",
        ),
    ],
)
def test_wrong_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "change",
    [
        lambda header: {**header, "class": "TNQ"},
        lambda header: {**header, "config": {**header["config"], "hidden": [8, 8]}},
        lambda header: {**header, "config": {**header["config"], "depth": 3}},
        lambda header: {**header, "columns": {"x": ["a", "b"], "y": ["c"]}},
        lambda header: {k: v for k, v in header.items() if k != "dtype"},
    ],
)
def test_damaged_files_are_refused(change, tmp_path):
    path = TNP(1, 1, hidden=(8,)).save(tmp_path / "m.bnnp")
    tensors, header = read_tensors(path, "model")
    rest = {key: value for key, value in change(header).items() if key not in ("format", "kind")}
    write_tensors(path, "model", tensors, rest)
    with pytest.raises(ValueError, match="the model file is damaged"):
        bnnp.load(path)
