"""What came of a night: outcomes, what was found with the command that repeats it, and the page that says so."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: Lines of a log that say what was found.
TELLING = re.compile(
    r"^(FAILED .*|error: .*|.*AssertionError.*|thread '.*' panicked.*|WARNING: ThreadSanitizer.*|==\d+==ERROR.*|SUMMARY: .*"
    r"|assert.*|test .* FAILED|E  .*|failing schedule.*)$",
    re.MULTILINE,
)


@dataclass
class Outcome:
    """How a part ended."""

    name: str
    command: str
    seed: int
    seconds: float = 0.0
    executions: int = 0
    unit: str = ""
    status: str = "ok"
    findings: list[str] = field(default_factory=list)


def findings(log: str, code: int | None) -> list[str]:
    """What a part that failed says of it: its telling lines, or its last ones."""
    if code == 0:
        return []
    if code is None:
        return ["it did not end in its time", *log.splitlines()[-3:]]
    lines = list(dict.fromkeys(match[0].strip()[:400] for match in TELLING.finditer(log)))
    return lines[:12] or [line[:400] for line in log.splitlines()[-6:]] or [f"exit code {code}"]


def repeating(outcome: Outcome, log: str) -> str:
    """The command that repeats a finding: for an input of a fuzz target, its program with that input."""
    if artifact := re.search(r"Test unit written to (\S+)", log):
        return f"target/fuzz/*/fuzz/{outcome.name.split()[-1]} {artifact[1]}"
    return outcome.command


def page(title: str, facts: list[str], outcomes: list[Outcome]) -> str:
    """The report, in Markdown."""
    ran = [one for one in outcomes if not one.status.startswith("not run")]
    found = [one for one in ran if one.findings]
    lines = [f"# {title}", "", *(f"- {fact}" for fact in facts), ""]
    lines += ["| part | seed | hours | executions | outcome |", "|---|---|---|---|---|"]
    for one in outcomes:
        if one in ran:
            done = f"{one.executions:,} {one.unit}"
            lines.append(f"| {one.name} | {one.seed} | {one.seconds / 3600:.3f} | {done} | {one.status} |")
        else:
            lines.append(f"| {one.name} | | | | {one.status} |")
    hours = sum(one.seconds for one in ran) / 3600
    lines.append(f"| **all** | | {hours:.3f} | | {len(found)} with findings |")
    lines += ["", "## Findings", ""]
    for one in found:
        lines += [f"### {one.name}", "", "```sh", one.command, "```", "", "```text", *one.findings, "```", ""]
    return "\n".join(lines if found else [*lines, "None."]) + "\n"
