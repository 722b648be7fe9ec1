"""Calls at the same time, and calls in forked processes, give what one call after the other gives."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import bnnp

X = np.linspace(-1, 1, 9)[:, None]
Y = np.sin(3 * X)
SHARED = {
    "unitwise": bnnp.BNNP(1, 1, (20, 20), seed=1),
    "fixed": bnnp.BNNP(1, 1, (20, 20), prior="networkwise", seed=1).set_prior_learnability(0),
    "attentive": bnnp.AttBNNP(1, 1, (8, 8), seed=1),
    "transformer": bnnp.neural_processes.TNP(1, 1, (8, 8), seed=1),
}


def numbers(model: torch.nn.Module) -> np.ndarray:
    return torch.cat([tensor.double().flatten() for tensor in model.state_dict().values()]).numpy()


def predicted(name: str) -> np.ndarray:
    return SHARED[name].condition(X, Y, num_samples=40, seed=2).predict(X + 0.1).mean


def trained() -> np.ndarray:
    tasks = bnnp.tasks.from_arrays([(X, Y), (X + 1, -Y)])
    return numbers(bnnp.fit(bnnp.AttBNNP(1, 1, (4,), seed=3), tasks, steps=2, progress=False).model)


CALLS: dict[str, Callable[[], np.ndarray]] = {
    **{f"predict by {name}": lambda name=name: predicted(name) for name in SHARED},
    "make a model with attention": lambda: numbers(bnnp.AttBNNP(1, 1, (8, 8), seed=5)),
    "make a transformer": lambda: numbers(bnnp.neural_processes.TNP(1, 1, (8, 8), seed=5)),
    "train": trained,
    "draw from torch's own state": lambda: np.zeros(1 + 0 * len(torch.rand(1000))),
}


def test_48_calls_from_8_threads_give_what_single_calls_give():
    """Nor do they touch torch's number of threads."""
    names, before = list(CALLS) * 6, torch.get_num_threads()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda name: CALLS[name](), names))
    assert len(names) == 48
    alone = {name: call() for name, call in CALLS.items()}
    assert [name for name, values in zip(names, found, strict=True) if not np.array_equal(values, alone[name])] == []
    assert torch.get_num_threads() == before


def test_nothing_draws_from_or_changes_the_global_random_states():
    before = torch.random.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    for name, call in CALLS.items():
        if "own state" not in name:
            call()
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert str(np.random.get_state()) == before[1]  # noqa: NPY002


FORKED = """
import os, signal
import bnnp  # before torch, so that threads spin briefly on a busy machine
import numpy as np, torch

torch.set_num_threads(2)
model = bnnp.BNNP(1, 1, (30, 30), seed=1)
x = np.linspace(-1, 1, 20)[:, None]

def mean():
    torch.ones(600, 600) @ torch.ones(600, 600)
    return model.condition(x, np.sin(x), num_samples=100, seed=2).predict(x).mean

before = mean()
read, write = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os.write(write, mean().tobytes())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "the child did not end"
found = np.frombuffer(os.read(read, 10**6))
np.testing.assert_allclose(found.reshape(before.shape), before, rtol=1e-5, atol=1e-6)
assert torch.get_num_threads() == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_process_can_use_the_library():
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], env=environment, check=True, timeout=300)
