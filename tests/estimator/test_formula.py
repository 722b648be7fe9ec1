"""Formulas: what they mean, and errors that point at the wrong place in them."""

import numpy as np
import pandas as pd
import pytest

import bnnp

FRAME = pd.DataFrame(
    {
        "who": list("aaabbb"),
        "time": [0.0, 1, 2, 0, 1, 3],
        "body weight": [60.0, 60, 60, 70, 70, 70],
        "conc": [1.0, 3, 2, 2, np.nan, 3],
        "ill": ["yes", "no", "no", "yes", "no", "yes"],
    }
)
QUICK = {"hidden": (4,), "minutes": 0, "num_samples": 8, "random_state": 0}


def test_a_formula_is_the_estimator_in_other_words():
    whole = FRAME.dropna()
    by_formula = bnnp.fit_table("conc ~ time + `body weight` | who", FRAME, **QUICK)
    columns = ["who", "time", "body weight"]
    by_hand = bnnp.BNNPRegressor(task="who", **QUICK).fit(whole[columns], whole["conc"])
    np.testing.assert_array_equal(by_formula.predict(FRAME[columns]), by_hand.predict(FRAME[columns]))


def test_words_are_classes():
    found = bnnp.fit_table("ill ~ time | who", FRAME, **QUICK)
    assert isinstance(found, bnnp.BNNPClassifier)
    assert found.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    ("formula", "at", "message"),
    [
        ("conc ~ tme | who", 7, "got 'tme', expected a column: who, time"),
        ("conc ~ time + | who", 14, "got '|', expected an input"),
        ("conc time | who", 5, "got 'time', expected '~'"),
        ("~ time | who", 0, "got '~', expected an output"),
        ("conc ~ time", 11, "got the end, expected '|'"),
        ("conc ~ time |", 13, "got the end, expected the column of tasks"),
        ("conc ~ time | who + x", 18, "got '+', expected the end"),
        ("conc ~ conc | who", 7, "got 'conc' twice"),
    ],
)
def test_errors_point_into_the_formula(formula, at, message):
    with pytest.raises(ValueError, match="formula: ") as error:
        bnnp.fit_table(formula, FRAME)
    assert message in str(error.value)
    assert str(error.value).splitlines()[1:] == [f"    {formula}", "    " + " " * at + "^"]
