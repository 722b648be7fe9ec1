"""Several processes train to the same numbers as one, and continue from each other's state."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bnnp._core.random import OfShare, child, normal
from bnnp._core.ranks import Ranks
from bnnp.training.ranks import Share, check_batch, summed
from support import killed_ranks
from support.in_threads import in_threads
from support.ranks import tasks, train

SCRIPT = Path(__file__).parents[1] / "support" / "ranks.py"
STEPS, KILLED = 20, 12
"""Steps of the run, and the step after which one of two processes is killed. Every fifth step is kept."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, str]:
    """The folder of a run of two processes of which the second was killed, and the last words of the first."""
    folder, meeting = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("meeting") / "file"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    commands = [
        [sys.executable, "-W", "ignore", *map(str, (SCRIPT, rank, 2, meeting, STEPS, folder, KILLED))]
        for rank in range(2)
    ]
    processes = [
        subprocess.Popen(one, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for one in commands
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert processes[0].returncode == 1, errors
    return folder, errors[0]


def test_a_killed_process_ends_all_with_a_message(killed):
    _, message = killed
    assert "OSError: rank 0 of 2: another process of this run has ended" in message
    assert "start the run again, with any number of processes: it goes on from its checkpoint" in message


def test_a_run_that_continues_with_another_number_of_processes_ends_with_the_same_numbers(killed):
    folder, _ = killed
    alone, resumed = train(STEPS, None), train(STEPS, str(folder))
    for one, other in zip(resumed.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert [record["step"] for record in resumed.history.steps] == list(range(1, STEPS + 1))
    for one, other in zip(resumed.history.steps, alone.history.steps, strict=True):
        assert one["objective"] == pytest.approx(other["objective"], rel=1e-9)  # 10 of them by two processes


@pytest.mark.slow
def test_when_a_process_is_killed_the_others_say_so_and_the_run_can_continue():
    found = killed_ranks.main(20)
    assert found["killed"] >= 20
    assert found["said"] == found["killed"]
    assert found["same"] == found["runs"]


def test_the_draws_of_a_share_are_those_of_the_whole():
    whole = normal((5, 2, 3), torch.zeros(()), child(1, 2))
    for rank in range(2):
        share = Share.in_group(Ranks(rank, 2), 5)
        generator = share.generator(1, 2)
        assert isinstance(generator, OfShare)
        found = normal((share.stop - share.start, 2, 3), torch.zeros(()), generator)
        assert torch.equal(found, whole[share.start : share.stop])


@pytest.mark.parametrize("count", [3, 4, 7])
def test_every_task_is_in_exactly_one_share(count):
    shares = [Share.in_group(Ranks(rank, 3), count) for rank in range(3)]
    assert [i for share in shares for i in range(share.start, share.stop)] == list(range(count))


@pytest.mark.parametrize(("count", "batch_size"), [(12, 2), (2, 5)])
def test_more_processes_than_tasks_per_step_are_refused(count, batch_size):
    with pytest.raises(ValueError, match=r"batch_size: got 2 tasks per step for 3 processes, expected at least one"):
        check_batch(Ranks(0, 3), tasks(count), batch_size)


@pytest.mark.parametrize(("failed", "expected"), [([None, None], None), ([None, 3], 3), ([1, 3], 1)])
def test_all_processes_learn_of_the_first_task_that_failed(failed, expected):
    assert in_threads(lambda ranks: ranks.first_failure(failed[ranks.rank]), 2) == [expected, expected]


def test_gradients_of_all_processes_sum_to_that_of_the_whole_batch():
    """Of five tasks, the first process has two, with a mean gradient of 1; the other has three, with one of 2."""

    def work(ranks: Ranks):
        both = [torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(2)]
        both[0].grad = torch.full((2, 3), 1.0 + ranks.rank)
        share = Share.in_group(ranks, 5)
        terms, counts = summed(both, {"kl": torch.arange(share.start, share.stop)}, [ranks.rank, 1], ranks, share)
        return both[0].grad, both[1].grad, terms["kl"].tolist(), counts

    for gradient, unused, terms, counts in in_threads(work, 2):
        torch.testing.assert_close(gradient, torch.full((2, 3), (2 * 1.0 + 3 * 2.0) / 5))
        assert unused is None
        assert terms == [0, 1, 2, 3, 4]
        assert counts == [1, 2]
