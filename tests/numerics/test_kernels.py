"""The two back ends for many small matrices, the compiled loops and LAPACK, against one dense matrix at a time."""

import math
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from bnnp.numerics.backends import base
from bnnp.numerics.backends import torch_linalg as lapack
from bnnp.numerics.backends.numba import binding as kernels
from bnnp.numerics.backends.numba.simd import LANES
from bnnp.numerics.solve import solve_in_function_space, update_in_weight_space


@dataclass(frozen=True)
class Shape:
    size: int
    rows: int
    units: int
    columns: int

    def __str__(self):
        return f"{self.size}-{self.rows}x{self.units}-{self.columns}columns"


STRADDLING = Shape(3, 3, 50, 5)  # the second block of lanes begins in the second row and ends in the third
SHAPES = [
    Shape(1, 1, 1, 1),
    Shape(1, 3, 50, 5),
    Shape(3, 5, 1, 5),
    Shape(3, 2, LANES, 1),
    Shape(3, 1, 2 * LANES + 2, 1),
    STRADDLING,
    Shape(21, 4, 1, 1),
    Shape(21, 3, 50, 5),
]
BACK_ENDS = [kernels, lapack]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_back_end = pytest.mark.parametrize("back_end", BACK_ENDS, ids=["loops", "lapack"])
full_and_diagonal = pytest.mark.parametrize("diagonal", [False, True], ids=["full", "diagonal"])


def pairs(size: int) -> int:
    return size * (size + 1) // 2


def pair_index(size: int) -> torch.Tensor:
    """Where element (i, j) of a symmetric matrix lies in its packed form."""
    return torch.tensor([[pairs(max(i, j)) + min(i, j) for j in range(size)] for i in range(size)])


def dense(packed: torch.Tensor) -> torch.Tensor:
    """(..., pairs, units) as matrices (..., units, n, n)."""
    size = math.isqrt(2 * packed.shape[-2])
    return packed.mT[..., pair_index(size)]


def packed(matrices: torch.Tensor) -> torch.Tensor:
    """Lower triangles of (..., units, n, n) by rows, as (..., pairs, units)."""
    size = matrices.shape[-1]
    return torch.stack([matrices[..., i, j] for i in range(size) for j in range(i + 1)], dim=-2).contiguous()


def units_last(columns: torch.Tensor) -> torch.Tensor:
    return columns.permute(0, 2, 3, 1).contiguous()


def units_first(columns: torch.Tensor) -> torch.Tensor:
    return columns.permute(0, 3, 1, 2)


def symmetric(matrix: torch.Tensor) -> torch.Tensor:
    return 0.5 * (matrix + matrix.mT)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive_definite(*shape: int, seed: int = 0) -> torch.Tensor:
    """Wishart matrices (*batch, n, n) plus half the identity."""
    factor = normal(*shape, shape[-1], seed=seed)
    return factor @ factor.mT / shape[-1] + 0.5 * torch.eye(shape[-1], dtype=torch.float64)


def assert_close(actual, expected, tolerance: float = 1e-9) -> None:
    actual, expected = (
        {name: torch.as_tensor(x).double() for name, x in values.items()} for values in (actual, expected)
    )
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# --- function space --------------------------------------------------------------------------------------------------


def scaled_problem(shape: Shape) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    gram = units_last(positive_definite(shape.rows, shape.units, shape.size))
    scale = torch.exp(0.3 * normal(shape.rows, shape.size, shape.units, seed=1))
    return gram, scale, normal(shape.rows, shape.size, shape.columns, shape.units, seed=2)


def unwritten(like: torch.Tensor, *shape: int) -> torch.Tensor:
    return like.new_full(shape, torch.nan)


def invert_scaled(back_end: ModuleType, gram, scale, right) -> dict[str, torch.Tensor]:
    rows, n, _, units = right.shape
    solution = base.ScaledSolution(unwritten(gram, rows, pairs(n), units), unwritten(gram, *right.shape))
    values = base.ScaledValues(*(unwritten(gram, rows, units) for _ in range(3)))
    back_end.invert_scaled(gram, base.ScaledData(scale, right), solution, values)
    return vars(solution) | vars(values)


def differentiate_scaled(back_end: ModuleType, inputs, grads) -> dict[str, torch.Tensor]:
    gram, scale, right = inputs
    found = invert_scaled(back_end, gram, scale, right)
    solution, gradients = base.ScaledSolution(found["inverse"], found["solved"]), base.ScaledGradients(*grads)
    into = base.ScaledInputGradients(*(unwritten(gram, *x.shape) for x in inputs))
    back_end.differentiate_scaled(base.ScaledData(scale, right), solution, gradients, into)
    return vars(into)


def one_by_one(matrices: np.ndarray, right: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """All results for matrices (rows, units, n, n), with `weights` in the place of the prior precision in the trace."""
    rows, n, columns, units = right.shape
    found = {
        "inverse": np.empty((rows, pairs(n), units)),
        "solved": np.empty((rows, n, columns, units)),
        **{name: np.empty((rows, units)) for name in ("log_determinant", "excess_trace", "health")},
    }
    for r, u in np.ndindex(rows, units):
        inverse = np.linalg.inv(matrices[r, u])
        found["inverse"][r, :, u] = inverse[np.tril_indices(n)]
        found["solved"][r, :, :, u] = inverse @ right[r, :, :, u]
        found["log_determinant"][r, u] = np.linalg.slogdet(matrices[r, u])[1]
        found["excess_trace"][r, u] = np.trace(weights[u] @ inverse) - n
        pivots = np.diag(np.linalg.cholesky(matrices[r, u])) ** 2
        found["health"][r, u] = (pivots / np.diag(matrices[r, u])).min()
    return found


def scaled_matrices(gram: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    s = scale.mT
    return s.unsqueeze(-1) * units_first(gram) * s.unsqueeze(-2) + torch.eye(gram.shape[1], dtype=gram.dtype)


def dense_solve(matrices: torch.Tensor, right: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Solution, log-determinant and excess trace by formulas that torch differentiates itself."""
    inverse = torch.linalg.inv(matrices)
    trace = (weights @ inverse).diagonal(dim1=-2, dim2=-1).sum(-1) - right.shape[1]
    return units_last(inverse @ units_first(right)), torch.linalg.slogdet(matrices).logabsdet, trace


@every_back_end
@every_shape
def test_scaled_matrices_are_inverted(shape, back_end):
    gram, scale, right = scaled_problem(shape)
    eye = np.broadcast_to(np.eye(shape.size), (shape.units, shape.size, shape.size))
    expected = one_by_one(scaled_matrices(gram, scale).numpy(), right.numpy(), eye)
    assert_close(invert_scaled(back_end, gram, scale, right), expected)


@every_back_end
@every_shape
def test_derivatives_of_scaled_matrices_are_those_of_a_dense_inverse(shape, back_end):
    inputs = scaled_problem(shape)
    leaves = [x.clone().requires_grad_() for x in inputs]
    outputs = dense_solve(scaled_matrices(*leaves[:2]), leaves[2], torch.eye(shape.size, dtype=torch.float64))
    grads = [normal(*output.shape, seed=3 + k) for k, output in enumerate(outputs)]
    gram, scale, right = torch.autograd.grad(outputs, leaves, grads)
    expected = {"gram": units_last(symmetric(units_first(gram))), "scale": scale, "right": right}
    assert_close(differentiate_scaled(back_end, inputs, grads), expected)


@every_back_end
def test_masked_points_have_no_derivative_and_change_no_others(back_end):
    gram, scale, right = scaled_problem(STRADDLING)
    scale[:, 1], right[:, 1] = 0, 0
    present = [0, 2]
    grads = [normal(*right.shape, seed=3), *normal(2, STRADDLING.rows, STRADDLING.units, seed=4)]
    found = differentiate_scaled(back_end, (gram, scale, right), grads)
    assert not found["scale"][:, 1].any()
    assert not found["gram"][:, 1].any()
    assert not found["gram"][:, :, 1].any()
    whole = {**found, "gram": found["gram"][:, :, present]}
    smaller = [gram[:, present][:, :, present], scale[:, present], right[:, present]]
    without = differentiate_scaled(back_end, smaller, [grads[0][:, present], *grads[1:]])
    assert_close({name: values[:, present] for name, values in whole.items()}, without)


# --- weight space ----------------------------------------------------------------------------------------------------


def added_problem(shape: Shape, diagonal: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    gram = packed(positive_definite(shape.rows, shape.units, shape.size))
    right = normal(shape.rows, shape.size, shape.columns, shape.units, seed=2)
    if diagonal:
        return torch.exp(0.3 * normal(shape.size, shape.units, seed=1)), gram, right
    return packed(positive_definite(shape.units, shape.size, seed=1)), gram, right


def precisions(precision: torch.Tensor, diagonal: bool) -> torch.Tensor:
    return torch.diag_embed(precision.mT) if diagonal else dense(precision)


def update(back_end: ModuleType, given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The update of all rows, whose results are not there before."""
    rows, samples, d, units = given["start"].shape
    like = given["phi"]
    solution = base.UpdateSolution(
        unwritten(like, rows, pairs(d), units),
        unwritten(like, rows, d, units),
        unwritten(like, rows, samples, d, units),
    )
    values = base.UpdateValues(*(unwritten(like, rows, 1, units) for _ in range(3)))
    back_end.update(
        slice(0, rows), part_of(given, base.UpdateData), part_of(given, base.UpdateOffsets), solution, values
    )
    return vars(solution) | vars(values)


def part_of(values: dict[str, Any], record: type) -> Any:
    """The record that some of the values make up."""
    return record(**{field.name: values[field.name] for field in fields(record)})


def invert_added(back_end: ModuleType, precision, gram, right) -> dict[str, torch.Tensor]:
    """Inverses and solutions alone: an update without points, and with all of `Q` but the prior in the rest."""
    rows, d, columns, units = right.shape
    nothing = gram.new_zeros(rows, d, units)
    found = update(
        back_end,
        {
            "precision": precision.unsqueeze(0),
            "log_scale": gram.new_zeros(1, 1, units),
            "mean": nothing,
            "phi": gram.new_empty(rows, 0, d),
            "scale": nothing[:, :0],
            "y": nothing[:, :0],
            "start": right.transpose(1, 2).contiguous(),
            "draws": gram.new_empty(rows, columns, 0, units),
            "rest": gram,
            "shift": nothing,
        },
    )
    log_determinant = -2 * found["log_evidence"][:, 0]
    return {
        "inverse": found["inverse"],
        "solved": found["centred"].transpose(1, 2),
        "log_determinant": log_determinant,
        "excess_trace": 2 * found["kl"][:, 0] - log_determinant,
        "health": found["health"][:, 0],
    }


@every_back_end
@full_and_diagonal
@every_shape
def test_added_matrices_are_inverted(shape, diagonal, back_end):
    precision, gram, right = added_problem(shape, diagonal)
    prior = precisions(precision, diagonal)
    expected = one_by_one((prior + dense(gram)).numpy(), right.numpy(), prior.numpy())
    assert_close(invert_added(back_end, precision, gram, right), expected)


def update_problem(shape: Shape, points: int, diagonal: bool, several: int = 1) -> dict[str, Any]:
    """several: rows for which one row of the draws and of the observations stands."""
    rows, d, units = shape.rows * several, shape.size, shape.units
    precision = added_problem(shape, diagonal)[0]
    return {
        "precision": precision.unsqueeze(0),
        "log_scale": normal(1, 1, units, seed=3),
        "mean": normal(rows, d, units, seed=4),
        "phi": normal(rows, points, d, seed=5),
        "scale": torch.exp(0.3 * normal(shape.rows, points, units, seed=6)),
        "y": normal(shape.rows, points, units, seed=7),
        "start": normal(rows, shape.columns, d, units, seed=8),
        "draws": normal(rows, shape.columns, points, units, seed=9),
        "rest": packed(positive_definite(rows, units, d, seed=10)),
        "shift": normal(rows, d, units, seed=11),
    }


def dense_update(given: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Samples, KL and evidence as `gaussian.py` has them, by formulas that torch differentiates itself."""
    rows, _, d, _ = given["start"].shape
    prior = precisions(given["precision"][0], given["precision"].shape[1] == d)
    phi, mean = given["phi"], given["mean"].expand(rows, -1, -1)
    scale, y = (given[name].repeat_interleave(rows // len(given[name]), 0) for name in ("scale", "y"))
    matrices, total = prior + torch.einsum("rni,rnu,rnj->ruij", phi, scale.square(), phi), 0
    residual = (y - phi @ mean) * scale
    if given["rest"] is not None:
        matrices, total = matrices + dense(given["rest"]), given["shift"]
    total = total + phi.mT @ (residual * scale)
    drawn = given["start"] + total.unsqueeze(1) - torch.einsum("rni,rnu,rcnu->rciu", phi, scale, given["draws"])
    right = torch.cat([total.unsqueeze(1), drawn], 1).transpose(1, 2)
    solution, log_determinant, trace = dense_solve(matrices, right, prior)
    m = solution[:, :, 0]
    log_determinant = log_determinant + 2 * given["log_scale"][0]
    kl = 0.5 * (trace + torch.einsum("riu,uij,rju->ru", m, prior, m) + log_determinant)
    log_evidence = -0.5 * (residual.square().sum(1) - (total * m).sum(1) + log_determinant)
    return solution[:, :, 1:].transpose(1, 2), kl.unsqueeze(1), log_evidence.unsqueeze(1)


def update_gradients(given: dict[str, Any]) -> list[torch.Tensor]:
    rows, samples, d, units = given["start"].shape
    like = given["phi"]
    return [normal(rows, samples, d, units, seed=12).to(like), *normal(2, rows, 1, units, seed=13).to(like)]


def differentiate_update(back_end: ModuleType, given: dict[str, Any]) -> dict[str, torch.Tensor]:
    found = update(back_end, given)
    (rows, n, d), units = given["phi"].shape, given["start"].shape[-1]
    into = base.UpdateInputGradients(
        precision=torch.zeros_like(given["precision"]),
        phi=unwritten(given["phi"], *given["phi"].shape),
        scale=unwritten(given["phi"], rows, n, units),
        y=unwritten(given["phi"], rows, n, units),
        start=unwritten(given["phi"], *given["start"].shape),
        shift=unwritten(given["phi"], rows, d, units),
    )
    kept = part_of(given, base.UpdateData), part_of(found, base.UpdateSolution)
    back_end.differentiate_update(slice(0, rows), *kept, base.UpdateGradients(*update_gradients(given)), into)
    return vars(into)


def dense_gradients(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    rows = len(given["phi"])
    whole = {name: x.repeat_interleave(rows // len(x), 0) for name, x in given.items() if name in ("scale", "y")}
    names = ["precision", "phi", "scale", "y", "start", *(["shift"] if given["shift"] is not None else [])]
    given_whole = {name: x for name, x in {**given, **whole}.items() if x is not None}
    leaves: dict[str, Any] = {name: x.clone().requires_grad_(name in names) for name, x in given_whole.items()}
    leaves = {**dict.fromkeys(given), **leaves}
    grads = torch.autograd.grad(dense_update(leaves), [leaves[name] for name in names], update_gradients(given))
    found = dict(zip(names, grads, strict=True))
    d = given["phi"].shape[2]
    if given["precision"].shape[1] != d:  # each pair once, where the loops have the two halves of a symmetric matrix
        i, j = torch.tril_indices(d, d)
        found["precision"] = found["precision"] * torch.where(i == j, 1.0, 0.5)[:, None]
    return found


@every_back_end
@full_and_diagonal
@every_shape
@pytest.mark.parametrize("points", [0, 1, 7, 32, 70])
def test_updates_and_their_derivatives_are_those_of_dense_matrices(points, shape, diagonal, back_end):
    given = update_problem(shape, points, diagonal)
    found = update(back_end, given)
    expected = dict(zip(("centred", "kl", "log_evidence"), dense_update(given), strict=True))
    assert_close({name: found[name] for name in expected}, expected)
    if shape.size > 1 or not diagonal:  # one feature: a diagonal is a matrix
        assert_close(differentiate_update(back_end, given), dense_gradients(given))


@every_back_end
@full_and_diagonal
@pytest.mark.parametrize("mean_rows", [1, 6])
def test_rows_of_an_update_may_stand_for_several_and_other_points_may_be_none(mean_rows, diagonal, back_end):
    given = update_problem(Shape(3, 3, 50, 5), 7, diagonal, several=2)
    given["mean"] = given["mean"][:mean_rows]
    given |= {"rest": None, "shift": None}
    found = update(back_end, given)
    expected = dict(zip(("centred", "kl", "log_evidence"), dense_update(given), strict=True))
    assert_close({name: found[name] for name in expected}, expected)
    gradients = differentiate_update(back_end, given)
    expected = dense_gradients(given)
    assert_close({name: gradients[name] for name in expected}, expected)


@every_back_end
def test_a_part_of_the_rows_is_updated_and_no_other(back_end):
    given = update_problem(STRADDLING, 7, diagonal=True)
    whole = update(back_end, given)
    part = {name: torch.full_like(values, -1) for name, values in whole.items()}
    results = part_of(part, base.UpdateSolution), part_of(part, base.UpdateValues)
    back_end.update(slice(1, 2), part_of(given, base.UpdateData), part_of(given, base.UpdateOffsets), *results)
    for name, values in part.items():
        torch.testing.assert_close(values[1], whole[name][1])
        assert bool((values[[0, 2]] == -1).all())


@every_back_end
def test_derivatives_that_are_not_needed_are_not_written(back_end):
    given = update_problem(STRADDLING, 7, diagonal=True)
    kept = part_of(given, base.UpdateData), part_of(update(back_end, given), base.UpdateSolution)
    written = {name: unwritten(given["phi"], *given[name].shape) for name in ("scale", "y", "start", "shift")}
    into, gradients = (
        base.UpdateInputGradients(precision=None, phi=None, **written),
        base.UpdateGradients(*update_gradients(given)),
    )
    back_end.differentiate_update(slice(0, STRADDLING.rows), *kept, gradients, into)
    expected = dense_gradients(given)
    assert_close(written, {name: expected[name] for name in written})


# --- Gram matrices ---------------------------------------------------------------------------------------------------


def gram_problem(points: int, shape: Shape) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    phi, scale = (
        normal(shape.rows, points, shape.size),
        torch.exp(0.3 * normal(shape.rows, points, shape.units, seed=1)),
    )
    return phi, scale, normal(shape.rows, pairs(shape.size), shape.units, seed=2)


def dense_gram(phi: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return packed(torch.einsum("rni,rnu,rnj->ruij", phi, scale.square(), phi))


@every_back_end
@every_shape
@pytest.mark.parametrize("points", [1, 7, 32, 70])
def test_weighted_gram_matrices(points, shape, back_end):
    phi, scale, others = gram_problem(points, shape)
    gram = others.clone()
    back_end.add_weighted_gram(slice(0, shape.rows), phi, scale, gram)
    assert_close({"gram": gram}, {"gram": others + dense_gram(phi, scale)})


@every_back_end
def test_a_point_that_is_not_finite_spoils_its_own_row_alone(back_end):
    phi, scale, gram = gram_problem(7, STRADDLING)
    phi[0, 3, 1] = torch.nan
    expected = gram[1:] + dense_gram(phi[1:], scale[1:])
    back_end.add_weighted_gram(slice(0, len(phi)), phi, scale, gram)
    assert bool(gram[0].isnan().any())
    assert_close({"gram": gram[1:]}, {"gram": expected})


# --- float32 ---------------------------------------------------------------------------------------------------------


def single(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.float() for tensor in tensors]


@every_back_end
@every_shape
def test_float32_agrees_with_float64_for_scaled_matrices(shape, back_end):
    inputs = scaled_problem(shape)
    grads = [normal(*inputs[2].shape, seed=3), *normal(2, shape.rows, shape.units, seed=4)]
    found = invert_scaled(back_end, *single(*inputs))
    assert {x.dtype for x in found.values()} == {torch.float32}
    assert_close(found, invert_scaled(back_end, *inputs), tolerance=1e-4)
    assert_close(
        differentiate_scaled(back_end, single(*inputs), single(*grads)),
        differentiate_scaled(back_end, inputs, grads),
        tolerance=1e-4,
    )


@every_back_end
@full_and_diagonal
@every_shape
def test_float32_agrees_with_float64_for_updates(shape, diagonal, back_end):
    given = update_problem(shape, 7, diagonal)
    in_single = {name: x.float() for name, x in given.items()}
    found = update(back_end, in_single)
    assert {x.dtype for x in found.values()} == {torch.float32}
    assert_close(found, update(back_end, given), tolerance=1e-3)
    assert_close(differentiate_update(back_end, in_single), differentiate_update(back_end, given), tolerance=1e-3)


# --- health ----------------------------------------------------------------------------------------------------------

BAD = {"indefinite": -100.0, "nan": math.nan, "inf": math.inf}
every_flaw = pytest.mark.parametrize("value", BAD.values(), ids=BAD.keys())
every_place = pytest.mark.parametrize("place", [(0, 0), (2, 2), (2, 0)], ids=["first", "last", "beside"])
LANES_HIT = [(0, 0), (1, 20), (2, 49)]  # the first, one in the middle and the very last


def assert_bad_only_where_hit(found: dict[str, torch.Tensor], sound: dict[str, torch.Tensor]) -> None:
    hit = torch.zeros(STRADDLING.rows, STRADDLING.units, dtype=torch.bool)
    for lane in LANES_HIT:
        hit[lane] = True
    assert torch.equal(found["health"].isnan(), hit)
    others = [values.movedim(-1, 1)[~hit] for results in (found, sound) for values in results.values()]
    half = len(others) // 2
    torch.testing.assert_close(others[:half], others[half:], rtol=1e-12, atol=1e-12)


@every_back_end
@every_flaw
@every_place
def test_a_bad_scaled_matrix_has_no_health_and_leaves_the_others_alone(place, value, back_end):
    gram, scale, right = scaled_problem(STRADDLING)
    sound = invert_scaled(back_end, gram, scale, right)
    i, j = place
    for row, unit in LANES_HIT:
        gram[row, i, j, unit] = gram[row, j, i, unit] = value
    assert_bad_only_where_hit(invert_scaled(back_end, gram, scale, right), sound)


@every_back_end
@full_and_diagonal
@every_flaw
@every_place
def test_a_bad_added_matrix_has_no_health_and_leaves_the_others_alone(place, value, diagonal, back_end):
    precision, gram, right = added_problem(STRADDLING, diagonal)
    sound = invert_added(back_end, precision, gram, right)
    for row, unit in LANES_HIT:
        gram[row, pair_index(STRADDLING.size)[place], unit] = value
    assert_bad_only_where_hit(invert_added(back_end, precision, gram, right), sound)


@every_back_end
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_health_tells_a_nearly_singular_matrix_from_others(dtype, back_end):
    """Nearly singular: points with equal features and much less noise than the prior has variance."""
    gram, scale, right = (x.to(dtype) for x in scaled_problem(STRADDLING))
    gram[1, ..., 20] = 1
    scale[1, :, 20] = 300
    health = invert_scaled(back_end, gram, scale, right)["health"]
    assert health[1, 20] < 1e-4
    health[1, 20] = 1
    assert health.min() > 1e-2


@every_back_end
@full_and_diagonal
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_health_tells_a_nearly_singular_precision_from_others(dtype, diagonal, back_end):
    precision, gram, right = (x.to(dtype) for x in added_problem(STRADDLING, diagonal))
    features = torch.tensor([1.0, 1.0, 0.1], dtype=dtype)
    gram[1, :, 20] = packed(1e5 * torch.outer(features, features)[None])[:, 0]
    health = invert_added(back_end, precision, gram, right)["health"]
    assert health[1, 20] < 1e-4
    health[1, 20] = 1
    assert health.min() > 1e-2


def test_health_does_not_depend_on_scale():
    precision, gram, right = added_problem(STRADDLING, diagonal=False)
    shrink = packed(torch.outer(*[torch.tensor([1e-8, 1.0, 1e6], dtype=torch.float64)] * 2)[None])
    expected = invert_added(kernels, precision, gram, right)["health"]
    for back_end in BACK_ENDS:
        health = invert_added(back_end, precision * shrink, gram * shrink, right)["health"]
        torch.testing.assert_close(health, expected, rtol=1e-9, atol=0)


@every_back_end
@pytest.mark.parametrize(("dtype", "strength"), [(torch.float32, 1e4), (torch.float64, 1e11)], ids=str)
def test_no_more_digits_are_lost_to_collinear_features_than_must_be(dtype, strength, back_end):
    """`I + c (f f^T + g g^T)` with a closed-form inverse: the error may grow with its condition, not the square."""
    f, g = torch.linalg.qr(normal(21, 2)).Q.T.to(dtype)
    gram = packed(strength * (torch.outer(f, f) + torch.outer(g, g))[None, None])
    ones = torch.ones(21, 1, dtype=dtype)
    found = invert_added(back_end, ones, gram, ones[None, :, None])
    expected = torch.eye(21, dtype=dtype) - (torch.outer(f, f) + torch.outer(g, g)) / (1 + 1 / strength)
    error = (dense(found["inverse"])[0, 0] - expected).abs().max()
    assert error < 2 * strength * torch.finfo(dtype).eps
    assert found["log_determinant"].item() == pytest.approx(2 * math.log1p(strength), rel=1e-2)


# --- the solves that use them ----------------------------------------------------------------------------------------

TASKS, SAMPLES, POINTS, FEATURES, UNITS, COLUMNS = 2, 3, 5, 4, 33, 2


def solves(function, matrices: torch.Tensor, noise_samples: int) -> list[torch.Tensor]:
    """Values of the solve, and their derivatives in the directions of fixed numbers."""
    inputs = [
        matrices,
        normal(TASKS, SAMPLES, POINTS, FEATURES, seed=5),
        torch.exp(0.3 * normal(TASKS, noise_samples, POINTS, UNITS, seed=6)),
        normal(TASKS, SAMPLES, POINTS, COLUMNS, UNITS, seed=7),
    ]
    leaves = [x.clone().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    grads = torch.autograd.grad(
        outputs, leaves, [normal(*output.shape, seed=8 + k) for k, output in enumerate(outputs)]
    )
    of_matrices = grads[0] if matrices.ndim == 2 else symmetric(grads[0])
    return [*(output.detach() for output in outputs), of_matrices, *grads[1:]]


def dense_function_space(covariance, phi, inverse_noise, right):
    whole = torch.diag_embed(covariance) if covariance.ndim == 2 else covariance
    gram = torch.einsum("tsnd,ude,tsme->tsunm", phi, whole, phi)
    d = inverse_noise.mT
    matrices = d.unsqueeze(-1) * gram * d.unsqueeze(-2) + torch.eye(POINTS, dtype=torch.float64)
    return dense_forms(matrices, right, torch.eye(POINTS, dtype=torch.float64))


def dense_forms(matrices, right, weights):
    solution, logs, traces = dense_solve(matrices.flatten(0, 1), right.flatten(0, 1), weights)
    return solution.view(right.shape), logs.view(TASKS, SAMPLES, UNITS), traces.view(TASKS, SAMPLES, UNITS)


def only(monkeypatch, back_end: ModuleType) -> None:
    """Put the other back end out of reach."""
    if back_end is lapack:
        monkeypatch.setattr(kernels, "LARGEST", 0)
        monkeypatch.setattr(kernels, "_call", None)
    else:
        monkeypatch.setattr(lapack, "_invert", None)
        monkeypatch.setattr(lapack, "_matrix_gradient", None)


@full_and_diagonal
@pytest.mark.parametrize("noise_samples", [1, SAMPLES])
def test_solves_and_their_derivatives_are_the_same_with_both_back_ends(monkeypatch, noise_samples, diagonal):
    prior = positive_definite(UNITS, FEATURES, seed=4)
    matrices = prior.diagonal(dim1=-2, dim2=-1).contiguous() if diagonal else prior
    expected = solves(dense_function_space, matrices, noise_samples)
    for back_end in BACK_ENDS:
        with monkeypatch.context() as patch:
            only(patch, back_end)
            found = solves(solve_in_function_space, matrices, noise_samples)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def update_inputs(points: int, diagonal: bool, shared: bool, others: bool) -> list[torch.Tensor]:
    """For two units and three features, as `update_in_weight_space` takes them, with derivatives where they have some.

    shared: features of all samples are the same;  others: there are other points than those given.
    """
    tasks, samples, units, d = 2, 3, 2, 3
    phi_samples = 1 if shared else samples
    factor = positive_definite(units, d, seed=1)
    inputs = [
        factor.diagonal(dim1=-2, dim2=-1).clone() if diagonal else factor,
        normal(units, seed=2),
        normal(1, 1, units, d, seed=3) if shared else normal(tasks, samples, units, d, seed=3),
        normal(tasks, phi_samples, points, d, seed=4),
        torch.exp(0.3 * normal(tasks, 1, units, points, seed=5)),
        normal(tasks, 1, units, points, seed=6),
        normal(tasks, samples, units, d, seed=7),
        normal(tasks, samples, units, points, seed=8),
    ]
    leaves = [x.requires_grad_() for x in inputs]
    if not others:
        return leaves
    gram = packed(positive_definite(tasks, phi_samples, units, d, seed=9))
    return [*leaves, gram, normal(tasks, phi_samples, d, units, seed=10).requires_grad_()]


def symmetric_update(precision, *others):
    return update_in_weight_space(precision if precision.ndim == 2 else symmetric(precision), *others)


@every_back_end
@full_and_diagonal
@pytest.mark.parametrize("points", [0, 2, 5])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "persample"])
@pytest.mark.parametrize("others", [True, False], ids=["others", "alone"])
def test_derivatives_of_updates_agree_with_finite_differences(monkeypatch, others, shared, points, diagonal, back_end):
    only(monkeypatch, back_end)
    assert torch.autograd.gradcheck(symmetric_update, update_inputs(points, diagonal, shared, others))


@full_and_diagonal
@pytest.mark.parametrize("points", [0, 2, 5])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "persample"])
def test_updates_and_their_derivatives_are_the_same_with_both_back_ends(monkeypatch, shared, points, diagonal):
    found = []
    for back_end in BACK_ENDS:
        leaves = update_inputs(points, diagonal, shared, others=False)
        with monkeypatch.context() as patch:
            only(patch, back_end)
            outputs = update_in_weight_space(*leaves)
            grads = torch.autograd.grad(
                outputs, leaves, [normal(*output.shape, seed=8 + k) for k, output in enumerate(outputs)]
            )
        found.append([*(output.detach() for output in outputs), *grads])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
