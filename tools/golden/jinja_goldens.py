"""The expressions and templates of `jinja_cases.json`, and what Jinja prints for them as transformers sets it up."""

from __future__ import annotations

import json
from pathlib import Path

from chat_goldens import dumped
from transformers.utils.chat_template_utils import _compile_jinja_template

CASES = json.loads((Path(__file__).parent / "jinja_cases.json").read_text(encoding="utf-8"))
MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]


def printed(source: str) -> str | None:
    """What a template prints; nothing when it fails."""
    try:
        return _compile_jinja_template(source).render(messages=MESSAGES, add_generation_prompt=True)
    except Exception:
        return None


def write_jinja_golden(path: Path) -> None:
    """Writes the golden, one template with what it prints on a line."""
    sources = [f"{{{{ {expression} }}}}" for expression in CASES["expressions"]] + CASES["templates"]
    lines = ",\n".join(dumped([source, printed(source)]) for source in sources)
    path.write_text(
        f'{{"format":1,\n"messages":{dumped(MESSAGES)},"printed":[\n{lines}\n]}}\n', encoding="utf-8"
    )
