"""The logits processors as Python objects, and what is made of their table."""

import copy
import importlib.util
import inspect
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import rsgen
from rsgen import processors

ROOT = Path(__file__).resolve().parents[1]
IDS = np.array([[1, 2, 1]])
SCORES = np.array([[0.5, -1.0, 2.0, 3.0, 0.0]], dtype=np.float32)

#: Arguments that make an object of each class: those of the first golden, where there is one.
ARGUMENTS = {
    "logit_bias": {"logit_bias": {3: -100.0}},
    "hamming_diversity": {"diversity_penalty": 1.0, "num_beams": 2, "num_beam_groups": 2},
    "frequency_penalty": {"frequency_penalty": 0.5},
    "thinking_token_budget": {"thinking_token_budget": 2, "think_end_token_ids": [3]},
    "presence_penalty": {"presence_penalty": 0.5},
    "prefix_constrained": {"prefix_allowed_tokens_fn": max, "num_beams": 1},
}
for case in json.loads((ROOT / "tests" / "golden" / "processors.json").read_text())["cases"]:
    ARGUMENTS.setdefault(case["processor"], case["args"])

CLASSES = [name for name in processors.__all__ if name != "LogitsProcessor"]


def arguments(name):
    return ARGUMENTS[getattr(processors, name)._entry]


def make(name):
    return getattr(processors, name)(**arguments(name))


def make_stubs():
    """The tool that writes the stubs."""
    spec = importlib.util.spec_from_file_location("make_stubs", ROOT / "tools" / "make_stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_made_of_the_tables_is_current(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    for path, text in make_stubs().files().items():
        assert path.read_text() == text, f"{path.name} is not current: run `make stubs`"


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_is_documented_and_shown_by_its_arguments(name):
    kind, made = getattr(processors, name), make(name)
    assert kind.__doc__.endswith(".")
    assert kind.__module__ == "rsgen.processors"
    assert isinstance(made, processors.LogitsProcessor)
    assert list(inspect.signature(kind).parameters)[-1] == "compat"
    assert repr(made).startswith(f"{name}(")
    assert all(f"{argument}=" in repr(made) for argument in arguments(name))


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "PrefixConstrainedLogitsProcessor"])
def test_an_object_gives_new_scores_and_so_does_its_copy(name):
    made, given = make(name), SCORES.copy()
    tokens = {"current_tokens": [1, 1], "beam_group_idx": 1} if name.startswith("Hamming") else {}
    scores = made(IDS, given, **tokens)
    assert (scores.dtype, scores.shape) == (np.float32, SCORES.shape)
    np.testing.assert_array_equal(given, SCORES)
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert repr(again) == repr(made)
        np.testing.assert_array_equal(again(IDS, SCORES, **tokens), scores)


def test_arguments_are_those_of_transformers_in_its_order():
    warper = processors.TopKLogitsWarper(1, -9.0, 2)
    np.testing.assert_array_equal(warper(IDS, SCORES), [[-9.0, -9.0, 2.0, 3.0, -9.0]])
    assert repr(warper) == "TopKLogitsWarper(top_k=1, filter_value=-9.0, min_tokens_to_keep=2)"
    assert (
        str(inspect.signature(processors.EtaLogitsWarper))
        == "(epsilon, filter_value=-inf, min_tokens_to_keep=1, device='cpu', *, compat=None)"
    )
    processors.MinLengthLogitsProcessor(1, 2, device="cpu")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: processors.TopKLogitsWarper(), TypeError, r"TopKLogitsWarper\(\): missing .*'top_k'"),
        (lambda: processors.TopKLogitsWarper(1, k=2), TypeError, "unexpected keyword argument 'k'"),
        (lambda: processors.TopKLogitsWarper(0), rsgen.ConfigError, "`top_k` must be 1 or more"),
        (lambda: processors.TopKLogitsWarper(2.5), ValueError, "`top_k` must be an integer of 0 or more"),
        (lambda: processors.TopPLogitsWarper(1.5), ValueError, "`top_p` must be a number from 0 to 1"),
        (
            lambda: processors.TopPLogitsWarper(0.5, min_tokens_to_keep=0),
            ValueError,
            "`min_tokens_to_keep` must be 1 or more",
        ),
        (
            lambda: processors.SequenceBiasLogitsProcessor({(): 1.0}),
            ValueError,
            "`sequence_bias` must give biases to sequences of one token or more",
        ),
        (
            lambda: processors.SequenceBiasLogitsProcessor({5: 1.0}),
            ValueError,
            "`sequence_bias` must be a map from tuples of token ids to numbers",
        ),
        (lambda: processors.NoBadWordsLogitsProcessor([5]), ValueError, "a list of lists of token ids"),
        (
            lambda: processors.MinLengthLogitsProcessor(1, 2, "cuda"),
            ValueError,
            '`device` must be "cpu", the only one there is',
        ),
        (
            lambda: processors.TopKLogitsWarper(1, compat="4.48"),
            ValueError,
            '`compat` must be "4.49"',
        ),
        (
            lambda: processors.PrefixConstrainedLogitsProcessor(5, 1),
            ValueError,
            "`prefix_allowed_tokens_fn` must be a function",
        ),
        (lambda: rsgen._rsgen.BuiltInLogitsProcessor(), TypeError, "the base of the processors"),
    ],
)
def test_impossible_arguments_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("ids", "scores", "message"),
    [
        ([1, 2], SCORES, r"`input_ids` must be an array of token ids, \[rows, len\]"),
        ([[1.5]], SCORES, r"`input_ids` must be an array of token ids, \[rows, len\]"),
        ([[-1]], SCORES, r"`input_ids` must be an array of token ids, \[rows, len\]"),
        ([[1], [2]], SCORES, "`input_ids` must have a row for each row of scores, but has 2 for 1"),
        ([[1]], SCORES[0], r"`scores` must be an array of numbers, \[rows, vocab_size\]"),
        ([[1]], np.zeros((1, 0)), r"`scores` must be an array of numbers, \[rows, vocab_size\]"),
        ([[1]], [["a"]], r"`scores` must be an array of numbers, \[rows, vocab_size\]"),
    ],
)
def test_arrays_of_other_shapes_are_refused(ids, scores, message):
    with pytest.raises(rsgen.InputError, match=message):
        processors.TopKLogitsWarper(1)(ids, scores)


def test_ids_and_scores_may_be_lists_and_of_any_number_type():
    warper = processors.RepetitionPenaltyLogitsProcessor(2.0)
    np.testing.assert_array_equal(warper([[1]], [[1, 4]]), [[1.0, 2.0]])
    np.testing.assert_array_equal(warper(np.array([[1]], np.uint8), np.array([[1.0, 4.0]])), [[1.0, 2.0]])
    np.testing.assert_array_equal(warper(np.zeros((1, 0)), [[1.0, 4.0]]), [[1.0, 4.0]])


def test_a_processor_in_the_list_gives_what_its_field_gives(gen):
    fields = {"max_new_tokens": 20, "do_sample": True, "seed": 3, "top_k": 0}
    expected = gen.generate("Once upon a time", **fields, top_p=0.7, temperature=1.3).sequences
    listed = [processors.TemperatureLogitsWarper(1.3), processors.TopPLogitsWarper(0.7)]
    np.testing.assert_array_equal(
        gen.generate("Once upon a time", **fields, logits_processor=listed).sequences, expected
    )
    greedy = gen.generate("Once upon a time", no_repeat_ngram_size=2, max_new_tokens=40)
    listed = processors.NoRepeatNGramLogitsProcessor(2)
    again = gen.generate("Once upon a time", logits_processor=listed, max_new_tokens=40)
    np.testing.assert_array_equal(again.sequences, greedy.sequences)


def test_a_processor_of_the_callers_replaces_its_namesake_but_with_compat(gen):
    mine = processors.RepetitionPenaltyLogitsProcessor(1.0)
    plain = gen.generate("One day", max_new_tokens=30).text
    assert gen.generate("One day", max_new_tokens=30, repetition_penalty=1.8).text != plain
    told = "RepetitionPenaltyLogitsProcessor in `logits_processor` takes the place of the one that `repetition_penalty`"
    with pytest.warns(UserWarning, match=told):
        replaced = gen.generate("One day", max_new_tokens=30, repetition_penalty=1.8, logits_processor=[mine])
    assert replaced.text == plain
    with pytest.raises(
        rsgen.ConfigError, match="no RepetitionPenaltyLogitsProcessor when `repetition_penalty`"
    ):
        gen.generate(
            "One day", max_new_tokens=30, repetition_penalty=1.8, logits_processor=[mine], compat="4.49"
        )


def test_the_same_object_twice_is_one_processor_but_with_compat(gen):
    def add_one(_, scores):
        return scores + np.float32(1)

    def first_scores(**fields):
        out = gen.generate(
            "One day",
            max_new_tokens=1,
            logits_processor=[add_one, add_one],
            output_scores=True,
            output_logits=True,
            **fields,
        )
        return out.scores[0] - out.logits[0]

    np.testing.assert_allclose(first_scores(), 1, rtol=1e-5)
    np.testing.assert_allclose(first_scores(compat="4.49"), 2, rtol=1e-5)


def test_classes_derived_by_the_caller_are_called(gen):
    class Louder(processors.LogitsProcessor):
        def __init__(self, token):
            self.token = token

        def __call__(self, input_ids, scores):
            scores[:, self.token] += 1000
            return scores

    class LeastLikely(processors.TopKLogitsWarper):
        def __call__(self, input_ids, scores):
            return super().__call__(input_ids, -scores)

    out = gen.generate("One day", max_new_tokens=3, logits_processor=Louder(7))
    assert out.sequences[0, -3:].tolist() == [7, 7, 7]
    logits = gen.forward(gen.tokenizer.encode("One day"))[0, -1]
    out = gen.generate("One day", max_new_tokens=1, logits_processor=LeastLikely(1))
    assert out.sequences[0, -1] == logits.argmin()
    with pytest.raises(NotImplementedError, match="LogitsProcessor must define __call__"):
        processors.LogitsProcessor()(IDS, SCORES)


def test_a_prefix_function_says_which_tokens_may_follow(gen):
    seen = []

    def allowed(batch_id, input_ids):
        assert (input_ids.dtype, input_ids.ndim) == (np.int64, 1)
        seen.append((batch_id, len(input_ids)))
        return {5 + batch_id, 9}

    width = len(gen.tokenizer.encode("One day"))
    fields = {"prefix_allowed_tokens_fn": allowed, "max_new_tokens": 2}
    out = gen.generate("One day", **fields)
    assert set(out.sequences[0, -2:]) <= {5, 9}
    assert seen == [(0, width), (0, width + 1)]
    out = gen.sample("One day", num_return_sequences=2, seed=1, **fields)
    assert set(out.sequences[1, -2:]) <= {5, 9}, "the rows of a prompt have its number, as in transformers"
    out = gen.sample("One day", num_return_sequences=2, seed=1, compat="5.23", **fields)
    assert set(out.sequences[1, -2:]) <= {6, 9}, (
        "a row of its own has a number of its own, as in transformers 5.23"
    )
    out = gen.generate(["One day", "One day"], **fields)
    assert all(set(row[-2:]) <= {5 + index, 9} for index, row in enumerate(out.sequences))
    token = next(gen.stream("One day", **fields))
    assert token.id in (5, 9)
    direct = processors.PrefixConstrainedLogitsProcessor(
        lambda batch_id, _: np.array([batch_id]), num_beams=1
    )
    np.testing.assert_array_equal(np.isfinite(direct([[1], [1]], np.zeros((2, 3)))), np.eye(2, 3, dtype=bool))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([], "`prefix_allowed_tokens_fn` must allow at least one token"),
        (None, "must return a list of token ids, got None"),
        ([1.5], r"must return a list of token ids, got \[1.5\]"),
        ([-1], r"must return a list of token ids, got \[-1\]"),
        ([10**6], "must return ids of the model's vocabulary"),
    ],
)
def test_answers_of_a_prefix_function_are_checked(gen, answer, message):
    with pytest.raises(rsgen.CallbackError, match=message):
        gen.generate("One day", prefix_allowed_tokens_fn=lambda *_: answer, max_new_tokens=1)
    with pytest.raises(ZeroDivisionError):
        gen.generate("One day", prefix_allowed_tokens_fn=lambda *_: 1 // 0, max_new_tokens=1)
    with pytest.raises(TypeError, match="`prefix_allowed_tokens_fn` must be a callable, got 5"):
        gen.generate("One day", prefix_allowed_tokens_fn=5)


def test_fields_of_every_shape_are_kept(tmp_path):
    config = rsgen.GenerationConfig(
        sequence_bias={(1, 2): -0.5, (3,): float("-inf")},
        logit_bias={5: 2},
        bad_words_ids=[[1], (2, 3)],
        suppress_tokens=np.array([4, 5]),
        exponential_decay_length_penalty=(3, 1.5),
        forced_eos_token_id=[1, 2],
        compat="4.49",
    )
    assert config.sequence_bias == [[[1, 2], -0.5], [[3], float("-inf")]]
    assert config.logit_bias == {5: 2.0}
    assert config.bad_words_ids == [[1], [2, 3]]
    assert config.suppress_tokens == [4, 5]
    assert config.exponential_decay_length_penalty == [3, 1.5]
    config.save_pretrained(tmp_path)
    assert rsgen.GenerationConfig.from_pretrained(tmp_path) == config
    assert rsgen.GenerationConfig.from_dict(config.to_dict()) == config
    assert rsgen.GenerationConfig(sequence_bias=config.sequence_bias) == rsgen.GenerationConfig(
        sequence_bias={(1, 2): -0.5, (3,): float("-inf")}
    )
    with pytest.raises(rsgen.ConfigError, match="`bad_words_ids` must be a list of lists of token ids"):
        rsgen.GenerationConfig(bad_words_ids=[[[[[[1]]]]]])


#: Processors that multiply scores, with the most that they multiply by.
FACTORS = {
    "temperature": (lambda p: p.TemperatureLogitsWarper(0.05), 20),
    "a high temperature": (lambda p: p.TemperatureLogitsWarper(2.0), 0.5),
    "repetition": (lambda p: p.RepetitionPenaltyLogitsProcessor(8.0), 8),
    "repetition below 1": (lambda p: p.RepetitionPenaltyLogitsProcessor(0.25), 4),
    "repetition in the prompt": (
        lambda p: p.EncoderRepetitionPenaltyLogitsProcessor(8.0, np.array([[1, 2, 3, 4]])),
        8,
    ),
    "length": (
        lambda p: p.ExponentialDecayLengthPenalty((0, 2.0), eos_token_id=1, input_ids_seq_length=1),
        2**4,
    ),
    "top-k": (lambda p: p.TopKLogitsWarper(64), 1),
    "suppressed tokens": (lambda p: p.SuppressTokensLogitsProcessor([5]), 1),
}


@pytest.mark.parametrize("name", FACTORS)
def test_what_logits_differ_by_is_multiplied_as_scores_are(name):
    make, factor = FACTORS[name]
    processor, rng, most = make(rsgen.processors), np.random.default_rng(1), 0.0
    ids = np.array([[1, 2, 3, 4, 5]])
    for _ in range(50):
        scores = rng.normal(0, 8, (1, 64)).astype(np.float32)
        # As exact as float32 can tell, and on the same side of 0.
        others = (scores * (1 + rng.choice([-1, 1], (1, 64)) * 2.0**-12)).astype(np.float32)
        one, other = processor(ids, scores), processor(ids, others)
        finite = np.isfinite(one) & np.isfinite(other)
        most = max(most, np.abs((one[finite] - other[finite]) / (scores[finite] - others[finite])).max())
    # The least of it is rounding.
    assert 0.99 * factor < most < 1.01 * factor, most
