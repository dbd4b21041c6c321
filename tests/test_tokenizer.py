"""A tokenizer by itself, under transformers' names."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import rsgen
from rsgen.stopping_criteria import StopStringCriteria

GOLDEN = Path(__file__).parent / "golden" / "tokenizers"


@pytest.fixture
def tokenizer():
    return rsgen.Tokenizer()


def test_it_opens_without_a_model(gen, tokenizer, tmp_path, make_llama):
    text = "Once upon a time, there was a fox."
    assert tokenizer.encode(text) == gen.tokenizer.encode(text)
    assert rsgen.Tokenizer.from_pretrained(gen.name_or_path).get_vocab() == tokenizer.get_vocab()
    with pytest.raises(rsgen.LoadError, match=r"neither a tokenizer\.json nor a tokenizer\.model"):
        rsgen.Tokenizer(make_llama())
    with pytest.raises(rsgen.LoadError, match="there is no folder of this path"):
        rsgen.Tokenizer(tmp_path / "nowhere")
    with pytest.raises(TypeError, match=r"Tokenizer\(\) got an unexpected keyword argument 'dtype'"):
        rsgen.Tokenizer(dtype="float32")


def test_it_is_called_with_texts(tokenizer):
    one, two = tokenizer.encode("Hi"), tokenizer.encode("hello there you")
    assert tokenizer("Hi") == {"input_ids": one, "attention_mask": [1] * len(one)}
    assert tokenizer(["Hi", "hello there you"]).input_ids == [one, two]
    array = tokenizer("Hi", return_tensors="np")
    assert array["input_ids"].shape == array["attention_mask"].shape == (1, len(one))
    assert array["input_ids"].dtype == np.int64
    assert list(tokenizer("Hi", return_attention_mask=False)) == ["input_ids"]
    assert tokenizer("Hi", add_special_tokens=False)["input_ids"] == one[1:]


def test_rows_are_padded_and_cut(tokenizer):
    texts, pad = ["Hi", "hello there you"], tokenizer.pad_token_id
    one, two = (tokenizer.encode(text) for text in texts)
    missing = len(two) - len(one)
    left = tokenizer(texts, padding=True)
    assert left.input_ids == [[pad] * missing + one, two]
    assert left.attention_mask == [[0] * missing + [1] * len(one), [1] * len(two)]
    assert tokenizer(texts, padding=True, padding_side="right").input_ids[0] == one + [pad] * missing
    assert len(tokenizer("Hi", padding="max_length", max_length=9)["input_ids"]) == 9
    assert len(tokenizer("Hi", padding=True, pad_to_multiple_of=8)["input_ids"]) == 8
    assert tokenizer(texts, truncation=True, max_length=3).input_ids[1] == two[:3]
    tokenizer.padding_side = "right"
    assert tokenizer(texts, padding=True).attention_mask[0][-1] == 0


def test_padding_tokens_are_set_as_in_transformers(gen, tokenizer):
    tokenizer.pad_token = tokenizer.eos_token
    assert (tokenizer.pad_token, tokenizer.pad_token_id) == (tokenizer.eos_token, tokenizer.eos_token_id)
    assert rsgen.Tokenizer().pad_token_id == 2, "another object"
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match=r"no `pad_token` .*tokenizer\.pad_token = tokenizer\.eos_token"):
        tokenizer(["Hi", "hello there you"], padding=True)
    assert tokenizer(["Hi", "Hi"], padding=True).input_ids[0] == tokenizer.encode("Hi")
    with pytest.raises(rsgen.ConfigError, match="`pad_token` must be a token of the vocabulary"):
        tokenizer.pad_token = "[PAD]"
    with pytest.raises(rsgen.ConfigError, match="`pad_token_id` must be the id of a token"):
        tokenizer.pad_token_id = 99999
    with pytest.raises(rsgen.ConfigError, match=r'`padding_side` must be "left" or "right"'):
        tokenizer.padding_side = "top"
    assert gen.tokenizer is gen.tokenizer, "what is set stays set"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t(5), TypeError, "'int' object is not iterable"),
        (lambda t: t(["a", 5]), TypeError, "a text or a list of texts"),
        (
            lambda t: t("a", return_tensors="pt"),
            ValueError,
            "`return_tensors` of a tokenizer must be one of None, 'np'",
        ),
        (lambda t: t("a", padding="most"), ValueError, "`padding` of a tokenizer must be"),
        (lambda t: t(["a", "a b c"], return_tensors="np"), ValueError, "use padding=True"),
        (lambda t: t("a", padding="max_length"), ValueError, "needs `max_length`"),
        (lambda t: t("a", truncation=True, max_length=-1), ValueError, r"`max_length` .* 0 to \d+, .*got -1"),
        (lambda t: t("a", max_length=-1), ValueError, "`max_length` .*got -1"),
        (lambda t: t("a", padding="max_length", max_length=2**64), ValueError, "`max_length` .*got 18"),
        (lambda t: t("a", truncation=True, max_length=1.5), TypeError, r"got 1\.5 \(float\)"),
        (lambda t: t("a", padding=True, pad_to_multiple_of=-8), ValueError, "`pad_to_multiple_of` .*got -8"),
        (
            lambda t: t("a", padding=True, truncation=True, max_length=9, pad_to_multiple_of=8),
            ValueError,
            "must be a multiple of `pad_to_multiple_of`",
        ),
        (lambda t: t("a", stride=3), TypeError, "unexpected keyword argument 'stride'"),
        (lambda t: t.decode("x"), TypeError, "`token_ids` must be a token id, a sequence of token ids"),
        (lambda t: t.decode(None), TypeError, "`token_ids` must be"),
        (
            lambda t: t.decode([1.5]),
            TypeError,
            r"token ids must be integers, got 1\.5 \(float\) at position 0",
        ),
        (lambda t: t.decode([-1]), rsgen.InputError, "token ids must be 0 or more"),
        (lambda t: t.decode([[[1]]]), TypeError, "token ids must be integers"),
        (lambda t: t.decode([1], clean_up_tokenization_spaces=True), rsgen.ConfigError, "leave it out"),
        (lambda t: t.encode("a", return_tensors="pt"), rsgen.ConfigError, '`return_tensors` must be "np"'),
    ],
)
def test_impossible_arguments_are_refused_in_words_of_ids(tokenizer, call, error, message):
    with pytest.raises(error, match=message) as raised:
        call(tokenizer)
    assert "prompt" not in str(raised.value)


def test_ids_become_texts(tokenizer):
    ids = tokenizer.encode("Hello there")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Hello there"
    assert tokenizer.decode(ids, True) == "Hello there"
    for same in (np.array(ids), tuple(ids), [np.int64(i) for i in ids]):
        assert tokenizer.decode(same) == "<s>Hello there"
    assert (
        tokenizer.decode([ids, ids[:2]])
        == tokenizer.batch_decode([ids, ids[:2]])
        == ["<s>Hello there", "<s>H"]
    )
    assert tokenizer.decode(np.array([ids, ids])) == ["<s>Hello there"] * 2
    assert tokenizer.decode(ids[1]) == tokenizer.decode(np.int64(ids[1])) == "H"
    assert tokenizer.batch_decode([]) == tokenizer.batch_decode(np.array([])) == []
    assert (tokenizer.decode([]), tokenizer.decode(np.array([])), tokenizer.batch_decode([[]])) == (
        "",
        "",
        [""],
    )
    assert tokenizer.encode("Hi", return_tensors="np").tolist() == [tokenizer.encode("Hi")]


def test_tokens_have_names_and_ids(tokenizer):
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<s>", "</s>", "<pad>")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 1, 2)
    assert (tokenizer.unk_token, tokenizer.unk_token_id) == (None, None)
    assert tokenizer.special_tokens_map == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    assert tokenizer.all_special_ids[:3] == [0, 1, 2]
    assert tokenizer.all_special_tokens[:3] == ["<s>", "</s>", "<pad>"]
    assert tokenizer.tokenize("Hello there") == ["H", "ell", "o", "Ġthere"]
    assert tokenizer.convert_ids_to_tokens([1, 300, 99999]) == ["</s>", "is", None]
    assert tokenizer.convert_ids_to_tokens([1, 300], skip_special_tokens=True) == ["is"]
    assert tokenizer.convert_ids_to_tokens(300) == "is"
    assert tokenizer.convert_tokens_to_ids("is") == 300
    assert tokenizer.convert_tokens_to_ids(["<s>", "no such token"]) == [0, None]
    assert tokenizer.get_vocab()["is"] == 300
    assert len(tokenizer) == tokenizer.vocab_size == len(tokenizer.get_vocab())


def test_it_is_pickled_as_the_place_it_was_opened_from(gen, tokenizer):
    tokenizer.padding_side = "right"
    tokenizer.pad_token = tokenizer.eos_token
    for value in (tokenizer, gen.tokenizer):
        again = pickle.loads(pickle.dumps(value))
        assert again.encode("Hi") == value.encode("Hi")
        assert (again.padding_side, again.pad_token) == (value.padding_side, value.pad_token)
        assert copy.copy(value) is copy.deepcopy(value) is value
    criterion = pickle.loads(pickle.dumps(StopStringCriteria(gen.tokenizer, ["fox."])))
    assert criterion(np.array([tokenizer.encode("There was a fox.")])).tolist() == [True]


@pytest.mark.parametrize("model_type", ["phi3", "llama", "qwen2", "gemma2", "mistral"])
def test_the_type_of_the_model_decides_how_its_files_are_read(model_type, tmp_path):
    golden = json.loads((GOLDEN / "cases.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    shutil.copy(GOLDEN / "pieces.json", tmp_path / "tokenizer.json")
    tokenizer = rsgen.Tokenizer(tmp_path)
    result = golden["results"][golden["types"][model_type]["LlamaTokenizer"][0]]
    for text, row in zip(golden["texts"], result["ids"], strict=True):
        assert list(tokenizer.encode(text)) == golden["rows"][row], text


def test_truncation_without_a_length_cuts_at_that_of_the_files(tmp_path):
    source = Path(rsgen.__file__).parent / "models" / "story-3m"
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (source / name).exists():
            (tmp_path / name).write_bytes((source / name).read_bytes())
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    text = "Once upon a time there was a little fox."
    for length, kept in ((4, 4), (2, 2), (10**30, None), (None, None)):
        path.write_text(json.dumps(settings | {"model_max_length": length}))
        tokenizer = rsgen.Tokenizer(tmp_path)
        assert tokenizer.model_max_length == kept
        whole = tokenizer(text)["input_ids"]
        if kept is None:
            with pytest.warns(UserWarning, match="name no `model_max_length`; nothing is cut"):
                assert tokenizer(text, truncation=True)["input_ids"] == whole
        else:
            assert len(tokenizer(text, truncation=True)["input_ids"]) == kept
        assert len(tokenizer(text, truncation=True, max_length=3)["input_ids"]) == 3
        assert tokenizer(text)["input_ids"] == whole


OFFSETS = json.loads((GOLDEN.parent / "offsets.json").read_text())


def golden_tokenizer(case: dict, folder: Path) -> rsgen.Tokenizer:
    """The tokenizer of a case of the golden."""
    if case["class"] is None:
        return rsgen.Tokenizer()
    shutil.copy(GOLDEN / f"{case['tokenizer']}.json", folder / "tokenizer.json")
    settings = {"tokenizer_class": case["class"], "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return rsgen.Tokenizer(folder)


@pytest.mark.parametrize(
    "case", OFFSETS["cases"], ids=[f"{case['tokenizer']} {case['call']}" for case in OFFSETS["cases"]]
)
def test_offsets_are_those_of_transformers(case, tmp_path):
    tokenizer = golden_tokenizer(case, tmp_path)
    encoding = tokenizer(OFFSETS["texts"], return_offsets_mapping=True, **case["call"])
    assert encoding["input_ids"] == case["input_ids"]
    found = [[list(place) for place in row] for row in encoding["offset_mapping"]]
    for text, places, expected in zip(OFFSETS["texts"], found, case["offset_mapping"], strict=True):
        assert places == expected, text


def test_offsets_are_of_characters_and_as_an_array(tokenizer):
    text = "the ﬁne 狐 fox"
    encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    assert "".join(text[start:end] for start, end in dict.fromkeys(encoding["offset_mapping"])) in (
        text,
        text.replace(" ", ""),
    )
    assert "offset_mapping" not in tokenizer(text)
    texts = [text, "the fox"]
    array = tokenizer(texts, return_offsets_mapping=True, padding=True, return_tensors="np")
    assert array["offset_mapping"].shape == (*array["input_ids"].shape, 2)
    assert (array["offset_mapping"][array["attention_mask"] == 0] == 0).all()


def test_without_a_tokenizer_json_there_are_no_offsets(tmp_path):
    shutil.copy(GOLDEN.parent / "sentencepiece" / "llama.model", tmp_path / "tokenizer.model")
    pieces = rsgen.Tokenizer(tmp_path)
    with pytest.raises(
        rsgen.InputError, match=r"`return_offsets_mapping` needs a tokenizer.json, but .* tokenizer.model"
    ):
        pieces("the fox", return_offsets_mapping=True)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_is_saved_as_the_files_that_it_had(gen, tokenizer, tmp_path):
    folder, there = tmp_path / "a" / "b", Path(gen.name_or_path)
    paths = tokenizer.save_pretrained(str(folder))
    saved = files_of(folder)
    assert sorted(map(Path, paths)) == sorted(folder.iterdir())
    assert {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"} <= set(saved)
    assert all(content == (there / name).read_bytes() for name, content in saved.items())
    again = rsgen.Tokenizer(folder)
    assert again.encode("Once upon a time") == tokenizer.encode("Once upon a time")
    assert again.get_vocab() == tokenizer.get_vocab()
    gen.tokenizer.save_pretrained(folder)
    assert files_of(folder) == saved, "files are replaced"
    with pytest.raises(FileExistsError):
        tokenizer.save_pretrained(folder / "tokenizer.json")


@pytest.mark.parametrize("name", ["llama", "nmt_nfkc"])
def test_pieces_and_templates_are_saved(name, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    shutil.copy(GOLDEN.parent / "sentencepiece" / f"{name}.model", first / "tokenizer.model")
    (first / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    (first / "chat_template.jinja").write_text("{{ messages }}")
    (first / "weights.bin").write_bytes(b"0")
    rsgen.Tokenizer(first).save_pretrained(second)
    expected = files_of(first)
    del expected["weights.bin"]
    assert files_of(second) == expected
    assert rsgen.Tokenizer(second).encode("the fox") == rsgen.Tokenizer(first).encode("the fox")


def test_padding_that_was_set_is_saved(tokenizer, tmp_path):
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    tokenizer.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (settings["pad_token"], settings["padding_side"]) == (tokenizer.eos_token, "right")
    assert rsgen.Tokenizer(tmp_path).pad_token_id == tokenizer.eos_token_id


def test_conversations_are_encoded_as_a_call_encodes_texts(gen):
    template = "{% for message in messages %}{{ message.content }}{{ extra }}{% endfor %}"
    one, two = ([{"role": "user", "content": text}] for text in ("Hi", "hello there you"))
    plain = gen.apply_chat_template(one, chat_template=template, extra="!")
    inputs = gen.apply_chat_template(one, chat_template=template, extra="!", return_dict=True)
    assert inputs == {"input_ids": plain, "attention_mask": [1] * len(plain)}
    arrays = gen.apply_chat_template(one, chat_template=template, return_dict=True, return_tensors="np")
    assert arrays["input_ids"].shape == (1, len(plain) - 1)
    assert gen.generate(**arrays, max_new_tokens=2).usage.generated_tokens == 2
    both = gen.apply_chat_template([one, two], chat_template=template, padding=True, return_tensors="np")
    assert (
        both.shape
        == gen.tokenizer(
            ["Hi", "hello there you"], padding=True, add_special_tokens=False, return_tensors="np"
        )["input_ids"].shape
    )
    cut = gen.apply_chat_template(two, chat_template=template, truncation=True, max_length=2)
    assert cut == gen.apply_chat_template(two, chat_template=template)[:2]
    text = gen.apply_chat_template(one, chat_template=template, tokenize=False, return_dict=True, extra="?")
    assert text == "Hi?"


def test_a_call_takes_the_tokenizer_beside_stop_strings_as_transformers_does(gen, tmp_path):
    class OfTransformers:
        """What their tokenizers have, as far as it is looked at."""

        def __len__(self):
            return len(gen.tokenizer)

        def batch_decode(self, sequences):
            raise AssertionError("the model's own is used")

    plain = gen.generate("Once upon a time", stop_strings=[" was"], max_new_tokens=30)
    for given in (gen.tokenizer, rsgen.Tokenizer(), OfTransformers(), None):
        call = {"stop_strings": [" was"], "max_new_tokens": 30, "tokenizer": given}
        assert gen.generate("Once upon a time", **call) == plain
        assert list(gen.stream("Once upon a time", **call))[-1].finish_reason == "stop"
    shutil.copy(GOLDEN / "byte_level.json", tmp_path / "tokenizer.json")
    other = rsgen.Tokenizer(tmp_path)
    with pytest.raises(rsgen.ConfigError, match=r"`tokenizer` must be the model's own.* got another one"):
        gen.generate("Once upon a time", tokenizer=other)
    assert gen.generate("One", assistant_tokenizer=other, max_new_tokens=1)
    with pytest.raises(TypeError, match=r"`tokenizer` must be a tokenizer or None, got 'gpt2'"):
        gen.generate("Once upon a time", tokenizer="gpt2")
