"""Is an inference method right under its own prior? Rank histograms of the no-U-turn sampler and of mean-field VI.

    python examples/calibration.py --out docs/figures/calibration.png      # about three minutes

Mean-field VI takes the weights for independent, so that its posteriors over functions are too wide.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import bnnp
from bnnp import plots
from bnnp.evaluation import Calibration, simulation_based_calibration
from bnnp.inference import NUTS, Effort

METHODS = {
    "no-U-turn sampler": (NUTS(0.1, 6), Effort(chains=19, warmup=100, thin=10)),
    "mean-field VI": ("mfvi", Effort(steps=2000, learning_rate=(2e-2, 1e-3))),
}


def ranks(method: str, simulations: int) -> Calibration:
    model = bnnp.BNNP(1, 1, (10,), "tanh", likelihood=bnnp.Gaussian(0.2))
    x = np.linspace(-2, 2, 8)[:, None]
    choice, effort = METHODS[method]
    return simulation_based_calibration(
        model.prior,
        model.network,
        x,
        likelihood=model.likelihood,
        method=choice,
        simulations=simulations,
        num_samples=19,
        at=np.array([[-3.0], [0.3], [2.0]]),
        effort=effort,
        progress=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--out", default="calibration.png")
    chosen = parser.parse_args()
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    for part, method in zip(figure.subfigures(2, 1, squeeze=False)[:, 0], METHODS, strict=True):
        found = ranks(method, chosen.simulations)
        print(method, dict(zip(found.names, found.p_values().round(4), strict=True)))
        plots.draw_rank_histograms(part, found)
        part.suptitle(method, fontsize=10)
    plots.save_figure(figure, chosen.out)


if __name__ == "__main__":
    main()
