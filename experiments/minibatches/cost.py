"""What a training step takes, in a process of its own: `python cost.py POINTS CHUNK STEPS`; chunk 0 is whole contexts.

One task, nine tenths of its points context; network [3, 64, 64, 1], 8 samples of the hidden layers, the evidence lower
bound as the objective.
"""

import json
import sys
import time
from pathlib import Path

import torch

import bnnp
from bnnp._core.random import child
from bnnp.models.chunked import in_chunks
from bnnp.tasks.task import SplitBatch, TaskBatch
from bnnp.training.step import differentiate


def peak_megabytes() -> float:
    """Of this process alone; what `getrusage` says may be the peak of the process that started it."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def batch_of(model: bnnp.BNNP, points: int, seed: int) -> SplitBatch:
    x = 4 * torch.rand(1, points, 3, generator=child(seed)) - 2
    whole = model.prepare(TaskBatch(x, torch.sin(3 * x.sum(-1, keepdim=True)), torch.ones(1, points).bool()))
    cut = points * 9 // 10
    context, target = (
        TaskBatch(whole.x[:, part], whole.y[:, part], whole.mask[:, part])
        for part in (slice(0, cut), slice(cut, points))
    )
    return SplitBatch(context, target)


def main(points: int, chunk: int, steps: int) -> dict[str, float]:
    """Megabytes beyond those before the first step, and seconds of processor time per step."""
    torch.set_num_threads(1)
    model = bnnp.BNNP(3, 1, (64, 64), likelihood=bnnp.Gaussian(0.1), seed=0)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    learner = in_chunks(model, chunk) if chunk else model
    differentiate(model, bnnp.objectives.AVI(8), batch_of(model, 64, 0), parameters, 0)  # compiled code is loaded
    before, seconds = peak_megabytes(), []
    for seed in range(steps + 1):
        batch = batch_of(model, points, seed)
        start = time.process_time()
        differentiate(learner, bnnp.objectives.AVI(8), batch, parameters, seed)
        seconds.append(time.process_time() - start)
    return {"megabytes": peak_megabytes() - before, "seconds": sum(seconds[1:]) / steps}  # the first loads code


if __name__ == "__main__":
    print(json.dumps(main(*(int(word) for word in sys.argv[1:]))))
