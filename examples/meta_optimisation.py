"""Bayesian optimisation over related tasks

Takeaway: a prior from related functions saves evaluations of the next one: here the top was nearly found after five.
A Gaussian process that was given the mean of all functions needed ten; without it, it stayed behind.

    python examples/meta_optimisation.py OUT_FOLDER

The functions are shifted and stretched copies of Branin's function, observed with noise. From 60 of them, 40 random
points each, a BNNP learns its prior. The Gaussian processes that it is compared with learn nothing from them, or
their hyperparameters, or also a mean function: what all functions have in common. On new functions each method starts
from the same two random points. Needs `pip install 'bnnp[botorch]'`. Few repeats: `--repeats 20 --tasks 100 --minutes
5` gives smaller standard errors, in about half an hour on one core.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import gpytorch
import numpy as np
import torch
import typer
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling.get_sampler import get_sampler
from matplotlib.figure import Figure
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import bnnp
from bnnp.botorch import BNNPModel

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
NOISE, FIRST = 0.05, 2
Surrogate = Callable[[torch.Tensor, torch.Tensor], AcquisitionFunction]


class Shifted:
    """Branin's function upside down, shifted by up to 0.2 of the square and stretched by 0.8 to 1.2."""

    def __init__(self, generator: torch.Generator):
        self.shift = 0.4 * torch.rand(2, generator=generator, dtype=torch.float64) - 0.2
        self.stretch = 0.8 + 0.4 * torch.rand(1, generator=generator, dtype=torch.float64)
        grid = torch.linspace(0, 1, 201, dtype=torch.float64)
        self.best = float(self(torch.cartesian_prod(grid, grid)).max())

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        u, v = (15 * (x + self.shift) + torch.tensor([-5.0, 0.0], dtype=torch.float64)).T
        valley = v - 5.1 / (4 * torch.pi**2) * u**2 + 5 / torch.pi * u - 6
        value = valley**2 + 10 * (1 - 1 / (8 * torch.pi)) * torch.cos(u) + 10
        return -(self.stretch * value / 50).unsqueeze(-1)


def points(function: Shifted, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    return x, observed(function, x, generator)


def observed(function: Shifted, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return function(x) + NOISE * torch.randn(len(x), 1, generator=generator, dtype=torch.float64)


def with_bnnp(data: list[tuple[torch.Tensor, torch.Tensor]], minutes: float) -> Surrogate:
    model = bnnp.BNNP(2, 1, (48, 48), "silu", last_layer="likelihood", dtype=torch.float64, seed=0)
    bnnp.learn(model, bnnp.tasks.from_arrays(data), minutes=minutes, progress=False, seed=0)

    def surrogate(x: torch.Tensor, y: torch.Tensor) -> AcquisitionFunction:
        own = BNNPModel(model, x, y, num_samples=128)
        best = own.posterior(x).mean.max()
        return qLogExpectedImprovement(own, best, get_sampler(own.posterior(x), torch.Size([128])))

    return surrogate


def with_gp(x: torch.Tensor, y: torch.Tensor) -> AcquisitionFunction:
    own = SingleTaskGP(x, y)
    fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(own.likelihood, own))
    return LogExpectedImprovement(own, own.posterior(x).mean.max())


class SharedMean(gpytorch.means.Mean):
    """What all functions have in common: the mean of a Gaussian process of points of all of them together."""

    def __init__(self, data: list[tuple[torch.Tensor, torch.Tensor]], most: int = 400):
        super().__init__()
        x, y = (torch.cat(parts) for parts in zip(*data, strict=True))
        rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:most]
        kernel = ConstantKernel() * RBF(np.array([0.5, 0.5])) + WhiteKernel()  # pyright: ignore[reportArgumentType]
        fitted = GaussianProcessRegressor(kernel, random_state=0).fit(x[rows].numpy(), y[rows].numpy())
        height, *scales, _ = np.exp(fitted.kernel_.theta)  # pyright: ignore[reportAttributeAccessIssue]
        self.scales, self.x, self.weights = torch.tensor(scales), x[rows], height * torch.as_tensor(fitted.alpha_)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        distances = ((x.unsqueeze(-2) - self.x) / self.scales).square().sum(-1)
        return (torch.exp(-distances / 2) @ self.weights).squeeze(-1)


def with_transferred_gp(
    data: list[tuple[torch.Tensor, torch.Tensor]], steps: int, mean: gpytorch.means.Mean
) -> Surrogate:
    """Length scales, output scale and noise (and a constant mean) from all functions together, then fixed."""
    likelihood, mean = gpytorch.likelihoods.GaussianLikelihood().double(), mean.double()
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2)).double()

    def gp(x: torch.Tensor, y: torch.Tensor) -> SingleTaskGP:
        return SingleTaskGP(x, y, likelihood=likelihood, covar_module=kernel, mean_module=mean, outcome_transform=None)

    several = gpytorch.models.IndependentModelList(*(gp(x, y) for x, y in data))
    objective = gpytorch.mlls.SumMarginalLogLikelihood(
        gpytorch.likelihoods.LikelihoodList(*(own.likelihood for own in several.models)), several
    )
    parameters = {id(p): p for part in (likelihood, mean, kernel) for p in part.parameters()}
    optimiser = torch.optim.Adam(list(parameters.values()), lr=0.1)
    several.train()
    for _ in range(steps):
        optimiser.zero_grad()
        loss = -objective(several(*several.train_inputs), several.train_targets)  # pyright: ignore
        loss.backward()
        optimiser.step()

    def surrogate(x: torch.Tensor, y: torch.Tensor) -> AcquisitionFunction:
        own = gp(x, y).eval()
        return LogExpectedImprovement(own, own.posterior(x).mean.max())

    return surrogate


def regrets(function: Shifted, surrogate: Surrogate | None, evaluations: int, seed: int) -> list[float]:
    """How far the best point so far is below the best of all, without noise, after each evaluation."""
    generator = torch.Generator().manual_seed(seed)
    x, y = points(function, FIRST, generator)
    for step in range(evaluations - FIRST):
        if surrogate is None:
            new = torch.rand(1, 2, generator=generator, dtype=torch.float64)
        else:
            options: dict[str, bool | float | int | str] = {"maxiter": 30, "seed": 1000 * seed + step}
            new, _ = optimize_acqf(surrogate(x, y), BOUNDS, q=1, num_restarts=3, raw_samples=64, options=options)
        x, y = torch.cat([x, new]), torch.cat([y, observed(function, new, generator)])
    return (function.best - np.maximum.accumulate(function(x)[:, 0].numpy())).clip(min=0).tolist()


def figure(found: dict[str, np.ndarray]) -> Figure:
    drawn = Figure(figsize=(5.4, 3.8), layout="constrained")
    axes = drawn.subplots()
    for method, values in found.items():
        mean, error = values.mean(0), values.std(0, ddof=1) / len(values) ** 0.5
        steps = np.arange(1, values.shape[1] + 1)
        axes.errorbar(steps, mean, yerror(mean, error), capsize=2, label=method)
    axes.set(xlabel="evaluations", ylabel="regret, mean and standard error", yscale="log")
    axes.legend(fontsize=8)
    return drawn


def yerror(mean: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Bars that stay above zero on the logarithmic axis."""
    return np.stack([np.minimum(error, 0.9 * mean), error])


def main(
    folder: Annotated[Path, typer.Argument()] = Path("meta_optimisation"),
    tasks: int = 60,
    repeats: int = 5,
    evaluations: int = 10,
    minutes: float = 0.7,
    quick: bool = False,
) -> None:
    warnings.simplefilter("ignore")  # those of BoTorch and its optimisers
    if quick:
        tasks, repeats, evaluations, minutes = 4, 2, 3, 0.1
    steps = 2 if quick else 150
    generator = torch.Generator().manual_seed(0)
    data = [points(Shifted(generator), 40, generator) for _ in range(tasks)]
    methods: dict[str, Surrogate | None] = {
        "bnnp": with_bnnp(data, minutes),
        "GP, shared mean": with_transferred_gp(data, steps, SharedMean(data)),
        "GP, transferred": with_transferred_gp(data, steps, gpytorch.means.ConstantMean()),
        "GP": with_gp,
        "random search": None,
    }
    new = [Shifted(torch.Generator().manual_seed(10_000 + i)) for i in range(repeats)]
    found = {
        name: np.array([regrets(function, surrogate, evaluations, i) for i, function in enumerate(new)])
        for name, surrogate in methods.items()
    }
    print(f"Regret: how far the best point so far is below the best of all. Means over {repeats} new functions.")
    counts = sorted({3, 5, evaluations} & set(range(evaluations + 1)))
    print("after evaluation    " + "".join(f"{count:>16}" for count in counts))
    for name, values in found.items():
        means, errors = values.mean(0), values.std(0, ddof=1) / len(values) ** 0.5
        print(f"{name:<20}" + "".join(f"{means[count - 1]:>8.3f} ± {errors[count - 1]:.3f}" for count in counts))
    bnnp.plots.save_figure(figure(found), folder / "meta_optimisation.png")


if __name__ == "__main__":
    typer.run(main)
