"""libretranslatepy: the client of LibreTranslate, with a tiny model of a single pair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
import rsgen
from libretranslatepy import LibreTranslateAPI
from serving import Server
from test_translation import TEXTS, folder_of

SPECIAL = {"pad_token_id": 587, "eos_token_id": 0, "decoder_start_token_id": 587, "max_new_tokens": 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model from `eng` to `deu`."""
    return folder_of(tmp_path_factory.mktemp("pair"), "marian", "marian", **SPECIAL)


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A server of it that wants a key."""
    with Server([str(folder), "--api-key", "k"]) as server:
        yield server.url


def test_it_translates_and_lists_languages(folder: Path, url: str) -> None:
    client = LibreTranslateAPI(url, api_key="k")
    expected = rsgen.Generator(folder).translate(TEXTS, split="sentences").texts
    assert [client.translate(text, "eng", "deu") for text in TEXTS] == expected
    assert client.languages() == [
        {"code": "eng", "name": "eng", "targets": ["deu"]},
        {"code": "deu", "name": "deu", "targets": []},
    ]


def test_it_is_refused_without_a_key_and_for_other_languages(url: str) -> None:
    with pytest.raises(HTTPError, match="401"):
        LibreTranslateAPI(url).translate("tea", "eng", "deu")
    with pytest.raises(HTTPError, match="400"):
        LibreTranslateAPI(url, api_key="k").translate("tea", "eng", "fra")
