"""Processors and criteria that are written for torch, handed to rsgen as they are: the tokens of transformers."""

import pytest

torch = pytest.importorskip("torch", reason="live parity needs torch")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
from transformers import (  # noqa: E402
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)


class Dampened(LogitsProcessor):
    """Scores lose by how often a token has come, and what is far below the best is removed."""

    def __call__(self, input_ids, scores):
        counts = torch.zeros_like(scores).scatter_add_(
            1, input_ids, torch.ones_like(input_ids, dtype=scores.dtype)
        )
        scores = scores - 1.5 * counts.sqrt()
        return scores.masked_fill(scores < scores.max(-1, keepdim=True).values - 6.0, -float("inf"))


class InPlace(LogitsProcessor):
    def __call__(self, input_ids, scores):
        scores[:, ::7] -= 2.0
        return scores


class Periods(StoppingCriteria):
    """Ends a row with its second period."""

    def __init__(self, token):
        self.token = token

    def __call__(self, input_ids, scores, **kwargs):
        return (input_ids == self.token).sum(-1) >= 2


@pytest.mark.parametrize(
    "fields",
    [
        {"do_sample": False},
        {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "num_return_sequences": 3},
    ],
    ids=str,
)
def test_they_change_the_tokens_as_in_transformers(fields):
    torch.set_num_threads(1)
    gen = rsgen.Generator(num_threads=1)
    path = gen.name_or_path
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    period = tokenizer.encode(".", add_special_tokens=False)[-1]
    processors, criteria = [Dampened(), InPlace()], [Periods(period)]
    for number, prompt in enumerate(["Once upon a time", "One day", "Tom had a dog"]):
        inputs = tokenizer([prompt], return_tensors="pt")
        torch.manual_seed(number)
        expected = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            logits_processor=LogitsProcessorList(processors),
            stopping_criteria=StoppingCriteriaList(criteria),
            max_new_tokens=24,
            **fields,
        )
        with pytest.warns(UserWarning, match="computes on torch's tensors after each token"):
            found = gen.generate(
                prompt,
                logits_processor=LogitsProcessorList(processors),
                stopping_criteria=StoppingCriteriaList(criteria),
                max_new_tokens=24,
                seed=number,
                **fields,
            )
        assert found.sequences.tolist() == expected.tolist()
