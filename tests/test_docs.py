"""The programs of the pages in docs/ run as they stand there, each by itself, and print what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import rsgen
from recipes import prepare
from test_doc_commands import MODEL, write_adapters

DOCS = Path(__file__).parents[1] / "docs"
#: A program, with what it prints where the page shows that.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


def programs(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


PROGRAMS = [
    program
    for page in (
        "runtime.md",
        "from_transformers.md",
        "watermarks.md",
        "layers.md",
        "kept_cache.md",
        "streaming_llm.md",
        "scoring.md",
        "catalogue.md",
        "structured_output.md",
        "tool_calls.md",
        "reasoning.md",
        "rows.md",
        "adapters.md",
    )
    for program, _ in programs(DOCS / page)
]
STRATEGIES = sorted(page for page in (DOCS / "strategies").glob("*.md") if page.name != "README.md")


def test_the_pages_show_programs():
    assert len(PROGRAMS) >= 40


@pytest.mark.parametrize("index", range(len(PROGRAMS)))
def test_a_program_of_a_page_runs(index, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[index], encoding="utf-8")
    if "path/to/base" in PROGRAMS[index]:
        (tmp_path / "path" / "to").mkdir(parents=True)
        (tmp_path / "path" / "to" / "base").symlink_to(MODEL)
        write_adapters(tmp_path / "path" / "to")
    # Python 3.12 warns of each fork of a process with threads.
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", str(program)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    logs_only = "logging" in PROGRAMS[index]
    assert run.stdout or logs_only


@pytest.mark.parametrize("page", [DOCS / "index.md", *STRATEGIES], ids=lambda page: page.stem)
def test_the_programs_of_a_page_print_what_it_says(page, capsys):
    shown = programs(page)
    assert shown
    for program, output in shown:
        exec(compile(program, page.name, "exec"), {"__name__": page.stem})
        assert capsys.readouterr().out == output != ""


@pytest.mark.parametrize("page", STRATEGIES, ids=lambda page: page.stem)
def test_the_page_of_a_strategy_shows_rust_too_and_is_in_the_index_and_that_of_a_method(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("```rust\n") >= 1
    assert f"({page.name})" in (DOCS / "strategies" / "README.md").read_text(encoding="utf-8")
    assert hasattr(rsgen.Generator, page.stem), "src/lib.rs runs the Rust of the pages of methods"


RECIPES = sorted(page for page in (DOCS / "recipes").glob("*.md") if page.name != "README.md")


def test_the_recipes_are_all_in_their_index():
    index = (DOCS / "recipes" / "README.md").read_text(encoding="utf-8")
    assert set(LINK.findall(index)) >= {(page.name, "") for page in RECIPES}
    assert len(RECIPES) == 10


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_the_program_of_a_recipe_prints_what_its_page_says(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    if page.stem == "axum_service":
        # Cargo compiles it, and its own test compares the answers.
        example = (DOCS.parent / "examples" / "axum_service.rs").read_text(encoding="utf-8")
        (shown,) = re.findall(r"^```rust\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        assert f"\n{shown}\n#[cfg(test)]" in example
        return
    prepare(tmp_path)
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (output,) = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-W", "error", "program.py"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == output
    assert "**Why.**" in text


LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_the_links_of_a_page_lead_to_files(page):
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target
