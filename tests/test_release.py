"""What checks a release finds what is wrong with one, and the licences of all dependencies are allowed."""

import importlib.util
import io
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


licences, sdists, wheels = tool("check_licences"), tool("check_sdist"), tool("check_wheel")
WORKFLOWS = {path.name: path.read_text() for path in (ROOT / ".github" / "workflows").iterdir()}
MAKEFILE = (ROOT / "Makefile").read_text()
needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")


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


@needs_cargo
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
        "crates",
        "benches",
        "examples",
        "fuzz",
        "tests",
        "docs",
        "README.md",
        "LICENSE",
    ):
        assert f"!/{name}" in ignored


def wheel(path, names):
    with zipfile.ZipFile(path, "w") as out:
        for name in names:
            out.writestr(name, b"")
    return path


def test_a_wheel_that_lacks_files_or_holds_others_is_refused(tmp_path):
    path = tmp_path / "rsgen-1.0.0-cp310-abi3-manylinux_2_17_x86_64.whl"
    names = {*wheels.REQUIRED, "rsgen/_rsgen.abi3.so"}
    assert wheels.faults(wheel(path, names)) == []
    assert wheels.faults(wheel(path, names - {"rsgen/py.typed"})) == ["rsgen/py.typed is missing"]
    assert wheels.faults(wheel(path, names - {"rsgen/_rsgen.abi3.so"})) == [
        "it must hold one extension module, and holds []"
    ]
    assert wheels.faults(wheel(path, {*names, "rsgen/__pycache__/a.pyc"})) == [
        "rsgen/__pycache__/a.pyc does not belong in it"
    ]
    assert wheels.faults(wheel(tmp_path / "rsgen-1.0.0-cp312-cp312-linux_x86_64.whl", names)) == [
        "it is not built for the stable ABI of Python 3.10 (cp310-abi3)"
    ]


@needs_cargo
def test_the_crate_has_its_sources_and_no_data_of_tests():
    command = ["cargo", "package", "--list", "--locked", "--allow-dirty"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = set(run.stdout.replace("\\", "/").split())
    of_python_alone = {"PKG-INFO", "pyproject.toml"}
    of_python_alone |= {name for name in sdists.REQUIRED if name.endswith((".py", ".typed"))}
    of_other_crates = {name for name in sdists.REQUIRED if name.startswith("crates/")}
    assert sdists.REQUIRED - of_python_alone - of_other_crates - names == set()
    assert "tests/suite/main.rs" in names, "Cargo.toml names it"
    assert [name for name in names if name.startswith("tests/") and not name.endswith(".rs")] == []


def test_every_action_is_pinned_by_its_commit():
    for name, workflow in WORKFLOWS.items():
        actions = re.findall(r"uses: (.*)", workflow)
        assert actions, name
        for action in actions:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), f"{name}: {action}"


def test_the_workflows_build_and_test_as_make_does():
    flags = re.search(r"^RELEASE_FLAGS .*Linux.*,(--zig .*)\)$", MAKEFILE, re.MULTILINE)[1]
    rows = re.findall(r"target: (\S+-linux-gnu), options: (.*) }", WORKFLOWS["release.yml"])
    assert rows == [("x86_64-unknown-linux-gnu", flags), ("aarch64-unknown-linux-gnu", flags)]
    packages = re.search(r"^RUST_PACKAGES := (.*)$", MAKEFILE, re.MULTILINE)[1]
    assert f"cargo test --locked {packages}\n" in WORKFLOWS["ci.yml"]
    targets = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    called = {target for text in WORKFLOWS.values() for target in re.findall(r"run: make (\S+)", text)}
    assert {"lint-release", "advisories", "msrv"} <= called <= targets
