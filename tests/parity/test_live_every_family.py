"""Compares every family of models with the installed transformers on drawn requests of all strategies.

The models are those of `tests/golden/families` with other numbers, and for the families that have none those of
`tiny_models`. `make parity-families REQUESTS=300` draws so many requests for each family, and prints the table of
docs/models.md.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
import strategies  # noqa: E402
from family_goldens import write_folder  # noqa: E402
from live_requests import Models, Verdict, check_requests, table  # noqa: E402
from parity_settings import BASE_SEED, ROOT  # noqa: E402
from reference import Reference  # noqa: E402
from strategies import ERA, StrategyCase  # noqa: E402
from tiny_models import draw_model, save_model  # noqa: E402
from transformers import (  # noqa: E402
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
)

if ERA != "5":
    pytestmark = [
        pytest.mark.filterwarnings("ignore::FutureWarning"),
        # GPTBigCode of transformers 4 calls what torch has deprecated, and its Gemma 3 unties a disturbed copy.
        pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
        pytest.mark.filterwarnings("ignore:.tie_word_embeddings. is true, but language_model.:UserWarning"),
    ]
#: Requests of each family; 16 make one of each strategy.
REQUESTS = int(os.environ.get("RSGEN_PARITY_REQUESTS", "16"))
#: Of an older transformers, those that the newest has no more.
STRATEGIES = [
    strategy
    for strategy, eras in strategies.FAMILIES.items()
    if ERA in eras and (ERA == "5" or "5" not in eras)
]
#: Arguments of both models. The faster attention of transformers 4.55 leaves out what some families have.
OPTIONS = (
    {"dtype": torch.float32} if ERA == "5" else {"torch_dtype": torch.float32, "attn_implementation": "eager"}
)
#: The families that have goldens of their own kind.
OLDER = ("llama", "mistral", "phi3", "qwen2", "qwen3")
#: Families whose numbers depend on the positions of tokens, not on their distances alone (Hunyuan weighs what is rotated).
BY_POSITION = ("gpt2", "gpt_bigcode", "gpt_neo", "hunyuan_v1_dense", "ministral3", "opt")
GOLDENS: dict[str, list[dict[str, Any]]] = {family: [] for family in OLDER}
for path in sorted((ROOT / "tests/golden/families").glob("*.json")):
    golden = json.loads(path.read_text())
    text = golden["config"].get("text_config", golden["config"])
    GOLDENS.setdefault(text["model_type"], []).append(golden)
#: The fields that bound positions, by their names in all families.
POSITIONS = ("max_position_embeddings", "n_positions", "seq_length")
#: New tokens of a long text, which families that have goldens of their own kind write in `test_live_families.py`.
LONG = 200
#: What the comparisons of each family came to, for the summary.
COUNTS: dict[str, Counter[Verdict]] = {}


def open_both(folder: Path) -> tuple[Reference, rsgen.Generator]:
    """The model of a folder on both sides."""
    config = AutoConfig.from_pretrained(folder)
    auto = AutoModelForImageTextToText if hasattr(config, "text_config") else AutoModelForCausalLM
    model = auto.from_pretrained(folder, **OPTIONS)
    return Reference(model), rsgen.Generator(folder, num_threads=1)


def of_length(golden: dict[str, Any], count: int) -> dict[str, Any]:
    """The golden with as many positions, if it has fewer."""

    def longer(config: dict[str, Any]) -> dict[str, Any]:
        return config | {
            name: max(count, config[name]) for name in POSITIONS if isinstance(config.get(name), int)
        }

    config = longer(golden["config"])
    if "text_config" in config:
        config["text_config"] = longer(config["text_config"])
    # Some tables of learned positions have rows before the first one.
    given = max((golden["config"][name] for name in POSITIONS if golden["config"].get(name)), default=count)
    more = max(0, count - given)
    tensors = {
        name: [shape[0] + more, *shape[1:]] if "wpe." in name or "embed_positions." in name else shape
        for name, shape in golden["tensors"].items()
    }
    return golden | {"config": config, "tensors": tensors}


def write_golden(golden: dict[str, Any], folder: Path, rng: random.Random) -> None:
    """A model of this form, with numbers and a window of its own, in float32 or in bfloat16."""
    config, seed, dtype = (
        dict(golden["config"]),
        str(rng.random()),
        rng.choice([torch.float32, torch.bfloat16]),
    )
    # transformers masks padding tokens in the drafts of an assistant.
    config["pad_token_id"] = None
    if "text_config" in config:
        config["text_config"] = config["text_config"] | {"pad_token_id": None}
    if config.get("sliding_window"):
        # In a window of a few tokens beams forget where they came from, and tie.
        config["sliding_window"] = rng.choice([config["sliding_window"], 24])
    write_folder(golden | {"config": config}, folder, seed=seed, dtype=dtype)


def drawn_models(family: str, seed: int, folder: Path) -> Models:
    """A model of the family, and its disturbed copy, which drafts for it."""
    rng = random.Random(f"{family} {seed}")
    if goldens := GOLDENS[family]:
        write_golden(goldens[seed % len(goldens)], folder, rng)
    else:
        save_model(draw_model(seed, family)[1], folder)
    reference, generator = open_both(folder)
    strategies.assistant_of(reference.model, rng).save_pretrained(folder / "assistant")
    config = reference.model.config.get_text_config().to_dict()
    return Models(config, reference, generator, *open_both(folder / "assistant"))


def comparable_models(family: str, seed: int, folder: Path) -> Models:
    """Models of the next seed whose logits are those of transformers.

    The newest computes all of them; of some forms an older one has another reading, or none.
    """
    if ERA == "5":
        return drawn_models(family, seed, folder)
    # Longer than the windows, and than what a scaled rope was trained with.
    ids = [[3 + 7 * index % 50 for index in range(56)]]
    for other in range(5):
        try:
            # 101: so that other forms of the family come up.
            drawn = drawn_models(family, seed + 101 * other, folder)
            logits = drawn.reference.forward(ids)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, rsgen.RsgenError):
                raise
            print(f"{family}: {type(error).__name__}: {str(error)[:80]}")
            continue
        if np.allclose(drawn.generator.forward(ids), logits, rtol=1e-4, atol=1e-3):
            return drawn
    pytest.skip(f"transformers {transformers.__version__} computes {family} otherwise")


def drawn_requests(family: str, folder: Path) -> Iterator[tuple[Models, StrategyCase, str]]:
    """So many requests of the family: a new model for each round of strategies."""
    seed = BASE_SEED
    for number, strategy in zip(range(REQUESTS), cycle(STRATEGIES)):
        if number % len(STRATEGIES) == 0:
            seed += 1
            drawn = comparable_models(family, seed, folder)
            config = drawn.reference.model.config.get_text_config()
        coupled = drawn.reference.couples_rows()
        if coupled and strategy in (*strategies.ASSISTED, *strategies.GUIDED):
            # The length of a draft, or of a negative prompt, changes the frequencies of transformers.
            strategy = "sample"
        rng = random.Random(f"{family} {seed} {number}")
        case = strategies.draw_case(strategy, rng, config.vocab_size, config.num_hidden_layers)
        if coupled and len(case.input_ids) > 1:
            case = replace(case, is_list=True)
        if family in BY_POSITION and "negative_prompt_ids" in case.fields:
            # Where negative prompts are padded, transformers counts the padding's positions as well.
            case.fields["negative_prompt_ids"] = case.fields["negative_prompt_ids"][:1]
        yield drawn, case, f"{family}, seed {seed}: {case}"


@pytest.mark.parametrize("family", sorted(GOLDENS))
def test_a_drawn_request_gives_the_tokens_and_scores_of_transformers(family: str, tmp_path: Path) -> None:
    if family not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {family}")
    check_requests(COUNTS.setdefault(family, Counter()), drawn_requests(family, tmp_path))


@pytest.mark.parametrize("family", sorted(set(GOLDENS) - set(OLDER)))
def test_200_tokens_of_greedy_search_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    if family not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {family}")

    def texts() -> Iterator[tuple[Models, StrategyCase, str]]:
        for number, golden in enumerate(GOLDENS[family]):
            folder = tmp_path / str(number)
            ids = golden["input_ids"]
            write_folder(of_length(golden, len(ids) + LONG), folder)
            both = open_both(folder)
            fields = {"do_sample": False, "min_new_tokens": LONG, "max_new_tokens": LONG}
            case = StrategyCase("greedy", [ids], [[1] * len(ids)], fields, 0)
            config = both[0].model.config.get_text_config().to_dict()
            yield Models(config, *both, *both), case, f"{family}, golden {number}"

    counts: Counter[Verdict] = Counter()
    check_requests(counts, texts())
    print(f"{family}: {dict(counts)}")
    assert not counts[Verdict.FAILED]


def rows() -> list[str]:
    """The table of docs/models.md."""
    return table("`model_type`", {f"`{family}`": counts for family, counts in COUNTS.items()})
