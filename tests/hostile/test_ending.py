"""Commands that are told to end do so quietly at any time; runs that were killed continue to the same numbers."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import bnnp
from bnnp.training.checkpoint import FILE_NAME
from bnnp.training.folder import LOCK
from support.training import fit

COMMAND = [sys.executable, "-m", "bnnp"]
TRAIN = ["train", "--source", "sawtooth", "--hidden", "4", "--steps", "1000000", "--quiet"]
PATIENCE = 120  # seconds
FROM_THE_START = "from bnnp.cli import main; print('the first line', flush=True); main()"
"""Nothing can be done about a signal that arrives while Python itself starts."""


def stopped(words: list, number: int, *, after: float = 0.0, once: Path | None = None) -> tuple[int, str]:
    """Exit code and errors of a command that gets a signal after its first line, or once a file is there."""
    process = subprocess.Popen(
        [sys.executable, "-c", FROM_THE_START, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )
    assert process.stdout is not None
    process.stdout.readline()
    until = time.monotonic() + PATIENCE
    while once is not None and not once.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(after)
    process.send_signal(number)
    try:
        return process.wait(PATIENCE), process.communicate()[1]
    finally:
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_training_that_is_told_to_end_keeps_its_state_and_goes_on(number, tmp_path):
    code, err = stopped([*TRAIN, "--out", tmp_path / "run"], number, once=tmp_path / "run" / LOCK, after=2)
    assert code == 130
    assert "Traceback" not in err
    assert "the same command goes on from here" in err
    assert bnnp.load(tmp_path / "run").in_size == 1
    assert {file.name for file in (tmp_path / "run").iterdir()} >= {FILE_NAME, "model.bnnp", "history.json"}
    assert not (tmp_path / "run" / LOCK).exists()


def test_a_command_that_is_ended_while_it_starts_prints_nothing():
    for after in (0.01, 0.5):
        code, err = stopped(["info"], signal.SIGINT, after=after)
        assert (code, err) in ((130, ""), (0, ""))  # 0: it was done before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_command_that_is_ended_at_any_time_prints_nothing(seed, tmp_path):
    ways = random.Random(seed)
    for _ in range(5):
        number = ways.choice([signal.SIGINT, signal.SIGTERM])
        code, err = stopped([*TRAIN, "--out", tmp_path / "run"], number, after=ways.uniform(0.01, 12))
        assert code == 130
        assert err in ("", "stopped; the same command goes on from here\n")


# --- the folder of a run ---------------------------------------------------------------------------------------------


def test_a_second_run_in_the_same_folder_is_refused_and_the_lock_can_be_broken(tmp_path):
    seen = []

    def second(_) -> dict[str, float]:
        try:
            fit(checkpoint=tmp_path)
        except OSError as error:
            seen.append(str(error))
        return {}

    fit(checkpoint=tmp_path, evaluation=second, evaluate_every=7)
    (message,) = seen
    assert f"checkpoint: {tmp_path} is in use by another run (process {os.getpid()} on " in message
    assert f"delete {tmp_path / LOCK}" in message
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]

    def broken(_) -> dict[str, float]:
        (tmp_path / "other" / LOCK).unlink()
        seen.append(fit(checkpoint=tmp_path / "other").interrupted)
        return {}

    fit(checkpoint=tmp_path / "other", evaluation=broken, evaluate_every=7)
    assert seen[1:] == [False]


def test_another_process_is_refused_too(tmp_path):
    process = subprocess.Popen([*COMMAND, *TRAIN, "--out", tmp_path], stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / LOCK).exists() and process.poll() is None:
            time.sleep(0.05)
        time.sleep(0.2)
        done = subprocess.run([*COMMAND, *TRAIN, "--out", tmp_path], capture_output=True, text=True)
        assert done.returncode == 2
        assert f"is in use by another run (process {process.pid} on" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        process.kill()
        process.wait()
    assert not fit(checkpoint=tmp_path / "new").interrupted


def test_the_lock_of_a_killed_run_does_not_block_others(tmp_path):
    (tmp_path / LOCK).write_text("process 1 on elsewhere since long ago\n")
    fit(checkpoint=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


def test_a_training_that_is_refused_leaves_no_folder(tmp_path):
    with pytest.raises(bnnp.TrainingDiverged):
        fit(objective=bnnp.objectives.PPAVI(2, kl_weight=float("nan")), checkpoint=tmp_path / "a" / "b")
    with pytest.raises(ValueError, match="cannot be saved"):
        bnnp.fit(bnnp.BNNP(1, 1, (3,), activation=torch.sin), bnnp.tasks.sawtooth(), steps=1, checkpoint=tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_the_state_is_written_by_time_too(tmp_path):
    seen = []

    def look(_) -> dict[str, float]:
        seen.append((tmp_path / FILE_NAME).exists())
        return {}

    often, settings = bnnp.Checkpointing(tmp_path, every=10**6, seconds=1e-9), bnnp.Evaluation(look, every=2)
    choices = {"steps": 7, "settings": bnnp.FitSettings(evaluation=settings), "progress": False}
    bnnp.fit(bnnp.BNNP(1, 1, (3,)), bnnp.tasks.sawtooth(), checkpoint=often, **choices)
    assert seen[1:] == [True] * (len(seen) - 1)
    with pytest.raises(ValueError, match=r"seconds: got 0, expected a positive number"):
        bnnp.Checkpointing(tmp_path, seconds=0)


# --- kill -9 ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks")
@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_runs_go_on_to_the_last_bit(kills):
    """Half of the kills are inside a write. Nothing is left of them but the state."""
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "support.killed_runs", str(kills)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(found)
    assert found["killed"] >= kills
    assert found["inside"] >= 0.4 * kills
    assert found["same"] == found["runs"] > 0
    assert found["left"] == 0
