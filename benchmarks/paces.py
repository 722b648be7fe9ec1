"""How near features alone come to the oracle by steps of different size.

    OMP_NUM_THREADS=1 python benchmarks/paces.py sawtooth relu --steps 2000 --paces 3e-3,1 3e-2,10 5e-2,20

Prints a row per pace, which is a learning rate and how far a step moves functions at most, in units of the noise: the
marginal LPPD of 64 fresh tasks, the oracle's less that where it is known, and the CPU seconds.
"""

import argparse
import copy
import time

from processes import SHARE, SOURCES

import bnnp
from bnnp.evaluation.oracle import ExactSource
from bnnp.recipe.judging import divided, scores_of
from bnnp.tasks.split import context_size
from bnnp.training.features import Pace, train_features
from bnnp.training.run import TrainingDiverged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=SOURCES)
    parser.add_argument("activation")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--paces", nargs="+", default=["3e-3,1", "3e-2,10"])
    given = parser.parse_args()
    source = SOURCES[given.source]()
    _, fresh = divided(source, context_size(SHARE), 0)
    best = scores_of(bnnp.Oracle(source), fresh.splits) if isinstance(source, ExactSource) else None  # pyright: ignore
    started = bnnp.BNNP(source.in_size, source.out_size, (64, 64), given.activation, last_layer="likelihood", seed=0)
    bnnp.start_prior(started, source, "empirical", seed=0)
    print("| rate | move | marginal LPPD | gap | CPU seconds |\n|---|---|---|---|---|")
    for words in given.paces:
        pace, model, began = Pace(*map(float, words.split(","))), copy.deepcopy(started), time.process_time()
        try:
            train_features(model, source, given.steps, pace=pace, progress=False, seed=0)
        except TrainingDiverged as error:
            print(f"| {pace.rate:g} | {pace.largest_move:g} | {error} | | |", flush=True)
            continue
        seconds, found = time.process_time() - began, scores_of(model, fresh.splits)["marginal_lppd"]
        gap = "" if best is None else f"{best['marginal_lppd'] - found:.3f}"
        print(f"| {pace.rate:g} | {pace.largest_move:g} | {found:.3f} | {gap} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
