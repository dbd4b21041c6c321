"""Writes `tests/golden/tokenizers/`: which ids transformers gives for each type of model, class of tokenizer and file.

The class that reads a tokenizer.json depends on the model's type, and each class keeps another part of the file. Most
combinations give the same ids, so each distinct result is stored once.

    python tools/golden/tokenizer_goldens.py           # some minutes

The files of vocabularies are trained where they are missing: a training is not the same each time.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import transformers
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "tokenizers"
sys.path.insert(0, str(ROOT / "tools" / "story_model"))

from story_corpus import write_stories  # noqa: E402

FORMAT = 1

#: Types of models that rsgen opens, and those of the families that come next.
TYPE_NAMES = """llama mistral qwen2 qwen3 phi3 gemma gemma2 gemma3 gemma3_text gpt2 qwen2_moe qwen3_moe mixtral olmoe olmo
olmo2 olmo3 granite granitemoe granitemoeshared granitemoehybrid gpt_oss mistral3 ministral ministral3 gpt_neox opt
smollm3 phi starcoder2 cohere cohere2 stablelm glm glm4 exaone4 seed_oss ernie4_5 arcee apertus hunyuan_v1_dense
nemotron helium gptj gpt_neo bloom falcon gpt_bigcode qwen3_5 qwen3_5_text codegen phimoe"""
#: Names in `tokenizer_class`: of the families, of all files, older names, and one that nobody has.
CLASS_NAMES = """LlamaTokenizer LlamaTokenizerFast Phi3Tokenizer CodeLlamaTokenizer GemmaTokenizer GPT2Tokenizer
CodeGenTokenizer GPTNeoXTokenizerFast Qwen2Tokenizer Qwen3_5Tokenizer CohereTokenizerFast PreTrainedTokenizerFast
PreTrainedTokenizer TokenizersBackend BloomTokenizerFast OwnTokenizer"""
TYPES, CLASSES = TYPE_NAMES.split(), [None, *CLASS_NAMES.split()]
CHAT = "{{ bos_token }}{% for m in messages %}<|user|>\n {{ m.content }}<|end|>\n<|assistant|>\n{% endfor %}{{ eos_token }}"
MESSAGES = [{"role": "user", "content": "Hi  there, it's 2024 "}, {"role": "user", "content": "<s>ﬁne</s>"}]

TEXTS = [
    "",
    " ",
    "   ",
    "a",
    " a",
    "  a",
    "a ",
    "Once upon a time, there was a little fox.",
    " Once upon a time",
    "the\nthe\n\n the",
    "\n\nOne day",
    "tab\there\t\tand  two  spaces",
    "It's I'LL we've DON'T can't",
    "In 2024 there were 1234567 of 3.14, 1,000!",
    "x1y22z333",
    "▁the ▁ ▁▁",
    "the▁fox",
    "<s>the</s> the</s>the",
    " <s> the </s> fox",
    "<|user|>\nHi<|end|>\n<|assistant|>\n",
    "<|user|> Hi <|end|> <|assistant|> Hello",
    "a<|end|>  b<|mid|>  c  <|mid|>d",
    "<|endoftext|>the<|endoftext|> <pad><unk>",
    "<new word>the <New Word> x<new word> y",
    "newword new word NEWWORD the newword",
    "café cafe\u0301 ﬁne Ⅳ ½ Å Å",
    "ÀÉÎõü ñandú straße",
    "日本語のテキスト 中文",
    "สวัสดีชาวโลก हिन्दी العربية",
    "🙂👍🏽 emoji 👨‍👩‍👧",
    "\u200bzero\u00a0width\u3000space\u2003x",
    "don’t “quote” — dash…",
    "def f(x):\n    return x**2  # ok\n",
    "https://example.org/a?b=1&c=%20",
    "Hello, World! HELLO hello",
    "\x00\x01 control \x7f",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "...!!!??? ;;;",
    "!\n\n\n  \r\n x\r\n",
    "The fox said: 'I am the fox.' <mask>",
]


def added(content: str, **flags: bool) -> AddedToken:
    """A special token, unless a flag says otherwise."""
    return AddedToken(content, **{"special": True, "normalized": False, **flags})


def corpus() -> list[str]:
    """Stories, and some of what the texts have."""
    extra = ["It's 2024, we'll see: don't stop!", "newword café 日本語 <b> 3.14 x = y\n    return x\n"] * 40
    return [story.text for story in write_stories(400, 1)] + extra


def with_bos(tokenizer: Tokenizer, bos: str) -> Tokenizer:
    """Adds the tokens of all files, and `bos` before a prompt."""
    tokenizer.add_special_tokens(
        [added("<|user|>", rstrip=True), added("<|assistant|>", rstrip=True), added("<|mid|>", lstrip=True)]
    )
    tokenizer.add_tokens([added("newword", special=False, normalized=True), added("<|end|>", special=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
    return tokenizer


def pieces() -> Tokenizer:
    """As llama 2 has it."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trained.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=300, initial_alphabet=["▁"]))
    model = json.loads(trained.to_str())["model"]
    vocab = {
        token: id
        for id, token in enumerate(dict.fromkeys(["<unk>", "<s>", "</s>", *bytes_, *model["vocab"]]))
    }
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([added("<unk>"), added("<s>"), added("</s>", rstrip=True)])
    return with_bos(tokenizer, "<s>")


def byte_level() -> Tokenizer:
    """As llama 3 has it."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([added("<|endoftext|>", lstrip=True), added("<s>", rstrip=True)])
    return with_bos(tokenizer, "<|endoftext|>")


def unigram() -> Tokenizer:
    """As SentencePiece's default model has it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return with_bos(tokenizer, "<s>")


#: What a tokenizer_config.json has besides the class and the template.
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "legacy": {"legacy": True},
    "not_legacy": {"legacy": False},
    "prefix_space": {"add_prefix_space": True, "legacy": True},
    "no_prefix_space": {"add_prefix_space": False},
    "tokens": {"bos_token": "<s>", "eos_token": "<|end|>", "pad_token": "<pad>", "unk_token": None},
    "end": {"add_bos_token": False, "add_eos_token": True, "eos_token": "</s>", "split_special_tokens": True},
    "listed": {
        "eos_token": "</s>",
        "extra_special_tokens": ["<mask>"],
        "image_token": "<|mid|>",
        "added_tokens_decoder": {
            "0": {"content": "<unk>", "special": True, "normalized": False},
            "1": {"content": "<|mid|>", "special": False, "normalized": False, "rstrip": True},
            "2": {"content": "</s>", "special": True, "normalized": False, "lstrip": True},
            "900": {"content": "newword", "special": False, "normalized": True, "single_word": True},
        },
    },
}
#: In each combination; the others with one type alone, as the class decides what they do.
EVERYWHERE = ("plain", "legacy", "not_legacy")


def fill(folder: Path, model_type: str, name: str | None, settings: dict[str, Any]) -> None:
    """What is beside the tokenizer.json."""
    config = {"chat_template": CHAT, **settings}
    if name is not None:
        config["tokenizer_class"] = name
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


#: Each list of ids and each decoded text once; results have their places.
ROWS: dict[str, int] = {}


def row(value: Any) -> int:
    return ROWS.setdefault(json.dumps(value, ensure_ascii=False, separators=(",", ":")), len(ROWS))


def behaviour(tokenizer: Any) -> dict[str, Any]:
    """All that a prompt and a text depend on."""
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    encodings = [tokenizer(text, return_offsets_mapping=True)["offset_mapping"] for text in TEXTS[17:23]]
    chat = tokenizer.apply_chat_template(MESSAGES, tokenize=True)["input_ids"]
    special = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id]
    decoded = [*ids[7:25:4], ids[28], chat, chat[1::2], [*range(40)], [*range(len(tokenizer))][-30:]]
    return {
        "vocab_size": len(tokenizer),
        "bos_eos_pad_unk": special,
        "ids": [row(it) for it in ids],
        "offsets": [row(it) for it in encodings],
        "chat": row(chat),
        "decode": [
            row([it, tokenizer.decode(it), tokenizer.decode(it, skip_special_tokens=True)]) for it in decoded
        ],
    }


def main() -> None:
    """Writes the files, the distinct results, and which combination gives which."""
    transformers.logging.set_verbosity_error()
    OUT.mkdir(parents=True, exist_ok=True)
    results: dict[str, int] = {}
    cases: list[list[Any]] = []
    for make in (pieces, byte_level, unigram):
        file = make.__name__
        if not (OUT / f"{file}.json").exists():
            make().save(str(OUT / f"{file}.json"), pretty=False)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "tokenizer.json").write_bytes((OUT / f"{file}.json").read_bytes())
            for model_type in TYPES:
                for named in CLASSES:
                    for settings in SETTINGS if model_type == "llama" else EVERYWHERE:
                        fill(folder, model_type, named, SETTINGS[settings])
                        try:
                            found = behaviour(AutoTokenizer.from_pretrained(folder))
                        except Exception as error:
                            found = {"error": type(error).__name__}
                            print(file, model_type, named, settings, repr(error)[:200], flush=True)
                        key = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
                        cases.append(
                            [model_type, named, file, settings, results.setdefault(key, len(results))]
                        )
                print(file, model_type, len(results), flush=True)
    # One row for each type and class: the results of the files and settings in turn.
    table: dict[str, dict[str, list[int]]] = {}
    for model_type, named, _file, settings, result in cases:
        if settings in EVERYWHERE:
            table.setdefault(model_type, {}).setdefault(named or "", []).append(result)
    others = [case for case in cases if case[3] not in EVERYWHERE]
    golden = {
        "format": FORMAT,
        "made_with": {"transformers": transformers.__version__},
        "chat_template": CHAT,
        "messages": MESSAGES,
        "texts": TEXTS,
        "settings": SETTINGS,
    }
    lines = [f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=False)}" for key, value in golden.items()]
    rows = [f"{json.dumps(key)}:{json.dumps(row, separators=(',', ':'))}" for key, row in table.items()]
    lines.append('"files":["pieces","byte_level","unigram"],"everywhere":' + json.dumps(EVERYWHERE))
    lines.append('"types":{\n' + ",\n".join(rows) + "}")
    lines.append(
        '"others":[\n' + ",\n".join(json.dumps(case[1:], separators=(",", ":")) for case in others) + "]"
    )
    lines.append('"results":[\n' + ",\n".join(results) + "]")
    lines.append('"rows":[\n' + ",\n".join(ROWS) + "]")
    (OUT / "cases.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
