"""How smooth should the features of the floor start be? Rain at left-out times, under priors fitted to the others.

    PYTHONPATH=experiments OMP_NUM_THREADS=1 python benchmarks/floor_features.py era5land_serbia_202001_t2m_tp.nc

Every fourth training time of `experiments/prior_transfer` is left out in turn. MFVI predicts its points from 4 to 38 of
them, drawn at random, under the floor start that is fitted to the other times, and under the standard prior. Some
minutes of processor time a row. The file is any answer of the Climate Data Store that `bnnp.tasks.era5` reads.
"""

import argparse
import warnings
from pathlib import Path

import torch

import bnnp
from bnnp._core.random import child
from bnnp.inference import Effort, InferenceWarning, infer_many
from bnnp.priors.starts import Examples, Floor
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split
from common import score_sets
from score_tables import markdown_table, mean_and_error

REGION = Path(__file__).parents[1] / "experiments" / "prior_transfer" / "region.geojson"
FOLDS, NOISE, CONTEXT = 4, 0.05, (4, 38)
FLOORS = (1e-3, 3e-2, 1.0, 100.0)


def scores(splits: list[Split], examples: list[Examples], floor: float | None, y_scale: float) -> list[str]:
    """Pooled and marginal LPPD and MAE in mm, over the left-out times of all folds. No floor: the standard prior."""
    posteriors, left_out = [], []
    for fold, others in enumerate(examples):
        model = bnnp.BNNP(3, 1, (64, 64, 64), "relu", "factorised" if floor is None else "unitwise", seed=0)
        if floor is not None:
            Floor(whitening_floor=floor).set(model.prior, others, child(0, fold))
        left_out += splits[fold::FOLDS]
        posteriors += infer_many(
            model.prior,
            model.network,
            [split.context for split in splits[fold::FOLDS]],
            method="mfvi",
            likelihood=bnnp.Gaussian(NOISE, learnable=False),
            num_samples=200,
            effort=Effort(steps=1500, learning_rate=(5e-3, 1e-4)),
            seed=0,
        )
    found = score_sets(posteriors, left_out, y_scale)
    return [f"{mean_and_error(found, name)[0]:.3f}" for name in ("pooled_lppd", "marginal_lppd", "mae")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    raw = bnnp.tasks.era5("train", files=parser.parse_args().file, hold_out=REGION, points_share=1.0)
    assert raw.columns is not None
    tasks = raw.standardised().tasks
    splits = [random_split(task, context_size(None, CONTEXT), child(0, i)) for i, task in enumerate(tasks)]
    scale = torch.cat([task.y for task in tasks]).float().std(0)
    examples = []
    for fold in range(FOLDS):
        others = [task for i, task in enumerate(tasks) if i % FOLDS != fold]
        examples.append(Examples([task.x.float() for task in others], [task.y.float() for task in others], scale))
    warnings.simplefilter("ignore", InferenceWarning)
    rows = []
    for floor in (None, *FLOORS):
        name = "standard prior" if floor is None else f"floor start, {floor:g}"
        rows.append([name, *scores(splits, examples, floor, float(raw.columns.y_scale[0]))])
        print(*rows[-1], flush=True)
    print(markdown_table(["prior, whitening floor", "pooled LPPD", "marginal LPPD", "MAE, mm"], rows))


if __name__ == "__main__":
    main()
