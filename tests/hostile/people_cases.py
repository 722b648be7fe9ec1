"""Bad arguments of estimators, folds, formulas, comparisons, evaluations and many data sets at once.

Rows of the table of `python_cases`.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch

import bnnp
from bnnp.tasks import Split, Task, from_table
from hostile.bad_values import COUNTS, FLAGS, NO_PATHS, POSITIVE, SEEDS
from hostile.frame_cases import FRAME, LABELS, X, Y, small

DATA = pd.DataFrame({"who": list("aaabbb"), "t": [0.0, 1, 2, 0, 1, 3], "y": [1.0, 3, 2, 2, 5, 3], "k": list("nnynyn")})
GIVEN = DATA[["who", "t"]]
FORMULAS: list[Any] = [
    *["", "   ", "y ~ t", "y ~ t | ", "~ t | who", "y ~ | who", "y t | who", "y ~ t + | who", "y ~ t | who | who"],
    *["y ~ t ~ t | who", "y ~ t*k | who", "y ~ log(t) | who", "y ~ t + t | who", "y ~ y | who", "y ~ who | who"],
    *["y ~ t | who + t", "y ~ . | who", "y ~ 1 | who", "y ~ t + (1|who)", "y ~ `t | who", "y ~ t - 1 | who"],
    *["Y ~ t | who", "y ~ t:k | who", "log(y) ~ t | who", "y ~ 0 + t | who", b"y ~ t | who", None, 3],
]


def regressor(**choice: Any) -> bnnp.BNNPRegressor:
    return bnnp.BNNPRegressor(**{"task": "who", "hidden": (4,), "minutes": 0, "random_state": 0, **choice})


@cache
def fitted() -> bnnp.BNNPRegressor:
    return regressor().fit(GIVEN, DATA["y"])


def fit(X: Any = GIVEN, y: Any = DATA["y"], **choice: Any) -> Any:  # noqa: N803
    return regressor(**choice).fit(X, y)


def classify(y: Any) -> Any:
    kind = bnnp.BNNPClassifier(task="who", hidden=(4,), minutes=0, num_samples=4, random_state=0)
    return kind.fit(GIVEN, y)


def split(**choice: Any) -> list:
    X = choice.pop("X", GIVEN)  # noqa: N806
    return list(bnnp.ContextSplit(**{"task": "who", "context": 1, "folds": 2, **choice}).split(X))


def compare(**choice: Any) -> Any:
    return bnnp.compare(**{"table": DATA, "task": "who", "x": ["t"], "y": "y", "progress": False, **choice})


@cache
def model() -> bnnp.BNNP:
    """A model that was trained on a table."""
    return bnnp.fit(small(), from_table(FRAME, task="who", x="x", y="y"), steps=1, progress=False).model


def many(**choice: Any) -> Any:
    return model().condition_many(**{"tasks": [(X, Y), (X, Y)], "num_samples": 2, **choice})


def tasks_of(frame: pd.DataFrame, x: str = "x", y: str = "y") -> Any:
    return from_table(frame, task="who", x=x, y=y)


TABLE: list[tuple[str, Callable[..., Any], dict[str, list[Any]]]] = [
    (
        "BNNPRegressor",
        fit,
        {
            "task": [1.5, ["who"], True, 0, "nobody"],
            "hidden": [0, "64", None, (0,), (2.5,)],
            "minutes": [-1, math.nan, "1"],
            "num_samples": COUNTS,
            "y": [DATA["k"], [1, 1, 1, 1, 1, math.inf], DATA["y"] * 1j, pd.date_range("2020", periods=6)],
        },
    ),
    ("BNNPRegressor-zoo", lambda prior: fit(GIVEN[["t"]], task=None, prior=prior), {"prior": ["zoo:zz", "zoo:"]}),
    ("BNNPClassifier", classify, {"y": [["n"] * 6, ["n", "n ", "y", "y", "n", "y"]]}),
    (
        "predict-frame",
        lambda X: fitted().predict_frame(X),  # noqa: N803
        {"X": [GIVEN.assign(mean=1.0), GIVEN.assign(from_prior=True), GIVEN[:0]]},
    ),
    ("predict-quantiles", lambda q: fitted().predict(GIVEN, quantiles=q), {"q": [[2], "0.5", [], True, [[0.5]]]}),
    ("sample_functions", lambda n_samples: fitted().sample_functions(GIVEN, n_samples), {"n_samples": COUNTS}),
    ("fit_table", lambda formula: bnnp.fit_table(formula, DATA, hidden=(4,), minutes=0), {"formula": FORMULAS}),
    (
        "fit_table-table",
        lambda table: bnnp.fit_table("y ~ t | who", table),
        {"table": [None, 3, "nowhere.csv", GIVEN.iloc[:0]]},
    ),
    (
        "ContextSplit",
        split,
        {
            "folds": [*COUNTS, 1, 9],
            "context": [-1, 1.5, "1", True, None],
            "random_state": ["x", 1.5, -1, None],
            "task": [None, 5, "zz", 1.5],
            "X": [np.zeros(4), None],
        },
    ),
    ("ContextSplit-arrays", lambda task: split(task=task, X=GIVEN.to_numpy()), {"task": ["who", 9, -1]}),
    ("ContextSplit-names", split, {"X": [GIVEN.assign(who=["a", None, "a", "b", "b", "b"])]}),
    (
        "compare",
        compare,
        {
            "folds": [1, 2.5, 99, "2", None],
            "minutes": POSITIVE,
            "progress": FLAGS,
            "seed": [1.5, "0", True],
            "y": ["k", "t", None, 3, ["y", "k"]],
            "x": [None, ["y"], [], "nothing"],
            "task": ["nobody", None, "t"],
            "table": [None, 3, DATA.assign(y=math.nan), DATA.iloc[:0]],
        },
    ),
    (
        "condition_many",
        many,
        {"tasks": [None, 3, (X, Y), [X, Y], [(X,)], {"a": (X, Y)}, FRAME, [(X, Y[:1])]], "num_samples": COUNTS},
    ),
    ("condition_many-seed", many, {"seed": SEEDS}),
    ("condition_many-predict", lambda x: many().predict(x), {"x": [None, 3, [X], [X, [math.nan]], [X, "abc"]]}),
    (
        "evaluate",
        lambda tasks: bnnp.evaluate(model(), tasks, num_samples=2),
        {"tasks": [tasks_of(LABELS), [Split(Task.of(X, Y), Task.of([], []))], [(X, Y)], [], None, FRAME]},
    ),
    ("evaluate-swapped", lambda x: bnnp.evaluate(model(), tasks_of(FRAME, x, "x"), num_samples=2), {"x": ["y"]}),
    ("log_prob", lambda weights: model().prior.log_prob(weights), {"weights": [[torch.zeros(2, 2)], []]}),
    (
        "quantile",
        lambda q: model().condition(X, Y, num_samples=2).predict([0.5]).quantile(q),
        {"q": [True, [[0.5]], -0.1, 1.1, "a", [], math.nan]},
    ),
    (
        "activation",
        lambda activation: small(activation=activation),
        {
            "activation": [
                sum,
                lambda h: h.sum(),
                lambda h: "a",
                lambda h, k: h,
                lambda h: h * math.nan,
                lambda h: h[:1],
            ]
        },
    ),
    ("hidden", lambda hidden: small(hidden=hidden), {"hidden": [(10**7, 10**7), (10**6,)]}),
    ("Gaussian", bnnp.Gaussian, {"noise": [1e-300, 1e300, 1j, [True], ["0.1"], [0.1, math.nan]]}),
    (
        "optimiser",
        lambda optimiser: bnnp.fit(
            *(small(), tasks_of(FRAME)), steps=1, progress=False, settings=bnnp.FitSettings(optimiser=optimiser)
        ),
        {"optimiser": [lambda parameters: 3, lambda parameters: None]},
    ),
    (
        "evaluation",
        lambda evaluation: bnnp.fit(
            *(small(), tasks_of(FRAME)),
            steps=1,
            progress=False,
            settings=bnnp.FitSettings(evaluation=bnnp.Evaluation(evaluation)),
        ),
        {"evaluation": [lambda model: None, lambda model: {"a": "b"}, lambda model: [1.0]]},
    ),
    ("learn-folder", lambda folder: bnnp.learn(small(), tasks_of(FRAME), folder=folder), {"folder": [__file__]}),
    ("learn-path", lambda folder: bnnp.learn(small(), tasks_of(FRAME), folder=folder), {"folder": ["", " ", "a\0", 3]}),
    ("load", partial(bnnp.load), {"path": [*NO_PATHS, "zoo:../gp", "zoo: gp", "."]}),
    ("load_posterior", partial(bnnp.load_posterior), {"path": [*NO_PATHS, "zoo:gp"]}),
]
