"""A context in parts that several processes hold gives the posterior of the whole to each of them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import bnnp
from bnnp._core.ranks import Ranks
from bnnp.models import streaming


@dataclass(frozen=True)
class InThreads(Ranks):
    """Threads in place of processes, which add up in a list that they share."""

    @property
    def board(self) -> tuple[threading.Barrier, dict]:
        return self.group

    def sum(self, values):
        barrier, written = self.board
        written[self.rank] = values.clone()
        barrier.wait()
        total = torch.stack([written[rank] for rank in range(self.size)]).sum(0)
        barrier.wait()
        return total


@pytest.mark.parametrize("hidden", [(), (4, 3)], ids=str)
@pytest.mark.parametrize("given", ["arrays", "pieces"])
def test_parts_give_the_posterior_of_the_whole(hidden, given):
    model, random = bnnp.BNNP(1, 1, hidden=hidden, dtype=torch.float64, seed=0), np.random.default_rng(0)
    x, y = random.normal(size=(2, 50, 1))
    board = (threading.Barrier(3, timeout=60), {})

    def posterior(rank: int) -> bnnp.WeightPosterior:
        part = slice((0, 7, 30)[rank], (7, 30, 50)[rank])
        shard = (x[part], y[part]) if given == "arrays" else ([(x[part], y[part])], None)
        return streaming.sampler(model, *shard, 1, 8, False, InThreads(rank, 3, board))(range(6))

    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(posterior, range(3)))
    whole = model.condition([(x, y)], num_samples=6, seed=1, chunk_size=50)
    for post in parts:
        assert post.points == 50
        for one, other in zip(post.weights, whole.weights, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(post.predict(x[:3]).std, whole.predict(x[:3]).std, rtol=1e-9)


def test_what_is_not_a_group_is_refused():
    model = bnnp.BNNP(1, 1, hidden=(4,))
    with pytest.raises(ValueError, match=r"group: got 'all', expected a process group of torch"):
        model.condition([0.0], [0.0], chunk_size=8, group="all")
    with pytest.raises(ValueError, match=r"group: got a process group without chunk_size"):
        model.condition([0.0], [0.0], group="all")
