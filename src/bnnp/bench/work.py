"""What is timed: a training step or a prediction of the library, and the matrix products that it needs in any case."""

from collections.abc import Callable, Iterator

import torch

from bnnp.bench.settings import Setting
from bnnp.objectives import PPAVI
from bnnp.training.step import differentiate

Work = Callable[[], object]


def library_work(setting: Setting) -> Work:
    """A step (forward, backward, Adam) or a prediction, as users run it."""
    model, batch = setting.model(), setting.batch()
    if not setting.training:
        x, y = batch.context.x[0], batch.context.y[0]
        samples = None if setting.by_itself else setting.samples
        return lambda: model.condition(x, y, num_samples=samples).predict(batch.target.x[0])
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=1e-4, fused=True)
    objective = PPAVI(setting.samples)

    def step() -> None:
        differentiate(model, objective, batch, parameters, 0)
        optimiser.step()

    return step


def products(setting: Setting) -> Iterator[tuple[int, int, int, int]]:
    """Shapes (batch, rows, inner, columns) of the matrix products that a setting needs in any case."""
    n, target = setting.context, setting.points - setting.context
    for layer, (size_in, units) in enumerate(zip(setting.sizes, setting.sizes[1:], strict=False)):
        d, samples = size_in + 1, setting.tasks * setting.samples
        updates = setting.tasks if layer == 0 else samples
        pairs = d * (d + 1) // 2
        if n > d:
            yield updates, pairs, n, units
            if setting.training:
                yield updates, n, pairs, units
                yield updates, n, units, pairs
        else:
            diagonal = setting.prior == "factorised"
            if not diagonal:
                yield 1, updates * n, d, units * d
            yield updates, n, d, n * units
            if setting.training:
                yield updates, n * units, n, d
                if not diagonal:
                    yield 1, updates * n, units * d, d
                    yield 1, d, updates * n, units * d
        for points in (n, target):
            yield samples, points, d, units
            if setting.training:
                yield samples, d, points, units
                yield samples, points, units, d


def limit_work(setting: Setting) -> Work:
    """Only the products, with results written into memory that is allocated before."""
    tensors = []
    for batch, rows, inner, columns in products(setting):
        tensors.append(
            (torch.randn(batch, rows, inner), torch.randn(batch, inner, columns), torch.empty(batch, rows, columns))
        )

    def multiply() -> None:
        for left, right, result in tensors:
            torch.bmm(left, right, out=result)

    return multiply
