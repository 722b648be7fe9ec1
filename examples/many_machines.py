"""Many subjects, and one large context, on a cluster: the same lines by joblib alone, by Dask, or by Ray.

python examples/many_machines.py             # pip install joblib; two processes of this machine
python examples/many_machines.py --by dask   # pip install joblib "dask[distributed]", Client takes its address
python examples/many_machines.py --by ray    # pip install joblib ray
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
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


def points(first: int, last: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Some points of the large context. Whoever works on a part calls this, so it would read a file of that part."""
    for start in range(first, last, 1000):
        x = np.arange(start, min(start + 1000, last)) / 10_000 - 1
        yield x, np.sin(9 * x)


def mapped(function: Callable, items: list) -> Any:
    """A map over the machines, for `bnnp.tasks.Parts`."""
    return Parallel()(delayed(function)(item) for item in items)


def cluster(by: str) -> AbstractContextManager:
    """What runs the work of joblib."""
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
    context = [partial(points, first, first + 5000) for first in range(0, 20_000, 5000)]
    conditioned = partial(model.condition, num_samples=20, seed=0, chunk_size=1000)
    with cluster(by):
        found = [mean for part in mapped(partial(predict, model), windows) for mean in part]
        post = conditioned(bnnp.tasks.Parts(context, mapped))
    alone = predict(model, subjects[-1:])[0]
    print(f"{len(found)} subjects; the last one has the same bits as alone: {np.array_equal(found[-1], alone)}")
    here = conditioned(bnnp.tasks.Parts(context))
    apart = np.abs(post.predict(subjects[0][2]).mean - here.predict(subjects[0][2]).mean).max()
    print(
        f"one context of {post.points} points in {len(context)} parts; from one machine alone, it is {apart:.1e} apart"
    )


if __name__ == "__main__":
    main()
