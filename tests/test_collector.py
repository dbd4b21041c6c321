"""Python's cyclic collector may run over every object of the package at any time, and the process may end with each of them.

A class whose slots for the collector are not its own kills the process. So every public class is made in each way there is,
in a child process.
"""

import subprocess
import sys
from pathlib import Path

import collected
import pytest
import rsgen
from tiny_llama import write_detector

PROGRAM = Path(collected.__file__)
#: Several in a process: starting one takes longer than all else.
BATCHES = 6


def test_every_public_class_is_in_the_tables():
    assert {*collected.names(), *collected.BASES} == collected.public_classes()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_collector_and_the_end_of_the_process_take_every_object(batch, tmp_path):
    write_detector(tmp_path, rsgen.SynthIDTextWatermarkingConfig(5, [1, 2, 3, 4]))
    command = [sys.executable, str(PROGRAM), str(tmp_path), *collected.names()[batch::BATCHES]]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, f"after {run.stdout.split()[-1:]}: {run.returncode}\n{run.stderr[-3000:]}"
