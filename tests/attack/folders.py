"""Draws model folders: a healthy one, damaged in one to three places by rules that know the formats."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import rsgen
from hostile import CONFIG, INDEX, JSON_FILES, Folder

from attack.children import Step
from attack.values import CHARS, SIZES, json_value, number, text

FILES = [*JSON_FILES, "model.safetensors", "chat_template.jinja"]
ARCHITECTURES = [
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "GemmaForCausalLM",
    "\x1b[2J",
]
ROPE = ["default", "linear", "dynamic", "yarn", "llama3", "longrope", "\u202e"]
DTYPES = ["F32", "F16", "BF16", "I8", "F64", "BOOL", "U8", "\x1bF32"]


def case(seed: int, path: Path) -> Iterator[Step]:
    """A folder, and what is done with it."""
    rng = random.Random(seed)
    path.mkdir()
    folder = Folder(path)
    folder.tokenizer()
    made: list[str] = []
    rules = [rng.choice(RULES) for _ in range(rng.choice([1, 1, 2, 3]))]
    # After it a file is a pipe, perhaps, which the other rules would wait for.
    for rule in sorted(rules, key=lambda rule: rule is something_else_than_a_file):
        try:
            rule(rng, folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
            continue  # An earlier rule has left nothing to damage here.
        made.append(rule.__name__)
    label = f"folder {seed} ({', '.join(made)})"
    opened: list[rsgen.Generator] = []

    def opening() -> None:
        opened.append(rsgen.Generator(path, num_threads=1, kv_cache_bytes=1 << 22))

    yield f"{label}: open", opening
    if rng.random() < 0.2:
        yield f"{label}: tokenizer alone", lambda: rsgen.Tokenizer(path)
    if rng.random() < 0.1:
        yield f"{label}: inspect", lambda: inspect(path)
    if not opened:
        return
    gen = opened[0]
    for _ in range(2):
        prompt = text(rng, [1, 10, 100, 10_000, 200_000])
        yield (
            f"{label}: encode {len(prompt)} of {prompt[:1]!r}",
            lambda prompt=prompt: gen.tokenizer.encode(prompt),
        )
    ids = [rng.randrange(64) for _ in range(rng.choice([1, 10, 1000]))] * rng.choice([1, 1, 100])
    yield (
        f"{label}: decode {len(ids)}",
        lambda: gen.tokenizer.decode(ids, skip_special_tokens=rng.random() < 0.5),
    )
    yield f"{label}: generate", lambda: gen.generate(text(rng, [1, 5]), max_new_tokens=3)
    yield f"{label}: ids", lambda: gen.generate([1, 2, 3], max_new_tokens=3)
    yield f"{label}: chat", lambda: gen.chat([{"role": "user", "content": text(rng)}], max_new_tokens=2)


def inspect(path: Path) -> None:
    """What the shell shows of it."""
    from rsgen import _cli

    before = os.sys.argv
    os.sys.argv = ["rsgen", "inspect", str(path)]
    try:
        _cli.main()
    except SystemExit as end:
        if end.code not in (0, 1, 2):
            raise
    finally:
        os.sys.argv = before


def read(folder: Folder, name: str) -> dict:
    return json.loads((folder.path / name).read_text())


def places(value: object, path: tuple = ()) -> Iterator[tuple]:
    """The places of all values in a JSON document; of long lists the first few."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value[:5]) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield (*path, key)
        yield from places(inner, (*path, key))


def any_json_value(rng: random.Random, folder: Folder) -> None:
    name = rng.choice(JSON_FILES)
    whole = read(folder, name)
    # A vocabulary is long, and its entries are alike: most draws go elsewhere.
    shallow = {key: value for key, value in whole.items() if key != "model" or rng.random() < 0.2}
    *path, last = rng.choice(list(places(shallow)))
    target = whole
    for key in path:
        target = target[key]
    if isinstance(target, dict) and rng.random() < 0.15:
        del target[last]
    else:
        target[last] = json_value(rng)
    folder.json(name, whole)


def a_field_of_the_configuration(rng: random.Random, folder: Folder) -> None:
    content = read(folder, "config.json")
    content[rng.choice(list(CONFIG))] = number(rng) if rng.random() < 0.7 else json_value(rng)
    if rng.random() < 0.3:
        content["architectures"] = [rng.choice(ARCHITECTURES)]
    if rng.random() < 0.3:
        keys = [
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
            "short_factor",
            "beta_fast",
            text(rng)[:2000],
        ]
        content["rope_scaling"] = {"rope_type": rng.choice(ROPE)} | {
            key: json_value(rng) for key in rng.sample(keys, 3)
        }
    folder.json("config.json", content)


def a_large_document(rng: random.Random, folder: Folder) -> None:
    piece = rng.choice(
        ["[]", "{}", '""', "0", "[[]]", '{"a":{}}', "null", '"a"', "1e400", "[" * 50 + "]" * 50]
    )
    count = rng.choice([1000, 100_000, 2_000_000])
    keys = rng.random() < 0.3
    body = (
        ",".join(f'"{i}":{piece}' for i in range(min(count, 200_000))) if keys else ",".join([piece] * count)
    )
    extra = "{" + body + "}" if keys else "[" + body + "]"
    name = rng.choice(JSON_FILES)
    whole = (folder.path / name).read_text().rstrip()
    folder.write(name, whole[:-1] + f', "more": {extra}' + "}")


def bytes_of_a_file(rng: random.Random, folder: Folder) -> None:
    path = folder.path / rng.choice(FILES)
    content = bytearray(path.read_bytes())
    how = rng.random()
    if how < 0.4:
        del content[rng.randrange(len(content) + 1) :]
    elif how < 0.8:
        for _ in range(rng.choice([1, 3, 30])):
            content[rng.randrange(len(content))] = rng.randrange(256)
    else:
        at = rng.randrange(len(content))
        content[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 100])))
    path.write_bytes(content)


def something_else_than_a_file(rng: random.Random, folder: Folder) -> None:
    ways: list[Callable[[Path], object]] = [
        Path.mkdir,
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/dev/tty"),
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.symlink_to("\x1b[2J\u202e" * 40),
        lambda path: path.symlink_to(folder.path),
        lambda path: path.touch(),
        lambda path: (path.touch(), os.truncate(path, rng.choice([1 << 20, 1 << 33, 1 << 42]))),
    ]
    folder.replace(rng.choice([*FILES, INDEX]), rng.choice(ways))


def header_of_the_weights(rng: random.Random, folder: Folder) -> None:
    def change(header: dict) -> object:
        name = rng.choice(list(header))
        entry = header[name]
        how = rng.randrange(9)
        if how == 0:
            entry["shape"] = [number(rng) for _ in range(rng.choice([0, 1, 2, 8]))]
        elif how == 1:
            entry["shape"] = [rng.choice([0, 1])] * rng.choice([10, 100_000, 3_000_000])
        elif how == 2:
            entry["data_offsets"] = [number(rng), number(rng)]
        elif how == 3:
            entry["dtype"] = rng.choice(DTYPES)
        elif how == 4:
            header[text(rng)] = entry
        elif how == 5:
            header.update({f"{text(rng)[:50]}{index}": entry for index in range(rng.choice([10, 50_000]))})
        elif how == 6:
            del header[name]
        elif how == 7:
            header[name] = json_value(rng)
        else:
            header["__metadata__"] = json_value(rng)
        return None

    folder.header(change)


def length_of_the_header(rng: random.Random, folder: Folder) -> None:
    whole = (folder.path / "model.safetensors").read_bytes()
    folder.write("model.safetensors", struct.pack("<Q", abs(int(number(rng))) % 2**64) + whole[8:])


def shards(rng: random.Random, folder: Folder) -> None:
    count = rng.choice([1, 2, 30, 300, 2000])

    def index(names: dict) -> object:
        for number_ in range(count):
            link = folder.path / f"shard-{number_}.safetensors"
            if rng.random() < 0.9:
                link.symlink_to("a.safetensors")
        if rng.random() < 0.7:
            names.update(
                {
                    f"{name}{i}": f"shard-{i}.safetensors"
                    for i, name in enumerate([*names] * (count // len(names) + 1))
                }
            )
        for name in rng.sample(list(names), min(5, len(names))):
            names[name] = rng.choice(
                [f"shard-{rng.randrange(count)}.safetensors", text(rng), "../a", "/etc/passwd", number(rng)]
            )
        return {"weight_map": names, "metadata": json_value(rng)} if rng.random() < 0.9 else json_value(rng)

    folder.index(index)


def pattern(rng: random.Random) -> dict:
    if rng.random() < 0.5:
        return {"String": text(rng, [0, 1, 2])}
    regexes = [
        "(a*)*b",
        "(a|a)*$",
        "(?=.*)a",
        "a{1000}{1000}",
        "(.+)+x",
        "\\p{L}+",
        "",
        "(",
        "^",
        "(?:a?){50}a{50}",
        ".{0,9999}",
        "\\w+\\s*$",
    ]
    return {"Regex": rng.choice(regexes)}


def normalizer(rng: random.Random) -> dict:
    return rng.choice(
        [
            {"type": "Replace", "pattern": pattern(rng), "content": text(rng)},
            {"type": "Prepend", "prepend": text(rng)},
            {
                "type": rng.choice(
                    ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"]
                )
            },
            {"type": "Strip", "strip_left": True, "strip_right": rng.random() < 0.5},
            {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
            {"type": "Precompiled", "precompiled_charsmap": text(rng)},
        ]
    )


def pre_tokenizer(rng: random.Random) -> dict:
    behavior = rng.choice(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
    return rng.choice(
        [
            {
                "type": "ByteLevel",
                "add_prefix_space": rng.random() < 0.5,
                "trim_offsets": True,
                "use_regex": rng.random() < 0.5,
            },
            {"type": "Split", "pattern": pattern(rng), "behavior": behavior, "invert": rng.random() < 0.3},
            {
                "type": "Metaspace",
                "replacement": rng.choice(["▁", "a", "ab", ""]),
                "prepend_scheme": "always",
                "split": rng.random() < 0.5,
            },
            {"type": rng.choice(["Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts"])},
            {"type": "Punctuation", "behavior": behavior},
            {"type": "Digits", "individual_digits": True},
            {"type": "CharDelimiterSplit", "delimiter": rng.choice(["a", " ", "ab", ""])},
            {"type": "FixedLength", "length": number(rng)},
        ]
    )


def decoder(rng: random.Random) -> dict:
    return rng.choice(
        [
            {"type": "Replace", "pattern": pattern(rng), "content": text(rng)},
            {
                "type": "Strip",
                "content": rng.choice(["a", " ", "ab", ""]),
                "start": number(rng),
                "stop": number(rng),
            },
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
            {"type": rng.choice(["ByteLevel", "ByteFallback", "Fuse"])},
            {"type": "WordPiece", "prefix": text(rng), "cleanup": True},
            {"type": "BPEDecoder", "suffix": text(rng)},
            {"type": "CTC", "pad_token": text(rng), "word_delimiter_token": text(rng), "cleanup": True},
        ]
    )


def processor(rng: random.Random) -> dict:
    pieces = [
        rng.choice([{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}}])
    ] * rng.choice(SIZES)
    special = {"<s>": {"id": "<s>", "ids": [1] * rng.choice(SIZES), "tokens": ["<s>"]}}
    return rng.choice(
        [
            {"type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": special},
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
            {"type": "BertProcessing", "sep": ["</s>", number(rng)], "cls": ["<s>", 1]},
            {
                "type": "RobertaProcessing",
                "sep": ["</s>", 2],
                "cls": ["<s>", 1],
                "trim_offsets": True,
                "add_prefix_space": True,
            },
        ]
    )


def parts_of_the_tokenizer(rng: random.Random, folder: Folder) -> None:
    content = read(folder, "tokenizer.json")
    lists = {
        "normalizer": (normalizer, "normalizers"),
        "pre_tokenizer": (pre_tokenizer, "pretokenizers"),
        "decoder": (decoder, "decoders"),
        "post_processor": (processor, "processors"),
    }
    for name in rng.sample(list(lists), rng.choice([1, 1, 2, 4])):
        make, field = lists[name]
        few = [make(rng) for _ in range(rng.choice([1, 2, 4]))]
        size = len(json.dumps(few))
        parts = few * min(rng.choice([1, 1, 1, 7, 100, 30_000]), 1 + 20_000_000 // size)
        part: dict = {"type": "Sequence", field: parts}
        for _ in range(rng.choice([0, 0, 0, 5, 200])):
            part = {"type": "Sequence", field: [part]}
        content[name] = part if rng.random() < 0.7 else few[0]
    folder.json("tokenizer.json", content)


def model_of_the_tokenizer(rng: random.Random, folder: Folder) -> None:
    content = read(folder, "tokenizer.json")
    piece, size = rng.choice(CHARS), rng.choice([1, 10, 60, 3000])
    pieces = [piece * (index + 1) for index in range(size)]
    vocabulary = {
        **{word: index for index, word in enumerate(dict.fromkeys(["<unk>", "<s>", "</s>", *pieces]))}
    }
    content["model"] = rng.choice(
        [
            {
                "type": "WordPiece",
                "unk_token": "<unk>",
                "continuing_subword_prefix": rng.choice(["##", "", piece]),
                "max_input_chars_per_word": abs(int(number(rng))),
                "vocab": vocabulary,
            },
            {
                "type": "Unigram",
                "unk_id": rng.choice([0, None, number(rng)]),
                "byte_fallback": rng.random() < 0.5,
                "vocab": [[word, -rng.random()] for word in vocabulary],
            },
            {"type": "WordLevel", "unk_token": rng.choice(["<unk>", "none"]), "vocab": vocabulary},
            {
                "type": "BPE",
                "vocab": vocabulary,
                "merges": [[piece * i, piece] for i in range(1, size)],
                "unk_token": "<unk>",
                "fuse_unk": True,
                "byte_fallback": rng.random() < 0.5,
                "ignore_merges": rng.random() < 0.5,
                "dropout": rng.choice([None, number(rng)]),
                "continuing_subword_prefix": rng.choice([None, piece]),
                "end_of_word_suffix": rng.choice([None, piece]),
            },
        ]
    )
    folder.json("tokenizer.json", content)


def added_tokens(rng: random.Random, folder: Folder) -> None:
    content = read(folder, "tokenizer.json")
    tokens = [
        {
            "id": int(number(rng)) if rng.random() < 0.3 else 64 + index,
            "content": text(rng, [1, 1, 10, 30_000]) + str(index) * (rng.random() < 0.7),
            **{
                flag: rng.random() < 0.4
                for flag in ("single_word", "lstrip", "rstrip", "normalized", "special")
            },
        }
        for index in range(rng.choice([1, 5, 3000]))
    ]
    content["added_tokens"] = tokens + content["added_tokens"] * (rng.random() < 0.7)
    folder.json("tokenizer.json", content)


def settings_of_the_tokenizer(rng: random.Random, folder: Folder) -> None:
    content = read(folder, "tokenizer_config.json")
    names = [
        "bos_token",
        "eos_token",
        "pad_token",
        "unk_token",
        "additional_special_tokens",
        "chat_template",
        "clean_up_tokenization_spaces",
        "add_bos_token",
        "model_max_length",
        "added_tokens_decoder",
        "tokenizer_class",
    ]
    content.update({name: json_value(rng) for name in rng.sample(names, 3)})
    if rng.random() < 0.3:
        content["chat_template"] = rng.choice(
            [
                "{{ x",
                "{{ messages * 99999 }}",
                "{% for m in messages %}{{ m.content * 1000 }}{% endfor %}",
                "{{ raise_exception('\x1b[2J\u202e' * 500) }}",
                text(rng),
            ]
        )
    folder.json("tokenizer_config.json", content)


RULES: list[Callable[[random.Random, Folder], None]] = [
    any_json_value,
    any_json_value,
    any_json_value,
    a_field_of_the_configuration,
    a_large_document,
    bytes_of_a_file,
    something_else_than_a_file,
    header_of_the_weights,
    length_of_the_header,
    shards,
    parts_of_the_tokenizer,
    parts_of_the_tokenizer,
    parts_of_the_tokenizer,
    model_of_the_tokenizer,
    model_of_the_tokenizer,
    added_tokens,
    settings_of_the_tokenizer,
]
