"""`rsgen.Seed`: random numbers that go on from call to call, as torch's do."""

import base64
import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import rsgen

GOLDEN = json.loads((Path(__file__).parent / "golden" / "seeds.json").read_text())
CHAINS = {chain["seed"]: chain for chain in GOLDEN["chains"]}
CALL = {"max_new_tokens": 8}


def drawn(gen, seed, times=1):
    return [gen.sample("One day", seed=seed, **CALL).sequences.tolist() for _ in range(times)]


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_calls_draw_on_as_those_of_transformers_after_one_seed(gen, chain):
    seed = rsgen.Seed(chain["seed"])
    for call in chain["calls"]:
        out = gen.generate(call["prompt"], seed=seed, **call["config"])
        assert out.sequences.tolist() == call["sequences"]
        assert out.seed is None, "no number gives these tokens"


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_its_state_is_that_of_torch(gen, chain):
    seed = rsgen.Seed(chain["seed"])
    for call in chain["calls"]:
        gen.generate(call["prompt"], seed=seed, **call["config"])
    state = seed.get_state()
    assert (state.dtype, state.shape) == (np.uint8, (5056,))
    assert state.tobytes() == base64.b64decode(chain["state"])
    other = rsgen.Seed(1)
    other.set_state(np.frombuffer(base64.b64decode(chain["state"]), np.uint8))
    assert other.initial_seed() == chain["seed"] % 2**64
    assert drawn(gen, other) == drawn(gen, seed)


def test_streams_and_calls_on_loops_and_threads_draw_on(gen, run):
    expected = drawn(gen, rsgen.Seed(7), 4)
    seed = rsgen.Seed(7)
    stream = gen.stream("One day", do_sample=True, seed=seed, **CALL)
    list(stream)
    assert stream.output.sequences.tolist() == expected[0]
    assert drawn(gen, seed) == expected[1:2]
    call = gen.submit("One day", do_sample=True, seed=seed, **CALL)
    assert call.result(30).sequences.tolist() == expected[2]

    async def awaited():
        return await gen.agenerate("One day", do_sample=True, seed=seed, **CALL)

    assert run(awaited()).sequences.tolist() == expected[3]


def test_a_stream_that_is_left_has_drawn_what_it_gave(gen):
    seed = rsgen.Seed(7)
    with gen.stream("One day", do_sample=True, seed=seed) as stream:
        tokens = [next(stream).id for _ in range(5)]
    rest = gen.sample(stream.output.sequences, seed=seed, max_new_tokens=3)
    whole = gen.sample("One day", seed=7, **CALL)
    assert tokens + rest.token_ids[0].tolist() == whole.token_ids[0].tolist()


def test_copies_and_pickles_go_on_from_the_same_place(gen):
    seed = rsgen.Seed(7)
    drawn(gen, seed)
    others = [copy.copy(seed), copy.deepcopy(seed), pickle.loads(pickle.dumps(seed))]
    expected = drawn(gen, seed, 2)
    for other in others:
        assert drawn(gen, other, 2) == expected
    state = seed.get_state()
    again = drawn(gen, seed)
    seed.set_state(state)
    assert drawn(gen, seed) == again
    assert drawn(gen, seed.manual_seed(7)) == drawn(gen, 7)
    assert seed.initial_seed() == 7
    assert repr(seed) == "<rsgen.Seed of 7>"


def test_the_prompts_of_a_list_draw_with_seeds_of_their_own(gen):
    prompts = ["One day", "One day", "Tom had"]
    seed = rsgen.Seed(7)
    first, second = (gen.sample(prompts, seed=seed, **CALL) for _ in range(2))
    assert len({*first.seeds, *second.seeds}) == 6
    for out in (first, second):
        for index, prompt in enumerate(prompts):
            alone = gen.sample(prompt, seed=out.seeds[index], **CALL)
            assert out.token_ids[index].tolist() == alone.token_ids[0].tolist()
    again = rsgen.Seed(7)
    assert gen.sample(prompts, seed=again, **CALL) == first


def test_without_sampling_nothing_is_drawn(gen):
    seed = rsgen.Seed(7)
    gen.generate("One day", seed=seed, **CALL)
    gen.generate(["One day", "Tom"], seed=seed, **CALL)
    assert drawn(gen, seed) == drawn(gen, 7)


def test_drafts_and_healing_need_a_number(gen):
    seed = rsgen.Seed(7)
    for fields in ({"prompt_lookup_num_tokens": 3}, {"token_healing": True}, {"assistant_early_exit": 3}):
        gen.generate("One day", seed=seed, **fields, **CALL)
        with pytest.raises(rsgen.ConfigError, match=r"`seed` must be a number where tokens are drafted"):
            gen.generate("One day", seed=seed, do_sample=True, **fields, **CALL)


@pytest.mark.parametrize("given", ["7", 7.5, None, True, 2**64, -(2**63) - 1])
def test_what_is_no_seed_is_refused(given):
    with pytest.raises(rsgen.ConfigError, match="`seed` must be an integer from"):
        rsgen.Seed(given)


@pytest.mark.parametrize(
    "state",
    [b"", np.zeros(5056, np.uint8), np.full(5056, 255, np.uint8), np.zeros(9, np.uint8), "state", None],
)
def test_what_is_no_state_is_refused(state):
    with pytest.raises(rsgen.InputError, match=r"`state` must be what get_state\(\) returns"):
        rsgen.Seed(7).set_state(state)
