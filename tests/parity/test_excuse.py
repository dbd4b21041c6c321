"""The rule for excuses itself: it must excuse near ties, and nothing else. Needs no rsgen."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip(
    "transformers", reason="live parity needs transformers (pip install transformers==5.24.0)"
)

from excuse import Candidates, candidates, first_differences  # noqa: E402
from reference import Reference, Request  # noqa: E402
from tiny_models import draw_model  # noqa: E402

INFINITY = float("inf")


def chosen(weight: list[float], keep: list[float] | None = None) -> Candidates:
    """A decision; without `keep` no threshold is near."""
    return Candidates(np.array(weight), np.full(len(weight), INFINITY) if keep is None else np.array(keep))


def test_the_margin_of_two_kept_tokens_is_their_gap() -> None:
    assert chosen([1.0, 3.0, 2.5]).margin(1, 2) == pytest.approx(0.5)
    assert chosen([1.0, 3.0, 2.5]).gap() == pytest.approx(0.5)


def test_a_better_third_token_counts_against_both() -> None:
    assert chosen([5.0, 3.0, 3.0]).margin(1, 2) == pytest.approx(2.0)


def test_a_removed_token_needs_its_threshold_to_move() -> None:
    decision = chosen([1.0, 3.0], [INFINITY, -0.2])
    assert decision.distance(0) == 0.0
    assert decision.margin(0, 1) == pytest.approx(0.2)


def test_the_best_token_near_its_threshold_makes_the_next_one_possible() -> None:
    assert chosen([1.0, 3.0], [INFINITY, 1e-7]).margin(0, 1) == pytest.approx(1e-7)


@pytest.fixture(scope="module")
def reference() -> Reference:
    """A tiny model."""
    return Reference(draw_model(3, rope_type="default", vocab_size=60)[1])


@pytest.mark.parametrize(
    "fields",
    [
        {"do_sample": False, "repetition_penalty": 1.3},
        {"do_sample": True, "top_k": 0},
        {"do_sample": True, "temperature": 1.7},
        {"do_sample": True, "temperature": 2.0, "top_k": 7},
        {"do_sample": True, "temperature": 2.0, "top_k": 0, "top_p": 0.8},
        {"do_sample": True, "temperature": 2.0, "top_k": 0, "min_p": 0.05},
        {
            "do_sample": True,
            "temperature": 3.0,
            "top_k": 20,
            "top_p": 0.9,
            "min_p": 0.01,
            "repetition_penalty": 0.8,
        },
        {"do_sample": True, "eos_token_id": [1, 2, 3, 4, 5, 6], "min_new_tokens": 9, "temperature": 3.0},
    ],
)
def test_float64_chooses_the_tokens_that_float32_samples(reference: Reference, fields: dict) -> None:
    request = Request([[1, 2, 3, 4]], {**fields, "num_return_sequences": 1, "max_new_tokens": 40}, 8)
    tokens = reference.generate(request).sequences[0, 4:].tolist()
    logits = reference.logits_along([1, 2, 3, 4], tokens[:-1])
    decisions = [candidates(reference, request, 0, tokens[:t], logits[t]) for t in range(len(tokens))]
    assert max(decision.distance(token) for decision, token in zip(decisions, tokens, strict=True)) < 1e-5


@pytest.mark.parametrize(("gap", "excused"), [(1e-8, True), (1e-2, False)])
@pytest.mark.parametrize("sampled", [False, True])
def test_only_a_near_tie_is_excused(gap: float, excused: bool, sampled: bool) -> None:
    model = draw_model(4, rope_type="default", vocab_size=60, tie_word_embeddings=False)[1]
    reference, prompt, seed = Reference(model), [5, 6, 7], 2
    fields = {"do_sample": sampled, "top_k": 0, "max_new_tokens": 1}
    request = Request([prompt], fields, seed if sampled else None)
    with torch.no_grad():
        hidden = model.model(torch.tensor([prompt])).last_hidden_state[0, -1]
        logits = model.lm_head(hidden)
        target = logits.max() + 50.0
        # Tokens 10 and 20 lead by far, and a step of the output matrix along the hidden state sets their gap.
        weights = torch.tensor([target, target - gap], dtype=torch.float64)
        if sampled:
            noise = (
                torch.empty(1, 60).exponential_(1, generator=torch.Generator().manual_seed(seed))[0].double()
            )
            weights += noise[[10, 20]].log()
        direction = hidden.double() / hidden.double().square().sum()
        model.lm_head.weight.data[[10, 20]] = torch.outer(weights, direction).float()
    expected = reference.generate(request).sequences
    other = expected.copy()
    other[0, -1] = 10 if expected[0, -1] == 20 else 20
    (difference,) = first_differences(reference, request, expected, other)
    assert {difference.expected, difference.got} == {10, 20}
    assert difference.margin == pytest.approx(gap, abs=1e-5)
    assert difference.excused == excused
