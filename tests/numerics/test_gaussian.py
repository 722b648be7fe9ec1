import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.stats
import torch

from bnnp.numerics.gaussian import condition, condition_on, function_space, weight_space, whitened_space
from bnnp.numerics.natural import NaturalParameters, log_density_at_sample, natural_parameters, posterior_moments
from bnnp.numerics.records import Observations, UnitPrior, Update, UpdateDraws, with_missing
from bnnp.numerics.solve import FactorisationError, unpacked
from support import reference

FORMS = [function_space, weight_space, whitened_space, condition]
TASKS, SAMPLES, UNITS, D = 2, 3, 2, 4


@dataclass(frozen=True)
class Case:
    points: int
    diagonal: bool
    shared: bool  # one feature matrix and prior mean for all samples, as in a network's first layer

    def __str__(self):
        return f"n{self.points}-{'diagonal' if self.diagonal else 'full'}-{'shared' if self.shared else 'persample'}"


CASES = [
    Case(points, diagonal, shared) for points in (0, 2, 9) for diagonal in (True, False) for shared in (True, False)
]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


@dataclass(frozen=True)
class Problem:
    prior: UnitPrior
    phi: torch.Tensor
    seen: Observations
    draws: UpdateDraws

    def update(self, form) -> Update:
        return form(self.prior, self.phi, self.seen, self.draws)

    def to(self, dtype) -> "Problem":
        return Problem(self.prior.to(dtype), self.phi.to(dtype), self.seen.to(dtype), self.draws.to(dtype))


def problem(case: Case) -> Problem:
    generator = torch.Generator().manual_seed(7)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tasks, samples = (1, 1) if case.shared else (TASKS, SAMPLES)
    scale = torch.exp(0.3 * normal(UNITS, D))
    factor = scale if case.diagonal else torch.diag_embed(scale) + 0.5 * normal(UNITS, D, D).tril(-1)
    n, phi_samples = case.points, 1 if case.shared else SAMPLES
    seen = Observations(
        normal(TASKS, phi_samples, UNITS, n), torch.exp(0.5 * normal(TASKS, phi_samples, UNITS, n) + 0.5)
    )
    draws = UpdateDraws(normal(TASKS, SAMPLES, UNITS, D), normal(TASKS, SAMPLES, UNITS, n))
    return Problem(UnitPrior(normal(tasks, samples, UNITS, D), factor), normal(TASKS, phi_samples, n, D), seen, draws)


def units_of(p: Problem):
    """Every unit of every sample of every task by itself: its index, prior, features, observations and draws."""
    factor = reference.array(torch.diag_embed(p.prior.factor) if p.prior.is_diagonal else p.prior.factor)
    mean, phi, y, inverse_noise = (
        reference.array(for_all_samples(values)) for values in (p.prior.mean, p.phi, p.seen.y, p.seen.inverse_noise)
    )
    for index in np.ndindex(TASKS, SAMPLES, UNITS):
        t, s, u = index
        prior = (mean[index], factor[u] @ factor[u].T)
        yield index, prior, phi[t, s], y[index], 1 / inverse_noise[index]


def for_all_samples(values: torch.Tensor) -> torch.Tensor:
    """A quantity that is the same for all samples, once for each."""
    return values.expand(TASKS, SAMPLES, *values.shape[2:])


def assert_same(one: Update, other: Update, tolerance: float = 1e-10):
    for part in ("whitened", "kl", "log_evidence"):
        a, b = (for_all_samples(getattr(update, part)).double() for update in (one, other))
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda text, part=part: f"{part}: {text}")


def weights(p: Problem, update: Update) -> torch.Tensor:
    return p.prior.weights(update.whitened)


def without_noise(p: Problem) -> Problem:
    return replace(p, draws=UpdateDraws(torch.zeros_like(p.draws.weights), torch.zeros_like(p.draws.points)))


def natural(p: Problem) -> NaturalParameters:
    return natural_parameters(p.prior.mean, p.phi, p.seen, p.draws.points)


def only(p: Problem, points: slice) -> Problem:
    """The problem with some of its points."""
    seen = Observations(p.seen.y[..., points], p.seen.inverse_noise[..., points])
    return Problem(p.prior, p.phi[:, :, points], seen, UpdateDraws(p.draws.weights, p.draws.points[..., points]))


# --- closed forms ----------------------------------------------------------------------------------------------------


@every_case
def test_posterior_moments_are_the_papers(case):
    p = problem(case)
    mean, covariance = posterior_moments(p.prior, natural(p))
    mean, covariance = for_all_samples(mean), for_all_samples(covariance)
    for index, prior, phi, y, sd in units_of(p):
        m, s = reference.posterior(*prior, phi, y, sd)
        np.testing.assert_allclose(mean[index], m, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(covariance[index], s, rtol=1e-10, atol=1e-10)


@every_case
def test_natural_parameters_are_sums_over_points(case):
    p = problem(case)
    sums = natural(p)
    parts = (unpacked(sums.precision), sums.shift.mT, sums.square, sums.draws.mT)
    precision, shift, square, draws = map(for_all_samples, parts)
    for index, (mu, _), phi, y, sd in units_of(p):
        np.testing.assert_allclose(precision[index], phi.T @ np.diag(sd**-2) @ phi, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(shift[index], phi.T @ ((y - phi @ mu) / sd**2), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(square[index], (((y - phi @ mu) / sd) ** 2).sum(), rtol=1e-10, atol=1e-10)
        e = p.draws.points[index].numpy()
        np.testing.assert_allclose(draws[index], phi.T @ (e / sd), rtol=1e-10, atol=1e-10)


@every_case
def test_natural_parameters_add_over_data(case):
    p = problem(case)
    parts = [natural(only(p, part)) for part in (slice(0, 1), slice(1, None))]
    whole, added = natural(p), parts[0] + parts[1]
    for name in ("precision", "shift", "draws", "square"):
        torch.testing.assert_close(getattr(added, name), getattr(whole, name), rtol=1e-10, atol=1e-10)


@every_case
def test_conditioning_on_sums_is_conditioning_on_points(case):
    p = problem(case)
    assert_same(condition_on(p.prior, natural(p), p.draws.weights), p.update(weight_space))


@every_case
def test_points_and_sums_of_other_points_give_the_posterior_of_all_points(case):
    p = problem(case)
    some, others = only(p, slice(0, 1)), only(p, slice(1, None))
    for form in (weight_space, whitened_space):
        update = form(some.prior, some.phi, some.seen, some.draws, natural(others))
        assert_same(update, p.update(weight_space))


@every_case
def test_density_at_the_sample_is_the_posteriors(case):
    p = problem(case)
    update = condition_on(p.prior, natural(p), p.draws.weights)
    density = for_all_samples(log_density_at_sample(p.prior, update, natural(p)))
    sample = weights(p, update)
    for index, prior, phi, y, sd in units_of(p):
        m, s = reference.posterior(*prior, phi, y, sd)
        expected = scipy.stats.multivariate_normal(m, s).logpdf(sample[index])
        np.testing.assert_allclose(density[index], expected, rtol=1e-9, atol=1e-9)


@every_form
@every_case
def test_kl_is_that_of_two_normals(case, form):
    p = problem(case)
    kl = for_all_samples(p.update(form).kl)
    for index, prior, phi, y, sd in units_of(p):
        expected = reference.kl(*reference.posterior(*prior, phi, y, sd), *prior)
        np.testing.assert_allclose(kl[index], expected, rtol=1e-10, atol=1e-10)


@every_form
@every_case
def test_log_evidence_is_that_of_a_linear_model(case, form):
    p = problem(case)
    log_evidence = for_all_samples(p.update(form).log_evidence)
    for index, prior, phi, y, sd in units_of(p):
        of_noise_alone = -np.log(sd).sum() - 0.5 * len(y) * math.log(2 * math.pi)
        expected = reference.log_evidence(*prior, phi, y, sd)
        np.testing.assert_allclose(log_evidence[index] + of_noise_alone, expected, rtol=1e-10, atol=1e-10)


@every_form
@every_case
def test_sample_without_noise_is_the_posterior_mean(case, form):
    p = without_noise(problem(case))
    centre = for_all_samples(weights(p, p.update(form)))
    for index, prior, phi, y, sd in units_of(p):
        m, _ = reference.posterior(*prior, phi, y, sd)
        np.testing.assert_allclose(centre[index], m, rtol=1e-10, atol=1e-10)


@every_form
@every_case
def test_samples_have_the_posterior_covariance(case, form):
    """A sample is affine in its draws, so that unit vectors as draws give its covariance exactly."""
    p = without_noise(problem(case))
    centre = weights(p, p.update(form))
    columns = []
    for j in range(D + case.points):
        unit_vector = torch.zeros(D + case.points, dtype=torch.float64)
        unit_vector[j] = 1
        draws = UpdateDraws(unit_vector[:D].expand(p.draws.weights.shape), unit_vector[D:].expand(p.draws.points.shape))
        columns.append(weights(p, replace(p, draws=draws).update(form)) - centre)
    jacobian = torch.stack(columns, dim=-1)
    covariance = jacobian @ jacobian.mT
    for index, prior, phi, y, sd in units_of(p):
        _, s = reference.posterior(*prior, phi, y, sd)
        np.testing.assert_allclose(covariance[index], s, rtol=1e-10, atol=1e-10)


@every_case
def test_samples_are_affine_in_their_draws(case):
    p = problem(case)
    double = UpdateDraws(2 * p.draws.weights, 2 * p.draws.points)
    centre = weights(p, without_noise(p).update(condition))
    once, twice = weights(p, p.update(condition)), weights(p, replace(p, draws=double).update(condition))
    torch.testing.assert_close(twice - centre, 2 * (once - centre), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", [weight_space, condition], ids=lambda form: form.__name__)
@every_case
def test_both_forms_draw_from_the_same_posterior_with_the_same_draws(case, form):
    p = problem(case)
    one, other = p.update(function_space), p.update(form)
    assert_same(one, other)


@every_case
def test_whitening_undoes_weights(case):
    p = problem(case)
    torch.testing.assert_close(p.prior.whiten(p.prior.weights(p.draws.weights)), p.draws.weights, rtol=0, atol=1e-12)


@every_form
@every_case
def test_float32_agrees_with_float64(case, form):
    p = problem(case).to(torch.float32)
    single, double = p.update(form), p.to(torch.float64).update(form)
    assert {single.whitened.dtype, single.kl.dtype, single.log_evidence.dtype} == {torch.float32}
    assert_same(single, double, tolerance=1e-4)


# --- missing points --------------------------------------------------------------------------------------------------


@every_form
@pytest.mark.parametrize("case", [case for case in CASES if case.points > 0], ids=str)
def test_masked_points_count_for_nothing(case, form):
    p = problem(case)
    keep = torch.arange(case.points) % 2 == 0
    present = Problem(
        p.prior,
        p.phi[:, :, keep],
        Observations(p.seen.y[..., keep], p.seen.inverse_noise[..., keep]),
        UpdateDraws(p.draws.weights, p.draws.points[..., keep]),
    )
    absurd = torch.where(keep, 0.0, 1e6).to(torch.float64)
    masked = Problem(
        p.prior,
        p.phi + absurd[:, None],
        with_missing(Observations(p.seen.y + absurd, p.seen.inverse_noise), keep.expand(TASKS, -1)),
        UpdateDraws(p.draws.weights, p.draws.points + absurd),
    )
    one, other = masked.update(form), present.update(form)
    assert_same(one, other)


def test_each_task_has_its_own_missing_points():
    p = problem(Case(9, diagonal=False, shared=False))
    mask = torch.ones(TASKS, 9, dtype=torch.bool)
    mask[1, 4:] = False
    masked = with_missing(p.seen, mask)
    assert torch.equal(masked.inverse_noise[0], p.seen.inverse_noise[0])
    assert torch.equal(masked.inverse_noise[1, ..., :4], p.seen.inverse_noise[1, ..., :4])
    assert not masked.inverse_noise[1, ..., 4:].any()


# --- derivatives and numerical safety --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [function_space, weight_space, whitened_space], ids=lambda form: form.__name__)
@pytest.mark.parametrize(
    "case", [Case(points, diagonal, False) for points in (2, 5) for diagonal in (True, False)], ids=str
)
def test_derivatives_agree_with_finite_differences(case, form):
    p = problem(case)

    def outputs(mean, factor, phi, y, inverse_noise, noise_weights, noise_points):
        prior = UnitPrior(mean, factor if case.diagonal else factor.tril())
        update = form(prior, phi, Observations(y, inverse_noise), UpdateDraws(noise_weights, noise_points))
        return update.whitened, update.kl, update.log_evidence

    one_sample = [
        p.prior.mean[:1, :1],
        p.prior.factor,
        p.phi[:1, :1],
        p.seen.y[:1, :1],
        p.seen.inverse_noise[:1, :1],
        p.draws.weights[:1, :2],
        p.draws.points[:1, :2],
    ]
    assert torch.autograd.gradcheck(outputs, [value.clone().requires_grad_() for value in one_sample])


@pytest.mark.parametrize("scale", [30.0, 1.0, 1e-3, 1e-6, 1e-20, 1e-40])
def test_derivatives_in_log_noise_agree_between_forms_in_float32(scale):
    """From points that matter much to points that all but do not exist."""
    p = problem(Case(3, diagonal=False, shared=False)).to(torch.float32)
    p.seen.inverse_noise[..., 0] = scale

    def gradient(form, dtype):
        q = p.to(dtype)
        log_scale = q.seen.inverse_noise.log().requires_grad_()
        update = replace(q, seen=Observations(q.seen.y, log_scale.exp())).update(form)
        (value,) = torch.autograd.grad(update.whitened.square().sum() + update.kl.sum(), log_scale)
        return value.double()

    expected = gradient(weight_space, torch.float64)
    torch.testing.assert_close(gradient(condition, torch.float32), expected, rtol=1e-3, atol=1e-4)


@every_form
@pytest.mark.parametrize("case", [case for case in CASES if case.points > 0], ids=str)
def test_chunks_change_neither_values_nor_derivatives(monkeypatch, case, form):
    def value_and_gradients() -> list[torch.Tensor]:
        p = problem(case)
        inputs = [p.prior.mean, p.prior.factor, p.phi, p.seen.y, p.seen.inverse_noise, p.draws.weights, p.draws.points]
        for tensor in inputs:
            tensor.requires_grad_()
        update = p.update(form)
        total = update.whitened.square().sum() + update.kl.sum() + update.log_evidence.sum()
        return [total, *torch.autograd.grad(total, inputs)]

    whole = value_and_gradients()
    monkeypatch.setattr("bnnp.numerics.chunks.NUMBERS_AT_ONCE", 1)
    torch.testing.assert_close(value_and_gradients(), whole, rtol=1e-10, atol=1e-10)


@every_form
@pytest.mark.parametrize("points", [2, 9])
@pytest.mark.parametrize("at_once", [1, 2**20])
def test_values_that_are_not_finite_are_an_error_that_names_the_task(monkeypatch, form, points, at_once):
    monkeypatch.setattr("bnnp.numerics.chunks.NUMBERS_AT_ONCE", at_once)
    p = problem(Case(points, diagonal=False, shared=False))
    p.phi[1, 0, 0, 0] = math.nan
    with pytest.raises(FactorisationError) as raised:
        p.update(form)
    assert raised.value.task == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "persample"])
def test_priors_that_are_all_but_certain_of_a_combination_of_weights_are_no_obstacle(shared, dtype):
    """The inverse of the prior covariance does not exist in float64; posteriors and derivatives are as good as ever."""
    p = problem(Case(9, diagonal=False, shared=shared)).to(dtype)
    p.prior.factor[1] = torch.diag(torch.tensor([1.0, 1e-4, 1e-4, 1e-4])) + torch.diag(torch.ones(3), -1)
    assert torch.linalg.cond(p.prior.factor[1].double()) > 1e10
    single, double = p.prior.factor.requires_grad_(), torch.float64
    update, expected = p.update(condition), p.to(double).update(function_space)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-7
    for part in ("centred", "kl", "log_evidence"):
        a, b = (for_all_samples(getattr(one, part)).to(double) for one in (update, expected))
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    gradients = [torch.autograd.grad(u.centred.sin().sum() + u.kl.sum(), single)[0].tril() for u in (update, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-2 if dtype == torch.float32 else 1e-6, atol=tolerance)
    if dtype == double:
        from_sums = condition_on(p.prior, natural(p), p.draws.weights)
        torch.testing.assert_close(from_sums.kl, update.kl, rtol=tolerance, atol=tolerance)


def test_other_points_move_with_the_mean_once_where_a_prior_is_close_to_singular():
    p = problem(Case(9, diagonal=False, shared=False))
    p.prior.factor[1] = torch.diag(torch.tensor([1.0, 1e-4, 1e-4, 1e-4])) + torch.diag(torch.ones(3), -1)
    some, rest = only(p, slice(0, 1)), natural(only(p, slice(1, None)))
    mean = p.prior.mean.requires_grad_()
    gradients = []
    for form in (weight_space, whitened_space):
        update = form(some.prior, some.phi, some.seen, some.draws, rest)
        gradients += torch.autograd.grad(update.centred.sin().sum() + update.kl.sum(), mean)
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("d", [8, 520], ids=["weight_space", "function_space"])
def test_float32_survives_small_noise_and_nearly_collinear_features(d):
    """500 points, pseudo-noise 1e-3: the condition number of the posterior precision is beyond float32's 1e7."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(1, 1, 500, 1, generator=generator)
    phi = common + 1e-3 * torch.randn(1, 1, 500, d, generator=generator)
    prior = UnitPrior(torch.zeros(1, 1, 2, d), torch.ones(2, d) / math.sqrt(d))
    y = common.mT + 0.1 * torch.randn(1, 1, 2, 500, generator=generator)
    draws = UpdateDraws(torch.randn(1, 2, 2, d, generator=generator), torch.randn(1, 2, 2, 500, generator=generator))
    p = Problem(prior, phi, Observations(y, torch.full_like(y, 1e3)), draws)
    single, double = p.update(condition), p.to(torch.float64).update(condition)
    assert single.whitened.dtype == torch.float32
    assert (phi.double().square().sum() * 1e6 / d) > 1e8
    for part in ("whitened", "kl", "log_evidence"):
        expected = getattr(double, part)
        error = (getattr(single, part).double() - expected).norm() / expected.norm()
        assert error < 1e-3
