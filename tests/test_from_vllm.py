"""The page for those who come from vLLM: the right side of each line runs, and does what the left side names."""

import re
from pathlib import Path

import pytest
import rsgen

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/from_vllm_and_ctranslate2.md").read_text(encoding="utf-8").split("# From CTranslate2")[0]
FIELDS, METHODS = PAGE.split("## Fields of")[1].split("## Methods")
#: A bar within a cell is escaped.
ROWS = [
    [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\) \| ", line.strip("| "))]
    for line in FIELDS.splitlines()
    if line.startswith("| `")
]
CALLS = [row for row in ROWS if row[1].startswith("`")]
PROMPTS = ["Once upon a time", "Tom had a"]


def arguments(cell: str) -> dict[str, object]:
    return eval(f"dict({cell.strip('`')})")


def test_there_are_lines():
    assert len(CALLS) >= 20


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
def test_the_right_side_of_each_line_runs(gen, row):
    given = arguments(row[1])
    out = gen.generate(PROMPTS, **{"max_new_tokens": 8} | given)
    assert len(out) == len(PROMPTS) * given.get("num_return_sequences", 1)
    assert len(given) > 0


def test_the_rules_are_those_that_the_page_names(gen):
    limit = {"max_new_tokens": 12}
    plain = gen.generate(PROMPTS[0], **limit)
    assert "," in plain.text
    cut = gen.generate(PROMPTS[0], stop_strings=[","], include_stop_str_in_output=False, **limit)
    assert cut.text == plain.text.split(",")[0]
    only = gen.generate(PROMPTS[0], prefix_allowed_tokens_fn=lambda prompt, ids: [5, 6], **limit)
    assert set(only.token_ids[0].tolist()) <= {5, 6}
    assert gen.generate(PROMPTS[0], regex="yes|no", **limit).text in ("yes", "no")
    assert gen.generate(PROMPTS[0], grammar='start: "a"', **limit).text == "a"
    assert gen.generate(PROMPTS[0], min_new_tokens=12, eos_token_id=[], **limit).usage.generated_tokens == 12


@pytest.mark.parametrize("name", re.findall(r"`gen\.(\w+)\(", METHODS))
def test_the_methods_are_there(name):
    assert callable(getattr(rsgen.Generator, name))
