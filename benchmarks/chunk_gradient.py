"""What taking derivatives through one chunk of each context does to the gradient (paper, App. C).

    python benchmarks/chunk_gradient.py

Gradients of PP-AVI for eight sawtooth tasks with contexts of 64 points, for a model early in its training, over many
draws of weights and chunks. Bias: the distance of the mean gradient to that of the whole context, in units of the
latter's norm, after taking away what the noise of the means adds. Noise: the standard deviation of one gradient, in the
same units.
"""

import argparse

import torch

import bnnp
from bnnp._core.random import child
from bnnp.models.chunked import InChunks
from bnnp.tasks.task import SplitBatch, Task, TaskBatch
from bnnp.training.step import differentiate

CONTEXT, TARGET = 64, 32


def batch(model) -> SplitBatch:
    drawn = bnnp.tasks.sawtooth(points=(CONTEXT + TARGET, CONTEXT + TARGET)).draw(8, child(5))
    parts = [[Task(task.x[rows], task.y[rows]) for task in drawn] for rows in (slice(0, CONTEXT), slice(CONTEXT, None))]
    return SplitBatch(*(model.prepare(TaskBatch.of(part)) for part in parts))


def gradients(model, chunk: int, draws: int) -> dict[str, torch.Tensor]:
    """Draws of the gradient, by group of parameters."""
    data, objective = batch(model), bnnp.objectives.PPAVI(8)
    groups = {"prior": list(model.prior.parameters()), "inference networks": list(model.layers.parameters())}
    parameters = [p for group in groups.values() for p in group]
    learner = InChunks(model, chunk)
    found: dict[str, list[torch.Tensor]] = {name: [] for name in groups}
    for draw in range(draws):
        differentiate(learner, objective, data, parameters, 7, draw)
        for name, group in groups.items():
            found[name].append(torch.cat([p.grad.flatten() for p in group if p.grad is not None]).double())
    return {name: torch.stack(rows) for name, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    model = bnnp.BNNP(1, 1, (32, 32), likelihood=bnnp.Gaussian(0.05))
    bnnp.fit(model, bnnp.tasks.sawtooth(), objective=bnnp.objectives.PPAVI(8), steps=options.steps, progress=False)
    whole = gradients(model, CONTEXT, options.draws)
    print("| parameters | points in a chunk | chunks | bias | cosine | noise |\n|---|---|---|---|---|---|")
    for chunk in (CONTEXT, 32, 16, 8):
        part = whole if chunk == CONTEXT else gradients(model, chunk, options.draws)
        for name, reference in whole.items():
            mean, found = reference.mean(0), part[name]
            spread = found.var(0).sum()
            of_means = (spread + reference.var(0).sum()) / options.draws
            bias = 0.0 if chunk == CONTEXT else ((found.mean(0) - mean).square().sum() - of_means).clamp(min=0).sqrt()
            size = (mean.square().sum() - reference.var(0).sum() / options.draws).clamp(min=0).sqrt()
            cosine = torch.cosine_similarity(found.mean(0), mean, 0)
            print(
                f"| {name} | {chunk} | {CONTEXT // chunk} | {float(bias / size):.2f} | {float(cosine):.2f} | "
                f"{float(spread.sqrt() / size):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
