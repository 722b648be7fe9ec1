"""Models on another device than the CPU, which torch can imitate: tensors that have a device but no numbers.

Torch refuses operations whose tensors are on different devices, as a real device would.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import bnnp
from bnnp.models import enough
from bnnp.numerics.symmetric import _places
from bnnp.objectives import AVI, NPML, NPVI, PPAVI, TELLAVI
from bnnp.tasks.task import Split, SplitBatch, Task

DEVICE = "meta"
X, Y = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None], torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]


class Healthy(TorchDispatchMode):
    """Tensors without numbers do not know whether they are finite and matrices healthy; here they are."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            return args[0].dtype != torch.bool
        if func is torch.ops.aten.nonzero.default:
            return args[0].new_empty((0, args[0].ndim), dtype=torch.int64)
        return func(*args, **(kwargs or {}))


@pytest.fixture(params=["unitwise", "networkwise"])
def model(request):
    made = bnnp.BNNP(1, 1, (3,), prior=request.param, likelihood=bnnp.Gaussian(0.1))
    _places.cache_clear()  # of the places made on an imagined device elsewhere, which is not this one
    with FakeTensorMode(allow_non_fake_inputs=True), Healthy():
        yield made.to(DEVICE)
    _places.cache_clear()


@pytest.mark.parametrize("objective", [PPAVI, AVI, NPML, NPVI, TELLAVI])
@pytest.mark.parametrize("integrate", [True, False])
def test_objectives_and_their_derivatives(objective, integrate, model):
    splits = [Split(Task(X[:3], Y[:3]), Task(X[3:], Y[3:])), Split(Task(X, Y), Task(X[:1], Y[:1]))]
    batch = SplitBatch.of(splits, device=DEVICE)
    prepared = SplitBatch(model.prepare(batch.context), model.prepare(batch.target))
    total = objective(integrate=integrate)(model, prepared, torch.Generator().manual_seed(0)).total()
    total.sum().backward()
    assert total.device.type == DEVICE
    assert {parameter.grad.device.type for parameter in model.prior.parameters()} == {DEVICE}


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_posteriors_and_their_predictions(chunk_size, model):
    post = model.condition(X, Y, num_samples=4, chunk_size=chunk_size)
    assert {weights.device.type for weights in post.weights} == {DEVICE}
    assert {weights.device.type for weights in post.update(X, Y).weights} == {DEVICE}
    assert post.mixture_at(torch.rand(3, 1, device=DEVICE)).means.device.type == DEVICE


def test_inputs_by_which_the_number_of_samples_is_judged(model):
    like = model.columns.x_shift
    found = enough.probes(torch.rand(5, 1, device=DEVICE), like, 1, torch.Generator().manual_seed(0))
    assert found.device.type == DEVICE


def test_a_tensor_on_the_cpu_would_be_noticed(model):
    with pytest.raises(RuntimeError, match="same device"):
        model.columns.standardise_x(torch.zeros(2, 1))
