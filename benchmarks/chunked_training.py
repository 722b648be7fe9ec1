"""Training with contexts in chunks: memory against the size of the context, and what it costs in quality.

    python benchmarks/chunked_training.py memory docs/figures/chunked_training.png
    OMP_NUM_THREADS=1 python benchmarks/chunked_training.py quality --steps 2000

Memory: the peak of a process that takes three training steps, less what it held before, for one task whose points are
nine tenths context; network [3, 64, 64, 1], 8 weight samples, chunks of 512 points.
Quality: Gaussian process tasks of 96 points, of which 32 to 64 are context, so that whole contexts fit too; a network
[1, 32, 32, 1], 8 weight samples, scored on 64 fresh tasks.
"""

import argparse
import json
import resource
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

import bnnp
from bnnp._core.random import child
from bnnp.models.chunked import InChunks
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import SplitBatch, TaskBatch
from bnnp.training.step import differentiate

CHUNK = 512


def steps_of(points: int, chunk: int) -> dict[str, float]:
    """Megabytes that three steps take; `chunk` 0: whole contexts."""
    model = bnnp.BNNP(3, 1, (64, 64), likelihood=bnnp.Gaussian(0.1))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    learner = InChunks(model, chunk) if chunk else model

    def step(size: int, seed: int) -> None:
        x = 4 * torch.rand(1, size, 3, generator=child(seed)) - 2
        whole = model.prepare(TaskBatch(x, torch.sin(3 * x.sum(-1, keepdim=True)), torch.ones(1, size).bool()))
        cut = size * 9 // 10
        parts = (slice(0, cut), slice(cut, size))
        batch = SplitBatch(*(TaskBatch(whole.x[:, p], whole.y[:, p], whole.mask[:, p]) for p in parts))
        differentiate(learner, bnnp.objectives.AVI(8), batch, parameters, seed)

    step(64, 0)  # compiled code is loaded
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(3):
        step(points, seed)
    return {"points": points, "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def memory(figure: str, largest: int) -> None:
    drawing, panel = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for chunk, label in ((0, "whole contexts"), (CHUNK, f"chunks of {CHUNK}")):
        rows = []
        for points in (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000):
            if points > (largest if chunk else largest // 4):
                break
            command = [sys.executable, __file__, "step", str(points), str(chunk)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append(json.loads(answer.stdout.splitlines()[-1]))
            print(label, json.dumps(rows[-1]), flush=True)
        panel.plot([row["points"] for row in rows], [row["megabytes"] for row in rows], "o-", label=label)
    panel.set(xscale="log", yscale="log", xlabel="points of the task", ylabel="memory of a training step, MB")
    panel.legend()
    panel.grid(alpha=0.3)
    drawing.savefig(figure, dpi=110)


def quality(steps: int, seeds: int) -> None:
    source = bnnp.tasks.gp(points=(96, 96), low=-2, high=2)
    share = (1 / 3, 2 / 3)
    size = context_size(share)
    tests = [random_split(task, size, child(12, i)) for i, task in enumerate(source.draw(64, child(13)))]
    scores: dict[int | None, list[np.ndarray]] = {}
    for chunk in (None, 32, 16):
        for seed in range(seeds):
            model = bnnp.BNNP(1, 1, (32, 32), "silu", likelihood=bnnp.Gaussian(0.05), seed=seed)
            bnnp.fit(
                model,
                source,
                objective=bnnp.objectives.PPAVI(8),
                steps=steps,
                context_share=share,
                settings=bnnp.FitSettings(learning_rate=(2e-3, 5e-5), chunk_size=chunk),
                seed=seed,
                progress=False,
            )
            by_task = bnnp.evaluate(model, tests, num_samples=200, seed=0).per_task
            found = by_task[["marginal_lppd@200", "mae"]].to_numpy()
            scores.setdefault(chunk, []).append(found)
            error = found.std(0, ddof=1) / np.sqrt(len(found))
            difference = found - scores[None][seed]
            print(
                f"| {chunk or 'whole'} | {seed} | {found[:, 0].mean():.3f} ± {error[0]:.3f} | "
                f"{found[:, 1].mean():.4f} ± {error[1]:.4f} | {difference[:, 0].mean():+.3f} | "
                f"{difference[:, 1].mean():+.4f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    drawer = verbs.add_parser("memory")
    drawer.add_argument("figure")
    drawer.add_argument("--largest", type=int, default=32_000)
    one = verbs.add_parser("step")
    one.add_argument("points", type=int)
    one.add_argument("chunk", type=int)
    study = verbs.add_parser("quality")
    study.add_argument("--steps", type=int, default=2000)
    study.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    if options.verb == "memory":
        memory(options.figure, options.largest)
    elif options.verb == "step":
        print(json.dumps(steps_of(options.points, options.chunk)))
    else:
        quality(options.steps, options.seeds)


if __name__ == "__main__":
    main()
