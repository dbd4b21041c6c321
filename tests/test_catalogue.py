"""Catalogues: every output is an entry, as with a function over the entries, and the result names it."""

import concurrent.futures
import copy
import itertools
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import rsgen

PROMPT = "Once upon a time there was a"
ANIMALS = [" fox", " little bird", " little bird named", " horse", " dog", " girl"]
STRATEGIES = {
    "generate": {},
    "greedy_search": {},
    "sample": {"seed": 3, "num_return_sequences": 4, "temperature": 2.0},
    "beam_search": {"num_beams": 6, "num_return_sequences": 6},
    "beam_sample": {"num_beams": 4, "seed": 1, "num_return_sequences": 4},
    "group_beam_search": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
    "constrained_beam_search": {"num_beams": 3, "force_words_ids": [[956]]},
    "contrastive_search": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low"},
    "prompt_lookup": {},
    "assisted_decoding": {},
}
BEAMS = {"num_beams": 6, "num_return_sequences": 6, "length_penalty": 0.0, "max_new_tokens": 8}


@pytest.fixture(scope="module")
def animals(gen):
    return rsgen.TokenTrie(ANIMALS, tokenizer=gen)


def function(entries, prompt_len, eos):
    """What transformers' users write."""

    def allowed(batch_id, ids):
        new = ids[prompt_len:].tolist()
        ends = [[*entry, eos] for entry in entries]
        return [entry[len(new)] for entry in ends if entry[: len(new)] == new and len(entry) > len(new)] or [
            eos
        ]

    return allowed


def drawn(count, seed):
    """Different entries, some of which begin others."""
    draw = random.Random(seed)
    entries = {tuple(draw.randrange(5, 9) for _ in range(draw.randint(1, 4))) for _ in range(count)}
    entries |= {tuple(draw.randrange(5, 2000) for _ in range(draw.randint(1, 5))) for _ in range(count)}
    return [list(entry) for entry in sorted(entries, key=lambda entry: draw.random())]


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("count", [1, 8, 200])
def test_every_strategy_finds_what_it_finds_with_a_function_over_the_entries(gen, name, count):
    entries, eos = drawn(count, count), gen.generation_config.eos_token_id
    if name == "constrained_beam_search":
        entries += [[5, 956, 7], [956]]
    ids = gen.tokenizer.encode(PROMPT)
    call = {**STRATEGIES[name], "max_new_tokens": 6}
    if name == "assisted_decoding":
        call["assistant_model"] = gen
    trie = rsgen.TokenTrie(entries)
    found = getattr(gen, name)(ids, allowed_sequences=trie, **call)
    expected = getattr(gen, name)(ids, prefix_allowed_tokens_fn=function(entries, len(ids), eos), **call)
    np.testing.assert_array_equal(found.sequences, expected.sequences)
    np.testing.assert_equal(found.sequences_scores, expected.sequences_scores)
    assert expected.entries is None
    assert expected.entry_logprobs is None
    for row, entry, logprob in zip(found.token_ids, found.entries, found.entry_logprobs, strict=True):
        if entry is not None:
            assert row.tolist() == [*entries[entry], eos]
            assert np.isfinite(logprob)
    assert any(entry is not None for entry in found.entries)


def test_beams_as_wide_as_the_catalogue_agree_with_rank(gen, animals):
    out = gen.beam_search(PROMPT, allowed_sequences=animals, **BEAMS)
    eos = gen.generation_config.eos_token_id
    ranked = gen.rank(gen.tokenizer.encode(PROMPT), [[*ids, eos] for ids in animals])
    assert out.entries == [candidate.index for candidate in ranked]
    assert [ANIMALS[entry] for entry in out.entries] == out.texts
    assert [row.entry for row in out] == out.entries
    assert [row.entry_logprob for row in out] == out.entry_logprobs.tolist()
    np.testing.assert_allclose(out.entry_logprobs, [one.logprob for one in ranked], rtol=1e-6)
    np.testing.assert_allclose(out.sequences_scores, out.entry_logprobs, rtol=1e-6)


def test_an_entry_is_named_once_and_a_cut_one_not_at_all(gen, animals):
    out = gen.beam_search(
        PROMPT, allowed_sequences=animals, **{**BEAMS, "num_beams": 9, "num_return_sequences": 9}
    )
    assert sorted(entry for entry in out.entries if entry is not None) == list(range(6))
    assert len(out.entries) == len(out) == 9
    cut = gen.generate(PROMPT, allowed_sequences=rsgen.TokenTrie([[388, 956, 323]]), max_new_tokens=2)
    assert (cut.entries, cut.finish_reasons) == ([None], ["length"])
    # Drawn rows may be the same entry.
    out = gen.sample(
        PROMPT, allowed_sequences=rsgen.TokenTrie([[5]]), num_return_sequences=3, max_new_tokens=3
    )
    assert out.entries == [0, 0, 0]


def test_lists_and_streams_have_entries_too(gen, animals):
    prompts = [PROMPT, "Tom had a"]
    together = gen.beam_search(prompts, allowed_sequences=animals, **BEAMS)
    alone = [gen.beam_search(prompt, allowed_sequences=animals, **BEAMS) for prompt in prompts]
    assert together.entries == alone[0].entries + alone[1].entries
    stream = gen.stream(PROMPT, allowed_sequences=animals, max_new_tokens=8)
    text = "".join(token.text for token in stream)
    assert [ANIMALS[entry] for entry in stream.output.entries] == [text]
    again = pickle.loads(pickle.dumps(together))
    assert again.entries == together.entries


def test_payloads_stand_for_entries(gen):
    values = ["a", 7, None, {"b": [1.5, True]}, -1, "ü"]
    trie = rsgen.TokenTrie(iter(ANIMALS), payload=iter(values), tokenizer=gen.tokenizer)
    out = gen.beam_search(PROMPT, allowed_sequences=trie, **BEAMS)
    for text, payload in zip(out.texts, out.entries, strict=True):
        assert payload == values[ANIMALS.index(text)]
    assert [trie.payload(index) for index in range(-6, 0)] == values
    assert rsgen.TokenTrie([[5]]).payload(0) is None
    numbered = rsgen.TokenTrie([[5], [6]], payload=range(10, 12))
    assert gen.generate(PROMPT, allowed_sequences=numbered, max_new_tokens=2).entries[0] in (10, 11)


def test_it_is_a_collection_of_ids(gen, animals):
    ids = [gen.tokenizer.encode(text, add_special_tokens=False) for text in ANIMALS]
    assert len(animals) == 6
    assert animals.longest == 3
    assert list(animals) == ids == [animals[index] for index in range(6)]
    assert animals[-1] == ids[-1]
    assert " fox" in animals
    assert ids[2] in animals
    assert np.array(ids[0]) in animals
    assert " fo" not in animals
    assert "fox" not in animals
    assert ids[2][:1] not in animals
    assert repr(animals) == "TokenTrie(entries=6, longest=3)"
    for index in (6, -7, 10**30):
        with pytest.raises(IndexError):
            animals[index]
    assert copy.copy(animals) is animals
    assert copy.deepcopy([animals])[0] is animals
    assert animals.memory_bytes <= 16 * sum(map(len, ids)) + 16


def test_a_file_has_all_of_it(gen, tmp_path):
    trie = rsgen.TokenTrie(ANIMALS, payload=range(6), tokenizer=gen)
    trie.save(tmp_path / "animals.trie")
    opened = rsgen.TokenTrie.open(str(tmp_path / "animals.trie"), tokenizer=gen)
    for same in (opened, pickle.loads(pickle.dumps(trie))):
        assert list(same) == list(trie)
        assert same.payload(5) == 5
        assert same.longest == 3
    assert " fox" in opened
    whole = (tmp_path / "animals.trie").read_bytes()
    draw = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        (tmp_path / "damaged.trie").write_bytes(
            damaged[: draw.choice([len(whole), draw.randrange(len(whole))])]
        )
        with pytest.raises(rsgen.LoadError, match=r"damaged\.trie: "):
            rsgen.TokenTrie.open(tmp_path / "damaged.trie")
    with pytest.raises(rsgen.LoadError, match="none"):
        rsgen.TokenTrie.open(tmp_path / "none")
    with pytest.raises(rsgen.LoadError, match="regular file"):
        trie.save(tmp_path)


SAVES = """
import sys, rsgen
tries = [rsgen.TokenTrie([i, j, first] for i in range(300) for j in range(300)) for first in (5, 6)]
while True:
    for trie in tries:
        trie.save(sys.argv[1])
        print("saved", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_a_process_that_is_killed_while_it_saves_leaves_a_whole_file(tmp_path):
    path, draw = tmp_path / "a.trie", random.Random(0)
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", SAVES, path], stdout=subprocess.PIPE) as saving:
            saving.stdout.readline()
            time.sleep(draw.uniform(0, 0.1))
            saving.kill()
        trie = rsgen.TokenTrie.open(path)
        assert len(trie) == 90_000
        assert trie[0] in ([0, 0, 5], [0, 0, 6])


def raising():
    yield [5]
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), rsgen.InputError, "at least one entry"),
        (([[5], []],), rsgen.InputError, "entry 1: it has no token"),
        (([[5], np.array([], dtype=int)],), rsgen.InputError, "entry 1: "),
        (
            ([[5, 6], [7], [5, 6], [7]],),
            rsgen.InputError,
            "entry 2: it has the same tokens as entry 0, and 1 more",
        ),
        (([[5], [-1]],), rsgen.InputError, "entry 1: token ids must be 0 or more"),
        (([[5], [2**32]],), rsgen.InputError, "entry 1: token ids must be 0 or more"),
        (([[5], ["a"]],), TypeError, "entry 1: token ids must be integers"),
        (([[5], 6],), TypeError, "entry 1: an entry must be a text or token ids, got 6"),
        (([[5], None],), TypeError, "entry 1: an entry must be a text or token ids, got None"),
        (([[5], "a"],), TypeError, "entry 1: texts need a tokenizer"),
        (("text",), TypeError, "`entries` must be a list or an iterator, got 'text'"),
        ((5,), TypeError, "`entries` must be a list or an iterator, got 5"),
        ((raising(),), KeyError, "mine"),
    ],
)
def test_entries_that_are_none_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        rsgen.TokenTrie(*arguments)


def test_wrong_arguments_say_what_they_must_be(gen, animals):
    with pytest.raises(
        rsgen.InputError, match="`payload` must hold a value for each entry, but ends after 1"
    ):
        rsgen.TokenTrie([[5], [6]], payload=["a"])
    with pytest.raises(rsgen.InputError, match="but holds more than the 2 entries"):
        rsgen.TokenTrie([[5], [6]], payload=itertools.count())
    with pytest.raises(rsgen.ConfigError, match="payload 1: a value must be one that JSON can hold"):
        rsgen.TokenTrie([[5], [6]], payload=["a", {1, 2}])
    with pytest.raises(TypeError, match="`payload` must be a list or an iterator"):
        rsgen.TokenTrie([[5]], payload="a")
    with pytest.raises(TypeError, match="`tokenizer` must be a Tokenizer, a Generator or None"):
        rsgen.TokenTrie([[5]], tokenizer="gpt2")
    with pytest.raises(rsgen.InputError, match="entry 0: a text must be Unicode"):
        rsgen.TokenTrie(["\ud800"], tokenizer=gen)
    with pytest.raises(TypeError, match="`allowed_sequences` must be a TokenTrie, got"):
        gen.generate(PROMPT, allowed_sequences=[[5]])
    beyond = rsgen.TokenTrie([[5], [10**6]])
    with pytest.raises(
        rsgen.ConfigError, match="`allowed_sequences` must hold ids of the model's vocabulary"
    ):
        gen.generate(PROMPT, allowed_sequences=beyond)
    with pytest.raises(rsgen.ConfigError, match="`eos_token_id` must name a token"):
        gen.generate(PROMPT, allowed_sequences=animals, eos_token_id=None, max_new_tokens=3)


def test_banned_words_and_grammars_are_intersections(gen, animals):
    out = gen.beam_search(PROMPT, allowed_sequences=animals, bad_words=["bird"], **BEAMS)
    assert sorted(entry for entry in out.entries if entry is not None) == [0, 3, 4, 5]
    out = gen.beam_search(PROMPT, allowed_sequences=animals, regex=" (little bird|dog|cat)", **BEAMS)
    assert sorted(entry for entry in out.entries if entry is not None) == [1, 4]
    assert gen.generate(PROMPT, allowed_sequences=animals, regex=" dog|cat", max_new_tokens=5).entries == [4]
    out = gen.beam_search(PROMPT, allowed_sequences=animals, regex=".*dog", **BEAMS)
    assert out.entries == [4, *[None] * 5]
    for fields in ({"regex": " cat"}, {"bad_words_ids": [ids for ids in animals if len(ids) == 1] + [[388]]}):
        with pytest.raises(rsgen.ConfigError, match="allowed_sequences"):
            gen.generate(PROMPT, allowed_sequences=animals, max_new_tokens=5, **fields)


def test_threads_share_a_catalogue_with_many_children(gen):
    # All but the token that ends entries.
    trie = rsgen.TokenTrie([token, 300 + token % 2] for token in range(5, 2000))
    expected = gen.beam_search(PROMPT, allowed_sequences=trie, **BEAMS).entries
    assert len(set(expected)) == 6
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(gen.beam_search, PROMPT, allowed_sequences=trie, **BEAMS) for _ in range(8)]
    assert all(call.result().entries == expected for call in calls)


def test_a_model_with_an_encoder_writes_entries_as_targets():
    mt = rsgen.Generator(Path(__file__).parent / "golden/toy_translation", num_threads=1)
    targets = ["Ich mag Tee.", "Ich mag Brot.", "Du magst Tee."]
    trie = rsgen.TokenTrie(targets, tokenizer=mt)
    out = mt.generate(
        "I like bread.", num_beams=3, num_return_sequences=3, allowed_sequences=trie, max_new_tokens=20
    )
    assert out.entries[0] == 1
    assert sorted(out.entries) == [0, 1, 2]
    assert out.texts[0] == targets[1]
    forced = mt.generate("I like bread.", allowed_sequences=trie, forced_bos_token_id=5, max_new_tokens=20)
    assert forced.token_ids[0][0] == 5
    assert forced.entries == [1]


def test_texts_follow_a_prompt_with_every_tokenizer(gen):
    assert list(rsgen.TokenTrie([" fox", "fox"], tokenizer=gen)) == [
        gen.tokenizer.encode(text, add_special_tokens=False) for text in (" fox", "fox")
    ]
    pieces = rsgen.Tokenizer(Path(__file__).parent / "golden/toy_translation")
    spaced, plain = (rsgen.TokenTrie([text], tokenizer=pieces) for text in (" Tee", "Tee"))
    assert list(spaced) == list(plain), "the tokenizer puts the space"


@pytest.mark.parametrize("library", ["numpy", "pandas", "polars"])
def test_entries_and_payloads_are_the_columns_of_tables(gen, library):
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    column = module.array if library == "numpy" else module.Series
    trie = rsgen.TokenTrie(column([" fox", " little bird"]), payload=column([7, 8]), tokenizer=gen)
    assert (len(trie), trie.payload(1), " fox" in trie) == (2, 8, True)
    with pytest.raises(TypeError, match="entry 1: an entry must be a text or token ids, got"):
        rsgen.TokenTrie(
            column([" fox", None], dtype=object) if library != "polars" else column([" fox", None]),
            tokenizer=gen,
        )


def test_rows_and_tables_have_entries(gen, tmp_path):
    trie = rsgen.TokenTrie(ANIMALS, payload=[{"id": name} for name in ANIMALS], tokenizer=gen)
    call = {"allowed_sequences": trie, "num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 4}
    out = gen.generate(PROMPT, **call)
    table = out.to_pandas()
    assert table["entry"].tolist() == out.entries
    assert table["entry_logprob"].tolist() == out.entry_logprobs.tolist()
    assert "entry" not in gen.generate(PROMPT, max_new_tokens=1).to_pandas()
    rows = [PROMPT, "far " * 5000]
    for _ in range(2):  # the second time from the file
        made = gen.map(rows, details=True, resume=tmp_path / "rows.jsonl", on_error="return", **call)
        good, bad = made
        assert good["entry"] == out.entries
        assert good["entry_logprob"] == out.entry_logprobs.tolist()
        assert bad["entry"] is bad["entry_logprob"] is None
    assert "entry" not in next(gen.map([PROMPT], details=True, max_new_tokens=1))
