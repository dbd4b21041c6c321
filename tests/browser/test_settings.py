"""Controls, the address and the request say the same; a strategy ignores what the page says it ignores."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import serving
from conftest import STORY, OpenPage, events_of, ids, of_type, run, tokens
from playwright.sync_api import Page, Route
from serving import Server

#: A LoRA adapter of the story model.
ADAPTER = Path(__file__).parents[1] / "golden" / "adapters" / "story"
BEAMS = ["beam_search", "beam_sample", "group_beam_search", "constrained_beam_search"]
SAMPLING = ["sample", "beam_sample"]
OPTIONAL = ["dola", "prompt_lookup", "assisted_decoding"]
STRATEGIES = ["greedy_search", "sample", "contrastive_search", *OPTIONAL, *BEAMS]

# Which strategies use a field, besides those that draw: written down once more, so that a slip of the page shows.
USED: dict[str, list[str]] = {
    "stop_strings": STRATEGIES,
    "regex": STRATEGIES,
    "do_sample": OPTIONAL,
    "temperature": [],
    "top_k": ["contrastive_search"],
    "top_p": [],
    "min_p": [],
    "typical_p": [],
    "top_h": [],
    "epsilon_cutoff": [],
    "eta_cutoff": [],
    "num_beams": BEAMS,
    "length_penalty": BEAMS,
    "early_stopping": BEAMS,
    "num_beam_groups": ["group_beam_search"],
    "diversity_penalty": ["group_beam_search"],
    "num_return_sequences": ["sample", *BEAMS],
    "repetition_penalty": STRATEGIES,
    "no_repeat_ngram_size": STRATEGIES,
    "frequency_penalty": STRATEGIES,
    "presence_penalty": STRATEGIES,
    "penalty_alpha": ["contrastive_search"],
    "dola_layers": ["dola"],
    "num_assistant_tokens": ["assisted_decoding"],
    "assistant_confidence_threshold": ["assisted_decoding"],
    "prompt_lookup_num_tokens": ["prompt_lookup"],
    "max_matching_ngram_size": ["prompt_lookup"],
    "num_assistant_tokens_schedule": ["prompt_lookup", "assisted_decoding"],
}
WARPERS = ["temperature", "top_k", "top_p", "min_p", "typical_p", "top_h", "epsilon_cutoff", "eta_cutoff"]
VALUES: dict[str, list[Any]] = {
    "stop_strings": [["."], ["\n\n", "a b"]],
    "regex": ["[a-z ]+", " (ran|sat) & \\d+"],
    "do_sample": [True],
    "temperature": [0.5, 2, 1.35],
    "top_k": [0, 3, 50],
    "top_p": [0.9, 0.31],
    "min_p": [0.05],
    "typical_p": [0.4],
    "top_h": [0.7],
    "epsilon_cutoff": [0.003],
    "eta_cutoff": [0.002],
    "num_beams": [2, 5],
    "length_penalty": [-1, 0.5, 2.1],
    "early_stopping": [True, False, "never"],
    "num_beam_groups": [2, 3],
    "diversity_penalty": [0.3, 2],
    "num_return_sequences": [2],
    "repetition_penalty": [1.15],
    "no_repeat_ngram_size": [3],
    "frequency_penalty": [-0.5, 1],
    "presence_penalty": [0.2],
    "penalty_alpha": [0.35],
    "dola_layers": ["high", "low"],
    "num_assistant_tokens": [4],
    "assistant_confidence_threshold": [0, 0.7],
    "prompt_lookup_num_tokens": [5],
    "max_matching_ngram_size": [4],
    "num_assistant_tokens_schedule": ["adaptive", "constant", "heuristic"],
}
PROMPTS = [
    "One day",
    "",
    " a\tb\n\nc ",
    "100% & more = #1 + 2 ?",
    "Grüße 🦊 \u202e <b>",
    "'quoted' \"text\" \\ back",
]

END = 'data: {"seq":0,"type":"finish","rows":[],"usage":{},"timings":{"first_token":0,"total":0}}\n\n'


def drawn_state(rng: random.Random) -> tuple[str, dict[str, Any], str, int, int]:
    """A strategy, fields, a prompt, a seed and a number of tokens."""
    names = rng.sample(list(USED), rng.randint(0, 12))
    fields = {name: rng.choice(VALUES[name]) for name in names}
    return rng.choice(STRATEGIES), fields, rng.choice(PROMPTS), rng.randrange(10**6), rng.randint(1, 200)


def is_used(name: str, strategy: str, fields: dict[str, Any]) -> bool:
    draws = strategy in SAMPLING or (strategy in OPTIONAL and fields.get("do_sample") is True)
    return strategy in USED[name] or (draws and name in WARPERS)


def set_control(page: Page, side: str, name: str, value: Any) -> None:
    control = page.locator(f"#{side}-{name}")
    page.locator(f"#{side}-all").evaluate("one => one.checked || one.click()")
    if name == "do_sample":
        control.set_checked(value)
    elif isinstance(value, list):
        control.fill("\n".join(value).replace("\n\n", "§"))
        control.dispatch_event("change")
    elif control.evaluate("one => one.tagName") == "SELECT":
        control.select_option(str(value).lower() if isinstance(value, bool) else value)
    else:
        control.fill(str(value))
        control.dispatch_event("change")


def control_value(page: Page, side: str, name: str) -> Any:
    control = page.locator(f"#{side}-{name}")
    if name == "do_sample":
        return control.is_checked()
    text = control.input_value()
    value = VALUES[name][0]
    if isinstance(value, list):
        return text.split("\n")
    if name == "early_stopping":
        return {"true": True, "false": False}.get(text, text)
    return text if isinstance(value, str) else float(text)


@pytest.mark.parametrize("part", range(3))
def test_controls_the_address_and_the_request_say_the_same(open_page: OpenPage, part: int) -> None:
    rng = random.Random(part)
    page, bodies = open_page(), []

    def answer(route: Route) -> None:
        bodies.append(json.loads(route.request.post_data or ""))
        route.fulfill(status=200, content_type="text/event-stream", body=END)

    page.context.route("**/rsgen/v1/generate", answer)
    for _ in range(10):
        strategy, fields, prompt, seed, new_tokens = drawn_state(rng)
        fields = {
            name: value
            for name, value in fields.items()
            if not isinstance(value, list) or "\n\n" not in value
        }
        page.goto(page.url.split("#")[0] + "#prompt=&strategy=greedy_search&seed=0")
        page.reload()
        page.wait_for_selector("#model:has-text('context')")
        page.wait_for_selector("body:not(.running)")
        page.fill("#prompt", prompt)
        page.select_option("#a-strategy", "sample")
        page.fill("#seed", str(seed))
        page.dispatch_event("#seed", "change")
        # A control that a strategy ignores is off, so each field is set where it counts.
        for name, value in fields.items():
            page.select_option("#a-strategy", next((one for one in USED[name] if one != "sample"), "sample"))
            set_control(page, "a", name, value)
        page.select_option("#a-strategy", strategy)
        set_control(page, "a", "max_new_tokens", new_tokens)
        # The address.
        parts = dict(parse_qsl(urlsplit(page.url).fragment, keep_blank_values=True))
        assert (parts["prompt"], parts["strategy"], parts["seed"]) == (prompt, strategy, str(seed))
        # Another page with this address has the same controls.
        other = page.context.new_page()
        other.goto(page.url)
        other.wait_for_selector("#model:has-text('context')")
        other.wait_for_selector("body:not(.running)")
        assert other.input_value("#prompt") == prompt
        assert other.input_value("#a-strategy") == strategy
        assert other.input_value("#seed") == str(seed)
        for name, value in fields.items():
            expected = value if isinstance(value, (bool, str, list)) else float(value)
            assert control_value(other, "a", name) == expected, name
            assert other.locator(f"#a-{name}").is_disabled() != is_used(name, strategy, fields), name
        # Both send the same request, which has what the strategy uses and nothing else.
        expected_body = {"prompt": prompt, "strategy": strategy, "max_new_tokens": new_tokens}
        expected_body |= {name: value for name, value in fields.items() if is_used(name, strategy, fields)}
        if strategy in SAMPLING or (strategy in OPTIONAL and fields.get("do_sample")):
            expected_body["seed"] = seed
        if strategy in ["greedy_search", "sample"]:
            expected_body["use_assistant"] = False
        for one in [page, other]:
            bodies.clear()
            run(one)
            assert bodies == [expected_body]
        other.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_called_ignored_changes_nothing(server: Server, strategy: str) -> None:
    # Values that would change the tokens if they counted.
    strong = {
        "temperature": 3,
        "top_k": 1,
        "top_p": 0.1,
        "min_p": 0.9,
        "typical_p": 0.05,
        "top_h": 0.05,
        "epsilon_cutoff": 0.1,
        "eta_cutoff": 0.1,
    }
    strong |= {
        "length_penalty": -2,
        "early_stopping": True,
        "num_assistant_tokens": 1,
        "assistant_confidence_threshold": 0.9,
        "max_matching_ngram_size": 7,
    }
    body: dict[str, Any] = {
        "prompt": "One day",
        "strategy": strategy,
        "max_new_tokens": 16,
        "use_assistant": strategy == "assisted_decoding",
    }
    if strategy in SAMPLING:
        body["seed"] = 3
    if strategy == "constrained_beam_search":
        body["force_words_ids"] = [[1263]]
    plain = [event["id"] for event in of_type(events_of(server, **body), "token")]
    ignored = [name for name in strong if not is_used(name, strategy, {})]
    assert ignored
    for name in ignored:
        changed = events_of(server, **body, **{name: strong[name]})
        assert [event["id"] for event in of_type(changed, "token")] == plain, name


def test_an_address_that_makes_no_sense_is_an_address_without_it(open_page: OpenPage) -> None:
    page = open_page(
        "prompt=x&strategy=__proto__&seed=-1&ids=1.a.-2&colour=pink&mode=talk&messages=[1]&temperature=NaN&top_p=1e9"
        "&num_beams=2.6&early_stopping=maybe&b.strategy=constructor&compare=2&top_k="
    )
    assert page.input_value("#a-strategy") == "greedy_search"
    assert page.input_value("#seed") == "1"
    assert page.input_value("#colour") == "final"
    assert page.input_value("#a-temperature") == "1"
    assert page.input_value("#a-top_p") == "1"
    assert page.input_value("#a-num_beams") == "3"
    assert page.input_value("#a-top_k") == "50"
    assert page.is_hidden("#side-b")


def test_words_to_hold_become_ids(open_page: OpenPage, server: Server) -> None:
    hash = urlencode(
        {
            "prompt": "Near the lake",
            "strategy": "constrained_beam_search",
            "max_new_tokens": 20,
            "force_words": "moon",
        }
    )
    page = open_page(hash)
    bodies = []
    page.on(
        "request",
        lambda request: bodies.append(request.post_data_json) if "generate" in request.url else None,
    )
    run(page)
    assert bodies[0]["force_words_ids"] == [[1263]]
    assert "moon" in "".join(token["shown"] for token in tokens(page))


CODE = [
    "prompt=It's+%22odd%22+%5C+%24HOME+%60ls%60%0A%F0%9F%A6%8A&strategy=sample&seed=9&locked=1&max_new_tokens=12&top_p=0.8",
    "prompt=One+day&strategy=beam_search&num_beams=3&max_new_tokens=12&early_stopping=never&stop_strings=.",
    "mode=chat&prompt=Tell+me+a+story.&strategy=greedy_search&max_new_tokens=12",
    "prompt=One+day&strategy=dola&max_new_tokens=12&dola_layers=low",
    "prompt=Leo+had+a+red+kite.+Tom+had&strategy=prompt_lookup&max_new_tokens=12&ids=0.352.358",
]


def code(page: Page, language: str) -> str:
    page.click("#show-code")
    page.select_option("#language", language)
    text = page.input_value("#code")
    page.click("#close")
    return text


@pytest.mark.parametrize("hash", CODE, ids=range(len(CODE)))
def test_the_code_for_python_and_the_shell_gives_the_same_text(
    open_page: OpenPage, server: Server, hash: str
) -> None:
    page = open_page(hash)
    run(page)
    ids = [int(token["id"]) for token in tokens(page)]
    if "chat" in hash:
        page.reload()
        page = open_page(hash)
    command = code(page, "curl")
    told = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    lines = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
    assert [event["id"] for event in lines if event["type"] == "token"] == ids
    assert shlex.split(command)[:2] == ["curl", "-N"]
    if serving.PROGRAM[0] != sys.executable:
        return  # There is no extension to run the program with.
    program = code(page, "Python").replace("print(out.text)", "print(list(map(int, out.token_ids[0])))")
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(printed.stdout) == ids


#: How a server is started, a strategy, and another way to open the model that gives other tokens; none for an
#: assistant, without which there is no strategy. `{model}` and the others are relative paths.
OPENED = {
    "a folder with its defaults and another name": (
        ["{model}", "--served-model-name", "mine"],
        "sample",
        "Generator()",
    ),
    "types of numbers": (
        ["{model}", "--dtype", "int4", "--kv-dtype", "int8", "--compute-dtype", "bfloat16"],
        "sample",
        'Generator("llama")',
    ),
    "without the defaults of the model": (
        ["{model}", "--generation-config", "ignore", "--num-threads", "1"],
        "greedy_search",
        'Generator("llama")',
    ),
    "an adapter and another tokenizer": (
        ["{model}", "--adapter", "{adapter}", "--tokenizer", "{tokenizer}"],
        "beam_search",
        'Generator("llama")',
    ),
    "the bundled model with an adapter": (
        ["--adapter", "{adapter}", "--no-prefix-caching", "--kv-cache-bytes", "64M"],
        "greedy_search",
        "Generator()",
    ),
    "an assistant": (["{model}", "--assistant", "{assistant}"], "assisted_decoding", None),
}


def printed_ids(program: str, folder: Path) -> list[int]:
    """What a program prints, in another folder than the server's."""
    program = program.replace("print(out.text)", "print(list(map(int, out.token_ids[0])))")
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=folder
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("case", OPENED)
def test_the_code_opens_the_model_as_the_server_did(open_page: OpenPage, tmp_path: Path, case: str) -> None:
    if serving.PROGRAM[0] != sys.executable:
        pytest.skip("There is no extension to run the program with.")
    arguments, strategy, other = OPENED[case]
    shutil.copytree(STORY, tmp_path / "llama")
    defaults = {"eos_token_id": 1, "repetition_penalty": 1.8}
    (tmp_path / "llama" / "generation_config.json").write_text(json.dumps(defaults))
    places = {"model": tmp_path / "llama", "adapter": ADAPTER, "tokenizer": STORY}
    places["assistant"] = STORY.with_name("story-draft")
    relative = {name: os.path.relpath(path) for name, path in places.items()}
    with Server([argument.format(**relative) for argument in arguments]) as opened:
        page = open_page(f"prompt=One+day&strategy={strategy}&seed=9&locked=1&max_new_tokens=24", of=opened)
        run(page)
        found = ids(page)
        program, rust = code(page, "Python"), code(page, "Rust")
    for argument in arguments:
        name = argument.removeprefix("--").removeprefix("no-").replace("-", "_")
        if argument.startswith("--") and name != "served_model_name":
            assert f"{name}=" in program, program
            assert f"{name}(" in rust, rust
    assert printed_ids(program, tmp_path) == found
    if other is not None:
        assert printed_ids(re.sub(r"Generator\(.*\)", other, program), tmp_path) != found


def test_the_code_names_no_path_where_others_may_ask(open_page: OpenPage, tmp_path: Path) -> None:
    shutil.copytree(STORY, tmp_path / "llama")
    with Server([str(tmp_path / "llama"), "--dtype", "int8", "--allowed-hosts", "models.example"]) as opened:
        page = open_page("prompt=One+day", of=opened)
        program = code(page, "Python")
    assert 'rsgen.Generator("llama", dtype="int8")' in program
    assert str(tmp_path) not in program
