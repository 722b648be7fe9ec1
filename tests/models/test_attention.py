"""Attention in inference networks (AttBNNP) and in the network itself (BNAM)."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import bnnp
from bnnp.inference_nets.attentive import SetEncoder
from bnnp.networks.transformer import AttentionNetwork, attention
from bnnp.objectives import PPAVI
from bnnp.tasks.task import SplitBatch, Task, TaskBatch
from support import reference
from support.attention import layer_norm
from support.memory import SHORT, peak_bytes
from support.models import (
    FLOAT64,
    IN,
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
from support.training import Stop, fit, records, same, state

NOISE = 0.3


def task(points: int, seed: int = 0) -> Task:
    return Member("unitwise", "gaussian", "pseudo", sees_hidden=False).task(points, seed)


def attentive(**options) -> Any:
    """An AttBNNP with two hidden layers and inference networks of two blocks."""
    choices = {"hidden": (4, 2), "inference": bnnp.Attentive((8, 8)), "likelihood": bnnp.Gaussian(NOISE), **options}
    return with_random_prior(bnnp.AttBNNP(IN, OUT, activation="tanh", dtype=FLOAT64, seed=0, **choices))


def machine(width: int = 4, blocks: int = 2, **options) -> Any:
    """A BNAM of two blocks with two heads each, and with layer norms that do something."""
    choices = {"likelihood": bnnp.Gaussian(NOISE), "inference": bnnp.Pointwise(hidden=(5,)), **options}
    size = bnnp.Transformer(width, blocks, heads=2, mlp=3)
    model: Any = bnnp.BNAM(IN, OUT, size, activation="tanh", dtype=FLOAT64, seed=0, **choices)
    randomise_norms(model.network)
    return with_random_prior(model)


def randomise_norms(network: AttentionNetwork) -> AttentionNetwork:
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=FLOAT64)
    return network


ATTENTIVE = {
    "attentive": attentive,
    "attentive-sees_hidden": lambda: attentive(inference=bnnp.Attentive((8, 8), sees_hidden=True), prior="layerwise"),
}
MACHINES = {
    "unitwise": machine,
    "factorised": lambda: machine(prior="factorised", blocks=1, last_layer="pseudo"),
    "networkwise": lambda: machine(prior="networkwise", blocks=1, width=2, last_layer="likelihood"),
}
MODELS = ATTENTIVE | {"machine": lambda: machine(blocks=1), "machine-factorised": MACHINES["factorised"]}
every_model = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
every_machine = pytest.mark.parametrize("build", MACHINES.values(), ids=MACHINES)
both_kinds = pytest.mark.parametrize("build", [attentive, machine])


# --- a slow transformer ----------------------------------------------------------------------------------------------


def multi_head(queries, keys, values, heads):
    """Attention by loops over heads and points, with a sum over all points for each."""
    points, width = queries.shape
    size = width // heads
    out = np.zeros((points, width))
    for head in range(heads):
        columns = range(head * size, (head + 1) * size)
        for i in range(points):
            scores = [sum(queries[i, c] * keys[j, c] for c in columns) / math.sqrt(size) for j in range(points)]
            total = sum(math.exp(score) for score in scores)
            for j, score in enumerate(scores):
                for c in columns:
                    out[i, c] += math.exp(score) / total * values[j, c]
    return out


def transformer(network: AttentionNetwork, weights, x):
    """Outputs, and the features of every linear layer on the way to them. Each block adds, then normalises."""
    seen, remaining = [], list(weights)

    def linear(h):
        seen.append(np.concatenate([h, np.ones((len(h), 1))], axis=1))
        return seen[-1] @ remaining.pop(0)

    norms = list(network.norms)
    h = linear(x)
    while norms:
        queries, keys, values = linear(h), linear(h), linear(h)
        h = layer_norm(h + linear(multi_head(queries, keys, values, network.heads)), norms.pop(0))
        h = layer_norm(h + linear(reference.ACTIVATIONS[network.activation](linear(h))), norms.pop(0))
    return linear(h), seen


def machine_moments(model, weights, of: Task):
    """For each layer of a BNAM, the moments of `vec(W^l)` under prior and posterior, as `reference.layer_moments`."""
    samples = [reference.array(w) for w in weights]
    mean, covariance = reference.prior_moments(model.prior)
    omega = reference.all_weights(samples)
    _, features = transformer(model.network, samples, of.x.numpy())
    inputs = np.concatenate([of.x.numpy(), reference.array(model.likelihood.encode(of.y))], axis=1)
    config, moments, start = model.config(), [], 0
    for layer, (w, phi) in enumerate(zip(samples, features, strict=True)):
        current, out = np.arange(start, start + w.size), w.shape[1]
        prior = reference.conditional(mean, covariance, current, np.arange(start), omega[:start])
        last = layer == len(samples) - 1
        if last and config["last_layer"] == "likelihood":
            y, noise = of.y.numpy(), np.full(of.y.shape, NOISE)
        else:
            encoder = [reference.array(v) for v in model.layers[layer].encoder.weights]
            predicted = reference.network(encoder, inputs, config["activation"])
            noise = config["inference"]["min_pseudo_noise"] + np.exp(predicted[:, -out:])
            y = of.y.numpy() if last and config["last_layer"] == "predicted" else predicted[:, :out]
        moments.append((reference.vec(w), prior, reference.layer_posterior(*prior, phi, y, noise)))
        start += w.size
    return moments


# --- the network and its attention -----------------------------------------------------------------------------------


def random_weights(network: AttentionNetwork, *batch: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*batch, *shape, generator=generator, dtype=FLOAT64) for shape in network.weight_shapes]


def some_network(activation: str = "relu", heads: int = 3) -> AttentionNetwork:
    network = AttentionNetwork(IN, OUT, width=6, blocks=2, heads=heads, mlp=5, activation=activation).double()
    return randomise_norms(network)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("heads", [1, 3, 6])
@torch.no_grad()
def test_the_network_is_a_transformer_whose_blocks_add_and_then_normalise(heads, activation):
    network = some_network(activation, heads)
    weights, x = random_weights(network), task(5).x
    expected, _ = transformer(network, [w.numpy() for w in weights], x.numpy())
    assert expected.shape == (5, OUT)
    np.testing.assert_allclose(network(weights, x), expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_axes_of_tasks_and_samples_broadcast_and_absent_points_are_seen_by_no_other():
    network, tasks = some_network(), [task(5, seed=1), task(2, seed=2), task(0)]
    weights, batch = random_weights(network, 3, 4), batch_of(*tasks)
    batch.x[~batch.mask] = 50.0  # what stands in their place does not matter
    found = network(weights, batch.x.unsqueeze(1), batch.mask.unsqueeze(1))
    assert found.shape == (3, 4, 5, OUT)
    assert bool(torch.isfinite(found).all())
    for t, k in np.ndindex(3, 4):
        expected, _ = transformer(network, [w[t, k].numpy() for w in weights], tasks[t].x.numpy())
        np.testing.assert_allclose(found[t, k, : len(tasks[t])], expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_layers_with_one_weight_sample_share_it_among_all_samples():
    network, x = some_network(), task(5).x
    weights = [w if i % 2 else w[:1] for i, w in enumerate(random_weights(network, 4))]
    found = network(weights, x.unsqueeze(0))
    for k in range(4):
        expected = network([w[k if len(w) == 4 else 0] for w in weights], x)
        torch.testing.assert_close(found[k], expected, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_masked_point_is_the_same_as_a_missing_point():
    network, x = some_network(), task(5).x
    weights, mask = random_weights(network), torch.tensor([True, False, True, True, False])
    torch.testing.assert_close(network(weights, x, mask)[mask], network(weights, x[mask]), rtol=1e-12, atol=1e-12)
    everything = network(weights, x, torch.ones(5, dtype=torch.bool))
    torch.testing.assert_close(everything, network(weights, x), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_every_point_of_the_network_sees_every_other():
    network, x = some_network(), task(4).x
    weights, moved = random_weights(network), x.clone()
    moved[2] += 1
    assert bool(((network(weights, moved) - network(weights, x)).abs() > 1e-6).all())


@pytest.mark.parametrize("dtype", [torch.float32, FLOAT64])
def test_attention_is_that_of_torch(dtype):
    tasks, points, width, heads = 3, 6, 8, 4
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, tasks, points, width, generator=generator, dtype=dtype)
    mask = torch.arange(points) < torch.tensor([[6], [4], [1]])
    none = torch.zeros(0, dtype=dtype)
    eye, zeros = torch.eye(width, dtype=dtype), torch.zeros(width, dtype=dtype)
    for absent, visible in ((None, torch.ones_like(mask)), (~mask, mask)):
        expected, _ = functional.multi_head_attention_forward(
            queries.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), width, heads, none,
            torch.zeros(3 * width, dtype=dtype), None, None, False, 0.0, eye, zeros, key_padding_mask=absent,
            use_separate_proj_weight=True, q_proj_weight=eye, k_proj_weight=eye, v_proj_weight=eye,
        )  # fmt: skip
        found = attention(queries, keys, values, heads, None if absent is None else mask)
        tolerance = 1e-12 if dtype == FLOAT64 else 1e-5
        torch.testing.assert_close(found[visible], expected.transpose(0, 1)[visible], rtol=tolerance, atol=tolerance)
        assert bool(torch.isfinite(found).all())


def test_attention_is_a_weighted_mean_of_values_head_by_head():
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 5, 6, generator=generator, dtype=FLOAT64)
    found = attention(queries, keys, values, 2, None)
    np.testing.assert_allclose(found, multi_head(queries.numpy(), keys.numpy(), values.numpy(), 2), rtol=1e-12)
    same_keys = attention(queries, torch.zeros_like(keys), values, 2, None)
    torch.testing.assert_close(same_keys, values.mean(0).expand(5, 6))


# --- inference networks with attention -------------------------------------------------------------------------------


def set_encoder() -> SetEncoder:
    return SetEncoder(3, 5, hidden=(8, 8), heads=2, generator=torch.Generator().manual_seed(0)).double()


def some_inputs(tasks: int, samples: int, points: int) -> torch.Tensor:
    return torch.randn(tasks, samples, points, 3, generator=torch.Generator().manual_seed(0), dtype=FLOAT64)


def set_transformer(encoder: SetEncoder, x):
    """`SetEncoder` in NumPy. Each block normalises, then adds."""
    weights = {name: reference.array(value) for name, value in encoder.state_dict().items()}
    norms = {name: module for name, module in encoder.named_modules() if "norm" in name}

    def linear(name, h, rows=slice(None), suffix=".weight"):
        return h @ weights[name + suffix][rows].T + weights[name + suffix.replace("weight", "bias")][rows]

    h = linear("inputs", x)
    width = h.shape[1]
    for block in range(len(encoder.blocks.layers)):
        name = f"blocks.layers.{block}"
        inner = layer_norm(h, norms[f"{name}.norm1"])
        projected = [
            linear(f"{name}.self_attn", inner, slice(i * width, (i + 1) * width), ".in_proj_weight") for i in range(3)
        ]
        h = h + linear(f"{name}.self_attn.out_proj", multi_head(*projected, encoder.heads))
        inner = linear(f"{name}.linear1", layer_norm(h, norms[f"{name}.norm2"]))
        gelu = inner * np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(inner)
        h = h + linear(f"{name}.linear2", gelu)
    return linear("outputs", layer_norm(h, norms["blocks.norm"]))


@torch.no_grad()
def test_the_set_encoder_is_a_transformer_of_each_set_by_itself():
    encoder, x = set_encoder(), some_inputs(3, 2, 5)
    mask = torch.arange(5) < torch.tensor([[5], [3], [0]])
    found = encoder(x, mask)
    assert bool(torch.isfinite(found).all())
    for t, k in np.ndindex(3, 2):
        n = int(mask[t].sum())
        if n:
            expected = set_transformer(encoder, x[t, k, :n].numpy())
            np.testing.assert_allclose(found[t, k, :n], expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_the_set_encoder_knows_no_positions():
    encoder, x, order = set_encoder(), some_inputs(2, 3, 6), torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(encoder(x[:, :, order]), encoder(x)[:, :, order], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_points_of_a_set_see_each_other_but_not_absent_ones():
    encoder, x = set_encoder(), some_inputs(1, 2, 4)
    mask, moved = torch.tensor([[True, True, False, True]]), x.clone()
    moved[:, :, 2] += 10
    torch.testing.assert_close(encoder(moved, mask)[:, :, mask[0]], encoder(x, mask)[:, :, mask[0]], rtol=0, atol=0)
    seen = torch.ones_like(mask)
    assert bool(((encoder(moved, seen) - encoder(x, seen)).abs() > 1e-6).all())
    torch.testing.assert_close(encoder(x, seen), encoder(x), rtol=1e-12, atol=1e-12)
    assert encoder(x[:, :, :0], mask[:, :0]).shape == (1, 2, 0, 5)


def test_pseudo_observations_of_an_attbnnp_depend_on_the_other_points_and_those_of_a_bnnp_do_not():
    context = batch_of(task(4))
    moved = TaskBatch(context.x.clone(), context.y, context.mask)
    moved.x[0, 3] += 1
    pointwise = bnnp.BNNP(IN, OUT, hidden=(4, 2), inference=bnnp.Pointwise((8, 8)), dtype=FLOAT64)
    for model, depends in ((attentive(), True), (pointwise, False)):
        for layer in range(model.network.num_layers):
            one, other = (
                model.layers[layer](torch.cat([batch.x, batch.y], -1).unsqueeze(1), batch.y, batch.mask)
                for batch in (context, moved)
            )
            changes = (one.inverse_noise - other.inverse_noise)[..., :3].abs()
            assert bool((changes > 1e-9).all()) is depends
            assert bool(changes.any()) is depends


def test_the_global_seed_is_neither_used_nor_moved():
    before = torch.get_rng_state()
    first = bnnp.AttBNNP(1, 1, hidden=(4,), seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        again = bnnp.AttBNNP(1, 1, hidden=(4,), seed=3)
    other = bnnp.AttBNNP(1, 1, hidden=(4,), seed=4)
    assert same(state(first), state(again))
    assert not same(state(first), state(other))


def test_no_two_blocks_or_layers_start_alike():
    weights = [p for name, p in bnnp.AttBNNP(1, 1, (8, 8)).layers.named_parameters() if name.endswith("in_proj_weight")]
    assert len(weights) == 6
    assert not any(torch.equal(a, b) for i, a in enumerate(weights) for b in weights[:i])


def test_an_attbnnp_is_a_bnnp_with_other_inference_networks():
    model = bnnp.AttBNNP(1, 1, (8,), "tanh", "factorised", inference=bnnp.Attentive(hidden=(4,)))
    assert isinstance(model, bnnp.BNNP)
    assert isinstance(model, bnnp.AttBNNP)
    assert not model.inference.pointwise
    assert model.consistent
    config = model.config()
    assert (config["inference"]["name"], config["activation"], config["prior"]) == ("attentive", "tanh", "factorised")
    assert config["inference"]["hidden"] == [4]
    with pytest.raises(ValueError, match="inference: got 'deep', expected pointwise or attentive"):
        bnnp.BNNP(1, 1, inference="deep")


@pytest.mark.parametrize("hidden", [(), (6,), (8, 4)])
def test_widths_that_the_heads_do_not_divide_are_refused(hidden):
    with pytest.raises(ValueError, match=r"inference: got hidden .*, expected equal sizes that 4 heads of attention"):
        bnnp.AttBNNP(1, 1, hidden=(4,), inference=bnnp.Attentive(hidden))
    with pytest.raises(ValueError, match="inference: got hidden "):
        SetEncoder(1, 1, hidden, 4, torch.Generator())


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
@pytest.mark.parametrize("hidden", [(0,), (-4,)])
def test_widths_that_are_not_positive_are_refused(hidden):
    with pytest.raises(ValueError, match="hidden: got "):
        bnnp.AttBNNP(1, 1, hidden=(4,), inference=bnnp.Attentive(hidden))


# --- laws of both models ---------------------------------------------------------------------------------------------


@every_model
def test_order_of_the_context_does_not_matter(build):
    model, order = build(), torch.tensor([3, 0, 5, 1, 4, 2])
    noise = draws(model, 1, 6)
    shuffled = on_points(noise, lambda points: points[..., order])
    assert_same(infer(model, batch_of(task(6).take(order)), shuffled), infer(model, batch_of(task(6)), noise))


@every_model
def test_order_of_the_context_does_not_change_what_a_user_gets_for_a_seed(build):
    model, shuffled = build(), task(6).take(torch.tensor([3, 0, 5, 1, 4, 2]))
    one, other = (
        model.condition(t.x, t.y, num_samples=4, seed=5).predict(task(3, 9).x).samples for t in (task(6), shuffled)
    )
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@every_model
def test_a_padded_batch_is_its_tasks_one_at_a_time(build):
    model, tasks = build(), [task(points, seed=points) for points in (5, 2, 0)]
    context, noise = batch_of(*tasks), draws(model, 3, 5)
    context.x[~context.mask], context.y[~context.mask] = 30.0, -30.0  # what stands in their place does not matter
    batch = infer(model, context, noise)
    for i, own in enumerate(tasks):
        row = slice(i, i + 1)
        alone = on_points(on_tasks(noise, row), lambda points, n=own.x.shape[0]: points[..., :n])
        expected = infer(model, batch_of(own), alone)
        for found, value in zip([*batch.weights, *batch.kl], [*expected.weights, *expected.kl], strict=True):
            torch.testing.assert_close(*torch.broadcast_tensors(found[row], value), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(batch.outputs[row, :, : len(own)], expected.outputs, rtol=1e-9, atol=1e-9)


@every_model
def test_without_points_the_posterior_is_the_prior(build):
    model, nothing = build(), task(0)
    post = model.condition(nothing.x, nothing.y, num_samples=SAMPLES, seed=0)
    assert post.kl == 0
    torch.testing.assert_close(post.log_prob(), model.prior.log_prob(post.weights).detach(), rtol=1e-10, atol=1e-10)
    whitened = [noise.weights for noise in draws(model, 1, 0)]
    for layer, w in enumerate(infer(model, batch_of(nothing), draws(model, 1, 0)).weights):
        expected = model.prior.from_units(layer, model.prior.layer(layer, whitened[:layer]).weights(whitened[layer]))
        torch.testing.assert_close(w, expected, rtol=1e-12, atol=1e-12)


@every_model
def test_log_prob_is_the_density_of_the_samples_by_bayes_rule(build):
    model, seen = build(), task(5)
    post = model.condition(seen.x, seen.y, num_samples=SAMPLES)
    expected = model.log_density([w.unsqueeze(0) for w in post.weights], post.context).detach()[0]
    torch.testing.assert_close(post.log_prob(), expected, rtol=1e-9, atol=1e-9)


@every_model
def test_derivatives_agree_with_finite_differences(build):
    """Derivatives of the training objective on padded tasks, along a random direction in all parameters."""
    model = build()
    batch = SplitBatch(batch_of(task(3), task(1, 1)), batch_of(task(2, 2), task(4, 3)))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    generator = torch.Generator().manual_seed(5)
    direction = [torch.randn(p.shape, generator=generator, dtype=FLOAT64) for p in parameters]

    def objective() -> torch.Tensor:
        return PPAVI(num_samples=2)(model, batch, torch.Generator().manual_seed(0)).total().sum()

    gradients = torch.autograd.grad(objective(), parameters)
    slope = sum((g * v).sum().item() for g, v in zip(gradients, direction, strict=True))

    @torch.no_grad()
    def moved(step: float) -> float:
        for p, v in zip(parameters, direction, strict=True):
            p += step * v
        return objective().item()

    step = 1e-6
    ahead, behind = moved(step), moved(-2 * step)
    assert (ahead - behind) / (2 * step) == pytest.approx(slope, rel=1e-5, abs=1e-5)


@every_model
def test_predictions_at_permuted_inputs_are_permuted_predictions(build):
    post = build().condition(task(5).x, task(5).y, num_samples=4)
    x, order = task(6, seed=9).x, torch.tensor([3, 0, 5, 1, 4, 2])
    np.testing.assert_allclose(post.predict(x[order]).samples, post.predict(x).samples[:, order.numpy()], rtol=1e-9)


def test_one_more_input_changes_all_predictions_of_a_bnam_and_none_of_the_others():
    """App. E.2: the same inputs as before, and one that is far away."""
    x = np.linspace(-5, 5, 21)[:, None]
    farther, y = np.append(x, [[100.0]], axis=0), np.sin(x[::4])
    choices: dict[str, Any] = {"likelihood": bnnp.Gaussian(0.1), "dtype": FLOAT64}
    for model in (
        bnnp.BNNP(1, 1, (8, 8), **choices),
        bnnp.AttBNNP(1, 1, (8, 8), **choices),
        bnnp.BNAM(1, 1, bnnp.Transformer(8), **choices),
    ):
        post = model.condition(x[::4], y, num_samples=6)
        changes = np.abs(post.predict(farther).samples[:, :-1] - post.predict(x).samples)
        if model.consistent:
            assert changes.max() < 1e-12
        else:
            assert changes.min() > 1e-9
            assert changes.mean() > 1e-2
    assert bnnp.BNAM.consistent is False


@every_model
def test_chunks_and_updates_are_refused_with_the_reason(build):
    model, seen = build(), task(6)
    reason = "points of a context attend to each other.*give the whole context to `condition`"
    with pytest.raises(ValueError, match=f"chunk_size: .*{reason}"):
        model.condition(seen.x, seen.y, num_samples=2, chunk_size=3)
    with pytest.raises(ValueError, match=f"update: .*{reason}"):
        model.condition(seen.x, seen.y, num_samples=2).update(seen.x, seen.y)
    tasks = bnnp.tasks.from_arrays([(seen.x, seen.y), (seen.y @ torch.ones(OUT, IN).double(), seen.y)])
    with pytest.raises(ValueError, match=f"chunk_size: .*{reason}"):
        bnnp.fit(model, tasks, steps=1, settings=bnnp.FitSettings(chunk_size=3), progress=False)


@every_model
def test_models_come_back_from_disk_with_the_same_predictions(build, tmp_path):
    model, seen = build(), task(5)
    again = bnnp.load(model.save(tmp_path / "m.bnnp"))
    assert type(again) is type(model)
    assert again.config() == model.config()
    assert (again.inference, again.consistent) == (model.inference, model.consistent)
    assert same(state(again), state(model))
    one, other = (m.condition(seen.x, seen.y, num_samples=3).predict(task(4, 9).x) for m in (model, again))
    np.testing.assert_array_equal(one.samples, other.samples)


@both_kinds
def test_posteriors_come_back_from_disk_with_the_same_predictions(build, tmp_path):
    post = build().condition(task(5).x, task(5).y, num_samples=3)
    again = bnnp.load_posterior(post.save(tmp_path / "post.bnnp"))
    np.testing.assert_array_equal(again.predict(task(4, 9).x).samples, post.predict(task(4, 9).x).samples)


@both_kinds
def test_functions_drawn_are_those_of_the_predictions(build):
    model, x = build(), task(4, seed=9).x
    post = model.condition(task(5).x, task(5).y, num_samples=3)
    drawn = np.stack([function(x) for function in post.functions()])
    np.testing.assert_allclose(drawn, post.predict(x).samples, rtol=1e-9, atol=1e-12)
    assert model.prior.functions(2)[1](x).shape == (4, OUT)


@both_kinds
def test_training_and_evaluation_mode_are_the_same(build):
    """There is no dropout, but torch's transformers take another path where nothing is trained."""
    model = build()
    one, other = (
        model.train(mode).condition(task(5).x, task(5).y, num_samples=3).predict(task(4, 9).x).samples
        for mode in (True, False)
    )
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


# --- training --------------------------------------------------------------------------------------------------------


def small_attentive() -> Any:
    return bnnp.AttBNNP(1, 1, hidden=(4,), seed=0)


def small_machine() -> Any:
    return bnnp.BNAM(1, 1, bnnp.Transformer(4, heads=2), seed=0)


every_small = pytest.mark.parametrize("build", [small_attentive, small_machine])


@every_small
def test_training_improves_the_objective_and_moves_all_parameters(build):
    start, result = state(build()), fit(build(), steps=12, learning_rate=(3e-2, 3e-2), record_every=6)
    first, last = result.history.to_frame()["objective"]
    assert last > first + 5
    assert all(bool(torch.isfinite(value).all()) for value in state(result.model).values())
    trained = {name for name, _ in result.model.named_parameters()}
    assert [name for name in trained if torch.equal(state(result.model)[name], start[name])] == []


@every_small
def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(build, tmp_path):
    whole = fit(build(), evaluation=Stop(), **SHORT)
    stopped = fit(build(), evaluation=Stop(KeyboardInterrupt, 2), checkpoint=tmp_path, **SHORT)
    assert stopped.interrupted
    resumed = fit(build(), evaluation=Stop(), checkpoint=tmp_path, **SHORT)
    assert same(state(resumed.model), state(whole.model))
    assert records(resumed.history) == records(whole.history)


@every_small
def test_a_trained_model_can_be_scored(build):
    scores = bnnp.evaluate(build(), bnnp.tasks.sawtooth(points=(6, 9)), num_samples=5, num_tasks=2)
    assert all(math.isfinite(scores[name]) for name in scores.names())


@pytest.mark.parametrize("model", [bnnp.AttBNNP, bnnp.BNAM])
def test_classes_end_to_end(model):
    x = np.linspace(-1, 1, 12)[:, None]
    tasks = bnnp.tasks.from_arrays([(x, (x > bound).astype(float)) for bound in (-0.5, 0.0, 0.5)], standardise=False)
    sizes: dict[str, Any] = {"hidden": (4,)} if model is bnnp.AttBNNP else {"transformer": bnnp.Transformer(4, heads=2)}
    trained = fit(model(1, 1, likelihood=bnnp.Bernoulli(), **sizes), tasks=tasks, steps=4).model
    predicted = trained.condition(x, x > 0.2, num_samples=20).predict(x)
    assert predicted.mean.shape == (12, 1)
    assert (predicted.mean > 0).all()
    assert (predicted.mean < 1).all()
    assert set(np.unique(predicted.observations())) <= {0.0, 1.0}
    assert np.isfinite(predicted.log_prob(x > 0.2)).all()


# --- the BNAM against the paper's equations --------------------------------------------------------------------------


@every_machine
@pytest.mark.parametrize("points", [1, 6])
def test_kl_of_every_layer_is_that_of_the_equations(build, points):
    model, seen = build(), task(points)
    inferred = infer(model, batch_of(seen), draws(model, 1, points))
    for k in range(SAMPLES):
        moments = machine_moments(model, [w[0, k] for w in inferred.weights], seen)
        found = [kl.expand(1, SAMPLES)[0, k].item() for kl in inferred.kl]
        np.testing.assert_allclose(found, [reference.kl(*after, *before) for _, before, after in moments], rtol=1e-8)


@every_machine
def test_sample_without_noise_has_every_layer_at_its_posterior_mean(build):
    model, seen = build(), task(5)
    noise = [Draws(0 * layer.weights, 0 * layer.points) for layer in draws(model, 1, 5)]
    weights = [w[0, 0] for w in infer(model, batch_of(seen), noise).weights]
    for w, _, (mean, _) in machine_moments(model, weights, seen):
        np.testing.assert_allclose(w, mean, rtol=1e-8, atol=1e-10)


@every_machine
def test_log_prob_of_a_machine_is_that_of_the_equations(build):
    model, seen = build(), task(4)
    post = model.condition(seen.x, seen.y, num_samples=SAMPLES, seed=3)
    for k in range(SAMPLES):
        moments = machine_moments(model, [w[k] for w in post.weights], seen)
        expected = sum(reference.log_density(w, *after) for w, _, after in moments)
        assert post.log_prob()[k].item() == pytest.approx(expected, rel=1e-8)


@torch.no_grad()
def test_log_likelihood_of_a_machine_is_that_of_each_tasks_points_together():
    model, tasks = machine(), [task(4, seed=0), task(2, seed=1)]
    context, targets = batch_of(*tasks), [task(3, seed=2), task(5, seed=3)]
    inferred = infer(model, context, draws(model, 2, 4))
    at_targets = model.log_likelihood(inferred.weights, batch_of(*targets))
    at_context = model.context_log_likelihood(inferred, context)
    for t, k in np.ndindex(2, SAMPLES):
        weights = [w[t, k].numpy() for w in inferred.weights]
        for found, of in ((at_targets, targets[t]), (at_context, tasks[t])):
            f, _ = transformer(model.network, weights, of.x.numpy())
            expected = model.likelihood.log_prob(torch.from_numpy(f), of.y)
            np.testing.assert_allclose(found[t, k, : len(of)], expected, rtol=1e-10)
            assert not found[t, k, len(of) :].any()


@pytest.mark.parametrize("num_samples", [1, 7])
def test_predictions_of_a_machine_are_those_of_the_equations(num_samples):
    model, x = machine(), task(4, seed=9).x
    post = model.condition(task(5).x, task(5).y, num_samples=num_samples)
    found = post.predict(x).samples
    for k in range(num_samples):
        expected, _ = transformer(model.network, [w[k].numpy() for w in post.weights], x.numpy())
        np.testing.assert_allclose(found[k], expected, rtol=1e-10)


def test_parts_of_the_samples_see_all_inputs(monkeypatch):
    """Memory is bounded by fewer samples at once, never by fewer points."""
    model, x = machine(), task(6, seed=9).x
    whole = model.condition(task(5).x, task(5).y, num_samples=5).predict(x).samples
    monkeypatch.setattr("bnnp.models.draws.SAMPLES_AT_ONCE", 1)
    monkeypatch.setattr("bnnp.prediction.weights.NUMBERS_AT_ONCE", 1)
    parts = model.condition(task(5).x, task(5).y, num_samples=5).predict(x).samples
    np.testing.assert_allclose(parts, whole, rtol=1e-9)


def test_conditioning_a_machine_on_many_points_keeps_memory_bounded(monkeypatch):
    monkeypatch.setattr("bnnp.models.draws.SAMPLES_AT_ONCE", 2**18)
    model, seen = bnnp.BNAM(1, 1, bnnp.Transformer(4)), torch.linspace(-1, 1, 200)[:, None]
    peak = peak_bytes(lambda: model.condition(seen, seen, num_samples=16))
    assert peak < 8 * 4 * 2**18  # a few arrays of the largest size, in float32


def test_a_machine_has_the_layers_that_it_says():
    """App. E.1: an input layer; queries, keys, values, outputs and a perceptron of two layers per block; a head."""
    model = bnnp.BNAM(3, 2, bnnp.Transformer(width=8, blocks=2, heads=4, mlp=5))
    block = [(9, 8)] * 4 + [(9, 5), (6, 8)]
    assert model.network.weight_shapes == [(4, 8), *block, *block, (9, 2)]
    assert model.network.num_layers == len(model.layers) == 14
    assert model.network.num_weights == sum(d * out for d, out in model.network.weight_shapes)
    norms = [name for name, _ in model.named_parameters() if "norm" in name]
    assert len(norms) == 8  # a gain and a shift for each of two layer norms per block; learned, so in no prior
    assert len({id(p) for p in model.parameters()}) == len(list(model.parameters()))
    assert bnnp.BNAM(1, 1, bnnp.Transformer(width=8)).config()["transformer"]["mlp"] == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"transformer": bnnp.Transformer(width=6)},
            "width and heads: got 6 and 4, expected a width that the heads divide",
        ),
        ({"activation": "sine"}, "activation: got 'sine'"),
        ({"in_size": 0}, "in_size: got 0"),
        ({"out_size": 0}, "out_size: got 0"),
        ({"prior": "flat"}, "prior"),
        ({"last_layer": "likelihood", "likelihood": bnnp.Bernoulli()}, "last_layer"),
    ],
)
def test_impossible_machines_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        bnnp.BNAM(**{"in_size": 1, "out_size": 1, **arguments})


@pytest.mark.parametrize("size", [{"width": 0}, {"heads": 0}, {"blocks": 0}, {"mlp": -1}], ids=str)
def test_machines_without_units_are_refused(size):
    with pytest.raises(ValueError, match=f"{next(iter(size))}: got"):
        bnnp.Transformer(**size)


def test_contexts_of_the_wrong_width_are_refused():
    with pytest.raises(ValueError, match="x: got 2 columns, expected 3"):
        machine().condition(np.zeros((4, 2)), np.zeros((4, 2)))
    with pytest.raises(ValueError, match="x: got 2 columns, expected 3"):
        machine().condition(task(3).x, task(3).y, num_samples=2).predict(np.zeros((4, 2)))
