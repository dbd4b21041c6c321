"""The Python of the README runs as it stands there, one block after the other."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_python_of_the_readme_runs(capsys):
    text = README.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert blocks, "the README shows no Python"
    names: dict[str, object] = {}
    for block in blocks:
        first_line = text.count("\n", 0, block.start(1))
        # Blank lines in front, so that a traceback gives the line of the README.
        exec(compile("\n" * first_line + block[1], README.name, "exec"), names)
    assert capsys.readouterr().out.strip(), "the README's programs print what they generate"
