"""The watch over transformers: `tools/upstream/`, on packages made up here."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "upstream" / "watch.py"

OLD = '''
"""A module."""
TABLE = {"a": 1}


def kept(a):
    """What it does."""
    return a  # as it is


def changed(a):
    return a


class Kind:
    limit: int = 3

    def gone(self):
        return 1

    def inner(self):
        def deep():
            """A word."""
            return 1

        return deep()


def unwatched():
    return 1
'''
NEW = (
    OLD.replace('"""What it does."""', '"""Other words."""')
    .replace("return a  # as it is", "return (\n        a\n    )")
    .replace('"""A word."""', '"""Another."""')
    .replace("def changed(a):\n    return a", "def changed(a):\n    return a + 0")
    .replace("def gone", "def came")
    .replace("limit: int = 3", "limit: int = 4")
    .replace("def unwatched():\n    return 1", "def unwatched():\n    return 2")
)
MIRRORS = """\
inner/module.py kept ours.rs
inner/module.py changed ours.rs
inner/module.py TABLE tables.rs
inner/module.py Kind kinds/
whole.py * ours.rs
lost.py it lost.rs
"""


@pytest.fixture
def watch():
    spec = importlib.util.spec_from_file_location("watch", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(folder, version, module, whole):
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (folder / "inner" / "module.py").write_text(module)
    (folder / "whole.py").write_text(whole)
    return folder


def test_what_changed_is_named_with_the_file_that_mirrors_it(watch, tmp_path):
    (tmp_path / "mirrors.txt").write_text(MIRRORS)
    old = package(tmp_path / "old", "1.0.0", OLD, "def f():\n    return 1\n")
    new = package(tmp_path / "new", "1.1.0", NEW, "def f():\n    return 1\n\n\nx = 1\n")
    watch.record(old, tmp_path)
    assert (tmp_path / "fingerprints.txt").read_text().startswith("transformers 1.0.0\n")
    assert watch.compare(old, tmp_path) == ["nothing lost.py: it matches"]
    assert watch.compare(new, tmp_path) == [
        "new     inner/module.py: Kind.came -> kinds/",
        "gone    inner/module.py: Kind.gone -> kinds/",
        "changed inner/module.py: Kind.limit -> kinds/",
        "changed inner/module.py: changed -> ours.rs",
        "new     whole.py: x -> ours.rs",
        "nothing lost.py: it matches",
    ]


def test_the_committed_list_is_of_files_that_there_are(watch):
    root = TOOL.parents[2]
    mirrors = watch.read_mirrors(TOOL.parent / "mirrors.txt")
    assert [mirror for _, _, mirror in mirrors if not (root / mirror).exists()] == []
    recorded = (TOOL.parent / "fingerprints.txt").read_text().splitlines()[1:]
    files = {line.split()[0] for line in recorded}
    assert {file for file, _, _ in mirrors} == files


def test_the_installed_version_is_the_recorded_one(watch):
    transformers = pytest.importorskip("transformers")
    recorded = (TOOL.parent / "fingerprints.txt").read_text().splitlines()[0]
    if recorded != f"transformers {transformers.__version__}":
        pytest.skip("another version is installed")
    assert watch.compare(Path(transformers.__file__).parent) == []
