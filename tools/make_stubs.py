"""Writes the stubs, the types and the page that are made from the extension.

    python tools/make_stubs.py

`make stubs` builds the extension first, and a test compares the files. Names, signatures, defaults and docstrings are the
module's; types are `name (type): …` under `Args:`, `type: …` under `Returns:` and in the first line of a property.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import types
from collections.abc import Iterable
from inspect import Parameter
from pathlib import Path
from typing import Any

import processors_page
from rsgen import _rsgen
from stub_heads import HEAD, IMPORTS

ROOT = Path(__file__).resolve().parents[1]
#: What stands around the part of a file that is made.
BEGIN, END = "# Made by tools/make_stubs.py: begin", "# Made by tools/make_stubs.py: end"
#: The longest line, as in pyproject.toml.
WIDTH = 110

Table = list[dict[str, Any]]
#: A parameter: its name and stars, its type, and its default or nothing.
Argument = tuple[str, str, str]

TABLES: dict[str, Table] = _rsgen._tables()
FIELDS = {field["name"] for field in TABLES["fields"]}

#: Methods that Python has slots for. It documents them itself, and their signatures say nothing.
SLOTS = {
    "__eq__": "def __eq__(self, other: object, /) -> bool: ...",
    "__ne__": "def __ne__(self, other: object, /) -> bool: ...",
    "__len__": "def __len__(self) -> int: ...",
    "__getitem__": "def __getitem__(self, key: Any, /) -> Any: ...",
    "Tokenizer.__call__": """def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        text_target: str | Sequence[str] | None = None,
        add_special_tokens: bool = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Literal["left", "right"] | None = None,
        return_tensors: Literal["np"] | None = None,
        return_attention_mask: bool | None = None,
        return_token_type_ids: Literal[False] | None = None,
        return_offsets_mapping: bool = False,
    ) -> BatchEncoding: ...""",
    "TokenTrie.__getitem__": "def __getitem__(self, index: SupportsIndex, /) -> list[int]: ...",
    "TokenTrie.__iter__": "def __iter__(self) -> Iterator[list[int]]: ...",
    "TokenTrie.__contains__": "def __contains__(self, entry: str | Ids, /) -> bool: ...",
    "GenerationOutput.__iter__": "def __iter__(self) -> Iterator[GeneratedRow]: ...",
    "GenerationOutput.__contains__": "def __contains__(self, key: object, /) -> bool: ...",
    "GenerationOutput.__getitem__": """@overload
    def __getitem__(self, key: SupportsIndex, /) -> GeneratedRow: ...
    @overload
    def __getitem__(self, key: Any, /) -> Any: ...""",
    "__setattr__": "def __setattr__(self, name: str, value: Any, /) -> None: ...",
    "BuiltInLogitsProcessor.__call__": """def __call__(
        self,
        input_ids: ArrayLike,
        scores: ArrayLike,
        current_tokens: ArrayLike | None = None,
        beam_group_idx: int = 0,
    ) -> NDArray[np.float32]: ...""",
    "WatermarkDetector.__call__": """@overload
    def __call__(
        self, input_ids: Ids | Sequence[Ids], z_threshold: float = 3.0, return_dict: Literal[False] = False
    ) -> NDArray[np.bool_]: ...
    @overload
    def __call__(
        self, input_ids: Ids | Sequence[Ids], z_threshold: float = 3.0, *, return_dict: Literal[True]
    ) -> WatermarkDetectorOutput: ...""",
    "SynthIDTextWatermarkDetector.__call__": (
        "def __call__(self, tokenized_outputs: Ids | Sequence[Ids]) -> NDArray[np.float32]: ..."
    ),
    "BuiltInStoppingCriteria.__call__": """def __call__(
        self, input_ids: ArrayLike, scores: ArrayLike | Sequence[ArrayLike] | None = None
    ) -> NDArray[np.bool_]: ...""",
    "EventStream.__iter__": "def __iter__(self) -> Self: ...",
    "EventStream.__next__": "def __next__(self) -> GenerationEvent: ...",
    "TokenStream.__iter__": "def __iter__(self) -> PythonGenerator[StreamedToken, None, GenerationOutput[_T_co]]: ...",
    "TokenStream.__next__": "def __next__(self) -> StreamedToken: ...",
    "TokenStream.__aiter__": "def __aiter__(self) -> Self: ...",
    "TokenStream.__anext__": "def __anext__(self) -> Future[StreamedToken]: ...",
}

#: Classes that behave as another without being derived from it.
BASES = {
    "GenerationOutput": "Generic[_T_co]",
    "TokenStream": "PythonGenerator[StreamedToken, None, GenerationOutput[_T_co]]",
}

#: The arguments of conversations that become plain ids or texts.
PLAIN = {"return_tensors": "None", "return_dict": "Literal[False]"}
#: Methods whose result depends on the types of their arguments: those types, and the result.
OVERLOADS = {
    "Generator.apply_chat_template": [
        *(
            (
                {"conversation": given, "tokenize": f"Literal[{tokenize}]", **PLAIN},
                f"list[{returned}]" if given.startswith("Seq") else returned,
            )
            for given in ("Conversation", "Sequence[Conversation]")
            for tokenize, returned in ((True, "list[int]"), (False, "str"))
        ),
        ({"return_tensors": 'Literal["np"]', "return_dict": "Literal[False]"}, "NDArray[np.int64]"),
        ({"return_dict": "Literal[True]"}, "BatchEncoding"),
    ],
    "Tokenizer.apply_chat_template": [
        *(
            (
                {"conversation": given, **PLAIN},
                f"list[{returned}]" if given.startswith("Seq") else returned,
            )
            for given in ("Conversation", "Sequence[Conversation]")
            for returned in ("list[int]",)
        ),
        ({"conversation": "Conversation", "tokenize": "Literal[False]"}, "str"),
        ({"conversation": "Sequence[Conversation]", "tokenize": "Literal[False]"}, "list[str]"),
        ({"return_tensors": 'Literal["np"]', "return_dict": "Literal[False]"}, "NDArray[np.int64]"),
        ({"tokenize": "Literal[True]", "return_dict": "Literal[True]"}, "BatchEncoding"),
    ],
    "Tokenizer.encode": [
        ({"return_tensors": "None"}, "list[int]"),
        ({"return_tensors": 'Literal["np"]'}, "NDArray[np.int64]"),
    ],
    "Tokenizer.decode": [
        ({"token_ids": "int | np.integer[Any] | Ids"}, "str"),
        ({"token_ids": "Sequence[Ids]"}, "list[str]"),
    ],
    "Generator.forward": [
        (
            {"output_hidden_states": "Literal[False]", "output_attentions": "Literal[False]"},
            "NDArray[np.float32]",
        ),
        ({"output_hidden_states": "Literal[True]", "output_attentions": "bool"}, "ModelOutput"),
        ({"output_hidden_states": "bool", "output_attentions": "Literal[True]"}, "ModelOutput"),
    ],
    "Generator.prefill": [
        ({"prompt": "str | Ids | None"}, "KeptCache"),
        ({"prompt": "list[str] | tuple[str, ...] | Sequence[Ids]"}, "list[KeptCache]"),
    ],
    "Generator.embed": [
        ({"ids": "str | Ids", "pooling": "None"}, "NDArray[np.float32]"),
        (
            {"ids": "list[str] | tuple[str, ...] | Sequence[Ids]", "pooling": "None"},
            "list[NDArray[np.float32]]",
        ),
        ({"pooling": 'Literal["mean", "last", "cls"]'}, "NDArray[np.float32]"),
    ],
    "Generator.score": [
        ({"text": "str | Ids", "top_logprobs": "None"}, "NDArray[np.float32]"),
        (
            {"text": "list[str] | tuple[str, ...] | Sequence[Ids]", "top_logprobs": "None"},
            "list[NDArray[np.float32]]",
        ),
        ({"text": "str | Ids", "top_logprobs": "int"}, "TokenScores"),
        ({"text": "list[str] | tuple[str, ...] | Sequence[Ids]", "top_logprobs": "int"}, "list[TokenScores]"),
    ],
}


def extension_stub() -> str:
    """The stub of the extension module."""
    names = "".join(f'    "{name}",\n' for name in sorted(_rsgen.__all__))
    items = ["__version__: str\n"]
    for name in _rsgen.__all__:
        item = getattr(_rsgen, name)
        if isinstance(item, type):
            items.append(class_stub(item))
        elif callable(item):
            items.append(function_stub(name, item, documented_types(item), ""))
    return f"{HEAD}\n__all__ = [\n{names}]\n\n" + "\n".join(items)


def class_stub(cls: type) -> str:
    """A class with its constructor, methods and properties."""
    name, own = cls.__name__, vars(cls)
    bases = [base.__name__ for base in cls.__bases__ if base is not object]
    bases = [BASES[name]] if name in BASES else bases
    members = []
    # By name: the order of a class that is written in several files is up to the linker.
    methods = [own[name] for name in sorted(own) if is_method(own[name])]
    if "__signature__" in own:
        members.append("    __signature__: ClassVar[Signature]\n")
    if "__new__" in own:
        members.append(function_stub("__new__", cls, documented_types(cls), "    "))
    for member_name in sorted(own, key=lambda name: (not is_method(own[name]), name)):
        member = own[member_name]
        inherited = member_name in dir(cls.__base__) and not member.__doc__
        if is_method(member) and not inherited and (member_name[0] != "_" or member_name[-1] == "_"):
            members.append(method_stub(cls, member_name, member, methods))
        elif inspect.isdatadescriptor(member) and not member_name.startswith("__"):
            members.append(property_stub(cls, member_name, member))
    slots = (SLOTS.get(f"{name}.{slot}", SLOTS.get(slot)) for slot in sorted(own))
    members.extend(f"    {slot}\n" for slot in slots if slot)
    if own.get("__hash__", True) is None:
        members.append("    __hash__: None  # type: ignore[assignment]\n")
    body = docstring(cls.__doc__, "    ") + ("\n" if members else "") + "".join(members)
    header = f"class {name}({', '.join(bases)}):" if bases else f"class {name}:"
    return f"{decorator(cls)}{header}\n{body}"


def decorator(cls: type) -> str:
    """What type checkers have to know of classes that nobody may derive from, or only from one of them."""
    if not cls.__flags__ & 1 << 10:
        return "@final\n"
    differs = cls.__base__ is not None and cls.__basicsize__ != cls.__base__.__basicsize__
    return "@disjoint_base\n" if differs and not issubclass(cls, BaseException) else ""


def is_method(member: object) -> bool:
    """Whether a member of a class is a function of the extension's, and no slot of Python's."""
    if isinstance(member, types.WrapperDescriptorType | types.BuiltinFunctionType | staticmethod):
        return False
    return isinstance(member, classmethod) or (callable(member) and inspect.isroutine(member))


def method_stub(cls: type, name: str, member: Any, methods: list[Any]) -> str:
    """A method. Parameters that it does not describe are those of other methods, or of the constructor."""
    is_class_method = isinstance(member, classmethod | types.ClassMethodDescriptorType)
    function = member.__func__ if isinstance(member, classmethod) else member
    described = documented_types(function, *([cls] if is_class_method else methods))
    decorators = "    @classmethod\n" if is_class_method else ""
    overloads = OVERLOADS.get(f"{cls.__name__}.{name}")
    if not overloads:
        return decorators + function_stub(name, function, described, "    ")
    stubs = [
        function_stub(name, function, described | changed, "    ", returns) for changed, returns in overloads
    ]
    return "".join(f"    @overload\n{decorators}{stub}" for stub in stubs)


def property_stub(cls: type, name: str, member: Any) -> str:
    """A property, whose docstring begins with its type."""
    found = re.match(r"([^\n]+?): (.*)", member.__doc__ or "", re.DOTALL)
    if not found:
        raise SystemExit(f"error: the docstring of {cls.__name__}.{name} must begin with a type and a colon")
    line = f"    def {name}(self) -> {found[1]}:"
    if len(line) > WIDTH:
        line = f"    def {name}(\n        self,\n    ) -> {found[1]}:"
    stub = f"    @property\n{line}\n{docstring(found[2], '        ')}"
    if "It can be set" in found[2]:
        stub += f"    @{name}.setter\n    def {name}(self, value: {found[1]}, /) -> None: ...\n"
    return stub


def function_stub(name: str, function: Any, described: dict[str, str], indent: str, returns: str = "") -> str:
    """A function with its types and its docstring."""
    arguments = list(arguments_of(name, function, described))
    returns = "Self" if name == "__new__" else returns or documented_result(function)
    body = docstring(function.__doc__, indent + "    ") if name[:2] != "__" else ""
    end = ":" if body else ": ..."
    return f"{signature(f'{indent}def {name}', arguments, returns, indent, end)}\n{body}"


def arguments_of(name: str, function: Any, described: dict[str, str]) -> Iterable[Argument]:
    """The parameters of a function. All fields of a configuration are one."""
    parameters = list(inspect.signature(function).parameters.values())
    fields = [parameter for parameter in parameters if parameter.name in FIELDS]
    if len(fields) == len(FIELDS):
        parameters = [parameter for parameter in parameters if parameter not in fields]
        parameters.append(Parameter("fields", Parameter.VAR_KEYWORD))
        described = described | {"fields": "Unpack[GenerationFields]"}
    first = parameters.pop(0).name if parameters and parameters[0].name in ("self", "cls", "type") else None
    if first or name == "__new__":
        yield "self" if first == "self" else "cls", "", ""
    before: Any = Parameter.POSITIONAL_OR_KEYWORD
    for parameter in parameters:
        kind = parameter.kind
        described_as = described.get(parameter.name)
        if (
            described_as in ("Literal[False]", "int", 'Literal["np"]')
            and (parameter.default is True or parameter.default is None)
        ) or (described_as == "Literal[True]" and parameter.default is False):
            # Another value than the default has to be given, by its name.
            parameter, kind = parameter.replace(default=Parameter.empty), Parameter.KEYWORD_ONLY
        elif parameter.default is None and described_as and not re.search(r"None|Any|DType", described_as):
            parameter = parameter.replace(default=Parameter.empty)
        if before is Parameter.POSITIONAL_ONLY and kind is not before:
            yield "/", "", ""
        if kind is Parameter.KEYWORD_ONLY and before not in (kind, Parameter.VAR_POSITIONAL):
            yield "*", "", ""
        if parameter.name not in described:
            raise SystemExit(f"error: the docstring of {name} must describe `{parameter.name}` under `Args:`")
        stars = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(kind, "")
        default = "" if parameter.default is Parameter.empty else shown_default(parameter.default)
        yield stars + parameter.name, described[parameter.name], default
        before = kind
    if before is Parameter.POSITIONAL_ONLY:
        yield "/", "", ""


def shown_default(default: object) -> str:
    """A default as source code."""
    return json.dumps(default) if isinstance(default, str) else repr(default)


def signature(start: str, arguments: list[Argument], returns: str, indent: str, end: str) -> str:
    """The line of a function with its end, broken as `ruff format` breaks it."""
    shown = [
        name + (f": {kind}" if kind else "") + (f" = {default}" if default else "")
        for name, kind, default in arguments
    ]
    one_line = f"{start}({', '.join(shown)}) -> {returns}"
    if len(one_line) + len(end) <= WIDTH:
        return one_line + end
    inner = f"{indent}    {', '.join(shown)}"
    if len(inner) <= WIDTH:
        return f"{start}(\n{inner}\n{indent}) -> {returns}{end}"
    lines = "".join(f"{indent}    {argument},\n" for argument in shown)
    return f"{start}(\n{lines}{indent}) -> {returns}{end}"


def section(item: Any, title: str) -> str:
    """A section of the docstring of a class or function."""
    doc = (item.__func__ if isinstance(item, classmethod) else item).__doc__ or ""
    found = re.search(rf"^{title}:\n((?:    .*\n?|\n)*)", doc, re.MULTILINE)
    return found[1] if found else ""


def documented_types(*items: Any) -> dict[str, str]:
    """The types of parameters by their names. The first docstring that describes one counts."""
    found: dict[str, str] = {}
    for item in items:
        for name, kind in re.findall(r"^    \*{0,2}(\w+) \((.+?)\):", section(item, "Args"), re.MULTILINE):
            found.setdefault(name, kind.replace("rsgen.", ""))
    return found


def documented_result(function: Any) -> str:
    """The type of what a function returns."""
    found = re.match(r" {4}(.+?): ", section(function, "Returns").replace("\n        ", " "))
    return found[1] if found else "None"


def docstring(doc: str | None, indent: str) -> str:
    """A docstring, in several lines if it has them."""
    if not doc:
        return ""
    text = "\n".join(indent + line if line else "" for line in doc.strip().split("\n")).lstrip()
    text = text.replace("\\", "\\\\")
    return f'{indent}"""{text}\n{indent}"""\n' if "\n" in text else f'{indent}"""{text}"""\n'


def classes_stub(name: str) -> str:
    """The stub of a module of the package whose classes are made from a table."""
    module = importlib.import_module(f"rsgen.{name}")
    classes = "\n".join(_class(entry, module) for entry in TABLES[name.strip("_")])
    public = "".join(f"    {json.dumps(name)},\n" for name in sorted(getattr(module, "__all__", [])))
    names = f"\n__all__ = [\n{public}]\n" if public else ""
    doc = (module.__doc__ or "").strip().split("\n")[0]
    return f'"""{doc}\n\nMade by tools/make_stubs.py.\n"""\n{IMPORTS[name]}{names}\n{classes}'


def _class(entry: dict[str, Any], module: types.ModuleType) -> str:
    """A class: its doc, its constructor, and its properties."""
    arguments = [
        f"{argument['name']}: {_accepted(argument['type'])}" + _default(argument)
        for argument in entry["arguments"]
    ]
    if entry.get("has_device"):
        arguments.append('device: Literal["cpu"] = "cpu"')
    if "switch" in entry:
        arguments += ["*", 'compat: Literal["4.49", "5.23"] | None = None']
    signature = "".join(f"        {argument},\n" for argument in ["cls", *arguments])
    cls = getattr(module, entry["class"])
    of_arguments = {argument["name"]: argument["type"] for argument in entry["arguments"]}
    properties = [name for name, member in vars(cls).items() if isinstance(member, property)]
    return (
        f"class {entry['class']}({', '.join(base.__name__ for base in cls.__bases__)}):\n"
        f"{docstring(entry['doc'], '    ')}\n"
        "    __signature__: ClassVar[Signature]\n\n"
        f"    def __new__(\n{signature}    ) -> Self: ...\n"
        + "".join(
            f"    @property\n    def {name}(self) -> {of_arguments[name]}: ...\n"
            if name in of_arguments
            else property_stub(cls, name, getattr(cls, name))
            for name in properties
        )
    )


def _default(argument: dict[str, Any]) -> str:
    if "default" not in argument:
        return ""
    default = argument["default"]
    return " = -math.inf" if default == float("-inf") else f" = {shown_default(default)}"


def _accepted(annotation: str) -> str:
    """What may be given where a value of this type is kept: any sequence for a list, and numpy's integers."""
    kept = annotation.replace("list[", "Sequence[")
    # Keys of a dict have its own types; and lists of lists are long enough.
    return (
        kept if "dict[" in kept or kept.count("Sequence[") > 1 else re.sub(r"\bint\b", "SupportsIndex", kept)
    )


def field_types(fields: Table) -> str:
    """The entries of `GenerationFields`."""
    return "".join(f"    {field['name']}: {_accepted(field['type'])} | None\n" for field in fields)


def _between(text: str, content: str) -> str:
    """The text with another part between the two marks."""
    pattern = re.compile(rf"(?<=    {re.escape(BEGIN)}\n).*?(?=    {re.escape(END)}\n)", re.DOTALL)
    changed, count = pattern.subn(lambda _: content, text)
    if count != 1:
        raise SystemExit(f"error: {BEGIN!r} and {END!r} must stand in the file once each, got {count}")
    return changed


def files() -> dict[Path, str]:
    """Every file that is made, as it has to be."""
    package = ROOT / "python" / "rsgen"
    types_of_fields = _between((package / "types.py").read_text(), field_types(TABLES["fields"]))
    return {
        package / "_rsgen.pyi": extension_stub(),
        **{package / f"{name}.pyi": classes_stub(name) for name in IMPORTS},
        package / "types.py": types_of_fields,
        ROOT / "docs" / "processors.md": processors_page.page(TABLES),
    }


def main() -> None:
    """Writes the files that are not as they have to be."""
    for path, text in files().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
