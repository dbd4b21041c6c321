"""A model of transformers in memory, trained a little, gives in rsgen the tokens that it gives itself."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip(
    "transformers", reason="live parity needs transformers (pip install transformers==5.24.0)"
)

import rsgen  # noqa: E402
from parity_settings import BASE_SEED, CASES  # noqa: E402
from tiny_models import FAMILIES, draw_model  # noqa: E402
from transformers import GenerationConfig, PreTrainedTokenizerFast  # noqa: E402

SEEDS = range(BASE_SEED, BASE_SEED + max(1, CASES // 5))
STORY = rsgen.__path__[0] + "/models/story-3m"


def trained(model, seed):
    """The model after three steps on random ids: its parameters have gradients."""
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        ids = torch.randint(0, model.config.vocab_size, (2, 12))
        optimizer.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def assert_close(gen, model, ids):
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].float().numpy()
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(gen.forward([ids])[0], expected, rtol=1e-4, atol=2e-4 * scale)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_in_memory_gives_the_tokens_that_it_gives_itself(family, seed):
    model = trained(draw_model(seed, family)[1], seed)
    gen = rsgen.Generator.from_tensors(model.config, model.state_dict())
    ids = torch.randint(0, model.config.vocab_size, (1, 9)).tolist()[0]
    assert_close(gen, model, ids)
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with torch.no_grad():
        expected = model.generate(
            torch.tensor([ids]),
            generation_config=GenerationConfig(**settings, output_scores=True, return_dict_in_generate=True),
        )
    # A choice that is nearer than rounding may go either way: the tokens are compared up to it.
    top = [scores[0].topk(2).values for scores in expected.scores]
    sure = next((at for at, (a, b) in enumerate(top) if a - b < 1e-3), len(top))
    found = gen.generate(ids, max_new_tokens=12, eos_token_id=None).sequences[0, 9:].tolist()
    assert found[:sure] == expected.sequences[0, 9:].tolist()[:sure]
    assert sure > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_parameters_with_gradients_and_every_type_are_taken(dtype):
    model = draw_model(BASE_SEED, "llama")[1].to(dtype)
    given = dict(model.named_parameters())
    assert any(tensor.requires_grad for tensor in given.values())
    gen = rsgen.Generator.from_tensors(model.config, given)
    ids = [1, 2, 3, 4]
    assert_close(gen, model.float(), ids)
    # Columns that are not side by side.
    given = {name: tensor.detach().t().contiguous().t() for name, tensor in given.items()}
    np.testing.assert_array_equal(
        rsgen.Generator.from_tensors(model.config, given).forward([ids]), gen.forward([ids])
    )


def test_tied_weights_of_a_state_dict_are_one_matrix():
    model = draw_model(BASE_SEED, "llama", tie_word_embeddings=True)[1]
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= model.state_dict().keys()
    gen = rsgen.Generator.from_tensors(model.config, model.state_dict())
    assert_close(gen, model, [1, 2, 3])


def test_a_tokenizer_and_defaults_of_transformers_come_along():
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(STORY, dtype="auto").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(STORY)
    model.generation_config.max_new_tokens, model.generation_config.max_length = 9, None
    gen = rsgen.Generator.from_tensors(
        model.config, model.state_dict(), tokenizer, generation_config=model.generation_config
    )
    inputs = tokenizer("Once upon a time", return_tensors="pt", return_token_type_ids=False)
    expected = model.float().generate(**inputs)
    out = gen.generate("Once upon a time")
    assert out.sequences.tolist() == expected.tolist()
    assert out.text == tokenizer.decode(expected[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def test_what_is_not_in_the_memory_of_the_cpu_is_refused():
    model = draw_model(BASE_SEED, "llama")[1]
    given = model.state_dict()
    given["model.norm.weight"] = given["model.norm.weight"].to("meta")
    with pytest.raises(rsgen.LoadError, match=r"model\.norm\.weight"):
        rsgen.Generator.from_tensors(model.config, given)


def test_a_type_that_numpy_has_not_is_an_error_when_it_is_needed():
    model = draw_model(BASE_SEED, "llama")[1]
    small = model.state_dict()["model.norm.weight"].to(torch.float8_e4m3fn)
    rsgen.Generator.from_tensors(model.config, model.state_dict() | {"unused": small})
    with pytest.raises(rsgen.LoadError, match=r"model\.norm\.weight must be of .*found float8_e4m3fn"):
        rsgen.Generator.from_tensors(model.config, model.state_dict() | {"model.norm.weight": small})
