"""Makes the assistant with another tokenizer: `tests/golden/models/other_tokenizer`, a tiny llama that knows a little of the
stories of the bundled model, and writes spaces as `▁` where that one writes `Ġ`; and what transformers samples with its drafts.

    python tools/golden/other_tokenizer.py           # both
    python tools/golden/other_tokenizer.py --golden  # the golden alone
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.generation.candidate_generator import AssistantToTargetTranslator

ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"
OUT = ROOT / "tests" / "golden" / "models" / "other_tokenizer"
sys.path.insert(0, str(ROOT / "tools" / "story_model"))

from story_corpus import write_stories  # noqa: E402

VOCAB_SIZE = 320
STEPS = 2000
BATCH, LENGTH = 16, 64


def train() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    stories = [story.text for story in write_stories(3000, 1)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=["<unk>", "<s>", "</s>"])
    tokenizer.train_from_iterator(stories, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )

    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    ids = torch.tensor([id for story in stories for id in [*fast(story)["input_ids"], fast.eos_token_id]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(STEPS):
        starts = torch.randint(0, len(ids) - LENGTH, (BATCH,))
        batch = torch.stack([ids[start : start + LENGTH] for start in starts])
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(step, round(loss.item(), 3), flush=True)
    model.to(torch.bfloat16).save_pretrained(OUT)
    fast.save_pretrained(OUT)


class Unpruned(AssistantToTargetTranslator):
    """Without pruning the assistant's head, which orders tokens by a hash map and mixes up their ids."""

    def __init__(self, target: Any, assistant: Any, size: int, model: Any, _prune: bool) -> None:
        super().__init__(target, assistant, size, model, False)


def write_golden() -> None:
    from transformers.generation import candidate_generator

    candidate_generator.AssistantToTargetTranslator = Unpruned
    target, assistant = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) for folder in (STORY, OUT)
    )
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (STORY, OUT)]
    drawn = []
    for seed, prompt in enumerate(
        ["Once upon a time", "One day, a little fox", "Near the lake there was"] * 2
    ):
        fields = {"max_new_tokens": 40, "temperature": 0.8, "top_k": 0 if seed % 2 else 50}
        drafts = {"num_assistant_tokens": 2 + seed, "assistant_confidence_threshold": 0.1 * (seed % 3)}
        drawn.append((seed, prompt, drafts, fields))
    # The assistant draws its own `</s>`, and goes on.
    drafts = {"num_assistant_tokens": 8, "assistant_confidence_threshold": 0.0}
    drafts["num_assistant_tokens_schedule"] = "heuristic_transient"
    drawn.append((74165, "Once upon a time", drafts, {"max_new_tokens": 40}))
    cases = []
    for seed, prompt, drafts, fields in drawn:
        for name, value in drafts.items():
            setattr(assistant.generation_config, name, value)
        ids = tokenizers[0](prompt, return_tensors="pt").input_ids
        torch.manual_seed(seed)
        out = target.generate(
            ids,
            assistant_model=assistant,
            tokenizer=tokenizers[0],
            assistant_tokenizer=tokenizers[1],
            do_sample=True,
            **fields,
        )
        tokens = out[0, ids.shape[1] :].tolist()
        config = {"do_sample": True, "seed": seed, **drafts, **fields}
        cases.append({"prompt": prompt, "config": config, "tokens": tokens})
    (OUT / "sampled.json").write_text(json.dumps(cases, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--golden", action="store_true", help="keep the model")
    if not parser.parse_args().golden:
        train()
    write_golden()


if __name__ == "__main__":
    main()
