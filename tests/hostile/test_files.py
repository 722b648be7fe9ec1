"""Damaged files, files that are replaced while read, full disks: no wrong numbers and no incomplete files."""

import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

import bnnp
from bnnp._core import files
from bnnp._core.files import write_atomically
from bnnp._core.locks import lock
from bnnp._core.tensor_files import read_tensors, write_tensors
from bnnp.training.checkpoint import FILE_NAME
from support.training import fit, model, same, state

X, Y = np.linspace(-1, 1, 7)[:, None], np.sin(3 * np.linspace(-1, 1, 7))[:, None]
MANY = pytest.mark.slow


def damaged(content: bytes, ways: random.Random) -> bytes:
    """The content with bytes flipped, taken out, put in or cut off."""
    place = ways.randrange(len(content))
    count = ways.choice([1, 1, 2, 8, 64])
    noise = ways.randbytes(count)
    return ways.choice(
        [
            content[:place] + bytes([content[place] ^ (1 << ways.randrange(8))]) + content[place + 1 :],
            content[:place] + noise + content[place + count :],
            content[:place],
            content[:place] + noise + content[place:],
            content[:place] + content[place + count :],
        ]
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, Path]:
    """One file of each kind."""
    folder = tmp_path_factory.mktemp("saved")
    trained = fit(checkpoint=folder).model
    post = trained.condition(X, Y, num_samples=3)
    return {
        "model": trained.save(folder / "m.bnnp"),
        "posterior": post.save(folder / "p.bnnp"),
        "checkpoint": folder / FILE_NAME,
    }


READ = {
    "model": lambda path: state(bnnp.load(path)),
    "posterior": lambda path: {str(i): w for i, w in enumerate(bnnp.load_posterior(path).weights)},
    "checkpoint": lambda path: state(fit(checkpoint=path.parent).model),
}


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=MANY)])
@pytest.mark.parametrize("kind", READ)
def test_a_damaged_file_never_gives_other_numbers(kind, count, saved, tmp_path):
    ways, content, expected = random.Random(kind), saved[kind].read_bytes(), READ[kind](saved[kind])
    path = tmp_path / FILE_NAME
    for _ in range(count):
        changed = damaged(content, ways)
        path.write_bytes(changed)
        if changed == content:  # a random byte may be the one that was there
            assert same(READ[kind](path), expected)
            continue
        with pytest.raises(ValueError, match=re.escape(str(path))):
            READ[kind](path)


@pytest.mark.parametrize("place", ["sha256", '"format', "2"])
def test_no_damage_makes_a_file_one_without_a_checksum(place, saved, tmp_path):
    """Not even that of the checksum's name or of the version."""
    content = saved["model"].read_bytes()
    start = content.index(b"format" if place == "2" else place.replace('"', '\\"').encode())
    start = content.index(b"2", start) if place == "2" else start
    (tmp_path / "m.bnnp").write_bytes(content[:start] + b"1" + content[start + 1 :])
    with pytest.raises(ValueError, match=r"m\.bnnp: .*(damaged|not a model file)"):
        bnnp.load(tmp_path / "m.bnnp")


def old_file(path: Path, header: str, tensors: dict | None = None) -> Path:
    path.write_bytes(save(tensors or {"w": torch.zeros(3)}, metadata={"bnnp": header}))
    return path


@pytest.mark.parametrize(
    "header",
    [
        "[" * 100_000,
        '{"format": 1, "kind": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"format": 1, "kind": "model", "n": ' + "9" * 5000 + "}",
        '{"format": 1' + "0" * 30 + ', "kind": "model"}',
    ],
    ids=["deep", "deep and whole", "huge number", "huge version"],
)
def test_deep_and_huge_headers_are_refused_by_name(header, tmp_path):
    for read in (bnnp.load, bnnp.load_posterior):
        with pytest.raises(ValueError, match=r"m\.bnnp: the header of this file is damaged"):
            read(old_file(tmp_path / "m.bnnp", header))


def outline(length: int, text: bytes, rest: bytes = b"") -> bytes:
    return length.to_bytes(8, "little") + text + rest


@pytest.mark.parametrize(
    "content",
    [
        outline(2**62, b"{}"),
        outline(2, b"{}", b"more"),
        outline(100_000, b"[" * 100_000),
        outline(4, b"[{}]"),
        outline(20, b'{"__metadata__":[1]} '),
        outline(62, b'{"w":{"dtype":"F64","shape":[99999999999],"data_offsets":[0,1]}}'),
        outline(71, b'{"w":{"dtype":"F32","shape":[9],"data_offsets":[0,99999999999999999]}}'),
        outline(18, b'{"w":{"dtype":9}} '),
    ],
)
def test_sizes_that_are_not_those_of_the_file_take_no_memory(content, tmp_path):
    (tmp_path / "m.bnnp").write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.bnnp: not a model file"):
        bnnp.load(tmp_path / "m.bnnp")


@pytest.mark.parametrize("change", [{"hidden": [30_000, 30_000]}, {"hidden": [3, 10**9]}, {"out_size": 10**10}])
def test_sizes_of_a_model_that_do_not_fit_its_tensors_take_no_memory(change, saved, tmp_path):
    tensors, header = read_tensors(saved["model"], "model")
    path = write_tensors(tmp_path / "m.bnnp", "model", tensors, {**header, "config": {**header["config"], **change}})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = r"m\.bnnp: the model file is damaged \((a tensor of \d+ numbers, where|.*got a request for)"
    with pytest.raises(ValueError, match=refused):
        bnnp.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_a_posterior_outlives_its_file(saved, tmp_path):
    """Nothing stays mapped: a file that is cut off or removed later changes nothing."""
    path = Path(shutil.copy(saved["posterior"], tmp_path / "p.bnnp"))
    post = bnnp.load_posterior(path)
    before = post.predict(X).mean
    path.write_bytes(b"")
    path.unlink()
    np.testing.assert_array_equal(post.predict(X).mean, before)


# --- who may read, and what is left ----------------------------------------------------------------------------------


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o027, 0o640)])
def test_the_umask_decides_who_may_read(mask, mode, umask, tmp_path):
    umask(mask)
    path = write_atomically(tmp_path / "file", "patients")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_file_is_never_open_to_more_people_than_it_was(umask, tmp_path):
    path = write_atomically(tmp_path / "file", "patients")
    path.chmod(0o600)
    write_atomically(path, "more")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_leftovers_of_killed_writers_are_removed_and_files_of_living_ones_are_not(tmp_path):
    dead, living = (tmp_path / f".file.{name}{files.TEMPORARY}" for name in ("dead", "living"))
    other = tmp_path / f".file2.dead{files.TEMPORARY}"
    for path in (dead, other):
        path.write_text("half")
    with living.open("w") as held:
        assert lock(held.fileno(), otherwise=False)
        write_atomically(tmp_path / "file", "whole")
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living.name, other.name, "file"])
    write_atomically(tmp_path / "file", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "file"]


# --- many at once ----------------------------------------------------------------------------------------------------


def replace_again_and_again(path: Path, contents: list[bytes], stop: threading.Event) -> None:
    while not stop.is_set():
        for content in contents:
            write_atomically(path, content)


@pytest.mark.parametrize("reads", [300, pytest.param(10_000, marks=MANY)])
def test_reads_while_the_file_is_replaced_are_never_mixed(reads, tmp_path):
    """By two other processes, which also take each other's files for leftovers where they should not."""
    models = [model(seed=seed, hidden=(30,)) for seed in range(2)]
    expected = [state(one) for one in models]
    contents = [one.save(tmp_path / "m.bnnp").read_bytes() for one in models]
    start = multiprocessing.get_context("spawn")
    stop = start.Event()
    writers = [start.Process(target=replace_again_and_again, args=(tmp_path / "m.bnnp", contents, stop)) for _ in "ab"]
    for writer in writers:
        writer.start()
    seen = [0, 0]
    try:
        for _ in range(reads):
            found = state(bnnp.load(tmp_path / "m.bnnp"))
            (which,) = [i for i, one in enumerate(expected) if same(found, one)]
            seen[which] += 1
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert min(seen) > 0
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["m.bnnp"]


FULL = """
import json, resource, signal, sys
import bnnp
from support.training import fit, same, state

folder, limit = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
try:
    fit(checkpoint=folder, checkpoint_every=3)
    message = ""
except OSError as error:
    message = str(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
again = fit(checkpoint=folder, checkpoint_every=3)
print(json.dumps([message, same(state(again.model), state(fit(checkpoint_every=3).model))]))
"""


def test_a_run_on_a_full_disk_says_so_and_goes_on_later(tmp_path):
    """No file may grow beyond some bytes, as if the disk were full."""
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", FULL, str(tmp_path / "run"), "2000"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    message, goes_on = json.loads(done.stdout)
    assert f"cannot write {tmp_path / 'run' / FILE_NAME}" in message
    assert "free some space" in message
    assert goes_on
    assert [file.name for file in (tmp_path / "run").iterdir()] == [FILE_NAME]
