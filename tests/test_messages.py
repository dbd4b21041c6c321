"""What calls say about values that they cannot take: the argument, the rule, what was given, and no word of what is
inside rsgen."""

import dataclasses
import pickle
import re

import numpy as np
import pytest
import rsgen

PROMPT = "Once upon a time"
USER = {"role": "user", "content": "Hi"}
#: Words of the implementation.
FOREIGN = re.compile(
    r"Option<|regex parse error|lookarounds|RegexAst|OverflowError|usize|serde|panicked|i64|u32"
)


@dataclasses.dataclass
class Animal:
    name: str


class Model(Animal):
    pass


def call(**fields):
    return lambda gen: gen.generate(PROMPT, max_new_tokens=2, **fields)


def with_limit(**fields):
    return lambda gen: gen.generate(PROMPT, **fields)


CASES = {
    # Limits of -1, 0 and parts.
    "max_new_tokens=-1": (
        with_limit(max_new_tokens=-1),
        "`max_new_tokens` must be an integer of 1 or more, but is -1",
    ),
    "max_new_tokens=0": (with_limit(max_new_tokens=0), "`max_new_tokens` must be 1 or more, but is 0"),
    "max_new_tokens=2.5": (
        with_limit(max_new_tokens=2.5),
        "`max_new_tokens` must be an integer of 1 or more",
    ),
    "max_length=-1": (with_limit(max_length=-1), "`max_length` must be an integer of 1 or more, but is -1"),
    "max_length=0": (
        with_limit(max_length=0),
        "`max_length` counts the prompt and must be more than its 5 tokens",
    ),
    "max_time=-1": (call(max_time=-1), "`max_time` must be a number of seconds of 0 or more, but is -1.0"),
    "num_beams=-1": (call(num_beams=-1), "`num_beams` must be an integer of 1 or more, but is -1"),
    "num_beams=0": (call(num_beams=0), "`num_beams` must be 1 or more, but is 0"),
    "num_beam_groups=-1": (call(num_beam_groups=-1), "`num_beam_groups` must be an integer of 1 or more"),
    "num_return_sequences=-1": (
        call(num_return_sequences=-1),
        "`num_return_sequences` must be an integer of 1 or",
    ),
    "prefill_chunk_size=-1": (
        call(prefill_chunk_size=-1),
        "`prefill_chunk_size` must be an integer of 1 or more",
    ),
    "num_assistant_tokens=-1": (
        call(num_assistant_tokens=-1),
        "`num_assistant_tokens` must be an integer of 1 or",
    ),
    "top_k=-1": (call(top_k=-1), "`top_k` must be an integer of 0 or more, but is -1"),
    "top_logprobs=-1": (call(top_logprobs=-1), "`top_logprobs` must be an integer of 0 or more, but is -1"),
    "score": (
        lambda gen: gen.score(PROMPT, top_logprobs=-1),
        "`top_logprobs` must be an integer of 0 or more",
    ),
    "num_threads": (lambda _: rsgen.Generator(num_threads=-1), "`num_threads` must be 1 or more, got -1"),
    "kv_cache_bytes": (
        lambda _: rsgen.Generator(kv_cache_bytes=-1),
        "`kv_cache_bytes` must be 1 or more, got -1",
    ),
    # Object arrays.
    "object array": (
        lambda gen: gen.generate(np.array([1, "a"], dtype=object)),
        "token ids must be integers, got 'a' (str) at position 1",
    ),
    "object array of the tokenizer": (
        lambda gen: gen.tokenizer(np.array([1, 2], dtype=object)),
        "text 0: a tokenizer takes a text or a list of texts, got 1",
    ),
    # Classes where objects are meant.
    "processor": (
        call(logits_processor=[rsgen.processors.TopKLogitsWarper]),
        "`logits_processor` must be an object, got the class TopKLogitsWarper",
    ),
    "one processor": (
        call(logits_processor=rsgen.processors.TopKLogitsWarper),
        "`logits_processor` must be an object",
    ),
    "criterion": (
        call(stopping_criteria=[rsgen.stopping_criteria.MaxLengthCriteria]),
        "`stopping_criteria` must be an object, got the class MaxLengthCriteria",
    ),
    "constraint": (
        call(num_beams=2, constraints=rsgen.constraints.PhrasalConstraint),
        "`constraints` must be an object, got the class PhrasalConstraint",
    ),
    "streamer": (
        call(streamer=rsgen.TextStreamer),
        "`streamer` must be an object, got the class TextStreamer",
    ),
    "watermark": (
        call(watermarking_config=rsgen.WatermarkingConfig),
        "`watermarking_config` must be",
    ),
    "configuration": (
        call(generation_config=rsgen.GenerationConfig),
        "`generation_config` must be an object, got the class GenerationConfig",
    ),
    "assistant": (call(assistant_model=rsgen.Generator), "`assistant_model` must be a Generator or None"),
    "cache": (call(past_key_values=rsgen.KeptCache), "`past_key_values` must be a KeptCache"),
    "prompt": (lambda gen: gen.generate(str), "a prompt must be a text, token ids"),
    "catalogue": (call(allowed_sequences=rsgen.TokenTrie), "`allowed_sequences` must be a TokenTrie, got"),
    "entry": (
        lambda _: rsgen.TokenTrie([[5], 6]),
        "entry 1: an entry must be a text or token ids, got 6 (int)",
    ),
    "stop": (call(stop_strings=str), "`stop_strings` must be a text or a list of texts"),
    # Dataclasses.
    "schema of a dataclass": (
        call(json_schema=Animal),
        "pydantic.TypeAdapter(Animal).json_schema() makes a schema",
    ),
    "schema of an object": (
        call(json_schema=Model("a")),
        "pydantic.TypeAdapter(Model).json_schema() makes a schema",
    ),
    "class without a form": (
        call(output_type=Model("a")),
        "`output_type`: Model(name='a') has no form in JSON; use a dataclass",
    ),
    "schema of a type": (
        call(json_schema=int),
        "`json_schema` must be a JSON schema or a pydantic model, got the class",
    ),
    "dataclass": (call(generation_config=Animal("a")), "`generation_config` must be a GenerationConfig"),
    # Names, paths and nothing where something else is meant.
    "dtype": (lambda _: rsgen.Generator(dtype="nope"), '`dtype` must be "auto" or one of'),
    "compat": (call(compat="nope"), '`compat` must be "4.49" or "5.23"'),
    "model": (lambda _: rsgen.Generator("nope"), "nope: there is neither a folder"),
    "home": (lambda _: rsgen.Generator("~/nope"), '"~/nope": only a shell expands `~`'),
    "number": (
        lambda _: rsgen.Generator(3),
        "`model` must be a folder, the id of a model in the Hub cache, or None",
    ),
    "assistant name": (
        call(assistant_model="~"),
        "`assistant_model` must be a Generator or None, got '~' (str)",
    ),
    "adapter": (lambda _: rsgen.Generator(adapter="nope"), "`adapter`: nope: there is neither a folder"),
    "text for messages": (lambda gen: gen.chat("Hi"), "a conversation must be a list of messages"),
    "no content": (
        lambda gen: gen.chat([{"role": "user"}]),
        'message 0 has no `content`; give it a text, "" for none: chat template, line 1: ',
    ),
    "content of None": (
        lambda gen: gen.apply_chat_template([USER, {"role": "user", "content": None}]),
        "message 1 has no `content`",
    ),
    "use_mtp": (call(use_mtp=True), "`use_mtp` is not possible in this version"),
    "tokenizer": (call(tokenizer=object()), "`tokenizer` must be a tokenizer or None, got"),
    # Grammars.
    "look-around": (call(regex="(?<=a)b"), "`regex` cannot be followed: look-around"),
    "anchor": (call(regex="a^b"), "`regex` cannot be followed: `^` or `$` stands within"),
    "pattern of a rule": (
        call(grammar="start: /(a/"),
        "`grammar` cannot be followed: line 1, /(a/: unclosed group",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_message_names_the_argument_the_rule_and_the_value(gen, case):
    run, message = CASES[case]
    with pytest.raises((rsgen.RsgenError, TypeError, ValueError)) as raised:
        run(gen)
    assert message in str(raised.value)
    assert not FOREIGN.search(str(raised.value))


#: The strategies as methods, with what they need.
STRATEGIES = {
    "generate": {},
    "greedy_search": {},
    "sample": {"seed": 1},
    "beam_search": {"num_beams": 2},
    "beam_sample": {"num_beams": 2, "seed": 1},
    "group_beam_search": {"num_beams": 2, "num_beam_groups": 2, "diversity_penalty": 0.5},
    "constrained_beam_search": {"num_beams": 2, "force_words_ids": [[5]]},
    "contrastive_search": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low"},
    "prompt_lookup": {"prompt_lookup_num_tokens": 2},
    "assisted_decoding": {},
}
#: What may go wrong with the second of two prompts.
WRONG_PROMPTS = {
    "type": [PROMPT, 3],
    "no id": [[1, 2], [3, "a"]],
    "id beyond the vocabulary": [[1, 2], [10**6]],
    "id beyond the vocabulary in an array": np.array([[1, 2], [3, 10**6]]),
    "too long": [PROMPT, "a " * 5000],
    "surrogate": [PROMPT, "\ud800"],
}
WRONG_CONVERSATIONS = {
    "no conversation": [[USER], 3],
    "no message": [[USER], [3]],
    "no content": [[USER], [{"role": "user"}]],
    "endless": [[USER], [{"role": "user", "content": "a " * 20000}]],
}
#: Calls whose list has a wrong second entry, and how the message begins.
LISTS = {
    f"{name}: {case}": (
        lambda gen, name=name, prompts=prompts: getattr(gen, name)(
            prompts,
            max_new_tokens=1,
            **STRATEGIES[name],
            **({"assistant_model": gen} if name == "assisted_decoding" else {}),
        ),
        "prompt 1",
    )
    for name in STRATEGIES
    for case, prompts in WRONG_PROMPTS.items()
}
LISTS |= {
    f"{name}: {case}": (lambda gen, name=name, prompts=prompts: getattr(gen, name)(prompts), beginning)
    for name, beginning in {"prefill": "prompt 1", "embed": "prompt 1", "score": "(prompt|text) 1"}.items()
    for case, prompts in WRONG_PROMPTS.items()
    # Embeddings have no limit of length, and `score` takes no array of two dimensions.
    if (name, case) not in {("embed", "too long"), ("score", "id beyond the vocabulary in an array")}
}
LISTS |= {
    f"{name}: {case}": (lambda gen, call=call, prompts=prompts: call(gen, prompts), beginning)
    for name, call, beginning, others in (
        ("rank", lambda gen, given: gen.rank([5], given), "(prompt|candidate) 1", ()),
        # Labels are texts.
        (
            "classify",
            lambda gen, given: gen.classify([5], given),
            "(prompt|candidate) 1",
            ("no id", "id beyond the vocabulary"),
        ),
        ("pooled", lambda gen, given: gen.embed(given, pooling="last"), "(prompt|text) 1", ()),
        # It has no limit of length.
        ("perplexity", lambda gen, given: gen.perplexity(given), "(prompt|text) 1", ("too long",)),
    )
    for case, prompts in WRONG_PROMPTS.items()
    if case not in {*others, "id beyond the vocabulary in an array"}
}
LISTS |= {
    f"{name}: {case}": (lambda gen, name=name, given=given: getattr(gen, name)(given), "prompt 1")
    for name in ("chat", "apply_chat_template")
    for case, given in WRONG_CONVERSATIONS.items()
    if (name, case) != ("apply_chat_template", "endless")
}
LISTS |= {
    f"map: {case}": (lambda gen, prompts=prompts: list(gen.map(prompts, max_new_tokens=1)), "row 1")
    for case, prompts in WRONG_PROMPTS.items()
}
LISTS |= {
    "forward": (lambda gen: gen.forward([[1, 2], [3, 10**6]]), "prompt 1"),
    "inputs_embeds": (
        lambda gen: gen.generate(
            inputs_embeds=[
                np.zeros((2, gen.config["hidden_size"]), "f4"),
                np.full((2, gen.config["hidden_size"]), np.nan, "f4"),
            ]
        ),
        "prompt 1",
    ),
    "tokenizer": (lambda gen: gen.tokenizer([PROMPT, 3]), "text 1"),
    "batch_decode": (lambda gen: gen.tokenizer.batch_decode([[1, 2], [1, "a"]]), "row 1"),
    "decode": (lambda gen: gen.tokenizer.decode([[1, 2], 3]), "row 1"),
}
LISTS |= {
    f"TokenTrie: {case}": (lambda gen, given=given: rsgen.TokenTrie(given, tokenizer=gen), "entry 1")
    for case, given in {
        **{case: WRONG_PROMPTS[case] for case in ("type", "no id", "surrogate")},
        "empty": ["a", ""],
        "twice": ["a", "a"],
    }.items()
}
LISTS |= {
    "payload": (lambda gen: rsgen.TokenTrie([[1], [2]], payload=[1, {2}]), "payload 1"),
}


@pytest.mark.parametrize("case", LISTS)
def test_an_error_of_a_list_names_the_entry(gen, case):
    run, beginning = LISTS[case]
    with pytest.raises((rsgen.RsgenError, TypeError), match=rf"^{beginning}[: ]") as raised:
        run(gen)
    if "prompt" in beginning or ("row" in beginning and case.startswith("map")):
        assert raised.value.prompt_index == 1
        assert pickle.loads(pickle.dumps(raised.value)).prompt_index == 1


#: Errors about a prompt that say so in a sentence of their own, and errors that are about no prompt of several.
PROMPT_INDICES = {
    "padding": (
        lambda gen: gen.generate(np.array([[5, 6], [0, 0]]), attention_mask=np.array([[1, 1], [0, 0]])),
        1,
    ),
    "padding of embeddings": (
        lambda gen: gen.generate(
            inputs_embeds=np.zeros((2, 2, gen.config["hidden_size"]), "f4"),
            attention_mask=np.array([[1, 1], [0, 0]]),
        ),
        1,
    ),
    "too long in an array": (lambda gen: gen.generate(np.full((2, 5000), 5)), 0),
    "several arrays": (
        lambda gen: gen.generate(
            inputs_embeds=[
                np.zeros((2, gen.config["hidden_size"]), "f4"),
                np.zeros((2, 2, gen.config["hidden_size"]), "f4"),
            ]
        ),
        1,
    ),
    "in the middle": (
        lambda gen: gen.generate(
            [[1, 2]] * 3, max_new_tokens=3, logits_processor=[lambda ids, _: np.zeros(len(ids))]
        ),
        0,
    ),
    "alone": (lambda gen: gen.generate([10**6]), None),
    "of one": (lambda gen: gen.generate(np.full((1, 5000), 5)), None),
    "a field": (lambda gen: gen.generate([PROMPT, PROMPT], top_p=5), None),
    "a model": (lambda gen: rsgen.Generator("nope"), None),
    "rows of tokens": (lambda gen: gen.generate(["prompt 3: a", "b"], num_beams=0), None),
}


@pytest.mark.parametrize("case", PROMPT_INDICES)
def test_an_error_has_the_index_of_its_prompt_as_data(gen, case):
    run, index = PROMPT_INDICES[case]
    with pytest.raises(rsgen.RsgenError) as raised:
        run(gen)
    assert raised.value.prompt_index == index, raised.value


def test_every_method_that_takes_a_list_of_prompts_is_in_the_table():
    names = {case.split(":")[0] for case in LISTS}
    # Their prompts go through `generate`, or are single ones.
    others = {"translate", "summarize", "stream", "astream", "stream_chat", "stats", "close"}
    others |= {"submit", "agenerate", "achat", "ascore"}
    others |= {"from_pretrained", "from_tensors", "load_adapter", "unload_adapter", "inspect"}
    methods = {
        name for name, value in vars(rsgen.Generator).items() if callable(value) and not name.startswith("_")
    }
    assert methods - others <= names, methods - others - names


def test_numbers_of_numpy_are_numbers(gen):
    plain = gen.generate(PROMPT, max_new_tokens=4, num_beams=2, seed=3, do_sample=True, top_k=5).texts
    fields = {
        "max_new_tokens": np.int64(4),
        "num_beams": np.int32(2),
        "seed": np.uint64(3),
        "top_k": np.uint8(5),
    }
    assert gen.generate(PROMPT, do_sample=np.bool_(True), **fields).texts == plain
    assert gen.tokenizer.decode(np.int64(5)) == gen.tokenizer.decode(5)
    assert gen.generate(PROMPT, eos_token_id=np.array([1, 2]), max_new_tokens=2).texts
    assert gen.score(PROMPT, top_logprobs=np.int8(2)) is not None
