"""Bad arguments of public functions: what is called, with which argument, and which bad values it must refuse.

`CASES` is the one table; every row is refused with a `ValueError` that begins with the name of what is wrong.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch

import bnnp
from bnnp import inference, neural_processes, objectives, starts
from bnnp.tasks import ContextCount, Split, Task, from_arrays, from_table, random_split, read_table
from hostile.bad_values import COUNTS, FLAGS, KINDS, MATRICES, NAMES, NO_PATHS, POSITIVE, SEEDS, SHARES
from hostile.frame_cases import TABLE as FRAMES
from hostile.people_cases import TABLE as PEOPLE

X, Y = [0.0, 0.5, 1.0], [1.0, 2.0, 0.5]


@cache
def model() -> bnnp.BNNP:
    return bnnp.BNNP(1, 1, hidden=(4,), seed=0)


@cache
def post() -> bnnp.WeightPosterior:
    return model().condition(X, Y, num_samples=4)


@cache
def tasks() -> bnnp.tasks.Collection:
    return from_arrays([(X, Y), (X, Y[::-1])])


def frame() -> pd.DataFrame:
    return pd.DataFrame({"who": ["a", "a", "b", "b"], "x": [0.0, 1.0, 0.0, 1.0], "y": [1.0, 2.0, 3.0, 4.0]})


def named() -> bnnp.BNNP:
    """A model that knows the names of its columns."""
    two = bnnp.BNNP(2, 1, hidden=(4,))
    two.columns.x_names, two.columns.y_names = ["time", "dose"], ["conc"]
    return two


def build(**choice: Any) -> bnnp.BNNP:
    return bnnp.BNNP(**{"in_size": 1, "out_size": 1, "hidden": (4,), **choice})


def fit(**choice: Any) -> Any:
    return bnnp.fit(**{"model": build(), "tasks": tasks(), "steps": 1, "progress": False, **choice})


def table(**choice: Any) -> Any:
    return from_table(**{"table": frame(), "task": "who", "x": "x", "y": "y", **choice})


def infer(**choice: Any) -> Any:
    whose, x, y = choice.pop("model", model()), choice.pop("x", X), choice.pop("y", Y)
    defaults: dict[str, Any] = {"method": "ensemble", "num_samples": 2, "steps": 1}
    return bnnp.infer(whose, x, y, **{**defaults, **choice})


def evaluate(**choice: Any) -> Any:
    return bnnp.evaluate(**{"model": model(), "tasks": tasks(), "num_samples": 2, **choice})


def peer(kind: Callable[..., Any], **choice: Any) -> Any:
    return kind(**{"in_size": 1, "out_size": 1, "hidden": (4, 4), **choice})


Door = Callable[..., Any]
TABLE: list[tuple[str, Door, dict[str, list[Any]]]] = [
    (
        "BNNP",
        build,
        {
            "in_size": COUNTS,
            "out_size": COUNTS,
            "hidden": [4, "64", (0,), (-1,), (2.5,), ("a",), None, (True,)],
            "activation": [*NAMES, None],
            "prior": [*NAMES, None],
            "likelihood": KINDS,
            "inference": ["nonsense", 7],
            "last_layer": NAMES,
            "dtype": [torch.int32, torch.float16, "float32", None, torch.complex64],
            "seed": SEEDS,
        },
    ),
    ("AttBNNP", partial(peer, bnnp.AttBNNP), {"in_size": COUNTS, "hidden": [4, (0,), (4, 8), (5, 5)], "seed": SEEDS}),
    (
        "BNAM",
        lambda **choice: bnnp.BNAM(**{"in_size": 1, "out_size": 1, **choice}),
        {"in_size": COUNTS, "transformer": [3, "small"], "activation": NAMES, "likelihood": KINDS},
    ),
    ("Transformer", bnnp.Transformer, {"width": COUNTS, "blocks": COUNTS, "heads": COUNTS, "mlp": COUNTS}),
    ("Pointwise", bnnp.Pointwise, {"hidden": [(0,), 4, "a"], "min_pseudo_noise": POSITIVE, "sees_hidden": FLAGS}),
    ("Attentive", bnnp.Attentive, {"heads": COUNTS, "min_pseudo_noise": POSITIVE}),
    *[
        (kind, partial(peer, getattr(neural_processes, kind)), {"in_size": COUNTS, "out_size": COUNTS, "seed": SEEDS})
        for kind in ("CNP", "NP", "ANP", "BNP", "TNP")
    ],
    ("CNP", partial(peer, neural_processes.CNP), {"hidden": [4, (0,), "a"], "activation": NAMES, "likelihood": KINDS}),
    ("Gaussian", bnnp.Gaussian, {"noise": [*POSITIVE[:-1], [], [0.1, -1.0]], "max_noise": [0.01, -1, math.nan, "1"]}),
    ("Gaussian", bnnp.Gaussian, {"learnable": FLAGS}),
    ("Categorical", bnnp.Categorical, {"num_classes": [1, *COUNTS]}),
    (
        "fit",
        fit,
        {
            "model": [None, "zoo:sawtooth", 3],
            "tasks": [None, [], [(X, Y)], "sawtooth"],
            "objective": ["ppavi", 3, objectives.PPAVI],
            "steps": COUNTS,
            "batch_size": COUNTS,
            "context_share": [1.5, -0.1, (0.5, 0.1), (0.1, 0.2, 0.3), math.nan, "half", None],
            "settings": [None, {}, 3],
            "checkpoint": [3],
            "progress": FLAGS,
            "seed": SEEDS,
        },
    ),
    (
        "learn",
        lambda **choice: bnnp.learn(**{"model": model(), "tasks": tasks(), "progress": False, **choice}),
        {
            "model": [None, "zoo:sawtooth", 3, [], [None]],
            "tasks": [None, [], [(X, Y)], "sawtooth"],
            "minutes": POSITIVE,
            "context_share": [1.5, -0.1, (0.5, 0.1), math.nan, "half", None],
            "folder": [3],
            "progress": FLAGS,
            "seed": SEEDS,
        },
    ),
    (
        "FitSettings",
        bnnp.FitSettings,
        {
            "learning_rate": [*POSITIVE[1:], (1e-3,), (1e-3, -1.0), None],
            "prior_lr_multiplier": POSITIVE,
            "clip_norm": POSITIVE,
            "optimiser": [3, "adam"],
            "prior_start": NAMES,
            "chunk_size": COUNTS,
            "evaluation": [3, "every"],
            "record_every": COUNTS,
        },
    ),
    ("Evaluation", partial(bnnp.Evaluation, dict), {"every": COUNTS}),
    ("Evaluation", bnnp.Evaluation, {"function": [3, None]}),
    ("PPAVI", objectives.PPAVI, {"num_samples": COUNTS, "group_size": COUNTS, "integrate": FLAGS}),
    ("AVI", objectives.AVI, {"num_samples": COUNTS}),
    ("NPML", objectives.NPML, {"num_samples": COUNTS}),
    ("NPVI", objectives.NPVI, {"num_samples": COUNTS}),
    ("TELLAVI", objectives.TELLAVI, {"num_samples": COUNTS}),
    (
        "ContextCount",
        lambda **c: ContextCount(**{"low": 1, "high": 5, **c}),
        {"low": [-1, 6, 1.5, "1"], "high": [0, 2.5]},
    ),
    (
        "random_split",
        lambda **c: random_split(tasks()[0], **{"generator": torch.Generator(), **c}),
        {"size": [3, 0.5, None]},
    ),
    (
        "condition",
        lambda **choice: model().condition(**{"x": X, "y": Y, "num_samples": 2, **choice}),
        {
            "num_samples": COUNTS,
            "seed": SEEDS,
            "chunk_size": COUNTS,
            "x": [*MATRICES.values()],
            "y": [*MATRICES.values()],
        },
    ),
    ("condition", lambda **c: named().condition(y=[1.0], **c), {"x": [pd.DataFrame({"time": [1.0], "mass": [1.0]})]}),
    ("condition", lambda **c: named().condition(x=[[1.0, 2.0]], **c), {"y": [pd.DataFrame({"dose": [1.0]})]}),
    ("predict", lambda **choice: post().predict(**choice), {"x": [*MATRICES.values()]}),
    ("update", lambda **choice: post().update(**{"x": X, "y": Y, **choice}), {"x": [3.0, None], "y": [[1.0], None]}),
    ("function", lambda **choice: post().functions()[0](**choice), {"x": ["a", None, np.zeros((2, 2)), [math.nan]]}),
    ("quantile", lambda **choice: post().predict(X).quantile(**choice), {"q": [*SHARES, [], None, [0.1, 2.0]]}),
    ("interval", lambda **choice: post().predict(X).interval(**choice), {"level": [0, 1, *SHARES, None]}),
    ("log_prob", lambda **choice: post().predict(X).log_prob(**choice), {"y": [[1.0], None, ["a", "b", "c"], 3.0]}),
    ("observations", lambda **choice: post().predict(X).observations(**choice), {"seed": SEEDS}),
    ("prior.functions", lambda **choice: model().prior.functions(**choice), {"num_samples": COUNTS}),
    (
        "prior.sample",
        lambda **choice: model().prior.sample(**{"num_samples": 2, **choice}),
        {"num_samples": COUNTS, "seed": SEEDS},
    ),
    (
        "set_prior_learnability",
        lambda **choice: model().set_prior_learnability(**choice),
        {"share": [*SHARES, None, True]},
    ),
    (
        "infer",
        infer,
        {
            "model": [None, "hmc", 3],
            "x": [3.0, None, np.zeros((3, 2)), ["a"] * 3],
            "y": [3.0, None, np.zeros((2, 1)), ["a"] * 3],
            "method": [*NAMES, None],
            "likelihood": [bnnp.Gaussian(0.1), "gaussian"],
            "num_samples": COUNTS,
            "steps": COUNTS,
            "chains": COUNTS,
            "warmup": [-1, 2.5, "3"],
            "thin": COUNTS,
            "whitened": FLAGS,
            "seed": SEEDS,
            "nonsense": [1],
        },
    ),
    (
        "infer_many",
        lambda **c: inference.infer_many(model(), c["data_sets"]),
        {"data_sets": [[], None, [3], [(X,)], X]},
    ),
    (
        "evaluate",
        evaluate,
        {
            "model": [None, "zoo", 3],
            "tasks": [None, [], "sawtooth", [(X, Y)]],
            "num_samples": COUNTS,
            "num_tasks": COUNTS,
            "context_share": [1.5, (0.5, 0.1), math.nan, "half", None],
            "context_count": [-1, (5, 1), "three", 2.5],
            "noise": POSITIVE,
            "seed": SEEDS,
        },
    ),
    ("from_arrays", from_arrays, {"data_sets": [[], None, 3, [3], [(X,)], [(X, Y, Y)], {"a": X}, "ab", [(X, Y[:2])]]}),
    ("from_arrays", partial(from_arrays, [(X, Y)]), {"names": [["a", "b"], [], 3], "min_points": [4, -1, 2.5, "2"]}),
    ("from_arrays", partial(from_arrays, [(X, Y)]), {"standardise": FLAGS}),
    (
        "Task.of",
        lambda **choice: Task.of(**{"x": X, "y": Y, **choice}),
        {"x": [3.0, None, ["a"] * 3], "y": [Y[:2], None]},
    ),
    (
        "from_table",
        table,
        {
            "table": [None, 3, [1, 2], {"who": ["a"]}, frame().iloc[:0], frame().assign(y=None), pd.DataFrame()],
            "task": ["nobody", None, 3, "x"],
            "x": ["nothing", [], None, 3, ["x", "x"], "y", "who", [3]],
            "y": ["nothing", [], None, 3, ["y", "y"], "who"],
            "role": ["nothing", "who", 3],
            "missing": NAMES,
            "small": NAMES,
            "standardise": FLAGS,
            "min_points": [3, -1, 2.5, "2"],
        },
    ),
    ("read_table", partial(read_table, frame()), {"delimiter": ["", ";;", 3], "decimal": ["", ";", 3]}),
    *[
        (
            name,
            getattr(bnnp.tasks, name),
            {"noise": [-1.0, math.nan, "0.1"], "low": [9.0, math.nan], "points": [3, (1, 2), (5, 2)]},
        )
        for name in ("sawtooth", "heaviside", "gp", "bnn")
    ],
    ("load", bnnp.load, {"path": ["nowhere.bnnp", "zoo:nonsense", *NO_PATHS]}),
    ("load_posterior", bnnp.load_posterior, {"path": ["nowhere.bnnp", *NO_PATHS]}),
    ("model.save", lambda **choice: model().save(**choice), {"path": NO_PATHS}),
    ("posterior.save", lambda **choice: post().save(**choice), {"path": NO_PATHS}),
    ("checkpointing", bnnp.Checkpointing, {"folder": NO_PATHS}),
    ("fit-checkpoint", fit, {"checkpoint": [path for path in NO_PATHS if path is not None]}),
    ("Split", lambda **c: bnnp.evaluate(model(), [Split(tasks()[0], tasks()[0])], **c), {"num_samples": [0, "3"]}),
    ("Spread", starts.Spread, {"slope": [0, -1.0, math.nan, "8"]}),
    ("HMC", inference.HMC, {"step_size": POSITIVE, "leapfrog_steps": COUNTS}),
    ("Effort", inference.Effort, {"chains": COUNTS, "learning_rate": [0, (1.0,), "a"], "elbo_samples": COUNTS}),
    (
        "start_prior",
        lambda **c: bnnp.start_prior(build(), **{"tasks": tasks(), **c}),
        {"tasks": [None, 3], "prior_start": NAMES},
    ),
    ("zero points", lambda **c: model().condition([], [], **c), {"num_samples": COUNTS}),
]


def cases() -> Iterator[tuple[str, Door, dict[str, Any]]]:
    """Every bad argument by itself: its label, the call, the argument."""
    for door, call, arguments in [*TABLE, *FRAMES, *PEOPLE]:
        for name, values in arguments.items():
            for number, value in enumerate(values):
                yield f"{door}-{name}-{number}", call, {name: value}


INSTEAD = "column|task '|no such file|zoo model"
"""What messages name where the argument holds several things, and one of them is wrong."""
