"""A posterior as an ONNX file: onnxruntime gives the values of its functions."""

from dataclasses import replace

import numpy as np
import pytest

import bnnp
from bnnp.onnx import export

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'bnnp[onnx]'")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime, which runs such files, is not installed")


def posterior(activation: str, *, positive: bool = False) -> bnnp.WeightPosterior:
    """Of a model with shifts and scales, two inputs and two outputs."""
    random = np.random.default_rng(0)
    pairs = [(5 + 3 * random.normal(size=(6, 2)), np.exp(random.normal(size=(6, 2)))) for _ in range(4)]
    tasks = replace(bnnp.tasks.from_arrays(pairs), positive=positive)
    model = bnnp.BNNP(2, 2, hidden=(5, 4), activation=activation, seed=0)
    fitted = bnnp.fit(model, tasks, steps=1, progress=False).model
    return fitted.condition(*pairs[0], num_samples=7)


@pytest.mark.parametrize("activation", ["relu", "tanh", "softplus", "silu", "identity"])
@pytest.mark.parametrize("positive", [False, True])
def test_onnxruntime_gives_the_functions(activation, positive, tmp_path):
    post = posterior(activation, positive=positive)
    session = runtime.InferenceSession(export(post, tmp_path / "site.onnx"))
    x = np.random.default_rng(1).normal(5, 3, size=(9, 2))
    functions, mean, std = session.run(["functions", "mean", "std"], {"x": x})
    expected = np.stack([one(x) for one in post.functions()])
    np.testing.assert_allclose(functions, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, expected.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std, expected.std(0), rtol=1e-3, atol=1e-5)


def test_what_cannot_be_written_is_refused(tmp_path):
    for model, message in (
        (
            bnnp.BNNP(1, 1, hidden=(4,), activation="gelu"),
            r"got the network .*, expected a perceptron with relu,",
        ),
        (
            bnnp.BNNP(1, 1, hidden=(4,), likelihood=bnnp.Bernoulli()),
            r"got the likelihood .*, expected a Gaussian",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            export(model.condition([0.0], [1.0], num_samples=2), tmp_path / "site.onnx")
    assert not (tmp_path / "site.onnx").exists()
