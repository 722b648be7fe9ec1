"""Run by tests in several processes: trains in a process group, until one of the processes is killed."""

import os
import signal
import sys

import torch
from torch import distributed

import bnnp
from bnnp.training.run import Run


def tasks(count: int = 12) -> bnnp.tasks.Collection:
    generator = torch.Generator().manual_seed(0)
    pairs = []
    for i in range(count):
        x = torch.rand(6 + i % 5, 1, generator=generator)
        pairs.append((x, torch.sin(6 * x + i) + 0.1 * torch.randn(x.shape, generator=generator)))
    return bnnp.tasks.from_arrays(pairs)


def train(steps: int, folder: str | None) -> bnnp.FitResult:
    model = bnnp.BNNP(1, 1, hidden=(4,), dtype=torch.float64, seed=0)
    checkpoint = None if folder is None else bnnp.Checkpointing(folder, every=5)
    settings = bnnp.FitSettings(record_every=1)
    return bnnp.fit(model, tasks(), steps=steps, settings=settings, checkpoint=checkpoint, progress=False)


def tell_steps(last: int) -> None:
    """Print the number of every step, and kill this process after one of them, in the middle of its run."""
    finish = Run.finish_step

    def finish_and_tell(run: Run) -> None:
        finish(run)
        print(run.step, flush=True)
        if run.step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(Run, "finish_step", finish_and_tell)  # noqa: B010


if __name__ == "__main__":
    rank, size, meeting, steps, folder, killed = sys.argv[1:7]
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=int(size))
    tell_steps(int(killed) if rank == "1" else 0)
    train(int(steps), folder)
