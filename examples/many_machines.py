"""Predict many subjects on a cluster: the same lines by joblib alone, by Dask, or by Ray.

python examples/many_machines.py             # two processes of this machine
python examples/many_machines.py --by dask   # pip install "dask[distributed]"; give its scheduler's address to Client
python examples/many_machines.py --by ray    # pip install ray
"""

import argparse
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config

import bnnp

Subject = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Known inputs, known outputs, inputs to predict at."""


def predict(model: bnnp.BNNP, subjects: list[Subject]) -> list[np.ndarray]:
    """The work of one process: a window of subjects. It sends back numbers, which are less than predictions."""
    posts = model.condition_many([(x, y) for x, y, _ in subjects], num_samples=20, seed=0)
    return [one.mean for one in posts.predict([x_new for *_, x_new in subjects])]


def cluster(by: str) -> AbstractContextManager:
    """Who runs joblib's work."""
    if by == "dask":
        from dask.distributed import Client  # pyright: ignore[reportMissingImports]

        Client(n_workers=2, threads_per_worker=1, dashboard_address=None)  # or Client("tcp://scheduler:8786")
    if by == "ray":
        from ray.util.joblib import register_ray  # pyright: ignore[reportMissingImports]

        register_ray()
    return parallel_config(backend={"here": "loky"}.get(by, by), n_jobs=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=["here", "dask", "ray"], default="here")
    by, random = parser.parse_args().by, np.random.default_rng(0)
    model = bnnp.load("zoo:sawtooth")
    subjects = [(random.uniform(-1, 1, 5), random.normal(size=5), random.uniform(-1, 1, 3)) for _ in range(1000)]
    windows = [subjects[i : i + 256] for i in range(0, len(subjects), 256)]
    with cluster(by):
        parts: Any = Parallel()(delayed(predict)(model, window) for window in windows)
    found, alone = [mean for part in parts for mean in part], predict(model, subjects[-1:])[0]
    print(f"{len(found)} subjects; the last one has the same bits as alone: {np.array_equal(found[-1], alone)}")


if __name__ == "__main__":
    main()
