"""Train the models of Heaviside functions and Gaussian processes that ship with the package (`src/bnnp/zoo`).

    OMP_NUM_THREADS=1 python benchmarks/zoo.py heaviside heaviside.bnnp
    OMP_NUM_THREADS=1 python benchmarks/zoo.py gp gp.bnnp

About 9 minutes of processor time each. The prior is fitted to tasks in closed form and then held, while inference
under it is learned, at last with more weight samples: `docs/training.md` says why.
"""

import argparse

import bnnp
from bnnp.objectives import PPAVI

CHOICES = {
    "heaviside": (bnnp.tasks.heaviside(), "tanh", "switch"),
    "gp": (bnnp.tasks.gp(), "silu", "fitted"),
}
STAGES = ((3000, 10, (1e-3, 5e-5)), (2000, 32, (3e-4, 1e-5)))
"""Steps, weight samples, and the first and last learning rate."""
SHARE = (0.02, 0.6)


def trained(name: str) -> bnnp.BNNP:
    tasks, activation, start = CHOICES[name]
    model = bnnp.BNNP(1, 1, (48, 48), activation, likelihood=bnnp.Gaussian(0.05, max_noise=0.06), seed=0)
    bnnp.start_prior(model, tasks, start, seed=0)
    model.set_prior_learnability(0)
    for seed, (steps, samples, rate) in enumerate(STAGES):
        settings = bnnp.FitSettings(learning_rate=rate)
        objective = PPAVI(samples)
        bnnp.fit(model, tasks, objective=objective, steps=steps, context_share=SHARE, settings=settings, seed=seed)
    return model.set_prior_learnability(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=CHOICES)
    parser.add_argument("file")
    options = parser.parse_args()
    trained(options.model).save(options.file)


if __name__ == "__main__":
    main()
