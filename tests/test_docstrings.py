"""What Python itself says of the package: docstrings, signatures, and the names that complete."""

import doctest
import inspect
import re

import numpy as np
import pytest
import rsgen
from rsgen import constraints, processors, stopping_criteria

MODULES = [rsgen, processors, constraints, stopping_criteria]
FIELDS = [name for name, value in vars(rsgen.GenerationConfig).items() if isinstance(value, property)]
METHODS = ["generate", "stream", "astream", "chat", "stream_chat", "greedy_search", "beam_search", "sample"]


def public_items():
    """Every public class and function of the package with its name, and their public methods and properties."""
    for module in MODULES:
        for name in module.__all__:
            item = getattr(module, name)
            if not callable(item):
                continue
            yield f"{module.__name__}.{name}", item
            for member in dir(item) if isinstance(item, type) else []:
                base = np.ndarray if issubclass(item, np.ndarray) else OSError
                if not member.startswith("_") and not hasattr(base, member):
                    yield f"{module.__name__}.{name}.{member}", inspect.getattr_static(item, member)


ITEMS = dict(public_items())


def test_the_walk_finds_the_package():
    assert len(ITEMS) > 200
    assert {
        "rsgen.Generator.beam_search",
        "rsgen.GenerationConfig.top_p",
        "rsgen.Usage.prompt_tokens",
    } <= set(ITEMS)


@pytest.mark.parametrize("name", ITEMS)
def test_a_docstring_says_what_it_is(name):
    doc = inspect.getdoc(ITEMS[name])
    assert doc, name
    sentence = doc.split("\n\n")[0].replace("\n", " ")
    if inspect.isdatadescriptor(ITEMS[name]):
        kind, sentence = sentence.split(": ", 1)
        assert re.fullmatch(r"[\w\[\], .|\"]+", kind), f"{name} begins with its type, not with {kind!r}"
    assert re.fullmatch(r"[A-Z`].* .*\.", sentence), f"{name}: {sentence!r} is no sentence"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is_and_completes_its_public_names_alone(module):
    assert module.__doc__.endswith(".\n") or ">>>" in module.__doc__
    assert set(module.__all__) <= set(dir(module))
    assert not {"Any", "TYPE_CHECKING"} & set(dir(module))


@pytest.mark.parametrize("name", METHODS)
def test_a_signature_names_every_field(name, gen):
    for method in (getattr(rsgen.Generator, name), getattr(gen, name)):
        parameters = inspect.signature(method).parameters
        assert set(FIELDS) <= set(parameters)
        assert all(parameters[field].kind is inspect.Parameter.KEYWORD_ONLY for field in FIELDS)
        assert "fields" not in parameters


def test_the_signatures_of_a_configuration_name_every_field():
    config = rsgen.GenerationConfig
    for function in (config, config.update, config().update, config.from_pretrained):
        assert set(FIELDS) <= set(inspect.signature(function).parameters)


def test_methods_stay_methods(gen):
    assert gen.generate.__self__ is gen
    assert gen.generate.__name__ == "generate"
    assert inspect.isroutine(rsgen.Generator.generate)
    assert (
        rsgen.Generator.generate(gen, [5, 6], max_new_tokens=2).texts
        == gen.generate([5, 6], max_new_tokens=2).texts
    )
    with pytest.raises(AttributeError, match="banana"):
        _ = gen.generate.banana


EXAMPLES = {
    name: doctest.DocTestParser().get_examples(inspect.getdoc(item) or "") for name, item in ITEMS.items()
}


@pytest.mark.parametrize("name", [name for name, examples in EXAMPLES.items() if examples])
def test_examples_run(name, gen):
    if "chat" in name or "astream" in name:
        pytest.skip("it needs a chat model or an event loop")
    values = {"rsgen": rsgen, "gen": gen}
    for example in EXAMPLES[name]:
        if "rsgen.Generator()" not in example.source:
            exec(example.source, values)


@pytest.mark.parametrize(
    ("name", "twin"),
    [("submit", "generate"), ("agenerate", "generate"), ("achat", "chat"), ("ascore", "score")],
)
def test_a_method_for_threads_and_loops_has_the_parameters_of_the_plain_one(name, twin):
    own, other = (
        list(inspect.signature(getattr(rsgen.Generator, method)).parameters) for method in (name, twin)
    )
    assert own == other
