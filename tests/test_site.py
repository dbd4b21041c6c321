"""What `make docs` adds to the pages: a page for each family and each public name, links, and the checks of what was built."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import rsgen

ROOT = Path(__file__).parents[1]
SITE = ROOT / "tools" / "site"
sys.path.insert(0, str(SITE))
import api  # noqa: E402
import check_site  # noqa: E402
import families  # noqa: E402
import repository  # noqa: E402

POLICY = '<meta http-equiv="Content-Security-Policy">'


def test_each_family_has_a_page_that_says_what_it_is_and_how_exact():
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| `\w+` \|", page, re.MULTILINE)
    pages = families.pages()
    assert list(pages) == [f"families/{name}.md" for name in listed]
    assert len(pages) > 50
    for text in pages.values():
        assert re.search(r"^# \w+\n\n\S", text)
        assert re.search(r"(\d+) of \1 drawn requests|with an encoder", text)


def test_each_public_name_is_on_one_page_of_the_reference():
    shown = re.findall(r"^::: (\S+)$", "\n".join(api.pages().values()), re.MULTILINE)
    assert len(shown) == len(set(shown))
    assert {f"rsgen.{name}" for name in rsgen.__all__ if name != "__version__"} <= set(shown)
    for module in (rsgen.processors, rsgen.stopping_criteria, rsgen.constraints, rsgen.types):
        assert {f"{module.__name__}.{name}" for name in module.__all__} <= set(shown)


def test_links_lead_to_pages_of_the_site():
    text = "[a](../../SECURITY.md#x), [b](../rust.md), [c](../../examples/quickstart.rs), [d](https://a.b), [e](gone.md)"
    moved = repository.with_links(text, "recipes/rank.md")
    assert re.findall(r"\]\((.*?)\)", moved) == [
        "../project/security.md#x",
        "../rust.md",
        "../source/examples/quickstart.rs.md",
        "https://a.b",
        "gone.md",
    ]
    code = "```text\n[a](../SECURITY.md)\n```"
    assert repository.with_links(code, "server.md") == code


def test_pages_look_in_the_site_as_elsewhere():
    shown = repository.as_site("| `a\\|b` |\n\n```rust,no_run\n# fn main() {\nlet a = 1;\n#[b]\n# }\n```")
    assert shown == "| `a|b` |\n\n```rust\nlet a = 1;\n#[b]\n```"


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        (f'{POLICY}<a href="other.html#there">', None),
        (f'{POLICY}<a href="gone.html">', "no such file"),
        (f'{POLICY}<a href="other.html#gone">', "no such place"),
        (f'{POLICY}<script src="https://other.host/a.js">', "loads https://other.host/a.js"),
        (f'{POLICY}<link rel="stylesheet" href="//other.host/a.css">', "loads //other.host/a.css"),
        (
            f"{POLICY}<p style=\"background: url('https://other.host/a.png')\">",
            "loads https://other.host/a.png",
        ),
        ('<a href="https://other.host">', "no policy"),
    ],
)
def test_a_site_with_a_fault_is_refused(page, complaint, tmp_path):
    (tmp_path / "other.html").write_text(f'{POLICY}<h2 id="there">')
    (tmp_path / "index.html").write_text(page)
    command = [sys.executable, str(SITE / "check_site.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == (complaint is None)
    assert (complaint or "every link") in done.stdout + done.stderr


def test_a_style_sheet_from_another_host_is_found(tmp_path):
    (tmp_path / "a.css").write_text("@import 'https://other.host/b.css'; a { src: url(c.woff) }")
    assert check_site.other_hosts(tmp_path / "a.css") == ["https://other.host/b.css"]


def test_a_public_method_that_the_reference_does_not_show_is_found(tmp_path):
    assert {"rsgen.Generator.score", "rsgen.GenerationConfig.top_p", "rsgen.Tokenizer.encode"} < set(
        api.members()
    )
    folder = tmp_path / "reference" / "python"
    folder.mkdir(parents=True)
    places = [f'<h3 id="{name}">' for name in api.members() if name != "rsgen.Generator.score"]
    (folder / "generator.html").write_text("".join(places))
    (complaint,) = check_site.without_places(tmp_path)
    assert complaint.startswith("rsgen.Generator.score has no place")


def test_the_picture_of_speed_shows_the_tables_of_the_readme():
    program = (
        "import speed_picture as made; assert made.PICTURE.read_text(encoding='utf-8') == made.picture()"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT / "tools", capture_output=True, text=True)
    assert done.returncode == 0, f"python tools/speed_picture.py writes it: {done.stderr}"
