"""``rsgen.serve``: the server, started from Python. Its answers are tested in Rust."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
import rsgen
from stopwatch import Stopwatch

START = """
import rsgen
rsgen.serve(port=0, grace=20, on_start=lambda url: print(url, flush=True))
print("ended", flush=True)
"""


def post(url: str, body: dict[str, object], key: str = "") -> dict[str, object]:
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def in_thread(*arguments: object, **options: object) -> str:
    """Serves in a thread that ends with the process, and returns the address."""
    urls: queue.Queue[str] = queue.Queue()
    serve = lambda: rsgen.serve(*arguments, port=0, on_start=urls.put, **options)  # noqa: E731
    threading.Thread(target=serve, daemon=True).start()
    return urls.get(timeout=30)


def test_it_serves_a_generator_in_a_thread(gen):
    url = in_thread(gen, served_model_name="tales", api_key=["one", "two"])
    body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    answer = post(url, body, key="two")
    expected = gen.greedy_search("Once upon a time", max_new_tokens=8)
    assert answer["choices"][0]["text"] == expected.text
    assert answer["model"] == "tales"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        post(url, body, key="three")


def test_keys_share_no_prompts_and_the_usage_tells():
    url = in_thread(api_key=["one", "two"], max_requests_per_key=4)
    body = {"prompt": "The fox and the boat. " * 20, "max_tokens": 1}
    for key in ("one", "two"):
        cached = [post(url, body, key)["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)]
        assert cached[0] == 0 < cached[1], key


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C of another process")
def test_ctrl_c_ends_it_and_the_program_goes_on():
    process = subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert post(url, {"prompt": "One day", "max_tokens": 2})["usage"]["completion_tokens"] == 2
    watch = Stopwatch()
    os.kill(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=20)
    assert (process.returncode, rest) == (0, "ended\n")
    watch.assert_clock_within(5)


def test_options_are_checked_before_a_model_is_loaded():
    for options, word in [
        ({"port": 70_000}, "`port`"),
        ({"host": "0.0.0.0"}, "`host`"),
        ({"api_key": ""}, "`api_key`"),
        ({"grace": -1.0}, "`grace`"),
        ({"max_requests": 0}, "`max_requests`"),
        ({"max_requests_per_key": 0, "api_key": "k"}, "`max_requests_per_key` must be 1 or more"),
        ({"max_requests_per_key": -1, "api_key": "k"}, "`max_requests_per_key`"),
        ({"max_requests_per_key": 2}, "`api_key`"),
        ({"max_queue": -1}, "`max_queue`"),
        ({"cors_origin": "example.org"}, "`cors_origin` must be an origin"),
        ({"queue_timeout": float("nan")}, "`queue_timeout`"),
    ]:
        with pytest.raises(rsgen.ConfigError, match=word):
            rsgen.serve("./nowhere", **{"port": 0, **options})
    with pytest.raises(rsgen.LoadError):
        rsgen.serve("./nowhere", port=0)
    with pytest.raises(TypeError):
        rsgen.serve(port=0, prot=1)


def test_a_callback_that_raises_ends_it(gen):
    def stop(url: str) -> None:
        raise KeyError(url)

    with pytest.raises(KeyError):
        rsgen.serve(gen, port=0, on_start=stop)


def test_the_address_is_printed(gen, capsys):
    threading.Thread(target=lambda: rsgen.serve(gen, port=0), daemon=True).start()
    text, begin = "", time.monotonic()
    while "http://127.0.0.1:" not in text and time.monotonic() - begin < 20:
        time.sleep(0.01)
        text += capsys.readouterr().out
    assert "http://127.0.0.1:" in text
