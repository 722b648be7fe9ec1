"""Files of an earlier version of the library, one of every kind of model, still load and give the same numbers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import bnnp
from bnnp.models.saving import todays_header

FILES = Path(__file__).parent.parent / "support" / "files"
EXPECTED = json.loads((FILES / "expected.json").read_text())
X = np.linspace(-1, 1, 5)[:, None]
Y = np.sin(3 * X)
X_NEW = np.array([[-0.5], [0.3]])
KINDS = {
    "bnnp": bnnp.BNNP,
    "attbnnp": bnnp.AttBNNP,
    "bnam": bnnp.BNAM,
    "cnp": bnnp.neural_processes.CNP,
    "np": bnnp.neural_processes.NP,
    "anp": bnnp.neural_processes.ANP,
    "bnp": bnnp.neural_processes.BNP,
    "tnp": bnnp.neural_processes.TNP,
    "artnp": bnnp.neural_processes.TNP,
}


def assert_predicts(post, name: str) -> None:
    np.testing.assert_allclose(post.predict(X_NEW).mean.ravel(), EXPECTED[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_loads_and_predicts_as_it_did(name):
    model = bnnp.load(FILES / f"{name}.bnnp")
    assert type(model) is KINDS[name]
    assert_predicts(model.condition(X, Y, num_samples=4, seed=0), name)


@pytest.mark.parametrize("name", KINDS)
def test_they_are_written_anew_in_the_form_of_today(name, tmp_path):
    model = bnnp.load(FILES / f"{name}.bnnp")
    again = bnnp.load(model.save(tmp_path / "m.bnnp"))
    assert type(again) is type(model)
    assert again.config() == model.config()
    assert_predicts(again.condition(X, Y, num_samples=4, seed=0), name)


def test_all_choices_are_kept():
    model = bnnp.load(FILES / "bnnp.bnnp")
    assert model.inference == bnnp.Pointwise(hidden=(4,), sees_hidden=True, min_pseudo_noise=0.02)
    assert (model.last_layer, model.network.activation, model.network.sizes) == ("pseudo", "tanh", (1, 3, 2, 1))
    assert model.prior.learnability == 0.4
    assert bnnp.load(FILES / "attbnnp.bnnp").inference == bnnp.Attentive(hidden=(4,), heads=4)
    machine = bnnp.load(FILES / "bnam.bnnp")
    assert machine.inference == bnnp.Pointwise(hidden=(3,))
    assert machine.config()["transformer"] == {"width": 4, "blocks": 1, "heads": 2, "mlp": 3}
    assert bnnp.load(FILES / "artnp.bnnp").autoregressive
    assert not bnnp.load(FILES / "tnp.bnnp").autoregressive


@pytest.mark.parametrize("name", ["bnnp", "attbnnp"])
def test_posteriors_load_and_predict_as_they_did(name):
    post = bnnp.load_posterior(FILES / f"{name}.posterior")
    assert type(post.model) is KINDS[name]
    assert_predicts(post, name)


def test_a_run_goes_on_from_an_old_checkpoint(tmp_path):
    """The run was finished, so no step is done; a model with other inference networks is refused."""
    shutil.copytree(FILES / "run", tmp_path / "run")
    tasks = bnnp.tasks.from_arrays([(X, Y), (X + 1, -Y)])

    def run(hidden: int):
        choices = {"inference": bnnp.Pointwise(hidden=(hidden,)), "dtype": torch.float64, "seed": 3}
        model = bnnp.BNNP(1, 1, (3,), likelihood=bnnp.Gaussian(0.1), **choices)
        objective = bnnp.objectives.PPAVI(num_samples=2)
        return bnnp.fit(
            model, tasks, objective=objective, steps=2, checkpoint=tmp_path / "run", progress=False, seed=0
        ).model

    assert_predicts(run(hidden=4).condition(X, Y, num_samples=4, seed=0), "run")
    with pytest.raises(ValueError, match=r"checkpoint: .* is of a run with model="):
        run(hidden=5)


def test_a_header_of_today_stays_as_it_is():
    header = {"class": "BNNP", "config": bnnp.BNNP(1, 1, (3,)).config(), "dtype": "float32"}
    assert todays_header(header) == header
