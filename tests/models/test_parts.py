"""A context in parts that are read elsewhere gives the posterior of the whole."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bnnp
from bnnp.tasks import Parts

ROOT = Path(__file__).parents[2]
X, Y = np.random.default_rng(0).normal(size=(2, 50, 1))
PLACES = [slice(0, 7), slice(7, 7), slice(7, 30), slice(30, 50)]
"""Parts of the points, of which one is empty."""
PARTS = [[(X[some], Y[some])] for some in PLACES]


def sent_there_and_back(work, items):
    """What a map over processes does: all that it needs and gives is pickled, and some hash the function."""
    assert isinstance(hash(work), int)
    return [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(work))(pickle.loads(pickle.dumps(i))))) for i in items]


def by_threads(work, items):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, items))


def last_first(work, items):
    return map(work, reversed(items))


@pytest.mark.parametrize("prior", ["unitwise", "factorised", "networkwise"])
@pytest.mark.parametrize("by", [map, sent_there_and_back, by_threads, last_first])
def test_parts_give_the_posterior_of_the_whole(prior, by):
    model = bnnp.BNNP(1, 1, hidden=(4, 3), prior=prior, dtype=torch.float64, seed=0)
    whole = model.condition([(X, Y)], num_samples=6, seed=1, chunk_size=50)
    post = model.condition(Parts(PARTS, by), num_samples=6, seed=1, chunk_size=8)
    assert post.points == 50
    for one, other in zip(post.weights, whole.weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    more = (X[:5] + 3, Y[:5])
    for one, other in ((post, whole), (post.update(*more), whole.update(*more))):
        np.testing.assert_allclose(one.predict(X[:3]).std, other.predict(X[:3]).std, rtol=1e-9)


def test_parts_are_files_or_functions_too(tmp_path):
    model, parts = bnnp.BNNP(1, 1, hidden=(4,), dtype=torch.float64, seed=0), []
    for number, some in enumerate(PLACES):
        file = tmp_path / f"{number}.parquet"
        pd.DataFrame({"a": X[some, 0], "b": Y[some, 0]}).to_parquet(file)
        parts.append(bnnp.tasks.from_parquet(file, x=["a"], y=["b"]))
    posts = [model.condition(Parts(some, sent_there_and_back), chunk_size=8, num_samples=4) for some in (parts, PARTS)]
    reads = Parts([lambda some=some: iter([(X[some], Y[some])]) for some in PLACES])
    posts.append(model.condition(reads, chunk_size=8, num_samples=4))
    for post in posts[1:]:
        assert torch.equal(post.weights[-1], posts[0].weights[-1])


@pytest.mark.slow
def test_the_example_for_clusters_prints_what_its_page_says():
    """By two processes of this machine; the lines of the example are the same for Ray and Dask."""
    command = [sys.executable, str(ROOT / "examples" / "many_machines.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    page = (ROOT / "docs" / "scale.md").read_text()
    assert printed[0] == "1000 subjects; the last one has the same bits as alone: True"
    assert all(line.rsplit(" ", 2)[0] in page for line in printed)
    assert float(printed[1].split()[-2]) < 1e-9


def test_what_does_not_answer_for_every_part_is_refused():
    model = bnnp.BNNP(1, 1, hidden=(4,))
    with pytest.raises(ValueError, match="map: got results for 3 of 4 parts, expected one for each"):
        model.condition(Parts(PARTS, lambda work, items: [work(item) for item in items[1:]]), chunk_size=8)
    with pytest.raises(ValueError, match="map: got part 2 twice, expected one result for each part"):
        model.condition(Parts(PARTS, lambda work, items: [work(items[i]) for i in (0, 1, 2, 2)]), chunk_size=8)
    with pytest.raises(ValueError, match="map: got 4, expected a function such as the built-in map"):
        Parts(PARTS, 4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"parts: got \[\], expected a list with at least one context in it"):
        Parts([])
    for more in ({"y": Y}, {"chunk_size": None}):
        with pytest.raises(ValueError, match="expected"):
            model.condition(Parts(PARTS), **{"chunk_size": 8, **more})


def test_points_that_change_between_readings_are_refused():
    model, sizes = bnnp.BNNP(1, 1, hidden=(4,)), iter([3, 3, 4])
    changing = Parts([lambda: iter([(X[: (n := next(sizes))], Y[:n])])])
    with pytest.raises(ValueError, match="got 4 points in one reading of the context and 3 in another"):
        model.condition(changing, chunk_size=8, num_samples=4)
