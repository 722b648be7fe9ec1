"""Is amortised inference right under its own prior? Rank tests of a BNNP with a fixed prior, against steps of training.

    OMP_NUM_THREADS=1 python benchmarks/calibrated.py --steps 600 5000 20000

A network 1 - 16 - 1 with tanh units, the standard prior, held fixed, and noise 0.2. Inference learns from data sets
that are drawn from this prior: 8 to 24 points in [-2, 2], contexts of all sizes. Then come 400 simulations of 8 points:
the rank of the truth among 19 samples of the posterior, for the function at three inputs and for the log-likelihood,
should be uniform. Printed are the p-values of chi-squared tests; below 0.01 the inference is said to be wrong. With
`--chains` the exact posterior, by the no-U-turn sampler, is tested too.
"""

import argparse
from dataclasses import dataclass

import numpy as np
import torch

import bnnp
from bnnp.evaluation import simulation_based_calibration
from bnnp.inference import NUTS, Effort
from bnnp.priors.base import Prior
from bnnp.tasks.synthetic import Synthetic

NOISE, SAMPLES, SIMULATIONS = 0.2, 19, 400


@dataclass(frozen=True)
class OfPrior(Synthetic):
    """Functions of the prior itself."""

    prior: Prior

    def values(self, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return self.prior.network(self.prior.sample(1, generator), x.to(self.prior.dtype)[None])[0].double()


def new_model() -> bnnp.BNNP:
    noise = bnnp.Gaussian(NOISE, learnable=False)
    return bnnp.BNNP(1, 1, (16,), "tanh", likelihood=noise, dtype=torch.float64, seed=0)


def p_values(model: bnnp.BNNP, method: object, effort: Effort | None = None) -> str:
    found = simulation_based_calibration(
        model.prior,
        model.network,
        np.linspace(-2, 2, 8)[:, None],
        likelihood=model.likelihood,
        method=method,  # pyright: ignore[reportArgumentType]
        simulations=SIMULATIONS,
        num_samples=SAMPLES,
        at=np.array([[-3.0], [0.3], [2.0]]),
        effort=effort,
    )
    return ", ".join(f"{name} {p:.3f}" for name, p in zip(found.names, found.p_values(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[600, 5000, 20000])
    parser.add_argument("--chains", action="store_true", help="also the sampler, which takes minutes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for steps in given.steps:
        model = new_model().set_prior_learnability(0)
        source = OfPrior(NOISE, -2.0, 2.0, (8, 24), model.prior)
        settings = bnnp.FitSettings(prior_start="standard", learning_rate=(3e-3, 1e-5))
        result = bnnp.fit(
            model,
            source,
            steps=steps,
            batch_size=16,
            context_share=(0.05, 0.9),
            objective=bnnp.objectives.PPAVI(8),
            settings=settings,
            progress=False,
        )
        last = result.history.steps[-1]["seconds"]

        def conditioned(sets, model=model):
            return [model.condition(t.x, t.y, num_samples=SAMPLES, seed=i) for i, t in enumerate(sets)]

        print(f"{steps} steps, {last:.0f} s: {p_values(model, conditioned)}", flush=True)
    if given.chains:
        print("no-U-turn sampler:", p_values(new_model(), NUTS(0.1, 6), Effort(chains=19, warmup=100, thin=10)))


if __name__ == "__main__":
    main()
