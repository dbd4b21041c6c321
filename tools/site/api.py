"""The pages of Python's API: each public name of the package has its place in one of them."""

from __future__ import annotations

import ast

from repository import ROOT

#: The pages, with the names that they show. What a module adds must be added here: the build fails otherwise.
PAGES = {
    "Generator": ["rsgen.Generator"],
    "GenerationConfig": ["rsgen.GenerationConfig"],
    "Outputs": [
        f"rsgen.{name}"
        for name in ("GenerationOutput", "GeneratedRow", "Usage", "Timings", "DraftStats", "ToolCall")
    ],
    "Streams": [f"rsgen.{name}" for name in ("TokenStream", "EventStream", "StreamedToken", "TextStreamer")],
    "Tokenizer": ["rsgen.Tokenizer"],
    "Scores and states": [f"rsgen.{name}" for name in ("TokenScores", "RankedCandidate", "ModelOutput")],
    "Rows": ["rsgen.RowResults"],
    "Caches, catalogues and seeds": [
        f"rsgen.{name}" for name in ("KeptCache", "CacheStats", "TokenTrie", "Seed")
    ],
    "Watermarks": [
        f"rsgen.{name}"
        for name in (
            "WatermarkingConfig",
            "SynthIDTextWatermarkingConfig",
            "WatermarkDetector",
            "WatermarkDetectorOutput",
            "SynthIDTextWatermarkDetector",
            "BayesianDetectorModel",
        )
    ],
    "Functions": ["rsgen.pack", "rsgen.serve"],
    "Errors": [
        f"rsgen.{name}Error"
        for name in (
            "Rsgen",
            "Config",
            "Input",
            "Load",
            "Capacity",
            "Parse",
            "Callback",
            "Cancelled",
            "Fork",
            "Numerical",
            "Internal",
        )
    ],
}
#: Modules that have a page with all that they make public.
MODULES = ["constraints", "processors", "stopping_criteria", "types"]
#: Modules that have one for themselves, with their functions.
INTEGRATIONS = ["dask", "lm_eval", "ray", "spark"]


def pages() -> dict[str, str]:
    """The pages by their places."""
    shown = [name for names in PAGES.values() for name in names]
    public = {f"rsgen.{name}" for name in names_of("__init__")} - {"rsgen.__version__"}
    if public != set(shown) or len(shown) != len(public):
        raise SystemExit(f"error: tools/site/api.py must show once: {sorted(public ^ set(shown))}")
    made = {}
    for title, names in PAGES.items():
        # The page of one class has its name as its title.
        made[_place(title)] = _page(title, names)
    for module in MODULES:
        names = [f"rsgen.{module}.{name}" for name in names_of(module)]
        made[_place(module)] = _page(f"rsgen.{module}", names)
    made[_place("integrations")] = _page(
        "rsgen.integrations", [f"rsgen.integrations.{name}" for name in INTEGRATIONS]
    )
    return made


def _place(title: str) -> str:
    return f"reference/python/{title.lower().replace(',', '').replace(' ', '_')}.md"


def _page(title: str, names: list[str]) -> str:
    return "\n".join([f"# {title}", "", *(f"::: {name}\n" for name in names)])


def names_of(module: str) -> list[str]:
    """What a module's `__all__` lists."""
    stub = ROOT / "python" / "rsgen" / f"{module}.pyi"
    path = stub if stub.exists() else stub.with_suffix(".py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    raise SystemExit(f"error: {path} must have __all__, written as a list")


def members() -> list[str]:
    """The public methods and attributes of the extension's public classes, by the stub."""
    public = set(names_of("__init__"))
    stub = ast.parse((ROOT / "python" / "rsgen" / "_rsgen.pyi").read_text(encoding="utf-8"))
    classes = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name in public]
    found = {
        f"rsgen.{node.name}.{member.name}": None
        for node in classes
        for member in node.body
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and not member.name.startswith("_")
    }
    return list(found)
