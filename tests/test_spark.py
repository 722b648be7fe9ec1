"""Predictions in Spark are those of `condition`, for any partitions; also with a real Spark, if it is installed."""

import os
import shutil
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import bnnp
from bnnp import spark
from support.examples import failures, namespace


@pytest.fixture(scope="module")
def model():
    """A model trained on a table of subjects, with a category and a range of times."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.repeat([f"s{i}" for i in range(6)], 5), "time": np.tile(np.arange(5.0), 6)})
    frame = frame.assign(site=np.tile(["north", "south"], 15), conc=random.normal(size=30))
    tasks = bnnp.tasks.from_table(frame, task="who", x=["time", "site"], y="conc")
    fitted = bnnp.fit(bnnp.BNNP(tasks.in_size, 1, hidden=(4,)), tasks, steps=2, progress=False)
    return fitted.model


@pytest.fixture(scope="module")
def rows():
    """Known points and points to predict of five subjects, mixed; one has no known points, one nothing to predict."""
    random = np.random.default_rng(1)
    who = np.concatenate([random.integers(0, 4, 24), [7, 7, 8]])
    conc = np.where(random.uniform(size=27) < 0.4, np.nan, random.normal(size=27))
    conc[-3:] = [np.nan, np.nan, 0.5]
    frame = pd.DataFrame({"row": np.arange(27), "who": [f"p{i}" for i in who], "time": random.uniform(0, 6, 27)})
    return frame.assign(site=random.choice(["north", "south"], 27), conc=conc)


def predicted(model, frame: pd.DataFrame, batch: int) -> pd.DataFrame:
    batches = pa.Table.from_pandas(frame, preserve_index=False).to_batches(batch)
    return pa.Table.from_batches(spark.predictor(model, num_samples=8)(iter(batches))).to_pandas()


def test_every_row_to_predict_has_the_prediction_of_its_subject(model, rows):
    found = predicted(model, rows, batch=4)
    assert found["row"].tolist() == rows["row"][rows["conc"].isna()].tolist()
    assert found["from_prior"].tolist() == (found["who"] == "p7").tolist()
    assert found["outside_training"].tolist() == (found["time"] > 4).tolist()
    for name, mine in found.groupby("who"):
        known = rows[(rows["who"] == name) & rows["conc"].notna()]
        post = model.condition(known[["time", "site"]], known["conc"], num_samples=8)
        alone = post.predict(mine[["time", "site"]])
        np.testing.assert_allclose(mine["conc_mean"], alone.mean[:, 0], rtol=1e-9)
        np.testing.assert_allclose(mine["conc_q95"], alone.quantile(0.95)[:, 0], rtol=1e-9)


def test_no_bit_depends_on_the_partitions(model, rows):
    whole = predicted(model, rows, batch=100)
    parts = [
        predicted(model, pd.DataFrame(rows[rows["who"].isin(some)]), 3) for some in (["p0", "p7"], ["p1", "p2", "p3"])
    ]
    both = pd.concat(parts).sort_values("row", ignore_index=True)
    pd.testing.assert_frame_equal(both, whole, check_exact=True)


def test_partitions_without_rows_or_without_anything_to_predict(model, rows):
    predict = spark.predictor(model)
    assert list(predict(iter([]))) == []
    known = pa.RecordBatch.from_pandas(rows[rows["who"] == "p8"], preserve_index=False)
    assert sum(batch.num_rows for batch in predict(iter([known]))) == 0


def test_what_cannot_be_predicted_is_refused(model, rows):
    with pytest.raises(ValueError, match="model: it does not know which column tells subjects apart"):
        spark.predictor(bnnp.BNNP(1, 1, hidden=(4,)))
    with pytest.raises(ValueError, match=r"model: got 'saw.bnnp', expected a model of bnnp, as bnnp.load gives it"):
        spark.predictor("saw.bnnp")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"num_samples: got 0"):
        spark.predictor(model, num_samples=0)
    with pytest.raises(ValueError, match=r"column 'site': there is no such column"):
        predicted(model, rows.drop(columns="site"), 100)


def test_the_example():
    assert failures("predictor", spark.predictor, namespace())[1] == ""


@pytest.fixture(scope="module")
def session():
    """A local Spark of two processes."""
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install 'bnnp[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java, as from apt-get install default-jre-headless")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        made = builder.config("spark.sql.shuffle.partitions", "3").getOrCreate()
        yield made
        made.stop()


@pytest.mark.filterwarnings("ignore")  # of Spark's own
def test_a_real_spark_gives_the_same_numbers(session, model, rows):
    given = session.createDataFrame(rows.astype({"conc": object}).where(rows.notna(), None))
    predict, columns = spark.predictor(model, num_samples=8), spark.schema(model, given)
    found = given.repartition(3, "who").mapInArrow(predict, columns).toPandas()
    in_order = found.sort_values("row", ignore_index=True)
    pd.testing.assert_frame_equal(in_order, predicted(model, rows, 100), check_exact=True)
    with pytest.raises(ValueError, match=r"frame: got the columns row, time, site, conc, expected 'who' among them"):
        spark.schema(model, given.drop("who"))


@pytest.mark.filterwarnings("ignore")  # of Spark's own
def test_a_frame_of_a_real_spark_is_one_context(session):
    model, random = bnnp.BNNP(1, 1, hidden=(4, 3), dtype=torch.float64, seed=0), np.random.default_rng(2)
    points = pd.DataFrame({"t": np.repeat([0.5, 1.5, 2.5], 20), "c": random.normal(size=60), "other": "a"})
    frame = session.createDataFrame(points).repartition(5, "t").cache()  # three values, so that some partition is empty
    post = model.condition(spark.context(frame, x=["t"], y=["c"]), num_samples=6, chunk_size=8)
    in_order = frame.toPandas()  # partition by partition
    whole = model.condition([(in_order[["t"]].to_numpy(), in_order[["c"]].to_numpy())], num_samples=6, chunk_size=60)
    assert post.points == 60
    for one, other in zip(post.weights, whole.weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match=r"frame: got the columns t, c, other, expected dose too"):
        spark.context(frame, x=["t", "dose"], y=["c"])
