"""Text of a model, of a file or of an address never becomes more than text; keys, full servers and broken connections."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import serving
from conftest import OpenPage, ended, get, ids, run, tokens
from playwright.sync_api import Page
from serving import Server
from tiny_llama import llama_config, llama_tensors, write_safetensors

HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    "<svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "\u202ereversed\u202c",
    "\u0000nul\u0007\u001b[31m",
    "\ufffd\ufffd",
    "\u200b\u2066\ufeff\U000e0041",
    "&lt;b&gt;&amp;",
    "{{7*7}}${7*7}",
    "\ud83e\udd8a".encode("utf-16", "surrogatepass").decode("utf-16"),
    "\n\n\t",
]
SHOWN = [
    "<U+202E>reversed<U+202C>",
    "<U+0000>nul<U+0007><U+001B>[31m",
    "<U+200B><U+2066><U+FEFF><U+E0041>",
    *HOSTILE[:4],
]


def assert_unharmed(page: Page) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, iframe, #pane-a script, #pane-a svg svg").count() == 0
    raw = page.text_content("body") or ""
    assert not any(char in raw for char in "\u202e\u202c\u0000\u200b\u2066\ufeff\x1b")


def trace() -> dict[str, Any]:
    """A trace of all kinds of events, whose texts are hostile."""
    top = [
        {"id": id, "text": text, "p_raw": 0.1, "p_final": 0.2, "cut_by": text}
        for id, text in enumerate(HOSTILE)
    ]
    events: list[dict[str, Any]] = [
        {
            "type": "start",
            "strategy": HOSTILE[0],
            "model": HOSTILE[1],
            "parameters": {},
            "seed": None,
            "first_row": 0,
            "num_rows": 1,
        },
        {"type": "prompt", "prompt": 0, "ids": [1, 2], "texts": HOSTILE[:2]},
    ]
    for pos, text in enumerate(HOSTILE):
        events.append(
            {
                "type": "token",
                "row": 0,
                "pos": pos,
                "id": pos,
                "text": text,
                "logprob": -1.0,
                "logprob_final": -0.5,
                "rank": 1,
                "entropy": 1.0,
                "top": top,
                "finish_reason": None,
            }
        )
        node = {
            "n": pos,
            "parent": pos - 1 if pos else None,
            "beam": 0,
            "id": pos,
            "text": text,
            "logprob": -1.0,
            "sum": -1.0,
            "score": -1.0,
            "group": 0,
            "state": "alive",
        }
        events.append({"type": "beam", "prompt": 0, "step": pos, "nodes": [node], "frontier": [pos]})
        proposed = [{"id": pos, "text": text, "p_draft": 0.5, "p_target": 0.1}]
        events.append(
            {
                "type": "draft",
                "row": 0,
                "round": pos,
                "source": text,
                "proposed": proposed,
                "accepted": 0,
                "next": {"id": 1, "text": text},
            }
        )
    events.append(
        {
            "type": "finish",
            "rows": [{"row": 0, "prompt": 0, "finish_reason": HOSTILE[0], "score": -1.0, "path": [0]}],
            "usage": {},
            "timings": {"first_token": 0.1, "total": 1.0},
        }
    )
    for seq, event in enumerate(events):
        event |= {"seq": seq, "t_us": seq}
    return {"schema_version": 1, "rsgen_version": HOSTILE[0], "model": HOSTILE[1], "events": events}


def open_file(page: Page, content: str) -> None:
    page.set_input_files(
        "#file", {"name": "trace.json", "mimeType": "application/json", "buffer": content.encode()}
    )


def test_a_hostile_trace_is_text(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 2000, "height": 1200})
    open_file(page, json.dumps(trace()))
    page.get_by_text("A trace of").wait_for()
    ended(page)
    text = page.text_content("#pane-a") or ""
    for shown in SHOWN:
        assert shown in text
    for index in range(len(HOSTILE)):
        page.locator("#pane-a .text .tok").nth(index).dispatch_event("click")
        assert page.is_visible("#popover")
        page.keyboard.press("Escape")
    page.locator("#pane-a .node").first.click()
    assert_unharmed(page)


DAMAGES: list[Any] = [
    {"type": "beam", "prompt": 0, "step": 1_000_000_000, "nodes": [], "frontier": []},
    {"type": "beam", "prompt": 0, "step": 0, "nodes": [], "frontier": [7]},
    {
        "type": "beam",
        "prompt": 0,
        "step": 0,
        "nodes": [
            {
                "n": 0,
                "parent": 0,
                "id": 1,
                "text": "a",
                "logprob": 0,
                "sum": 0,
                "score": 0,
                "group": 0,
                "state": "alive",
            }
        ],
        "frontier": [0],
    },
    {"type": "token", "row": 0, "pos": 5, "id": 1, "text": "a", "logprob": 0, "top": []},
    {"type": "token", "row": 0, "pos": 0, "id": 1, "text": {"toString": 1}, "logprob": 0, "top": []},
    {"type": "token", "row": 0, "pos": 0, "id": 1, "text": "a", "logprob": 0, "top": [None]},
    {"type": "draft", "row": 0, "round": 0, "source": "x", "proposed": [], "accepted": 10**9, "next": None},
    {"type": "finish", "rows": None, "timings": {}},
    {"type": "start", "strategy": 7},
]


@pytest.mark.parametrize("event", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_trace_says_so_and_the_page_goes_on(open_page: OpenPage, event: dict[str, Any]) -> None:
    page = open_page("prompt=One+day&strategy=greedy_search&max_new_tokens=5")
    open_file(
        page,
        json.dumps(
            {
                "schema_version": 1,
                "model": "m",
                "events": [{"type": "clear"}, {"type": "constructor"}, 5, None, event],
            }
        ),
    )
    page.get_by_text("A trace of m").wait_for()
    ended(page, state="failed")
    assert "no trace of rsgen" in (page.text_content("#pane-a .status") or "")
    run(page)
    assert len(ids(page)) == 5


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"schema_version": 2, "events": []}', '{"schema_version": 1}']
)
def test_a_file_that_is_no_trace_is_refused(open_page: OpenPage, content: str) -> None:
    page = open_page()
    open_file(page, content)
    page.get_by_text("This is no trace of rsgen").wait_for()


@pytest.fixture(scope="module")
def hostile_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model whose vocabulary attacks."""
    folder = tmp_path_factory.mktemp("hostile")
    words = [*HOSTILE, *(f"w{index}" for index in range(64 - len(HOSTILE)))]
    config = llama_config()
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", llama_tensors(config, np.random.default_rng(0)))
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {word: id for id, word in enumerate(words)},
            "unk_token": "w0",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with Server([str(folder), "--num-threads", "1"]) as server:
        yield server


@pytest.mark.parametrize("strategy", ["sample", "beam_search", "prompt_lookup"])
def test_a_model_whose_tokens_attack_is_text(
    open_page: OpenPage, hostile_server: Server, strategy: str
) -> None:
    page = open_page(
        f"prompt=w1&strategy={strategy}&temperature=3&top_k=0&max_new_tokens=60&seed=2&locked=1&num_beams=6",
        of=hostile_server,
        viewport={"width": 2000, "height": 1200},
    )
    run(page)
    assert any(int(token["id"]) < len(HOSTILE) for token in tokens(page))
    for index in range(0, 60, 7):
        page.locator("#pane-a .text .tok").nth(index).dispatch_event("click")
        page.keyboard.press("Escape")
    page.click("#show-code")
    assert_unharmed(page)


def test_bytes_of_half_a_character_are_shown_by_their_id(open_page: OpenPage, server: Server) -> None:
    # 🦊 is four bytes, and the story model has no token for it.
    page = open_page("prompt=x&strategy=greedy_search&max_new_tokens=4")
    encoded = page.evaluate(
        "fetch('tokenize', {method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify({prompt: '🦊', add_special_tokens: false})}).then(answer => answer.json())"
    )
    assert len(encoded["tokens"]) == 4
    hash = "prompt=x&strategy=constrained_beam_search&max_new_tokens=8&force_words=%F0%9F%A6%8A"
    page = open_page(hash)
    run(page)
    shown = [token["shown"] for token in tokens(page)]
    fox = shown.index("🦊")
    assert shown[fox - 3 : fox] == [f"<{id}>" for id in encoded["tokens"][:3]] or shown[fox - 2 : fox] == [
        f"<{id}>" for id in encoded["tokens"][1:3]
    ]


def test_the_address_is_text(open_page: OpenPage) -> None:
    page = open_page(
        "mode=chat&prompt=%3Cimg+src%3Dx+onerror%3Dwindow.hacked%3D1%3E&messages="
        + '[{"role":"user","content":"<img src=x onerror=window.hacked=1>"}]'
    )
    ended(page)
    # What the address says, the message to send, and the answer.
    assert page.locator("#messages li").count() == 3
    assert_unharmed(page)


def test_the_page_may_do_nothing_but_ask_its_server(server: Server) -> None:
    for path in ["/", "/ui/app.js", "/ui/style.css"]:
        status, headers, _ = get(server, path)
        policy = headers["content-security-policy"]
        assert status == 200
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_a_server_with_a_key_asks_for_it_and_the_key_stays_in_the_tab(open_page: OpenPage) -> None:
    with Server(["--api-key", "top secret", "--num-threads", "1"]) as locked:
        for path, expected in [("/", 200), ("/ui/app.js", 200), ("/v1/models", 401), ("/openapi.json", 401)]:
            assert get(locked, path)[0] == expected
        page = open_page("prompt=One+day&max_new_tokens=5", of=locked, ready=False, allowed=("401",))
        page.get_by_text("This server needs an API key.").wait_for()
        page.fill("#key", "wrong")
        page.get_by_role("button", name="Use key").click()
        page.get_by_text("does not take this key").wait_for()
        page.fill("#key", "top secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#model:has-text('context')")
        ended(page)
        assert len(ids(page)) == 5
        kept = page.evaluate(
            "[JSON.stringify({...sessionStorage}), JSON.stringify({...localStorage}), document.cookie, location.href]"
        )
        assert "top secret" in kept[0]
        assert not any("secret" in place for place in kept[1:])
        page.click("#show-code")
        page.select_option("#language", "curl")
        assert "$RSGEN_API_KEY" in page.input_value("#code")
        assert "secret" not in page.input_value("#code")


def test_a_full_server_is_asked_again_after_a_countdown(open_page: OpenPage, patient: Path) -> None:
    with Server([str(patient), "--num-threads", "1", "--max-requests", "1", "--max-queue", "0"]) as full:
        page = open_page("prompt=One+day&max_new_tokens=5", of=full, allowed=("503",))
        held = serving.events(
            full, "/rsgen/v1/generate", {"prompt": "One day", "max_new_tokens": 4000, "do_sample": False}
        )
        next(held)
        page.click("#run")
        page.get_by_text("trying again in").wait_for()
        assert page.is_visible("#notice")
        held.close()
        ended(page)
        assert len(ids(page)) == 5
        assert page.is_hidden("#notice")


def test_a_server_that_dies_leaves_a_message_and_no_spinner(open_page: OpenPage, patient: Path) -> None:
    with Server([str(patient), "--num-threads", "1"]) as mortal:
        page = open_page(
            "prompt=One+day&max_new_tokens=4000", of=mortal, waits=False, allowed=("ERR_", "Failed to load")
        )
        page.wait_for_selector("#pane-a .text .tok")
        mortal.process.kill()
        ended(page, state="failed")
        assert "still running?" in (page.text_content("#pane-a .status") or "")
        page.click("#run")
        page.get_by_text("The server does not answer").first.wait_for()
        ended(page, state="failed")


def test_the_server_s_refusals_are_shown(open_page: OpenPage) -> None:
    page = open_page(
        "prompt=One+day&strategy=group_beam_search&num_beams=5&num_beam_groups=2&max_new_tokens=5",
        allowed=("400",),
    )
    run(page, state="failed")
    assert "num_beam" in (page.text_content("#pane-a .status") or "")


def test_without_the_playground_nothing_is_there() -> None:
    with Server(["--no-ui"]) as bare:
        assert get(bare, "/")[0] == get(bare, "/ui/app.js")[0] == 404
        assert get(bare, "/health")[0] == 200


def test_the_page_waits_for_a_server_that_still_loads(open_page: OpenPage, server: Server) -> None:
    page = open_page(allowed=("503",))
    calls = []

    def loading(route: Any) -> None:
        calls.append(time.monotonic())
        if len(calls) > 1:
            return route.continue_()
        body = {"error": {"message": "the server still loads its model; come again soon", "code": "loading"}}
        return route.fulfill(status=503, headers={"retry-after-ms": "1000"}, json=body)

    page.route("**/v1/models", loading)
    page.reload()
    page.get_by_text("still loads its model").wait_for()
    page.wait_for_selector("#model:has-text('context')")
    assert calls[-1] - calls[0] > 0.9
    assert threading.active_count() < 50
