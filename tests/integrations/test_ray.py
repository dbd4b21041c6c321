"""Ray itself: Ray Data with one and two actors, one of which is killed, and a Ray Serve application."""

import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'rsgen[ray]'")

import pandas as pd  # noqa: E402
import rsgen  # noqa: E402
from rsgen.integrations.ray import RsgenPredictor, deployment  # noqa: E402
from table import OPTIONS, ROWS, digest, rows, rsgen_threads  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def job(predictor, *, batch_size, actors, num_cpus=1, **options):
    table = rows()
    items = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    # The actors have all CPUs, so nothing else of the job may need one.
    done = ray.data.from_items(items, override_num_blocks=8).map_batches(
        predictor,
        fn_constructor_kwargs={**OPTIONS, **options},
        batch_size=batch_size,
        num_cpus=num_cpus,
        concurrency=actors,
    )
    return pd.DataFrame(done.take_all())


@pytest.mark.parametrize(
    ("batch_size", "actors", "num_cpus"), [(7, 2, 1), (1, 2, 1), (64, 1, 2), (7, 1, 1), (64, 2, 1)]
)
def test_the_rows_do_not_depend_on_batches_and_actors(expected, batch_size, actors, num_cpus):
    frame = job(RsgenPredictor, batch_size=batch_size, actors=actors, num_cpus=num_cpus)
    assert digest(frame["id"], frame["text"], frame["seed"]) == expected
    assert (frame["token_count"] > 0).all()
    assert frame["error"].isna().all()


class Killed(RsgenPredictor):
    """The first actor that sees row 60 dies there, without a word."""

    def __init__(self, *, marker, **options):
        super().__init__(**options)
        self.marker = Path(marker)

    def __call__(self, table):
        if 60 in table["id"] and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(table)


def test_a_killed_actor_loses_and_doubles_no_row(expected, tmp_path):
    frame = job(Killed, batch_size=7, actors=2, marker=str(tmp_path / "killed"))
    assert (tmp_path / "killed").exists()
    assert len(frame) == ROWS
    assert digest(frame["id"], frame["text"], frame["seed"]) == expected


class Census(RsgenPredictor):
    def __call__(self, table):
        super().__call__(table)
        return {"threads": [rsgen_threads()], "asked": [self.generator().num_threads]}


@pytest.mark.parametrize("num_cpus", [1, 2])
def test_an_actor_has_as_many_threads_as_cpus(num_cpus):
    frame = job(Census, batch_size=50, actors=1, num_cpus=num_cpus)
    assert set(frame["asked"]) == {num_cpus}
    assert set(frame["threads"]) == {num_cpus - 1}, "the thread that calls is one of them"


def test_an_actor_without_a_cpu_is_refused():
    actor = ray.remote(num_cpus=0)(RsgenPredictor).remote()
    with pytest.raises(ray.exceptions.RayActorError, match="give map_batches num_cpus=1 or more"):
        ray.get(actor.num_threads.remote())


def test_a_row_that_fails_fills_the_column_of_errors():
    table = [{"id": 0, "prompt": "A fox"}, {"id": 1, "prompt": "fox " * 2000}, {"id": 2, "prompt": "A fox"}]
    done = ray.data.from_items(table).map_batches(
        RsgenPredictor,
        fn_constructor_kwargs={"id_column": "id", "on_error": "column", "max_new_tokens": 3},
        num_cpus=1,
        concurrency=1,
    )
    frame = pd.DataFrame(done.take_all()).sort_values("id")
    assert frame["error"].isna().tolist() == [True, False, True]
    assert "shorten the prompt" in frame["error"].iloc[1]


def post(body) -> tuple[int, str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen("http://127.0.0.1:8123/", data, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_deployment_answers_and_streams():
    serve = pytest.importorskip("ray.serve")
    gen = rsgen.Generator(num_threads=1)
    out = gen.sample("Once upon a time", seed=3, max_new_tokens=12)
    serve.start(http_options={"host": "127.0.0.1", "port": 8123})
    serve.run(deployment(num_cpus=1), route_prefix="/")
    try:
        fields = {"prompt": "Once upon a time", "do_sample": True, "seed": 3, "max_new_tokens": 12}
        status, text = post(fields)
        assert (status, json.loads(text)) == (
            200,
            {"text": out.text, "finish_reason": "length", "seed": 3},
        )
        assert post({**fields, "stream": True}) == (200, out.text)
        for bad, message in [
            ({"prompt": "A", "max_nw_tokens": 3}, "did you mean `max_new_tokens`?"),
            ({"prompt": "A", "num_beams": 0}, "num_beams"),
            ([1], "must be a JSON object"),
            (b"{", "Expecting"),
            ({"prompt": "fox " * 2000}, "shorten the prompt"),
            ({"prompt": "fox " * 2000, "stream": True}, "shorten the prompt"),
        ]:
            status, text = post(bad)
            assert (status, message in text) == (400, True), text
    finally:
        serve.shutdown()
