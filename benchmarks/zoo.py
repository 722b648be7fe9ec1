"""Train the models of Heaviside functions and Gaussian processes that ship with the package (`src/bnnp/zoo`).

    OMP_NUM_THREADS=1 python benchmarks/zoo.py heaviside heaviside.bnnp
    OMP_NUM_THREADS=1 python benchmarks/zoo.py gp gp.bnnp

About 7 minutes of processor time each. First the prior is learned, with a tenth of the predictive term, then the
inference under it, with all of it: `docs/training.md` says why.
"""

import argparse

import bnnp
from bnnp.objectives import PPAVI

CHOICES = {
    "heaviside": (bnnp.tasks.heaviside(), "tanh", "switch"),
    "gp": (bnnp.tasks.gp(), "silu", "spread"),
}


def trained(name: str) -> bnnp.BNNP:
    tasks, activation, start = CHOICES[name]
    model = bnnp.BNNP(1, 1, (48, 48), activation, likelihood=bnnp.Gaussian(0.05, max_noise=0.06), seed=0)
    stages = (
        (4000, PPAVI(10, predictive_weight=0.1), (2e-3, 5e-5), 1.0),
        (3000, PPAVI(10), (1e-3, 2e-5), 0.0),
    )
    for seed, (steps, objective, rate, learnability) in enumerate(stages):
        model.set_prior_learnability(learnability)
        bnnp.fit(
            model,
            tasks,
            objective=objective,
            steps=steps,
            learning_rate=rate,
            context_share=(0.02, 0.6),
            prior_start=start,
            seed=seed,
        )
    return model.set_prior_learnability(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=CHOICES)
    parser.add_argument("file")
    options = parser.parse_args()
    trained(options.model).save(options.file)


if __name__ == "__main__":
    main()
