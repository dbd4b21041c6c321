"""The job that every engine runs: 200 rows, drawn at random, and the digest of what they give."""

import hashlib
import json
import os
from pathlib import Path

from rsgen.integrations import RowGenerator

STARTS = ["Once upon a time", "A fox", "Near the lake", "One day, Mia", "Tom had a red kite.", "The"]
ROWS = 200
OPTIONS = {
    "id_column": "id",
    "seed": 7,
    "do_sample": True,
    "temperature": 0.9,
    "max_new_tokens": 12,
    # Rows of different strategies and lengths would hide nothing: this one has a different number of tokens in each.
    "stop_strings": ["."],
}


def rows() -> dict[str, list]:
    return {"id": list(range(ROWS)), "prompt": [STARTS[row % len(STARTS)] for row in range(ROWS)]}


def digest(ids, texts, seeds) -> str:
    """The SHA-256 of the rows in the order of their ids; none may be lost or doubled."""
    found = sorted(zip(map(int, ids), texts, map(int, seeds), strict=True))
    assert [row for row, _, _ in found] == list(range(ROWS))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def alone() -> str:
    """The digest of one call in this process."""
    table = RowGenerator(model_kwargs={"num_threads": 2}, **OPTIONS)(rows())
    assert len(set(table["text"])) > ROWS / 2, "rows with the same prompt draw differently"
    return digest(table["id"], table["text"], table["seed"])


def rsgen_threads() -> int:
    """The threads of this process that rsgen has started."""
    return sum(
        path.read_text().startswith("rsgen-") for path in Path(f"/proc/{os.getpid()}/task").glob("*/comm")
    )
