"""Guidance under every strategy, compared with a processor that computes the negative prompt anew in each step."""

from pathlib import Path

import numpy as np
import pytest
import rsgen
from stopwatch import Stopwatch

PROMPT = "Once upon a time, there was a little"
NEGATIVE = "The dog was sad and"
SCALE = 2.5
#: The strategies, and what they need.
STRATEGIES = {
    "greedy_search": {},
    "sample": {"seed": 3, "num_return_sequences": 3, "top_k": 0},
    "beam_search": {"num_beams": 4, "num_return_sequences": 2},
    "beam_sample": {"num_beams": 3, "seed": 5, "num_return_sequences": 2},
    "group_beam_search": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
    "constrained_beam_search": {"num_beams": 3, "force_words_ids": [[262]]},
    "contrastive_search": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low"},
}


def log_softmax(scores):
    scores = scores.astype(np.float64)
    return scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()


class UnbatchedClassifierFreeGuidanceLogitsProcessor:
    """Computes the whole unconditional text in each step, at the place of the processor whose name it has."""

    def __init__(self, gen, negative, width):
        self.gen, self.negative, self.width = gen, negative, width

    def __call__(self, input_ids, scores):
        rows = []
        for ids, row in zip(input_ids, scores, strict=True):
            begin = ids[self.width - 1 : self.width] if self.negative is None else self.negative
            logits = self.gen.forward(np.array([*begin, *ids[self.width :]]))[0, -1]
            unconditional = log_softmax(logits)
            rows.append(SCALE * (log_softmax(row) - unconditional) + unconditional)
        return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("has_negative", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_is_guided_as_if_the_negative_prompt_were_computed_anew(gen, strategy, has_negative):
    ids = gen.tokenizer.encode(PROMPT)
    negative = gen.tokenizer.encode(NEGATIVE) if has_negative else None
    fields = dict(STRATEGIES[strategy], max_new_tokens=16)
    search = getattr(gen, strategy)
    anew = UnbatchedClassifierFreeGuidanceLogitsProcessor(gen, negative, len(ids))
    with pytest.warns(UserWarning, match="takes the place of the one that `guidance_scale` asks for"):
        expected = search(ids, logits_processor=[anew], guidance_scale=SCALE, **fields)
    guided = search(ids, guidance_scale=SCALE, negative_prompt_ids=negative, **fields)
    np.testing.assert_array_equal(guided.sequences, expected.sequences)
    assert (guided.sequences != search(ids, **fields).sequences).any(), "guidance changes the text"


def test_candidates_of_a_draft_are_checked_with_guidance(gen):
    fields = {"guidance_scale": SCALE, "negative_prompt": NEGATIVE, "max_new_tokens": 40}
    expected = gen.greedy_search(PROMPT, **fields)
    looked_up = gen.prompt_lookup(PROMPT, prompt_lookup_num_tokens=4, max_matching_ngram_size=1, **fields)
    np.testing.assert_array_equal(looked_up.sequences, expected.sequences)
    assert looked_up.draft_stats.drafted > looked_up.draft_stats.accepted, "some are rolled back"
    drafter = rsgen.Generator(Path(rsgen.__file__).parent / "models" / "story-draft")
    for more in ({"assistant_model": drafter}, {"assistant_early_exit": 3}):
        assisted = gen.generate(PROMPT, num_assistant_tokens=5, **more, **fields)
        np.testing.assert_array_equal(assisted.sequences, expected.sequences)
        assert 0 < assisted.draft_stats.accepted < assisted.draft_stats.drafted
    drawn = gen.generate(
        PROMPT, do_sample=True, seed=1, num_return_sequences=2, assistant_model=drafter, **fields
    )
    assert drawn.draft_stats.accepted


def test_prompts_of_a_list_and_of_a_batch_have_their_own_negative_prompts(gen):
    prompts, negatives = ["One day, a cat", "Lily and Tom went to"], [NEGATIVE, "It was a big"]
    fields = {"guidance_scale": SCALE, "max_new_tokens": 12}
    alone = [
        gen.generate(prompt, negative_prompt=negative, **fields).text
        for prompt, negative in zip(prompts, negatives, strict=True)
    ]
    assert gen.generate(prompts, negative_prompt=negatives, **fields).texts == alone
    one = gen.generate(prompts, negative_prompt=NEGATIVE, **fields).texts
    assert one[0] == alone[0]
    assert one[1] == gen.generate(prompts[1], negative_prompt=NEGATIVE, **fields).text != alone[1]
    rows = [gen.tokenizer.encode(prompt) for prompt in prompts]
    others = [gen.tokenizer.encode(negative) for negative in negatives]
    width, wide = max(map(len, rows)), max(map(len, others))
    ids = np.array([[2] * (width - len(row)) + row for row in rows])
    negative = np.array([[2] * (wide - len(row)) + row for row in others])
    batch = gen.generate(
        ids,
        attention_mask=ids != 2,
        negative_prompt_ids=negative,
        negative_prompt_attention_mask=(negative != 2).astype(int),
        **fields,
    )
    assert batch.texts == alone


def test_a_processor_in_the_list_gives_what_the_field_gives(gen):
    ids = gen.tokenizer.encode(NEGATIVE)
    processor = rsgen.processors.UnbatchedClassifierFreeGuidanceLogitsProcessor(SCALE, gen, [ids, ids[:3]])
    listed = gen.generate(["One day", "A cat"], logits_processor=[processor], max_new_tokens=10)
    field = gen.generate(
        ["One day", "A cat"], guidance_scale=SCALE, negative_prompt_ids=[ids, ids[:3]], max_new_tokens=10
    )
    assert listed.texts == field.texts
    with pytest.raises(rsgen.InputError, match="only a call of the model computes"):
        processor([[1, 2]], np.zeros((1, 5)))


def test_guidance_goes_on_where_a_small_cache_takes_blocks_back():
    large = rsgen.Generator(num_threads=1, prefix_caching=False)
    stats = large.stats()
    fields = {"guidance_scale": SCALE, "negative_prompt": NEGATIVE, "max_new_tokens": 60, "num_beams": 3}
    prompts = [f"{PROMPT} {name}" for name in ("cat", "dog", "girl", "boy")]
    expected = large.generate(prompts, **fields).texts
    blocks = 45 * (stats.bytes_total // stats.blocks_total)
    small = rsgen.Generator(num_threads=1, kv_cache_bytes=blocks)
    assert small.generate(prompts, **fields).texts == expected


def test_events_scores_and_streams_are_those_of_guided_tokens(gen):
    fields = {"guidance_scale": SCALE, "negative_prompt": NEGATIVE, "max_new_tokens": 8}
    out = gen.generate(PROMPT, output_scores=True, output_logits=True, output_events=True, **fields)
    plain = gen.generate(PROMPT, output_logits=True, max_new_tokens=1)
    np.testing.assert_array_equal(out.logits[0], plain.logits[0], "logits are the model's own")
    assert out.scores[0][0].argmax() == out.token_ids[0][0]
    assert "".join(token.text for token in gen.stream(PROMPT, **fields)) == out.text


def test_a_long_negative_prompt_does_not_change_what_dynamic_rope_makes_of_the_prompt(make_llama):
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    gen = rsgen.Generator(make_llama(max_position_embeddings=32, rope_parameters=rope), num_threads=1)
    fields = {"max_new_tokens": 6, "output_logits": True}
    plain = gen.generate([5, 6, 7], **fields)
    hardly = {"guidance_scale": 1.0000002, "negative_prompt_ids": list(range(60))}
    guided = gen.generate([5, 6, 7], **hardly, **fields)
    np.testing.assert_array_equal(guided.sequences, plain.sequences)
    np.testing.assert_array_equal(guided.logits, plain.logits)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"guidance_scale": float("nan")}, "`guidance_scale` must be a number"),
        ({"guidance_scale": "2"}, "`guidance_scale` must be a number"),
        ({"negative_prompt_ids": []}, "`negative_prompt_ids` must hold at least one token"),
        ({"negative_prompt_ids": [[1], [2]]}, r"one for each prompt \(1\), but holds 2"),
        ({"negative_prompt_ids": "a"}, "`negative_prompt_ids` must be a list of token ids"),
        ({"negative_prompt_ids": [10**6]}, "holds the id 1000000"),
        ({"negative_prompt_attention_mask": [1]}, "goes with `negative_prompt_ids`"),
        (
            {"negative_prompt_ids": [1, 2], "negative_prompt_attention_mask": [1]},
            "`negative_prompt_attention_mask` must have the shape of `negative_prompt_ids`",
        ),
        ({"negative_prompt": "a", "negative_prompt_ids": [1]}, "leave out one of them"),
        ({"negative_prompt": 5}, "`negative_prompt` must be a text or a list of texts"),
    ],
)
def test_what_is_no_guidance_is_refused(gen, fields, message):
    with pytest.raises(rsgen.RsgenError, match=message):
        gen.generate(PROMPT, **{"guidance_scale": 2.0, "max_new_tokens": 2} | fields)


def test_none_and_1_are_no_guidance_and_a_lonely_negative_prompt_is_a_warning(gen):
    expected = gen.generate(PROMPT, max_new_tokens=8).text
    fields = {"guidance_scale": None, "negative_prompt_ids": None, "negative_prompt_attention_mask": None}
    assert gen.generate(PROMPT, max_new_tokens=8, **fields).text == expected
    assert gen.generate(PROMPT, max_new_tokens=8, guidance_scale=1).text == expected
    with pytest.warns(UserWarning, match="no effect because `guidance_scale` is not set"):
        assert gen.generate(PROMPT, max_new_tokens=8, negative_prompt=NEGATIVE).text == expected


def test_a_configuration_with_negative_prompts_is_valid_without_a_model():
    config = rsgen.GenerationConfig(guidance_scale=1.5, negative_prompt=["a", "b"])
    assert rsgen.GenerationConfig.from_dict(config.to_dict()) == config
    config.validate()
    rsgen.GenerationConfig(guidance_scale=1.5, negative_prompt_ids=[[1], [2, 3]]).validate()
    with pytest.raises(rsgen.ConfigError, match="`guidance_scale` must be a number"):
        rsgen.GenerationConfig(guidance_scale=float("inf")).validate()


def test_a_wrong_number_of_negative_prompts_is_refused_before_they_are_encoded(gen):
    watch = Stopwatch()
    with pytest.raises(
        rsgen.ConfigError, match=r"`negative_prompt` must be .* each prompt \(1\), .* 1000000"
    ):
        gen.generate("One day", negative_prompt=["Two"] * 1_000_000, guidance_scale=SCALE, max_new_tokens=2)
    watch.assert_within(5)
    with pytest.raises(rsgen.ConfigError, match=r"each prompt \(2\), .* 3"):
        gen.generate(["One", "Two"], negative_prompt=["Two"] * 3, guidance_scale=SCALE, max_new_tokens=2)
