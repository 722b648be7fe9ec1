"""Cross-validation over data sets with some known rows."""

import numpy as np
import pandas as pd
import pytest

import bnnp

FRAME = pd.DataFrame({"who": np.repeat(list("abcdef"), [5, 5, 5, 4, 2, 1]), "time": np.arange(22)})


@pytest.mark.parametrize("data", [FRAME, FRAME.assign(who=FRAME["who"].map(ord)).to_numpy()])
def test_every_data_set_is_left_out_once_but_for_its_known_rows(data):
    task = "who" if data is FRAME else 0
    split = bnnp.ContextSplit(task, context=2, folds=3)
    tested = []
    for train, test in split.split(data):
        assert sorted([*train, *test]) == list(range(22))
        names = FRAME["who"].to_numpy()
        for name in set(names[test]):
            size = int((names == name).sum())
            assert (names[train] == name).sum() == min(2, size - 1)
            tested.append(name)
    assert sorted(tested) == list("abcdef")
    assert split.get_n_splits() == 3
    assert [t.tolist() for _, t in split.split(data)] == [t.tolist() for _, t in split.split(data)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": -1}, "context: got -1"),
        ({"folds": 1}, "folds: got 1"),
        ({"folds": 7}, "folds: got 7 for 6 data sets"),
        ({"task": "nobody"}, "task: got 'nobody', expected one of who, time"),
    ],
)
def test_what_cannot_be_split_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        list(bnnp.ContextSplit(**{"task": "who", **arguments}).split(FRAME))
