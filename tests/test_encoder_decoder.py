"""Models with an encoder against goldens of transformers, and as users meet them."""

import json
import logging
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import rsgen
from tiny_encoder_decoder import without_fill, write_folder

GOLDENS = sorted((Path(__file__).parent / "golden/encoder_decoder_requests").glob("*.json"))


def read(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.fixture(scope="module", params=GOLDENS, ids=lambda path: path.stem)
def golden(request, tmp_path_factory):
    """A golden, its model and the model that drafts for it."""
    made = read(request.param)
    folder = tmp_path_factory.mktemp(request.param.stem)
    models = []
    for seed in ("", "assistant"):
        write_folder(
            folder / f"model{seed}", made["config"], made["tensors"], seed, **made["generation_config"]
        )
        models.append(rsgen.Generator(folder / f"model{seed}", num_threads=1))
    return made, *models


def run(case: dict, model: rsgen.Generator, assistant: rsgen.Generator) -> rsgen.GenerationOutput:
    fields = dict(case["fields"])
    for name in ("attention_mask", "decoder_input_ids"):
        if case[name] is not None:
            fields[name] = np.array(case[name])
    if case["assisted"]:
        fields["assistant_model"] = assistant
    if case["seed"] is not None:
        fields["seed"] = case["seed"]
    return model.generate(np.array(case["input_ids"]), **fields)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_requests_give_what_transformers_gives(golden):
    made, model, assistant = golden
    differing = []
    for case in made["cases"]:
        out = run(case, model, assistant)
        expected = case["answer"]
        got, expected_rows = (
            without_fill(answer, made["generation_config"], case["decoder_input_ids"])
            for answer in (expected | {"sequences": out.sequences.tolist()}, expected)
        )
        same = got == expected_rows
        if same and "sequences_scores" in expected:
            same = np.allclose(out.sequences_scores, expected["sequences_scores"], atol=2e-4)
        if not same:
            differing.append((case["name"], got, expected))
    assert not differing, f"{len(differing)} of {len(made['cases'])}: {differing[:2]}"


def arrays(values):
    """The arrays of nested tuples."""
    return [array for value in values for array in arrays(value)] if isinstance(values, tuple) else [values]


def test_states_are_those_of_transformers(golden):
    made, model, assistant = golden
    case = made["states"]
    both = {"output_hidden_states": True, "output_attentions": True}
    out = run(case | {"fields": case["fields"] | both}, model, assistant)
    answer = case["answer"]
    rows = (
        without_fill(
            found | {"sequences_scores": out.sequences_scores.tolist()}, made["generation_config"], None
        )
        for found in ({"sequences": out.sequences.tolist()}, answer)
    )
    assert next(rows) == next(rows)
    for name, expected in answer.items():
        if name == "sequences":
            continue
        found = arrays(getattr(out, name))
        assert [list(array.shape) for array in found] == [shape for shape, _ in expected], name
        for array, (_, numbers) in zip(found, expected, strict=True):
            first = array[0].reshape(-1)
            assert np.allclose([np.abs(first).mean(), first[0], first[-1]], numbers, atol=1e-4), name


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_strategies_that_transformers_5_has_dropped_are_those_of_4_55(golden):
    made, model, assistant = golden
    differing = []
    if "dropped" not in made:
        pytest.skip("transformers 4.55 does not run this model")
    for case in made["dropped"]:
        older = {"compat": "4.49"} if case["name"].startswith("4.49") else {}
        out = run(case | {"fields": case["fields"] | older}, model, assistant)
        expected = case["answer"]
        got, expected_rows = (
            without_fill(answer, made["generation_config"], case["decoder_input_ids"])
            for answer in (expected | {"sequences": out.sequences.tolist()}, expected)
        )
        same = got == expected_rows
        if same and "sequences_scores" in expected:
            same = np.allclose(out.sequences_scores, expected["sequences_scores"], atol=2e-4)
        if not same:
            differing.append((case["name"], got, expected))
    assert not differing, f"{len(differing)} of {len(made['dropped'])}: {differing[:2]}"


def test_pad_tokens_within_a_prompt_of_m2m100_are_refused(golden):
    made, model, _ = golden
    pad = made["generation_config"]["pad_token_id"]
    for prompt in ([9, pad, 10], [pad, 9, 10], [9, 10, pad], [pad]):
        fields = {"decoder_input_ids": [prompt], "max_new_tokens": 3}
        if made["config"]["model_type"] == "m2m_100" and prompt[-1] == 10:
            with pytest.raises(rsgen.ConfigError, match="`decoder_input_ids` must not hold"):
                model.generate([7, 8, 9], **fields)
        else:
            assert len(model.generate([7, 8, 9], **fields).token_ids[0]) >= 1


@pytest.fixture(scope="module", params=["t5", "bart"])
def folder(request, tmp_path_factory):
    """The folder of a golden's model."""
    made = read(Path(__file__).parent / f"golden/encoder_decoder_requests/{request.param}.json")
    folder = tmp_path_factory.mktemp(request.param)
    write_folder(folder, made["config"], made["tensors"], **made["generation_config"])
    return folder


def sources(count: int) -> list[list[int]]:
    """Sources of different lengths, across the borders of blocks."""
    lens = [5, 31, 32, 33, 64, 70, 1, 18]
    return [[6 + (7 * row + at * at) % 50 for at in range(lens[row % 8])] for row in range(count)]


FIELDS = {"max_new_tokens": 12, "output_logits": True}


def logits(out: rsgen.GenerationOutput) -> list[np.ndarray]:
    return [np.asarray(step) for step in out.logits]


def test_a_source_gives_the_same_bits_alone_in_a_list_with_threads_and_in_chunks(folder):
    one = rsgen.Generator(folder, num_threads=1, prefix_caching=False)
    two = rsgen.Generator(folder, num_threads=2)
    for fields in (FIELDS, FIELDS | {"num_beams": 3}, FIELDS | {"do_sample": True, "seed": [3] * 8}):
        together = two.generate(sources(8), **fields)
        for row, source in enumerate(sources(8)):
            alone = one.generate(source, **fields | ({"seed": 3} if "seed" in fields else {}))
            assert alone.token_ids[0].tolist() == together.token_ids[row].tolist()
    alone, threads = (gen.generate(sources(4)[3], **FIELDS) for gen in (one, two))
    assert all(np.array_equal(a, b) for a, b in zip(logits(alone), logits(threads), strict=True))


def test_chunks_change_nothing(folder):
    gen = rsgen.Generator(folder, num_threads=1)
    fields = FIELDS | {"decoder_input_ids": [[7, 8, 9, 10, 11]]}
    whole = gen.generate(sources(2)[1], **fields)
    chunks = gen.generate(sources(2)[1], prefill_chunk_size=2, **fields)
    assert all(np.array_equal(a, b) for a, b in zip(logits(whole), logits(chunks), strict=True))


def test_the_output_begins_with_the_decoders_prompt(folder):
    gen = rsgen.Generator(folder, num_threads=1)
    start = gen.generation_config.decoder_start_token_id
    source = sources(1)[0]
    out = gen.generate(source, max_new_tokens=4)
    assert out.sequences[0].tolist() == [start, *out.token_ids[0].tolist()]
    out = gen.generate(source, decoder_input_ids=[9, 10], max_new_tokens=4)
    assert out.sequences[0].tolist()[:3] == [start, 9, 10]
    assert out.usage.prompt_tokens == len(source) + 3
    many = gen.generate(sources(2), decoder_input_ids=[[9], [8, 7]], max_new_tokens=4)
    # Shorter prompts are padded on the left.
    assert many.sequences[0].tolist()[1:3] == [start, 9]
    assert many.sequences[1].tolist()[:3] == [start, 8, 7]


def test_streams_give_what_calls_give(folder):
    gen = rsgen.Generator(folder, num_threads=1)
    for fields in ({}, {"num_beams": 3}, {"do_sample": True, "seed": 4}):
        out = gen.generate(sources(2)[1], max_new_tokens=9, **fields)
        streamed = [token.id for token in gen.stream(sources(2)[1], max_new_tokens=9, **fields)]
        assert streamed == out.token_ids[0].tolist()


def test_a_target_is_scored_given_its_source(folder):
    gen = rsgen.Generator(folder, num_threads=1)
    source = sources(2)[1]
    out = gen.generate(
        source, max_new_tokens=9, output_logits=True, eos_token_id=[], forced_eos_token_id=None
    )
    target = out.token_ids[0].tolist()
    scores = gen.score(source, target)
    steps = np.stack(logits(out))[:, 0].astype(np.float64)
    expected = (
        steps
        - np.log(np.exp(steps - steps.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - steps.max(-1, keepdims=True)
    )
    np.testing.assert_allclose(scores, expected[np.arange(len(target)), target], atol=1e-4)
    several = gen.score([source, source], [target, target[:3]], top_logprobs=2)
    assert several[1].logprobs.tolist() == scores[:3].tolist()
    assert several[0].ranks.tolist() == [1] * len(target)


def test_what_needs_a_decoder_alone_is_refused_with_a_reason(folder):
    gen = rsgen.Generator(folder, num_threads=1)
    story = rsgen.Generator()
    source = sources(1)[0]
    for refused, says in [
        (lambda: gen.score(source), "`score_targets`|its source"),
        (lambda: gen.prefill(source), "`prefill` is not possible"),
        (lambda: gen.forward([source]), "`forward` is not possible"),
        (lambda: gen.generate(source, return_cache=True), "a kept cache is not possible"),
        (lambda: gen.generate(source, guidance_scale=2.0), "`guidance_scale`"),
        (lambda: gen.generate(source, decoder_attention_mask=[[1]]), "`decoder_attention_mask` goes with"),
        (lambda: gen.generate([source] * 3, decoder_input_ids=[[7], [8]]), "`decoder_input_ids`"),
        (lambda: gen.generate([99]), "the source holds the id 99"),
        (lambda: story.generate("Once", decoder_input_ids=[[7]]), "`decoder_input_ids` goes with"),
        (lambda: story.score("Once", "upon"), "a target follows a source"),
    ]:
        with pytest.raises((rsgen.InputError, rsgen.ConfigError), match=says):
            refused()


def test_interrupted_and_narrow_calls_leave_nothing_behind(folder):
    gen = rsgen.Generator(folder, num_threads=1, kv_cache_bytes=1 << 19)
    roomy = rsgen.Generator(folder, num_threads=1)
    fields = {"max_new_tokens": 40, "num_beams": 3, "eos_token_id": []}
    expected = roomy.generate(sources(12), **fields)
    got = gen.generate(sources(12), **fields)
    assert got.sequences.tolist() == expected.sequences.tolist()
    for _ in range(3):
        stream = gen.stream(sources(8)[5], max_new_tokens=20)
        next(iter(stream))
        stream.close()
    assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0


def test_a_source_may_be_embeddings(folder):
    gen = rsgen.Generator(folder, num_threads=1)
    ids = sources(4)[3]
    expected = gen.generate(ids, **FIELDS)
    out = gen.generate(inputs_embeds=gen.embed(ids), **FIELDS)
    assert out.sequences.tolist() == expected.sequences.tolist()
    assert all(np.array_equal(a, b) for a, b in zip(logits(out), logits(expected), strict=True))


def test_alignments_are_the_mean_of_the_heads_of_the_last_layer(folder):
    gen = rsgen.Generator(folder, num_threads=1)
    fields = {"max_new_tokens": 5, "output_attentions": True, "eos_token_id": []}
    out = gen.generate(sources(2), **fields)
    for row, source in enumerate(sources(2)):
        weights = np.stack([step[-1][row, :, -1] for step in out.cross_attentions]).mean(1)
        assert out.alignments[row].shape == (5, len(source))
        np.testing.assert_allclose(out.alignments[row], weights[:, : len(source)], atol=1e-6)
        assert not weights[:, len(source) :].any()
        assert np.allclose(out.alignments[row].sum(-1), 1, atol=1e-5)
    beams = gen.generate(sources(2)[1], num_beams=3, num_return_sequences=2, **fields)
    for row, indices in enumerate(beams.beam_indices):
        weights = [
            step[-1][index, :, -1] for step, index in zip(beams.cross_attentions, indices, strict=True)
        ]
        np.testing.assert_allclose(beams.alignments[row], np.stack(weights).mean(1), atol=1e-6)
    # Others encode the same source beside it, and what they share changes nothing.
    plain = gen.generate(sources(2), max_new_tokens=5, eos_token_id=[])
    assert plain.sequences.tolist() == out.sequences.tolist()
    assert (plain.alignments, plain.cross_attentions, plain.encoder_attentions) == (None, None, None)
    again = gen.generate(sources(2), **fields)
    assert again == out
    assert pickle.loads(pickle.dumps(out)) == out
    assert out["encoder_attentions"] is out.encoder_attentions
    assert out.decoder_attentions is out.attentions
    assert out.encoder_hidden_states is out.decoder_hidden_states is None
    story = rsgen.Generator().generate("Once", max_new_tokens=2, output_attentions=True)
    assert story.attentions is not None
    assert (story.alignments, story.cross_attentions, story.decoder_attentions) == (None, None, None)


def test_states_come_from_narrow_caches_and_assisted_calls_too(folder):
    roomy = rsgen.Generator(folder, num_threads=1)
    narrow = rsgen.Generator(folder, num_threads=1, kv_cache_bytes=1 << 19)
    fields = {
        "max_new_tokens": 20,
        "output_attentions": True,
        "output_hidden_states": True,
        "eos_token_id": [],
    }
    expected = roomy.generate(sources(8), **fields)
    assert narrow.generate(sources(8), **fields) == expected
    drafted = roomy.generate(sources(2)[1], assistant_model=narrow, **fields)
    alone = roomy.generate(sources(2)[1], **fields)
    np.testing.assert_allclose(drafted.alignments[0], alone.alignments[0], atol=1e-5)
    for name in ("encoder_hidden_states", "encoder_attentions"):
        for found, wanted in zip(getattr(drafted, name), getattr(alone, name), strict=True):
            assert np.array_equal(found, wanted)


def test_states_are_those_of_the_decoder(folder):
    gen = rsgen.Generator(folder, num_threads=1)
    fields = {"max_new_tokens": 3, "output_hidden_states": True, "output_attentions": True}
    out = gen.generate(sources(2)[1], decoder_input_ids=[7, 8], **fields)
    config = gen.config
    layers = config.get("decoder_layers") or config["num_decoder_layers"]
    heads = config.get("decoder_attention_heads") or config["num_heads"]
    steps = len(out.token_ids[0])
    assert [len(step) for step in out.hidden_states] == [layers + 1] * steps
    assert out.hidden_states[0][0].shape == (1, 3, config["d_model"])
    assert [step[0].shape for step in out.attentions] == [(1, heads, 3, 3)] + [
        (1, heads, 1, 4 + step) for step in range(steps - 1)
    ]
    assert np.allclose(out.attentions[0][0].sum(-1), 1, atol=1e-5)


def repeat_tensor(file: Path, name: str, copies: list[str]) -> None:
    """Gives a tensor further names, each with numbers of its own, as `torch.save` and other writers do."""
    text = file.read_bytes()
    (length,) = struct.unpack("<Q", text[:8])
    header, data = json.loads(text[8 : 8 + length]), bytearray(text[8 + length :])
    begin, end = header[name]["data_offsets"]
    for copy in copies:
        header[copy] = header[name] | {"data_offsets": [len(data), len(data) + end - begin]}
        data += data[begin:end]
    head = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(head)) + head + data)


@pytest.mark.parametrize("name", ["t5", "t5_flan", "marian"])
def test_a_file_with_every_name_of_its_one_embedding_takes_no_more_memory(name, tmp_path, caplog):
    made = read(GOLDENS[0].parent.parent / "encoders" / f"{name}.json")
    shared = next(tensor for tensor in made["tensors"] if tensor.endswith("shared.weight"))
    base = shared.removesuffix("shared.weight")
    sides = [f"{base}{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    heads = [] if "lm_head.weight" in made["tensors"] else ["lm_head.weight"]
    ends = {"max_new_tokens": 8, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    told = []
    for copies in ([], sides + heads):
        folder = tmp_path / str(len(copies))
        write_folder(folder, made["config"], made["tensors"], **ends)
        repeat_tensor(folder / "model.safetensors", shared, copies)
        with caplog.at_level(logging.WARNING, logger="rsgen"):
            gen = rsgen.Generator(folder, num_threads=1)
        out = gen.generate([5, 6, 7, 8], num_beams=3)
        told.append((gen.inspect()["weight_bytes"], out.sequences.tolist()))
    assert told[0] == told[1]
    assert not [record for record in caplog.records if record.name.startswith("rsgen")]
