"""Bayesian optimisation of a new function with a prior learned from related ones, beside Gaussian processes.

    python examples/meta_optimisation.py --out docs/figures/meta_optimisation.png      # about half an hour on one core

The functions are shifted and stretched copies of Branin's function, observed with noise. From 100 of them, 40 random
points each, a BNNP learns its prior, and a Gaussian process its hyperparameters by the sum of marginal likelihoods. On
20 new functions each method starts from the same two random points. The Gaussian processes have a constant mean, so
they cannot know the shape that all functions share; one with a learned mean function is not among the methods. Needs
`pip install bnnp[botorch]`.
"""

import argparse
import warnings
from collections.abc import Callable

import gpytorch
import numpy as np
import torch
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling.get_sampler import get_sampler
from matplotlib.figure import Figure

import bnnp
from bnnp.botorch import BNNPModel

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
NOISE, FIRST, COLOURS = 0.05, 2, {"bnnp": "C0", "GP": "C1", "GP, transferred": "C2", "random search": "0.5"}
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
    learned = bnnp.learn(model, bnnp.tasks.from_arrays(data), minutes=minutes, progress=False)
    print(*learned.decisions, sep="\n", flush=True)

    def surrogate(x: torch.Tensor, y: torch.Tensor) -> AcquisitionFunction:
        own = BNNPModel(model, x, y, num_samples=128)
        best = own.posterior(x).mean.max()
        return qLogExpectedImprovement(own, best, get_sampler(own.posterior(x), torch.Size([128])))

    return surrogate


def with_gp(x: torch.Tensor, y: torch.Tensor) -> AcquisitionFunction:
    own = SingleTaskGP(x, y)
    fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(own.likelihood, own))
    return LogExpectedImprovement(own, own.posterior(x).mean.max())


def with_transferred_gp(data: list[tuple[torch.Tensor, torch.Tensor]], steps: int) -> Surrogate:
    """Mean, length scales, output scale and noise from all functions together, then fixed."""
    likelihood, mean = gpytorch.likelihoods.GaussianLikelihood().double(), gpytorch.means.ConstantMean().double()
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
    for step in range(1, steps + 1):
        optimiser.zero_grad()
        loss = -objective(several(*several.train_inputs), several.train_targets)  # pyright: ignore
        loss.backward()
        optimiser.step()
        if step in (steps // 2, steps):  # has it converged?
            scales, noise = kernel.base_kernel.lengthscale.tolist(), likelihood.noise.sqrt().item()
            print(f"GP, transferred: step {step}, loss {loss.item():.4f}, length scales {scales}, noise {noise:.4f}")

    def surrogate(x: torch.Tensor, y: torch.Tensor) -> AcquisitionFunction:
        own = gp(x, y).eval()
        return LogExpectedImprovement(own, own.posterior(x).mean.max())

    return surrogate


def regrets(
    function: Shifted, surrogate: Surrogate | None, evaluations: int, seed: int, restarts: int = 3
) -> list[float]:
    """How far the best point so far is below the best of all, without noise, after each evaluation.

    Args:
        function: The function.
        surrogate: Makes an acquisition function of the points so far; None for random points.
        evaluations: How many there are.
        seed: Seed of the first points, the noise and the restarts.
        restarts: Restarts of the search for the best acquisition value, each of 10 times as many iterations.
    """
    generator = torch.Generator().manual_seed(seed)
    x, y = points(function, FIRST, generator)
    for step in range(evaluations - FIRST):
        if surrogate is None:
            new = torch.rand(1, 2, generator=generator, dtype=torch.float64)
        else:
            options: dict[str, bool | float | int | str] = {"maxiter": 10 * restarts, "seed": 1000 * seed + step}
            new, _ = optimize_acqf(
                *(surrogate(x, y), BOUNDS), q=1, num_restarts=restarts, raw_samples=64, options=options
            )
        x, y = torch.cat([x, new]), torch.cat([y, observed(function, new, generator)])
    return (function.best - np.maximum.accumulate(function(x)[:, 0].numpy())).clip(min=0).tolist()


def figure(found: dict[str, np.ndarray]) -> Figure:
    drawn = Figure(figsize=(5.4, 3.8), layout="constrained")
    axes = drawn.subplots()
    for method, values in found.items():
        mean, error = values.mean(0), values.std(0, ddof=1) / len(values) ** 0.5
        steps = np.arange(1, values.shape[1] + 1)
        axes.errorbar(steps, mean, yerror(mean, error), capsize=2, label=method, color=COLOURS[method])
    axes.set(xlabel="evaluations", ylabel="regret, mean and standard error", yscale="log")
    axes.legend(fontsize=8)
    return drawn


def yerror(mean: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Bars that stay above zero on the logarithmic axis."""
    return np.stack([np.minimum(error, 0.9 * mean), error])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100, help="functions to learn from")
    parser.add_argument("--minutes", type=float, default=5.0, help="time to learn the prior")
    parser.add_argument("--repeats", type=int, default=20, help="new functions")
    parser.add_argument("--evaluations", type=int, default=12, help="evaluations of each")
    parser.add_argument("--restarts", type=int, default=3, help="restarts of each search for the next point")
    parser.add_argument("--methods", nargs="+", choices=list(COLOURS), default=list(COLOURS), help="all by default")
    parser.add_argument("--out", default="meta_optimisation.png")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # those of BoTorch and its optimisers
    generator = torch.Generator().manual_seed(0)
    data = [points(Shifted(generator), 40, generator) for _ in range(chosen.tasks)]
    makers: dict[str, Callable[[], Surrogate | None]] = {
        "bnnp": lambda: with_bnnp(data, chosen.minutes),
        "GP": lambda: with_gp,
        "GP, transferred": lambda: with_transferred_gp(data, 200),
        "random search": lambda: None,
    }
    new = [Shifted(torch.Generator().manual_seed(10_000 + i)) for i in range(chosen.repeats)]
    found = {}
    for name in chosen.methods:
        surrogate = makers[name]()
        found[name] = np.array(
            [regrets(f, surrogate, chosen.evaluations, i, chosen.restarts) for i, f in enumerate(new)]
        )
        for count in (4, 8, chosen.evaluations):
            values = found[name][:, min(count, found[name].shape[1]) - 1]
            error = values.std(ddof=1) / len(values) ** 0.5
            print(f"{name}: regret after {count} evaluations {values.mean():.4f} ± {error:.4f}", flush=True)
    bnnp.plots.save_figure(figure(found), chosen.out)


if __name__ == "__main__":
    main()
