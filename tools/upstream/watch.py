"""Says which functions of transformers that rsgen mirrors are others in another version, and the files that mirror them.

    python tools/upstream/watch.py compare FOLDER    # the package `transformers` of the other version
    python tools/upstream/watch.py record FOLDER     # writes fingerprints.txt, once all that changed is followed

`mirrors.txt` names the file of transformers, a function, class or table in it (`*` is all of the file), and the file that
mirrors it. A fingerprint is of the syntax tree without docstrings, so neither comments nor layout count.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

HERE = Path(__file__).parent

#: The file and the name of a function, with the file that mirrors it.
Mirrors = dict[tuple[str, str], str]
Fingerprints = dict[tuple[str, str], str]


def parts_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The functions, also of classes, and the tables of a module, with their names."""
    for node in getattr(tree, "body", []):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from parts_of(node, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((prefix + target.id, node) for target in targets if isinstance(target, ast.Name))


def fingerprint(node: ast.AST) -> str:
    """The same for the same code."""
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            text = body[0].value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                body[0] = ast.Pass()
    return hashlib.sha256(dump(node).encode()).hexdigest()[:16]


def dump(value: object) -> str:
    """A syntax tree as text, the same in each version of Python: newer ones have fields that are empty here."""
    if isinstance(value, ast.AST):
        fields = ((name, inner) for name, inner in ast.iter_fields(value) if inner not in (None, []))
        return (
            f"{type(value).__name__}({', '.join(f'{name}={dump(inner)}' for name, inner in sorted(fields))})"
        )
    return f"[{', '.join(map(dump, value))}]" if isinstance(value, list) else repr(value)


def read_mirrors(path: Path) -> list[tuple[str, str, str]]:
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return [(file, name, mirror) for file, name, mirror in lines]


def found_in(package: Path, mirrors: list[tuple[str, str, str]]) -> tuple[Fingerprints, Mirrors]:
    """What a version has of all that is mirrored."""
    fingerprints: Fingerprints = {}
    places: Mirrors = {}
    for file in dict.fromkeys(file for file, _, _ in mirrors):
        path = package / file
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.exists() else ast.Module([], [])
        for name, node in parts_of(tree):
            for _, pattern, mirror in (entry for entry in mirrors if entry[0] == file):
                if fnmatch(name, pattern) or fnmatch(name, f"{pattern}.*"):
                    fingerprints[file, name] = fingerprint(node)
                    places[file, name] = mirror
                    break
    return fingerprints, places


def read_fingerprints(path: Path) -> Fingerprints:
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines()[1:])
    return {(file, name): print_ for file, name, print_ in lines}


def compare(package: Path, folder: Path = HERE) -> list[str]:
    """One line for each function that is another one, new or gone."""
    mirrors = read_mirrors(folder / "mirrors.txt")
    now, places = found_in(package, mirrors)
    changes = differences(read_fingerprints(folder / "fingerprints.txt"), now, mirrors, places)
    unmatched = [f"{file}: {name}" for file, name, _ in mirrors if not has_match(now, file, name)]
    return changes + [f"nothing {entry} matches" for entry in unmatched]


def differences(
    known: Fingerprints, now: Fingerprints, mirrors: list[tuple[str, str, str]], places: Mirrors
) -> list[str]:
    """One line for each function that is not the known one."""
    changes = []
    for key in sorted(known | now):
        if known.get(key) == now.get(key):
            continue
        what = "new" if key not in known else "gone" if key not in now else "changed"
        file, name = key
        mirror = places.get(key) or next(
            mirror for other, pattern, mirror in mirrors if other == file and fnmatch(name, f"{pattern}*")
        )
        changes.append(f"{what:8}{file}: {name} -> {mirror}")
    return changes


def has_match(now: Fingerprints, file: str, pattern: str) -> bool:
    return any(
        other == file and (fnmatch(name, pattern) or fnmatch(name, f"{pattern}.*")) for other, name in now
    )


def version_of(package: Path) -> str:
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    versions = (node.value for name, node in parts_of(tree) if name == "__version__")
    return str(next(versions).value)


def record(package: Path, folder: Path = HERE) -> None:
    """Writes down what a version has."""
    fingerprints, _ = found_in(package, read_mirrors(folder / "mirrors.txt"))
    lines = [f"transformers {version_of(package)}"]
    lines += [f"{file} {name} {print_}" for (file, name), print_ in sorted(fingerprints.items())]
    (folder / "fingerprints.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["compare", "record"])
    parser.add_argument("package", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "record":
        record(arguments.package)
        return
    recorded = (HERE / "fingerprints.txt").read_text(encoding="utf-8").splitlines()[0]
    changes = compare(arguments.package)
    print("\n".join(changes))
    print(f"{recorded} -> {version_of(arguments.package)}: {len(changes)} changes")


if __name__ == "__main__":
    main()
