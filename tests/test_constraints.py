"""Constraints: what the output of a constrained beam search has to hold."""

from __future__ import annotations

import gc
import weakref
from typing import ClassVar

import numpy as np
import pytest
import rsgen
from rsgen.constraints import Constraint, DisjunctiveConstraint, PhrasalConstraint

PROMPT = "Once upon a time"
OPTIONS = {"num_beams": 4, "max_new_tokens": 8}


class Phrase(Constraint):
    """A phrase, written in Python."""

    alive: ClassVar[weakref.WeakSet[Phrase]] = weakref.WeakSet()

    def __init__(self, token_ids, matched=0):
        super().__init__()
        self.token_ids, self.matched = token_ids, matched
        self.alive.add(self)

    @property
    def seqlen(self):
        return len(self.token_ids)

    def advance(self):
        return self.token_ids[self.matched] if self.matched < self.seqlen else None

    def does_advance(self, token_id):
        return token_id == self.advance()

    def update(self, token_id):
        stepped = self.does_advance(token_id)
        self.matched = self.matched + 1 if stepped else 0
        return stepped, self.matched == self.seqlen, not stepped

    def reset(self):
        self.matched = 0

    def remaining(self):
        return self.seqlen - self.matched

    def copy(self, stateful=False):
        return type(self)(self.token_ids, self.matched if stateful else 0)


@pytest.fixture(scope="module")
def words(gen):
    """Two words that are not in the best output."""
    plain = gen.beam_search(PROMPT, **OPTIONS).sequences[0].tolist()
    words = [gen.tokenizer.encode(text, add_special_tokens=False) for text in (" dragon", " castle")]
    assert all(not holds(plain, word) for word in words)
    return words


def holds(ids, word):
    ids = list(ids)
    return any(ids[start : start + len(word)] == word for start in range(len(ids)))


def test_a_phrase_is_followed_step_by_step():
    phrase = PhrasalConstraint([5, 6])
    assert (phrase.token_ids, phrase.seqlen, phrase.remaining(), phrase.completed) == ([5, 6], 2, 2, False)
    assert (phrase.advance(), phrase.does_advance(5), phrase.does_advance(6)) == (5, True, False)
    assert phrase.update(5) == (True, False, False)
    same, fresh = phrase.copy(stateful=True), phrase.copy()
    assert (same.remaining(), fresh.remaining()) == (1, 2)
    assert phrase.update(np.int64(6)) == (True, True, False)
    assert (phrase.advance(), phrase.remaining(), phrase.completed) == (None, 0, True)
    assert same.update(9) == (False, False, True)
    assert same.advance() == 5
    phrase.reset()
    assert phrase.remaining() == 2
    phrase.test()
    assert repr(phrase) == "PhrasalConstraint([5, 6])"


def test_one_phrase_of_several_is_enough():
    any_of = DisjunctiveConstraint([[1, 2, 3], [1, 4]])
    assert (any_of.token_ids, any_of.seqlen, any_of.advance()) == ([[1, 2, 3], [1, 4]], 3, [1])
    any_of.update(1)
    assert any_of.advance() == [2, 4]
    assert any_of.update(4) == (True, True, False)
    assert (any_of.remaining(), any_of.completed) == (0, True)
    assert type(any_of.copy()) is DisjunctiveConstraint


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: PhrasalConstraint([]), "at least one token id"),
        (lambda: PhrasalConstraint([1, -1]), "must be a list of token ids"),
        (lambda: PhrasalConstraint("fox"), "must be a list of token ids, got 'fox'"),
        (lambda: DisjunctiveConstraint([1, 2]), "a list of lists"),
        (lambda: DisjunctiveConstraint([[1], [1, 2]]), "phrase 0 begins phrase 1"),
        (lambda: PhrasalConstraint([1]).update("x"), "`token_id` must be a token id"),
    ],
)
def test_impossible_constraints_are_refused(make, rule):
    with pytest.raises(rsgen.ConfigError, match=rule):
        make()


def test_the_output_holds_what_it_has_to(gen, words):
    for constraints in (PhrasalConstraint(words[0]), [DisjunctiveConstraint([words[0], words[1]])]):
        out = gen.generate(PROMPT, constraints=constraints, **OPTIONS)
        assert any(holds(out.sequences[0], word) for word in words)
    forced = gen.constrained_beam_search(PROMPT, force_words_ids=[words[0]], **OPTIONS)
    given = gen.constrained_beam_search(PROMPT, constraints=PhrasalConstraint(words[0]), **OPTIONS)
    np.testing.assert_array_equal(forced.sequences, given.sequences)


def test_a_constraint_written_in_python_gives_what_the_native_one_gives(gen, words):
    native = [PhrasalConstraint(words[0]), PhrasalConstraint(words[1])]
    own = [Phrase(words[0]), Phrase(words[1])]
    expected = gen.generate(PROMPT, constraints=native, **OPTIONS)
    got = gen.generate(PROMPT, constraints=own, **OPTIONS)
    np.testing.assert_array_equal(got.sequences, expected.sequences)
    np.testing.assert_array_equal(got.sequences_scores, expected.sequences_scores)
    assert [constraint.matched for constraint in own] == [0, 0], "a search works on copies"
    mixed = gen.generate([PROMPT, PROMPT], constraints=(native[0], own[1]), **OPTIONS)
    for row in mixed.sequences:
        np.testing.assert_array_equal(row, expected.sequences[0])


def test_a_class_derived_from_a_native_one_is_asked_itself(gen, words):
    class Counted(PhrasalConstraint):
        asked = 0

        def update(self, token_id):
            Counted.asked += 1
            return super().update(token_id)

        def copy(self, stateful=False):
            copy = Counted(self.token_ids)
            for token in self.token_ids[: self.seqlen - self.remaining() if stateful else 0]:
                copy.update(token)
            return copy

    out = gen.generate(PROMPT, constraints=Counted(words[0]), **OPTIONS)
    assert holds(out.sequences[0], words[0])
    assert Counted.asked > 0


@pytest.mark.parametrize("method", ["advance", "does_advance", "update", "remaining", "copy"])
@pytest.mark.parametrize("late", [False, True])
def test_what_a_constraint_raises_comes_out_and_nothing_stays(gen, words, method, late):
    class Broken(Phrase):
        calls = 0

    error = RuntimeError("mine")

    def broken(self, *arguments, **keywords):
        Broken.calls += 1
        if Broken.calls > (3 if late else 0):
            raise error
        return getattr(super(Broken, self), method)(*arguments, **keywords)

    setattr(Broken, method, broken)
    constraint = Broken(words[0] + words[1])
    with pytest.raises(RuntimeError) as raised:
        gen.generate(PROMPT, constraints=constraint, **OPTIONS)
    assert raised.value is error
    error.__traceback__ = None
    del constraint, raised
    gen.stats()
    gc.collect()
    assert not [constraint for constraint in Phrase.alive if isinstance(constraint, Broken)]


@pytest.mark.parametrize(
    ("method", "returned", "rule"),
    [
        ("advance", "x", r"Wrong\.advance\(\) must return a token id, a list of them or None, got 'x'"),
        ("advance", None, "must name a token until it is fulfilled"),
        ("does_advance", 3, r"Wrong\.does_advance\(\) must return True or False, got 3"),
        ("does_advance", False, "must be true for what advance"),
        ("update", (True, False), r"Wrong\.update\(\) must return three truth values"),
        ("update", (True, False, False), "must fulfil it"),
        ("remaining", 2, r"remaining\(\) must be 0 once it is fulfilled, but is 2"),
        ("remaining", -1, r"Wrong\.remaining\(\) must return the number of steps"),
    ],
)
def test_answers_of_a_constraint_are_checked_before_anything_is_computed(gen, method, returned, rule):
    class Wrong(Phrase):
        pass

    setattr(Wrong, method, lambda self, *_: returned)
    with pytest.raises(rsgen.CallbackError, match=rule):
        gen.generate(PROMPT, constraints=Wrong([5, 6]), **OPTIONS)
    with pytest.raises(rsgen.CallbackError, match=rule):
        Wrong([5, 6]).test()


def test_tokens_outside_of_the_vocabulary_are_refused(gen):
    beyond = gen.config["vocab_size"]
    with pytest.raises(rsgen.ConfigError, match="ids of the model's vocabulary"):
        gen.generate(PROMPT, constraints=PhrasalConstraint([beyond]), **OPTIONS)
    with pytest.raises(rsgen.CallbackError, match=rf"ids of the model's vocabulary, .* but names {beyond}"):
        gen.generate(PROMPT, constraints=Phrase([beyond]), **OPTIONS)


def test_what_is_no_constraint_is_refused(gen):
    class Endless(Phrase):
        seqlen = 10**12

    with pytest.raises(TypeError, match="`constraints` must be a constraint or a list of them, got 5"):
        gen.generate(PROMPT, constraints=5, **OPTIONS)
    with pytest.raises(rsgen.CallbackError, match="`seqlen`, its number of steps, must be 1 to 10000"):
        gen.generate(PROMPT, constraints=Endless([1]), **OPTIONS)
    with pytest.raises(TypeError, match="must have an attribute `seqlen`"):
        gen.generate(PROMPT, constraints=Constraint(), **OPTIONS)
    with pytest.raises(NotImplementedError, match=r"Constraint must define advance\(self\)"):
        Constraint().advance()
    with pytest.raises(rsgen.ConfigError, match="`num_beams` is 1"):
        gen.generate(PROMPT, constraints=PhrasalConstraint([5]), max_new_tokens=3)
    with pytest.raises(rsgen.ConfigError, match="`constraints` is an argument of the call"):
        rsgen.GenerationConfig(constraints=[PhrasalConstraint([5])])


def test_no_constraints_are_no_constraint(gen):
    plain = gen.beam_search(PROMPT, **OPTIONS)
    for nothing in (None, []):
        out = gen.generate(PROMPT, constraints=nothing, **OPTIONS)
        np.testing.assert_array_equal(out.sequences, plain.sequences)


def test_a_constrained_search_without_a_constraint_is_refused(gen):
    rule = "`force_words_ids` or `constraints` must be given in constrained beam search, got neither"
    for given in ({}, {"constraints": []}, {"force_words_ids": None}):
        with pytest.raises(rsgen.ConfigError, match=rule):
            gen.constrained_beam_search(PROMPT, **given, **OPTIONS)
