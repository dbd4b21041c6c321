"""The text is the page: what it shows first, its ladders and branches, beams that are played, addresses that are shared."""

from __future__ import annotations

import json
import math
import re
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import STORY, OpenPage, chosen, ended, events_of, ids, of_type, run, set_field, tokens
from playwright.sync_api import Page, Route
from serving import Server

BEAMS = "prompt=Near+the+lake&strategy=beam_search&num_beams=3&max_new_tokens=8"


def told_ids(server: Server, **body: object) -> list[int]:
    return [event["id"] for event in of_type(events_of(server, **body), "token")]


def address(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).fragment)


def ladder(page: Page) -> list[dict[str, str]]:
    return page.locator("#popover tbody tr").evaluate_all("all => all.map(row => ({...row.dataset}))")


def branch(page: Page, pos: int) -> int:
    """Opens a token and goes on with its best alternative, whose id it gives."""
    page.locator(f"#pane-a .tok[data-pos='{pos}']").click()
    other = page.locator("#popover tbody tr:not(.own)").first
    found = int(other.get_attribute("data-id") or -1)
    other.get_by_role("button").click()
    ended(page)
    return found


def items(page: Page) -> list[tuple[int, str, bool]]:
    """The branches: depth, text, and whether it is the one that is shown."""
    found = page.locator("#branches li").evaluate_all(
        "all => all.map(one => [Number(one.ariaLevel), one.textContent, one.ariaSelected === 'true'])"
    )
    return [tuple(one) for one in found]


def test_the_first_view_runs_an_example_and_shows_what_top_p_cut(open_page: OpenPage, server: Server) -> None:
    page = open_page()
    ended(page)
    body = {"prompt": "The little fox", "strategy": "sample", "max_new_tokens": 40, "top_p": 0.6, "seed": 7}
    told = of_type(events_of(server, **body, use_assistant=False), "token")
    assert ids(page) == [event["id"] for event in told]
    # The prompt and its continuation are one text.
    text = page.locator("#pane-a .text").first.inner_text().replace("↵", "")
    expected = "The little fox" + "".join(event["text"] for event in told)
    assert re.sub(r"\s+", " ", text).strip() == re.sub(r"\s+", " ", expected).strip()
    # A ladder is open: the bars of the model and after the processors, and what top-p cut is hatched and named.
    [at] = address(page)["at"]
    rungs = ladder(page)
    assert [int(rung["id"]) for rung in rungs] == [one["id"] for one in told[int(at)]["top"]]
    cut = [one for one in told[int(at)]["top"] if one["cut_by"] == "top_p"]
    assert max(one["p_raw"] for one in cut) > 0.03, "it cut something that could have been said"
    assert page.locator("#popover .cut").all_inner_texts() == ["cut by top-p"] * len(cut)
    hatched = page.locator("#popover .gone").first.evaluate("one => getComputedStyle(one).backgroundImage")
    assert hatched.startswith("repeating-linear-gradient")
    share = page.locator("#popover .bar").first.evaluate(
        "one => getComputedStyle(one).getPropertyValue('--p')"
    )
    assert math.isclose(float(share), float(rungs[0]["p_raw"]), abs_tol=1e-6)


def test_what_a_grammar_cut_is_named(open_page: OpenPage) -> None:
    page = open_page(
        "prompt=The+little+fox&strategy=greedy_search&regex=+(ran|sat)[a-z+]*&max_new_tokens=6&at=0"
    )
    ended(page)
    assert "cut by regex" in page.locator("#popover .cut").all_inner_texts()
    assert texts_in_page(page).startswith((" ran", " sat"))


def texts_in_page(page: Page) -> str:
    return "".join(token["shown"] for token in tokens(page))


def test_another_model_begins_with_its_prompt(open_page: OpenPage, patient_server: Server) -> None:
    page = open_page(of=patient_server)
    assert page.get_attribute("#pane-a", "data-state") is None, "an example may take long on another model"
    assert page.input_value("#prompt") == "Once upon a time"
    run(page)


def test_the_example_of_drafts_has_the_assistant_where_there_is_one(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Draft and check").click()
    ended(page)
    assert page.input_value("#a-strategy") == "assisted_decoding"
    with Server(["--num-threads", "1"]) as alone:
        page = open_page(of=alone)
        page.get_by_role("button", name="Draft and check").click()
        ended(page)
        assert page.input_value("#a-strategy") == "prompt_lookup"
        assert page.locator("#a-strategy [value=assisted_decoding]").is_disabled()


@pytest.mark.parametrize("fields", ["seed=11", "seed=11&locked=1"])
def test_a_shared_address_runs_at_once_on_its_seed(open_page: OpenPage, server: Server, fields: str) -> None:
    page = open_page(f"prompt=One+day&strategy=sample&max_new_tokens=20&{fields}")
    ended(page)
    body = {"prompt": "One day", "strategy": "sample", "max_new_tokens": 20, "seed": 11}
    assert ids(page) == told_ids(server, **body, use_assistant=False)
    assert page.is_hidden("#notice")
    assert address(page)["model"] == ["story-3m"]
    # The address after the run gives the same text, and so does one that is pasted into the same tab.
    again = open_page(page.url.split("#")[1])
    ended(again)
    assert ids(again) == ids(page)
    assert again.is_hidden("#notice")
    again.evaluate("location.hash = 'prompt=Tom&max_new_tokens=7'")
    again.wait_for_function("() => document.querySelectorAll('#pane-a .tok').length === 7")
    ended(again)
    assert len(again.locator("#branches li").all()) == 2


def test_a_shared_address_says_if_the_model_differs(open_page: OpenPage) -> None:
    page = open_page("prompt=One+day&max_new_tokens=5&model=llama-70b&fingerprint=fp_1")
    ended(page)
    assert "of the model llama-70b" in (page.text_content("#notice") or "")
    assert address(page)["model"] == ["story-3m"]
    page = open_page("prompt=One+day&max_new_tokens=5&model=story-3m&fingerprint=fp_1")
    ended(page)
    assert "another version of this model" in (page.text_content("#notice") or "")
    assert len(ids(page)) == 5


def test_branches_are_a_tree_to_walk_in(open_page: OpenPage, server: Server) -> None:
    page = open_page("prompt=Near+the+lake&strategy=greedy_search&max_new_tokens=12")
    root = ids(page)
    one = branch(page, 4)
    assert chosen(page) == [*root[:4], one]
    below = ids(page)
    two = branch(page, 2)
    assert chosen(page) == [*root[:4], one, *below[:2], two]
    # Another token in the place of one before the branch hangs on the root.
    page.locator("#branches li").nth(1).click()
    ended(page)
    assert (chosen(page), ids(page)) == ([*root[:4], one], below)
    three = branch(page, -3)
    assert chosen(page) == [*root[:2], three]
    assert [(depth, shown) for depth, _, shown in items(page)] == [
        (1, False),
        (2, False),
        (3, False),
        (2, True),
    ]
    # The inherited tokens keep their numbers and their alternatives; the chosen one is marked.
    past = page.locator("#pane-a .tok.past")
    assert float(past.first.get_attribute("data-logprob") or "nan") <= 0
    assert past.last.evaluate("one => one.classList.contains('chosen')")
    past.first.click()
    assert len(ladder(page)) > 1
    page.keyboard.press("Escape")
    # By keyboard: up to the root, and in.
    page.locator("#branches li").last.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    ended(page)
    assert (chosen(page), ids(page)) == ([], root)
    assert page.evaluate("document.activeElement.ariaSelected") == "true"
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    ended(page)
    assert chosen(page) == [*root[:4], one, *below[:2], two]
    # The address of a branch shows its beginning, too, in a browser that has not seen it grow.
    fresh = open_page(page.url.split("#")[1])
    ended(fresh)
    assert (chosen(fresh), ids(fresh)) == (chosen(page), ids(page))
    assert fresh.input_value("#prompt") == "Near the lake"
    # Another beginning is another text.
    fresh.fill("#prompt", "Tom")
    run(fresh)
    assert chosen(fresh) == []
    assert ids(fresh) == told_ids(
        server, prompt="Tom", strategy="greedy_search", max_new_tokens=12, use_assistant=False
    )


def test_fifty_branches_stay_in_their_place_and_are_bounded(open_page: OpenPage) -> None:
    page = open_page("prompt=One+day&strategy=sample&max_new_tokens=3&seed=1")
    for _ in range(70):
        run(page)
    assert page.locator("#branches li").count() == 64
    box = page.locator("#branches ul")
    assert box.evaluate("one => one.clientHeight <= innerHeight && one.scrollHeight > one.clientHeight")
    last = page.locator("#branches [aria-selected=true]")
    assert last.evaluate(
        "one => one.getBoundingClientRect().top < one.parentElement.getBoundingClientRect().bottom"
    )
    assert page.evaluate("scrollY") == 0


def test_beams_are_played_once_from_the_first_step(open_page: OpenPage) -> None:
    page = open_page("prompt=x&max_new_tokens=1")
    page.evaluate(
        """() => {
            window.steps = [];
            const look = () => {
                const scrub = document.querySelector("#pane-a .scrub");
                const step = document.querySelector("#pane-a .node") ? Number(scrub.value) : -1;
                if (step >= 0 && window.steps.at(-1)?.[0] !== step) window.steps.push([step, performance.now()]);
                requestAnimationFrame(look);
            };
            look();
        }"""
    )
    page.evaluate("hash => { location.hash = hash }", BEAMS)
    page.wait_for_function("() => window.steps.at(-1)?.[0] === 7")
    steps = page.evaluate("window.steps")
    assert [step for step, _ in steps] == list(range(8))
    # At reading speed: not faster than three tokens and a half in a second.
    assert steps[-1][1] - steps[0][1] > 7 * 250
    page.get_by_role("button", name="Play").wait_for()
    # Walking away and back does not play it again; the button does.
    page.fill("#prompt", "Tom")
    run(page)
    page.locator("#branches li").nth(1).click()
    page.wait_for_function("() => document.querySelector('.scrub')?.value === '7'")
    assert page.get_by_role("button", name="Play").is_visible()
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => document.querySelector('.scrub').value === '1'")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Play").wait_for()


def test_the_scrubber_shows_what_was_so_at_a_step(open_page: OpenPage, server: Server) -> None:
    page = open_page(BEAMS)
    ended(page)
    events = of_type(
        events_of(server, prompt="Near the lake", strategy="beam_search", num_beams=3, max_new_tokens=8),
        "beam",
    )
    final = ids(page)
    for step in [0, 3, 6]:
        page.locator(".scrub").fill(str(step))
        page.wait_for_function(
            "step => Math.max(...[...document.querySelectorAll('.node')].map(one => one.dataset.step)) === step",
            arg=step,
        )
        nodes = page.locator("#pane-a .node").evaluate_all(
            "all => all.map(one => ({...one.dataset, kind: one.className}))"
        )
        assert {int(node["n"]) for node in nodes} == {
            node["n"] for event in events[: step + 1] for node in event["nodes"]
        }
        best = [int(node["n"]) for node in nodes if " best" in node["kind"] and int(node["step"]) == step]
        assert best == [events[step]["frontier"][0]]
        # The text above has what there is of it by then; the rest is still to come.
        later = page.locator("#pane-a .tok.later").evaluate_all(
            "all => all.map(one => Number(one.dataset.pos))"
        )
        assert later == list(range(step + 1, len(final)))


def test_beams_stand_still_for_those_who_want_less_motion(open_page: OpenPage) -> None:
    page = open_page(BEAMS, reduced_motion="reduce")
    assert page.locator(".scrub").input_value() == "0"
    page.wait_for_timeout(800)
    assert page.locator(".scrub").input_value() == "0"
    assert page.get_by_role("button", name="Play").is_visible()


def test_a_strategy_has_five_fields_and_the_others_behind_all_fields(
    open_page: OpenPage, server: Server
) -> None:
    page = open_page("prompt=x&max_new_tokens=1")
    strategies = page.locator("#a-strategy option").evaluate_all("all => all.map(one => one.value)")
    assert len(strategies) == 10
    for strategy in strategies:
        page.select_option("#a-strategy", strategy)
        shown = page.locator("#side-a .field :is(input, select, textarea):visible")
        assert 4 <= shown.count() - 1 <= 5, strategy
        assert shown.evaluate_all("all => all.every(one => !one.disabled)"), (
            "nothing that does not count is shown"
        )
        page.get_by_label("All fields").first.check()
        assert shown.count() > 7
        assert shown.evaluate_all("all => all.every(one => !one.disabled)")
        page.get_by_label("All fields").first.uncheck()


def test_several_models_have_a_chooser(open_page: OpenPage) -> None:
    draft = STORY.with_name("story-draft")
    with Server([f"story={STORY}", f"draft={draft}", "--num-threads", "1"]) as both:
        page = open_page("prompt=One+day&strategy=greedy_search&max_new_tokens=8", of=both)
        bodies = []
        page.on("request", lambda one: bodies.append(json.loads(one.post_data)) if one.post_data else None)
        ended(page)
        assert page.locator("#models option").all_inner_texts() == ["story", "draft"]
        first = ids(page)
        page.get_by_label("Model").select_option("draft")
        run(page)
        assert bodies[-1]["model"] == "draft"
        body = {"prompt": "One day", "strategy": "greedy_search", "max_new_tokens": 8, "model": "draft"}
        assert ids(page) == told_ids(both, **body) != first
        page.wait_for_selector("#model:has-text('tokens of context')")
        assert address(page)["model"] == ["draft"]
        # The address chooses, too.
        other = open_page(page.url.split("#")[1], of=both)
        ended(other)
        assert other.input_value("#models") == "draft"
        assert ids(other) == ids(page)
        page.go_back()
        ended(page)
        assert page.input_value("#models") == "story"
        assert ids(page) == first


TEXTS = ["日本語の文章", "🦊🧑‍🚀", "\n\n", "a" * 60, " ", "<b>&amp;</b>", "\u202egnirts", "don't"]


def test_tokens_of_all_kinds_fit(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 844})
    top = [
        {"id": id, "text": text, "p_raw": 0.1, "p_final": 0.2, "cut_by": None}
        for id, text in enumerate(TEXTS)
    ]
    events: list[dict[str, object]] = [
        {"type": "start", "strategy": "beam_search", "seed": None},
        {"type": "prompt", "prompt": 0, "ids": [1], "texts": ["森の中で"]},
    ]
    for pos, text in enumerate(TEXTS):
        node = {"n": pos, "parent": pos - 1 if pos else None, "id": pos, "text": text, "logprob": -1.0}
        node |= {"sum": -1.0, "score": -1.0, "group": 0, "state": "alive"}
        events.append({"type": "beam", "prompt": 0, "step": pos, "nodes": [node], "frontier": [pos]})
    for pos, text in enumerate(TEXTS):
        token = {"row": 0, "pos": pos, "id": pos, "text": text, "logprob": -1.0, "top": top, "t_us": pos}
        events.append({"type": "token", **token})
    finish = {
        "row": 0,
        "prompt": 0,
        "finish_reason": "length",
        "score": -1.0,
        "path": list(range(len(TEXTS))),
    }
    events.append({"type": "finish", "rows": [finish], "timings": {"total": 1.0}})
    trace = {"schema_version": 1, "model": "m", "events": events}
    page.set_input_files(
        "#file", {"name": "t.json", "mimeType": "application/json", "buffer": json.dumps(trace).encode()}
    )
    page.get_by_text("A trace of m").wait_for()
    ended(page)
    assert page.input_value("#prompt") == "森の中で"
    assert len(tokens(page)) == len(TEXTS)
    page.locator("#pane-a .tok").nth(3).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = page.locator("#popover").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


def test_on_paper_there_is_the_text_without_controls(open_page: OpenPage) -> None:
    page = open_page("prompt=One+day&strategy=greedy_search&max_new_tokens=12")
    ended(page)
    page.emulate_media(media="print")
    for hidden in [".settings", "header.top", "#branches"]:
        assert page.locator(hidden).first.is_hidden(), hidden
    assert page.locator("#pane-a .text").first.is_visible()
    assert page.locator("#legend").is_visible()


def test_the_history_belongs_to_the_run_although_events_come_late(open_page: OpenPage) -> None:
    """Going back while a run begins does not write its address over another one's."""
    page = open_page("prompt=One+day&strategy=greedy_search&max_new_tokens=5")
    ended(page)
    before, first = page.url, ids(page)

    def slow(route: Route) -> None:
        time.sleep(0.3)
        route.continue_()

    page.context.route("**/rsgen/v1/generate", slow)
    page.fill("#prompt", "Tom")
    page.click("#run")
    page.go_back()
    page.wait_for_selector("body:not(.running)")
    ended(page)
    assert (page.url, ids(page)) == (before, first)
    page.go_forward()
    ended(page, state="stopped")
    assert page.input_value("#prompt") == "Tom"


def test_a_text_that_is_not_of_the_settings_is_pale(open_page: OpenPage) -> None:
    page = open_page("prompt=One+day&strategy=sample&seed=3&locked=1&max_new_tokens=12")
    ended(page)
    colour = "one => getComputedStyle(one).color"
    before = page.locator("#pane-a .tok").first.evaluate(colour)
    for change in [lambda: page.fill("#prompt", "Tom"), lambda: set_field(page, "top_p", 0.3)]:
        change()
        assert page.locator("#pane-a .tok").first.evaluate(colour) != before
        run(page)
        assert page.locator("#pane-a .tok").first.evaluate(colour) == before
    # Walking to another run brings its own settings.
    set_field(page, "top_p", 0.5)
    page.locator("#branches li").first.click()
    ended(page)
    assert page.locator("#pane-a .tok").first.evaluate(colour) == before
    assert page.input_value("#prompt") == "One day"


def test_another_colour_is_the_same_run(open_page: OpenPage) -> None:
    page = open_page("prompt=One+day&strategy=sample&seed=3&max_new_tokens=12")
    ended(page)
    kinds = "all => all.map(one => one.className)"
    before = page.locator("#pane-a .tok").evaluate_all(kinds)
    page.select_option("#colour", "rank")
    page.check("#locked")
    assert page.locator("#pane-a .tok").evaluate_all(kinds) != before
    assert address(page)["colour"] == ["rank"]
    assert not page.locator("body").evaluate("one => one.classList.contains('changed')")
    page.reload()
    page.wait_for_selector("#pane-a[data-state=done]")
    ended(page)
    assert page.input_value("#colour") == "rank"
    assert page.locator("#branches li").count() == 1


def test_a_ladder_over_its_token_does_not_flicker(open_page: OpenPage) -> None:
    # So low that the ladder has no place above or below the token.
    page = open_page(
        "prompt=The+little+fox&strategy=greedy_search&max_new_tokens=8",
        viewport={"width": 700, "height": 360},
    )
    ended(page)
    token = page.locator("#pane-a .tok").first
    token.scroll_into_view_if_needed()
    token.hover()
    page.evaluate(
        """() => {
            window.changes = 0;
            new MutationObserver(() => window.changes++).observe(document.getElementById("popover"), {attributes: true, childList: true});
        }"""
    )
    page.wait_for_timeout(300)
    assert page.evaluate("window.changes") <= 1
    assert page.is_visible("#popover")
    token.click(force=True)
    page.locator("#popover button").first.click()
    ended(page)
    assert len(chosen(page)) == 1
