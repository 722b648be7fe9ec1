"""Predictions for the subjects of a Spark data frame, and contexts that are one. Needs `pip install bnnp[spark]`.

    from bnnp import spark

    predictions = frame.repartition("subject").mapInArrow(spark.predictor(model), spark.schema(model, frame))

The frame has the columns of the training table. Rows with outputs are known points; rows whose outputs are empty are
predicted from the known points of the same subject. `repartition` puts all rows of a subject into one partition, which
one process reads as a whole: give it a number, as in `repartition(200, "subject")`, for partitions that fit. No number
of a subject depends on the others, so neither partitions nor machines change a bit of the result.

    post = model.condition(spark.context(frame, x=["time"], y=["conc"]), num_samples=20, chunk_size=4096)

Here all rows of the frame are points of one data set. Partitions send sums, once for every layer of the network.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bnnp._core.checks import check_kind, check_samples
from bnnp._core.optional import optional_module
from bnnp.models import MetaLearner
from bnnp.prediction.frames import prediction_names
from bnnp.questions import FROM_PRIOR, OUTSIDE, WINDOW, Questions, answers
from bnnp.tasks.named import names_of
from bnnp.tasks.parquet import numbers_in
from bnnp.tasks.parts import Part, Parts, Work
from bnnp.tasks.tables import read_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["context", "predictor", "schema"]


def predictor(
    model: MetaLearner, *, num_samples: int | None = None, seed: int = 0
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that predicts the rows without outputs, with the columns that `schema` says.

    Args:
        model: A model that was trained on a table, whose column of subjects it knows.
        num_samples: Weight samples; the model's own choice if None.
        seed: The seed of the draws.

    Returns:
        The function, from the batches of a partition to batches of predictions.

    Raises:
        ValueError: If the model does not know which column tells subjects apart.
        ImportError: If pyarrow is not installed.

    Example:
        >>> import bnnp.spark, pyarrow as pa
        >>> rows = pa.RecordBatch.from_pydict({"who": ["a", "a"], "x0": [0.0, 1.0], "y0": [0.5, None]})
        >>> model.columns.task_name = "who"
        >>> [batch.column_names for batch in bnnp.spark.predictor(model, num_samples=8)(iter([rows]))]
        [['who', 'x0', 'y0_mean', 'y0_std', 'y0_q05', 'y0_q50', 'y0_q95', 'from_prior']]
    """
    _subjects_of(model)
    optional_module("pyarrow", "predictions of a Spark partition", "spark")
    if num_samples is not None:
        check_samples(num_samples)

    return partial(_predicted, model, num_samples, seed)  # which can be sent to other processes, as a closure may not


def schema(model: MetaLearner, frame: Any) -> Any:
    """The columns of predictions: those of the frame but the outputs, then what is predicted.

    Args:
        model: The model.
        frame: The frame that is predicted from.

    Returns:
        The second argument of `mapInArrow`, a `StructType`.

    Raises:
        ValueError: If the model does not know which column tells subjects apart, or the frame has no such column.
        ImportError: If Spark is not installed.
    """
    types = optional_module("pyspark.sql.types", "a schema of Spark", "spark")
    subject = _subjects_of(model)
    if subject not in frame.columns:
        raise ValueError(f"frame: got the columns {', '.join(frame.columns)}, expected {subject!r} among them")
    kept = [field for field in frame.schema.fields if field.name not in model.columns.y_names]
    new = [(name, types.DoubleType()) for name in prediction_names(model.likelihood, model.columns)]
    new += [(name, types.BooleanType()) for name in _marks(model)]
    return types.StructType([*kept, *(types.StructField(name, kind) for name, kind in new)])


def context(frame: Any, *, x: Sequence[str], y: Sequence[str]) -> Parts:
    """All rows of a frame as one context, of which every partition is read where it is.

    The frame is computed once to count rows and once for every layer, so it should come from files, or be cached:
    `frame.cache()`. A partition sends `8 K u (d^2/2 + 2.5 d)` bytes for a layer of `u` units with `d` inputs and `K`
    samples, and the driver holds those of all partitions.

    Args:
        frame: The frame, with a finite number in every cell of these columns.
        x: Input columns.
        y: Output columns.

    Returns:
        What `model.condition` takes in place of inputs and outputs.

    Raises:
        ValueError: If the frame does not have these columns.
    """
    inputs, outputs = names_of(x, "x"), names_of(y, "y")
    missing = [name for name in (*inputs, *outputs) if name not in frame.columns]
    if missing:
        raise ValueError(f"frame: got the columns {', '.join(frame.columns)}, expected {', '.join(missing)} too")
    columns = frame.select(*inputs, *outputs)
    parts = [[] for _ in range(frame.rdd.getNumPartitions())]  # Spark's own partitions take their places
    return Parts(parts, partial(_in_partitions, columns, len(inputs)))


def _in_partitions(frame: Any, inputs: int, work: Work, parts: list[Part]) -> list[tuple[int, Any]]:
    """A map over the partitions of a frame. Spark passes over those without rows."""
    rows = frame.mapInArrow(partial(_of_rows, inputs, work, parts), "part int, found binary").collect()
    found = dict(pickle.loads(row.found) for row in rows)
    return [(part.number, found[part.number]) if part.number in found else work(part) for part in parts]


def _of_rows(inputs: int, work: Work, parts: list[Part], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What is found in the partition that this process reads."""
    import pyarrow as pa
    from pyspark import TaskContext  # pyright: ignore[reportMissingImports]

    def points() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for batch in batches:
            numbers = numbers_in(pa.Table.from_batches([batch]), "frame")
            yield numbers[:, :inputs], numbers[:, inputs:]

    task: Any = TaskContext.get()
    found = pickle.dumps(work(replace(parts[task.partitionId()], points=points)))
    yield pa.RecordBatch.from_pydict({"part": pa.array([task.partitionId()], pa.int32()), "found": [found]})


def _predicted(
    model: MetaLearner, num_samples: int | None, seed: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    read = list(batches)
    if read:
        yield from _of_partition(model, num_samples, seed, pa.Table.from_batches(read)).to_batches()


def _of_partition(model: MetaLearner, num_samples: int | None, seed: int, rows: pa.Table) -> pa.Table:
    import pyarrow as pa

    outputs, column = list(model.columns.y_names), model.columns.task_name
    table = read_table(rows.to_pandas(integer_object_nulls=True))
    table.check_columns([str(column), *model.columns.tables_names, *outputs])
    known = ~np.any([table.column(name).missing() for name in outputs], axis=0)
    wanted = rows.filter(pa.array(~known)).drop_columns(outputs)
    to_predict = table.take(np.flatnonzero(~known))
    questions = Questions.of(model, table.take(np.flatnonzero(known)), to_predict, column)
    windows = (questions.asked[i : i + WINDOW] for i in range(0, len(questions.asked), WINDOW))
    numbers = [one for window in windows for one in answers(model, window, num_samples, seed)]
    if numbers:
        found = questions.table(numbers)
        for name in (*prediction_names(model.likelihood, model.columns), *_marks(model)):
            wanted = wanted.append_column(name, pa.array(found[name].to_numpy()))
    return wanted


def _marks(model: MetaLearner) -> list[str]:
    return [FROM_PRIOR] if model.columns.ranges is None else [FROM_PRIOR, OUTSIDE]


def _subjects_of(model: MetaLearner) -> str:
    check_kind("model", model, MetaLearner, "a model of bnnp, as bnnp.load gives it")
    if model.columns.task_name is None:
        raise ValueError(
            "model: it does not know which column tells subjects apart, expected one that was trained on a table with "
            "such a column, as by bnnp.tasks.from_table(table, task='subject', ...)"
        )
    return model.columns.task_name
