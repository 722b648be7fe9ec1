"""Samples of many tasks side by side, without derivatives, in which no bit of a task depends on the others.

A product with rows of all tasks in one matrix may round a row differently at another place. So large products are made
task by task, in the same arrays; the compiled loops treat all matrices alike. `gaussian.py` has the equations.
"""

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.backends import back_end_for, base
from bnnp.numerics.health import check_health
from bnnp.numerics.records import Observations, UnitPrior, UpdateDraws, unit_products
from bnnp.numerics.solve import update_in_weight_space


@torch.no_grad()
def sample_each(
    prior: UnitPrior, phi: Float[Tensor, "tasks phi_samples points d"], seen: Observations, draws: UpdateDraws
) -> Float[Tensor, "tasks samples units d"]:
    """Samples of the posterior of every unit, of tasks that share the draws: those of `condition`, to rounding.

    Args:
        prior: Of each unit; all tasks and samples have the same mean.
        phi: Features of the points, for each sample or one for all samples.
        seen: Pseudo-observations, the same for all samples.
        draws: Standard normal draws of one task.

    Raises:
        FactorisationError: If a posterior precision is not positive definite, or the prior is close to singular.
    """
    (tasks, _, n, d), samples = phi.shape, draws.weights.shape[1]
    if n == 0:
        return prior.weights(draws.weights).expand(tasks, -1, -1, -1)
    if n > d:
        start = unit_products(prior.whitener if prior.is_diagonal else prior.whitener.mT, draws.weights)
        own = [values.expand(tasks, *values.shape[1:]) for values in (start, draws.points)]
        numbers = (prior.precision, prior.log_determinants, prior.mean, phi, seen.inverse_noise, seen.y, *own)
        return update_in_weight_space(*numbers)[0] + prior.mean
    starts = prior.weights(draws.weights)[0]
    work = _FunctionSpace(prior, starts, draws.points[0], phi.shape[1:])
    found = phi.new_empty(tasks, samples, *starts.shape[1:])
    for task in range(tasks):
        found[task] = work.sample(phi[task], seen.y[task, 0].mT, seen.inverse_noise[task, 0].mT)
    check_health(torch.stack(work.healths))
    return found


class _FunctionSpace:
    """Samples of one task after the other through `M`, an n x n matrix per unit, in arrays that are made once."""

    def __init__(self, prior: UnitPrior, starts: Tensor, points: Tensor, shape: torch.Size):
        (rows, n, d), (samples, units, _) = shape, starts.shape
        self.covariance, self.starts, self.points = prior.covariance, starts, points.mT
        self.beside = None if prior.is_diagonal else self.covariance.transpose(0, 1).reshape(d, units * d)
        self.features, self.weighted = starts.new_empty(rows, n, d), starts.new_empty(rows * n, units * d)
        self.gram, self.scale = starts.new_empty(rows, n, n * units), starts.new_empty(rows, n, units)
        self.right = starts.new_empty(rows, n, samples // rows, units)
        self.inverse, self.solved = starts.new_empty(rows, n * (n + 1) // 2, units), torch.empty_like(self.right)
        self.back_end, self.healths = back_end_for(n, starts.device), []

    def sample(self, phi: Tensor, y: Tensor, inverse_noise: Tensor) -> Float[Tensor, "samples units d"]:
        """The samples of a task with features (rows, n, d) and pseudo-observations (n, units)."""
        (rows, n, d), (samples, units, _) = phi.shape, self.starts.shape
        self.features.copy_(phi)
        self.scale.copy_(inverse_noise)
        each = self.features.expand(samples, n, d)
        drawn = (y - torch.bmm(each, self.starts.mT)) * inverse_noise - self.points
        self.right.copy_(drawn.view(rows, samples // rows, n, units).transpose(1, 2))
        if self.beside is None:
            torch.mul(self.features.unsqueeze(2), self.covariance, out=self.weighted.view(rows, n, units, d))
        else:
            torch.mm(self.features.view(-1, d), self.beside, out=self.weighted)
        torch.bmm(self.features, self.weighted.view(rows, n * units, d).mT, out=self.gram)
        values = base.ScaledValues(*phi.new_empty(3, rows, units))
        data, solution = base.ScaledData(self.scale, self.right), base.ScaledSolution(self.inverse, self.solved)
        self.back_end.invert_scaled(self.gram.view(rows, n, n, units), data, solution, values)
        self.healths.append(values.health)
        solved = self.solved.transpose(1, 2).reshape(samples, n, units) * inverse_noise
        pulled = torch.bmm(solved.mT, each)
        if self.beside is None:
            return self.starts + pulled * self.covariance
        return self.starts + torch.bmm(pulled.transpose(0, 1), self.covariance).transpose(0, 1)
