import numpy as np
import pytest
import torch

from bnnp.numerics.bends import bends_at, bends_over, in_units


def points(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_bends_are_those_of_numpy():
    x = points(50, 3)
    table, new = bends_over(x, [0, 2]), 2 * points(5, 2, 3)

    def bends(column: int, at: np.ndarray) -> np.ndarray:
        values = x[:, column].numpy()
        width = np.subtract(*np.quantile(values, [0.95, 0.05]))
        places = np.quantile(values, [0.5, 0.2, 0.5, 0.8])
        return np.tanh((at[..., column, None] - places) * np.array([1.0, 6.0, 6.0, 6.0]) / width)

    expected = [bends(column, new.numpy()) - bends(column, x.numpy()).mean(0) for column in (0, 2)]
    np.testing.assert_allclose(bends_at(table, new), np.concatenate(expected, -1), rtol=1e-12)


def test_constant_inputs_have_no_bends():
    x = points(10, 2)
    x[:, 1] = 3.0
    assert bends_over(x, [0, 1])[:, 0].tolist() == [0.0] * 4
    assert bends_over(x, [1]).shape == bends_over(x, []).shape == (0, 4)


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.0] * 40 + [1.0]])
def test_an_input_of_two_values_has_bends_that_are_finite_and_differ(values):
    x = torch.tensor(values, dtype=torch.float64)[:, None]
    low, high = bends_at(bends_over(x, [0]), torch.tensor([[0.0], [1.0]]).double())
    assert bool(torch.isfinite(low).all())
    assert bool((high > low).all())


def test_bends_in_other_units_are_the_same_functions():
    x, shift, scale = points(20, 2), torch.tensor([5.0, -2.0]).double(), torch.tensor([0.1, 30.0]).double()
    table = bends_over(x, [0, 1])
    np.testing.assert_allclose(
        bends_at(in_units(table, shift, scale), x * scale + shift), bends_at(table, x), atol=1e-9
    )
