"""Compares whole calls of `generate` with random combinations of the processors' fields, exactly.

Both sides choose from the same logits: those that transformers works with come from rsgen, bit for bit, so nothing that
differs could be rounding. With transformers 4.49 installed, ``compat="4.49"`` is compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
from parity_settings import BASE_SEED, CASES  # noqa: E402
from transformers.modeling_outputs import CausalLMOutputWithPast  # noqa: E402

OLD = transformers.__version__.startswith("4.")
COMPAT: dict[str, Any] = {"compat": "4.49"} if OLD else {}
#: Calls for each model.
CALLS = 30

#: What was compared, for the summary.
COUNTS = {"calls": 0, "tokens": 0, "errors on both sides": 0, "errors of ended rows": 0}


class Model:
    """A tiny llama, opened by rsgen, and transformers' `generate` on rsgen's logits."""

    def __init__(self, seed: int, folder: Path) -> None:
        torch.manual_seed(seed)
        self.random = random.Random(seed)
        config = transformers.LlamaConfig(
            vocab_size=self.random.randint(20, 300),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=256,
            initializer_range=self.random.uniform(0.2, 0.6),
            bos_token_id=None,
            eos_token_id=None,
        )
        self.vocab = config.vocab_size
        self.model = transformers.LlamaForCausalLM(config).float().eval()
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            setattr(self.model.generation_config, name, None)
        self.model.save_pretrained(folder)
        self.generator = rsgen.Generator(folder, num_threads=1)
        self.model.forward = self.forward
        #: The ids of the last step, and the probabilities that it sampled from.
        self.input_ids: Any = None
        self.probabilities: Any = None

    def forward(
        self, input_ids: Any, attention_mask: Any = None, position_ids: Any = None, **_: Any
    ) -> CausalLMOutputWithPast:
        """The logits of the last position of each row, computed by rsgen from the ids that count."""
        if attention_mask is None:  # no padding
            attention_mask = torch.ones_like(input_ids)
        self.input_ids = input_ids
        rows = []
        for ids, mask in zip(input_ids.tolist(), attention_mask.tolist(), strict=True):
            real = [token for token, kept in zip(ids, mask, strict=True) if kept]
            rows.append(self.generator.forward([real])[:, -1:])
        return CausalLMOutputWithPast(logits=torch.from_numpy(np.concatenate(rows)))

    def ids(self, low: int, high: int) -> list[int]:
        """Random ids."""
        return [self.random.randrange(1, self.vocab) for _ in range(self.random.randint(low, high))]


def fields(model: Model) -> dict[str, Any]:
    """Random fields, each left out more often than not."""
    rng, ids = model.random, model.ids
    eos = ids(1, 3)
    drawn: dict[str, Callable[[], Any]] = {
        "sequence_bias": lambda: [[ids(1, 3), rng.uniform(-5, 5)] for _ in range(rng.randint(1, 40))],
        "encoder_repetition_penalty": lambda: rng.uniform(0.6, 1.8),
        "repetition_penalty": lambda: rng.uniform(0.6, 1.8),
        "no_repeat_ngram_size": lambda: rng.randint(0, 3),
        "encoder_no_repeat_ngram_size": lambda: rng.randint(0, 3),
        "bad_words_ids": lambda: [ids(1, 2) for _ in range(rng.randint(1, 30))],
        "min_length": lambda: rng.randint(0, 20),
        "min_new_tokens": lambda: rng.randint(0, 12),
        "forced_bos_token_id": lambda: ids(1, 1)[0],
        "forced_eos_token_id": lambda: rng.choice([eos[0], eos]),
        "remove_invalid_values": lambda: rng.choice([True, False]),
        "exponential_decay_length_penalty": lambda: (rng.randint(0, 8), rng.uniform(1.0, 1.5)),
        "suppress_tokens": lambda: [token for token in ids(0, 10) if token not in eos],
        "begin_suppress_tokens": lambda: ids(0, 10),
        "renormalize_logits": lambda: rng.choice([True, False]),
        "watermarking_config": lambda: _green_list(model),
    }
    if rng.random() < 0.7:
        drawn |= {
            "temperature": lambda: rng.uniform(0.3, 2.5),
            "top_k": lambda: rng.choice([0, 1, 5, 50, 1000]),
            "top_p": lambda: rng.uniform(0.2, 1.0),
            "min_p": lambda: rng.uniform(0.0, 0.2),
            "typical_p": lambda: rng.uniform(0.2, 0.999),
            "epsilon_cutoff": lambda: rng.choice([0.0, 0.001, 0.05]),
            "eta_cutoff": lambda: rng.choice([0.0, 0.001, 0.05]),
        }
        if not OLD:
            drawn["top_h"] = lambda: rng.uniform(0.2, 0.99)
        chosen: dict[str, Any] = {"do_sample": True, "num_return_sequences": rng.choice([1, 1, 3])}
    else:
        chosen = {"do_sample": False}
    chosen |= {name: draw() for name, draw in drawn.items() if rng.random() < 0.3}
    return chosen | {"eos_token_id": eos, "pad_token_id": 0, "max_new_tokens": rng.randint(1, 24)}


def _green_list(model: Model) -> dict[str, Any]:
    """A watermark; transformers fails where selfhash has too few candidates."""
    rng = model.random
    own = model.vocab > 40 and rng.random() < 0.4
    return {
        "greenlist_ratio": rng.uniform(0.5 if own else 0.05, 0.9),
        "bias": rng.uniform(0.5, 6.0),
        "hashing_key": rng.randrange(1 << 40),
        "seeding_scheme": "selfhash" if own else "lefthash",
        "context_width": rng.randint(1, 4),
    }


def prompts(model: Model) -> tuple[Any, Any]:
    """One prompt, perhaps of a single token; or several, padded on the left."""
    rng = model.random
    lengths = [rng.choice([1, 2, 9])] if rng.random() < 0.5 else rng.sample(range(1, 12), 3)
    width = max(lengths)
    # Few different tokens, so that n-grams repeat.
    few = model.ids(3, 6)
    ids = [[0] * (width - n) + [rng.choice(few) for _ in range(n)] for n in lengths]
    return np.array(ids), np.array([[0] * (width - n) + [1] * n for n in lengths])


def allowed_tokens(model: Model) -> Callable[[int, Any], list[int]] | None:
    """A prefix function, now and then."""
    if model.random.random() < 0.75:
        return None
    some = model.ids(3, 30)
    return lambda batch_id, input_ids: [
        (token + batch_id + int(input_ids[-1])) % model.vocab for token in some
    ]


def cases() -> Iterator[int]:
    """The seeds of the models."""
    return iter(range(BASE_SEED, BASE_SEED + CASES))


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", cases())
def test_a_call_with_any_fields_gives_the_tokens_and_the_scores_of_transformers(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(seed, tmp_path)
    multinomial = torch.multinomial

    def recorded(probabilities: Any, *args: Any, **kwargs: Any) -> Any:
        model.probabilities = probabilities
        return multinomial(probabilities, *args, **kwargs)

    monkeypatch.setattr(torch, "multinomial", recorded)
    for number in range(CALLS):
        chosen, (ids, mask), function = fields(model), prompts(model), allowed_tokens(model)
        draw = model.random.randrange(2**32)
        label = f"seed {seed} call {number}: {chosen}, ids {ids.tolist()}, torch seed {draw}"
        torch.manual_seed(draw)
        try:
            expected = model.model.generate(
                torch.from_numpy(ids),
                attention_mask=torch.from_numpy(mask),
                prefix_allowed_tokens_fn=function,
                use_cache=False,
                return_dict_in_generate=True,
                output_scores=True,
                **chosen,
            )
        except (RuntimeError, ValueError) as error:
            # Every token has been removed (a distribution checks that too), or a forced one is suppressed.
            if "probability tensor" in str(error) and _only_ended_rows_failed(model, ids, chosen):
                rows = _ours(model, ids, mask, function, draw, chosen).token_ids
                theirs = model.input_ids[:, ids.shape[1] :].tolist()
                for row, tokens in enumerate(rows):
                    common = min(len(tokens), len(theirs[row]))
                    assert tokens[:common].tolist() == theirs[row][:common], f"{label}, row {row}"
                COUNTS["errors of ended rows"] += 1
                continue
            with pytest.raises((rsgen.NumericalError, rsgen.ConfigError)):
                _ours(model, ids, mask, function, draw, chosen)
            COUNTS["errors on both sides"] += 1
            expected_errors = ("probability tensor", "to satisfy the constraint", "suppress_tokens")
            if not any(text in str(error) for text in expected_errors):
                pytest.fail(f"{label}: {error}")
            continue
        actual = _ours(model, ids, mask, function, draw, chosen)
        assert np.array_equal(actual.sequences, expected.sequences.numpy()), label
        for step, scores in enumerate(expected.scores):
            theirs, ours = scores.numpy(), actual.scores[step]
            for row in range(len(ours)):
                if step < len(actual.token_ids[row]):
                    assert np.array_equal(ours[row], theirs[row], equal_nan=True), (
                        f"{label}, step {step}, row {row}"
                    )
        COUNTS["calls"] += 1
        COUNTS["tokens"] += sum(map(len, actual.token_ids))


def _only_ended_rows_failed(model: Model, ids: Any, chosen: dict[str, Any]) -> bool:
    """Whether the rows that transformers could not sample from had all ended: a listed difference."""
    failed = ~torch.isfinite(model.probabilities).all(-1)
    ends = torch.isin(model.input_ids[:, ids.shape[1] :], torch.tensor(chosen["eos_token_id"])).any(-1)
    return bool(failed.any()) and bool(ends[failed].all())


def _ours(model: Model, ids: Any, mask: Any, function: Any, draw: int, chosen: dict[str, Any]) -> Any:
    """The call through rsgen."""
    return model.generator.generate(
        ids,
        attention_mask=mask,
        prefix_allowed_tokens_fn=function,
        output_scores=True,
        seed=draw,
        **chosen,
        **COMPAT,
    )
