"""Compares models with an encoder with the installed transformers on drawn requests.

`RSGEN_PARITY_REQUESTS=300` draws so many requests for each family, and prints the table of docs/models.md: those of which
the tokens and scores are equal, those that float32 decides either way, others, and those that transformers fails in; then how
many of each search were equal. transformers 4.55 draws the searches that version 5 has dropped.
"""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
from encoder_decoder_request_goldens import answer, shapes_of  # noqa: E402
from encoder_decoder_requests import (  # noqa: E402
    CONFIGS,
    NOT_IN_4_55,
    STATES,
    VOCAB,
    WORDS,
    Case,
    arrays,
)
from parity_settings import BASE_SEED  # noqa: E402
from tiny_encoder_decoder import without_fill, write_folder  # noqa: E402
from transformers import AutoModelForSeq2SeqLM  # noqa: E402

#: Requests of each family, and requests of each model.
REQUESTS = int(os.environ.get("RSGEN_PARITY_REQUESTS", "16"))
EACH = 20
#: What float32 may decide either way, in transformers' scores.
TIE = 2e-4
#: The version that has the searches which 5 has dropped.
IS_OLD = transformers.__version__.startswith("4.")
DTYPE = {"torch_dtype" if IS_OLD else "dtype": torch.float32}
FAMILIES = [family for family in CONFIGS if not IS_OLD or family not in NOT_IN_4_55]


def drawn_config(family: str, rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model of the family with other sizes."""
    config, fields = copy.deepcopy(CONFIGS[family])
    if "d_kv" in config:
        # transformers makes its cache for as many layers as the encoder has.
        layers = rng.randint(1, 4)
        buckets, distance = rng.choice([(8, 16), (12, 16), (12, 20), (32, 40), (32, 128)])
        config |= {
            "d_model": rng.choice([12, 30, 48]),
            "d_kv": rng.choice([4, 7, 16]),
            "num_heads": rng.choice([1, 3, 4]),
            "num_layers": layers,
            "num_decoder_layers": rng.randint(1, layers),
            "relative_attention_num_buckets": buckets,
            "relative_attention_max_distance": distance,
            "feed_forward_proj": rng.choice(["relu", "gelu", "gated-gelu", "gated-silu"]),
        }
    else:
        heads = rng.choice([(1, 3), (4, 2), (6, 3)])
        config |= {
            "d_model": heads[0] * heads[1] * rng.choice([2, 4]),
            "encoder_attention_heads": heads[0],
            "decoder_attention_heads": heads[1],
            "encoder_layers": rng.randint(1, 4),
            "decoder_layers": rng.randint(1, 3),
            "encoder_ffn_dim": rng.randint(8, 60),
            "decoder_ffn_dim": rng.randint(8, 60),
            "activation_function": rng.choice(["relu", "gelu", "swish"]),
            "scale_embedding": rng.random() < 0.5,
        }
    return config, fields


def drawn_case(fields: dict[str, Any], rng: random.Random) -> Case:
    """A request: sources with any mask, decoder prompts, a search and its fields."""
    pad, eos, start = (fields[f"{name}_token_id"] for name in ("pad", "eos", "decoder_start"))
    rows, width = rng.randint(1, 4), rng.choice([1, 5, 12, 31, 33, 70])

    def words(count: int) -> list[int]:
        return [rng.randrange(WORDS, VOCAB - 2) for _ in range(count)]

    ids, mask = [], []
    form = rng.choice(["none", "right", "left", "holes"]) if width > 2 else "none"
    for _ in range(rows):
        length = width if form in ("none", "holes") else rng.randint(2, width)
        row, seen = [*words(length - 1), eos], [1] * length
        padding, hidden = [pad] * (width - length), [0] * (width - length)
        if form == "holes":
            seen = [int(rng.random() < 0.7) for _ in row]
            seen[rng.randrange(width)] = 1
        ids.append(padding + row if form == "left" else row + padding)
        mask.append(hidden + seen if form == "left" else seen + hidden)
    prompts = None
    if rng.random() < 0.4:
        length = rng.randint(1, 5)
        prompts = [words(length) for _ in range(rows)]
        if rng.random() < 0.5:
            for prompt in prompts[: rng.randint(1, rows)]:
                prompt[0] = start
    drawn: dict[str, Any] = {"max_new_tokens": rng.randint(1, 24)}
    optional = {
        "min_new_tokens": rng.randint(1, 9),
        "repetition_penalty": rng.choice([0.8, 1.3, 2.0]),
        "no_repeat_ngram_size": rng.randint(1, 3),
        "encoder_repetition_penalty": rng.choice([0.7, 1.5]),
        "encoder_no_repeat_ngram_size": rng.randint(1, 3),
        "bad_words_ids": [words(1), words(2)],
        "forced_bos_token_id": words(1)[0],
        "suppress_tokens": words(4),
        "begin_suppress_tokens": words(6),
        "exponential_decay_length_penalty": (rng.randint(1, 5), 1.2),
        "renormalize_logits": True,
    }
    if IS_OLD:
        # There it makes NaN of an end that another rule has removed.
        del optional["exponential_decay_length_penalty"]
    if fields.get("bad_words_ids"):
        optional["bad_words_ids"] += fields["bad_words_ids"]
    chosen = rng.sample(sorted(optional), rng.randint(0, 3))
    # rsgen refuses to force a token that it must suppress.
    optional["suppress_tokens"] = [
        word for word in optional["suppress_tokens"] if word != optional["forced_bos_token_id"]
    ]
    drawn |= {name: optional[name] for name in chosen}
    name, fields_of_search, seed = (drawn_dropped if IS_OLD else drawn_search)(rng)
    return Case(name, ids, drawn | fields_of_search, None if form == "none" else mask, prompts, seed)


def drawn_search(rng: random.Random) -> tuple[str, dict[str, Any], int | None]:
    """A search of version 5: its name, its fields, and a seed if it draws."""
    beams, draws = rng.choice([1, 1, 2, 4]), rng.random() < 0.35
    drawn: dict[str, Any] = {}
    if beams > 1:
        drawn |= {
            "num_beams": beams,
            "num_return_sequences": rng.randint(1, beams),
            "early_stopping": rng.choice([True, False, "never"]),
            "length_penalty": rng.choice([0.0, 0.6, 1.0, 2.0, -0.5]),
        }
    if not draws:
        return "beams" if beams > 1 else "greedy", drawn, None
    drawn |= {
        "do_sample": True,
        "top_k": rng.choice([3, 20, 50]),
        "temperature": rng.choice([0.7, 1.0, 1.5]),
    }
    if beams == 1:
        drawn["num_return_sequences"] = rng.randint(1, 3)
    return "drawn beams" if beams > 1 else "sampling", drawn, rng.randrange(1000)


def drawn_dropped(rng: random.Random) -> tuple[str, dict[str, Any], None]:
    """A search that version 5 has dropped."""
    name = rng.choice(["groups", "constrained", "contrastive"])
    if name == "contrastive":
        return name, {"penalty_alpha": rng.choice([0.2, 0.6, 0.9]), "top_k": rng.randint(2, 6)}, None
    groups, each = rng.choice([(2, 1), (2, 2), (3, 2)])
    beams = groups * each if name == "groups" else rng.randint(2, 5)
    drawn: dict[str, Any] = {
        "num_beams": beams,
        "num_return_sequences": rng.randint(1, beams),
        "length_penalty": rng.choice([0.0, 0.6, 1.0, 2.0]),
    }
    if name == "groups":
        drawn |= {"num_beam_groups": groups, "diversity_penalty": rng.choice([0.1, 0.7, 2.0])}
    else:
        words = [rng.sample(range(WORDS, VOCAB - 2), rng.randint(1, 2)) for _ in range(rng.randint(1, 2))]
        if len(words) == 2 and rng.random() < 0.5:
            # One of them; they may begin alike.
            begin = words[0][:1] if len(words[0]) == len(words[1]) == 2 and rng.random() < 0.5 else []
            words = [[*begin, *(word[1:] if begin else word)] for word in words]
            drawn["force_words_ids"] = [words]
        else:
            drawn["force_words_ids"] = words
    return name, drawn, None


def run(model: rsgen.Generator, case: Case) -> dict[str, Any]:
    """The request through rsgen."""
    fields = dict(case.fields)
    for name in ("attention_mask", "decoder_input_ids"):
        if getattr(case, name) is not None:
            fields[name] = np.array(getattr(case, name))
    if case.seed is not None:
        fields["seed"] = case.seed
    if IS_OLD:
        fields["compat"] = "4.49"
    out = model.generate(np.array(case.input_ids), **fields)
    found: dict[str, Any] = {"sequences": out.sequences.tolist()}
    if case.fields.get("num_beams", 1) > 1:
        found["sequences_scores"] = out.sequences_scores.tolist()
    return found


def is_same(got: dict[str, Any], expected: dict[str, Any], case: Case, fields: dict[str, Any]) -> bool:
    """Whether tokens are equal, and scores close."""
    rows = [without_fill(answer, fields, case.decoder_input_ids) for answer in (got, expected)]
    if rows[0] != rows[1]:
        return False
    scores = got.get("sequences_scores", []), expected.get("sequences_scores", [])
    return np.allclose(*scores, rtol=1e-3, atol=TIE)


def verdict(model: rsgen.Generator, reference: Any, case: Case, fields: dict[str, Any]) -> tuple[str, str]:
    """What a comparison came to, and what was found."""
    try:
        expected = answer(reference, case)
    except (ValueError, IndexError, RuntimeError) as error:
        return "failed", f"{type(error).__name__} {str(error)[:80]}"
    got = run(model, case)
    if is_same(got, expected, case, fields):
        return "equal", ""
    # A choice that float32 may make either way: the reference in float64 makes the other one.
    exact = answer(copy.deepcopy(reference).double(), case, scores=not IS_OLD)
    if is_same(got, exact, case, fields) or exact["sequences"] != expected["sequences"]:
        return "tie", ""
    return "unexplained", f"{case}\nrsgen        {got}\ntransformers {expected}\nfloat64      {exact}"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_requests_give_what_transformers_gives(family: str, tmp_path: Path) -> None:
    rng = random.Random(f"{family} {BASE_SEED}")
    counts: Counter[str] = Counter()
    searches: dict[str, Counter[str]] = {}
    unexplained = []
    for number in range(REQUESTS):
        if number % EACH == 0:
            config, fields = drawn_config(family, rng)
            saved, shapes = shapes_of(config)
            folder = tmp_path / str(number)
            write_folder(folder, saved, shapes, str(rng.random()), **fields)
            reference = AutoModelForSeq2SeqLM.from_pretrained(folder, **DTYPE).eval()
            model = rsgen.Generator(folder, num_threads=1)
        case = drawn_case(fields, rng)
        if family == "marian_two_vocabularies":
            case.fields.pop("encoder_repetition_penalty", None)
        found, text = verdict(model, reference, case, fields)
        counts[found] += 1
        searches.setdefault(case.name, Counter())[found] += 1
        if found == "unexplained":
            unexplained.append(f"seed {BASE_SEED}, {config}\n{text}")
    others = [counts[kind] for kind in ("equal", "tie", "unexplained", "failed")]
    print(f"\n| `{family}` | {' | '.join(map(str, [REQUESTS, *others]))} |")
    of_each = (
        f"{name} {of['equal']} of {of.total() - of['failed']}" for name, of in sorted(searches.items())
    )
    print(f"  {', '.join(of_each)}")
    assert not unexplained, f"{len(unexplained)} of {REQUESTS}:\n" + "\n\n".join(unexplained[:3])
    assert counts["equal"] >= REQUESTS // 2


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.skipif(IS_OLD, reason="the states are those of version 5")
@pytest.mark.parametrize("family", FAMILIES)
def test_states_of_drawn_requests_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    rng = random.Random(f"states {family} {BASE_SEED}")
    config, fields = drawn_config(family, rng)
    saved, shapes = shapes_of(config)
    write_folder(tmp_path, saved, shapes, str(rng.random()), **fields)
    reference = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, **DTYPE, attn_implementation="eager").eval()
    model = rsgen.Generator(tmp_path, num_threads=1)
    compared = 0
    for _ in range(REQUESTS):
        case = drawn_case(fields, rng)
        if family == "marian_two_vocabularies":
            case.fields.pop("encoder_repetition_penalty", None)
        both = {"output_hidden_states": True, "output_attentions": True}
        inputs = {
            name: getattr(case, name)
            for name in ("input_ids", "attention_mask", "decoder_input_ids")
            if getattr(case, name) is not None
        }
        torch.manual_seed(case.seed or 0)
        tensors = {name: torch.tensor(rows) for name, rows in inputs.items()}
        try:
            with torch.no_grad():
                expected = reference.generate(**tensors, **case.fields, **both, return_dict_in_generate=True)
        except (ValueError, IndexError, RuntimeError):
            continue
        seed = {} if case.seed is None else {"seed": case.seed}
        given = {name: np.array(rows) for name, rows in inputs.items()}
        out = model.generate(**given, **case.fields, **both, **seed)
        if (
            out.sequences.shape != expected.sequences.shape
            or (out.sequences != expected.sequences.numpy()).any()
        ):
            continue  # A tie, or what fills a row.
        compared += 1
        for name in STATES:
            ours, theirs = list(arrays(getattr(out, name))), list(arrays(getattr(expected, name)))
            assert [array.shape for array in ours] == [array.shape for array in theirs], (name, case)
            for one, other in zip(ours, theirs, strict=True):
                # Padding and rows that have ended hold NaN.
                real = ~np.isnan(one)
                assert np.allclose(one[real], other[real], rtol=1e-4, atol=1e-4), (name, case)
    assert compared >= REQUESTS // 3
