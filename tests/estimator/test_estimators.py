"""Estimators for scikit-learn: its own checks, frames of every kind, data sets from training and new ones."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import bnnp

QUICK = {"hidden": (16,), "minutes": 0, "num_samples": 16, "random_state": 0}


@pytest.mark.filterwarnings("ignore")  # the checks give data that other packages warn of
@pytest.mark.parametrize("kind", [bnnp.BNNPRegressor, pytest.param(bnnp.BNNPClassifier, marks=pytest.mark.slow)])
def test_scikit_learn_finds_nothing_wrong(kind):
    results = check_estimator(kind(**QUICK), on_skip=None)
    assert len(results) > 40


def curves(subjects: int = 8, points: int = 7) -> pd.DataFrame:
    """Curves of subjects that differ by their height, with a site."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.repeat([f"s{i}" for i in range(subjects)], points)})
    frame["time"] = np.tile(np.linspace(0, 6, points), subjects)
    frame["site"] = np.repeat([("north", "south")[i % 2] for i in range(subjects)], points)
    frame["conc"] = 10 + np.repeat(3 * random.normal(size=subjects), points) + np.sin(frame["time"])
    return frame


INPUTS = ["who", "time", "site"]


@pytest.fixture(scope="module")
def fitted():
    frame = curves()
    return bnnp.BNNPRegressor(task="who", **QUICK).fit(frame[INPUTS], frame["conc"])


def test_a_data_set_is_predicted_from_its_own_points(fitted):
    frame = curves()
    mean, std, quantiles = fitted.predict(frame[INPUTS], return_std=True, quantiles=[0.05, 0.95])
    assert mean.shape == std.shape == (len(frame),)
    assert np.abs(mean - frame["conc"]).mean() < 0.5
    assert ((quantiles[:, 0] < mean) & (mean < quantiles[:, 1])).all()
    assert fitted.score(frame[INPUTS], frame["conc"]) > 0.9
    shuffled = frame.sample(frac=1, random_state=1)
    np.testing.assert_allclose(fitted.predict(shuffled[INPUTS]), mean[shuffled.index], rtol=1e-8)


def test_new_data_sets_are_predicted_from_the_prior_until_they_are_observed():
    frame, own = curves(), pickle.loads(pickle.dumps(bnnp.BNNPRegressor(task="who", **QUICK)))
    own.fit(frame[INPUTS], frame["conc"])
    new = pd.DataFrame({"who": "new", "time": [0.0, 3.0, 6.0], "site": ["north", "north", "moon"]})
    before = own.predict_frame(new, quantiles=[0.5])
    assert before["from_prior"].all()
    assert before["outside_training"].tolist() == [False, False, True]
    assert own.observe(new, [20.0, 20.0, 20.0]) is own
    after = own.predict_frame(new.assign(note="kept"))
    assert not after["from_prior"].any()
    assert (after["note"] == "kept").all()
    assert (after["std"] < before["std"]).all()
    assert (after["mean"] > before["mean"]).all()


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_frames_of_every_kind_give_the_same_numbers(fitted, kind):
    frame = curves()[INPUTS]
    module = pytest.importorskip(kind)
    other = module.from_pandas(frame) if kind == "polars" else module.Table.from_pandas(frame)
    found = fitted.predict_frame(other)
    assert type(found) is type(other)
    np.testing.assert_array_equal(np.asarray(found["mean"]), fitted.predict(frame))


def test_arrays_have_their_tasks_in_a_column(fitted):
    frame = curves()
    array = frame[["who", "time"]].assign(who=frame["who"].str[1:].astype(float)).to_numpy()
    own = bnnp.BNNPRegressor(task=0, **QUICK).fit(array, frame["conc"])
    assert own.score(array, frame["conc"]) > 0.9
    assert sorted(own.known_) == [str(i) for i in range(8)]


def test_functions_are_whole(fitted):
    rows = pd.DataFrame({"who": ["s0", "new", "s0"], "time": [1.0, 1.0, 1.0], "site": "north"})
    drawn = fitted.sample_functions(rows, 5)
    assert drawn.shape == (5, 3)
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 2])
    assert np.ptp(drawn[:, 1]) > np.ptp(drawn[:, 0])


def test_one_data_set_of_one_input_is_predicted_under_a_prior_of_the_package():
    x = np.linspace(0, 30, 30)
    y = 500 + 100 * np.sin(x / 4) + np.random.default_rng(0).normal(0, 20, 30)
    own = bnnp.BNNPRegressor(num_samples=32, random_state=0).fit(x[:, None], y)
    mean, std = own.predict(x[:, None], return_std=True)
    assert np.abs(mean - 500 - 100 * np.sin(x / 4)).mean() < 20
    assert 10 < std.mean() < 40
    with pytest.raises(ValueError, match="got 'other', expected one of curves"):
        bnnp.BNNPRegressor(prior="zoo:other").fit(x[:, None], y)


def test_the_same_seed_gives_the_same_numbers(fitted):
    frame = curves()
    again = bnnp.BNNPRegressor(**fitted.get_params()).fit(frame[INPUTS], frame["conc"])
    np.testing.assert_array_equal(again.predict(frame[INPUTS]), fitted.predict(frame[INPUTS]))


def test_pipelines_and_searches_work(fitted):
    frame = curves()
    scaled = make_column_transformer((StandardScaler(), ["time"]), remainder="passthrough")
    scaled.set_params(verbose_feature_names_out=False).set_output(transform="pandas")
    pipeline = make_pipeline(scaled, clone(fitted))
    folds = bnnp.ContextSplit("who", context=3, folds=2)
    assert cross_val_score(pipeline, frame[INPUTS], frame["conc"], cv=folds).min() > 0
    search = GridSearchCV(clone(fitted), {"hidden": [(4,), (16,)]}, cv=folds).fit(frame[INPUTS], frame["conc"])
    assert search.best_params_["hidden"] in [(4,), (16,)]


def test_labels_may_be_words():
    frame = curves(3).assign(level=lambda f: np.where(f["conc"] > f["conc"].median(), "high", "low"))
    own = bnnp.BNNPClassifier(task="who", **QUICK).fit(frame[INPUTS], frame["level"])
    assert own.classes_.tolist() == ["high", "low"]
    assert own.score(frame[INPUTS], frame["level"]) > 0.8
    found = own.predict_frame(frame[INPUTS])
    np.testing.assert_allclose(found["is_high"] + found["is_low"], 1, rtol=1e-6)


def test_data_sets_of_single_points_are_refused():
    frame = curves().drop_duplicates("who")
    with pytest.raises(ValueError, match="got 1 sample in each of 8 data sets"):
        bnnp.BNNPRegressor(task="who").fit(frame[INPUTS], frame["conc"])
