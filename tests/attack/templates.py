"""Draws chat templates by grammar: every statement, operator, filter, test, method and function, on operands of every size."""

from __future__ import annotations

import random
from collections.abc import Iterator

import rsgen

from attack.children import Step
from attack.values import CHARS, NUMBERS

FILTERS = (
    "abs attr batch bool capitalize center chain count d default dictsort e escape filesizeformat first float forceescape format groupby "
    "indent int items join last length lines list lower map max min pprint random reject rejectattr replace reverse round safe "
    "select selectattr slice sort split string striptags sum title tojson trim truncate unique upper urlencode urlize wordcount "
    "wordwrap xmlattr zip"
).split()
TESTS = (
    "boolean callable defined divisibleby endingwith eq equalto escaped even false filter float ge gt in integer iterable le lessthan "
    "lower lt mapping ne none number odd sameas sequence startingwith string test true undefined upper"
).split()
METHODS = (
    "capitalize casefold center count encode endswith expandtabs find format get index isalnum isalpha isdigit islower isspace istitle "
    "isupper items join keys ljust lower lstrip partition pop removeprefix removesuffix replace rfind rindex rjust rpartition rsplit "
    "rstrip split splitlines startswith strip swapcase title translate update upper values zfill append copy __class__ __init__"
).split()
FUNCTIONS = "range dict namespace raise_exception strftime_now cycler joiner lipsum loop caller super debug m1".split()
OPERATORS = [*"+ - * / // % ** ~ == != < <= > >= and or in".split(), "not in", "is", "|"]
KEYWORDS = "width sep fillchar maxsplit old new count length killwords end leeway indent separators sort_keys attribute reverse d default by".split()
TEXT_SIZES = [0, 1, 3, 40, 1000, 100_000]


class Grammar:
    """Writes templates."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def constant(self) -> str:
        rng = self.rng
        kind = rng.random()
        if kind < 0.25:
            return str(rng.choice([*NUMBERS, rng.randint(-3, 12)]))
        if kind < 0.35:
            return rng.choice(["true", "false", "none", "''", "[]", "{}", "()", "undefined_name"])
        if kind < 0.5:
            return repr(
                rng.choice(
                    [
                        "a",
                        " ",
                        "%s",
                        "%d",
                        "%999999999d",
                        "%.999999999f",
                        "{}",
                        "{:>99999999}",
                        ",",
                        "a.b.c",
                        "%(a)s",
                        "0",
                        "\\n",
                    ]
                )
            )
        if kind < 0.6:
            return repr(rng.choice([*CHARS[:6], "ab"]) * rng.choice([1, 10, 1000]))
        return rng.choice(
            [
                "v0",
                "v1",
                "v2",
                "v3",
                "v4",
                "v5",
                "v6",
                "v7",
                "messages",
                "messages[0]",
                "messages[0].content",
                "ns.x",
                "ns.y",
                "x",
                "loop.index",
            ]
        )

    def expression(self, depth: int = 0) -> str:
        rng = self.rng
        if depth > 4 or rng.random() < 0.2:
            return self.constant()
        inner = lambda: self.expression(depth + 1)  # noqa: E731
        kind = rng.randrange(12)
        if kind < 3:
            return f"({inner()} {rng.choice(OPERATORS[:-2])} {inner()})"
        if kind < 6:
            return f"({inner()}|{rng.choice(FILTERS)}{self.arguments(depth)})"
        if kind < 8:
            return f"({inner()}).{rng.choice(METHODS)}{self.arguments(depth) or '()'}"
        if kind == 8:
            return f"({inner()} is {rng.choice(['', 'not '])}{rng.choice(TESTS)}{self.arguments(depth)})"
        if kind == 9:
            return f"{rng.choice(FUNCTIONS)}{self.arguments(depth) or '()'}"
        if kind == 10:
            return rng.choice(
                [
                    f"[{inner()}, {inner()}]",
                    f"({inner()}, {inner()})",
                    f"{{{inner()}: {inner()}}}",
                    f"({inner()} if {inner()} else {inner()})",
                    f"(not {inner()})",
                    f"(-{inner()})",
                ]
            )
        return rng.choice(
            [
                f"({inner()})[{inner()}]",
                f"({inner()})[{inner()}:{inner()}]",
                f"({inner()})[::{inner()}]",
                f"({inner()}).{rng.choice(['a', 'x', 'content'])}",
            ]
        )

    def arguments(self, depth: int) -> str:
        rng = self.rng
        if rng.random() < 0.25:
            return ""
        given = [self.expression(depth + 1) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
        if rng.random() < 0.2:
            given.append(f"{rng.choice(KEYWORDS)}={self.expression(depth + 1)}")
        return f"({', '.join(given)})"

    def hammer(self) -> str:
        """One operation, many times, whose result is thrown away or kept."""
        rng = self.rng
        operand = rng.choice(
            ["v0", "v0", "v0", "v6", "v1", "v2", "v3", "v4", "v7", "messages", "'ab' * 5000"]
        )
        simple = [
            "v0",
            "v6",
            "'a'",
            "''",
            "'ab'",
            "5",
            "-1",
            "0",
            "999999999",
            "v1",
            "v3",
            "'%999999d'",
            "'a,,,,,,,,'",
            "true",
        ]
        given = [rng.choice(simple) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
        if rng.random() < 0.3:
            given.append(f"{rng.choice(KEYWORDS)}={rng.choice(simple)}")
        arguments = f"({', '.join(given)})"
        operation = rng.choice(
            [
                f"({operand}|{rng.choice(FILTERS)}{arguments})",
                f"({operand}).{rng.choice(METHODS)}{arguments}",
                f"({operand} {rng.choice(OPERATORS[:-2])} {rng.choice([operand, *simple])})",
                f"({rng.choice(simple)} {rng.choice(OPERATORS[:-2])} {operand})",
                f"({operand} is {rng.choice(TESTS)}{arguments if given else ''})",
                f"({operand})[{rng.choice(['1:', ':-1', '::2', '::-1', '5', ':9999999'])}]",
            ]
        )
        use = rng.choice(
            [
                f"{{% set x = {operation} %}}",
                f"{{{{ {operation}|length }}}}",
                f"{{% if {operation} %}}{{% endif %}}",
                f"{{% set ns.y = [ns.y, {operation}] %}}",
                f"{{% set ns.x = ns.x ~ {operation} %}}",
                f"{{{{ {operation} }}}}",
            ]
        )
        return f"{{% for i in range({rng.choice([100, 10_000, 100_000])}) %}}{use}{{% endfor %}}"

    def body(self, depth: int = 0) -> str:
        rng = self.rng
        return "".join(self.statement(depth) for _ in range(rng.choice([1, 1, 2, 3])))

    def statement(self, depth: int) -> str:
        rng, expression = self.rng, self.expression
        if depth > 3:
            return f"{{{{ {expression(2)} }}}}"
        inner = lambda: self.body(depth + 1)  # noqa: E731
        return rng.choice(
            [
                lambda: f"{{{{ {expression()} }}}}",
                lambda: f"{{{{ {expression()} }}}}",
                lambda: f"{{% set x = {expression()} %}}",
                lambda: f"{{% set ns.x = {expression()} %}}",
                lambda: f"{{% set ns.y = ns.y {rng.choice(['~', '+', '*'])} {expression(2)} %}}",
                lambda: f"{{% set x %}}{inner()}{{% endset %}}",
                lambda: f"{{% for x in {expression(1)} %}}{inner()}{{% endfor %}}",
                lambda: f"{{% for x in range({rng.choice([3, 100, 100_000])}) %}}{inner()}{{% endfor %}}",
                lambda: (
                    f"{{% for x in messages if {expression(2)} %}}{inner()}{{% else %}}{inner()}{{% endfor %}}"
                ),
                lambda: f"{{% if {expression(1)} %}}{inner()}{{% else %}}{inner()}{{% endif %}}",
                lambda: f"{{% filter {rng.choice(FILTERS)} %}}{inner()}{{% endfilter %}}",
                lambda: (
                    f"{{% macro m1(x) %}}{inner()}{{{{ m1(x ~ x) }}}}{{% endmacro %}}{{{{ m1({expression(2)}) }}}}"
                ),
                lambda: f"{{% call(x) m1({expression(2)}) %}}{inner()}{{% endcall %}}",
                lambda: "".join(f"{{% set x = x {rng.choice(['~', '+'])} x %}}" for _ in range(40)),
                lambda: rng.choice(["text", "{# c #}", "{% raw %}{{{% endraw %}", "{%", "{{ (", "{% end %}"]),
            ]
        )()


def case(seed: int, count: int) -> Iterator[Step]:
    """Some templates with a conversation."""
    rng = random.Random(seed)
    tokenizer_model = rsgen.Generator(num_threads=1, kv_cache_bytes=1 << 23)
    for index in range(count):
        source = "{% set ns = namespace(x='ab', y='') %}" + (
            Grammar(rng).hammer() if rng.random() < 0.6 else Grammar(rng).body()
        )
        size = rng.choice(TEXT_SIZES)
        word = rng.choice(["a", "ab ", "é", "<|x|>", "\n", "%s", "."])
        values: dict[str, object] = {
            "v0": word * size,
            "v1": [word] * min(size, 10_000),
            "v2": list(range(min(size, 10_000))),
            "v3": {f"k{key}": key for key in range(min(size, 3000))},
            "v4": [[word] * 10] * min(size, 1000),
            "v5": rng.choice(NUMBERS[:20]),
            "v6": word * 1000,
            "v7": [{"a": word, "b": [key]} for key in range(min(size, 1000))],
        }
        values = {name: value for name, value in values.items() if name in source}
        messages = [{"role": "user", "content": word * size}] * rng.choice([1, 1, 2, 20])

        def render(source: str = source, messages: list = messages, values: dict = values) -> None:
            tokenizer_model.apply_chat_template(messages, chat_template=source, tokenize=False, **values)

        yield f"template {seed}.{index}: {source}", render
