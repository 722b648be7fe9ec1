"""Whether the better of two networks at their start is the better one after a round of training its features.

    OMP_NUM_THREADS=1 python benchmarks/first_round.py

Prints a row of a table for each process: how much the log-density per point of 64 fresh tasks is higher with silu units
than with relu units, with its standard error, and the CPU seconds of the start and of all.
"""

import time

import bnnp
from bnnp.recipe.judging import divided, scores_of
from bnnp.recipe.rounds import FEATURES, FIRST_STEPS
from bnnp.tasks.split import context_size
from bnnp.training.features import train_features

SOURCES = {
    "GP 0.5 on [-2, 2]": bnnp.tasks.gp(low=-2, high=2, length_scale=0.5),
    "GP 0.5 on [-5, 5]": bnnp.tasks.gp(low=-5, high=5, length_scale=0.5),
    "GP 0.25 on [-2, 2]": bnnp.tasks.gp(low=-2, high=2, length_scale=0.25),
    "sawtooth": bnnp.tasks.sawtooth(),
    "heaviside": bnnp.tasks.heaviside(),
    "BNN functions": bnnp.tasks.bnn(),
}


def main() -> None:
    print("| process | silu less relu at the start | after a round | CPU seconds to the start | to the end |")
    print("|---|---|---|---|---|")
    for name, source in SOURCES.items():
        _, left_out = divided(source, context_size((0.1, 0.5)), 0)
        scores, seconds = {}, {"start": 0.0, "end": 0.0}
        for activation in ("silu", "relu"):
            model = bnnp.BNNP(source.in_size, source.out_size, (64, 64), activation, last_layer="likelihood", seed=0)
            began = time.process_time()
            bnnp.start_prior(model, source, "empirical", seed=0)
            seconds["start"] += time.process_time() - began
            scores["start", activation] = scores_of(model, left_out.splits)
            train_features(model, source, FIRST_STEPS[FEATURES], progress=False, seed=0)
            scores["end", activation] = scores_of(model, left_out.splits)
            seconds["end"] += time.process_time() - began
        gains = [left_out.gain(scores[when, "silu"], scores[when, "relu"]) for when in ("start", "end")]
        cells = [f"{gain:+.3f} ± {error:.3f}" for gain, error in gains] + [f"{value:.0f}" for value in seconds.values()]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
