"""Predictions for the subjects of a Spark data frame. Needs `pip install bnnp[spark]`.

    from bnnp import spark

    predictions = frame.repartition("subject").mapInArrow(spark.predictor(model), spark.schema(model, frame))

The frame has the columns of the training table. Rows with outputs are known points; rows whose outputs are empty are
predicted from the known points of the same subject. `repartition` puts all rows of a subject into one partition, which
one process reads as a whole: give it a number, as in `repartition(200, "subject")`, for partitions that fit. No number
of a subject depends on the others, so neither partitions nor machines change a bit of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bnnp._core.checks import check_kind, check_samples
from bnnp.models import MetaLearner
from bnnp.prediction.frames import prediction_names
from bnnp.questions import FROM_PRIOR, OUTSIDE, WINDOW, Questions, answers
from bnnp.tasks.datasets.optional import optional_module
from bnnp.tasks.tables import read_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["predictor", "schema"]


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

    Example:
        >>> import bnnp.spark, pyarrow as pa
        >>> rows = pa.RecordBatch.from_pydict({"who": ["a", "a"], "x0": [0.0, 1.0], "y0": [0.5, None]})
        >>> model.columns.task_name = "who"
        >>> [batch.column_names for batch in bnnp.spark.predictor(model, num_samples=8)(iter([rows]))]
        [['who', 'x0', 'y0_mean', 'y0_std', 'y0_q05', 'y0_q50', 'y0_q95', 'from_prior']]
    """
    _subjects_of(model)
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
