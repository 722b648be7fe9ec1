"""Bad frames, Parquet files, data sets and sources of tasks: rows of the table of `python_cases`."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

import bnnp
from bnnp.tasks import Task, TaskSource, from_arrays, from_parquet, from_table, read_table
from hostile.bad_values import FLAGS, NO_PATHS

X, Y = [0.0, 0.5, 1.0], [1.0, 2.0, 0.5]
FRAME = pd.DataFrame({"who": list("aabb"), "x": [0.0, 1.0, 0.0, 1.0], "y": [1.0, 2.0, 3.0, 4.0]})
LABELS = FRAME.assign(y=list("pqqp"))
ZONED, PLAIN = "2020-01-01T08:00+01:00", "2020-01-02T08:00"


def table(**choice: Any) -> Any:
    return from_table(**{"table": FRAME, "task": "who", "x": "x", "y": "y", **choice})


def small(**choice: Any) -> bnnp.BNNP:
    return bnnp.BNNP(**{"in_size": 1, "out_size": 1, "hidden": (4,), **choice})


def fit(tasks: Any, **choice: Any) -> Any:
    return bnnp.fit(small(**choice), tasks, steps=1, progress=False)


def of_parquet(column: Any = None, **choice: Any) -> Any:
    """Tasks of a Parquet file, some of whose columns are replaced."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        FRAME.assign(**(column or {})).to_parquet(path)
        return from_parquet(**{"path": path, "task": "who", "x": ["x"], "y": ["y"], **choice})


class Source(TaskSource):
    """A source of a user's making."""

    in_size = out_size = 1  # pyright: ignore[reportAssignmentType]

    def __init__(self, give: Callable[[int], Any]):
        object.__setattr__(self, "give", give)

    def draw(self, count: int, generator: torch.Generator) -> Any:
        return self.give(count)  # pyright: ignore[reportAttributeAccessIssue]


CELLS: dict[str, list[Any]] = {
    "x": [
        [0, np.inf, 0, 1],
        [0, 1j, 0, 1],
        [0, "b", 0, 1],
        [[0], [1], [2], [3]],
        [{}, {}, {}, {}],
        [b"1", b"2", b"3", b"4"],
        ["0x1", "0x2", "0x3", "0x4"],
        ["5%", "6%", "7%", "8%"],
        ["1_0", "2", "3", "4"],
        ["$5", "6", "7", "8"],
        ["0", "Infinity", "0", "1"],
        ["0", "1e5.5", "0", "1"],
        ["٣", "1", "2", "3"],
        ["\u22121", "1", "2", "3"],
        ["1 234", "1", "2", "3"],
        ["2020-02-30", "2020-03-01", "2020-03-02", "2020-03-03"],
        ["2020-02-20", "03/01/2020", "2020-03-02", "2020-03-03"],
        ["02/20/2020", "03/01/2020", "03/02/2020", "03/03/2020"],
        ["00:00", "25:61", "01:00", "02:00"],
        [ZONED, PLAIN, ZONED, ZONED],
        [pd.Timestamp(ZONED), pd.Timestamp(PLAIN), pd.Timestamp(ZONED), pd.Timestamp(ZONED)],
        pd.period_range("2020-01", periods=4, freq="M"),
        ["p", "q", "r", "s"],
        [None, None, None, None],
        [True, 2.0, 3.0, 4.0],
        [0, 10**400, 1, 2],
        [datetime.date(2020, 1, 1), 3.0, 4.0, 5.0],
    ],
    "y": [
        pd.to_datetime(["2020-01-01"] * 4),
        pd.to_timedelta([1, 2, 3, 4], unit="h"),
        [1j, 2, 3, 4],
        [b"1", b"2", b"3", b"4"],
        ["a", 2, 3, 4],
        [[1], [2], [3], [4]],
        [True, 2, 3, 4],
        list("pppp"),
    ],
    "who": [
        [None, "a", "b", "b"],
        [1.0, np.nan, 2.0, 2.0],
        ["a ", "a", "b", "b"],
        ["a\t", "a", "b", "b"],
        ["a\u00a0", "a", "b", "b"],
        ["", "a", "b", "b"],
        pd.to_datetime(["2020-01-01", None, "2020-01-02", "2020-01-02"]),
    ],
}
"""Columns that a table cannot have, each in place of the good one."""

ROLES: list[Any] = [
    FRAME.assign(part=["context", "goal", "context", "target"]),
    FRAME.assign(part="context"),
    FRAME.assign(part=["Context", "Target"] * 2),
    FRAME.assign(part=["context", None, "context", "target"]),
]

TABLE: list[tuple[str, Callable[..., Any], dict[str, list[Any]]]] = [
    (
        "from_table-cells",
        table,
        {"table": [FRAME.assign(**{name: list(cells)}) for name, columns in CELLS.items() for cells in columns]},
    ),
    ("from_table-categories", table, {"table": [FRAME.assign(x=pd.Categorical([1, 2, 3, 4]))]}),
    ("from_table-roles", partial(table, role="part"), {"table": ROLES}),
    (
        "from_table-names",
        partial(table, x=["x", "x=p"]),
        {"table": [FRAME.assign(**{"x": list("pqpq"), "x=p": [1.0, 2.0, 3.0, 4.0]})]},
    ),
    (
        "from_table-choices",
        table,
        {
            "positive": FLAGS,
            "like": [3, FRAME, "model", small(), small(in_size=2)],
            "role": ["x", "who"],
            "x": [{"x"}, np.array(["x"]), FRAME.columns[1:2]],
            "table": [FRAME["x"], FRAME.to_records(), FRAME.to_numpy(), b"t.csv", "https://no.where/t.csv"],
        },
    ),
    ("from_table-positive", partial(table, positive=True), {"table": [FRAME.assign(y=[0.0, 1, 2, 3]), LABELS]}),
    (
        "read_table-marks",
        partial(read_table, FRAME),
        {"delimiter": ["1", "a", "\n", '"', ".", "-", "\0", "'"], "decimal": [" ", "", 1]},
    ),
    ("read_table-both", lambda delimiter: read_table(FRAME, delimiter=delimiter, decimal=","), {"delimiter": [","]}),
    (
        "from_arrays",
        lambda **c: from_arrays(**{"data_sets": [(X, Y), (X, Y)], **c}),
        {
            "names": ["ab", 3, ["a"], ["a", "a"], ["a ", "b"], ["", "b"], ["a", "\t"]],
            "min_points": [-1, 2.5, True, float("nan")],
            "standardise": FLAGS,
        },
    ),
    (
        "from_arrays-cells",
        lambda x: from_arrays([(x, Y)]),
        {
            "x": [
                [datetime.timedelta(hours=i) for i in range(3)],
                [datetime.datetime(2020, 1, 1)] * 3,
                [pd.Timestamp("2020-01-01")] * 3,
                [b"1", b"2", b"3"],
                np.zeros(3, dtype=[("a", float)]),
                torch.zeros(3, device="meta"),
                torch.nested.nested_tensor([torch.zeros(2), torch.zeros(1)], layout=torch.jagged),
                (i for i in X),
                {0: 1, 1: 2, 2: 3}.keys(),
                [Decimal("NaN")] * 3,
            ]
        },
    ),
    (
        "from_parquet",
        of_parquet,
        {
            "path": [*NO_PATHS, FRAME, "nowhere.parquet", "."],
            "task": ["nobody", "x", 3],
            "x": [[], "nothing", ["x", "x"], ["who"], ["y"], 3, [3], {"x"}],
            "y": [[], "nothing", ["y", "y"], ["who"]],
        },
    ),
    (
        "from_parquet-cells",
        of_parquet,
        {
            "column": [
                {"x": [0.0, None, 1.0, 2.0]},
                {"x": list("pqrs")},
                {"x": ["1_0", "1", "2", "3"]},
                {"x": pd.date_range("2020", periods=4)},
                {"x": [0.0, 1e300, -1e300, 1.0]},
                {"x": [0.0, np.inf, 1.0, 2.0]},
                {"y": [1.0, 1.0, 1.0, 1.0]},
                {"who": ["a", "a", None, None]},
                {"who": ["a", "a", "", ""]},
                {"who": ["a", "a", " b", " b"]},
                {"who": [1.0, 1.0, np.nan, np.nan]},
                {"who": ["a", "b", "a", "b"]},
            ]
        },
    ),
    (
        "draw",
        lambda tasks: fit(Source(tasks)),
        {
            "tasks": [
                lambda count: None,
                lambda count: [],
                lambda count: [Task.of(X, Y)],
                lambda count: [(X, Y)] * count,
                lambda count: [Task(torch.full((3, 1), float("nan")), torch.ones(3, 1))] * count,
                lambda count: [Task.of(np.zeros((3, 2)), Y)] * count,
                lambda count: [Task(torch.zeros(0, 1), torch.zeros(0, 1))] * count,
                lambda count: (Task.of(X, Y) for _ in range(count)),
            ]
        },
    ),
    (
        "fit-labels",
        lambda likelihood: fit(
            table(table=LABELS), likelihood=likelihood, out_size=getattr(likelihood, "num_classes", 1)
        ),
        {"likelihood": [bnnp.Gaussian(), bnnp.Categorical(3)]},
    ),
]
