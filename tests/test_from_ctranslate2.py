"""The page for those who come from CTranslate2: it has each argument of `translate_batch`, and its lines run."""

import re
from pathlib import Path

import pytest
import rsgen

ROOT = Path(__file__).parents[1]
TOY = ROOT / "tests/golden/toy_translation"
PAGE = (ROOT / "docs/from_vllm_and_ctranslate2.md").read_text(encoding="utf-8").split("# From CTranslate2")[1]
ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ", 2)]
    for line in PAGE.splitlines()
    if line.startswith("| `")
]
TEXTS = [
    f">>deu<< {text}"
    for text in ("The house is small.", "I like tea.", "Is the garden green?", "One, two, three.")
]


def arguments(cell: str) -> dict[str, object]:
    """The arguments in a cell."""
    return eval(f"dict({cell.strip('`')})")


CALLS = [row for row in ROWS if row[1].startswith("`") and "=" in row[0]]


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
def test_our_side_of_each_line_runs(row):
    out = rsgen.Generator(TOY).translate(TEXTS, **arguments(row[1]))
    assert len(out.texts) == len(TEXTS) * arguments(row[1]).get("num_return_sequences", 1)
    assert all(out.texts)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="it is compared where it is installed")
    pytest.importorskip("transformers", reason="the converter of CTranslate2 needs it")
    pytest.importorskip("torch", reason="the converter of CTranslate2 needs it")
    folder = tmp_path_factory.mktemp("converted")
    ctranslate2.converters.TransformersConverter(str(TOY)).convert(str(folder), force=True)
    return ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)


def test_the_page_has_each_argument(translator):
    signature = translator.translate_batch.__doc__.split("->")[0]
    named = set(re.findall(r"(\w+): ", signature)) - {"self", "source"}
    shown = {name for cell, *_ in ROWS for name in re.findall(r"(\w+)(?==|`)", cell)}
    assert named
    assert not named - shown


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
def test_both_sides_of_each_line_run(translator, row):
    gen = rsgen.Generator(TOY)
    tokens = [gen.tokenizer.convert_ids_to_tokens(gen.tokenizer.encode(text)) for text in TEXTS]
    given = arguments(row[0])
    if "target_prefix" in given:
        given["target_prefix"] = given["target_prefix"] * len(TEXTS)
    # The default of the longest translation is beyond the positions of the toy.
    results = translator.translate_batch(tokens, **{"max_decoding_length": 40} | given)
    assert [len(result.hypotheses) for result in results] == [given.get("num_hypotheses", 1)] * len(TEXTS)
