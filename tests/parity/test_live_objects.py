"""Every processor of transformers as an object: computed as there, or refused by name.

The table has arguments at their edges for each class of `logits_process.py`; a class that is not in it fails.
"""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from rsgen import _transformers  # noqa: E402
from transformers.generation import logits_process  # noqa: E402

VOCAB = 64
EOS = [[3], [3, 4]]
TABLE = {
    "MinLengthLogitsProcessor": [(length, eos) for length in (0, 3, 9) for eos in (3, *EOS)],
    "MinNewTokensLengthLogitsProcessor": [(2, new, eos) for new in (1, 2, 3) for eos in EOS],
    "TemperatureLogitsWarper": [(0.3,), (1.0,), (7.5,)],
    "RepetitionPenaltyLogitsProcessor": [(1.0,), (1.7,), (0.6,), (1.7, 2)],
    "EncoderRepetitionPenaltyLogitsProcessor": [
        (penalty, torch.tensor([[5, 6, 7], [8, 8, 9]])) for penalty in (0.3, 0.7, 1.0, 1.1, 4.9)
    ],
    "TopPLogitsWarper": [(0.0,), (0.3,), (1.0,), (0.1, -9.0, 4)],
    "TopKLogitsWarper": [(1,), (5,), (99,), (2, -9.0, 6)],
    "TopHLogitsWarper": [(0.2,), (0.9,)],
    "MinPLogitsWarper": [(0.0,), (0.2,), (1.0,), (0.9, -9.0, 4)],
    "TypicalLogitsWarper": [(0.2,), (0.9,), (0.1, -9.0, 4)],
    "EpsilonLogitsWarper": [(0.01,), (0.9,), (0.9, -9.0, 4)],
    "EtaLogitsWarper": [(0.0003,), (0.01,), (0.9,), (0.9, -9.0, 4)],
    "NoRepeatNGramLogitsProcessor": [(1,), (2,), (9,)],
    "EncoderNoRepeatNGramLogitsProcessor": [
        (size, torch.tensor([[5, 6, 5, 6, 7], [8, 8, 8, 9, 8]])) for size in (1, 2, 3, 5, 6)
    ],
    "SequenceBiasLogitsProcessor": [({(5,): -2.0, (6, 7): 9.0},), ([[[5], -2.0], [[6, 7], 9.0]],)],
    "NoBadWordsLogitsProcessor": [
        ([[7], [9]],),
        ([[7], [9]], 7),
        ([[7], [9], [7, 9]], [7, 8]),
        ([[7, 7], [9]], torch.tensor([7])),
    ],
    "PrefixConstrainedLogitsProcessor": [
        (lambda batch, ids: [batch, int(ids[-1])], beams) for beams in (1, 2)
    ],
    "ForcedBOSTokenLogitsProcessor": [(5,)],
    "ForcedEOSTokenLogitsProcessor": [(length, eos) for length in (4, 5, 9) for eos in (3, *EOS)],
    "InfNanRemoveLogitsProcessor": [()],
    "ExponentialDecayLengthPenalty": [
        ((start, factor), eos, length)
        for start in (0, 3)
        for factor in (1.5, 0.5)
        for eos in (3, *EOS)
        for length in (0, 2)
    ],
    "LogitNormalization": [()],
    "SuppressTokensAtBeginLogitsProcessor": [([5, 6], 4), ([5], 3)],
    "SuppressTokensLogitsProcessor": [([5, 6],), ([0],)],
    "WatermarkLogitsProcessor": [
        (VOCAB, "cpu", ratio, bias, 15485863, scheme, 1)
        # With fewer green tokens transformers' own self-hash fails.
        for scheme, ratios in {"lefthash": (0.04, 0.25, 0.97), "selfhash": (0.25, 0.5, 0.97)}.items()
        for ratio in ratios
        for bias in (2.0, -1.0)
    ],
    "SynthIDTextWatermarkLogitsProcessor": [
        (2, [5, 9], 64, 0, 8, "cpu"),
        (3, [5, 9, 654, 400], 1 << 16, 0, 1024, "cpu", True),
        (2, [5, 9], 64, 7, 8, "cpu"),
    ],
}
#: Not rsgen's, or read from a model.
REFUSED = {
    "AlternatingCodebooksLogitsProcessor",
    "BarkEosPrioritizerLogitsProcessor",
    "ClassifierFreeGuidanceLogitsProcessor",
    "DiaClassifierFreeGuidanceLogitsProcessor",
    "DiaEOSChannelFilterLogitsProcessor",
    "DiaEOSDelayPatternLogitsProcessor",
    "UnbatchedClassifierFreeGuidanceLogitsProcessor",
    "WhisperNoSpeechDetection",
    "WhisperTimeStampLogitsProcessor",
}
#: What cannot be told from the object.
UNREADABLE = [("SynthIDTextWatermarkLogitsProcessor", 2)]


def test_the_table_has_every_class():
    base = logits_process.LogitsProcessor
    classes = {
        name
        for name, cls in vars(logits_process).items()
        if inspect.isclass(cls) and issubclass(cls, base) and cls is not base
    }
    assert classes == TABLE.keys() | REFUSED


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in TABLE.items() for case in range(len(cases))]
)
def test_an_object_computes_what_transformers_computes(name, case):
    given = TABLE[name][case]
    theirs = getattr(logits_process, name)(*given)
    if (name, case) in UNREADABLE:
        with pytest.warns(UserWarning, match=f"give rsgen.processors.{name} made from the same arguments"):
            assert isinstance(_transformers.counterpart(theirs), _transformers.OnTensors)
        return
    random = np.random.default_rng(case)
    for _ in range(20):
        # SynthID's remembers its calls.
        theirs = getattr(logits_process, name)(*given)
        ours = _transformers.counterpart(theirs)
        ids = random.integers(5, 12, (2, 4))
        scores = random.normal(0, 3, (2, VOCAB)).astype(np.float32)
        expected = theirs(torch.from_numpy(ids), torch.from_numpy(scores.copy())).numpy()
        np.testing.assert_allclose(ours(ids, scores), expected, rtol=1e-5, atol=1e-5)


#: Attributes that were changed after an object was made: a class, a case of the table, the new values, and whether
#: rsgen can compute it. Others are computed by the object itself, with a warning.
CHANGES = [
    ("MinLengthLogitsProcessor", 1, {"min_length": 9, "eos_token_id": torch.tensor([5])}, True),
    ("MinNewTokensLengthLogitsProcessor", 0, {"prompt_length_to_skip": 1, "min_new_tokens": 9}, True),
    ("TemperatureLogitsWarper", 0, {"temperature": 2.5}, True),
    ("RepetitionPenaltyLogitsProcessor", 1, {"penalty": 3.0, "prompt_ignore_length": 1}, True),
    ("EncoderRepetitionPenaltyLogitsProcessor", 0, {"penalty": 0.25}, True),
    ("TopPLogitsWarper", 1, {"top_p": 0.8, "filter_value": -7.0, "min_tokens_to_keep": 3}, True),
    ("TopKLogitsWarper", 1, {"top_k": 2, "filter_value": -7.0}, True),
    ("TopKLogitsWarper", 3, {"top_k": 2}, True),
    ("TopKLogitsWarper", 0, {"min_tokens_to_keep": 9}, True),
    ("TopHLogitsWarper", 0, {"top_h": 0.6, "filter_value": -7.0}, True),
    ("TopHLogitsWarper", 1, {"top_n": 4}, False),
    ("MinPLogitsWarper", 1, {"min_p": 0.6, "min_tokens_to_keep": 3}, True),
    ("TypicalLogitsWarper", 0, {"mass": 0.7, "min_tokens_to_keep": 3}, True),
    ("EpsilonLogitsWarper", 0, {"epsilon": 0.1, "min_tokens_to_keep": 3}, True),
    ("EtaLogitsWarper", 1, {"epsilon": torch.tensor(0.1), "min_tokens_to_keep": 3}, True),
    ("NoRepeatNGramLogitsProcessor", 0, {"ngram_size": 2}, True),
    ("EncoderNoRepeatNGramLogitsProcessor", 1, {"ngram_size": 3}, False),
    ("EncoderNoRepeatNGramLogitsProcessor", 1, {"batch_size": 1}, False),
    ("SequenceBiasLogitsProcessor", 0, {"sequence_bias": {(8,): 4.0, (6, 7): -3.0}}, True),
    ("NoBadWordsLogitsProcessor", 0, {"sequence_bias": {(8,): 5.0}}, True),
    ("NoBadWordsLogitsProcessor", 2, {"sequence_bias": {(8,): -np.inf}, "bad_word_ids": [[1]]}, True),
    ("PrefixConstrainedLogitsProcessor", 0, {"_num_beams": 2}, True),
    ("ForcedBOSTokenLogitsProcessor", 0, {"bos_token_id": 9}, True),
    ("ForcedEOSTokenLogitsProcessor", 0, {"max_length": 5, "eos_token_id": torch.tensor([8])}, True),
    ("ExponentialDecayLengthPenalty", 0, {"regulation_start": 1, "regulation_factor": 3.0}, True),
    (
        "SuppressTokensAtBeginLogitsProcessor",
        1,
        {"begin_index": 4, "begin_suppress_tokens": torch.tensor([9])},
        True,
    ),
    ("SuppressTokensLogitsProcessor", 0, {"suppress_tokens": torch.tensor([9])}, True),
    ("WatermarkLogitsProcessor", 1, {"bias": 5.0, "greenlist_size": 9, "hash_key": 77}, True),
    ("WatermarkLogitsProcessor", 7, {"hash_key": 77}, False),
]


@pytest.mark.filterwarnings("ignore:.*computes on torch's tensors")
@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize(("name", "case", "changes", "is_ours"), CHANGES)
def test_what_an_object_holds_when_it_is_handed_over_counts(name, case, changes, is_ours, has_run):
    random = np.random.default_rng(case)
    theirs = getattr(logits_process, name)(*TABLE[name][case])
    if has_run:
        theirs(torch.tensor([[5, 6, 7, 8]] * 2), torch.zeros(2, VOCAB))
    for attribute, value in changes.items():
        assert hasattr(theirs, attribute)
        setattr(theirs, attribute, value)
    ours = _transformers.counterpart(theirs)
    assert isinstance(ours, _transformers.OnTensors) == (not is_ours)
    if not is_ours:
        return
    for _ in range(20):
        ids = random.integers(5, 12, (2, 4))
        scores = random.normal(0, 3, (2, VOCAB)).astype(np.float32)
        found = ours(ids, scores)
        expected = theirs(torch.from_numpy(ids), torch.from_numpy(scores.copy())).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_every_class_is_changed_somewhere():
    without_attributes = {"InfNanRemoveLogitsProcessor", "LogitNormalization"}
    changed = {name for name, *_ in CHANGES} | {"SynthIDTextWatermarkLogitsProcessor"}
    assert changed | without_attributes == TABLE.keys()


@pytest.mark.filterwarnings("ignore:.*computes on torch's tensors")
def test_synthid_that_has_run_goes_on_with_what_it_has_seen():
    theirs = logits_process.SynthIDTextWatermarkLogitsProcessor(
        *TABLE["SynthIDTextWatermarkLogitsProcessor"][0]
    )
    assert not isinstance(_transformers.counterpart(theirs), _transformers.OnTensors)
    theirs(torch.tensor([[5, 6, 7, 8]]), torch.zeros(1, VOCAB))
    assert isinstance(_transformers.counterpart(theirs), _transformers.OnTensors)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_rsgen_does_not_have_runs_on_tensors_and_a_warning_names_it(name):
    cls = getattr(logits_process, name)
    theirs = cls.__new__(cls)
    with pytest.warns(UserWarning, match=f"{name} computes on torch's tensors"):
        assert isinstance(_transformers.counterpart(theirs), _transformers.OnTensors)
