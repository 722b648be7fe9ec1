"""Updates that need float64 or the whitened form are counted, whoever does the work."""

import threading

import pytest
import torch

from bnnp._core.threads import in_parallel
from bnnp.models.estimates import in_float64_where_needed
from bnnp.numerics import fallbacks
from bnnp.numerics.fallbacks import Counts
from bnnp.numerics.gaussian import condition, function_space, weight_space, whitened_space
from bnnp.numerics.health import TooLargeForFloat32
from bnnp.numerics.records import Observations, UnitPrior, UpdateDraws

D = 3


def update(form, points: int, inverse_noise: float = 1.0, certain: bool = False, dtype=torch.float32):
    """An update of two units; small noise is too much for float32, and a prior may be certain of a combination."""
    factor = torch.eye(D).repeat(2, 1, 1)
    if certain:
        factor[1] = torch.diag(torch.tensor([1.0, 1e-4, 1e-4])) + torch.diag(torch.ones(D - 1), -1)
    phi = 1 + 1e-3 * torch.arange(points * D).sin().view(1, 1, points, D)
    y, draws = torch.ones(1, 1, 2, points), UpdateDraws(torch.zeros(1, 1, 2, D), torch.zeros(1, 1, 2, points))
    prior, seen = UnitPrior(torch.zeros(1, 1, 2, D), factor), Observations(y, torch.full_like(y, inverse_noise))
    return form(prior.to(dtype), phi.to(dtype), seen.to(dtype), draws.to(dtype))


@pytest.mark.parametrize("points", [2, 9])
def test_an_update_without_trouble_counts_for_nothing(points):
    with fallbacks.counted() as counts:
        update(condition, points)
        update(condition, points, inverse_noise=1e3, dtype=torch.float64)
        update(whitened_space, points)  # asked for, not fallen back to
    assert counts == Counts(float64=0, whitened=0)


@pytest.mark.parametrize(("form", "points"), [(function_space, 2), (weight_space, 9)])
def test_updates_that_are_repeated_in_float64_are_counted(form, points):
    with fallbacks.counted() as counts:
        for _ in range(3):
            update(form, points, inverse_noise=1e3)
    assert counts == Counts(float64=3, whitened=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_updates_through_the_whitened_form_are_counted(dtype):
    with fallbacks.counted() as counts:
        update(weight_space, 9, certain=True, dtype=dtype)
    assert counts == Counts(float64=0, whitened=1)


def test_estimates_that_are_repeated_in_float64_are_counted():
    class Estimates:
        def in_float64(self) -> str:
            return "in float64"

    def compute(estimates):
        if isinstance(estimates, Estimates):
            raise TooLargeForFloat32
        return estimates

    with fallbacks.counted() as counts:
        assert in_float64_where_needed(Estimates(), compute) == "in float64"  # pyright: ignore
    assert counts == Counts(float64=1, whitened=0)


def test_counts_within_counts_are_part_of_the_outer_ones():
    with fallbacks.counted() as outer:
        fallbacks.count(float64=1)
        with fallbacks.counted() as inner:
            fallbacks.count(whitened=1)
        fallbacks.count(float64=1)
    fallbacks.count(float64=1)
    assert (outer, inner) == (Counts(2, 1), Counts(0, 1))


def test_counting_ends_with_an_error():
    with pytest.raises(ValueError, match="oh"), fallbacks.counted() as counts:
        raise ValueError("oh")
    fallbacks.count(float64=1)
    assert counts == Counts()


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_work_in_threads_of_the_library_counts():
    with fallbacks.counted() as counts:
        in_parallel(lambda _: [fallbacks.count(float64=1) for _ in range(1000)], range(8))
    assert counts.float64 == 8000


def test_other_threads_count_for_themselves():
    found = {}

    def work(number: int) -> None:
        with fallbacks.counted() as counts:
            both.wait()
            for _ in range(number):
                fallbacks.count(whitened=1)
            both.wait()
        found[number] = counts.whitened

    both = threading.Barrier(3)
    with fallbacks.counted() as outside:
        threads = [threading.Thread(target=work, args=(number,)) for number in (3, 5)]
        for thread in threads:
            thread.start()
        both.wait()
        both.wait()
        for thread in threads:
            thread.join()
    assert found == {3: 3, 5: 5}
    assert outside.whitened == 0
