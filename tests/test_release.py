"""What checks a release finds what is wrong with one, and the licences of all dependencies are allowed."""

import importlib.util
import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


licences, sdists = tool("check_licences"), tool("check_sdist")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("GPL-3.0 AND MIT", False),
        ("GPL-3.0/MIT", True),
        ("GPL-3.0 AND MIT OR MIT", True),
        ("GPL-3.0 AND (MIT OR Zlib)", False),
        ("(GPL-3.0 OR MIT) AND Zlib", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("Apache-2.0", False),
    ],
)
def test_an_expression_of_licences_is_met_or_not(expression, expected):
    allowed = {"MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"}
    assert licences.is_allowed(expression, allowed) is expected


@pytest.mark.parametrize("expression", ["", "MIT OR", "(MIT", "MIT Zlib", "MIT)"])
def test_what_is_no_expression_is_an_error(expression):
    with pytest.raises(ValueError, match="is no SPDX expression"):
        licences.is_allowed(expression, {"MIT"})


def test_packages_with_other_licences_and_sources_are_found():
    package = {"name": "a", "version": "1.0.0", "license": "MIT", "source": "registry+x"}
    assert licences.faults([package, {**package, "source": None}], {"MIT"}) == []
    wrong = [{**package, "license": None}, {**package, "license": "GPL-3.0"}, {**package, "source": "git+x"}]
    assert [len(licences.faults([package], {"MIT"})) for package in wrong] == [1, 1, 1]


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_the_licences_of_all_dependencies_are_allowed():
    run = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "check_licences.py")], capture_output=True, text=True
    )
    assert (run.returncode, run.stdout.endswith(" packages: no faults\n")) == (0, True), (
        run.stdout + run.stderr
    )


def archive(path, names):
    with tarfile.open(path, "w:gz") as out:
        for name in names:
            out.addfile(tarfile.TarInfo(f"rsgen-1.0.0/{name}"), io.BytesIO())
    return path


def test_an_archive_that_lacks_files_or_holds_others_is_refused(tmp_path):
    path = tmp_path / "rsgen-1.0.0.tar.gz"
    assert sdists.faults(archive(path, sdists.REQUIRED)) == []
    assert sdists.faults(archive(path, sdists.REQUIRED - {"Cargo.lock"})) == ["Cargo.lock is missing"]
    for name in ("python/rsgen/_rsgen.abi3.so", "tests/__pycache__/a.txt"):
        assert sdists.faults(archive(path, {*sdists.REQUIRED, name})) == [f"{name} does not belong in it"]
    with (
        tarfile.open(archive(path, sdists.REQUIRED), "r:gz") as whole,
        tarfile.open(tmp_path / "x", "w:gz") as out,
    ):
        for member in whole:
            out.addfile(member, whole.extractfile(member))
        out.addfile(tarfile.TarInfo("elsewhere.txt"), io.BytesIO())
    (tmp_path / "x").replace(path)
    assert sdists.faults(path) == ["elsewhere.txt must be a plain file below rsgen-1.0.0/"]


def test_a_container_takes_the_files_of_the_package():
    """What Cargo reads is not left out by .dockerignore: the manifest names these folders."""
    ignored = (ROOT / ".dockerignore").read_text().split()
    manifest = (ROOT / "Cargo.toml").read_text()
    assert 'path = "benches/' in manifest
    for name in (
        "Cargo.toml",
        "Cargo.lock",
        "src",
        "benches",
        "examples",
        "tests",
        "docs",
        "README.md",
        "LICENSE",
    ):
        assert f"!/{name}" in ignored
