"""Two servers and a client that takes them by turns: one is killed, and its requests go to the other."""

import http.client
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
import rsgen

START = "import rsgen; rsgen.serve(rsgen.Generator(num_threads=1), port=0, on_start=lambda url: print(url, flush=True))"


@pytest.fixture
def servers():
    processes = [
        subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    yield processes, [process.stdout.readline().strip() for process in processes]
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(url: str, seed: int) -> str:
    body = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0.8, "seed": seed}
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)["choices"][0]["text"]


def test_a_killed_server_costs_its_clients_a_retry(servers):
    processes, urls = servers
    expected = [ask(urls[0], seed) for seed in range(60)]
    retries = []

    def robin(seed: int) -> tuple[str, float]:
        """The answer, and how long a dead server held it up."""
        lost = 0.0
        for attempt in range(2):
            start = time.monotonic()
            try:
                return ask(urls[(seed + attempt) % 2], seed), lost
            except (urllib.error.URLError, ConnectionError, http.client.HTTPException):
                lost += time.monotonic() - start
                retries.append(seed)
        raise AssertionError(f"both servers failed with seed {seed}")

    with ThreadPoolExecutor(4) as pool:
        answers = []
        for seed in range(60):
            if seed == 20:
                processes[1].send_signal(signal.SIGKILL)
                dead = time.monotonic()
                processes[1].wait(timeout=2)
                assert time.monotonic() - dead < 2
            answers.append(pool.submit(robin, seed))
        results = [answer.result(timeout=60) for answer in answers]
    assert [text for text, _ in results] == expected
    assert len(retries) >= 10, "the dead server was asked"
    assert max(lost for _, lost in results) < 2, "no request hangs on a dead server"


def test_the_shape_of_an_answer_is_that_of_a_generator(servers):
    gen = rsgen.Generator(num_threads=1)
    _, urls = servers
    assert ask(urls[0], 3) == ask(urls[1], 3)
    assert (
        ask(urls[1], 3)
        == gen.sample("Once upon a time", temperature=0.8, top_k=0, seed=3, max_new_tokens=24).text
    )
