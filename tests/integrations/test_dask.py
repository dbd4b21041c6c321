"""Dask itself: in threads of this process, and in worker processes."""

import pytest

pytest.importorskip("dask.dataframe", reason="Dask is not installed: pip install 'rsgen[dask]'")
distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'rsgen[dask]'")

import dask.dataframe as dd  # noqa: E402
import pandas as pd  # noqa: E402
from rsgen.integrations import dask as rsgen_dask  # noqa: E402
from table import OPTIONS, digest, rows  # noqa: E402


def job(partitions):
    frame = dd.from_pandas(pd.DataFrame(rows()), npartitions=partitions)
    return rsgen_dask.generate(frame, **OPTIONS)


def check(done, expected):
    assert digest(done["id"], done["text"], done["seed"]) == expected


@pytest.fixture(scope="module", params=[(2, 1), (1, 2)], ids=["two processes", "one process, two threads"])
def client(request):
    workers, threads = request.param
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=threads, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.threads = threads
        yield client


@pytest.mark.parametrize("partitions", [1, 7])
def test_worker_processes_give_what_one_process_gives(client, expected, partitions):
    check(job(partitions).compute(), expected)


def test_a_worker_has_one_model_with_its_threads(client):
    client.run(lambda: __import__("rsgen.integrations._rows", fromlist=["_"])._open.clear())
    job(9).compute()
    opened = client.run(
        lambda: [
            gen.num_threads for gen in __import__("rsgen.integrations._rows", fromlist=["_"])._open.values()
        ]
    )
    assert all(threads in ([client.threads], []) for threads in opened.values())
    assert any(opened.values())


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_threads_of_this_process_share_one_model(expected, scheduler):
    check(job(5).compute(scheduler=scheduler), expected)


def test_the_types_are_known_before_anything_is_computed(expected):
    frame = job(3)
    done = frame.compute(scheduler="synchronous")
    assert list(frame.columns) == list(done.columns)
    kinds = {
        "text": "string",
        "token_count": "int64",
        "finish_reason": "string",
        "error": "string",
        "seed": "int64",
    }
    for name, kind in kinds.items():
        assert frame.dtypes[name] == done.dtypes[name] == kind, name
