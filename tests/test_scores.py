"""`score` of lists, with ranks and the most probable tokens, and `progress=` of lists."""

import copy
import pickle

import numpy as np
import pytest
import rsgen

TEXTS = ["Once upon a time", "One day, a little fox saw the blue xylophone.", "The"]


def test_a_list_of_texts_gives_what_each_gives_alone(gen):
    scores = gen.score(TEXTS)
    assert isinstance(scores, list)
    for text, score in zip(TEXTS, scores, strict=True):
        np.testing.assert_array_equal(score, gen.score(text))
    ids = [gen.tokenizer.encode(text) for text in TEXTS]
    for score, same in zip(scores, gen.score(ids), strict=True):
        np.testing.assert_array_equal(score, same)


def test_top_logprobs_gives_ranks_and_the_most_probable_tokens(gen):
    [scores] = gen.score(TEXTS[1:2], top_logprobs=3)
    alone = gen.score(TEXTS[1], top_logprobs=3)
    assert scores == alone
    assert scores == copy.deepcopy(scores) == pickle.loads(pickle.dumps(scores))
    np.testing.assert_array_equal(scores.logprobs, gen.score(TEXTS[1]))
    assert scores.token_ids.tolist() == gen.tokenizer.encode(TEXTS[1])
    assert len(scores) == len(scores.ranks) == len(scores.top_logprobs)
    logits = gen.forward(scores.token_ids)[0]
    for place in range(1, len(scores)):
        order = np.argsort(-logits[place - 1], kind="stable")
        assert order[scores.ranks[place] - 1] == scores.token_ids[place]
        assert list(scores.top_logprobs[place]) == order[:3].tolist()
    assert scores.top_logprobs[0] == {}
    assert scores.ranks[0] == 0
    assert gen.score(TEXTS[0], top_logprobs=0).top_logprobs == [{}] * 5
    assert repr(alone).startswith("<rsgen.TokenScores of")


def test_a_text_that_cannot_be_scored_is_named(gen):
    with pytest.raises(rsgen.InputError, match=r"text 1: the text must fit"):
        gen.score(["a", "word " * 600])
    with pytest.raises(rsgen.ConfigError, match="`top_logprobs` must be at most"):
        gen.score("a", top_logprobs=99999)
    with pytest.raises(rsgen.InputError, match="one dimension"):
        gen.score(np.array([[1, 2], [3, 4]]))


def test_progress_is_told_after_each_of_a_list(gen, capfd):
    calls = []
    out = gen.generate(TEXTS, max_new_tokens=2, progress=lambda *args: calls.append(args))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert out.texts == gen.generate(TEXTS, max_new_tokens=2).texts
    calls.clear()
    gen.score(TEXTS, progress=lambda *args: calls.append(args))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    gen.beam_search(TEXTS, max_new_tokens=2, progress=True)
    assert capfd.readouterr().err.endswith("] 3/3\n")
    gen.generate(TEXTS, max_new_tokens=2, progress=False)
    assert capfd.readouterr().err == ""


def test_what_progress_raises_ends_the_work(gen):
    def stop(done, total):
        raise ZeroDivisionError

    for call in (
        lambda: gen.generate(TEXTS, max_new_tokens=2, progress=stop),
        lambda: gen.score(TEXTS, progress=stop),
    ):
        with pytest.raises(ZeroDivisionError):
            call()
    with pytest.raises(TypeError, match="`progress` must be True, False or a callable"):
        gen.score(TEXTS, progress="yes")


def test_a_conversation_beyond_the_context_loses_its_oldest_turns_with_a_warning(gen):
    turn = [
        {"role": "user", "content": "Tell me about the fox."},
        {"role": "assistant", "content": "The fox ran. " * 12},
    ]
    messages = [*turn * 5, turn[0]]
    assert len(gen.apply_chat_template(messages)) > gen.generation_config.max_length
    assert gen.chat(messages, min_new_tokens=20).text
    with pytest.warns(UserWarning, match="oldest messages were left out"):
        out = gen.chat(turn * 20 + turn[:1], max_new_tokens=40)
    assert len(out.sequences[0]) <= gen.config["max_position_embeddings"]
