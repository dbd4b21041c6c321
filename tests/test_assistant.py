"""Assistants: a second Generator that drafts, for all calls or for one."""

import copy
import gc
import pickle
from pathlib import Path

import pytest
import rsgen

PROMPT = "Once upon a time"
PROMPTS = [PROMPT, "One day, a little fox", "The"]
DRAFT = Path(rsgen.__file__).parent / "models" / "story-draft"


@pytest.fixture(scope="module")
def small():
    return rsgen.Generator(DRAFT, num_threads=2)


@pytest.fixture(scope="module")
def assisted(small):
    return rsgen.Generator(num_threads=2, assistant=small, kv_cache_bytes=1 << 26)


@pytest.fixture(autouse=True)
def no_blocks_are_left_in_either_pool(request):
    yield
    if "assisted" in request.fixturenames:
        stats = request.getfixturevalue("assisted").stats()
        assert (stats.blocks_used, stats.blocks_reserved, stats.draft_blocks_used) == (0, 0, 0)


def test_greedy_search_is_the_same_with_drafts(gen, assisted, small):
    plain = gen.generate(PROMPTS, max_new_tokens=30)
    for out in (
        assisted.generate(PROMPTS, max_new_tokens=30),
        assisted.greedy_search(PROMPTS, max_new_tokens=30),
        assisted.assisted_decoding(PROMPTS, max_new_tokens=30, num_assistant_tokens=5),
        gen.generate(PROMPTS, max_new_tokens=30, assistant_model=small),
        gen.assisted_decoding(PROMPTS, max_new_tokens=30, assistant=small),
        assisted.generate(PROMPTS, max_new_tokens=30, assistant_model=None),
    ):
        assert out.texts == plain.texts
        assert [row.tolist() for row in out.sequences] == [row.tolist() for row in plain.sequences]


def test_streams_and_chats_take_an_assistant(gen, assisted, small):
    expected = gen.generate(PROMPT, max_new_tokens=30)
    for stream in (
        assisted.stream(PROMPT, max_new_tokens=30),
        gen.stream(PROMPT, max_new_tokens=30, assistant_model=small),
    ):
        assert "".join(token.text for token in stream) == expected.text
    messages = [{"role": "user", "content": "Tell me a story about a fox."}]
    assert (
        assisted.chat(messages, max_new_tokens=20).text
        == gen.chat(messages, max_new_tokens=20).text
        == gen.chat(messages, max_new_tokens=20, assistant_model=small).text
    )


@pytest.mark.parametrize("tokens", range(8))
def test_a_stream_that_is_left_in_a_round_frees_both_pools(assisted, tokens):
    with assisted.stream(PROMPT, max_new_tokens=30) as stream:
        for _ in zip(range(tokens), stream, strict=False):
            assert assisted.stats().blocks_used > 0
    stats = assisted.stats()
    assert (stats.blocks_used, stats.blocks_reserved) == (0, 0)


def test_the_memory_of_drafts_counts_in_the_same_cache(gen, small):
    limit = 1 << 24
    gen = rsgen.Generator(num_threads=2, kv_cache_bytes=limit)
    assert gen.stats().draft_bytes_allocated == 0
    gen.generate(PROMPT, max_new_tokens=30, assistant_model=small)
    stats = gen.stats()
    assert 0 < stats.draft_bytes_allocated < stats.bytes_allocated <= stats.bytes_total <= limit
    other = rsgen.Generator(DRAFT, num_threads=1)
    gen.generate(PROMPT, max_new_tokens=30, assistant_model=other)
    assert gen.stats().bytes_total <= limit
    del other
    gc.collect()
    # The part of an assistant that is gone returns to the cache.
    again = gen.stats()
    assert abs(again.draft_bytes_allocated - stats.draft_bytes_allocated) <= stats.bytes_total // 16


def test_the_assistant_is_the_one_that_was_given(small):
    gen = rsgen.Generator(assistant=small, num_threads=2)
    assert gen.assistant is small
    assert copy.copy(gen).assistant is small
    assert small.assistant is None
    opened = rsgen.Generator(assistant=DRAFT, num_threads=2)
    assert opened.assistant is opened.assistant
    assert opened.assistant.name_or_path == str(DRAFT)
    assert opened.assistant.num_threads == 2


@pytest.mark.parametrize("given", ["draft", DRAFT, "open"])
def test_a_generator_pickles_with_its_assistant(given, small):
    gen = rsgen.Generator(assistant=small if given == "open" else given, num_threads=2)
    again = pickle.loads(pickle.dumps(gen))
    assert again.assistant.name_or_path == str(DRAFT)
    assert again.generate(PROMPT, max_new_tokens=8).text == gen.generate(PROMPT, max_new_tokens=8).text
    assert pickle.loads(pickle.dumps(gen.assistant)).name_or_path == str(DRAFT)


def test_an_assistant_lives_as_long_as_the_generator_that_holds_it():
    gen = rsgen.Generator(assistant="draft", num_threads=2)
    text = gen.generate(PROMPT, max_new_tokens=8).text
    assistant = gen.assistant
    del gen
    gc.collect()
    assert assistant.generate(PROMPT, max_new_tokens=8).text
    assert rsgen.Generator(assistant=assistant).generate(PROMPT, max_new_tokens=8).text == text


@pytest.mark.parametrize("given", [3, [], b"draft", object()])
def test_what_is_no_assistant_is_refused(gen, given):
    with pytest.raises(TypeError, match="`assistant` must be a Generator, a folder"):
        rsgen.Generator(assistant=given)
    for name in ("assistant_model", "assistant"):
        with pytest.raises(TypeError, match=f"`{name}` must be a Generator or None"):
            gen.generate(PROMPT, **{name: given})


def test_errors_say_what_to_do(gen, small, make_llama):
    with pytest.raises(
        rsgen.ConfigError, match=r"`assistant_model` must be a Generator in assisted decoding"
    ):
        gen.assisted_decoding(PROMPT)
    with pytest.raises(rsgen.ConfigError, match="`assistant_model` and `assistant` are one argument"):
        gen.generate(PROMPT, assistant_model=small, assistant=gen)
    with pytest.raises(rsgen.LoadError, match="the assistant: "):
        rsgen.Generator(assistant="no/such")
    with pytest.warns(UserWarning, match="`assistant_model` has no effect in beam search"):
        gen.beam_search(PROMPT, max_new_tokens=2, assistant_model=small)
    other = rsgen.Generator(make_llama())
    with pytest.raises(rsgen.ConfigError, match="vocabulary"):
        gen.generate(PROMPT, max_new_tokens=2, assistant_model=other)


def test_the_mode_of_a_configuration_depends_on_the_assistant(small):
    config = rsgen.GenerationConfig()
    assert config.get_generation_mode() == "greedy_search"
    assert config.get_generation_mode(small) == "assisted_decoding"
