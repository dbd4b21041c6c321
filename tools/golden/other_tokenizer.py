"""Makes the assistant with another tokenizer: `tests/golden/models/other_tokenizer`, a tiny llama that knows a little of the
stories of the bundled model, and writes spaces as `▁` where that one writes `Ġ`.

    python tools/golden/other_tokenizer.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "models" / "other_tokenizer"
sys.path.insert(0, str(ROOT / "tools" / "story_model"))

from story_corpus import write_stories  # noqa: E402

VOCAB_SIZE = 320
STEPS = 2000
BATCH, LENGTH = 16, 64


def main() -> None:
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


if __name__ == "__main__":
    main()
