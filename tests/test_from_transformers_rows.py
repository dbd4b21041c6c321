"""Each row of docs/from_transformers.md does what it promises. A row without a check here fails."""

import asyncio
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import rsgen
from rsgen.processors import RepetitionPenaltyLogitsProcessor
from rsgen.stopping_criteria import MaxLengthCriteria
from test_in_memory import tensors

ROOT = Path(__file__).parents[1]
ADAPTERS = json.loads((ROOT / "tests" / "golden" / "adapters.json").read_text())["cases"]
PAGE = (ROOT / "docs" / "from_transformers.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.split("|---|---|\n")[1].split("\n\n")[0], re.MULTILINE)
PROMPT, TEXTS = "Once upon a time", ["Once upon a time", "One day"]
LIMIT = {"max_new_tokens": 6}
CHECKS = {}


def row(beginning):
    """Marks the check of the row that begins so."""
    return lambda check: CHECKS.setdefault(beginning, check)


def same(first, *others):
    """Whether outputs or arrays have the same ids."""
    for other in others:
        np.testing.assert_array_equal(np.asarray(first), np.asarray(other))


@row("`AutoModelForCausalLM.from_pretrained(path)`")
def _(gen, path):
    same(*(cls(path).generate([5, 6], **LIMIT) for cls in (rsgen.Generator, rsgen.Generator.from_pretrained)))


@row("`torch_dtype=torch.bfloat16`")
def _(gen, path):
    expected = rsgen.Generator(path, dtype="bfloat16").forward([5, 6])
    same(expected, rsgen.Generator(path, torch_dtype="bfloat16").forward([5, 6]))
    assert (rsgen.Generator(path, compute_dtype="bfloat16").forward([5, 6]) != expected).any()


@row("a model that is in memory")
def _(gen, path):
    in_memory = rsgen.Generator.from_tensors(gen.config, tensors(Path(gen.name_or_path)), gen.tokenizer)
    same(in_memory.generate(TEXTS, **LIMIT), gen.generate(TEXTS, **LIMIT))


@row("`PeftModel.from_pretrained(model, folder).merge_and_unload()`")
def _(gen, path):
    case = ADAPTERS["patterns"]
    merged = rsgen.Generator(ROOT / case["base"], adapter=ROOT / case["adapter"])
    found = merged.forward([case["input_ids"]])[0, -1]
    np.testing.assert_allclose(found, case["logits"], rtol=1e-5, atol=1e-4)


@row('`model.load_adapter(folder, adapter_name="a")`')
def _(gen, path):
    beside = rsgen.Generator()
    plain = beside.generate(PROMPT, **LIMIT)
    beside.load_adapter(ROOT / ADAPTERS["story"]["adapter"], name="a")
    assert beside.generate(PROMPT, adapter="a", **LIMIT).text != plain.text
    same(beside.generate(PROMPT, **LIMIT).sequences, plain.sequences)


@row('`model.add_weighted_adapter(["a", "b"], [0.7, 0.3], "sum", combination_type="cat")` of PEFT')
def _(gen, path):
    case = json.loads((ROOT / "tests/golden/weighted_adapters.json").read_text())["cases"]["two"]
    beside = rsgen.Generator(ROOT / case["base"])
    for name, (folder, _) in zip("ab", case["adapters"], strict=True):
        beside.load_adapter(ROOT / folder, name=name)
    found = beside.forward([case["input_ids"]], adapter=[("a", 0.7), ("b", 0.3)])[0, -1]
    np.testing.assert_allclose(found, case["logits"], rtol=1e-5, atol=1e-4)


@row("`cache_dir=`, `revision=`, `local_files_only=True`")
def _(gen, path):
    opened = rsgen.Generator(path, cache_dir="/nowhere", revision=None, local_files_only=True)
    same(opened.generate([5, 6], **LIMIT), rsgen.Generator(path).generate([5, 6], **LIMIT))


@row("`load_in_8bit=True`")
def _(gen, path):
    with pytest.raises(rsgen.ConfigError, match='dtype="int8" or dtype="int4"'):
        rsgen.Generator(path, load_in_8bit=True)


@row('`model.to("cuda")`')
def _(gen, path):
    assert rsgen.Generator(path, device_map="auto", device="cpu").generate([5, 6], **LIMIT)
    with pytest.raises(rsgen.ConfigError, match="computes on CPUs alone"):
        rsgen.Generator(path, device_map="cuda")


@row("`AutoTokenizer.from_pretrained(path)`")
def _(gen, path):
    assert rsgen.Tokenizer().encode(PROMPT) == gen.tokenizer.encode(PROMPT)


@row('`tokenizer(text, return_tensors="pt")`')
def _(gen, path):
    encoding = gen.tokenizer(PROMPT, return_tensors="np")
    same(gen.generate(**encoding, **LIMIT), gen.generate(PROMPT, **LIMIT))


@row("`tokenizer.padding_side`")
def _(gen, path):
    assert gen.tokenizer.padding_side == "left"


@row("`tokenizer.vocab_size`")
def _(gen, path):
    assert gen.tokenizer.vocab_size == len(gen.tokenizer)


@row("`tokenizer.apply_chat_template(messages)`")
def _(gen, path):
    messages, template = [{"role": "user", "content": PROMPT}], "{{ messages[0].content }}"
    text = gen.apply_chat_template(messages, chat_template=template, tokenize=False)
    assert text == PROMPT
    assert gen.chat(messages, chat_template=template, **LIMIT).text
    for tokenizer in (gen.tokenizer, rsgen.Tokenizer()):
        given = tokenizer.apply_chat_template(messages, chat_template=template)
        assert given["input_ids"] == gen.apply_chat_template(messages, chat_template=template)
    inputs = gen.apply_chat_template(messages, chat_template=template, return_dict=True, return_tensors="np")
    same(gen.generate(**inputs, **LIMIT), gen.generate(inputs["input_ids"], **LIMIT))


@row("`tokenizer(text, return_offsets_mapping=True)`")
def _(gen, path):
    # `test_tokenizer.py` compares them with those of transformers.
    assert gen.tokenizer("One day", return_offsets_mapping=True)["offset_mapping"] == [(0, 0), (0, 3), (3, 7)]
    folder = Path(path) / "saved"
    gen.tokenizer.save_pretrained(folder)
    assert rsgen.Tokenizer(folder).encode(PROMPT) == gen.tokenizer.encode(PROMPT)


@row("`model.generate(**inputs, num_beams=4)`")
def _(gen, path):
    inputs = gen.tokenizer(TEXTS, padding=True, return_tensors="np")
    same(gen.generate(**inputs, num_beams=4, **LIMIT), gen.beam_search(**inputs, num_beams=4, **LIMIT))


@row("`model.generate(inputs)` without a prompt")
def _(gen, path):
    same(gen.generate(**LIMIT), gen.generate([gen.tokenizer.bos_token_id], **LIMIT))


@row("`generation_config=GenerationConfig(…)`")
def _(gen, path):
    config = rsgen.GenerationConfig(num_beams=2, **LIMIT)
    same(gen.generate(PROMPT, generation_config=config), gen.generate(PROMPT, num_beams=2, **LIMIT))


@row("`torch.manual_seed(7)`")
def _(gen, path):
    fields = {"do_sample": True, "seed": 7, **LIMIT}
    same(gen.generate(PROMPT, **fields), gen.generate(PROMPT, **fields))
    seed = rsgen.Seed(7)
    first, second = (gen.generate(PROMPT, **fields | {"seed": seed}) for _ in range(2))
    same(first, gen.generate(PROMPT, **fields))
    assert first != second


@row("`del model; gc.collect()`")
def _(gen, path):
    with rsgen.Generator(path) as opened:
        other = rsgen.Generator(path)
        other.close()
    assert opened.closed
    assert other.closed


@row("`outputs[0]`, `outputs[:, n:]`, `for ids in outputs`")
def _(gen, path):
    outputs = gen.generate(TEXTS, **LIMIT)
    same(outputs[0], outputs.sequences[0])
    same(outputs[:, 5:], outputs.sequences[:, 5:])
    assert gen.tokenizer.batch_decode(outputs.token_ids, skip_special_tokens=True) == outputs.texts
    for index, ids in enumerate(outputs):
        same(ids, outputs.sequences[index])
        assert (ids.text, ids.score, ids.finish_reason) == (outputs.texts[index], None, "length")
    assert outputs.to_pandas()["text"].tolist() == outputs.texts


@row("`output_scores=True, return_dict_in_generate=True`")
def _(gen, path):
    fields = {"num_beams": 2, "output_scores": True, "return_dict_in_generate": True, **LIMIT}
    outputs = gen.generate(TEXTS, **fields)
    assert len(outputs.scores) == 6
    assert outputs["scores"] is outputs.scores
    assert "scores" in outputs
    assert "scores" in set(outputs.keys())
    assert dict(outputs)["scores"] is outputs.scores
    assert len(outputs) == len(list(outputs)) == 2
    assert outputs.sequences_scores.shape == (2,)


@row("`output_hidden_states=True`")
def _(gen, path):
    plain = gen.generate(PROMPT, output_hidden_states=True, output_attentions=True, **LIMIT)
    # In the shapes of a cached step, as docs/parity.md says.
    for fields in ({"use_cache": False}, {"prefill_chunk_size": 2}):
        other = gen.generate(PROMPT, output_hidden_states=True, output_attentions=True, **fields, **LIMIT)
        for states in ("hidden_states", "attentions"):
            ours, theirs = getattr(plain, states), getattr(other, states)
            assert [layer.shape for step in ours for layer in step] == [
                layer.shape for step in theirs for layer in step
            ]
    assert len(gen.forward([[5, 6]], output_hidden_states=True).hidden_states) == 7


@row("`model.get_input_embeddings()(ids)`")
def _(gen, path):
    out = gen.generate(inputs_embeds=gen.embed(PROMPT), **LIMIT)
    same(out.token_ids[0], gen.generate(PROMPT, **LIMIT).token_ids[0])
    assert hasattr(out, "past_key_values")
    assert out.past_key_values is None


@row("`model(…, output_hidden_states=True).hidden_states[-1].mean(1)`")
def _(gen, path):
    vectors = gen.embed(TEXTS, pooling="mean", normalize=False)
    for text, vector in zip(TEXTS, vectors, strict=True):
        states = gen.forward([gen.tokenizer.encode(text)], output_hidden_states=True).hidden_states[-1]
        np.testing.assert_allclose(states.mean(1)[0], vector, atol=1e-5)


@row("`model.compute_transition_scores(…)`")
def _(gen, path):
    out = gen.generate(TEXTS, output_scores=True, **LIMIT)
    assert out.compute_transition_scores(normalize_logits=True).shape == (2, 6)


@row("`generate(streamer=TextStreamer(tokenizer))`")
def _(gen, path):
    with redirect_stdout(io.StringIO()) as printed:
        out = gen.generate(PROMPT, streamer=rsgen.TextStreamer(gen.tokenizer, skip_prompt=True), **LIMIT)
    assert printed.getvalue().strip() == out.text.strip()


@row("`TextIteratorStreamer` in a thread")
def _(gen, path):
    async def read():
        return [token.id async for token in gen.astream(PROMPT, **LIMIT)]

    same([token.id for token in gen.stream(PROMPT, **LIMIT)], asyncio.run(read()))


@row("`LogitsProcessorList([…])`")
def _(gen, path):
    listed = [RepetitionPenaltyLogitsProcessor(1.7)]
    for prompt in (PROMPT, TEXTS):
        expected = gen.generate(prompt, repetition_penalty=1.7, **LIMIT)
        same(gen.generate(prompt, logits_processor=listed, **LIMIT), expected)
    with pytest.warns(UserWarning, match="takes the place of the one that `repetition_penalty` asks for"):
        out = gen.generate(PROMPT, logits_processor=listed, repetition_penalty=9.0, **LIMIT)
    same(out, gen.generate(PROMPT, repetition_penalty=1.7, **LIMIT))


@row("`StoppingCriteriaList([MaxLengthCriteria(50)])`")
def _(gen, path):
    assert gen.generate(PROMPT, stopping_criteria=[MaxLengthCriteria(9)]).sequences.shape == (1, 9)


@row('`pipeline("text-generation")`')
def _(gen, path):
    fields = {"do_sample": True, "temperature": 0.7, "max_new_tokens": 8, "seed": [1, 2]}
    together = gen.generate(TEXTS, **fields)
    assert together.texts == [
        gen.generate(text, **fields | {"seed": n}).text for n, text in enumerate(TEXTS, 1)
    ]


@row("`assistant_model=`")
def _(gen, path):
    same(
        gen.generate(PROMPT, assistant_model=gen, num_assistant_tokens=3, **LIMIT),
        gen.generate(PROMPT, **LIMIT),
    )
    both = {"tokenizer": gen.tokenizer, "assistant_tokenizer": gen.tokenizer}
    same(
        gen.generate(PROMPT, stop_strings=["a"], **both, **LIMIT),
        gen.generate(PROMPT, stop_strings=["a"], **LIMIT),
    )


@row("`past_key_values=out.past_key_values`")
def _(gen, path):
    single, batch = gen.generate(PROMPT, return_cache=True, **LIMIT), np.array([[5, 6, 7], [8, 9, 10]])
    several = gen.generate(batch, return_cache=True, **LIMIT)
    beams = gen.generate(PROMPT, num_beams=2, num_return_sequences=2, return_cache=True, **LIMIT)
    for out in (single, several, beams):
        expected = gen.generate(out.sequences, **LIMIT)
        same(gen.generate(out.sequences, past_key_values=out.past_key_values, **LIMIT), expected)
    ending = gen.tokenizer.encode(" and", add_special_tokens=False)
    whole = gen.generate([*single.sequences[0].tolist(), *ending], **LIMIT)
    assert gen.generate(ending, cache=single.cache, **LIMIT).text == whole.text


@row("`SinkCache(window_length=1024, num_sink_tokens=4)`")
def _(gen, path):
    assert (
        gen.generate(PROMPT, attention_sinks=4, window=64, **LIMIT).text == gen.generate(PROMPT, **LIMIT).text
    )


@row("`outlines`, `guidance`, `lm-format-enforcer`")
def _(gen, path):
    assert re.fullmatch("[a-c]{3}", gen.generate(PROMPT, regex="[a-c]{3}", max_new_tokens=9).text)
    schema = {"enum": ["yes", "no"]}
    assert json.loads(gen.generate(PROMPT, json_schema=schema, max_new_tokens=9).text) in ("yes", "no")


@row("`prompt_lookup_num_tokens=`")
def _(gen, path):
    for fields in ({"prompt_lookup_num_tokens": 3}, {"assistant_early_exit": 3}):
        same(gen.generate(PROMPT, **fields, **LIMIT), gen.generate(PROMPT, **LIMIT))


@row("`watermarking_config=WatermarkingConfig(…)`")
def _(gen, path):
    for config in (rsgen.WatermarkingConfig(bias=9.0), rsgen.SynthIDTextWatermarkingConfig(5, [1, 2, 3])):
        out = gen.sample(PROMPT, watermarking_config=config, seed=1, **LIMIT)
        same(out, gen.sample(PROMPT, watermarking_config=config.to_dict(), seed=1, **LIMIT))


@row('`WatermarkDetector(model.config, "cpu", config)`')
def _(gen, path):
    config = rsgen.WatermarkingConfig(bias=9.0)
    ids = gen.sample(PROMPT, watermarking_config=config, seed=1, max_new_tokens=40).token_ids
    for model in (gen, gen.config):
        assert rsgen.WatermarkDetector(model, "cpu", config)(ids).tolist() == [True]


@row("`SynthIDTextWatermarkDetector(model, processor, tokenizer)`")
def _(gen, path):
    config = rsgen.SynthIDTextWatermarkingConfig(5, [1, 2, 3])
    detector = rsgen.SynthIDTextWatermarkDetector(None, config, gen.tokenizer)
    assert detector.compute_g_values([list(range(9))]).shape == (1, 5, 3)


@row("`stop_strings=")
def _(gen, path):
    call = {"stop_strings": [" little"], "tokenizer": gen.tokenizer, "max_new_tokens": 30}
    text = gen.generate(PROMPT, **call).text
    assert text.endswith(" little")
    assert gen.generate(PROMPT, include_stop_str_in_output=False, **call).text == text.removesuffix(" little")


@row("`token_healing=True, tokenizer=tokenizer`")
def _(gen, path):
    assert gen.generate("Once upon a ti", token_healing=True, **LIMIT).text


@row("`guidance_scale=`")
def _(gen, path):
    negative = gen.tokenizer.encode("One day")
    fields = {"guidance_scale": 1.5, "num_beams": 2, **LIMIT}
    same(
        gen.generate(PROMPT, negative_prompt="One day", **fields),
        gen.generate(PROMPT, negative_prompt_ids=negative, **fields),
    )


def check_of(cell):
    found = [check for beginning, check in CHECKS.items() if cell.startswith(beginning)]
    assert len(found) == 1, f"{len(found)} checks for the row {cell}"
    return found[0]


def test_each_check_has_its_row():
    assert len(ROWS) == len(CHECKS) == len({check_of(cell) for cell, _ in ROWS})


@pytest.mark.parametrize("cell", [cell for cell, _ in ROWS])
def test_a_row_does_what_it_promises(cell, gen, make_llama):
    check_of(cell)(gen, make_llama())
