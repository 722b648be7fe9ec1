"""Train models like those that ship with the package (`src/bnnp/zoo`), all in the same way.

    OMP_NUM_THREADS=1 python benchmarks/zoo.py gp gp.bnnp
    OMP_NUM_THREADS=1 python benchmarks/zoo.py heaviside heaviside.bnnp --minutes 30

`bnnp.learn` decides how much to train, and no choice depends on the process. The files that ship are older: their cards
in `src/bnnp/zoo/README.md` say how they were made.
"""

import argparse

import bnnp

PROCESSES = ("sawtooth", "heaviside", "gp")
SHARE = (0.02, 0.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("process", choices=PROCESSES)
    parser.add_argument("file")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    model = bnnp.BNNP(1, 1, (48, 48), "silu", last_layer="likelihood", seed=0)
    tasks = bnnp.tasks.SOURCES[options.process]()
    learned = bnnp.learn(model, tasks, minutes=options.minutes, context_share=SHARE, seed=0)
    print(*learned.decisions, sep="\n")
    learned.model.save(options.file)


if __name__ == "__main__":
    main()
