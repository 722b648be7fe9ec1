"""Several processes train to the numbers of one, and go on from each other's state."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bnnp._core.random import OfShare, child, normal
from bnnp._core.ranks import Ranks
from bnnp.training.ranks import Share, check_batch
from support.ranks import train

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
    processes = [subprocess.Popen(one, env=environment, stderr=subprocess.PIPE, text=True) for one in commands]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert processes[0].returncode == 1, errors
    return folder, errors[0]


def test_a_killed_process_ends_all_with_a_message(killed):
    _, message = killed
    assert "OSError: rank 0 of 2: another process of this run has ended" in message
    assert "start the run again, with any number of processes: it goes on from its checkpoint" in message


def test_another_number_of_processes_goes_on_to_the_numbers_of_one(killed):
    folder, _ = killed
    alone, resumed = train(STEPS, None), train(STEPS, str(folder))
    for one, other in zip(resumed.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert [record["step"] for record in resumed.history.steps] == list(range(1, STEPS + 1))
    for one, other in zip(resumed.history.steps, alone.history.steps, strict=True):
        assert one["objective"] == pytest.approx(other["objective"], rel=1e-9)  # 10 of them by two processes


def test_the_draws_of_a_share_are_those_of_the_whole():
    whole = normal((5, 2, 3), torch.zeros(()), child(1, 2))
    for rank in range(2):
        share = Share.in_group(Ranks(rank, 2), 5)
        generator = share.generator(1, 2)
        assert isinstance(generator, OfShare)
        found = normal((share.stop - share.start, 2, 3), torch.zeros(()), generator)
        assert torch.equal(found, whole[share.start : share.stop])


@pytest.mark.parametrize("tasks", [3, 4, 7])
def test_shares_are_all_tasks_once(tasks):
    shares = [Share.in_group(Ranks(rank, 3), tasks) for rank in range(3)]
    assert [i for share in shares for i in range(share.start, share.stop)] == list(range(tasks))


def test_more_processes_than_tasks_per_step_are_refused():
    with pytest.raises(ValueError, match=r"batch_size: got 2 tasks per step for 3 processes, expected at least one"):
        check_batch(Ranks(0, 3), 2)
