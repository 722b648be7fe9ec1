"""How much hidden weights move functions, against derivatives that are written out."""

import pytest
import torch

from bnnp.networks.perceptron import Network
from bnnp.priors.starts.sensitivity import moves_of_functions

HIDDEN = torch.tensor([[0.5, -1.0, 2.0], [0.1, 0.2, -0.3]], dtype=torch.float64)
"""Weights of three units of one input and a bias."""
LAST = torch.tensor([[1.0, -2.0, 0.5, 0.7], [0.3, 0.0, -1.0, 2.0]], dtype=torch.float64)
"""Weights of two outputs."""


def squared_slope(x: float, output: int) -> float:
    """Squared norm of the derivative of an output by the hidden weights: `w_u (1 - tanh^2) (x, 1)` for each unit."""
    bend = 1 - torch.tanh(x * HIDDEN[0] + HIDDEN[1]).square()
    return float((LAST[output, :3] * bend).square().sum() * (x**2 + 1))


@pytest.mark.parametrize("noises", [(0.1, 0.1), (0.1, 3.0)])
def test_moves_are_shares_of_the_noise_at_each_point(noises):
    x, far = [0.4, -1.3], 1e9  # a point of endless noise counts as one that does not move, so that no products are left
    for point, noise in enumerate(noises):
        at = torch.full((2, 2), far, dtype=torch.float64)
        at[point] = noise
        columns = torch.tensor(x, dtype=torch.float64)[:, None]
        (found,) = moves_of_functions(
            Network((1, 3, 2), "tanh"), [HIDDEN], columns, LAST, torch.zeros(2, 4, 4).double(), at
        )
        wanted = torch.tensor([squared_slope(x[point], output) / noise**2 / 2 for output in range(2)]).sqrt()
        torch.testing.assert_close(found, wanted.double(), rtol=1e-6, atol=0)
