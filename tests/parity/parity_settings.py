"""Settings of the live tests, from the environment."""

from __future__ import annotations

import os
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASES = int(os.environ.get("RSGEN_PARITY_CASES", "12"))
BASE_SEED = int(os.environ.get("RSGEN_PARITY_SEED") or time.time()) % 2**31
#: Draw weights exactly as transformers initialises them: ill-conditioned, see `build_model`.
PLAIN = os.environ.get("RSGEN_PARITY_PLAIN", "") not in ("", "0")
