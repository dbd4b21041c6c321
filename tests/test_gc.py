"""Python's cyclic collector sees what streams, outputs and processors hold: a cycle of them gives its cache blocks back."""

import gc
import weakref

import pytest
import rsgen

PROMPT = "Once upon a time"


class Reader:
    """Holds a stream that calls its methods."""

    def __init__(self, gen, open_stream="stream", **callbacks):
        arguments = {name: wrapped(self) for name, wrapped in callbacks.items()}
        self.stream = getattr(gen, open_stream)(PROMPT, max_new_tokens=5, **arguments)

    def scores(self, input_ids, scores):
        return scores

    def ends(self, input_ids, scores):
        return False

    def allowed(self, batch_id, input_ids):
        return list(range(20))


class OwnProcessor(rsgen.processors.TopKLogitsWarper):
    """A class of the caller's with an attribute of its own."""

    def of(self, reader):
        self.reader = reader
        return self


CALLBACKS = {
    "a processor": {"logits_processor": lambda reader: reader.scores},
    "processors": {
        "logits_processor": lambda reader: [
            reader.scores,
            rsgen.processors.TopKLogitsWarper(5),
            reader.scores,
        ]
    },
    "a class derived from a processor": {"logits_processor": lambda reader: OwnProcessor(5).of(reader)},
    "a processor that calls a function": {
        "logits_processor": lambda reader: rsgen.processors.PrefixConstrainedLogitsProcessor(
            reader.allowed, 1
        )
    },
    "a criterion": {"stopping_criteria": lambda reader: [reader.ends]},
    "a prefix function": {"prefix_allowed_tokens_fn": lambda reader: reader.allowed},
    "all": {
        "logits_processor": lambda reader: reader.scores,
        "stopping_criteria": lambda reader: reader.ends,
        "prefix_allowed_tokens_fn": lambda reader: reader.allowed,
    },
}


@pytest.mark.parametrize("name", CALLBACKS)
@pytest.mark.parametrize("tokens", [0, 1, 5, 6])
def test_a_stream_whose_callbacks_hold_it_is_collected_with_its_blocks(gen, name, tokens):
    reader = Reader(gen, **CALLBACKS[name])
    for _ in range(tokens):
        next(reader.stream, None)
    # A collection in between sees that all of it is in use.
    gc.collect()
    gone = weakref.ref(reader)
    taken = gen.stats().blocks_used + gen.stats().blocks_reserved
    assert (taken > 0) == (0 < tokens < 5)
    del reader
    gc.collect()
    assert gone() is None
    assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0


@pytest.mark.parametrize("tokens", [0, 1])
def test_a_stream_whose_constraint_holds_it_is_collected_with_its_blocks(gen, tokens):
    class Holds(rsgen.constraints.PhrasalConstraint):
        pass

    constraint = Holds([44])
    constraint.stream = gen.stream(PROMPT, num_beams=2, constraints=[constraint], max_new_tokens=40)
    for _ in range(tokens):
        next(constraint.stream)
    gc.collect()
    gone = weakref.ref(constraint)
    assert (gen.stats().blocks_used + gen.stats().blocks_reserved > 0) == (tokens > 0)
    del constraint
    gc.collect()
    assert gone() is None
    assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0


def test_a_stream_in_a_cycle_goes_on_as_long_as_somebody_has_it(gen):
    plain = [token.id for token in gen.stream(PROMPT, max_new_tokens=5)]
    stream = Reader(gen, logits_processor=lambda reader: reader.scores).stream
    ids = []
    for token in stream:
        gc.collect()
        ids.append(token.id)
    assert ids == plain
    assert stream.output.texts


def test_a_stream_that_is_collected_while_a_callback_collects_goes_on(gen):
    def collect(input_ids, scores):
        gc.collect()
        return scores

    assert len(gen.generate(PROMPT, logits_processor=collect, max_new_tokens=3).token_ids[0]) == 3
    assert len(list(gen.stream(PROMPT, logits_processor=[collect, collect], max_new_tokens=3))) == 3


def test_callbacks_are_let_go_when_their_stream_ends(gen):
    reader = Reader(gen, logits_processor=lambda reader: reader.scores)
    stream, gone = reader.stream, weakref.ref(reader)
    del reader
    gc.collect()
    assert gone() is not None
    stream.close()
    gc.collect()
    assert gone() is None
    assert stream.output is not None


def test_outputs_and_their_scores_are_collected(gen):
    class Owner:
        pass

    for get in (
        lambda: gen.generate(PROMPT, max_new_tokens=1, output_scores=True, output_logits=True),
        lambda: finished(gen.stream(PROMPT, max_new_tokens=1, output_scores=True, output_logits=True)),
    ):
        for part in ("scores", "logits"):
            owner, gone = Owner(), None
            owner.value = get()
            output = owner.value if isinstance(owner.value, rsgen.GenerationOutput) else owner.value.output
            getattr(output, part).append(owner)
            gone = weakref.ref(owner)
            del owner, output
            gc.collect()
            assert gone() is None


@pytest.mark.parametrize(
    "make",
    [
        lambda owner: rsgen.processors.PrefixConstrainedLogitsProcessor(owner.allowed, 1),
        lambda owner: OwnProcessor(5).of(owner),
        lambda owner: rsgen.stopping_criteria.EosTokenCriteria([owner.token]),
    ],
)
def test_processors_and_criteria_are_collected(make):
    class Token(int):
        pass

    class Owner:
        token = None

        def allowed(self, batch_id, input_ids):
            return [1]

    owner = Owner()
    owner.token = Token(5)
    owner.token.owner = owner
    owner.made = make(owner)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def finished(stream):
    for _ in stream:
        pass
    return stream
