import math

import numpy as np
import pytest
import torch

from bnnp import BNNP, Bernoulli, Categorical, FactorisationError, Gaussian, Pointwise
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.inference_nets.pseudo import AmortisedLinear
from bnnp.models import InferredWeights
from bnnp.objectives import AVI, PPAVI
from bnnp.priors import PRIORS
from bnnp.tasks.task import SplitBatch, Task, TaskBatch
from support import reference
from support.models import (
    FLOAT64,
    IN,
    MEMBERS,
    OUT,
    SAMPLES,
    Draws,
    Member,
    assert_same,
    batch_of,
    draws,
    infer,
    on_points,
    on_tasks,
    with_random_prior,
)


def linear_layers(model: BNNP) -> list[AmortisedLinear]:
    return [layer for layer in model.layers if isinstance(layer, AmortisedLinear)]


every_model = pytest.mark.parametrize("member", MEMBERS, ids=str)
every_prior = pytest.mark.parametrize("prior", list(PRIORS))


# --- against the paper's equations -----------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("points", [1, 3, 8])
def test_kl_of_every_layer_is_the_references(member, points):
    model, task = member.build(), member.task(points)
    inferred = infer(model, batch_of(task), draws(model, 1, points))
    for k in range(SAMPLES):
        expected = reference.model_kl(model, [w[0, k] for w in inferred.weights], task.x, task.y)
        found = [kl.expand(1, SAMPLES)[0, k].item() for kl in inferred.kl]
        np.testing.assert_allclose(found, expected, rtol=1e-8)


@every_model
@pytest.mark.parametrize("points", [0, 3, 8])
def test_posterior_log_prob_is_the_references(member, points):
    model, task = member.build(), member.task(points)
    post = model.condition(task.x, task.y, num_samples=SAMPLES, seed=3)
    expected = [
        reference.model_log_density(model, [w[k] for w in post.weights], task.x, task.y) for k in range(SAMPLES)
    ]
    np.testing.assert_allclose(post.log_prob(), expected, rtol=1e-8, atol=1e-8)


@every_model
def test_sample_without_noise_has_every_layer_at_its_posterior_mean(member):
    model, task = member.build(), member.task(5)
    noise = [Draws(0 * layer.weights, 0 * layer.points) for layer in draws(model, 1, 5)]
    weights = [w[0, 0] for w in infer(model, batch_of(task), noise).weights]
    for w, _, (mean, _) in reference.model_moments(model, weights, task.x, task.y):
        np.testing.assert_allclose(w, mean, rtol=1e-8, atol=1e-10)


@every_model
def test_samples_have_every_layers_posterior_covariance(member):
    """A layer's sample is affine in that layer's draws, so that unit vectors as draws give its covariance exactly."""
    model, task = member.build(), member.task(4)
    for layer in range(model.network.num_layers):
        size = math.prod(model.network.weight_shapes[layer])
        seen = 4 * model.network.sizes[layer + 1]
        count = 1 + size + seen
        noise = [
            Draws(n.weights.repeat(1, count, 1, 1), n.points.repeat(1, count, 1, 1))
            for n in draws(model, 1, 4, samples=1)
        ]
        noise[layer].weights.zero_()
        noise[layer].points.zero_()
        noise[layer].weights[0, 1 : 1 + size].copy_(torch.eye(size).reshape(size, *noise[layer].weights.shape[2:]))
        noise[layer].points[0, 1 + size :].copy_(torch.eye(seen).reshape(seen, *noise[layer].points.shape[2:]))
        inferred = infer(model, batch_of(task), noise)
        first = [w[0, 0] for w in inferred.weights]
        vectors = np.array([reference.vec(reference.array(w)) for w in inferred.weights[layer][0]])
        jacobian = (vectors[1:] - vectors[0]).T
        _, _, (_, covariance) = reference.model_moments(model, first, task.x, task.y)[layer]
        np.testing.assert_allclose(jacobian @ jacobian.T, covariance, rtol=1e-8, atol=1e-10)


@every_model
def test_log_likelihood_is_that_of_the_network_at_every_point_and_0_where_there_is_none(member):
    model, tasks = member.build(), [member.task(4, seed=0), member.task(2, seed=1)]
    context = batch_of(*tasks)
    weights = infer(model, context, draws(model, 2, 4)).weights
    found = model.log_likelihood(weights, context).detach()
    for t, k in np.ndindex(2, SAMPLES):
        n = len(tasks[t])
        f = reference.network([reference.array(w[t, k]) for w in weights], tasks[t].x.numpy(), "tanh")
        expected = model.likelihood.log_prob(torch.from_numpy(f), tasks[t].y).detach()
        np.testing.assert_allclose(found[t, k, :n], expected, rtol=1e-10)
        assert not found[t, k, n:].any()


@every_model
def test_contexts_and_targets_together_are_as_one_after_the_other(member):
    model = member.build()
    batch = SplitBatch(*(batch_of(member.task(n, seed=0), member.task(m, seed=1)) for n, m in ((6, 2), (3, 5))))
    parameters = list(model.parameters())
    found = []
    for together in (True, False):
        generator = torch.Generator().manual_seed(0)
        if together:
            inferred, context, target = model.infer_and_score(batch, SAMPLES, generator)
        else:
            inferred = model.infer(batch.context, SAMPLES, generator)
            context = model.context_log_likelihood(inferred, batch.context)
            target = model.log_likelihood(inferred.weights, batch.target)
        total = context.sum() + target.square().sum() + inferred.total_kl().sum()
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        found.append([*inferred.weights, *inferred.kl, context, target, *(g for g in gradients if g is not None)])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@every_model
def test_inference_networks_side_by_side_are_as_one_after_the_other(member):
    model, context = member.build(), batch_of(member.task(6, seed=0), member.task(2, seed=1))
    at_once = model.pseudo_observations_at_once(context)
    assert sorted(at_once) == ([] if member.sees_hidden else list(range(len(model.layers))))
    for layer, found in at_once.items():
        expected = model.pseudo_observations(layer, context, context.x.unsqueeze(1))
        torch.testing.assert_close(found.y, expected.y, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found.inverse_noise, expected.inverse_noise, rtol=1e-12, atol=1e-12)


# --- laws ------------------------------------------------------------------------------------------------------------


@every_model
def test_order_of_the_context_does_not_matter(member):
    model, task = member.build(), member.task(6)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    noise = draws(model, 1, 6)
    shuffled = on_points(noise, lambda points: points[..., order])
    assert_same(infer(model, batch_of(task.take(order)), shuffled), infer(model, batch_of(task), noise))


@every_model
def test_order_of_the_context_does_not_change_what_a_user_gets_for_a_seed(member):
    model, task = member.build(), member.task(6)
    shuffled = task.take(torch.tensor([3, 0, 5, 1, 4, 2]))
    x_new = member.task(3, seed=9).x
    one, other = (model.condition(t.x, t.y, num_samples=4, seed=0).predict(x_new).samples for t in (task, shuffled))
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@every_model
def test_padding_does_not_matter(member):
    """From 3 points to 12: the padded batch may also take the other form of the update."""
    model, task = member.build(), member.task(3)
    noise = draws(model, 1, 3)
    padded = TaskBatch(
        torch.cat([task.x, torch.full((9, IN), 1e3)])[None],
        torch.cat([task.y, torch.ones(9, task.y.shape[1])])[None],
        (torch.arange(12) < 3)[None],
    )
    longer = on_points(noise, lambda points: torch.cat([points, torch.full((*points.shape[:-1], 9), 7.0)], -1))
    assert_same(infer(model, padded, longer), infer(model, batch_of(task), noise))


@every_model
def test_a_batch_is_its_tasks_one_at_a_time(member):
    model = member.build()
    tasks = [member.task(points, seed=points) for points in (5, 2, 0)]
    noise = draws(model, 3, 5)
    batch = infer(model, batch_of(*tasks), noise)
    for i, task in enumerate(tasks):
        own = on_points(on_tasks(noise, slice(i, i + 1)), lambda points, n=tasks[i].x.shape[0]: points[..., :n])
        row = slice(i, i + 1)
        of_batch = InferredWeights([w[row] for w in batch.weights], [kl[row] for kl in batch.kl], batch.outputs[row])
        assert_same(of_batch, infer(model, batch_of(task), own))


@every_model
def test_kl_is_positive(member):
    model = member.build()
    inferred = infer(model, batch_of(member.task(5)), draws(model, 1, 5))
    assert all(bool((kl > 0).all()) for kl in inferred.kl)
    assert inferred.total_kl().item() == pytest.approx(sum(kl.mean().item() for kl in inferred.kl))


@every_model
def test_without_points_the_posterior_is_the_prior(member):
    model, nothing = member.build(), member.task(0)
    inferred = infer(model, batch_of(nothing), draws(model, 1, 0))
    whitened = [noise.weights for noise in draws(model, 1, 0)]
    for layer, w in enumerate(inferred.weights):
        prior = model.prior.layer(layer, whitened[:layer])
        expected = model.prior.from_units(layer, prior.weights(whitened[layer]))
        torch.testing.assert_close(w, expected, rtol=1e-12, atol=1e-12)
    post = model.condition(nothing.x, nothing.y, num_samples=SAMPLES, seed=0)
    assert post.kl == 0
    torch.testing.assert_close(post.log_prob(), model.prior.log_prob(post.weights), rtol=1e-10, atol=1e-10)


@every_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_model(member, dtype):
    model, task = member.build(dtype), member.task(5)
    post = model.condition(task.x, task.y, num_samples=2)
    assert {w.dtype for w in post.weights} | {post.log_prob().dtype} == {dtype}
    assert {value.dtype for value in post.layer_kl + post.layer_log_density} == {torch.float64}
    assert post.predict_by_samples(task.x).outputs.dtype == dtype
    double = member.build().condition(task.x, task.y, num_samples=2)
    torch.testing.assert_close(post.layer_kl[0].double(), double.layer_kl[0], rtol=1e-4, atol=1e-4)


@every_model
def test_derivatives_agree_with_finite_differences(member):
    """Derivatives of the training objective, along a random direction in all parameters."""
    model = member.build()
    batch = SplitBatch(batch_of(member.task(3)), batch_of(member.task(4, seed=1)))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    generator = torch.Generator().manual_seed(5)
    direction = [torch.randn(p.shape, generator=generator, dtype=FLOAT64) for p in parameters]

    def objective() -> torch.Tensor:
        return PPAVI(num_samples=2)(model, batch, torch.Generator().manual_seed(0)).total().sum()

    gradients = torch.autograd.grad(objective(), parameters)
    slope = sum((g * v).sum().item() for g, v in zip(gradients, direction, strict=True))

    def moved(step: float) -> float:
        with torch.no_grad():
            for p, v in zip(parameters, direction, strict=True):
                p += step * v
            value = objective().item()
            for p, v in zip(parameters, direction, strict=True):
                p -= step * v
        return value

    step = 1e-6
    assert (moved(step) - moved(-step)) / (2 * step) == pytest.approx(slope, rel=1e-5, abs=1e-5)


# --- statistics ------------------------------------------------------------------------------------------------------


@every_model
def test_kl_is_the_mean_of_the_log_ratio_of_posterior_and_prior(member):
    """32 models: the largest of 32 standard normals exceeds 4.5 with probability 2e-4."""
    model, task = member.build(), member.task(4)
    post = model.condition(task.x, task.y, num_samples=3000, seed=0)
    log_ratio = post.log_prob() - model.prior.log_prob(post.weights).detach()

    def standard_errors(kl: torch.Tensor) -> float:
        difference = log_ratio - kl
        return abs(difference.mean() / difference.std() * math.sqrt(len(difference))).item()

    kl = torch.stack(post.layer_kl).sum(0)
    assert standard_errors(kl) < 4.5
    assert standard_errors(1.1 * kl) > 4.5
    assert standard_errors(torch.stack(post.layer_kl[:-1]).sum(0)) > 4.5


# --- a linear model has an exact answer ------------------------------------------------------------------------------


def linear_model(prior: str) -> tuple[BNNP, Task]:
    likelihood = Gaussian([0.2, 0.4])
    model = BNNP(IN, OUT, hidden=(), prior=prior, likelihood=likelihood, last_layer="likelihood", dtype=FLOAT64)
    return with_random_prior(model), Member(prior, "gaussian", "likelihood", False).task(7)


def linear_regression(model: BNNP, task: Task):
    """Prior of vec(W), features of vec(Y), vec(Y) and its noise."""
    chi = np.kron(np.eye(OUT), reference.features(0, task.x.numpy(), "identity"))
    noise = np.repeat(reference.array(model.likelihood.noise), len(task))  # pyright: ignore[reportArgumentType]
    return (*reference.prior_moments(model.prior), chi, reference.vec(task.y.numpy()), noise)


@every_prior
def test_linear_model_has_the_exact_log_evidence_at_every_sample(prior):
    model, task = linear_model(prior)
    post = model.condition(task.x, task.y, num_samples=20, seed=0)
    batch = batch_of(task)
    log_likelihood = model.log_likelihood([w.unsqueeze(0) for w in post.weights], batch).sum(-1)[0]
    evidence = (log_likelihood + model.prior.log_prob(post.weights) - post.log_prob()).detach()
    np.testing.assert_allclose(evidence, reference.log_evidence(*linear_regression(model, task)), rtol=1e-8)


@every_prior
def test_elbo_of_a_linear_model_is_its_log_evidence(prior):
    model, task = linear_model(prior)
    mean, covariance, chi, y, noise = linear_regression(model, task)
    m, s = reference.posterior(mean, covariance, chi, y, noise)
    spread = np.trace(chi @ s @ chi.T @ np.diag(noise**-2))
    expected_log_likelihood = reference.log_density(y, chi @ m, np.diag(noise**2)) - 0.5 * spread
    kl = model.condition(task.x, task.y, num_samples=1).kl
    evidence = reference.log_evidence(mean, covariance, chi, y, noise)
    np.testing.assert_allclose(expected_log_likelihood - kl, evidence, rtol=1e-8)


@every_prior
def test_avi_estimates_the_log_evidence_of_a_linear_model(prior):
    """Within 4.5 standard errors, exceeded with probability 7e-6 each; the objective without its KL is not."""
    model, task = linear_model(prior)
    batch, count = SplitBatch(batch_of(task), batch_of(task)), 5000
    terms = AVI(num_samples=count)(model, batch, torch.Generator().manual_seed(0))
    weights = model.infer(batch.context, count, torch.Generator().manual_seed(0)).weights
    error = model.log_likelihood(weights, batch.context).sum(-1).std().item() / math.sqrt(count)
    evidence = reference.log_evidence(*linear_regression(model, task))
    assert abs(terms.total().item() - evidence) < 4.5 * error
    assert abs(terms.by_name["likelihood"].item() - evidence) > 4.5 * error


@every_prior
def test_linear_model_predicts_as_a_gaussian_process_with_its_kernel(prior):
    model, task = linear_model(prior)
    mean, covariance, chi, y, noise = linear_regression(model, task)
    x_new = Member(prior, "gaussian", "likelihood", False).task(3, seed=8).x
    chi_new = np.kron(np.eye(OUT), reference.features(0, x_new.numpy(), "identity"))
    expected_mean, expected_covariance = reference.gp_regression(
        chi @ mean, chi_new @ mean, chi @ covariance @ chi.T, chi_new @ covariance @ chi.T,
        chi_new @ covariance @ chi_new.T, y, noise,
    )  # fmt: skip
    size, seen = chi.shape[1], chi.shape[0]
    (like,) = draws(model, 1, len(task), samples=1 + size + seen)
    of_weights, of_points = torch.zeros_like(like.weights), torch.zeros_like(like.points)
    of_weights[0, 1 : 1 + size] = torch.eye(size).reshape(size, *like.weights.shape[2:])
    of_points[0, 1 + size :] = torch.eye(seen).reshape(seen, *like.points.shape[2:])
    (weights,) = infer(model, batch_of(task), [Draws(of_weights, of_points)]).weights
    f = np.array([reference.vec(reference.array(model.network([w], x_new))) for w in weights[0]])
    jacobian = (f[1:] - f[0]).T
    np.testing.assert_allclose(f[0], expected_mean, rtol=1e-8)
    np.testing.assert_allclose(jacobian @ jacobian.T, expected_covariance, rtol=1e-8, atol=1e-12)


# --- training and errors ---------------------------------------------------------------------------------------------


@every_prior
def test_float32_training_with_a_large_context_and_high_learning_rate_stays_finite(prior):
    points = 500
    hidden = (16, 16) if prior in ("factorised", "unitwise") else (4, 4)
    model = BNNP(
        1, 1, hidden=hidden, prior=prior, likelihood=Gaussian(0.05), inference=Pointwise(min_pseudo_noise=1e-3), seed=0
    )
    with torch.no_grad():
        for layer in linear_layers(model):
            layer.encoder.set_output_bias(slice(-layer.units, None), -20.0)  # all noise at its bound
    x = torch.linspace(-2, 2, points)[None, :, None]
    batch = TaskBatch(x, torch.sign(torch.sin(3 * x)), torch.ones(1, points, dtype=torch.bool))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for step in range(20):
        optimiser.zero_grad()
        terms = PPAVI(num_samples=2)(model, SplitBatch(batch, batch), torch.Generator().manual_seed(step))
        assert torch.isfinite(terms.total()).all()
        (-terms.total().mean()).backward()
        optimiser.step()
        assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def test_failed_factorisation_names_layer_and_task():
    model = MEMBERS[0].build()
    context = batch_of(MEMBERS[0].task(3), MEMBERS[0].task(3, seed=1))
    context.x[1, 0, 0] = math.nan
    with pytest.raises(FactorisationError, match="layer 1, task 1"):
        model.infer(context, 2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.get_parameter("prior.gaussians.1.log_scale.value").fill_(math.nan)
    with pytest.raises(FactorisationError, match="layer 2, task 0"):
        model.infer(batch_of(MEMBERS[0].task(3)), 2, torch.Generator().manual_seed(0))


def test_samples_follow_the_seed():
    member = MEMBERS[0]
    model, task = member.build(), member.task(4)
    first, again, other = (model.condition(task.x, task.y, num_samples=2, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first.weights, again.weights, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first.weights, other.weights, strict=True))


def test_samples_drawn_in_chunks_are_samples_of_the_same_posterior(monkeypatch):
    member = MEMBERS[0]
    model, task = member.build(), member.task(4)
    monkeypatch.setattr("bnnp.models.draws.SAMPLES_AT_ONCE", 1)
    post = model.condition(task.x, task.y, num_samples=5, seed=0)
    assert {len(values) for values in [*post.weights, *post.layer_kl, post.log_prob()]} == {5}
    assert len(torch.unique(post.weights[0][:, 0, 0])) == 5
    expected = np.array([reference.model_kl(model, [w[k] for w in post.weights], task.x, task.y) for k in range(5)])
    np.testing.assert_allclose(np.stack([kl.numpy() for kl in post.layer_kl], 1), expected, rtol=1e-8)


def test_the_inference_network_sees_what_it_should():
    """Footnote 2 of the paper: activations of the layer before are inputs only if asked for."""
    for member, inputs in ((MEMBERS[0], [IN + OUT] * 3), (MEMBERS[1], [IN + OUT, IN + OUT + 4, IN + OUT + 2])):
        encoders = [layer.encoder for layer in linear_layers(member.build())]
        assert [e.network.sizes[0] for e in encoders if isinstance(e, PointEncoder)] == inputs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"last_layer": "likelihood", "likelihood": Bernoulli()}, "last_layer"),
        ({"last_layer": "predicted", "likelihood": Categorical(2)}, "last_layer"),
        ({"last_layer": "first"}, "last_layer"),
        ({"prior": "flat"}, "prior"),
        ({"activation": "sine"}, "activation"),
        ({"likelihood": Gaussian([0.1, 0.2, 0.3])}, "noise"),
        ({"hidden": (0,)}, "hidden: got"),
    ],
)
def test_impossible_models_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BNNP(**{"in_size": 1, "out_size": 2, **arguments})


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[0.0, 1.0]], [[0.0]], "y: got 1 columns"),
        ([[0.0]], [[0.0, 1.0]], "x: got 1 columns"),
        ([[0.0, 1.0], [2.0, 3.0]], [[0.0, 1.0]], "2 and 1 points"),
        ([[0.0, math.nan]], [[0.0, 1.0]], "row 0, column 1"),
        (np.array(0.0), [[0.0, 1.0]], "x: got a single number"),
        ([["a", "b"]], [[0.0, 1.0]], "x: expected numbers"),
    ],
)
def test_data_that_do_not_fit_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        BNNP(2, 2, hidden=(3,)).condition(x, y, num_samples=1)


def test_number_of_samples_must_be_positive():
    with pytest.raises(ValueError, match="num_samples"):
        BNNP(1, 1, hidden=(3,)).condition([0.0], [0.0], num_samples=0)
