"""The last layer in closed form, against slow NumPy with explicit inverses, and by second ways to the same numbers."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from bnnp import BNAM, BNNP, AttBNNP, Attentive, Gaussian, Transformer
from bnnp.models.chunked import InChunks
from bnnp.numerics.densities import expected_log_likelihood, log_density_of_groups, log_density_of_sums, sums_of_targets
from bnnp.numerics.gaussian import Observations, UnitPrior, natural_parameters
from bnnp.numerics.last_layer import Groups, InFunctionSpace, InWeightSpace, LastLayer, condition_last_layer, kl_between
from bnnp.numerics.solve import FactorisationError, TooLargeForFloat32
from bnnp.numerics.symmetric import quadratic_of_one_plus, solve_one_plus, sums_of_squares, within_groups
from bnnp.objectives import AVI, NPML, NPVI, PPAVI, TELLAVI
from bnnp.priors import PRIORS
from bnnp.tasks.task import Split, SplitBatch, Task, TaskBatch
from support import reference
from support.last_layer import FLOAT64, OUT, SAMPLES, TASKS, D, generator, model_of, normal, task

every_prior = pytest.mark.parametrize("prior", list(PRIORS))


# --- the formulas, on arrays -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """kind: a diagonal, a full matrix per unit, or one unit of both outputs.

    points: of the context, of which the last is absent in the second task;  noise: one number, per output or per point.
    """

    kind: str
    points: int
    noise: str = "point"

    @property
    def outputs(self) -> int:
        """Of a unit."""
        return OUT if self.kind == "coupled" else 1

    @property
    def units(self) -> int:
        return OUT // self.outputs

    def prior(self) -> UnitPrior:
        size = D * self.outputs
        mean = 0.5 * normal(1, SAMPLES, self.units, size, seed=1)
        scale = 0.5 + normal(self.units, size, seed=2).square()
        if self.kind == "diagonal":
            return UnitPrior(mean, scale)
        return UnitPrior(mean, torch.diag_embed(scale) + 0.3 * normal(self.units, size, size, seed=3).tril(-1))

    def data(self, points: int, seed: int) -> tuple[torch.Tensor, Observations]:
        """Features and observations; `coupled` has rows of the first output, then of the second."""
        phi, y = normal(TASKS, SAMPLES, points, D, seed=seed), normal(TASKS, 1, OUT, points, seed=seed + 1)
        inverse_noise = {
            "number": torch.full((TASKS, 1, OUT, points), 2.5, dtype=FLOAT64),
            "output": torch.tensor([2.5, 0.8], dtype=FLOAT64)[:, None].expand(TASKS, 1, OUT, points),
            "point": 0.5 + normal(TASKS, 1, OUT, points, seed=seed + 2).square(),
        }[self.noise].clone()
        inverse_noise[1, ..., -1:] = 0
        if self.outputs == 1:
            return phi, Observations(y, inverse_noise)
        blocks = torch.einsum("ij,tsnd->tsinjd", torch.eye(OUT, dtype=FLOAT64), phi)
        return blocks.reshape(TASKS, SAMPLES, OUT * points, OUT * D), Observations(
            y.flatten(-2).unsqueeze(-2), inverse_noise.flatten(-2).unsqueeze(-2)
        )

    def layer(self, **choices) -> LastLayer:
        return condition_last_layer(self.prior(), *self.data(self.points, seed=4), **choices)


CASES = [Case(kind, n) for kind in ("diagonal", "full", "coupled") for n in (0, 2, 9)]
CASES += [Case("full", 4, "number"), Case("coupled", 4, "output")]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
both_forms = pytest.mark.parametrize("through_weights", [False, True])


def present(points: tuple[torch.Tensor, Observations], t: int, k: int, u: int):
    """Features, outputs and noise of the points that are there, as arrays."""
    phi, seen = points
    inverse_noise = seen.inverse_noise[t, 0, u].numpy()
    here = inverse_noise > 0
    return phi[t, k].numpy()[here], seen.y[t, 0, u].numpy()[here], 1 / inverse_noise[here]


def moments(case: Case, t: int, k: int, u: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a unit's weights, by `reference.posterior`."""
    mean, covariance = prior_moments(case, k, u)
    return reference.posterior(mean, covariance, *present(case.data(case.points, seed=4), t, k, u))


def prior_moments(case: Case, k: int, u: int) -> tuple[np.ndarray, np.ndarray]:
    prior = case.prior()
    factor = prior.factor[u].numpy()
    factor = np.diag(factor) if prior.is_diagonal else factor
    return prior.mean[0, k, u].numpy(), factor @ factor.T


def places(case: Case):
    return np.ndindex(TASKS, SAMPLES, case.units)


@every_case
@both_forms
def test_posterior_kl_and_evidence_are_those_of_the_textbook(case, through_weights):
    layer = case.layer(through_weights=through_weights)
    assert isinstance(layer.form, InWeightSpace if through_weights or case.points > D else InFunctionSpace)
    for t, k, u in places(case):
        before, after = prior_moments(case, k, u), moments(case, t, k, u)
        phi, y, noise = present(case.data(case.points, seed=4), t, k, u)
        np.testing.assert_allclose(layer.mean[t, k, u], after[0], rtol=1e-10, atol=1e-10)
        assert layer.kl[t, k, u].item() == pytest.approx(reference.kl(*after, *before), rel=1e-10, abs=1e-10)
        constant = -np.log(noise).sum() - 0.5 * len(y) * reference.LOG_2PI
        evidence = reference.log_evidence(*before, phi, y, noise)
        assert layer.log_evidence[t, k, u].item() + constant == pytest.approx(evidence, rel=1e-10, abs=1e-10)
        new, seen = case.data(3, seed=20)
        found = layer.covariances(new, seen.inverse_noise, Groups(new.shape[-2]))[t, k, u, 0]
        expected = new[t, k].numpy() @ after[1] @ new[t, k].numpy().T
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
        variance = layer.variances(new, seen.inverse_noise)[t, k, u]
        np.testing.assert_allclose(variance, np.diag(expected), rtol=1e-10, atol=1e-10)
        of_context, given = case.data(case.points, seed=4)
        variance = layer.variances_of_context(of_context, given.inverse_noise)[t, k, u]
        expected = of_context[t, k].numpy() @ after[1] @ of_context[t, k].numpy().T
        np.testing.assert_allclose(variance, np.diag(expected), rtol=1e-10, atol=1e-10)


@every_case
@both_forms
@pytest.mark.parametrize("points", [0, 1, 7])
def test_expected_log_likelihood_is_that_of_the_textbook(case, through_weights, points):
    layer = case.layer(through_weights=through_weights)
    phi, seen = case.data(points, seed=10)
    found = expected_log_likelihood(layer, phi, seen)
    for t, k in np.ndindex(TASKS, SAMPLES):
        total = 0.0
        for u in range(case.units):
            mean, covariance = moments(case, t, k, u)
            for f, y, noise in zip(*present((phi, seen), t, k, u), strict=True):
                total -= 0.5 * ((y - f @ mean) ** 2 + f @ covariance @ f) / noise**2 + math.log(noise)
                total -= 0.5 * reference.LOG_2PI
        assert found[t, k].item() == pytest.approx(total, rel=1e-10, abs=1e-10)


@every_case
@pytest.mark.parametrize("group_size", [1, 2, 3, 7])
@pytest.mark.parametrize("points", [1, 7])
def test_density_of_groups_is_that_of_multivariate_normals(case, group_size, points):
    """Groups of 3 of 7 points leave a smaller one; 7 points of 2 outputs are more rows than there are weights."""
    layer = case.layer(through_weights=group_size > D)
    phi, seen = case.data(points, seed=10)
    found = log_density_of_groups(layer, phi, seen, group_size, case.outputs)
    assert found.shape == (TASKS, SAMPLES, -(-points // group_size))
    for t, k, g in np.ndindex(*found.shape):
        total = 0.0
        for u in range(case.units):
            rows = [
                output * points + point
                for output in range(case.outputs)
                for point in range(g * group_size, min(points, (g + 1) * group_size))
            ]
            f, y, noise = present((phi[:, :, rows], seen.of_points(torch.tensor(rows))), t, k, u)
            if len(y):
                mean, covariance = moments(case, t, k, u)
                total += reference.log_density(y, f @ mean, f @ covariance @ f.T + np.diag(noise**2))
        assert found[t, k, g].item() == pytest.approx(total, rel=1e-10, abs=1e-10)


@every_case
def test_density_of_all_targets_is_that_of_their_sums_in_parts_and_a_ratio_of_evidences(case):
    """Second and third routes: sums over parts of the targets, and the evidence of context and targets together."""
    layer = case.layer(through_weights=True)
    phi, seen = case.data(6, seed=10)
    points = torch.arange(6 * case.outputs).view(case.outputs, 6)
    parts = [points[:, some].flatten() for some in (slice(0, 1), slice(1, 5), slice(5, 6))]
    sums = [sums_of_targets(layer, phi[:, :, rows], seen.of_points(rows)) for rows in parts]
    in_parts = log_density_of_sums(layer, sums[0] + sums[1] + sums[2])
    torch.testing.assert_close(
        in_parts, log_density_of_groups(layer, phi, seen, 6, case.outputs)[..., 0], rtol=1e-10, atol=1e-10
    )
    given, context = case.data(case.points, seed=4)
    joined = Observations(*(torch.cat([getattr(context, n), getattr(seen, n)], -1) for n in ("y", "inverse_noise")))
    both = condition_last_layer(case.prior(), torch.cat([given, phi], 2), joined)
    noise = torch.where(seen.inverse_noise > 0, seen.inverse_noise, 1).log()
    constant = (noise - 0.5 * reference.LOG_2PI * (seen.inverse_noise > 0).double()).sum((-2, -1))
    ratio = (both.log_evidence - layer.log_evidence).sum(-1) + constant
    torch.testing.assert_close(in_parts, ratio, rtol=1e-9, atol=1e-9)


@every_case
def test_kl_between_two_posteriors_is_that_of_two_normals(case):
    first, second = (
        case.layer(through_weights=True),
        condition_last_layer(case.prior(), *case.data(3, seed=30), through_weights=True),
    )
    found = kl_between(first, second)
    for t, k in np.ndindex(TASKS, SAMPLES):
        total = 0.0
        for u in range(case.units):
            other = reference.posterior(*prior_moments(case, k, u), *present(case.data(3, seed=30), t, k, u))
            total += reference.kl(*moments(case, t, k, u), *other)
        assert found[t, k].item() == pytest.approx(total, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("kind", ["diagonal", "full", "coupled"])
def test_what_other_points_add_is_as_if_they_were_there(kind):
    case = Case(kind, 6)
    phi, seen = case.data(6, seed=4)
    rows = torch.arange(6 * case.outputs).view(case.outputs, 6)
    here, others = rows[:, :2].flatten(), rows[:, 2:].flatten()
    draws = torch.zeros(TASKS, SAMPLES, case.units, len(others), dtype=FLOAT64)
    rest = natural_parameters(case.prior().mean, phi[:, :, others], seen.of_points(others), draws)
    found = condition_last_layer(case.prior(), phi[:, :, here], seen.of_points(here), rest=rest)
    expected = case.layer(through_weights=True)
    for name in ("mean", "kl", "log_evidence"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("through_weights", [False, True])
@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_derivatives_agree_with_finite_differences(through_weights, group_size):
    phi, seen = Case("full", 3).data(3, seed=4)
    target, observed = Case("full", 3).data(4, seed=10)
    prior = Case("full", 3).prior()
    leaves = [prior.mean, prior.factor, phi, seen.y, seen.inverse_noise, target, observed.inverse_noise]
    leaves = [leaf[:1] if leaf.shape[0] == TASKS and leaf is not prior.factor else leaf for leaf in leaves]
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]

    def terms(mean, factor, phi, y, inverse_noise, target, target_noise):
        layer = condition_last_layer(
            UnitPrior(mean, factor), phi, Observations(y, inverse_noise), through_weights=through_weights
        )
        of_target = Observations(observed.y[:1], target_noise)
        return (
            layer.kl,
            layer.log_evidence,
            expected_log_likelihood(layer, target, of_target),
            log_density_of_groups(layer, target, of_target, group_size),
        )

    assert torch.autograd.gradcheck(terms, leaves, rtol=1e-5, atol=1e-6)


def test_one_plus_a_matrix_and_its_derivatives():
    """Sizes for the compiled loops and for LAPACK, none, and one."""
    for n, count in ((0, 3), (1, 1), (4, 9), (131, 2)):
        root, right = 0.3 * normal(count, n, n + 2, seed=n), normal(count, n, seed=n + 1)
        gram, matrix = root @ root.mT, torch.eye(n, dtype=FLOAT64) + root @ root.mT
        found, inverse = solve_one_plus(gram, right), torch.linalg.inv(matrix)
        solution, log_determinant = (inverse @ right.unsqueeze(-1)).squeeze(-1), torch.linalg.slogdet(matrix)[1]
        quadratic, trace = (solution * right).sum(-1), inverse.diagonal(dim1=-2, dim2=-1).sum(-1) - n
        expected = (inverse, solution, log_determinant, quadratic, solution.square().sum(-1), trace)
        torch.testing.assert_close(tuple(found), expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(
            quadratic_of_one_plus(gram, right), (quadratic, log_determinant), rtol=1e-9, atol=1e-9
        )
    leaves = ((0.5 * normal(2, 3, 3, seed=5)).requires_grad_(), normal(2, 3, seed=6).requires_grad_())
    for solve in (solve_one_plus, quadratic_of_one_plus):
        assert torch.autograd.gradcheck(lambda a, b, solve=solve: tuple(solve(a @ a.mT, b)), leaves)


@pytest.mark.parametrize("g", [1, 2, 3, 5])
def test_products_within_groups_and_sums_of_squares_and_their_derivatives(g):
    rows, root = normal(2, 4, g, 3, seed=7).requires_grad_(), normal(2, 3, 3, seed=8).requires_grad_()
    expected = torch.einsum("bgid,bde,bgje->bgij", rows, root @ root.mT, rows)
    torch.testing.assert_close(within_groups(rows, root @ root.mT), expected, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda w, a: within_groups(w, a @ a.mT), (rows, root))
    column = normal(2, 4, g, seed=9).requires_grad_()
    gram, pull, square = sums_of_squares(rows, column)
    torch.testing.assert_close(gram, rows.mT @ rows)
    torch.testing.assert_close(pull, torch.einsum("...nd,...n->...d", rows, column))
    torch.testing.assert_close(square, column.square().sum(-1))
    assert torch.autograd.gradcheck(sums_of_squares, (rows, column))


def test_what_float32_cannot_tell_is_refused_there_and_right_in_float64():
    """Two all but equal points of tiny noise, and a matrix that is not positive."""
    phi = torch.ones(1, 1, 2, 3)
    phi[0, 0, 1, 0] += 1e-5
    prior = UnitPrior(torch.zeros(1, 1, 1, 3), torch.ones(1, 3))
    seen = Observations(torch.ones(1, 1, 1, 2), torch.full((1, 1, 1, 2), 1e4))
    with pytest.raises(TooLargeForFloat32):
        condition_last_layer(prior, phi, seen)
    layer = condition_last_layer(prior.to(FLOAT64), phi.to(FLOAT64), seen.to(FLOAT64))
    assert layer.mean.sum().item() == pytest.approx(1, rel=1e-5)
    with pytest.raises(FactorisationError, match="not positive definite"):
        solve_one_plus(-2 * torch.eye(3, dtype=FLOAT64).expand(2, 3, 3), torch.ones(2, 3, dtype=FLOAT64))


# --- objectives ------------------------------------------------------------------------------------------------------

K = 4


SPLITS = [Split(task(3, 1), task(5, 2)), Split(task(7, 3), task(1, 4)), Split(task(0, 5), task(2, 6))]
BATCH = SplitBatch.of(SPLITS, FLOAT64)


def naive(model: BNNP, split: Split, hidden: list[np.ndarray], group_size: int | None) -> dict[str, float]:
    """Every term of one task, given samples of the hidden layers, from the moments of `vec(W)` of the last layer."""
    d, out = model.network.weight_shapes[-1]
    weights = [torch.from_numpy(w) for w in hidden] + [torch.zeros(d, out, dtype=FLOAT64)]
    by_layer = reference.model_moments(model, weights, split.context.x, split.context.y)
    kls = [reference.kl(*after, *before) for _, before, after in by_layer]
    mean, covariance = by_layer[-1][2]

    def noise(part: Task) -> np.ndarray:
        """Of `vec(y)`."""
        assert isinstance(model.likelihood, Gaussian)
        return reference.vec(reference.array(model.likelihood.noise_at(part.x)))

    def features(x: torch.Tensor) -> np.ndarray:
        return reference.features(len(hidden), reference.network(hidden, x.numpy(), "tanh"), "tanh")

    def expected(part: Task) -> float:
        total = 0.0
        phi = np.kron(np.eye(out), features(part.x))
        for f, y, s in zip(phi, reference.vec(part.y.numpy()), noise(part), strict=True):
            total -= 0.5 * ((y - f @ mean) ** 2 + f @ covariance @ f) / s**2 + math.log(s) + 0.5 * reference.LOG_2PI
        return total

    def density(part: Task) -> float:
        phi, s = np.kron(np.eye(out), features(part.x)), noise(part)
        return reference.log_density(
            reference.vec(part.y.numpy()), phi @ mean, phi @ covariance @ phi.T + np.diag(s**2)
        )

    n = len(split.target)
    size = n if group_size is None else group_size
    groups = [split.target.take(torch.arange(start, min(n, start + size))) for start in range(0, n, size)]
    return {
        "kl": sum(kls),
        "context": expected(split.context),
        "target": expected(split.target),
        "groups": np.array([density(group) for group in groups]),  # pyright: ignore[reportReturnType]
    }


def log_mean_exp(values: np.ndarray) -> np.ndarray:
    return np.log(np.mean(np.exp(values), axis=0))


@every_prior
@pytest.mark.parametrize("last_layer", ["predicted", "likelihood", "pseudo"])
@pytest.mark.parametrize("group_size", [None, 1, 3])
def test_objectives_are_those_of_a_naive_loop_over_samples_of_the_hidden_layers(prior, last_layer, group_size):
    model = model_of(prior, last_layer)
    draws = generator()
    splits = SPLITS
    if group_size == 3:
        target = BATCH.target.shuffled(draws)
        shuffled = [Task(target.x[t][mask], target.y[t][mask]) for t, mask in enumerate(target.mask)]
        splits = [Split(split.context, points) for split, points in zip(SPLITS, shuffled, strict=True)]
    with torch.no_grad():
        hidden = model.infer_hidden(BATCH.context, K, draws).weights
        found = PPAVI(K, group_size=group_size)(model, BATCH, generator()).by_name
        tell = TELLAVI(K)(model, BATCH, generator()).by_name
    for t, split in enumerate(splits):
        terms = [naive(model, split, [reference.array(w[t, k]) for w in hidden], group_size) for k in range(K)]
        kl, context = (np.mean([term[name] for term in terms]) for name in ("kl", "context"))
        predictive = log_mean_exp(np.stack([term["groups"] for term in terms])).sum()
        assert found["kl"][t].item() == pytest.approx(-kl, rel=1e-10, abs=1e-10)
        assert found["likelihood"][t].item() == pytest.approx(context, rel=1e-10, abs=1e-10)
        assert found["predictive"][t].item() == pytest.approx(predictive, rel=1e-10)
        if group_size is None:
            assert tell["target"][t].item() == pytest.approx(np.mean([term["target"] for term in terms]), rel=1e-10)


class LoudFarOut(Gaussian):
    """Noise that differs from point to point."""

    def noise_at(self, x: torch.Tensor) -> torch.Tensor:
        return self.noise * (1 + x.abs().sum(-1, keepdim=True))


@every_prior
def test_noise_may_differ_from_point_to_point(prior):
    model = model_of(prior)
    model.likelihood = LoudFarOut([0.6, 0.9]).for_outputs(OUT)
    with torch.no_grad():
        hidden = model.infer_hidden(BATCH.context, K, generator()).weights
        found = PPAVI(K, group_size=None)(model, BATCH, generator()).by_name
        usual = PPAVI(K, group_size=None)(model_of(prior), BATCH, generator()).by_name
    for t, split in enumerate(SPLITS):
        terms = [naive(model, split, [reference.array(w[t, k]) for w in hidden], None) for k in range(K)]
        predictive = log_mean_exp(np.stack([term["groups"] for term in terms])).sum()
        assert found["predictive"][t].item() == pytest.approx(predictive, rel=1e-10)
        context = np.mean([term["context"] for term in terms])
        assert found["likelihood"][t].item() == pytest.approx(context, rel=1e-10, abs=1e-10)
    assert not torch.allclose(found["predictive"], usual["predictive"])


@pytest.mark.parametrize("objective", [PPAVI, NPML, TELLAVI, AVI, NPVI], ids=lambda objective: objective.__name__)
@pytest.mark.parametrize("kind", ["unitwise", "networkwise", "sees_hidden", "attentive", "bnam"])
def test_sampling_the_last_layer_too_gives_the_same_within_its_error(objective, kind):
    """The sampled estimator's mean over 3,200 samples, against the integrated one's over 3,200 others.

    At most 3 terms of 3 tasks: each is within 5 of its standard errors, wrongly refused with probability 6e-7. The
    predictive term is of single targets, whose densities have few outliers. A KL without the last layer is caught.
    """
    model = {
        "unitwise": lambda: model_of("unitwise"),
        "networkwise": lambda: model_of("networkwise"),
        "sees_hidden": lambda: model_of("unitwise", sees_hidden=True),
        "attentive": lambda: AttBNNP(
            2, OUT, (4, 3), "tanh", inference=Attentive(hidden=(8,)), likelihood=Gaussian([0.6, 0.9]), dtype=FLOAT64
        ),
        "bnam": lambda: BNAM(2, OUT, Transformer(4, heads=2), likelihood=Gaussian([0.6, 0.9]), dtype=FLOAT64),
    }[kind]()
    count, parts = 100, 32
    choices = {"group_size": 1} if objective in (PPAVI, NPML) else {}
    found = {}
    with torch.no_grad():
        for integrate in (True, False):
            draws = [
                objective(count, integrate, **choices)(model, BATCH, torch.Generator().manual_seed(7 * i + integrate))
                for i in range(parts)
            ]
            found[integrate] = {n: torch.stack([d.by_name[n] for d in draws]).numpy() for n in draws[0].by_name}
    for name, integrated in found[True].items():
        sampled = found[False][name]
        error = np.sqrt((integrated.var(0) + sampled.var(0)) / parts)
        # the log of a mean over 100 samples lies below the truth, by half of its variance
        bias = 0.5 * (integrated.var(0) + sampled.var(0)) if name == "predictive" else 0
        assert (np.abs(integrated.mean(0) - sampled.mean(0)) < 5 * error + bias + 1e-9).all(), name
        if name != "kl":  # of 32 values each, a ratio of variances exceeds 4 with probability 1e-4 if they are the same
            assert (integrated.var(0) <= 4 * sampled.var(0) + 1e-12).all(), name
    if objective is AVI and kind == "unitwise":
        hidden = -model.infer_hidden(BATCH.context, 2000, generator()).kl.mean(1).detach().numpy()
        assert (np.abs(hidden - found[False]["kl"].mean(0)) > 5 * found[False]["kl"].std(0))[:2].all()


@every_prior
def test_one_sample_is_exact_in_a_linear_model(prior):
    """Without hidden layers the predictive density is that of Bayesian linear regression, and AVI the evidence."""
    model = model_of(prior, "likelihood", hidden=())
    with torch.no_grad():
        npml = NPML(1)(model, BATCH, generator()).total()
        avi = AVI(1)(model, BATCH, generator()).total()
    mean, covariance = reference.prior_moments(model.prior)
    noise = reference.array(model.likelihood.noise)  # pyright: ignore[reportArgumentType]

    def evidence(part: Task) -> float:
        phi = np.kron(np.eye(OUT), reference.features(0, part.x.numpy(), "tanh"))
        return reference.log_evidence(mean, covariance, phi, reference.vec(part.y.numpy()), np.repeat(noise, len(part)))

    for t, split in enumerate(SPLITS):
        both = Task(torch.cat([split.context.x, split.target.x]), torch.cat([split.context.y, split.target.y]))
        assert npml[t].item() == pytest.approx(evidence(both) - evidence(split.context), rel=1e-10)
        assert avi[t].item() == pytest.approx(evidence(split.context), rel=1e-10, abs=1e-10)


def test_groups_of_sampled_terms_are_sums_over_their_points():
    model, batch = model_of("unitwise"), SplitBatch(BATCH.context, BATCH.target)
    with torch.no_grad():
        _, _, of_target = model.infer_and_score(batch, K, generator())
        found = model.estimate(batch, K, generator(), integrate=False, group_size=2).predictive()
    assert found.shape == (3, K, 3)
    torch.testing.assert_close(found[..., 0], of_target[..., :2].sum(-1))
    torch.testing.assert_close(found[..., 2], of_target[..., 4])


def test_shuffled_points_are_the_same_points_in_all_orders_with_absent_ones_last():
    """The first of 5 points is each of them in 60 of 300 shuffles; 5 of 5 counts within 5.5 deviations: 2e-7."""
    first = []
    draws = generator()
    for _ in range(300):
        shuffled = BATCH.target.shuffled(draws)
        assert torch.equal(shuffled.mask, BATCH.target.mask)
        assert torch.equal(shuffled.x[0].sort(0).values, BATCH.target.x[0].sort(0).values)
        pairs = torch.cat([shuffled.x[0], shuffled.y[0]], 1)
        match = (pairs[0] == torch.cat([BATCH.target.x[0], BATCH.target.y[0]], 1)).all(1)
        first.append(int(match.nonzero()))
        assert torch.equal(shuffled.x[1, 0], BATCH.target.x[1, 0])
    counts = np.bincount(first, minlength=5)
    assert (np.abs(counts - 60) < 5.5 * math.sqrt(300 * 0.2 * 0.8)).all()


@pytest.mark.parametrize("wrong", [0, -3])
def test_group_size_must_be_positive(wrong):
    with pytest.raises(ValueError, match=f"group_size: got {wrong}, expected a positive whole number of targets"):
        PPAVI(group_size=wrong)


def test_float32_terms_that_need_float64_are_those_of_float64():
    """A tiny noise, so that float32 is refused inside; the terms and their gradients agree with a float64 model's."""
    models = [
        BNNP(2, OUT, (4,), "tanh", likelihood=Gaussian(1e-4), last_layer="likelihood", dtype=dtype, seed=0)
        for dtype in (torch.float32, FLOAT64)
    ]
    models[1].load_state_dict(models[0].state_dict())
    small = SplitBatch(*(TaskBatch(p.x.float(), p.y.float(), p.mask) for p in (BATCH.context, BATCH.target)))
    hidden = models[0].infer_hidden(small.context, K, generator())
    with pytest.raises(TooLargeForFloat32):
        models[0].estimate(small, K, generator(), integrate=True).predictive()
    found = PPAVI(K, group_size=None)(models[0], small, generator()).by_name
    again = [w.double() for w in hidden.weights]
    assert all(bool(torch.isfinite(values).all()) for values in found.values())
    phi = models[1].last_features(again, BATCH.context)
    layer = condition_last_layer(
        models[1].prior.layer(1, []), phi, models[1].observed(phi, BATCH.context).seen, through_weights=True
    )
    torch.testing.assert_close(
        -found["kl"], (hidden.kl.double() + layer.kl.sum(-1)).mean(1), rtol=1e-4, atol=1e-4, check_dtype=False
    )


# --- in chunks -------------------------------------------------------------------------------------------------------


@every_prior
@pytest.mark.parametrize("group_size", [None, 1, 2])
def test_targets_in_chunks_give_the_same_terms_and_gradients(prior, group_size):
    """Contexts fit into a chunk, targets do not."""
    model = model_of(prior)
    targets = SplitBatch(TaskBatch.of([s.context for s in SPLITS[:1]], FLOAT64), TaskBatch.of([task(11, 9)], FLOAT64))
    parameters = list(model.parameters())
    found = []
    for learner in (model, InChunks(model, 4)):
        objective = PPAVI(K, group_size=group_size)
        total = objective(learner, targets, generator()).total().sum()
        found.append([total, *(g for g in torch.autograd.grad(total, parameters, allow_unused=True) if g is not None)])
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


@every_prior
@pytest.mark.parametrize("objective", [PPAVI, AVI, NPML, TELLAVI], ids=lambda objective: objective.__name__)
def test_contexts_in_chunks_give_the_same_terms_in_a_linear_model(prior, objective):
    """There is nothing to be sampled without hidden layers: values are the same, whatever chunk has derivatives."""
    model = model_of(prior, hidden=())
    with torch.no_grad():
        whole, chunks = (objective(K)(m, BATCH, generator()).by_name for m in (model, InChunks(model, 2)))
    for name, values in whole.items():
        torch.testing.assert_close(chunks[name], values, rtol=1e-9, atol=1e-9)
