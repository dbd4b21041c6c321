"""Spark itself, with two Python workers that are used again."""

import shutil
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'rsgen[spark]'")
if shutil.which("java") is None:
    pytest.skip("Spark needs a Java runtime", allow_module_level=True)

from pyspark.sql import SparkSession
from rsgen.integrations import spark as rsgen_spark
from table import OPTIONS, digest, rows


@pytest.fixture(scope="module")
def session():
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.python.worker.reuse", "true")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
        .getOrCreate()
    )
    yield spark
    spark.stop()


def frame(session, partitions):
    table = rows()
    return session.createDataFrame(list(zip(*table.values(), strict=True)), list(table)).repartition(
        partitions
    )


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_the_rows_do_not_depend_on_partitions(session, expected, partitions):
    done = rsgen_spark.generate(frame(session, partitions), **OPTIONS).toPandas()
    assert digest(done["id"], done["text"], done["seed"]) == expected
    assert done["error"].isna().all()


def test_a_worker_opens_the_model_once(session):
    rows = rsgen_spark._SparkRows(**OPTIONS)

    def look(frames):
        import os

        import pandas as pd

        for table in frames:
            rows(table)
            yield pd.DataFrame(
                {
                    "pid": [os.getpid()],
                    "model": [id(rows.generator())],
                    "threads": [rows.generator().num_threads],
                }
            )

    seen = []
    for _ in range(3):
        seen += [
            tuple(row)
            for row in frame(session, 8).mapInPandas(look, "pid long, model long, threads long").collect()
        ]
    models = {(pid, model) for pid, model, _ in seen}
    workers = Counter(pid for pid, _, _ in seen)
    assert len(models) == len(workers), "each process has one model"
    assert len(workers) <= 4
    assert max(workers.values()) > 8, "workers were used again"
    assert {threads for _, _, threads in seen} == {1}, "spark.task.cpus"


def test_a_bad_row_ends_the_job_with_its_id(session):
    table = session.createDataFrame([(1, "A fox"), (2, "fox " * 2000)], ["id", "prompt"])
    with pytest.raises(Exception, match=r"row 2: the prompt has \d+ tokens"):
        rsgen_spark.generate(table, id_column="id", max_new_tokens=2).collect()
    done = rsgen_spark.generate(table, id_column="id", max_new_tokens=2, on_error="column").toPandas()
    assert done.sort_values("id")["error"].isna().tolist() == [True, False]
