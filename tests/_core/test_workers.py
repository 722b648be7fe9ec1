"""Work that several threads share gives the same results as work in one thread."""

import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from contextvars import ContextVar

import pytest
import torch

import bnnp
from bnnp._core.threads import in_parallel
from bnnp.models import draws
from bnnp.numerics import chunks
from bnnp.objectives import PPAVI
from bnnp.tasks.task import SplitBatch, TaskBatch
from bnnp.training.step import differentiate

PATIENCE = 20  # seconds until a thread that waits for another counts as stuck


@pytest.fixture(autouse=True)
def threads():
    """Torch's number of threads is that of before when a test is over."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


# --- in_parallel -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("items", [0, 1, 2, 7])
def test_results_are_in_the_order_of_the_items(threads, number, items):
    threads(number)
    assert in_parallel(lambda item: item**2, range(items)) == [item**2 for item in range(items)]


def test_two_items_run_at_the_same_time_and_may_end_in_any_order(threads):
    threads(2)
    second_is_done = threading.Event()

    def work(item: int) -> bool:
        if item == 0:
            return second_is_done.wait(PATIENCE)
        second_is_done.set()
        return False

    assert in_parallel(work, [0, 1]) == [True, False]


def test_one_thread_does_all_the_work_itself(threads):
    threads(1)
    assert set(in_parallel(lambda _: threading.get_ident(), range(3))) == {threading.get_ident()}


@pytest.mark.parametrize(("number", "items", "share"), [(1, 3, 1), (4, 1, 4), (4, 2, 2), (4, 3, 1), (4, 9, 1)])
def test_items_share_the_threads_that_torch_has(threads, number, items, share):
    threads(6)  # threads that had another share before
    in_parallel(lambda _: torch.get_num_threads(), range(items))
    threads(number)
    assert in_parallel(lambda _: torch.get_num_threads(), range(items)) == [share] * items
    assert torch.get_num_threads() == number


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("differentiable", [True, False])
def test_threads_differentiate_as_the_caller_does(threads, number, differentiable):
    threads(number)
    x = torch.ones(3, requires_grad=True)
    with torch.set_grad_enabled(not differentiable):  # what the threads did before must not matter
        in_parallel(lambda _: None, [0, 1])
    with torch.set_grad_enabled(differentiable):
        results = in_parallel(lambda factor: factor * x, [2, 3])
    assert [result.requires_grad for result in results] == [differentiable] * 2
    if differentiable:
        (gradient,) = torch.autograd.grad(results[0].sum() + results[1].sum(), x)
        assert torch.equal(gradient, torch.full((3,), 5.0))


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("bad", [0, 1, 5])
def test_an_error_in_one_item_is_the_callers(threads, number, bad):
    threads(number)

    def work(item: int) -> None:
        if item == bad:
            raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match=f"item {bad}"):
        in_parallel(work, range(6))
    assert torch.get_num_threads() == number
    assert in_parallel(lambda item: item, range(6)) == list(range(6))


@pytest.mark.parametrize("number", [1, 2])
def test_work_in_parallel_may_work_in_parallel(threads, number):
    threads(number)
    found = in_parallel(lambda i: in_parallel(lambda j: 10 * i + j, range(3)), range(4))
    assert found == [[10 * i + j for j in range(3)] for i in range(4)]
    assert torch.get_num_threads() == number


@pytest.mark.parametrize("fails", [False, True])
def test_no_number_of_threads_is_left_changed(threads, fails):
    """Nor that of threads that are started while others are at work, or later."""
    threads(5)
    before, seen = number_in_a_new_thread(), []

    def work(item: int) -> None:
        seen.append(number_in_a_new_thread())
        if fails and item == 1:
            raise ValueError("an error")

    with pytest.raises(ValueError, match="an error") if fails else nullcontext():
        in_parallel(work, range(3))
    assert {before, *seen, number_in_a_new_thread(), torch.get_num_threads()} == {5}


def number_in_a_new_thread() -> int:
    numbers = []
    thread = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return numbers[0]


def test_threads_see_the_callers_context_variables(threads):
    threads(2)
    colour = ContextVar("colour", default="none")
    token = colour.set("blue")
    assert in_parallel(lambda _: colour.get(), range(3)) == ["blue"] * 3
    colour.reset(token)
    assert in_parallel(lambda _: colour.get(), range(3)) == ["none"] * 3


NESTED = """
import faulthandler, threading, torch
from bnnp._core.threads import in_parallel

faulthandler.dump_traceback_later(5, exit=True)
torch.set_num_threads(4)
both_at_work = threading.Barrier(2)

def work(i):
    assert torch.get_num_threads() == 2
    both_at_work.wait()
    return in_parallel(lambda j: 10 * i + j, range(2))

print(in_parallel(work, range(2)))
"""


def test_nested_work_does_not_wait_for_itself():
    """In a process of its own, which ends itself when it hangs."""
    found = subprocess.run([sys.executable, "-c", NESTED], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[[0, 1], [10, 11]]"


def test_threads_may_write_into_tensors_of_inference_mode(threads):
    threads(2)
    with torch.inference_mode():
        out = torch.zeros(2)
        in_parallel(lambda i: out[i : i + 1].fill_(i + 1), [0, 1])
    assert out.tolist() == [1, 2]


# --- the library's results -------------------------------------------------------------------------------------------


def batch(context: int) -> SplitBatch:
    x = 4 * torch.rand(5, 30, 1, generator=torch.Generator().manual_seed(0)) - 2
    mask = torch.ones(5, 30, dtype=torch.bool)
    parts = (slice(0, context), slice(context, 30))
    return SplitBatch(*(TaskBatch(x[:, part], torch.sin(3 * x[:, part]), mask[:, part]) for part in parts))


@pytest.fixture
def shares(monkeypatch) -> list[int]:
    """Solves split into shares, however small; into how many, call by call."""
    numbers = []

    def counted(work, items):
        numbers.append(len(items))
        return in_parallel(work, items)

    monkeypatch.setattr(chunks, "NUMBERS_PER_SHARE", 2**10)
    monkeypatch.setattr(chunks, "in_parallel", counted)
    return numbers


@pytest.mark.parametrize("prior", ["unitwise", "factorised"])
@pytest.mark.parametrize("context", [24, 12])
def test_gradients_do_not_depend_on_the_number_of_threads(threads, shares, prior, context):
    """In weight space with 24 context points and in function space with 12."""
    model = bnnp.BNNP(1, 1, (20, 20), prior=prior, likelihood=bnnp.Gaussian(0.05))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients, terms = [], []
    for number in (1, 2):
        threads(number)
        terms.append(differentiate(model, PPAVI(8), batch(context), parameters, 0).total())
        gradients.append([parameter.grad for parameter in parameters])
    assert max(shares) == chunks.MOST_SHARES
    torch.testing.assert_close(terms[1], terms[0], rtol=1e-5, atol=0)
    for one, two in zip(*gradients, strict=True):
        assert (two - one).norm() <= 1e-5 * one.norm()


def test_weight_samples_do_not_depend_on_the_number_of_threads(monkeypatch, threads, shares):
    monkeypatch.setattr(draws, "SAMPLES_AT_ONCE", 2**16)
    model = bnnp.BNNP(1, 1, (20, 20), likelihood=bnnp.Gaussian(0.05))
    x = torch.linspace(-2, 2, 12)
    posteriors = []
    for number in (1, 2):
        threads(number)
        posteriors.append(model.condition(x, torch.sin(3 * x), num_samples=30))
    assert len(draws.sample_chunks(range(30), model.numbers_per_sample(12))) > 2
    assert max(shares) > 1
    one, two = (posterior.weights for posterior in posteriors)
    torch.testing.assert_close(two, one, rtol=1e-5, atol=1e-5)


def test_predictions_do_not_depend_on_the_number_of_threads(monkeypatch, threads):
    monkeypatch.setattr("bnnp.prediction.weights.NUMBERS_AT_ONCE", 2**10)
    model = bnnp.BNNP(1, 1, (20, 20), likelihood=bnnp.Gaussian(0.05))
    x = torch.linspace(-2, 2, 70)
    posterior = model.condition(x[:5], torch.sin(x[:5]), num_samples=7)
    samples = []
    for number in (1, 2):
        threads(number)
        samples.append(torch.as_tensor(posterior.predict(x).samples))
    torch.testing.assert_close(samples[1], samples[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("chosen", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
    ids=["nothing", "spins", "policy"],
)
def test_threads_spin_briefly_unless_the_user_has_chosen(chosen, spins):
    """And torch is imported after that: it looks once."""
    code = (
        "import os, sys, bnnp; bnnp.BNNP; order = list(sys.modules);"
        "print(os.environ.get('GOMP_SPINCOUNT'), order.index('bnnp._core.waiting') < order.index('torch'))"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")} | chosen
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [spins, "True"]
