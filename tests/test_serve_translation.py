"""The server with models that have an encoder: sources over HTTP, and LibreTranslate's routes."""

import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import rsgen
from test_serve import in_thread
from test_translation import TEXTS, folder_of

LONG = "  The house is small. I like tea.\n\nThe garden is green.\n"
SHORT = {"max_new_tokens": 6}


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    special = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    folder = folder_of(tmp_path_factory.mktemp("nllb"), "m2m_100", "nllb", **special, max_new_tokens=7)
    return rsgen.Generator(folder)


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory):
    special = {"pad_token_id": 587, "eos_token_id": 0, "decoder_start_token_id": 587}
    return folder_of(tmp_path_factory.mktemp("pair"), "marian", "marian", **special, max_new_tokens=7)


@pytest.fixture(scope="module")
def pair(pair_folder):
    """A model from `eng` to `deu`, by its files."""
    return rsgen.Generator(pair_folder)


@pytest.fixture(scope="module")
def urls(nllb, pair, gen):
    """The address of a server for each model."""
    return {"nllb": in_thread(nllb), "pair": in_thread(pair), "story": in_thread(gen)}


def parts(body):
    """A body in multipart/form-data."""
    pairs = [
        (name, one) for name, value in body.items() for one in (value if isinstance(value, list) else [value])
    ]
    head = '--line\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    return ("".join(head.format(*pair) for pair in pairs) + "--line--\r\n").encode()


def ask(url, body=None, *, form=False, key=None):
    """The status and the answer; `form` may be "parts"."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    data = None
    if body is not None:
        data = (urllib.parse.urlencode(body, doseq=True) if form else json.dumps(body)).encode()
        headers["Content-Type"] = "application/x-www-form-urlencoded" if form else "application/json"
        if form == "parts":
            data, headers["Content-Type"] = parts(body), "multipart/form-data; boundary=line"
    method = "GET" if url.endswith("/languages") else "POST"
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, given, text = answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        status, given, text = error.code, error.headers, error.read()
    assert (given["content-type"], int(given["content-length"])) == ("application/json", len(text))
    return status, json.loads(text)


def test_a_source_gives_the_same_tokens_over_http(urls, pair, nllb):
    for name, gen in (("pair", pair), ("nllb", nllb)):
        for fields in ({}, {"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2}):
            body = {"prompt": TEXTS, "max_tokens": 6, "temperature": 0, "return_token_ids": True} | fields
            status, answer = ask(f"{urls[name]}/v1/completions", body)
            assert status == 200, answer
            out = gen.generate(TEXTS, **SHORT, **fields)
            assert [choice["token_ids"] for choice in answer["choices"]] == [
                ids.tolist() for ids in out.token_ids
            ]
            assert [choice["text"] for choice in answer["choices"]] == out.texts
            sources = [choice["prompt_token_ids"] for choice in answer["choices"]]
            assert sources[:: fields.get("num_return_sequences", 1)] == [
                gen.tokenizer.encode(text) for text in TEXTS
            ]


def test_translations_over_http_are_those_of_the_method(urls, pair, nllb):
    languages = {"source": "eng_Latn", "target": "fra_Latn"}
    for name, gen, fields in (
        ("pair", pair, {}),
        ("pair", pair, {"num_beams": 3, "num_return_sequences": 2, "repetition_penalty": 1.3}),
        ("pair", pair, {"do_sample": True, "seed": 5, "top_k": 20}),
        ("pair", pair, {"split": "sentences", "num_beams": 2}),
        ("pair", pair, {"glossary": {"house": "Haus", "tea": ["Haus", "grün"]}, "num_beams": 3}),
        ("pair", pair, {"target_prefix": "Das", "bad_words": ["Haus"], "num_beams": 2}),
        ("pair", pair, {"force_words": ["grün"], "num_beams": 2, "split": "sentences"}),
        ("nllb", nllb, languages),
        ("nllb", nllb, languages | {"num_beams": 2, "split": "sentences"}),
    ):
        for texts in (LONG, [*TEXTS, LONG]):
            status, answer = ask(f"{urls[name]}/rsgen/v1/translate", {"texts": texts} | fields)
            assert status == 200, answer
            out = gen.translate(texts, **fields)
            assert [row["text"] for row in answer["rows"]] == out.texts
            assert [row["generated"]["token_ids"] for row in answer["rows"]] == [
                ids.tolist() for ids in out.token_ids
            ]
            assert (answer["object"], answer["usage"]["generated_tokens"]) == (
                "rsgen.translation",
                out.usage.generated_tokens,
            )


GLOSSARY = {"house": "Haus", "green": ["grün", "grüne"]}


def streamed(url, body):
    """The texts of a stream of completions, by choice."""
    data = json.dumps(body | {"stream": True}).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    texts = {}
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return [texts[index] for index in sorted(texts)]


def test_the_text_of_an_answer_does_not_continue_its_source():
    toy = rsgen.Generator(Path(__file__).parent / "golden" / "toy_translation", num_threads=1)
    url, prompts = in_thread(toy), [">>deu<< I like tea.", ">>fra<< I like tea."]
    for fields in ({"num_beams": 1}, {"num_beams": 4}, {"num_beams": 4, "glossary": {"tea": "thé"}}):
        expected = toy.generate(prompts, max_new_tokens=30, **fields).texts
        body = {"prompt": prompts, "max_tokens": 30, "temperature": 0} | fields
        status, answer = ask(f"{url}/v1/completions", body)
        assert (status, [choice["text"] for choice in answer["choices"]]) == (200, expected)
        assert streamed(f"{url}/v1/completions", body) == expected
    assert not expected[0].startswith(" ")


def test_a_glossary_decides_what_a_completion_holds(urls, pair):
    url, fields = f"{urls['pair']}/v1/completions", {"glossary": GLOSSARY, "num_beams": 4}
    expected = pair.generate(TEXTS, max_new_tokens=6, **fields)
    assert "Haus" in expected.texts[0]
    assert "grün" in expected.texts[1]
    # A text without terms is searched as without a glossary.
    assert expected.texts[2] == pair.generate(TEXTS[2], max_new_tokens=6, num_beams=4).text
    for own in (
        fields,
        {"rsgen": fields},
        {"glossary": GLOSSARY, "strategy": "constrained_beam_search", "num_beams": 4},
        {"glossary": GLOSSARY, "use_beam_search": True, "best_of": 4},
    ):
        body = {"prompt": TEXTS, "max_tokens": 6, "return_token_ids": True} | own
        status, answer = ask(url, body)
        assert status == 200, answer
        assert [choice["text"] for choice in answer["choices"]] == expected.texts
        assert [choice["token_ids"] for choice in answer["choices"]] == [
            ids.tolist() for ids in expected.token_ids
        ]
        if "best_of" not in own:
            assert streamed(url, body) == expected.texts
    best = pair.generate(TEXTS[:2], max_new_tokens=6, num_return_sequences=2, **fields)
    status, answer = ask(url, {"prompt": TEXTS[:2], "max_tokens": 6, "n": 2} | fields)
    assert (status, [choice["text"] for choice in answer["choices"]]) == (200, best.texts)
    body = {"prompt": TEXTS, "max_new_tokens": 6, "stream": False} | fields
    status, answer = ask(f"{urls['pair']}/rsgen/v1/generate", body)
    assert (status, [row["text"] for row in answer["rows"]]) == (200, expected.texts)


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("pair", {"num_beams": 1}, "`glossary` needs beams, but `num_beams` is 1"),
        ("pair", {"glossary": ["house"]}, "`glossary` must be a map"),
        ("pair", {"glossary": {"house": 5}}, "`glossary` must be a map"),
        ("pair", {"glossary": {"house": []}}, "`glossary` must"),
        ("pair", {"glossary": {" ": "Haus"}}, "`glossary` must map terms to their translations"),
        ("pair", {"prompt": [5, 6]}, "`glossary` is for prompts that are texts"),
        ("pair", {"prompt": [[5, 6], [7]]}, "`glossary` is for prompts that are texts"),
        ("pair", {"truncate_prompt_tokens": 3}, "`truncate_prompt_tokens` cuts them; leave out one of them"),
        ("pair", {"do_sample": True}, "does not draw"),
        ("nllb", {"glossary": {"house": "\u9fa5"}}, "`glossary` must be words that the tokenizer can write"),
        ("story", {}, "`glossary` goes with models that have an encoder, which the served model has not"),
    ],
)
def test_a_glossary_that_cannot_be_is_refused_by_name(urls, name, fields, reason):
    body = {"prompt": TEXTS[0], "glossary": GLOSSARY, "num_beams": 4, "max_tokens": 4} | fields
    status, answer = ask(f"{urls[name]}/v1/completions", body)
    assert (status, answer["error"]["param"]) == (400, "glossary"), answer
    assert reason in answer["error"]["message"], answer


def test_a_conversation_has_no_glossary(urls):
    messages = [{"role": "user", "content": "I like tea."}]
    for name in ("pair", "story"):
        for path in ("/v1/chat/completions", "/rsgen/v1/generate"):
            body = {"messages": messages, "glossary": GLOSSARY, "num_beams": 4, "stream": False}
            status, answer = ask(urls[name] + path, body)
            assert (status, answer["error"]["param"]) == (400, "glossary"), answer
            assert "a conversation is none; leave it out" in answer["error"]["message"]


def test_lines_of_a_batch_have_glossaries(pair, pair_folder, tmp_path):
    fields = {"glossary": GLOSSARY, "num_beams": 4}
    lines = [
        ("/v1/completions", {"prompt": TEXTS[0], "max_tokens": 6} | fields),
        ("/rsgen/v1/translate", {"texts": f"{TEXTS[0]}  {TEXTS[1]}\n", "split": "sentences"} | fields),
        ("/rsgen/v1/translate", {"texts": TEXTS} | fields),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": TEXTS[0]}]} | fields),
        ("/v1/completions", {"prompt": TEXTS[0], "glossary": {"house": "Haus"}}),
    ]
    requests = [{"custom_id": str(n), "url": url, "body": body} for n, (url, body) in enumerate(lines)]
    (tmp_path / "in").write_text("".join(json.dumps(line) + "\n" for line in requests))
    command = [sys.executable, "-m", "rsgen", "run-batch", "in", "out", "--model", pair_folder]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert "no field of a request" not in ran.stderr
    answers = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    bodies = {int(line["custom_id"]): line["response"]["body"] for line in answers}
    assert bodies[0]["choices"][0]["text"] == pair.generate(TEXTS[0], max_new_tokens=6, **fields).text
    split = pair.translate(f"{TEXTS[0]}  {TEXTS[1]}\n", split="sentences", **fields)
    assert [row["text"] for row in bodies[1]["rows"]] == split.texts
    assert [row["text"] for row in bodies[2]["rows"]] == pair.translate(TEXTS, **fields).texts
    for wrong, why in ((3, "a conversation is none"), (4, "needs beams")):
        assert bodies[wrong]["error"]["param"] == "glossary"
        assert why in bodies[wrong]["error"]["message"]
        assert f"{wrong}: `glossary` " in ran.stderr


def test_a_pass_of_the_encoder_is_a_time_of_its_own(pair):
    url = in_thread(pair)

    def metrics():
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines() if line[0] != "#"]
        return {name: float(value) for name, value in lines}

    encoder, prefill = (f"rsgen_request_{kind}_time_seconds" for kind in ("encoder", "prefill"))
    assert metrics()[f"{encoder}_count"] == 0
    # A source that no other test has: what is encoded already takes no time.
    body = {"prompt": "The tea garden is a small green house.", "max_tokens": 3, "temperature": 0}
    for _ in range(2):
        assert ask(f"{url}/v1/completions", body)[0] == 200
        now = metrics()
        assert now[f"{encoder}_count"] == 1
        assert 0 < now[f"{encoder}_sum"] < now["rsgen_e2e_request_latency_seconds_sum"]
    assert now[f"{prefill}_count"] == 2
    spent = now[f"{encoder}_sum"] + now[f"{prefill}_sum"] + now["rsgen_request_decode_time_seconds_sum"]
    assert spent <= now["rsgen_e2e_request_latency_seconds_sum"]


def test_a_translation_is_streamed_as_events(urls, nllb):
    body = {"texts": TEXTS[0], "source": "eng_Latn", "target": "fra_Latn", "stream": True}
    request = urllib.request.Request(
        f"{urls['nllb']}/rsgen/v1/translate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        events = [json.loads(line[6:]) for line in answer if line.startswith(b"data: ")]
    assert [events[0]["type"], events[-1]["type"]] == ["start", "finish"]
    text = "".join(event["text"] for event in events if event["type"] == "token")
    assert text == nllb.translate(TEXTS[0], source="eng_Latn", target="fra_Latn").text
    status, answer = ask(f"{urls['nllb']}/rsgen/v1/translate", body | {"split": "sentences"})
    assert (status, answer["error"]["param"]) == (400, "stream")


def test_libretranslate_gives_the_translations_of_sentences(urls, pair, nllb):
    for name, gen, source, target in (
        ("pair", pair, "eng", "deu"),
        ("pair", pair, "auto", "auto"),
        ("nllb", nllb, "deu_Latn", "fra_Latn"),
    ):
        own = {} if name == "pair" else {"source": source, "target": target}
        languages = {"source": source, "target": target}
        for form in (False, True, "parts"):
            for texts in (LONG, [*TEXTS, "", LONG]):
                body = {"q": texts, "format": "text"} | languages
                expected = gen.translate(texts, split="sentences", **own).texts
                status, answer = ask(f"{urls[name]}/translate", body, form=form)
                assert (status, answer) == (
                    200,
                    {"translatedText": expected if isinstance(texts, list) else expected[0]},
                )
                status, answer = ask(f"{urls[name]}/translate", body | {"alternatives": 2}, form=form)
                beams = gen.translate(texts, split="sentences", num_beams=3, num_return_sequences=3, **own)
                rows = [beams.texts[i : i + 3] for i in range(0, len(beams.texts), 3)]
                first = [row[0] for row in rows]
                others = [list(dict.fromkeys(row))[1:] for row in rows]
                if not isinstance(texts, list):
                    first, others = first[0], others[0]
                assert (status, answer) == (200, {"translatedText": first, "alternatives": others})
    # Browsers write the line ends of forms so.
    body = {"q": LONG, "source": "eng", "target": "deu"}
    windows = ask(f"{urls['pair']}/translate", body | {"q": LONG.replace("\n", "\r\n")}, form=True)
    assert windows == ask(f"{urls['pair']}/translate", body)


def test_languages_are_listed_with_what_they_are_translated_into(urls, nllb):
    assert ask(f"{urls['pair']}/languages") == (
        200,
        [{"code": "eng", "name": "eng", "targets": ["deu"]}, {"code": "deu", "name": "deu", "targets": []}],
    )
    status, listed = ask(f"{urls['nllb']}/languages")
    assert status == 200
    assert [language["code"] for language in listed] == nllb.languages
    assert all(language["targets"] == nllb.languages for language in listed)


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("pair", {"source": "eng", "target": "deu"}, "`q` is missing"),
        ("pair", {"q": [], "source": "eng", "target": "deu"}, "`q`"),
        ("pair", {"q": "tea", "source": "eng"}, "`target` is missing"),
        (
            "pair",
            {"q": "tea", "source": "fra", "target": "deu"},
            "`source` must be a language of this model: eng",
        ),
        (
            "pair",
            {"q": "tea", "source": "eng", "target": "eng"},
            "`target` must be a language of this model: deu",
        ),
        ("nllb", {"q": "tea", "source": "auto", "target": "fra_Latn"}, "languages are not detected"),
        ("nllb", {"q": "tea", "source": "eng_Latn", "target": "fr"}, "`target` must be a language"),
        ("pair", {"q": "tea", "source": "eng", "target": "deu", "format": "html"}, "HTML is not parsed"),
        (
            "pair",
            {"q": "tea", "source": "eng", "target": "deu", "alternatives": -1},
            "`alternatives` must be",
        ),
        ("story", {"q": "tea", "source": "eng", "target": "deu"}, "has no encoder to translate with"),
    ],
)
def test_errors_are_texts_as_those_of_libretranslate(urls, name, body, reason):
    for form in (False, True, "parts"):
        if form and not body.get("q", True):
            continue
        status, answer = ask(f"{urls[name]}/translate", body, form=form)
        assert (status, list(answer)) == (400, ["error"]), answer
        assert reason in answer["error"], answer


def test_other_failures_of_these_paths_are_texts_too(urls):
    status, answer = ask(f"{urls['story']}/languages")
    assert (status, "no encoder" in answer["error"]) == (400, True)
    too_long = {"q": "tea " * 600_000, "source": "eng", "target": "deu"}
    status, answer = ask(f"{urls['pair']}/translate", too_long)
    assert (status, "at most" in answer["error"]) == (413, True)
    status, answer = ask(f"{urls['pair']}/translate", ["tea"])
    assert (status, "a JSON object" in answer["error"]) == (400, True)
    status, answer = ask(f"{urls['story']}/rsgen/v1/translate", {"texts": "tea"})
    assert (status, answer["error"]["param"]) == (400, "model")
    # Forms are for these paths alone.
    for form in (True, "parts"):
        assert ask(f"{urls['pair']}/v1/completions", {"prompt": "tea"}, form=form)[0] == 415
    for form in (False, True, "parts"):
        status, answer = ask(f"{urls['pair']}/detect", {"q": "tea"}, form=form)
        assert (status, list(answer), "detects no languages" in answer["error"]) == (400, ["error"], True)


def test_a_key_may_be_in_the_body_of_libretranslate(pair):
    url = in_thread(pair, api_key=["one", "two"])
    body = {"q": TEXTS[0], "source": "eng", "target": "deu"}
    expected = pair.translate(TEXTS[0], split="sentences").text
    for form in (False, True, "parts"):
        assert ask(f"{url}/translate", body | {"api_key": "two"}, form=form) == (
            200,
            {"translatedText": expected},
        )
        assert ask(f"{url}/languages", {"api_key": "one"}, form=form)[0] == 200
        for wrong in ({}, {"api_key": "on"}, {"api_key": ""}, {"api_key": "one", "pad": "x" * 70_000}):
            status, answer = ask(f"{url}/translate", body | wrong, form=form)
            assert (status, "valid API key" in answer["error"]) == (401, True)
        # That of the header counts, where there is one.
        assert ask(f"{url}/translate", body | {"api_key": "one"}, form=form, key="three")[0] == 401
    assert ask(f"{url}/translate", body, key="one") == (200, {"translatedText": expected})
    assert ask(f"{url}/languages", key="one")[0] == 200
    assert ask(f"{url}/rsgen/v1/translate", {"texts": "tea", "api_key": "one"})[0] == 401
