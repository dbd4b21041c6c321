"""The package: what it brings, and how quickly."""

import importlib.metadata
import json
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import rsgen
from rsgen import types as rsgen_types
from stopwatch import not_longer
from tiny_llama import llama_tensors, write_safetensors


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_importing_takes_less_than_50_ms_of_computing_and_leaves_numpy_alone():
    program = """
import sys, time
before = set(sys.modules)
start = time.process_time()
import rsgen
rsgen.Generator  # the extension, too
taken = time.process_time() - start
assert "numpy" not in sys.modules, "numpy is imported at its first use"
print(taken)
"""
    not_longer(min(float(run(program)) for _ in range(5)), 0.05)


def test_text_needs_no_numpy():
    program = """
import sys
import rsgen
gen = rsgen.Generator()
text = gen.generate("Once upon a time", max_new_tokens=5).text
assert text == "".join(token.text for token in gen.stream("Once upon a time", max_new_tokens=5))
assert "numpy" not in sys.modules
"""
    run(program)


def test_every_name_is_documented_and_says_where_it_is_from():
    assert set(rsgen.__all__) <= set(dir(rsgen))
    for name in rsgen.__all__:
        value = getattr(rsgen, name)
        if isinstance(value, type):
            assert value.__module__ == "rsgen", name
            assert value.__doc__, name


def test_the_version_is_that_of_the_package():
    assert rsgen.__version__ == importlib.metadata.version("rsgen")


def test_types_for_annotations_can_be_imported():
    assert all(hasattr(rsgen_types, name) for name in rsgen_types.__all__)


def test_the_log_comes_out_of_pythons_loggers(make_llama, caplog):
    folder = make_llama()
    config = json.loads((folder / "config.json").read_text())
    tensors = llama_tensors(config, np.random.default_rng(0)) | {
        "no.such.tensor": np.zeros(1, dtype=np.float32)
    }
    write_safetensors(folder / "model.safetensors", tensors)
    with caplog.at_level(logging.DEBUG, logger="rsgen"):
        rsgen.Generator(folder, num_threads=1)
    records = [record for record in caplog.records if "no.such.tensor" in record.getMessage()]
    assert [record.levelno for record in records] == [logging.WARNING]
    assert records[0].name.startswith("rsgen.")


def test_a_call_is_one_line_of_the_log(gen, caplog):
    with caplog.at_level(logging.DEBUG, logger="rsgen"):
        gen.generate([[5, 6, 7], [8]], num_beams=2, max_new_tokens=4)
        list(gen.stream([5, 6], max_new_tokens=3))
        gen.stream([5, 6]).close()
    lines = [record.getMessage() for record in caplog.records if record.name == "rsgen"]
    assert all(record.levelno == logging.DEBUG for record in caplog.records)
    for line, beginning, end in zip(
        lines,
        [
            "generate: 2 rows, 4 prompt tokens (",
            "stream: 1 rows, 2 prompt tokens (",
            "stream: 1 rows, 2 prompt tokens (",
        ],
        ["finished by length", "finished by length", "finished by cancelled"],
        strict=True,
    ):
        assert line.startswith(beginning), line
        assert line.endswith(end), line


def test_threads_and_instruction_set_are_shown(gen):
    assert gen.num_threads == 2
    x86, arm = ("avx512_bf16", "avx512", "avx_vnni", "avx2"), ("neon_bf16", "neon_dotprod", "neon")
    assert gen.isa in (*x86, *arm, "scalar")
    environment = {**os.environ, "RSGEN_NUM_THREADS": "1"}
    program = "import rsgen; print(rsgen.Generator().num_threads)"
    shown = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "1\n"


def test_classes_that_calls_give_cannot_be_made_by_hand():
    for name in (
        "GenerationOutput",
        "GeneratedRow",
        "TokenStream",
        "StreamedToken",
        "CacheStats",
        "KeptCache",
        "Usage",
        "DraftStats",
        "RankedCandidate",
        "Timings",
        "ToolCall",
    ):
        with pytest.raises(TypeError, match=r"No constructor defined|cannot create"):
            getattr(rsgen, name)()


def test_another_interpreter_of_the_process_is_refused_with_a_sentence():
    program = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import rsgen

other = interpreters.create()
interpreters.run_string(other, '''
try:
    from rsgen import Generator
except ImportError as error:
    print(error, flush=True)
''')
interpreters.destroy(other)
print(rsgen.Generator().generate("One day", max_new_tokens=1).usage.generated_tokens)
"""
    assert run(program) == "rsgen runs in the main interpreter alone; use threads or processes of it\n1\n"
    # Also where nothing of it is used, and its modules alone are imported.
    for statement in (
        "import rsgen",
        "import rsgen.types",
        "import rsgen.integrations",
        "import rsgen._rsgen",
    ):
        run_there = program.replace("from rsgen import Generator", statement)
        assert run(run_there) == run(program), statement
    unused = program.replace("\nimport rsgen\n", "\n").replace("from rsgen import Generator", "import rsgen")
    unused = unused[: unused.index("print(rsgen")]
    assert run(unused) == "rsgen runs in the main interpreter alone; use threads or processes of it\n"
