"""Packages that only some users need: where one is missing, the error says how to install it."""

import importlib
import sys

import numpy as np
import pandas as pd
import pytest

import bnnp
from bnnp._core.optional import optional_module

TABLE = pd.DataFrame({"who": list("aabbcc"), "time": [0, 1, 2] * 2, "conc": [1.0, 2.0, 1.5, 2.5, 2.0, 3.0]})


@pytest.fixture
def post() -> bnnp.WeightPosterior:
    return bnnp.load("zoo:sawtooth").condition([0.0], [0.1], num_samples=2, seed=0)


def known_to_spark():
    model = bnnp.load("zoo:sawtooth")
    model.columns.task_name = "who"
    return model


CALLS = {
    "xarray": ("data", lambda post: bnnp.to_arviz(post)),
    "statsmodels": ("tables", lambda post: bnnp.compare(TABLE, task="who", x="time", y="conc", folds=3)),
    "onnx": ("onnx", lambda post: importlib.import_module("bnnp.onnx").export(post, "site.onnx")),
    "pyarrow": ("spark", lambda post: importlib.import_module("bnnp.spark").predictor(known_to_spark())),
    "botorch": ("botorch", lambda post: importlib.import_module("bnnp.botorch")),
}


@pytest.mark.parametrize("name", CALLS)
def test_without_a_package_the_error_says_how_to_install_it(name, post, monkeypatch):
    extra, call = CALLS[name]
    for module in [*(known for known in sys.modules if known.split(".")[0] == name), "bnnp.botorch"]:
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"needs {name} .*: pip install 'bnnp\[{extra}\]'"):
        call(post)


def test_predictions_as_labelled_arrays_need_xarray(post, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r"pip install 'bnnp\[data\]'"):
        post.predict(np.zeros(1)).to_xarray()


def test_a_package_that_is_there_is_given():
    assert optional_module("json", "anything", "data") is sys.modules["json"]
