"""The playground shows what the server computes: tokens, beams and drafts, number for number."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
import serving
from conftest import OpenPage, chosen, ended, events_of, ids, of_type, run, set_field, texts_of, tokens
from playwright.sync_api import Playwright
from serving import Server


def test_the_system_s_browser_works_with_this_playwright(playwright: Playwright) -> None:
    from conftest import find_browser

    begin = time.monotonic()
    browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
    assert browser.new_page().evaluate("1 + 1") == 2
    browser.close()
    assert time.monotonic() - begin < 5


def test_text_appears_while_it_is_generated(open_page: OpenPage, patient_server: Server) -> None:
    page = open_page("prompt=One+day&strategy=greedy_search&max_new_tokens=3", of=patient_server)
    set_field(page, "max_new_tokens", 300)
    page.evaluate(
        """() => {
            window.steps = [];
            const pane = document.getElementById("pane-a");
            new MutationObserver(() => {
                const number = pane.querySelectorAll(".text .tok").length;
                const state = pane.dataset.state;
                if (number !== window.steps.at(-1)?.[0]) window.steps.push([number, state]);
            }).observe(pane, {childList: true, subtree: true});
        }"""
    )
    run(page)
    steps = page.evaluate("window.steps")
    assert len([step for step in steps if step[0] > 0 and step[1] == "running"]) >= 3, steps
    assert len(ids(page)) == 300


def test_stop_ends_the_work_within_300_ms(open_page: OpenPage, patient_server: Server) -> None:
    page = open_page(
        "prompt=One+day&strategy=greedy_search&max_new_tokens=4096", of=patient_server, waits=False
    )
    page.wait_for_selector("#pane-a .text .tok")
    assert serving.metric(patient_server, "rsgen_requests_running") == 1
    page.click("#run")
    begin = time.monotonic()
    while serving.metric(patient_server, "rsgen_requests_running") > 0:
        assert time.monotonic() - begin < 0.3
        time.sleep(0.01)
    ended(page, state="stopped")
    assert "stopped after" in (page.text_content("#pane-a .status") or "")
    assert page.text_content("#run") == "Run"


def test_a_seed_gives_its_text_again(open_page: OpenPage) -> None:
    page = open_page("prompt=One+day&strategy=sample&max_new_tokens=30&seed=11&locked=1")
    found = []
    for seed in ["11", "11", "12"]:
        page.fill("#seed", seed)
        page.dispatch_event("#seed", "change")
        run(page)
        found.append(ids(page))
    assert found[0] == found[1] != found[2]


def test_without_keep_every_run_has_another_seed_and_the_address_has_it(open_page: OpenPage) -> None:
    page = open_page("prompt=One+day&strategy=sample&max_new_tokens=30&seed=11")
    found = []
    for _ in range(2):
        run(page)
        assert f"seed={page.input_value('#seed')}&" in page.url
        found.append((page.input_value("#seed"), ids(page)))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


@pytest.mark.parametrize("strategy", ["greedy_search", "sample", "contrastive_search", "dola", "beam_search"])
def test_the_numbers_of_the_heat_map_are_those_of_the_api(
    open_page: OpenPage, server: Server, strategy: str
) -> None:
    page = open_page(f"prompt=The+little+fox&strategy={strategy}&max_new_tokens=24&seed=3&locked=1")
    run(page)
    body = {"prompt": "The little fox", "strategy": strategy, "max_new_tokens": 24, "use_assistant": False}
    told = of_type(events_of(server, **body, **({"seed": 3} if strategy == "sample" else {})), "token")
    shown = tokens(page)
    assert [int(token["id"]) for token in shown] == [event["id"] for event in told]
    for token, event in zip(shown, told, strict=True):
        for name in ["logprob", "logprob_final", "entropy", "rank"]:
            if event[name] is None:
                assert name not in token
            else:
                assert math.isclose(float(token[name]), event[name], abs_tol=1e-6)


def test_a_token_tells_what_else_could_have_stood_there(open_page: OpenPage, server: Server) -> None:
    page = open_page("prompt=The+little+fox&strategy=sample&top_k=3&max_new_tokens=12&seed=7&locked=1")
    run(page)
    told = of_type(
        events_of(
            server,
            prompt="The little fox",
            strategy="sample",
            top_k=3,
            max_new_tokens=12,
            seed=7,
            use_assistant=False,
        ),
        "token",
    )
    page.locator("#pane-a .text .tok").nth(5).click()
    rows = page.locator("#popover tbody tr").evaluate_all("all => all.map(row => ({...row.dataset}))")
    assert [int(row["id"]) for row in rows] == [top["id"] for top in told[5]["top"]]
    for row, top in zip(rows, told[5]["top"], strict=True):
        assert math.isclose(float(row["p_raw"]), top["p_raw"], abs_tol=1e-6)
        assert math.isclose(float(row["p_final"]), top["p_final"], abs_tol=1e-6)
        assert row["cut_by"] == (top["cut_by"] or "")
    assert (
        page.locator("#popover .cut").count() == sum(top["cut_by"] == "top_k" for top in told[5]["top"]) > 0
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"strategy": "beam_search", "num_beams": 3},
        {"strategy": "beam_search", "num_beams": 4, "num_return_sequences": 3},
        {"strategy": "beam_sample", "num_beams": 3, "seed": 5},
        {"strategy": "group_beam_search", "num_beams": 4, "num_beam_groups": 2},
    ],
    ids=lambda fields: " ".join(map(str, fields.values())),
)
def test_the_tree_is_that_of_the_events(
    open_page: OpenPage, server: Server, fields: dict[str, object]
) -> None:
    hash = "&".join(
        f"{name}={value}"
        for name, value in ({"prompt": "One day", "max_new_tokens": 12, "locked": 1} | fields).items()
    )
    # So wide that every column is in the page.
    page = open_page(hash, viewport={"width": 2000, "height": 1400})
    run(page)
    events = events_of(server, prompt="One day", max_new_tokens=12, **fields)
    told = {node["n"]: node for event in of_type(events, "beam") for node in event["nodes"]}
    shown = page.locator("#pane-a .node").evaluate_all(
        "all => all.map(one => ({...one.dataset, kind: one.getAttribute('class'), label: one.getAttribute('aria-label')}))"
    )
    assert {int(node["n"]) for node in shown} == set(told)
    for node in shown:
        expected = told[int(node["n"])]
        parent = "" if expected["parent"] is None else str(expected["parent"])
        assert (node["parent"], node["state"], int(node["id"])) == (parent, expected["state"], expected["id"])
    # The thick path is the best result, and its tokens are the text.
    [finish] = of_type(events, "finish")
    thick = sorted((int(node["step"]), int(node["n"])) for node in shown if " best" in node["kind"])
    assert [n for _, n in thick] == finish["rows"][0]["path"]
    assert "".join(told[n]["text"] for _, n in thick) == texts_of(events)
    assert ids(page)[: len(thick)] == [told[n]["id"] for _, n in thick]
    # No two nodes lie on each other.
    boxes = page.locator("#pane-a .node").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(({x, y}) => x + ' ' + y)"
    )
    assert len(boxes) == len(set(boxes))
    # A beam that was in the frontier and is in no result has died, or was alive to the end.
    frontiers = [set(event["frontier"]) for event in of_type(events, "beam")]
    parents = {node["parent"] for node in told.values() if node["state"] != "pruned"}
    for node in shown:
        n, step = int(node["n"]), int(node["step"])
        if n in frontiers[step] and n not in parents and step + 1 < len(frontiers):
            assert f"died in step {step + 2}" in node["label"]
            assert "died" in node["kind"]


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("assisted_decoding", ""),
        ("assisted_decoding", "do_sample=true&seed=4"),
        ("prompt_lookup", "stop_strings=beg"),
    ],
)
def test_drafts_add_up_to_the_server_s_counters(
    open_page: OpenPage, server: Server, strategy: str, options: str
) -> None:
    names = ["rsgen_spec_drafts_total", "rsgen_spec_draft_tokens_total", "rsgen_spec_accepted_tokens_total"]
    page = open_page(
        f"prompt=Leo+had+a+red+kite.+Mia+had+a+red+kite.+Tom+had&strategy={strategy}&max_new_tokens={40 if strategy == 'assisted_decoding' else 100}&locked=1"
        f"&num_assistant_tokens_schedule=constant&{options}"
    )
    before = [serving.metric(server, name) for name in names]
    run(page)
    drafts, proposed, accepted = (
        serving.metric(server, name) - value for name, value in zip(names, before, strict=True)
    )
    rounds = page.locator("#pane-a .rounds li").evaluate_all("all => all.map(one => ({...one.dataset}))")
    assert sum(int(line["proposed"]) for line in rounds) == proposed > 0
    assert sum(int(line["accepted"]) for line in rounds) == accepted > 0
    assert len(rounds) == drafts
    assert sum(int(line["accepted"]) + (line["next"] != "") for line in rounds) == len(ids(page))
    struck = page.locator("#pane-a .rounds s").count()
    assert struck == proposed - accepted


def test_the_gain_of_drafts_is_measured_against_the_same_run_without(
    open_page: OpenPage, server: Server
) -> None:
    page = open_page("prompt=Once+upon+a+time&strategy=assisted_decoding&max_new_tokens=60")
    run(page)
    drafts = serving.metric(server, "rsgen_spec_draft_tokens_total")
    page.get_by_role("button", name="Measure the gain").click()
    page.get_by_text("Measured gain:").wait_for()
    assert serving.metric(server, "rsgen_spec_draft_tokens_total") == drafts, "it runs without drafts"


def test_an_alternative_leads_to_another_text(open_page: OpenPage, server: Server) -> None:
    page = open_page("prompt=Near+the+lake&strategy=greedy_search&max_new_tokens=20")
    run(page)
    first = ids(page)
    page.locator("#pane-a .text .tok").nth(6).click()
    other = page.locator("#popover tbody tr:not(.own)").first
    chosen_id = int(other.get_attribute("data-id") or -1)
    other.get_by_role("button").click()
    ended(page)
    [prompt] = of_type(events_of(server, prompt="Near the lake", max_new_tokens=1), "prompt")
    branch = [*prompt["ids"], *first[:6], chosen_id]
    assert f"ids={'.'.join(map(str, branch))}&" in page.url
    told = events_of(server, prompt=branch, strategy="greedy_search", max_new_tokens=20, use_assistant=False)
    assert ids(page) == [event["id"] for event in of_type(told, "token")]
    assert chosen(page) == [*first[:6], chosen_id]
    page.locator("#branches li").first.click()
    ended(page)
    assert (chosen(page), ids(page)) == ([], first)
    page.go_back()
    ended(page)
    assert chosen(page) == [*first[:6], chosen_id], "the browser's back leads to the branch"


def test_a_node_of_the_tree_is_a_beginning_too(open_page: OpenPage) -> None:
    page = open_page("prompt=Near+the+lake&strategy=beam_search&num_beams=3&max_new_tokens=6")
    run(page)
    page.locator("#pane-a .node.pruned").first.click()
    page.get_by_role("button", name="Go on from here").click()
    ended(page)
    assert len(chosen(page)) == 1
    assert len(ids(page)) == 6


def test_two_settings_run_on_the_same_seed_and_their_difference_is_marked(open_page: OpenPage) -> None:
    page = open_page(
        "prompt=One+day&compare=1&seed=5&locked=1&strategy=sample&max_new_tokens=25&temperature=0.5"
        "&b.strategy=sample&b.max_new_tokens=25&b.temperature=1.5"
    )
    bodies = []
    page.on(
        "request", lambda request: bodies.append(json.loads(request.post_data)) if request.post_data else None
    )
    run(page)
    ended(page, "b")
    assert [body["seed"] for body in bodies] == [5, 5]
    assert [body["temperature"] for body in bodies] == [0.5, 1.5]
    one, other = ids(page), ids(page, "b")
    first = next(pos for pos in range(25) if one[pos] != other[pos])
    assert f"from token {first + 1} on" in (page.text_content("#notice") or "")
    for side in "ab":
        assert page.locator(f"#pane-{side} .tok.differs").get_attribute("data-pos") == str(first)


def test_a_conversation_goes_on(open_page: OpenPage, server: Server) -> None:
    page = open_page("mode=chat&prompt=Tell+me+a+story+about+a+cat.&strategy=greedy_search&max_new_tokens=16")
    ended(page)
    messages = [{"role": "user", "content": "Tell me a story about a cat."}]
    text = texts_of(
        events_of(server, messages=messages, strategy="greedy_search", max_new_tokens=16, use_assistant=False)
    )
    assert page.locator("#messages li").all_text_contents() == [
        f"user {messages[0]['content']}",
        f"assistant {text}",
    ]
    bodies = []
    page.on(
        "request", lambda request: bodies.append(json.loads(request.post_data)) if request.post_data else None
    )
    page.fill("#prompt", "And a dog?")
    run(page)
    assert bodies[0]["messages"] == [
        *messages,
        {"role": "assistant", "content": text},
        {"role": "user", "content": "And a dog?"},
    ]
    assert page.locator("#messages li").count() == 4
    # Without a new message the last reply is made again.
    bodies.clear()
    run(page)
    assert bodies[0]["messages"][-1] == {"role": "user", "content": "And a dog?"}
    assert page.locator("#messages li").count() == 4


def test_a_long_conversation_scrolls_to_what_was_said_last(open_page: OpenPage) -> None:
    said = [{"role": role, "content": "A cat ran.\n" * 5} for role in ("user", "assistant") * 4]
    messages = urlencode({"messages": json.dumps(said)})
    page = open_page(f"mode=chat&prompt=Go+on.&strategy=greedy_search&max_new_tokens=8&{messages}")
    last = (
        "e => Math.abs(e.scrollHeight - e.clientHeight - e.scrollTop) < 2 && e.scrollHeight > e.clientHeight"
    )
    box = page.locator("#messages")
    ended(page)
    assert page.locator("#messages li").count() == 10
    assert box.evaluate(last)
    # It stays where one reads.
    box.evaluate("e => { e.scrollTop = 10 }")
    page.fill("#prompt", "And then?")
    assert box.evaluate("e => e.scrollTop") == 10
    # The settings and the reply are in sight, however long it is.
    assert page.locator("#run").evaluate("e => e.getBoundingClientRect().bottom <= innerHeight")


def test_a_saved_trace_opens_in_the_page_and_in_the_shell(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(
        "prompt=One+day&strategy=beam_search&num_beams=3&max_new_tokens=10",
        viewport={"width": 2000, "height": 1400},
    )
    run(page)
    with page.expect_download() as download:
        page.click("#save")
    path = tmp_path / "trace.json"
    download.value.save_as(path)
    look = "all => all.map(one => one.getAttribute('class') + JSON.stringify(one.dataset))"
    shown = (tokens(page), sorted(page.locator("#pane-a .node").evaluate_all(look)))
    fresh = open_page(viewport={"width": 2000, "height": 1400})
    fresh.evaluate(
        """async (text) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], "trace.json"));
            document.body.dispatchEvent(new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer: transfer}));
        }""",
        path.read_text(),
    )
    fresh.get_by_text("A trace of").wait_for()
    ended(fresh)
    fresh.locator("#pane-a .node").nth(len(shown[1]) - 1).wait_for(state="attached")
    assert (tokens(fresh), sorted(fresh.locator("#pane-a .node").evaluate_all(look))) == shown
    program = [*serving.PROGRAM, "show", "--show-beams", str(path)]
    import subprocess

    drawn = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert "★ best" in drawn or "best" in drawn


def test_back_and_forward_show_the_result_of_their_own_prompt(open_page: OpenPage) -> None:
    page = open_page("prompt=One+day&strategy=greedy_search&max_new_tokens=12")
    prompts, shown = ["One day", "The little fox", "Once upon a time"], []
    for prompt in prompts:
        page.fill("#prompt", prompt)
        run(page)
        shown.append((prompt, ids(page), page.text_content("#pane-a .status")))
    assert len({str(found) for _, found, _ in shown}) == 3
    page.fill("#prompt", "Tom")

    def check(prompt: str, found: list[int], status: str | None) -> None:
        ended(page)
        page.wait_for_function(
            "text => document.querySelector('#pane-a .status').textContent === text", arg=status
        )
        assert (page.input_value("#prompt"), ids(page)) == (prompt, found)

    for expected in [shown[2], shown[1], shown[0]]:
        page.go_back()
        check(*expected)
    for expected in shown[1:]:
        page.go_forward()
        check(*expected)
    # Settings that were never run have no result.
    page.go_forward()
    page.wait_for_selector("#pane-a:not([data-state])")
    assert (page.input_value("#prompt"), ids(page)) == ("Tom", [])


def test_back_ends_a_run_and_shows_two_settings_with_their_difference(
    open_page: OpenPage, patient_server: Server
) -> None:
    page = open_page(
        "prompt=One+day&compare=1&seed=3&locked=1&strategy=greedy_search&max_new_tokens=12"
        "&b.strategy=sample&b.max_new_tokens=12",
        of=patient_server,
    )
    run(page)
    told, before = page.text_content("#notice"), [ids(page, side) for side in "ab"]
    page.evaluate("location.hash = 'prompt=Tom&strategy=greedy_search&max_new_tokens=4096'")
    page.wait_for_selector("body:not(.comparing)")
    page.wait_for_selector("#pane-a[data-state=running] .text .tok")
    page.go_back()
    page.wait_for_selector("body:not(.running)")
    page.wait_for_function("text => document.querySelector('#notice').textContent === text", arg=told)
    assert [ids(page, side) for side in "ab"] == before
    assert page.input_value("#prompt") == "One day"
    page.go_forward()
    ended(page, state="stopped")
    assert page.input_value("#prompt") == "Tom"
    assert len(ids(page)) > 0
    # The server ends the work when the browser has left.
    begin = time.monotonic()
    while serving.metric(patient_server, "rsgen_requests_running") > 0:
        assert time.monotonic() - begin < 10
        time.sleep(0.01)
