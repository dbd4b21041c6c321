"""The driver of `make nightly`: its plan, its report, and that it goes on after a failure."""

import sys
from pathlib import Path

import pytest

NIGHTLY = Path(__file__).parents[1] / "tools" / "nightly"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it runs make and shells")


@pytest.fixture
def nightly(monkeypatch, tmp_path):
    """The driver, with parts that take no time."""
    if not NIGHTLY.is_dir():
        pytest.skip("the tools are not there")
    monkeypatch.syspath_prepend(str(NIGHTLY))
    import importlib.util

    spec = importlib.util.spec_from_file_location("nightly_main", NIGHTLY / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    part = module.Part

    def quick(name, command, **more):
        return part(name, 0.25, lambda seed, seconds: command, (r"(\d+) done",), "things", builds="", **more)

    parts = [
        quick("bad", "echo 4 done; echo 'error: it broke'; exit 3"),
        quick("good", "echo 3 done; echo 4 done"),
        quick("idle", "true"),
        quick("absent", "true", missing=lambda: "there is no such thing here"),
        quick("long", "echo 1 done", takes=3600),
        quick(
            "fuzz target", "echo 9 done; echo 'Test unit written to fuzz/artifacts/target/crash-1'; exit 1"
        ),
    ]
    monkeypatch.setattr(module, "all_parts", lambda _: parts)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    return module


def test_a_night_goes_on_after_a_failure_and_reports_what_did_not_run(nightly, tmp_path, capsys):
    assert nightly.main(["--hours", "0.01", "--seed", "7"]) == 3
    report = (tmp_path / "report.md").read_text()
    assert "seed 7" in report
    rows = {line.split(" | ")[0].strip("| "): line for line in report.splitlines() if line.startswith("| ")}
    assert "4 things" in rows["bad"]
    assert "found something" in rows["bad"]
    assert "| 8 |" in rows["good"]
    assert "7 things | ok" in rows["good"]
    assert "did nothing" in rows["idle"]
    assert "not run: there is no such thing here" in rows["absent"]
    assert "not run: it takes 60 minutes, of which this run has 0.1" in rows["long"]
    assert "error: it broke" in report
    assert "target/fuzz/*/fuzz/target fuzz/artifacts/target/crash-1" in report
    assert "good: " in capsys.readouterr().out


def test_the_hours_are_shared_among_what_runs(nightly):
    runs, left_out = nightly.planned(nightly.all_parts(""), 3600 * 100)
    seconds = {part.name: seconds for part, seconds in runs}
    assert seconds.pop("long") == 3600
    assert set(seconds.values()) == {(3600 * 99) // 4}
    assert [one.name for one in left_out] == ["absent"]


def test_a_part_that_hangs_is_ended_and_found(nightly, tmp_path):
    code, log = nightly.shell("echo begun; sleep 60", tmp_path / "log", timeout=0.5)
    assert (code, log) == (None, "begun\n")
    assert nightly.findings(log, code)[0] == "it did not end in its time"


def test_every_fuzz_target_has_its_turn(nightly):
    import parts

    names = [part.name for part in parts.all_parts("python3")]
    targets = {f"fuzz {path.stem}" for path in (parts.ROOT / "fuzz" / "fuzz_targets").glob("*.rs")}
    assert targets <= set(names)
    assert len(names) == len(set(names))
    for part in parts.all_parts("python3"):
        assert part.command(3, 60).strip(), part.name
        assert part.counted, part.name
