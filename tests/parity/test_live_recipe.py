"""The recipe that reproduces a sample shows what transformers itself prints."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "recipes" / "reproduce_a_sample.md"


def test_the_program_of_transformers_prints_what_the_page_says(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    text = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (output,) = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    exec(compile(program, PAGE.name, "exec"), {})
    assert capsys.readouterr().out == output
