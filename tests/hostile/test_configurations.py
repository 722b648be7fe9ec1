"""Random configurations train, predict and agree: float32 with float64, and contexts in chunks with whole ones."""

import re
import warnings

import numpy as np
import pytest
import torch

from bnnp.models import MetaLearner
from hostile.configurations import REFUSALS, Configuration, in_other_precision, predictions

FAST, ALL, PIECE = 12, 300, 24
OF_FLOAT32 = 2e-3
"""How far predictions in float32 may be from those in float64, in standard deviations of the training outputs."""
OF_CHUNKS = {torch.float32: 2e-3, torch.float64: 1e-7}
"""How far predictions from chunks may be from those of the whole context."""


@pytest.fixture
def same_draws(monkeypatch):
    """Normal draws that are the same numbers in both precisions."""
    draw = torch.randn

    def in_float64(*size, dtype=None, **rest):
        return draw(*size, dtype=torch.float64, **rest).to(torch.get_default_dtype() if dtype is None else dtype)

    monkeypatch.setattr(torch, "randn", in_float64)


def check(number: int) -> str:
    """What became of a configuration: "done", or the refusal."""
    configuration = Configuration.drawn(number)
    try:
        model = configuration.model()
        configuration.fit(model, None)
    except ValueError as error:
        return str(error)
    mean, std = predictions(model, configuration)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std >= 0).all()
    other_mean, other_std = predictions(in_other_precision(model), configuration)
    np.testing.assert_allclose(other_mean, mean, atol=OF_FLOAT32 * (1 + np.abs(mean).max()), rtol=0)
    np.testing.assert_allclose(other_std, std, atol=OF_FLOAT32 * (1 + std.max()), rtol=0)
    check_chunks(configuration, model, mean)
    return "done"


def check_chunks(configuration: Configuration, model: MetaLearner, mean: np.ndarray) -> None:
    """Chunks give the same predictions, or are refused where points see each other."""
    size = configuration.chunk_size
    if configuration.kind == "BNNP":
        chunked, _ = predictions(model, configuration, chunk_size=size)
        np.testing.assert_allclose(chunked, mean, atol=OF_CHUNKS[model.dtype] * (1 + np.abs(mean).max()), rtol=0)
        configuration.fit(configuration.model(), size)
        return
    with pytest.raises(ValueError, match=r"^chunk_size: "):
        configuration.fit(configuration.model(), size)


def check_all(numbers: range) -> None:
    outcomes = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for number in numbers:
            outcome = check(number)
            assert outcome == "done" or any(re.search(refusal, outcome) for refusal in REFUSALS), (number, outcome)
            outcomes.append(outcome)
    assert outcomes.count("done") > 0.8 * len(numbers)


@pytest.mark.usefixtures("same_draws")
def test_some_configurations():
    check_all(range(FAST))


@pytest.mark.slow
@pytest.mark.usefixtures("same_draws")
@pytest.mark.parametrize("first", range(FAST, ALL, PIECE))
def test_all_configurations(first):
    check_all(range(first, first + PIECE))
