"""Models on disk: the same numbers to the last bit, clear errors for every other file, and no half-written ones."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import bnnp
from bnnp._core import tensor_files
from bnnp._core.files import write_atomically
from bnnp._core.tensor_files import read_tensors, write_tensors

X, Y = np.linspace(-1, 1, 7)[:, None], np.sin(3 * np.linspace(-1, 1, 7))[:, None]


def trained(model: bnnp.BNNP, y: np.ndarray = Y, **arguments) -> bnnp.BNNP:
    """The model after a few steps, so that no parameter is at its start."""
    tasks = bnnp.tasks.from_arrays([(X, y), (X + 1, y[::-1])], **arguments)
    bnnp.fit(model, tasks, objective=bnnp.objectives.PPAVI(num_samples=2), steps=3, progress=False)
    return model


def assert_same(model: bnnp.BNNP, other: bnnp.BNNP, y: np.ndarray = Y) -> None:
    state, again = model.state_dict(), other.state_dict()
    assert state.keys() == again.keys()
    assert all(torch.equal(state[name], again[name]) and state[name].dtype == again[name].dtype for name in state)
    assert {n: p.requires_grad for n, p in model.named_parameters()} == {
        n: p.requires_grad for n, p in other.named_parameters()
    }
    predictives = [m.condition(X, y, num_samples=3, seed=1).predict(X + 0.1) for m in (model, other)]
    np.testing.assert_array_equal(predictives[0].mean, predictives[1].mean)
    np.testing.assert_array_equal(predictives[0].observations(2), predictives[1].observations(2))
    np.testing.assert_array_equal(predictives[0].log_prob(y), predictives[1].log_prob(y))
    np.testing.assert_array_equal(model.prior.functions(1)[0](X), other.prior.functions(1)[0](X))
    assert (model.columns.x_names, model.columns.y_names) == (other.columns.x_names, other.columns.y_names)
    assert model.prior.learnability == other.prior.learnability
    assert json.dumps(model.config()) == json.dumps(other.config())


# --- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("prior", ["factorised", "unitwise", "layerwise", "networkwise"])
def test_every_prior_comes_back_to_the_last_bit(prior, dtype, tmp_path):
    model = trained(bnnp.BNNP(1, 1, hidden=(3, 2), prior=prior, dtype=dtype, seed=3))
    assert_same(model, bnnp.load(model.save(tmp_path / "m.bnnp")))


@pytest.mark.parametrize(
    ("likelihood", "out_size", "y"),
    [
        (bnnp.Gaussian([0.1, 0.3], learnable=False), 2, np.hstack([Y, -Y])),
        (bnnp.Gaussian(0.05, max_noise=0.3), 1, Y),
        (bnnp.Bernoulli(), 1, (Y > 0).astype(float)),
        (bnnp.Categorical(3), 3, np.arange(7)[:, None] % 3),
    ],
)
def test_every_likelihood_comes_back_to_the_last_bit(likelihood, out_size, y, tmp_path):
    model = trained(bnnp.BNNP(1, out_size, hidden=(3,), likelihood=likelihood), y)
    assert_same(model, bnnp.load(model.save(tmp_path / "m.bnnp")), y)


@pytest.mark.parametrize(
    "options",
    [
        {"last_layer": "likelihood"},
        {"last_layer": "pseudo", "activation": "tanh"},
        {"inference": bnnp.Pointwise(hidden=(5,), sees_hidden=True)},
        {"inference": bnnp.Pointwise(min_pseudo_noise=0.02)},
        {"hidden": ()},
    ],
)
def test_every_choice_comes_back(options, tmp_path):
    model = trained(bnnp.BNNP(1, 1, **{"hidden": (3, 2), **options}))
    assert_same(model, bnnp.load(model.save(tmp_path / "m.bnnp")))


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("prior", ["factorised", "unitwise", "layerwise", "networkwise"])
def test_a_partly_learnable_prior_comes_back_and_trains_on_alike(prior, share, tmp_path):
    model = trained(bnnp.BNNP(1, 1, hidden=(3,), prior=prior).set_prior_learnability(share))
    loaded = bnnp.load(model.save(tmp_path / "m.bnnp"))
    assert_same(model, loaded)
    assert_same(trained(model), trained(loaded))


def test_the_standardisation_comes_back(tmp_path):
    model = trained(bnnp.BNNP(1, 1, hidden=(3,)), 1000 + 50 * Y)
    loaded = bnnp.load(str(model.save(str(tmp_path / "m.bnnp"))))
    assert loaded.columns.y_shift.item() == pytest.approx(1000, abs=30)
    assert_same(model, loaded, 1000 + 50 * Y)


def test_a_folder_is_made_where_there_is_none(tmp_path):
    model = bnnp.BNNP(1, 1, hidden=(3,))
    assert_same(model, bnnp.load(model.save(tmp_path / "a" / "b" / "m.bnnp")))


def test_a_custom_activation_cannot_be_saved(tmp_path):
    model = bnnp.BNNP(1, 1, hidden=(3,), activation=torch.sin)
    with pytest.raises(ValueError, match=r"activation: .* cannot be saved; use a name instead"):
        model.save(tmp_path / "m.bnnp")
    assert list(tmp_path.iterdir()) == []


# --- other files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path) -> Path:
    return bnnp.BNNP(1, 1, hidden=(3,)).save(tmp_path / "m.bnnp")


def rewrite(path: Path, header=None, tensors=None) -> None:
    """The file again as one without a checksum, with a changed header or changed tensors."""
    with safe_open(path, framework="pt") as file:
        old = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = json.loads(file.metadata()["bnnp"]) | {"format": 1}
    del text["sha256"]
    changed = header(text) if header else text
    save_file(
        tensors(old) if tensors else old, path, {"bnnp": changed if isinstance(changed, str) else json.dumps(changed)}
    )


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "none.bnnp", tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no such file"):
            bnnp.load(path)


def test_an_unknown_model_of_the_zoo():
    with pytest.raises(ValueError, match="zoo model: got 'unicorn', expected one of"):
        bnnp.load("zoo:unicorn")


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, 0.99])
def test_a_truncated_file(saved, keep):
    content = saved.read_bytes()
    saved.write_bytes(content[: keep if isinstance(keep, int) else int(keep * len(content))])
    with pytest.raises(ValueError, match=r"m\.bnnp: not a model file of bnnp, or one that was cut short"):
        bnnp.load(saved)


@pytest.mark.parametrize("content", [b"task,x,y\n1,2,3\n", b"\x80\x04\x95pickle", bytes(range(56, 256)), b"{}" * 50])
def test_files_of_other_formats(tmp_path, content):
    (tmp_path / "m.bnnp").write_bytes(content)
    with pytest.raises(ValueError, match="not a model file of bnnp"):
        bnnp.load(tmp_path / "m.bnnp")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_safetensors_file_of_something_else(tmp_path, metadata):
    save_file({"w": torch.zeros(3)}, tmp_path / "m.bnnp", metadata)
    with pytest.raises(ValueError, match="safetensors file of something else"):
        bnnp.load(tmp_path / "m.bnnp")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (lambda h: {**h, "format": tensor_files.FORMAT_VERSION + 1}, "written by a newer bnnp, so upgrade"),
        (lambda h: {**h, "format": 0}, "the header of this file is damaged"),
        (lambda h: {**h, "format": "one"}, "the header of this file is damaged"),
        (lambda h: {**h, "kind": "checkpoint"}, "got a checkpoint file, expected a model file"),
        (lambda h: "{not json", "the header of this file is damaged"),
        (lambda h: ["a list"], "the header of this file is damaged"),
        (lambda h: {"format": 1}, "the header of this file is damaged"),
        (lambda h: {"format": 1, "kind": "model"}, "the model file is damaged"),
        (lambda h: {**h, "class": "Transformer"}, "unknown kind of model 'Transformer'"),
        (lambda h: {**h, "dtype": "float13"}, "the model file is damaged"),
        (lambda h: {**h, "prior_learnability": 7}, "the model file is damaged"),
        (lambda h: {**h, "columns": {"x": ["a", "b"], "y": ["c"]}}, "names of columns do not fit"),
        (lambda h: {**h, "columns": None}, "the model file is damaged"),
        (lambda h: {**h, "config": {**h["config"], "hidden": [4]}}, "tensors do not fit the model"),
        (lambda h: {**h, "config": {**h["config"], "prior": "factorised"}}, "tensors do not fit the model"),
        (lambda h: {**h, "config": {**h["config"], "hidden": "many"}}, "the model file is damaged"),
        (lambda h: {**h, "config": {**h["config"], "hidden": [10**12]}}, "the model file is damaged"),
        (lambda h: {**h, "config": {**h["config"], "surprise": 1}}, "the model file is damaged"),
        (lambda h: {**h, "config": {**h["config"], "likelihood": {"name": "poisson"}}}, "the model file is damaged"),
        (lambda h: {**h, "dtype": "float64"}, "tensors do not fit the model"),
    ],
)
def test_a_header_that_does_not_fit(saved, header, message):
    rewrite(saved, header=header)
    with pytest.raises(ValueError, match=rf"m\.bnnp: .*{message}"):
        bnnp.load(saved)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (lambda t: {**t, "likelihood.raw": torch.zeros(2)}, "tensors do not fit the model: likelihood.raw"),
        (lambda t: {**t, "extra": torch.zeros(2)}, "tensors do not fit the model: extra"),
        (lambda t: {n: v for n, v in t.items() if n != "likelihood.raw"}, "do not fit the model: likelihood.raw"),
        (lambda t: {**t, "likelihood.raw": torch.tensor([torch.nan])}, "values that are not finite in likelihood.raw"),
        (lambda t: {n: v.double() for n, v in t.items()}, "tensors do not fit the model"),
    ],
)
def test_tensors_that_do_not_fit(saved, tensors, message):
    rewrite(saved, tensors=tensors)
    with pytest.raises(ValueError, match=rf"m\.bnnp: the model file is damaged .*{message}"):
        bnnp.load(saved)


# --- whole or not at all ---------------------------------------------------------------------------------------------


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("function", ["replace", "fsync", "chmod"])
def test_a_full_disk_leaves_the_old_file_and_no_other(saved, function, monkeypatch):
    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(f"os.{function}", full_disk)
        with pytest.raises(
            OSError, match=r"cannot write .*m\.bnnp: No space left on device; .*free some space"
        ) as error:
            bnnp.BNNP(1, 1, hidden=(5,)).save(saved)
    assert error.value.errno == errno.ENOSPC
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["m.bnnp"]


def test_ctrl_c_while_writing_leaves_no_temporary_file(saved, monkeypatch):
    before = saved.read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bnnp.BNNP(1, 1, hidden=(5,)).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["m.bnnp"]


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot write .*choose another place"):
        bnnp.BNNP(1, 1, hidden=(3,)).save(tmp_path / "file" / "m.bnnp")


def test_a_folder_where_a_file_should_be(tmp_path):
    (tmp_path / "m.bnnp").mkdir()
    with pytest.raises(OSError, match="cannot write"):
        bnnp.BNNP(1, 1, hidden=(3,)).save(tmp_path / "m.bnnp")
    assert [path.name for path in tmp_path.iterdir()] == ["m.bnnp"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="cannot write"):
        bnnp.BNNP(1, 1, hidden=(3,)).save(tmp_path / "m.bnnp")


def test_text_and_bytes_are_written_as_they_are(tmp_path):
    assert write_atomically(tmp_path / "a.txt", "für\n").read_text() == "für\n"
    assert write_atomically(str(tmp_path / "a.txt"), b"\x00\xff").read_bytes() == b"\x00\xff"


def test_views_of_one_tensor_are_written_apart(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    write_tensors(tmp_path / "t", "test", {"a": base, "b": base.T, "c": base[:1].expand(2, 3), "d": base}, {"n": 1})
    tensors, header = read_tensors(tmp_path / "t", "test")
    assert torch.equal(tensors["b"], base.T)
    assert torch.equal(tensors["c"], base[:1].expand(2, 3))
    assert torch.equal(tensors["a"], tensors["d"])
    assert header["n"] == 1


def test_what_ships():
    assert bnnp.zoo_names() == ["curves", "gp", "heaviside", "sawtooth"]


def shipped_prior_draws(name: str) -> np.ndarray:
    x = np.linspace(-5, 5, 200)[:, None]
    return np.stack([f(x)[:, 0] for f in bnnp.load(f"zoo:{name}").prior.functions(300, seed=1)])


def test_the_shipped_gp_prior_has_the_covariance_of_the_process():
    found, x = np.cov(shipped_prior_draws("gp").T), torch.linspace(-5, 5, 200, dtype=torch.float64)[:, None]
    # 300 draws: a standard error of at most 0.08 an element; of the mean of many elements it is far smaller
    assert np.abs(found - bnnp.tasks.gp().covariance(x, x).numpy()).mean() < 0.08
    assert found.diagonal().min() > 0.5
    assert found.diagonal().max() < 1.5


def test_functions_of_the_shipped_heaviside_prior_jump_between_two_levels_as_often_as_the_process():
    values = shipped_prior_draws("heaviside")
    assert (np.abs(np.abs(values) - 1) < 0.1).mean() > 0.9
    jumps = (np.diff(np.sign(values), axis=1) != 0).sum(1).mean()
    assert 3.2 < jumps < 4.2  # the process has 3.6, 300 draws a standard error of 0.1


@pytest.mark.parametrize(("name", "worst"), [("heaviside", 0.3), ("gp", 0.2)])
def test_shipped_models_predict_new_tasks(name, worst):
    task = getattr(bnnp.tasks, name)(points=(60, 60))
    errors = []
    for drawn in task.draw(8, torch.Generator().manual_seed(3)):
        predictive = (
            bnnp.load(f"zoo:{name}").condition(drawn.x[:30], drawn.y[:30], num_samples=50).predict(drawn.x[30:])
        )
        errors.append(np.abs(predictive.mean - drawn.y[30:].numpy()).mean())
    assert np.mean(errors) < worst  # predicting 0 has 1.0 and 0.8


def test_the_shipped_model_loads_and_predicts():
    model = bnnp.load("zoo:sawtooth")
    split = bnnp.tasks.sawtooth_tests().splits[0]
    predictive = model.condition(split.context.x, split.context.y, num_samples=100).predict(split.target.x)
    assert np.abs(predictive.mean - split.target.y.numpy()).mean() < 0.1  # the process spreads over more than 0.4


def test_a_fresh_process_reads_a_neural_process(tmp_path):
    saved = bnnp.neural_processes.CNP(1, 1, (4,), seed=0).save(tmp_path / "peer.bnnp")
    code = f"import bnnp; print(type(bnnp.load({str(saved)!r})).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "CNP"
