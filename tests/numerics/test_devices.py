"""Updates on another device than the CPU, which torch can imitate: tensors that have a device but no numbers.

Torch refuses operations whose tensors are on different devices, as a real device would.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bnnp.numerics.gaussian import condition, condition_on, function_space, weight_space, whitened_space
from bnnp.numerics.natural import log_density_at_sample, natural_parameters, posterior_moments
from bnnp.numerics.records import Observations, UnitPrior, UpdateDraws
from bnnp.numerics.symmetric import solve_one_plus

DEVICE = "meta"
TASKS, SAMPLES, UNITS, D = 2, 3, 2, 4
every_prior = pytest.mark.parametrize("diagonal", [True, False], ids=["diagonal", "full"])
every_size = pytest.mark.parametrize("points", [3, 9])


class Elsewhere(TorchDispatchMode):
    """Nothing is made on the CPU. Tensors without numbers do not know whether matrices were healthy; they were."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            return args[0].dtype != torch.bool
        made = func(*args, **(kwargs or {}))
        assert "cpu" not in {x.device.type for x in tree_leaves(made) if isinstance(x, torch.Tensor)}, func
        return made


@pytest.fixture(autouse=True)
def imagined_device():
    with FakeTensorMode(), Elsewhere():
        yield


def tensor(*shape: int) -> torch.Tensor:
    return torch.rand(shape, device=DEVICE, requires_grad=True)


def problem(points: int, diagonal: bool):
    prior = UnitPrior(tensor(TASKS, SAMPLES, UNITS, D), tensor(UNITS, D) if diagonal else tensor(UNITS, D, D))
    shape = (TASKS, SAMPLES, UNITS, points)
    seen = Observations(tensor(*shape), tensor(*shape))
    return prior, tensor(TASKS, SAMPLES, points, D), seen, UpdateDraws(tensor(TASKS, SAMPLES, UNITS, D), tensor(*shape))


def assert_differentiable(*results: torch.Tensor) -> None:
    assert {result.device.type for result in results} == {DEVICE}
    torch.autograd.backward([result.sum() for result in results])


@every_prior
@every_size
@pytest.mark.parametrize("form", [function_space, weight_space, whitened_space, condition])
def test_updates_and_their_derivatives(form, points, diagonal):
    given = problem(points, diagonal)
    update = form(*given)
    assert_differentiable(update.whitened, update.kl, update.log_evidence)
    assert given[1].grad is not None


@every_prior
def test_sums_over_data(diagonal):
    prior, phi, seen, draws = problem(9, diagonal)
    sums = natural_parameters(prior.mean, phi, seen, draws.points)
    update = condition_on(prior, sums + sums, draws.weights)
    double = prior.to(torch.float64)
    assert_differentiable(log_density_at_sample(double, update, sums), *posterior_moments(double, sums))


def test_inverses():
    assert_differentiable(*solve_one_plus(tensor(5, D, D), tensor(5, D)))


def test_a_tensor_on_the_cpu_would_be_noticed():
    with pytest.raises(AssertionError, match="eye"):
        torch.eye(3).to(tensor(3))
