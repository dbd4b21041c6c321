"""docs/processors.md, made from the tables of the extension: see `make_stubs.py`."""

from typing import Any

Table = list[dict[str, Any]]


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

`tools/make_stubs.py` makes this page from the table in `crates/generation/src/logits/registry.rs`. [How to add
one](adding/processor.md).

The lines are in the order of application. In greedy search, sampling and contrastive search the processors change the model's
logits, in beam searches its log-probabilities, in DoLa the contrasted scores. Those that take part in sampling do so wherever
tokens are drawn, including beam sampling and DoLa with `do_sample`. Each is a class of `rsgen.processors`.

`logit_bias`, `frequency_penalty` and `presence_penalty` are OpenAI's and not in transformers. They stand where vLLM applies them:
after the biases and before the processors that remove tokens. The penalties count generated tokens only, never those of the
prompt.

| field or argument | class | what it does | default | takes part in |
|---|---|---|---|---|"""
