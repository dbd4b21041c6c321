"""What the tests share: the digest of the job in one process, and workers that find these modules."""

import os
import sys
from pathlib import Path

import pytest

# Workers are processes of their own, which unpickle what these modules define.
paths = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "python")]
os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def expected() -> str:
    from table import alone

    return alone()
