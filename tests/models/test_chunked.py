"""Training on contexts in chunks: the samples and terms of the whole context, with derivatives through one chunk."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import bnnp
from bnnp.models import InferredWeights
from bnnp.models.chunked import InChunks
from bnnp.numerics.gaussian import UpdateDraws
from bnnp.objectives import AVI, NPML, NPVI, PPAVI, TELLAVI
from bnnp.tasks.task import SplitBatch, TaskBatch
from bnnp.training.step import differentiate
from support import reference
from support.memory import SHORT, peak_bytes
from support.models import FLOAT64, IN, MEMBERS, OUT, Draws, Member, batch_of, draws, infer, with_random_prior
from support.training import Stop, fit, model, records, same, state

POINTS = 7
CUTS = ([0, 1, 2], [3, 4, 5], [6])
"""Chunks of a context of 7 points, as a chunk size of 3 makes them."""
SAMPLES = 3
OBJECTIVES = [PPAVI, AVI, NPML, NPVI, TELLAVI]
every_model = pytest.mark.parametrize("member", MEMBERS, ids=str)
FIRST = [(MEMBERS[0], chosen) for chosen in (0, 1, 2)]
some_models = pytest.mark.parametrize(
    "member", [m for m in MEMBERS if m.prior in ("unitwise", "networkwise") and m.last_layer == "pseudo"], ids=str
)
every_prior = pytest.mark.parametrize("prior", list(bnnp.priors.PRIORS))


def context(member: Member = MEMBERS[0]) -> TaskBatch:
    """Three tasks of unequal size, one of them without points: some chunks have no point of some tasks."""
    return batch_of(member.task(POINTS, 1), member.task(2, 2), member.task(0))


def linear(prior: str = "unitwise", **options) -> bnnp.BNNP:
    """A model without hidden layers, whose inference network predicts observations and noise."""
    choices = {
        "last_layer": "pseudo",
        "likelihood": bnnp.Gaussian([0.2, 0.4]),
        "inference": bnnp.Pointwise(hidden=(5,)),
        **options,
    }
    return with_random_prior(bnnp.BNNP(IN, OUT, hidden=(), prior=prior, dtype=FLOAT64, seed=0, **choices))


def parts_of(batch: TaskBatch) -> list[TaskBatch]:
    return [TaskBatch(batch.x[:, rows], batch.y[:, rows], batch.mask[:, rows]) for rows in CUTS]


def infer_with(monkeypatch, of: bnnp.BNNP, batch: TaskBatch, chosen: int, noise: list[Draws]) -> InferredWeights:
    """Inference in chunks with the draws that inference from the whole context has, each point with its own.

    Every layer asks for draws for the other chunks, one after the other, and then for the chosen one.
    """
    parts, cuts = parts_of(batch), [*CUTS[:chosen], *CUTS[chosen + 1 :], CUTS[chosen]]

    def records() -> Iterator[UpdateDraws]:
        for layer in noise:
            for rows in cuts:
                points = layer.points[..., rows]
                one_unit = of.prior.couples_outputs
                yield UpdateDraws(layer.weights, points.flatten(-2).unsqueeze(-2) if one_unit else points)

    drawn = records()
    with monkeypatch.context() as patch:
        patch.setattr(of, "random_draws", lambda *_: next(drawn))
        others = parts[:chosen] + parts[chosen + 1 :]
        inferred = InChunks(of, 3)._infer(parts[chosen], others, SAMPLES, torch.Generator())
    assert next(drawn, None) is None
    return inferred


def without_noise(of: bnnp.BNNP, tasks: int) -> list[Draws]:
    return [Draws(0 * layer.weights, 0 * layer.points) for layer in draws(of, tasks, POINTS, SAMPLES)]


def from_whole(of: bnnp.BNNP, batch: TaskBatch, noise: list[Draws]) -> InferredWeights:
    """`model.infer`, with derivatives."""
    one_unit = of.prior.couples_outputs
    records = [UpdateDraws(n.weights, n.points.flatten(-2).unsqueeze(-2) if one_unit else n.points) for n in noise]
    return of.infer(batch, SAMPLES, records)


def gradients(value: torch.Tensor, parameters: list[torch.nn.Parameter]) -> list[np.ndarray]:
    found = torch.autograd.grad(value, parameters)
    return [gradient.numpy() for gradient in found]


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "chosen"), [(m, 2) for m in MEMBERS if m.sees_hidden or m.likelihood != "gaussian"] + FIRST, ids=str
)
def test_samples_and_kl_are_those_of_the_whole_context(monkeypatch, member, chosen):
    """To the digits of float64, given the same draws; in a padded batch."""
    of, batch = member.build(), context(member)
    noise = draws(of, 3, POINTS, SAMPLES)
    whole = infer(of, batch, noise)
    chunks = infer_with(monkeypatch, of, batch, chosen, noise)
    for a, b in zip([*chunks.weights, *chunks.kl], [*whole.weights, *whole.kl], strict=True):
        torch.testing.assert_close(*torch.broadcast_tensors(a, b), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(chunks.outputs, whole.outputs[:, :, CUTS[chosen]], rtol=1e-9, atol=1e-9)


def test_layers_too_wide_for_the_compiled_loops_are_the_same(monkeypatch):
    choices: dict[str, Any] = {
        "hidden": (130,),
        "inference": bnnp.Pointwise(hidden=(5,)),
        "likelihood": bnnp.Gaussian(0.3),
    }
    of = with_random_prior(bnnp.BNNP(IN, OUT, prior="factorised", dtype=FLOAT64, **choices))
    noise = draws(of, 3, POINTS, SAMPLES)
    whole, chunks = infer(of, context(), noise), infer_with(monkeypatch, of, context(), 1, noise)
    for a, b in zip([*chunks.weights, *chunks.kl], [*whole.weights, *whole.kl], strict=True):
        torch.testing.assert_close(*torch.broadcast_tensors(a, b), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("prior", ["unitwise", "networkwise"])
@pytest.mark.parametrize("chunk_size", [POINTS, 100])
def test_a_context_no_larger_than_a_chunk_is_the_models_own_inference(prior, chunk_size):
    of, batch = Member(prior, "gaussian", "predicted", sees_hidden=False).build(), context()
    one, other = (
        learner.infer(batch, SAMPLES, torch.Generator().manual_seed(3)) for learner in (of, InChunks(of, chunk_size))
    )
    assert all(torch.equal(a, b) for a, b in zip([*one.weights, *one.kl], [*other.weights, *other.kl], strict=True))
    assert torch.equal(one.outputs, other.outputs)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.__name__)
def test_objectives_of_contexts_no_larger_than_a_chunk_are_the_models_own(objective):
    """Of context and target together, too, which is what some infer from."""
    of, batch = MEMBERS[0].build(), SplitBatch(context(), context())
    one, other = (
        objective(SAMPLES)(learner, batch, torch.Generator().manual_seed(3)).total().detach()
        for learner in (of, InChunks(of, 2 * POINTS))
    )
    assert torch.equal(one, other)


@every_prior
def test_draws_of_the_chunks_make_samples_of_the_posterior(prior):
    """Means and covariances of 40,000 samples against the exact ones, with draws from a generator.

    Of a prior: 8 means and 36 variances and covariances, 176 comparisons in all; the largest of so many standard
    normals exceeds 5 with probability 1e-4. Draws shared between chunks would give other covariances.
    """
    of, count = linear(prior, last_layer="likelihood"), 40_000
    seen = MEMBERS[0].task(POINTS, 1)
    with torch.no_grad():
        inferred = InChunks(of, 3).infer(batch_of(seen), count, torch.Generator().manual_seed(0))
    samples = inferred.weights[0][0].mT.flatten(-2).numpy()
    phi = reference.features(0, seen.x.numpy(), "identity")
    noise = np.tile([0.2, 0.4], (POINTS, 1))
    mean, covariance = reference.layer_posterior(*reference.prior_moments(of.prior), phi, seen.y.numpy(), noise)
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(samples.mean(0) - mean) < 5 * spread / np.sqrt(count)).all()
    error = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / count)
    assert (np.abs(np.cov(samples.T) - covariance) < 5 * error).all()
    one_chunk = reference.layer_posterior(*reference.prior_moments(of.prior), phi[:3], seen.y.numpy()[:3], noise[:3])
    assert (np.abs(samples.mean(0) - one_chunk[0]) > 5 * spread / np.sqrt(count)).any()


def test_the_chosen_chunk_is_any_with_the_same_probability(monkeypatch):
    """Of 900 choices each point is in the chosen one of 3 chunks 300 times, with a standard deviation of 14: any of 7
    points strays by more than 71 with probability 4e-6. One of the 42 possible chunks is missing with 2e-6."""
    seen: list[tuple[TaskBatch, list[TaskBatch]]] = []
    monkeypatch.setattr(InChunks, "_infer", lambda _, chosen, others, *rest: seen.append((chosen, others)))
    x = torch.arange(POINTS, dtype=FLOAT64)[None, :, None]
    batch, generator = TaskBatch(x, x, torch.ones(1, POINTS, dtype=torch.bool)), torch.Generator().manual_seed(0)
    of = linear()
    for _ in range(900):
        InChunks(of, 3).infer(batch, 1, generator)
    counts, groups = np.zeros(POINTS), set()
    for chosen, others in seen:
        parts = [part.x.flatten().int().tolist() for part in (chosen, *others)]
        assert sorted(point for part in parts for point in part) == list(range(POINTS))
        assert sorted(len(part) for part in parts) == [1, 3, 3]
        counts[parts[0]] += 1
        groups.add(frozenset(parts[0]))
    assert (np.abs(counts - 300) < 71).all()
    assert len(groups) == 35 + 7  # of three points, and of the one that is left over


@some_models
def test_likelihoods_are_those_of_all_points(member):
    """Of the context and of any other points, with all derivatives by the weights and by the likelihood's own noise."""
    of, batch = member.build(), context(member)
    chunked = InChunks(of, 3)
    inferred = chunked.infer(batch, SAMPLES, torch.Generator().manual_seed(0))
    leaves = replace(inferred, weights=[w.detach().requires_grad_() for w in inferred.weights])
    wanted = [*leaves.weights, *of.likelihood.parameters()]
    whole, at_context = of.log_likelihood(leaves.weights, batch), chunked.context_log_likelihood(leaves, batch)
    assert at_context.shape == (3, SAMPLES, POINTS)
    expected = torch.autograd.grad(whole.square().sum(), wanted)
    for found in (at_context, chunked.log_likelihood(leaves.weights, batch)):
        torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-12)
        for a, b in zip(torch.autograd.grad(found.square().sum(), wanted), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    assert not at_context[2].any()  # the task without points


def test_float32_gives_the_same_to_its_digits(monkeypatch):
    double, single = MEMBERS[0].build(), MEMBERS[0].build(torch.float32)
    noise, batch = draws(double, 3, POINTS, SAMPLES), context()
    expected = infer(double, batch, noise)
    noise = [Draws(layer.weights.float(), layer.points.float()) for layer in noise]
    batch = TaskBatch(batch.x.float(), batch.y.float(), batch.mask)
    found = infer_with(monkeypatch, single, batch, 1, noise)
    for a, b in zip([*found.weights, *found.kl], [*expected.weights, *expected.kl], strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(*torch.broadcast_tensors(a.double(), b), rtol=1e-3, atol=1e-3)


# --- derivatives -----------------------------------------------------------------------------------------------------


@every_prior
@pytest.mark.parametrize(("hidden", "last_layer"), [((), "pseudo"), ((), "predicted"), ((4,), "predicted")])
def test_the_first_layers_kl_has_derivatives_that_add_up_over_the_chunks(monkeypatch, prior, hidden, last_layer):
    """By the inference network: the KL is a function of a sum over chunks, of which one has derivatives. On average
    over the choice, the gradient is therefore that of the whole context over the number of chunks."""
    choices: dict[str, Any] = {"hidden": hidden, "last_layer": last_layer, "inference": bnnp.Pointwise(hidden=(5,))}
    of = with_random_prior(bnnp.BNNP(IN, OUT, prior=prior, dtype=FLOAT64, **choices))
    batch, noise = context(), without_noise(of, 3)
    parameters = list(of.layers[0].parameters())
    whole = gradients(from_whole(of, batch, noise).kl[0].sum(), parameters)
    by_choice = [
        gradients(infer_with(monkeypatch, of, batch, chosen, noise).kl[0].sum(), parameters) for chosen in range(3)
    ]
    for i, expected in enumerate(whole):
        found = np.mean([one[i] for one in by_choice], axis=0)
        np.testing.assert_allclose(found, expected / 3, rtol=1e-8, atol=1e-10)
        assert np.abs(expected).max() > 1e-3


@pytest.mark.parametrize("last_layer", ["pseudo", "predicted"])
def test_samples_of_the_first_layer_have_derivatives_that_add_up_over_the_chunks(monkeypatch, last_layer):
    of, batch = linear(last_layer=last_layer), context()
    noise = draws(of, 3, POINTS, SAMPLES)
    parameters = list(of.layers[0].parameters())

    def value(inferred: InferredWeights) -> torch.Tensor:
        return inferred.weights[0].square().sum()

    whole = gradients(value(from_whole(of, batch, noise)), parameters)
    by_choice = [gradients(value(infer_with(monkeypatch, of, batch, c, noise)), parameters) for c in range(3)]
    for i, expected in enumerate(whole):
        np.testing.assert_allclose(sum(one[i] for one in by_choice), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "parameter",
    [
        "log_scale",
        "lower",
        "mean",
    ],
)
@pytest.mark.parametrize("of_samples", [False, True], ids=["kl", "samples"])
def test_derivatives_by_the_prior_are_those_of_the_whole_context(monkeypatch, of_samples, parameter):
    """Whichever chunk is chosen: what the other chunks have seen does not depend on the prior."""
    of, batch = linear(last_layer="likelihood"), context()
    noise = draws(of, 3, POINTS, SAMPLES)
    learned = [of.get_parameter(f"prior.gaussians.0.{parameter}.value")]

    def value(inferred: InferredWeights) -> torch.Tensor:
        return (inferred.weights[0].square() if of_samples else inferred.kl[0]).sum()

    (expected,) = gradients(value(from_whole(of, batch, noise)), learned)
    for chosen in range(3):
        (found,) = gradients(value(infer_with(monkeypatch, of, batch, chosen, noise)), learned)
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@some_models
def test_derivatives_go_through_the_chosen_chunk_alone(member):
    """In all layers: neither inputs nor outputs of the others have any."""
    of, parts = member.build(), parts_of(context(member))
    for part in parts:
        part.x.requires_grad_()
    inferred = InChunks(of, 3)._infer(parts[1], [parts[0], parts[2]], SAMPLES, torch.Generator().manual_seed(0))
    value = inferred.total_kl().sum() + torch.stack([w.square().sum() for w in inferred.weights]).sum()
    first, chosen, last = torch.autograd.grad(value, [part.x for part in parts], allow_unused=True)
    assert (first, last) == (None, None)
    assert bool(torch.isfinite(chosen).all())
    assert bool(chosen[0].any())
    assert not chosen[2].any()  # the task without points


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.__name__)
def test_every_objective_has_a_gradient_for_padded_contexts_in_chunks(objective):
    of = replace(MEMBERS[0], sees_hidden=True).build()
    parameters = [parameter for parameter in of.parameters() if parameter.requires_grad]
    batch = SplitBatch(context(), batch_of(*(MEMBERS[0].task(n, 5) for n in (2, 4, 1))))
    terms = differentiate(InChunks(of, 2), objective(SAMPLES), batch, parameters, 0)
    assert bool(torch.isfinite(terms.total()).all())
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in parameters if parameter.grad is not None)
    assert any(bool(parameter.grad.any()) for parameter in of.layers.parameters() if parameter.grad is not None)


@pytest.mark.parametrize(
    ("objective", "few", "many"),
    [
        (AVI, 400, 4000),
    ],
)
def test_memory_depends_on_the_chunk_and_not_on_the_context(objective, few, many):
    """In float64: an update that float32 does not bear, as with many points, takes twice the memory."""
    of = bnnp.BNNP(
        1, 1, hidden=(24,), inference=bnnp.Pointwise(hidden=(12,)), likelihood=bnnp.Gaussian(0.1), dtype=FLOAT64
    )
    parameters = [parameter for parameter in of.parameters() if parameter.requires_grad]

    def peak(learner: bnnp.BNNP | InChunks, points: int) -> int:
        x = torch.linspace(-2, 2, points, dtype=FLOAT64)[None, :, None]
        batch = TaskBatch(x, torch.sin(3 * x), torch.ones(1, points, dtype=torch.bool))
        target = TaskBatch(x[:, :5], x[:, :5], batch.mask[:, :5])
        return peak_bytes(lambda: differentiate(learner, objective(4), SplitBatch(batch, target), parameters, 0))

    whole, chunks = ([peak(learner, points) for points in (few, many)] for learner in (of, InChunks(of, few // 8)))
    assert whole[1] > 3 * whole[0]
    assert chunks[0] < whole[0]
    assert chunks[1] - chunks[0] < 64 * (many - few)  # bytes: the points themselves, in a few copies


# --- fit -------------------------------------------------------------------------------------------------------------

FIVE = bnnp.tasks.ContextCount(5, 5)
IN_CHUNKS: dict[str, Any] = {"context_share": FIVE, "chunk_size": 2}


def test_training_in_chunks_improves_the_objective():
    result = fit(steps=16, learning_rate=(1e-2, 1e-2), record_every=8, **IN_CHUNKS)
    first, last = result.history.to_frame()["objective"]
    assert last > first + 5
    assert all(bool(torch.isfinite(value).all()) for value in state(result.model).values())


def test_training_depends_on_the_chunks_of_contexts_that_are_cut_alone():
    whole, in_one, in_three = (state(fit(steps=3, context_share=FIVE, chunk_size=size).model) for size in (None, 5, 2))
    assert same(in_one, whole)
    assert not same(in_three, whole)


def test_a_stopped_run_in_chunks_goes_on_as_if_it_had_never_stopped(tmp_path):
    whole = fit(evaluation=Stop(), **IN_CHUNKS, **SHORT)
    stopped = fit(evaluation=Stop(KeyboardInterrupt, 2), checkpoint=tmp_path, **IN_CHUNKS, **SHORT)
    assert stopped.interrupted
    resumed = fit(evaluation=Stop(), checkpoint=tmp_path, **IN_CHUNKS, **SHORT)
    assert same(state(resumed.model), state(whole.model))
    assert records(resumed.history) == records(whole.history)


@pytest.mark.parametrize(("was", "now"), [(2, 3), (2, None), (None, 2)])
def test_a_checkpoint_of_another_chunk_size_is_refused(was, now, tmp_path):
    fit(steps=2, checkpoint=tmp_path, chunk_size=was)
    with pytest.raises(ValueError, match=f"is of a run with chunk_size={was}, but got chunk_size={now}"):
        fit(steps=2, checkpoint=tmp_path, chunk_size=now)


@pytest.mark.parametrize("chunk_size", [0, -3])
def test_chunks_without_points_are_refused(chunk_size):
    with pytest.raises(ValueError, match=f"chunk_size: got {chunk_size}, expected a positive number of points"):
        fit(chunk_size=chunk_size)
    with pytest.raises(ValueError, match=f"chunk_size: got {chunk_size}, expected a positive number of points"):
        InChunks(linear(), chunk_size)


@pytest.mark.parametrize("chunk_size", [2.5, True, "4"])
def test_chunk_sizes_that_are_no_whole_number_are_refused_as_by_condition(chunk_size):
    with pytest.raises(ValueError, match=r"chunk_size: got .*, expected a positive number of points"):
        fit(chunk_size=chunk_size, context_share=FIVE)


@pytest.mark.parametrize(("start", "chunk_size"), [(model, 0), (lambda: bnnp.AttBNNP(1, 1, hidden=(4,)), 2)])
def test_a_run_that_is_refused_leaves_the_model_as_it_was(start, chunk_size):
    untrained = start()
    with pytest.raises(ValueError, match="chunk_size: "):
        fit(untrained, chunk_size=chunk_size)
    assert same(state(untrained), state(start()))
