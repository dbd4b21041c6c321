"""A browser, servers, and pages that must not complain and must not ask anybody else."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import serving
from playwright.sync_api import Browser, Page, Playwright, Route, sync_playwright
from serving import Server

STORY = Path(__file__).parents[2] / "python" / "rsgen" / "models" / "story-3m"
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]

#: With RSGEN_UI=src/serve/ui the page is that of the folder, so that it can change without a build.
UI = os.environ.get("RSGEN_UI")

OpenPage = Callable[..., Page]

#: Waits until some frames have brought no further nodes of the beams.
NO_MORE_NODES = """() => new Promise(done => {
    let [last, same] = [-1, 0];
    const look = () => {
        const count = document.querySelectorAll(".node").length;
        same = count === last ? same + 1 : 0;
        last = count;
        if (same === 5) done(); else requestAnimationFrame(look);
    };
    look();
})"""


def from_folder(route: Route) -> None:
    """The server's answer with the content of a file."""
    path = Path(UI or "") / (route.request.url.split("#")[0].rsplit("/", 1)[1] or "index.html")
    route.fulfill(response=route.fetch(), body=path.read_bytes())


def find_browser() -> str:
    """The browser of this machine, or what to do without one."""
    found = os.environ.get("RSGEN_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None or not Path(found).exists():
        pytest.exit(
            "no Chromium was found: install it, on Debian by `apt-get install chromium`, or name it in RSGEN_BROWSER",
            returncode=2,
        )
    return found


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """The system's Chromium. Root needs `--no-sandbox`; the pages are ours."""
    browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The story model with its draft model."""
    with Server(["--assistant", "draft", "--num-threads", "1"]) as server:
        yield server


@pytest.fixture(scope="session")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The story model without an end, and with a long context."""
    folder = tmp_path_factory.mktemp("patient")
    for name in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"]:
        shutil.copy(STORY / name, folder)
    config = json.loads((STORY / "config.json").read_text())
    config |= {"max_position_embeddings": 1 << 14, "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def patient_server(patient: Path) -> Iterator[Server]:
    with Server([str(patient), "--num-threads", "1", "--kv-cache-bytes", str(1 << 29)]) as server:
        yield server


@pytest.fixture
def open_page(browser: Browser, server: Server) -> Iterator[OpenPage]:
    """Opens the playground. Whatever the test does, the page asks only its own server, and the browser has nothing to
    complain about; `allowed` are parts of complaints that the test provokes."""
    contexts, complaints, foreign, excused = [], [], [], []

    def open_page(
        hash: str = "",
        of: Server = server,
        ready: bool = True,
        waits: bool = True,
        allowed: tuple[str, ...] = (),
        **options: Any,
    ) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}} | options)
        contexts.append(context)
        excused.extend(allowed)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on(
            "console",
            lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        own = (f"{of.url}/", f"blob:{of.url}/", "data:")
        page.on(
            "request",
            lambda request: foreign.append(request.url) if not request.url.startswith(own) else None,
        )
        if UI:
            context.route(f"{of.url}/", from_folder)
            context.route(f"{of.url}/ui/*", from_folder)
        page.goto(f"{of.url}/{'#' + hash if hash else ''}")
        if ready:
            page.wait_for_selector("#model:has-text('context')")
            # What an address says runs at once.
            if waits:
                page.wait_for_selector("body:not(.running)", timeout=90_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert foreign == []
    assert [text for text in complaints if not any(part in text for part in excused)] == []


def run(page: Page, side: str = "a", state: str = "done") -> None:
    """Runs what is set, and waits for the end."""
    page.click("#run")
    ended(page, side, state)


def ended(page: Page, side: str = "a", state: str = "done") -> None:
    """Waits until a run has ended in this state."""
    page.wait_for_selector(
        f"#pane-{side}:is([data-state=done],[data-state=failed],[data-state=stopped])", timeout=90_000
    )
    page.wait_for_selector("body:not(.running)", timeout=90_000)
    assert page.get_attribute(f"#pane-{side}", "data-state") == state, page.text_content(
        f"#pane-{side} .status"
    )
    # The beams are played at reading speed; this leads to their last step.
    for scrub in page.locator(f"#pane-{side} .scrub").all():
        scrub.evaluate("one => { one.value = one.max; one.dispatchEvent(new Event('input')) }")
        page.evaluate(NO_MORE_NODES)


def tokens(page: Page, side: str = "a") -> list[dict[str, Any]]:
    """The tokens that the shown run generated, with the numbers that they carry."""
    return page.locator(f"#pane-{side} .text .tok:not(.past)").evaluate_all(
        "all => all.map(one => ({...one.dataset, shown: one.textContent}))"
    )


def ids(page: Page, side: str = "a") -> list[int]:
    return [int(token["id"]) for token in tokens(page, side)]


def chosen(page: Page, side: str = "a") -> list[int]:
    """The tokens before those: an earlier run's, and in their place the chosen one."""
    past = page.locator(f"#pane-{side} .text .tok.past")
    return past.evaluate_all("all => all.map(one => Number(one.dataset.id))")


def set_field(page: Page, name: str, value: object) -> None:
    page.fill(f"#a-{name}", str(value))
    page.dispatch_event(f"#a-{name}", "change")


def events_of(server: Server, **body: object) -> list[dict[str, Any]]:
    """The events of a request that no browser makes."""
    return list(serving.events(server, "/rsgen/v1/generate", body))


def texts_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "token" and event["row"] == 0)


def of_type(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


def get(server: Server, path: str) -> tuple[int, dict[str, str], str]:
    """The answer to a GET without a key."""
    try:
        with urllib.request.urlopen(server.url + path, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()
