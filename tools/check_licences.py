"""Checks the licence of every crate in Cargo.lock against the list in deny.toml: `python tools/check_licences.py`.

cargo-deny does the same, and checks advisories too, but takes minutes to build. This needs cargo alone.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def allowed_licences(deny: str) -> set[str]:
    """The list `allow` of the table `licenses`."""
    table = re.search(r"^\[licenses\]\n(.*?)(?=^\[|\Z)", deny, re.DOTALL | re.MULTILINE)
    allow = table and re.search(r"^allow = \[(.*?)^\]", table[1], re.DOTALL | re.MULTILINE)
    if not allow:
        raise ValueError("deny.toml has no list `allow` in its table `licenses`")
    return set(re.findall(r'"([^"]+)"', allow[1]))


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met with the licences that are allowed. A slash means OR, as it used to."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    place = 0

    def peek() -> str | None:
        return tokens[place] if place < len(tokens) else None

    def take() -> str:
        nonlocal place
        if place == len(tokens):
            raise ValueError(f"{expression!r} is no SPDX expression")
        place += 1
        return tokens[place - 1]

    def single() -> bool:
        token = take()
        if token == "(":
            met = either()
            if take() != ")":
                raise ValueError(f"{expression!r} is no SPDX expression")
            return met
        if peek() == "WITH":
            token = f"{token} {take()} {take()}"
        return token in allowed

    def both() -> bool:
        met = single()
        while peek() == "AND":
            take()
            met &= single()
        return met

    def either() -> bool:
        met = both()
        while peek() == "OR":
            take()
            met |= both()
        return met

    met = either()
    if peek() is not None:
        raise ValueError(f"{expression!r} is no SPDX expression")
    return met


def faults(packages: list[dict[str, object]], allowed: set[str]) -> list[str]:
    """What is wrong with the packages of `cargo metadata`, one sentence each."""
    found = []
    for package in packages:
        name, licence, source = (
            f"{package['name']} {package['version']}",
            package["license"],
            package["source"],
        )
        if source is not None and not str(source).startswith("registry+"):
            found.append(f"{name} does not come from the registry of crates")
        if not licence:
            found.append(f"{name} names no licence")
        elif not is_allowed(str(licence), allowed):
            found.append(f"{name} has the licence {licence}, which deny.toml does not allow")
    return found


def main() -> int:
    """Prints the verdict; the exit code is 1 if a crate has a fault."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)[
        "packages"
    ]
    wrong = faults(packages, allowed_licences((ROOT / "deny.toml").read_text(encoding="utf-8")))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(packages)} packages: {len(wrong) or 'no'} faults")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
