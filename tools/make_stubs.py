"""Writes what is made of the tables of fields, strategies and logits processors: stubs, types and a page.

    python tools/make_stubs.py

It needs the extension, as `make develop` builds it: `make stubs` sees to that. A test compares the files with what this
would write.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rsgen._rsgen import _tables

ROOT = Path(__file__).resolve().parents[1]
#: What stands around the part of a file that is made.
BEGIN, END = "# Made by tools/make_stubs.py: begin", "# Made by tools/make_stubs.py: end"

Table = list[dict[str, Any]]


def processors_stub(processors: Table) -> str:
    """The stub of `rsgen.processors`."""
    classes = "\n".join(_class(entry) for entry in processors)
    names = "\n".join(f"    {json.dumps(name)}," for name in sorted(_names(processors)))
    head = '''"""transformers\' logits processors: functions of numpy arrays, and entries of ``logits_processor`` lists.

Made by tools/make_stubs.py.
"""

import math
from collections.abc import Sequence
from inspect import Signature
from typing import ClassVar, Literal

from numpy.typing import ArrayLike
from typing_extensions import Self

from ._rsgen import BuiltInLogitsProcessor, LogitsProcessor
from .types import PrefixAllowedTokens
'''
    return f"{head}\n__all__ = [\n{names}\n]\n\n{classes}"


def _names(processors: Table) -> list[str]:
    return ["LogitsProcessor", *(entry["class"] for entry in processors)]


def _class(entry: dict[str, Any]) -> str:
    """A class: its doc and its constructor."""
    arguments = [
        f"{argument['name']}: {_accepted(argument['type'])}" + _default(argument)
        for argument in entry["arguments"]
    ]
    if entry["has_device"]:
        arguments.append('device: Literal["cpu"] = "cpu"')
    arguments += ["*", 'compat: Literal["4.49"] | None = None']
    signature = "".join(f"        {argument},\n" for argument in ["cls", *arguments])
    return (
        f"class {entry['class']}(BuiltInLogitsProcessor):\n"
        f'    """{entry["doc"]}"""\n\n'
        "    __signature__: ClassVar[Signature]\n\n"
        f"    def __new__(\n{signature}    ) -> Self: ...\n"
        + "".join(
            f"    @property\n    def {argument['name']}(self) -> {argument['type']}: ...\n"
            for argument in entry["arguments"]
        )
    )


def _default(argument: dict[str, Any]) -> str:
    if "default" not in argument:
        return ""
    default = argument["default"]
    return " = -math.inf" if default == float("-inf") else f" = {default!r}"


def _accepted(annotation: str) -> str:
    """What may be given where a value of this type is kept: any sequence for a list."""
    return annotation.replace("list[", "Sequence[")


def field_types(fields: Table) -> str:
    """The entries of `GenerationFields`."""
    return "".join(f"    {field['name']}: {_accepted(field['type'])} | None\n" for field in fields)


def field_properties(fields: Table) -> str:
    """The attributes of a `GenerationConfig`."""
    properties = []
    for field in fields:
        doc = re.sub(r"`([^`]+)`", r"``\1``", " ".join(field["doc"].split()))
        doc = textwrap.fill(f'"""{doc}"""', 118, initial_indent=" " * 8, subsequent_indent=" " * 8)
        properties.append(f"    @property\n    def {field['name']}(self) -> {field['type']} | None:\n{doc}\n")
    return "".join(properties)


def strategy_methods(strategies: Table) -> str:
    """The methods of a `Generator` that are named after a strategy."""
    methods = []
    for strategy in strategies:
        doc = re.sub(r"`([^`]+)`", r"``\1``", strategy["doc"])
        doc = f'"""{doc} Otherwise as :meth:`generate`."""'
        doc = textwrap.fill(
            doc, 118, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False
        )
        doc = re.sub(r'\."""$', '.\n        """', doc) if "\n" in doc else doc
        methods.append(f"    def {strategy['name']}(\n{METHOD_ARGUMENTS}    ) -> GenerationOutput:\n{doc}\n")
    return "\n".join(methods)


METHOD_ARGUMENTS = """\
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
"""


def page(tables: dict[str, Table]) -> str:
    """The table of processors for users."""
    defaults = {field["name"]: field["default"] for field in tables["fields"]}
    lines = [PAGE_HEAD]
    callers_placed = False
    for entry in tables["processors"]:
        if entry["after_callers"] and not callers_placed:
            lines.append("| `logits_processor` | the caller's own | Whatever you like. | | all searches |")
            callers_placed = True
        default = defaults.get(entry["switch"], "none")
        lines.append(
            f"| `{entry['switch']}` | `{entry['class']}` | {entry['doc']} | {default} | {entry['applies_to']} |"
        )
    return "\n".join(lines) + "\n"


PAGE_HEAD = """\
# Logits processors

Made by `tools/make_stubs.py` from the table in `src/generation/logits/registry.rs`; [how to add one](adding/processor.md).

The order of the lines is the order of application. In greedy search, sampling and contrastive search they change the model's
logits, in beam searches the logarithms of its probabilities, in DoLa what the contrast gives. What takes part in sampling does
so wherever tokens are drawn: in beam sampling, and in DoLa with `do_sample`, too. Each is a class of `rsgen.processors`.

`logit_bias`, `frequency_penalty` and `presence_penalty` are OpenAI's and not in transformers. They stand where vLLM applies
them, after what biases and before what removes; the penalties count generated tokens only, never those of the prompt.

| field or argument | class | what it does | default | takes part in |
|---|---|---|---|---|"""


def _between(text: str, content: str, what: str = "") -> str:
    """The text with another part between the two marks."""
    begin, end = BEGIN + what, END + what
    pattern = re.compile(rf"(?<=    {re.escape(begin)}\n).*?(?=    {re.escape(end)}\n)", re.DOTALL)
    changed, count = pattern.subn(lambda _: content, text)
    if count != 1:
        raise SystemExit(
            f"error: the marks {begin!r} and {end!r} must stand in the file once each, got {count}"
        )
    return changed


def files() -> dict[Path, str]:
    """Every file that is made, as it has to be."""
    tables = _tables()
    fields, processors = tables["fields"], tables["processors"]
    methods = strategy_methods(tables["strategies"])
    package = ROOT / "python" / "rsgen"
    parts: dict[Path, Callable[[str], str]] = {
        package / "types.py": lambda text: _between(text, field_types(fields)),
        package / "_rsgen.pyi": lambda text: _between(
            _between(text, field_properties(fields)), methods, " of methods"
        ),
        package / "processors.pyi": lambda _: processors_stub(processors),
    }
    made = {path: make(path.read_text() if path.exists() else "") for path, make in parts.items()}
    return made | {ROOT / "docs" / "processors.md": page(tables)}


def main() -> None:
    """Writes the files that are not as they have to be."""
    for path, text in files().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
