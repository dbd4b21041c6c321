"""docs/parity.md has a row for each feature of transformers, and each row is true: its status follows from the code."""

import re
import sys
from pathlib import Path

import pytest
import rsgen

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import make_parity  # noqa: E402

ROWS = make_parity.rows()
#: Names that are no fields, with the reason, as the source lists them.
REASONS = dict(
    re.findall(
        r'\(\s*"(\w+)",\s*"((?:[^"\\]|\\.)*)"',
        (ROOT / "crates/generation/src/config/unsupported.rs").read_text(encoding="utf-8"),
    )
)
ARGUMENTS = {name for name, reason in REASONS.items() if "an argument of" in reason}
UNSUPPORTED = {name: reason for name, reason in REASONS.items() if name not in ARGUMENTS}
FIELDS = {field["name"] for field in rsgen._rsgen._tables()["fields"]}


def names(row):
    """The fields of a row; those with a mark are refused."""
    return row["fields"].split()


def test_the_page_is_current():
    assert make_parity.page() == make_parity.PAGE.read_text(encoding="utf-8"), (
        "run `python tools/make_parity.py`"
    )


def test_there_is_a_row_for_each_feature():
    assert len(ROWS) >= 84
    assert len({(row["section"], row["feature"]) for row in ROWS}) == len(ROWS)
    assert all(row["in_4_49"] and row["in_5_24"] for row in ROWS)
    assert UNSUPPORTED.keys() >= {"custom_generate", "cache_implementation"}


def is_run(file, test):
    """Whether the tests of a file hold this one, and none of its attributes leaves it out."""
    source = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".py"):
        found = re.search(rf"((?:^[@ )].*\n)*)^(?:async )?def {test}\(", source, re.MULTILINE)
        is_collected = Path(file).name.startswith("test_") and test.startswith("test_")
        return found is not None and is_collected and not re.search(r"@pytest.mark.skip\b", found[1])
    attributes = re.search(rf"((?:^[ \t]*#\[.*\]\n)+)[ \t]*fn {test}\(", source, re.MULTILINE)
    return attributes is not None and "#[test]" in attributes[1] and "#[ignore" not in attributes[1]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["feature"])
def test_a_row_is_true(row):
    assert row["status"] in make_parity.STATUSES
    for file, test in make_parity.shown_by(row):
        assert is_run(file, test), f"{file} has no test {test} that runs"
    # Those against transformers itself are left out where it is not installed.
    assert any(not file.startswith("tests/parity/") for file, _ in make_parity.shown_by(row))
    for name in names(row):
        refused = name.startswith("!")
        assert (name.removeprefix("!") in UNSUPPORTED) == refused, f"whether {name} is refused has changed"
        assert refused or name in FIELDS | ARGUMENTS, f"{name} is neither a field nor an argument"
        assert row["status"] not in ("exact", "differs") or not refused
    # What is not there says why.
    assert row["status"] != "no" or row["rsgen"]


def test_every_field_that_is_not_in_this_version_has_a_row():
    missing = {name for name, reason in UNSUPPORTED.items() if "in this version" in reason}
    listed = {name.removeprefix("!") for row in ROWS if row["status"] == "no" for name in names(row)}
    assert missing <= listed, missing - listed
