"""``rsgen.serve`` with several models: their names, when each is loaded, and what is refused."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import rsgen
from test_serve import in_thread, post

MODELS = Path(rsgen.__file__).parent / "models"
SMALL, BIG = MODELS / "story-draft", MODELS / "story-3m"
ADAPTER = Path(__file__).parent / "golden" / "adapters" / "story"
BODY = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}


def get(url: str, path: str) -> dict[str, object]:
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        return json.load(answer)


def states(url: str) -> dict[str, str]:
    """Which models are loaded."""
    return {model["id"]: model["status"]["value"] for model in get(url, "/v1/models")["data"]}


def texts(url: str, *names: str) -> list[str]:
    answers = [post(url, {**BODY, "model": name}) for name in names]
    assert [answer["model"] for answer in answers] == list(names)
    return [answer["choices"][0]["text"] for answer in answers]


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """What each of the models writes."""
    found = []
    for folder in (SMALL, BIG):
        with rsgen.Generator(folder, num_threads=1) as gen:
            found.append(gen.greedy_search(BODY["prompt"], max_new_tokens=12).text)
    assert found[0] != found[1]
    return found


def test_a_dict_of_paths_serves_each_by_its_name(expected):
    url = in_thread({"small": SMALL, "big": str(BIG)}, num_threads=1)
    assert states(url) == {"small": "loaded", "big": "unloaded"}
    assert post(url, BODY)["model"] == "small"
    assert texts(url, "small", "big") == expected
    assert states(url) == {"small": "loaded", "big": "loaded"}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        texts(url, "other")


@pytest.mark.parametrize(("when", "loaded"), [("first", ["small"]), ("all", ["small", "big"]), ("none", [])])
def test_models_are_loaded_when_it_is_said(when, loaded):
    url = in_thread({"small": SMALL, "big": BIG}, load_on_startup=when, num_threads=1)
    assert [name for name, state in states(url).items() if state == "loaded"] == loaded


def test_a_generator_stays_beside_a_path_that_makes_room(gen, expected):
    url = in_thread({"mine": gen, "small": SMALL, "big": BIG}, models_max=2, kv_cache_bytes=1 << 22)
    assert texts(url, "mine", "small", "big") == [expected[1], *expected]
    assert states(url) == {"mine": "loaded", "small": "unloaded", "big": "loaded"}


def test_a_budget_holds_the_caches_too(expected):
    weights = {name: meta(in_thread(path))["weight_bytes"] for name, path in (("small", SMALL), ("big", BIG))}
    budget = sum(weights.values()) + (16 << 20)
    url = in_thread({"small": SMALL, "big": BIG}, models_memory=budget, load_on_startup="all", num_threads=1)
    assert states(url) == {"small": "loaded", "big": "loaded"}
    assert texts(url, "small", "big") == expected
    tight = in_thread({"small": SMALL, "big": BIG}, models_memory=budget - (14 << 20), num_threads=1)
    assert texts(tight, "small", "big") == expected
    assert list(states(tight).values()).count("loaded") == 1


def meta(url: str) -> dict[str, int]:
    return get(url, "/v1/models")["data"][0]["meta"]


def test_an_idle_model_is_unloaded_and_a_single_one_may_be_lazy(expected):
    url = in_thread(BIG, load_on_startup="none", served_model_name="tales", num_threads=1)
    assert states(url) == {"tales": "unloaded"}
    assert texts(url, "tales") == expected[1:]
    url = in_thread({"small": SMALL, "big": BIG}, keep_alive="0s", num_threads=1)
    for _ in range(2):
        assert texts(url, "big") == expected[1:]


def test_adapters_stand_beside_their_model():
    url = in_thread({"small": SMALL, "big": BIG}, lora_modules={"big:other": ADAPTER}, num_threads=1)
    assert "big:other" in states(url)
    plain, adapted = texts(url, "big", "big:other")
    assert plain != adapted


@pytest.mark.parametrize(
    ("model", "options", "error", "words"),
    [
        ({}, {}, rsgen.ConfigError, "`model` must name at least one"),
        ({1: SMALL}, {}, TypeError, "names as its keys"),
        ({"a": 1}, {}, TypeError, "`model` must be"),
        ({"a": SMALL, "b": "./nowhere"}, {}, rsgen.LoadError, "nowhere"),
        ({"a": SMALL}, {"served_model_name": "b"}, rsgen.ConfigError, "`served_model_name`"),
        ({"a": SMALL, "b": BIG}, {"models_max": 0}, rsgen.ConfigError, "`models_max` must be 1 or more"),
        (
            {"a": SMALL, "b": BIG},
            {"models_memory": 1000},
            rsgen.ConfigError,
            "`models_memory` must be at least",
        ),
        (
            {"a": SMALL, "b": BIG},
            {"models_max": 1, "load_on_startup": "all"},
            rsgen.ConfigError,
            "`models_max` must be at least 2",
        ),
        (SMALL, {"load_on_startup": "some"}, rsgen.ConfigError, "`load_on_startup` must be"),
        (SMALL, {"keep_alive": "soon"}, rsgen.ConfigError, "`keep_alive`"),
        (SMALL, {"lora_modules": 1}, TypeError, "`lora_modules` must be a dict"),
        (SMALL, {"lora_modules": {"a": "./nowhere"}}, rsgen.LoadError, "nowhere"),
        (SMALL, {"kv_cache_byte": 1}, TypeError, "did you mean `kv_cache_bytes`"),
        (SMALL, {"log_format": "xml"}, rsgen.ConfigError, "`log_format`"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(model, options, error, words):
    with pytest.raises(error) as raised:
        rsgen.serve(model, port=0, **options)
    assert words in str(raised.value)


def test_a_generator_is_open_already(gen):
    with pytest.raises(rsgen.ConfigError, match="`num_threads` says how a path is opened"):
        rsgen.serve(gen, port=0, num_threads=1)
    with pytest.raises(rsgen.ConfigError, match="load it with `load_adapter`"):
        rsgen.serve({"a": gen}, port=0, lora_modules={"other": ADAPTER})


def test_requests_are_logged_with_the_names_of_their_keys(caplog):
    url = in_thread(SMALL, api_key={"alice": "one", "bob": "two"}, log_format="json", num_threads=1)
    with caplog.at_level("INFO", logger="rsgen"):
        post(url, BODY, key="two")
        get_alive = urllib.request.urlopen(f"{url}/health/live", timeout=30)
        get_alive.close()
        lines = wait_for(caplog, 2)
    told = next(line for line in lines if line["path"] == "/v1/completions")
    assert (told["key"], told["status"], told["generated_tokens"]) == ("bob", 200, 12)
    assert told["finish"] in ("length", "eos")
    assert 0 <= told["first_token_ms"] <= told["last_token_ms"] <= told["ms"]
    assert "Once upon" not in caplog.text
    assert "two" not in caplog.text


def wait_for(caplog, count: int) -> list[dict[str, object]]:
    """The lines of requests, once there are so many: they are written by other threads."""
    import time

    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = [json.loads(r.getMessage()) for r in caplog.records if r.name == "rsgen.serve.request"]
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(caplog.text)
