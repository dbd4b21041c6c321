"""The watch over transformers: `tools/upstream/`, on packages made up here."""

import ast
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


#: What 5.24 changed of what rsgen computes, in words and by the functions that the watch names.
CHANGES_OF_5_24 = {
    "beam sampling sorts what it has drawn": ("_get_top_k_continuations", "search/beam/candidates.rs"),
    "beam search": ("GenerationMixin._beam_search", "search/beam/mod.rs"),
    "the batch id of prefix functions": ("GenerationMixin._get_logits_processor", ".rs"),
    "the words of streamers": ("TextStreamer.put", "_streamer.py"),
    "`cache` in outputs and arguments": ("GenerationMixin.generate", ".rs"),
    "an empty `batch_decode`": ("PreTrainedTokenizerBase.batch_decode", "tokenizer.rs"),
    "SentencePiece models without a class": ("_convert_from_sentencepiece", "sentencepiece/llama.rs"),
    "pieces and merges of SentencePiece": ("SentencePieceExtractor.extract", ".rs"),
    "masks of the assistant's tokens": ("_cached_compile_jinja_template", "chat_template/"),
    "how stop strings are found": ("_stop_string_get_matching_positions", "stop_strings.rs"),
}


def test_the_changes_of_5_24_are_found(watch):
    folder = TOOL.parent
    lines = [line.split() for line in (folder / "5.23-5.24.txt").read_text().splitlines()[1:]]
    known, now = ({(line[0], line[1]): line[n] for line in lines if line[n] != "-"} for n in (2, 3))
    recorded = (folder / "fingerprints.txt").read_text().splitlines()[0]
    if recorded == "transformers 5.24.0":
        fingerprints = watch.read_fingerprints(folder / "fingerprints.txt")
        assert {key: fingerprints[key] for key in now} == now
    changes = watch.differences(known, now, watch.read_mirrors(folder / "mirrors.txt"), {})
    assert len(changes) == len(lines) > 50
    for what, (name, mirror) in CHANGES_OF_5_24.items():
        assert any(f"{name} -> " in line and line.endswith(mirror) for line in changes), what


def test_a_fingerprint_is_that_of_the_code_in_each_version_of_python(watch):
    tree = ast.parse(
        'def f(a, *, b=1) -> int:\n    """Words."""\n    return [f"{a!r:>{b}}", b"", None, 2.5, ...]\n'
    )
    assert watch.fingerprint(tree.body[0]) == "17a95a4e5fd8c734"
