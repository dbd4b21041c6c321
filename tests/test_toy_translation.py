"""A trained toy in the layout of an opus-mt folder: ends, lengths, languages and terms, as random weights do not show them."""

import re
from pathlib import Path

import pytest
import rsgen

ROOT = Path(__file__).parents[1]
TOY = ROOT / "tests/golden/toy_translation"
TEXTS = ["The house is small.", "I like tea.", "Is the garden green?", "The old door is red."]
GERMAN = ["Das Haus ist klein.", "Ich mag Tee.", "Ist der Garten grün?", "Die alte Tür ist rot."]
FRENCH = ["La maison est petite.", "J'aime le thé.", "Est-ce que le jardin est vert ?"]


@pytest.fixture(scope="module")
def toy():
    return rsgen.Generator(TOY, num_threads=1)


@pytest.mark.parametrize("fields", [{}, {"num_beams": 1}, {"num_beams": 2, "early_stopping": True}])
def test_the_language_decides_the_translation_which_ends_by_itself(toy, fields):
    assert toy.languages == ["deu", "fra"]
    out = toy.translate(TEXTS, target="deu", **fields)
    assert (out.texts, out.finish_reasons) == (GERMAN, ["eos"] * 4)
    assert toy.translate(TEXTS[:3], target="fra", **fields).texts == FRENCH


def test_lengths_are_those_of_the_source(toy):
    words, numbers = ["one", "two", "three", "four", "five"], ["eins", "zwei", "drei", "vier", "fünf"]
    for count in range(1, 6):
        text, expected = (", ".join(side[:count]).capitalize() + "." for side in (words, numbers))
        assert toy.translate(text, target="deu").text == expected


def test_terms_words_and_beginnings_decide_a_translation_of_a_model_that_knows_better(toy):
    out = toy.translate(TEXTS, target="deu", glossary={"small": "ruhig", "tea": "Kaffee"})
    assert "ruhig" in out.texts[0]
    assert "Kaffee" in out.texts[1]
    assert out.texts[2:] == GERMAN[2:]
    assert "klein" not in toy.translate(TEXTS[0], target="deu", bad_words="klein").text
    assert toy.translate(TEXTS[0], target="deu", target_prefix="Die Stadt").text.startswith("Die Stadt ")
    joined = " ".join(TEXTS)
    assert toy.translate(joined, target="deu", split="sentences").text == " ".join(GERMAN)


def test_what_the_encoder_took_is_a_time_of_its_own():
    toy = rsgen.Generator(TOY, num_threads=1)
    first = toy.translate(TEXTS, target="deu", output_events=True)
    assert 0 < first.timings.encoder < first.timings.first_token <= first.timings.total
    assert f", encoder={first.timings.encoder:.4f})" in repr(first.timings)
    # The events of each text have its part.
    parts = [event["timings"]["encoder"] for event in first.events if event["type"] == "finish"]
    assert len(parts) == len(TEXTS)
    assert sum(parts) == pytest.approx(first.timings.encoder, rel=1e-6)
    # Sources that are encoded already take no time, and those of sentences add up.
    again = toy.translate(TEXTS, target="deu")
    assert (again.texts, again.timings.encoder) == (first.texts, 0.0)
    assert repr(again.timings).endswith(f"total={again.timings.total:.4f})")
    assert (
        toy.translate("I see the moon. I like the sun.", target="deu", split="sentences").timings.encoder > 0
    )


def test_alignments_find_the_words_of_a_list(toy):
    out = toy.translate("Seven, two, nine.", target="deu", output_attentions=True)
    source = toy.tokenizer.convert_ids_to_tokens(toy.tokenizer.encode("Seven, two, nine."))
    assert out.alignments[0].shape[0] == len(out.token_ids[0])
    assert out.alignments[0].shape[1] == len(source) + 1
    scores = toy.score(">>deu<< I like tea.", "Ich mag Tee.")
    assert scores.min() > -0.5 > toy.score(">>deu<< I like tea.", "Ich mag Brot.").min()


def test_the_lines_of_the_page_give_what_they_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs/translation.md").read_text(encoding="utf-8")
    (program,) = [
        code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "toy_translation" in code
    ]
    names = {"rsgen": rsgen}
    # Each has what it gives before it.
    shown = re.compile(r"^# (.+)\n(.+)$", re.MULTILINE)
    lines = shown.findall(program)
    exec(shown.sub("", program), names)
    assert len(lines) >= 3
    for expected, code in lines:
        assert repr(eval(code, names)) == expected
