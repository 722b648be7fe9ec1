"""Predictions as frames and labelled arrays: the numbers of `Predictive`, under the user's names."""

import numpy as np
import pandas as pd
import pytest

import bnnp


@pytest.fixture(scope="module")
def post():
    """A posterior with two inputs and two outputs, whose columns have names, shifts and scales."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(24, 4)), columns=["time", "dose", "conc", "rate"])
    frame["time"], frame["conc"] = 100 + 10 * frame["time"], 5 + 3 * frame["conc"]
    frame["subject"] = np.repeat(["a", "b", "c"], 8)
    tasks = bnnp.tasks.from_table(frame, task="subject", x=["time", "dose"], y=["conc", "rate"])
    model = bnnp.BNNP(2, 2, (4,), likelihood=bnnp.Gaussian(0.1), seed=0)
    bnnp.fit(model, tasks, steps=1, progress=False)
    known = frame[frame["subject"] == "a"]
    return model.condition(known[["time", "dose"]], known[["conc", "rate"]], num_samples=9)


NEW = pd.DataFrame({"dose": [0.5, -0.5, 0.1], "time": [95.0, 100.0, 105.0]})


def test_a_frame_has_the_users_inputs_and_numbers(post):
    pred = post.predict(NEW)
    frame = pred.to_frame(quantiles=[0.05, 0.29, 0.975])
    kinds = ("mean", "std", "q05", "q29", "q97.5")
    assert list(frame) == ["time", "dose", *(f"{y}_{kind}" for y in ("conc", "rate") for kind in kinds)]
    np.testing.assert_array_equal(frame[["time", "dose"]], NEW[["time", "dose"]])
    np.testing.assert_array_equal(frame[["conc_mean", "rate_mean"]], pred.mean)
    np.testing.assert_array_equal(frame[["conc_q97.5", "rate_q97.5"]], pred.quantile(0.975))
    assert list(pred.to_frame([])) == ["time", "dose", "conc_mean", "conc_std", "rate_mean", "rate_std"]


def test_labelled_arrays_are_found_by_name(post):
    pred = post.predict(NEW)
    found = pred.to_xarray()
    np.testing.assert_array_equal(found["samples"].sel(output="rate"), pred.samples[..., 1])
    np.testing.assert_array_equal(found["time"], NEW["time"])


@pytest.mark.parametrize("kind", ["samples", "neural process", "oracle"])
def test_predictions_of_every_posterior_know_their_inputs(post, kind):
    x, y = np.array([[0.1], [0.4]]), np.array([[0.2], [0.3]])
    if kind == "samples":
        pred, expected = post.predict_by_samples(NEW), NEW[["time", "dose"]]
    elif kind == "neural process":
        pred, expected = bnnp.neural_processes.ANP(1, 1, (4,), seed=0).condition(x, y, num_samples=2).predict(x), x
    else:
        pred, expected = bnnp.Oracle(bnnp.tasks.sawtooth()).condition(x, y, num_samples=2).predict(x), x
    np.testing.assert_array_equal(pred.inputs, expected)


def test_class_labels_have_a_column_per_class():
    model = bnnp.BNNP(1, 3, (4,), likelihood=bnnp.Categorical(3), seed=0)
    pred = model.condition([[0.0], [1.0]], [[0], [2]], num_samples=4).predict([[0.5]])
    frame = pred.to_frame()
    assert list(frame) == ["x0", "y0_is_0", "y0_is_1", "y0_is_2"]
    assert frame.iloc[0, 1:].sum() == pytest.approx(1)
    assert list(pred.to_xarray()["output"].values) == ["y0_is_0", "y0_is_1", "y0_is_2"]
