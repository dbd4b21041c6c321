"""A page for each family of models, made from the tables of docs/models.md and the family's file."""

from __future__ import annotations

import re

from repository import ROOT

ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (.+) \|$", re.MULTILINE)
COUNTS = re.compile(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
FOLDER = "crates/model/src/families"


def pages() -> dict[str, str]:
    """The pages by their places."""
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    counts = {row[0]: row[1:] for row in COUNTS.findall(text)}
    return {
        f"families/{name}.md": _page(name, architecture, checkpoints, counts.get(name))
        for name, architecture, checkpoints in ROW.findall(text)
    }


def _page(name: str, architecture: str, checkpoints: str, counts: tuple[str, ...] | None) -> str:
    source = _source(name)
    if counts:
        requests, equal, ties, margins, unexplained = counts
        exact = f"""{equal} of {requests} drawn requests gave the tokens, beams and scores of transformers 5.24
({ties} ties, {margins} router margins, {unexplained} unexplained differences). [Models](../models.md#how-exact) says what was drawn."""
    else:
        exact = """A family with an encoder. 300 requests were drawn for it, with any masks, decoder prompts and processors, and all
gave the tokens and scores of transformers 5.24. [Models](../models.md#how-exact) has the counts of each search."""
    return f"""# {name}

{_what_it_is(source)}

| | |
|---|---|
| `model_type` | `{name}` |
| class | `{architecture}` |
| checkpoints | {checkpoints} |
| encoder | {"no" if counts else "yes"} |
| file | [`{source}`](../../{source}) |

## Open it

A folder with such a `config.json`, or the id of one in the local Hub cache:

```python
import rsgen

gen = rsgen.Generator("path/to/{name}")
```

[Weight files](../weight_files.md) lists the formats, and [quantized and packed models](../packed_models.md) says how it
takes less memory.

## How exact

{exact}
"""


def _source(name: str) -> str:
    """The file that has the family: one is named without its `_text`."""
    for stem in (name, name.removesuffix("_text")):
        if (ROOT / FOLDER / f"{stem}.rs").exists():
            return f"{FOLDER}/{stem}.rs"
    raise SystemExit(f"error: {FOLDER} has no file for {name} of docs/models.md")


def _what_it_is(source: str) -> str:
    lines = (ROOT / source).read_text(encoding="utf-8").splitlines()
    head = [line.removeprefix("//!").removeprefix(" ") for line in lines if line.startswith("//!")]
    return re.sub(r"\[(`[^`\]]+`)\](?!\()", r"\1", "\n".join(head))
