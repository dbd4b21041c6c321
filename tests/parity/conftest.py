"""Paths of the golden tools, and the summary of what was compared and excused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tools" / "golden")]

from parity_settings import BASE_SEED, CASES, PLAIN  # noqa: E402


def pytest_report_header() -> str:
    """How to run the same cases again."""
    return f"live parity: RSGEN_PARITY_SEED={BASE_SEED} RSGEN_PARITY_CASES={CASES}" + (
        " RSGEN_PARITY_PLAIN=1" if PLAIN else ""
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was compared, and every excuse with its margin."""
    processors = sys.modules.get("test_live_processors")
    if processors is not None and processors.COUNTS:
        terminalreporter.section(f"logits processors of transformers {processors.transformers.__version__}")
        for name, (rows, excused) in processors.COUNTS.items():
            by_rounding = f", {excused} decided by the rounding of float32" if excused else ""
            terminalreporter.write_line(f"{name}: {rows} rows equal{by_rounding}")
    for module, what in (
        ("test_live_every_family", "families of models"),
        ("test_live_formats", "formats of weights"),
    ):
        tables = sys.modules.get(module)
        if tables is not None and tables.COUNTS:
            terminalreporter.section(f"{what} in transformers {tables.transformers.__version__}")
            for line in tables.rows():
                terminalreporter.write_line(line)
    excuse = sys.modules.get("excuse")
    if excuse is None or not (excuse.LEDGER.tokens or excuse.LEDGER.positions):
        return
    ledger = excuse.LEDGER
    terminalreporter.section("parity with transformers")
    terminalreporter.write_line(f"{ledger.tokens} tokens compared, {len(ledger.excused)} differences excused")
    for line in ledger.excused:
        terminalreporter.write_line(f"  {line}")
    terminalreporter.write_line(
        f"logits at {ledger.positions} positions compared: {ledger.excused_positions} beyond the tolerance,"
        f" but as near to float64 as transformers; prompts without such use {ledger.worst_logit:.2f} of it"
    )
