"""Does training leave a prior that is true where it is? Functions of a standard network, learned from their own prior.

    OMP_NUM_THREADS=1 python benchmarks/true_prior.py --minutes 10

The model begins with the very prior and noise that made the tasks. By the rounds of `bnnp.learn` first its inference is
trained, then everything; a round that does not help left-out tasks is undone. Beside it stands what training everything
does if nobody judges it. The energy distance is that of `benchmarks/recipe.py`, between draws of the prior and of the
process at 256 inputs.
"""

import argparse
import copy
import time

from processes import SHARE, prior_quality

import bnnp
from bnnp.models import MetaLearner
from bnnp.recipe.candidate import Candidate
from bnnp.recipe.judging import divided
from bnnp.recipe.rounds import EVERYTHING, INFERENCE, LEARNING_RATE, LESSONS, SAMPLES, Rounds
from bnnp.tasks.split import context_size
from bnnp.training.lessons import teach_inference

UNJUDGED = 600
"""Steps of training everything that nobody judges."""


def distance(model: MetaLearner, source: bnnp.tasks.TaskSource) -> float:
    return prior_quality("bnn", source, model)["energy_distance"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    source, size = bnnp.tasks.bnn(), context_size(SHARE)
    model = bnnp.BNNP(
        1, 1, source.hidden, source.activation, likelihood=bnnp.Gaussian(source.noise), last_layer="likelihood", seed=0
    )
    known, left_out = divided(source, size, given.seed)
    print(f"the true prior: energy distance {distance(model, source):.3f}", flush=True)
    teach_inference(model, known, LESSONS, progress=True, seed=given.seed)
    rounds = Rounds(size, None, True, given.seed, time.monotonic() + 60 * given.minutes)
    first = left_out.judge(model, SAMPLES)
    now = Candidate(0, model, "warped", first, first, (INFERENCE, EVERYTHING))
    while now.parts:
        now = rounds._advanced(now, known, left_out)
        print(
            f"{now.ended[-1]} Energy distance {distance(now.model, source):.3f}, {now.scores.worth():.3f}", flush=True
        )
    unjudged = copy.deepcopy(now.model)
    settings = bnnp.FitSettings(learning_rate=LEARNING_RATE, prior_start="standard")
    bnnp.fit(unjudged, source, steps=UNJUDGED, context_share=size, settings=settings, seed=given.seed)
    scores = left_out.judge(unjudged, SAMPLES)
    print(f"after {UNJUDGED} unjudged steps: {distance(unjudged, source):.3f}, {scores.worth():.3f}", flush=True)


if __name__ == "__main__":
    main()
