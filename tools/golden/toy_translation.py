"""Trains a toy that translates from English into German and French, in the layout of an opus-mt folder.

    python tools/golden/toy_translation.py

Two layers in the encoder and two in the decoder learn sentences of a small grammar in some minutes on two cores. As
random weights do not, it ends texts where they end, and follows the token of the language. It prints how many of 200
other sentences of the grammar it has right. `tests/test_toy_translation.py` and the pages about translation use it.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sentencepiece
import torch
import transformers
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "toy_translation"
STEPS, BATCH, DRAWN = 1400, 32, 5000
LANGUAGES = ("deu", "fra")

#: A noun with its articles and plural in each language; German and French have genders.
NOUNS = {
    "house": ("das Haus", "la maison"),
    "garden": ("der Garten", "le jardin"),
    "dog": ("der Hund", "le chien"),
    "cat": ("die Katze", "le chat"),
    "table": ("der Tisch", "la table"),
    "book": ("das Buch", "le livre"),
    "lake": ("der See", "le lac"),
    "city": ("die Stadt", "la ville"),
    "tree": ("der Baum", "le pommier"),
    "door": ("die Tür", "la porte"),
    "boat": ("das Boot", "le bateau"),
    "street": ("die Straße", "la rue"),
}
#: An adjective: German, and French for both genders.
ADJECTIVES = {
    "small": ("klein", "petit", "petite"),
    "large": ("groß", "grand", "grande"),
    "old": ("alt", "vieux", "vieille"),
    "new": ("neu", "nouveau", "nouvelle"),
    "green": ("grün", "vert", "verte"),
    "red": ("rot", "rouge", "rouge"),
    "beautiful": ("schön", "beau", "belle"),
    "quiet": ("ruhig", "calme", "calme"),
}
#: What one likes.
THINGS = {
    "tea": ("Tee", "le thé"),
    "coffee": ("Kaffee", "le café"),
    "bread": ("Brot", "le pain"),
    "music": ("Musik", "la musique"),
    "water": ("Wasser", "l'eau"),
    "snow": ("Schnee", "la neige"),
}
NUMBERS = {
    "one": ("eins", "un"),
    "two": ("zwei", "deux"),
    "three": ("drei", "trois"),
    "four": ("vier", "quatre"),
    "five": ("fünf", "cinq"),
    "six": ("sechs", "six"),
    "seven": ("sieben", "sept"),
    "eight": ("acht", "huit"),
    "nine": ("neun", "neuf"),
    "ten": ("zehn", "dix"),
}


def capital(text: str) -> str:
    """The text as a sentence begins."""
    return text[0].upper() + text[1:]


def sentence(rng: random.Random) -> tuple[str, str, str]:
    """A sentence in English, German and French."""
    noun, adjective, other = (rng.choice(list(words)) for words in (NOUNS, ADJECTIVES, ADJECTIVES))
    german, french = NOUNS[noun]
    feminine = french.startswith("la")

    def of(word: str) -> tuple[str, str]:
        return ADJECTIVES[word][0], ADJECTIVES[word][1 + feminine]

    (de, fr), (de_other, fr_other) = of(adjective), of(other)
    form = rng.randrange(6)
    if form == 0:
        return f"The {noun} is {adjective}.", f"{capital(german)} ist {de}.", f"{capital(french)} est {fr}."
    if form == 1:
        return f"Is the {noun} {adjective}?", f"Ist {german} {de}?", f"Est-ce que {french} est {fr} ?"
    if form == 2:
        article, word = german.split()
        return (
            f"The {adjective} {noun} is {other}.",
            f"{capital(article)} {de}e {word} ist {de_other}.",
            f"{capital(french)} {fr} est {fr_other}.",
        )
    if form == 3:
        thing = rng.choice(list(THINGS))
        return f"I like {thing}.", f"Ich mag {THINGS[thing][0]}.", f"J'aime {THINGS[thing][1]}."
    if form == 4:
        first, second = rng.sample(list(THINGS), 2)
        return (
            f"I like {first} and {second}.",
            f"Ich mag {THINGS[first][0]} und {THINGS[second][0]}.",
            f"J'aime {THINGS[first][1]} et {THINGS[second][1]}.",
        )
    words = rng.choices(list(NUMBERS), k=rng.randint(1, 6))
    joined = (", ".join(words), *(", ".join(NUMBERS[word][side] for word in words) for side in (0, 1)))
    english, german, french = (f"{capital(text)}." for text in joined)
    return english, german, french


def pairs(count: int, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Sources with the token of their language, and targets."""
    for _ in range(count):
        english, *targets = sentence(rng)
        side = rng.randrange(2)
        yield f">>{LANGUAGES[side]}<< {english}", targets[side]


def write_tokenizer(folder: Path, rng: random.Random) -> None:
    """SentencePiece models of both sides, and the vocabulary of both together, as opus-mt has them."""
    drawn = [sentence(rng) for _ in range(4000)]
    sides = {"source": [english for english, *_ in drawn], "target": [t for _, *two in drawn for t in two]}
    pieces: list[str] = []
    for (side, texts), size in zip(sides.items(), (110, 190), strict=True):
        (folder / f"{side}.txt").write_text("\n".join(texts))
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / f"{side}.txt"),
            model_prefix=str(folder / side),
            vocab_size=size,
            character_coverage=1.0,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            minloglevel=2,
        )
        shutil.move(folder / f"{side}.model", folder / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        pieces += [model.id_to_piece(i) for i in range(len(model)) if not model.is_control(i)]
    names = ["</s>", "<unk>", *(f">>{language}<<" for language in LANGUAGES)]
    names += [*sorted(set(pieces) - set(names)), "<pad>"]
    vocabulary = {name: index for index, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False, separators=(",", ":")))
    settings = {"source_lang": "eng", "target_lang": "deu+fra"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")


def batch(tokenizer: MarianTokenizer, drawn: list[tuple[str, str]]) -> dict[str, torch.Tensor]:
    """The tensors of pairs."""
    sources, targets = zip(*drawn, strict=True)
    tensors = tokenizer(
        list(sources), text_target=list(targets), return_tensors="pt", padding=True, truncation=True
    )
    labels = tensors["labels"]
    tensors["labels"] = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    return dict(tensors)


def main() -> None:
    torch.manual_seed(11)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    rng, started = random.Random(11), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tokenizer(folder, rng)
        tokenizer = MarianTokenizer.from_pretrained(folder)
        pad = tokenizer.pad_token_id
        config = MarianConfig(
            vocab_size=len(tokenizer.encoder),
            d_model=48,
            encoder_layers=2,
            decoder_layers=2,
            encoder_ffn_dim=96,
            decoder_ffn_dim=96,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            max_position_embeddings=128,
            activation_function="swish",
            scale_embedding=True,
            dropout=0.0,
            pad_token_id=pad,
            eos_token_id=0,
            bos_token_id=0,
            decoder_start_token_id=pad,
            forced_eos_token_id=0,
            bad_words_ids=[[pad]],
            num_beams=4,
            max_length=96,
        )
        model = MarianMTModel(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS, pct_start=0.1)
        # Those of a batch have about the same length.
        drawn = sorted(pairs(DRAWN, rng), key=lambda pair: len(pair[0]))
        batches = [batch(tokenizer, drawn[start : start + BATCH]) for start in range(0, DRAWN, BATCH)]
        print(f"{len(batches)} batches, {time.monotonic() - started:.0f} s", flush=True)
        for step in range(STEPS):
            loss = model(**rng.choice(batches)).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % 200 == 199:
                print(
                    f"step {step + 1}: loss {loss.item():.4f}, {time.monotonic() - started:.0f} s", flush=True
                )
        model.eval()
        held = list(pairs(200, random.Random(12)))
        tensors = batch(tokenizer, held)
        with torch.no_grad():
            out = model.generate(
                input_ids=tensors["input_ids"], attention_mask=tensors["attention_mask"], num_beams=1
            )
        found = tokenizer.batch_decode(out, skip_special_tokens=True)
        right = sum(text == target for text, (_, target) in zip(found, held, strict=True))
        wrong = [(text, target) for text, (_, target) in zip(found, held, strict=True) if text != target]
        print(wrong[:3])
        print(f"{right} of {len(held)} drawn sentences are right")
        OUT.mkdir(exist_ok=True)
        for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
            shutil.copy(folder / name, OUT / name)
        # As these repositories have it: the settings of generation are in config.json, the weights a pickle.
        saved = config.to_dict() | {"architectures": ["MarianMTModel"], "model_type": "marian"}
        generation = {"num_beams": 4, "max_length": 96, "bad_words_ids": [[pad]], "forced_eos_token_id": 0}
        saved |= generation | {"decoder_start_token_id": pad, "transformers_version": "4.22.0"}
        (OUT / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
        left_out = ("embed_tokens.weight", "embed_positions.weight", "lm_head.weight")
        tensors = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(left_out)}
        torch.save(tensors, OUT / "pytorch_model.bin")
        print(sum(file.stat().st_size for file in OUT.iterdir()), "bytes")


if __name__ == "__main__":
    main()
