"""The table of bad model folders: how each is made from a healthy one, and what the error must say."""

import json
import os
import struct
from pathlib import Path
from typing import NamedTuple

from hostile import (
    EMBEDDING,
    INDEX,
    NORM,
    Edit,
    config,
    header,
    model,
    replacement,
    settings,
    split,
    template,
    text,
    tokenizer,
)


class Case(NamedTuple):
    name: str
    edit: Edit
    words: tuple[str, ...]
    """What the message must hold."""


def rope(**parameters: object) -> Edit:
    return config(rope_scaling=parameters)


def weight_map(file: object) -> Edit:
    return lambda folder: folder.index(lambda names: names.update({NORM: file}))


AGAIN = "download"
WHOLE = "a whole number from 1 to"

FILES = [
    Case(
        "no config",
        lambda f: os.remove(f.path / "config.json"),
        ("config.json is missing", "is it the folder"),
    ),
    Case(
        "no weights",
        lambda f: os.remove(f.path / "model.safetensors"),
        ("neither model.safetensors nor " + INDEX,),
    ),
    Case(
        "weights of another format",
        lambda f: (os.remove(f.path / "model.safetensors"), f.write("pytorch_model.bin", b"x")),
        ("pytorch_model.bin: it is no file of torch.save; download it again",),
    ),
    *(
        Case(
            f"{name} is {what}", lambda f, name=name, make=make: (f.tokenizer(), f.replace(name, make)), words
        )
        for name in (
            "config.json",
            "model.safetensors",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
        )
        for what, make, words in (
            ("a folder", Path.mkdir, (name, "must be a regular file")),
            ("a pipe", os.mkfifo, (name, "must be a regular file")),
            (
                "a link out",
                lambda path: path.symlink_to("/etc/passwd"),
                (name, "a link out of", "copy the file"),
            ),
            ("a link to nowhere", lambda path: path.symlink_to("nowhere"), (name, "cannot be read")),
        )
    ),
    *(
        Case(
            f"{name} {what}",
            lambda f, name=name, content=content: (f.tokenizer(), f.write(name, content)),
            words,
        )
        for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
        for what, content, words in (
            ("is empty", "", (name, "it is empty", "not valid JSON", AGAIN)),
            ("is cut off", '{"a": {"b": 1', (name, "it is cut off", "not valid JSON", AGAIN)),
            ("has a byte order mark", b"\xef\xbb\xbf{}", (name, "begins with a byte order mark", "save it")),
            ("is no object", "[1]", (name, AGAIN if name != "tokenizer.json" else "object")),
            ("is no UTF-8", b'{"a": "\xff"}', (name,)),
            ("holds NaN", '{"a": NaN}', (name, "no NaN and no Infinity")),
            ("holds a number beyond all", '{"a": 1e999}', (name, "number out of range")),
            ("is deep", '{"a":' + "[" * 100_000, (name, "recursion limit")),
            ("has a key twice", '{"a": 1, "b": 2, "a": 1}', (name, 'the key "a" comes twice')),
        )
    ),
]

CONFIG_NUMBERS = [
    Case(
        f"{field} {value!r:.30}",
        config(**{field: value}),
        ("config.json", field, "must be", "correct the file"),
    )
    for field in (
        "hidden_size",
        "vocab_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
        "rms_norm_eps",
        "rope_theta",
    )
    for value in (0, -1, 1e308, 2**63, 10**30, "32", [1], True)
]

CONFIG = [
    Case("layers", config(num_hidden_layers=10**9), (WHOLE + " 1024, found 1000000000",)),
    Case("fraction", config(hidden_size=32.5), (WHOLE, "found 32.5")),
    Case("heads", config(num_key_value_heads=3), ("a divisor of num_attention_heads (4), found 3",)),
    Case(
        "heads and size",
        config(num_attention_heads=5, num_key_value_heads=5, head_dim=None),
        ("hidden_size (32)",),
    ),
    Case("odd head", config(head_dim=7), ("an even number", "found 7")),
    Case("tiny theta", config(rope_theta=1e-300), ("from 1e-15 to 1e15, found 1e-300",)),
    Case("rope kind", rope(rope_type="banana"), ('llama3 or yarn, found "banana"',)),
    Case("rope kind of another model", rope(rope_type="longrope"), ('found "longrope"',)),
    Case(
        "rope without factor", rope(rope_type="linear"), ("rope_scaling.factor", "given for this rope_type")
    ),
    Case("rope factor", rope(rope_type="linear", factor=0), ("rope_scaling.factor", "found 0")),
    Case("rope is a number", config(rope_scaling=3), ("rope_scaling must be an object, found 3",)),
    Case(
        "architecture",
        config(architectures=["GPT9ForCausalLM"]),
        ('"GPT9ForCausalLM" is not supported; supported are',),
    ),
    Case("architecture is a text", config(architectures="x"), ('a list of class names, found "x"',)),
    Case("family", config(architectures=None, model_type="gpt9"), ('"gpt9" is not supported',)),
    Case("families differ", config(model_type="gpt2"), ("model_type", "LlamaForCausalLM", 'found "gpt2"')),
    Case("family is a number", config(model_type=5), ("model_type must be a string, found 5",)),
    Case("activation", config(hidden_act="gelu"), ("hidden_act", '"silu"', 'found "gelu"')),
    Case("flag", config(tie_word_embeddings="yes"), ('true or false, found "yes"',)),
    Case("end token", config(eos_token_id="x"), ("eos_token_id must be a token id", 'found "x"')),
    Case("end token beyond ids", config(eos_token_id=2**40), ("eos_token_id must be a token id", str(2**40))),
    *(
        Case(
            method,
            config(quantization_config={"quant_method": method}),
            ("quantization_config", method, "use the checkpoint in bfloat16"),
        )
        for method in ("hqq", "torchao", "quanto", "aqlm", "exl2", "bitnet", "eetq", "vptq", "spqr", "higgs")
    ),
    Case(
        "other shape",
        config(hidden_size=36, head_dim=8),
        (EMBEDDING, "predicts the shape [64, 36], found [64, 32]"),
    ),
    Case(
        "more layers",
        config(num_hidden_layers=3),
        ("model.layers.2.input_layernorm.weight", "no tensor of this name"),
    ),
    Case("literal NaN", lambda f: f.write("config.json", f.config_text.replace("1e-05", "NaN")), ("no NaN",)),
    Case(
        "literal Infinity",
        lambda f: f.write("config.json", f.config_text.replace("1e-05", "Infinity")),
        ("no Infinity",),
    ),
    Case(
        "defaults of another type",
        text("generation_config.json", '{"top_k": "x"}'),
        ("generation_config.json", "`top_k`", '"x"'),
    ),
]

WEIGHTS = [
    Case("empty", text("model.safetensors", b""), ("at least 8 bytes, found 0", AGAIN)),
    Case("only a length", text("model.safetensors", struct.pack("<Q", 9)), ("only 0 bytes follow",)),
    Case(
        "length beyond all",
        text("model.safetensors", struct.pack("<Q", 2**63) + b"{}"),
        ("at most 33554432 bytes", str(2**63)),
    ),
    Case(
        "cut off",
        lambda f: f.header(lambda _: None, lambda data: data[:-4]),
        ("do not fill", "exactly", AGAIN),
    ),
    Case("too long", lambda f: f.header(lambda _: None, lambda data: data + b"x"), ("do not fill",)),
    Case("no JSON", lambda f: f.header(lambda _: b"hello"), ("its header must be a JSON object",)),
    Case("no UTF-8", lambda f: f.header(lambda _: b'{"\xff": 3}'), ("its header is refused",)),
    Case(
        "deep",
        lambda f: f.header(lambda _: b'{"a":' * 100_000),
        ("model.safetensors", "its header is refused"),
    ),
    Case(
        "twice",
        lambda f: f.header(lambda h: json.dumps(h).encode().replace(b"{", b'{"%s":{},' % NORM.encode(), 1)),
        (NORM,),
    ),
    Case("dtype", header(dtype="Q4"), (EMBEDDING, 'the unknown dtype "Q4"')),
    Case("dtype is a number", header(dtype=4), (EMBEDDING, "the unknown dtype 4")),
    Case("dtype of another size", header(dtype="BF16"), (EMBEDDING, '"BF16"', "hold 8192 bytes")),
    Case(
        "dtype that is not read",
        header(dtype="I64", shape=[32, 32]),
        (EMBEDDING, "F32, BF16 or F16, found I64"),
    ),
    Case("negative shape", header(shape=[-64, 32]), (EMBEDDING, "[-64,32], which is no list of sizes")),
    Case("shape that wraps", header(shape=[2**62, 2**62]), (EMBEDDING, "hold 8192 bytes")),
    Case("flat", header(shape=[2048]), (EMBEDDING, "predicts the shape [64, 32], found [2048]")),
    Case("transposed", header(shape=[32, 64]), (EMBEDDING, "found [32, 64]")),
    Case("offsets reversed", header(data_offsets=[8192, 0]), (EMBEDDING, "whose end is before the start")),
    Case(
        "offsets beyond", header(data_offsets=[0, 2**64 - 1]), (EMBEDDING, "hold 18446744073709551615 bytes")
    ),
    Case(
        "hole",
        lambda f: f.header(lambda h: h[NORM].update(shape=[0], data_offsets=[8192, 8192])),
        ("do not fill",),
    ),
    Case("overlap", lambda f: f.header(lambda h: h[NORM].update(data_offsets=[0, 128])), ("do not fill",)),
    Case(
        "another name",
        lambda f: f.header(lambda h: h.update({"x." + NORM: h.pop(NORM)})),
        (NORM, "similar names are", "x." + NORM),
    ),
    Case("NaN", lambda f: f.weight(NORM, float("nan")), (NORM, "must be finite", AGAIN)),
    Case("infinity", lambda f: f.weight(EMBEDDING, float("inf")), (EMBEDDING, "must be finite", AGAIN)),
    Case(
        "NaN in a packed part",
        lambda f: f.weight("model.layers.1.self_attn.k_proj.weight", float("nan")),
        ("model.layers.1.self_attn.k_proj.weight: the weights must be finite",),
    ),
    Case("index is no object", lambda f: f.index(lambda _: []), (INDEX, "must be a JSON object")),
    Case("index without map", lambda f: f.index(lambda _: {}), (INDEX, "weight_map must be an object")),
    Case(
        "map is a list",
        lambda f: f.index(lambda _: {"weight_map": []}),
        (INDEX, "weight_map must be an object"),
    ),
    Case(
        "index names too much",
        lambda f: f.index(lambda names: names.update(x="a.safetensors")),
        (INDEX, "x is not in a.safetensors"),
    ),
    Case("no shard", weight_map("b.safetensors"), (INDEX, NORM, '"b.safetensors" is missing', AGAIN)),
]

HOSTILE_NAMES = [
    *("../a.safetensors", "/etc/passwd", "/etc/passwd.safetensors", "..\\a.safetensors", "C:\\a.safetensors"),
    *("C:a.safetensors", ".a.safetensors", "a/../a.safetensors", "./a.safetensors", "%2e%2e%2fa.safetensors"),
    *("a.safetensors\0", "\0.safetensors", "a.safetensors/", "", "a.bin", "a\u2215b.safetensors"),
    *("\uff0fa.safetensors", "~/a.safetensors", "$HOME.safetensors", "a" * 300 + ".safetensors"),
    *(
        "file:///a.safetensors",
        "\\\\server\\a.safetensors",
        "a.safetensors ",
        "a.safetensors\n",
        "\u202ea.safetensors",
    ),
    *("/dev/zero", "config.json", 5, None, [], {"a": 1}),
]
NAMES = [
    Case(f"shard {name!r:.30}", weight_map(name), (INDEX, f"the file of {NORM}")) for name in HOSTILE_NAMES
]

A = {"Sequence": {"id": "A", "type_id": 0}}
BOS = {"SpecialToken": {"id": "<s>", "type_id": 0}}
EXTRA = {"content": "x", "special": True}
TOKENIZERS = [
    *(
        Case(
            f"tokenizer without {part}",
            lambda f, part=part: f.tokenizer(lambda t: t.pop(part) and None),
            ("tokenizer.json", "cannot be used"),
        )
        for part in ("model",)
    ),
    *(
        Case(f"tokenizer with {part} 5", tokenizer(**{part: 5}), ("tokenizer.json", "cannot be used"))
        for part in (
            "model",
            "normalizer",
            "pre_tokenizer",
            "post_processor",
            "decoder",
            "added_tokens",
            "version",
        )
    ),
    Case("no vocabulary", model(vocab={}), ("tokenizer.json", "out of vocabulary")),
    Case("no merges", model(merges=None), ("tokenizer.json", "cannot be used")),
    Case(
        "merge of nothing", model(merges=[["qq", "zz"]]), ("tokenizer.json", "Token `qq` out of vocabulary")
    ),
    Case(
        "id is a text",
        lambda f: f.tokenizer(lambda t: t["model"]["vocab"].update(a="x") and None),
        ("tokenizer.json", "expected u32"),
    ),
    Case(
        "negative id",
        lambda f: f.tokenizer(lambda t: t["model"]["vocab"].update(a=-1) and None),
        ("tokenizer.json", "`-1`"),
    ),
    Case(
        "huge id",
        lambda f: f.tokenizer(lambda t: t["model"]["vocab"].update(a=4 * 10**9) and None),
        ("at most 4194303", "4000000000"),
    ),
    Case(
        "word twice",
        lambda f: f.tokenizer(lambda t: json.dumps(t).replace('"vocab": {', '"vocab": {"a": 1, ')),
        ('"a" comes twice',),
    ),
    Case(
        "decoder for speech",
        tokenizer(decoder={"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True}),
        ("CTC",),
    ),
    Case(
        "decoders that hold themselves",
        tokenizer(decoder={"type": "Sequence", "decoders": [{"type": "Sequence"}]}),
        ("tokenizer.json",),
    ),
    Case("template without the text", template([]), ("the text A once in `single`, found it 0 times",)),
    Case("template with the text twice", template([A, A]), ("found it 2 times",)),
    Case(
        "template with another text",
        template([A, {"Sequence": {"id": "B", "type_id": 0}}]),
        ("one text, A, found B",),
    ),
    Case("template of an unknown token", template([BOS, A]), ("list in `special_tokens`", "<s>")),
    Case(
        "template with an id too few",
        template([BOS, A], **{"<s>": {"id": "<s>", "ids": [], "tokens": ["<s>"]}}),
        ("as many ids as tokens",),
    ),
    Case(
        "template with ids of nothing",
        template([BOS, A], **{"<s>": {"id": "<s>", "ids": [4000], "tokens": ["x"]}}),
        ("found the id 4000",),
    ),
    Case(
        "template bomb",
        template([BOS] * 3000 + [A], **{"<s>": {"id": "<s>", "ids": [0] * 3000, "tokens": ["x"] * 3000}}),
        ("at most 1024 tokens",),
    ),
    Case("damaged expression", split("(("), ("tokenizer.json", "parenthesis")),
    Case(
        "expression too large",
        split("(a{1000}){1000}"),
        ("tokenizer.json", "must be valid and compile to at most"),
    ),
    Case("empty pattern", replacement({"String": ""}, "x"), ("a pattern that is not empty",)),
    Case("pattern of nothing", replacement({"Regex": "x*"}, "x"), ("does not match the empty text", "x*")),
    Case("pattern with look-ahead", replacement({"Regex": "a(?=b)"}, "x"), ("without look-around", "a(?=b)")),
    Case(
        "map of characters",
        tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": "////fwAAAAA="}),
        ("tokenizer.json", "cannot be used"),
    ),
    Case(
        "settings twice",
        lambda f: (f.tokenizer(), f.write("tokenizer_config.json", '{"bos_token": "a", "bos_token": "b"}')),
        ("comes twice",),
    ),
    Case(
        "settings: token",
        settings(bos_token=5),
        ("tokenizer_config.json: bos_token must be a token", "found 5"),
    ),
    Case("settings: id", settings(added_tokens_decoder={"-1": EXTRA}), ('"-1" must be a token id',)),
    Case("settings: flag", settings(clean_up_tokenization_spaces="x"), ('true or false, found "x"',)),
    Case("settings: class", settings(tokenizer_class=5), ("tokenizer_class must be a string, found 5",)),
]

TEMPLATES = [
    Case(
        "template is no UTF-8",
        text("chat_template.jinja", b"\xff"),
        ("chat_template.jinja: it must be UTF-8",),
    ),
    Case(
        "template is a folder",
        lambda f: f.replace("chat_template.jinja", Path.mkdir),
        ("chat_template.jinja", "must be a regular file"),
    ),
    Case("template is a number", settings(chat_template=5), ("chat_template must be a text, or a list of",)),
    Case(
        "template has no text",
        settings(chat_template=[{"name": "x"}]),
        ("objects with `name` and `template`",),
    ),
]

CASES = [*FILES, *CONFIG_NUMBERS, *CONFIG, *WEIGHTS, *NAMES, *TOKENIZERS, *TEMPLATES]
