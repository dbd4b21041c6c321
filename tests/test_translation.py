"""Translation as users ask for it: languages by name, lists, files in the shell."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import rsgen
from test_translation_tokenizers import CASES, folder
from tiny_encoder_decoder import write_folder

GOLDEN = Path(__file__).parent / "golden"
TEXTS = ["The house is small.", "The garden is green.", "I like tea."]


def folder_of(path: Path, family: str, case: str, **fields: int) -> Path:
    """The model of a family with a tokenizer; the fields are those of its `generation_config.json`."""
    made = json.loads((GOLDEN / f"encoder_decoder_requests/{family}.json").read_text())
    size, old = CASES[case]["vocab_size"], made["config"]["vocab_size"]
    shapes = {
        name: [size if part == old else part for part in shape] for name, shape in made["tensors"].items()
    }
    special = {name: value for name, value in fields.items() if name in made["config"]}
    write_folder(path, made["config"] | {"vocab_size": size} | special, shapes, **fields)
    files = {name: content for name, content in CASES[case]["files"].items() if name != "config.json"}
    return folder({"files": files}, path)


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    special = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    return rsgen.Generator(folder_of(tmp_path_factory.mktemp("nllb"), "m2m_100", "nllb", **special))


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    pad = CASES["marian"]["bos_eos_pad_unk"][2]
    special = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad}
    return folder_of(tmp_path_factory.mktemp("marian"), "marian", "marian", **special)


def test_languages_decide_what_stands_around_a_text_and_what_the_translation_begins_with(nllb):
    language = CASES["nllb"]["language_ids"][0]
    assert "deu_Latn" in nllb.languages
    out = nllb.translate(TEXTS, source="eng_Latn", target="deu_Latn", max_new_tokens=6)
    assert [row.tolist()[:2] for row in out.sequences] == [[2, language]] * 3
    ids = nllb.tokenizer.encode(TEXTS[0])
    same = nllb.generate(ids, forced_bos_token_id=language, max_new_tokens=6)
    assert same.sequences[0].tolist() == out.sequences[0].tolist()
    assert same.text == out.texts[0]
    # The call's own field has precedence.
    other = nllb.translate(TEXTS[0], target="deu_Latn", forced_bos_token_id=9, max_new_tokens=6)
    assert other.sequences[0].tolist()[:2] == [2, 9]


def test_languages_are_checked(nllb, marian):
    with pytest.raises(rsgen.InputError, match=r"must be one of its .* languages"):
        nllb.translate(TEXTS, source="eng_Latn", target="German", max_new_tokens=3)
    with pytest.raises(rsgen.RsgenError, match="must name the language"):
        nllb.translate(TEXTS, source="eng_Latn", max_new_tokens=3)
    pair = rsgen.Generator(marian)
    assert pair.languages == []
    with pytest.raises(rsgen.InputError, match="no languages"):
        pair.translate(TEXTS, target="de", max_new_tokens=3)
    with pytest.raises(rsgen.InputError, match="has no encoder"):
        rsgen.Generator().translate(TEXTS)
    with pytest.raises(rsgen.InputError, match="has no encoder"):
        rsgen.Generator().summarize(TEXTS)


def test_an_error_of_a_list_names_the_text(marian):
    gen = rsgen.Generator(marian)
    for run in (gen.translate, gen.summarize):
        for wrong in (3, "a " * 20000):
            with pytest.raises((rsgen.InputError, TypeError), match=r"^prompt 1: "):
                run([TEXTS[0], wrong], max_new_tokens=3)


def test_a_list_gives_what_each_text_gives(marian):
    gen = rsgen.Generator(marian)
    out = gen.translate(TEXTS * 30, num_beams=3, max_new_tokens=7)
    alone = [gen.translate(text, num_beams=3, max_new_tokens=7).text for text in TEXTS]
    assert out.texts == alone * 30
    assert gen.summarize(TEXTS, num_beams=3, max_new_tokens=7).texts == alone
    assert "".join(map(str, gen.stream(TEXTS[0], num_beams=3, max_new_tokens=7))) == alone[0]


def test_a_glossary_and_words_decide_what_a_translation_holds(marian):
    gen = rsgen.Generator(marian)
    fields = {"num_beams": 4, "max_new_tokens": 8}
    plain = gen.translate(TEXTS, **fields)
    glossary = {"house": "Haus", "green": ["grün", "grüne"], "hous": "Der", "gar": "Der"}
    out = gen.translate(TEXTS, glossary=glossary, **fields)
    assert "Haus" in out.texts[0]
    assert "grün" in out.texts[1]
    # A text without its terms is searched as without a glossary, and each by itself.
    assert out.texts[2] == plain.texts[2] != out.texts[0]
    assert out.texts == [gen.translate(text, glossary=glossary, **fields).text for text in TEXTS]
    assert out.texts == gen.constrained_beam_search(TEXTS, glossary=glossary, **fields).texts
    # The same by token ids: the term that comes first, and the longest that begins there.
    ids = [gen.tokenizer.encode_target(word, add_special_tokens=False) for word in ("Der", "Haus")]
    terms = {"small": "Haus", "The": "Das", "The house": "Der"}
    with_terms = gen.translate(TEXTS[0], glossary=terms, **fields)
    by_ids = gen.generate(TEXTS[0], force_words_ids=ids, **fields)
    assert with_terms.sequences.tolist() == by_ids.sequences.tolist() != out.sequences[:1].tolist()
    # Sentences have their own terms.
    joined = gen.translate(" ".join(TEXTS[:2]), glossary=glossary, split="sentences", **fields)
    assert joined.text == f"{out.texts[0]} {out.texts[1]}"
    forced = gen.translate(TEXTS, force_words=["Haus"], **fields)
    assert all("Haus" in text for text in forced.texts)
    config = rsgen.GenerationConfig(glossary=glossary, target_prefix=["a", "b"], **fields)
    assert config.glossary == glossary
    assert rsgen.GenerationConfig.from_dict(config.to_dict()) == config


def test_each_sentence_has_the_terms_that_are_in_it(marian):
    gen = rsgen.Generator(marian)
    fields = {"num_beams": 4, "max_new_tokens": 8}
    glossary = {"house": "Haus", "green": ["grün", "grüne"], "tea. The": "Der"}
    parts = gen.translate([*TEXTS[:2], "Is it?"], glossary=glossary, **fields).texts
    assert "Haus" in parts[0]
    assert "grün" in parts[1]
    # No term of another sentence is forced, and what stands between sentences or has no word stays.
    text = f"{{0}}\n\n {TEXTS[0]}  {TEXTS[1]}\r\n\r\n{{name}} –\n\tIs it?\n---\n"
    split = {"split": "sentences", "glossary": glossary}
    out = gen.translate([text, "", TEXTS[1], "{0}\n"], **split, **fields)
    whole = f"{{0}}\n\n {parts[0]}  {parts[1]}\r\n\r\n{{name}} –\n\t{parts[2]}\n---\n"
    assert out.texts == [whole, "", parts[1], "{0}\n"]
    assert parts[2] == gen.translate("Is it?", **fields).text
    # A placeholder within a sentence is a term.
    terms = {"glossary": {"{0. A}": "Der"}, "num_beams": 4, "max_new_tokens": 14}
    held = gen.translate("The {0. A} house", split="sentences", **terms)
    assert "Der" in held.text
    assert held.text == gen.translate("The {0. A} house", **terms).text
    # A sentence goes on within a term: the same as without cuts.
    over = "I like tea. The garden."
    assert (
        gen.translate(over, **split, **fields).text == gen.translate(over, glossary=glossary, **fields).text
    )
    cut = gen.translate(over, split="sentences", **fields).text
    assert cut == " ".join(gen.translate(["I like tea.", "The garden."], **fields).texts)
    # So it is with each of the best rows.
    best = {"num_return_sequences": 2, **fields}
    rows = gen.translate(" ".join(TEXTS[:2]), **split, **best).texts
    ranks = gen.translate(TEXTS[:2], glossary=glossary, **best).texts
    assert rows == [f"{ranks[0]} {ranks[2]}", f"{ranks[1]} {ranks[3]}"]


def test_banned_texts_are_banned_beside_the_tokens_of_the_models_file(marian, tmp_path):
    first = int(rsgen.Generator(marian).translate(TEXTS[0], max_new_tokens=3).token_ids[0][0])
    pad = CASES["marian"]["bos_eos_pad_unk"][2]
    special = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad}
    gen = rsgen.Generator(folder_of(tmp_path, "marian", "marian", **special, bad_words_ids=[[first]]))
    words = ((token, gen.tokenizer.decode([token])) for token in range(2, 500))
    token, word = next(
        (token, word)
        for token, word in words
        if gen.tokenizer.encode_target(word, add_special_tokens=False) == [token]
    )
    fields = {"max_new_tokens": 5, "logit_bias": {token: 100, first: 100}}
    assert set(gen.translate(TEXTS[0], **fields).token_ids[0].tolist()) == {token}
    out = gen.translate(TEXTS[0], bad_words=[word], **fields)
    assert not {first, token} & set(out.token_ids[0].tolist())


def test_a_translation_begins_as_it_is_told(nllb, marian):
    languages = {"source": "eng_Latn", "target": "deu_Latn"}
    gen = rsgen.Generator(marian)
    for model, fields in ((nllb, languages), (gen, {})):
        out = model.translate(TEXTS, target_prefix="Das Haus", num_beams=3, max_new_tokens=5, **fields)
        assert all(text.startswith("Das Haus") for text in out.texts)
        assert all(len(ids) <= 5 for ids in out.token_ids)
        given = model.tokenizer.encode_target("Das Haus", add_special_tokens=False)
        length = len(given) + len(out.token_ids[0])
        assert out.sequences[0].tolist()[-length : -len(out.token_ids[0])] == given
    # The token of the language comes first, where it is forced.
    first = nllb.translate(TEXTS[0], target_prefix="Das", max_new_tokens=5, **languages).sequences[0].tolist()
    assert first[:2] == nllb.translate(TEXTS[0], max_new_tokens=5, **languages).sequences[0].tolist()[:2]
    several = gen.translate(TEXTS, target_prefix=["Das", "Der", "Ein"], max_new_tokens=5)
    for text, prefix, whole in zip(TEXTS, ["Das", "Der", "Ein"], several.texts, strict=True):
        assert gen.translate(text, target_prefix=prefix, max_new_tokens=5).text == whole
        assert "".join(map(str, gen.stream(text, target_prefix=prefix, max_new_tokens=5))) == whole


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"glossary": {"house": "Haus"}}, "`glossary` needs beams, but `num_beams` is 1"),
        ({"force_words": "Haus"}, "`force_words` needs beams"),
        ({"force_words": "Haus", "num_beams": 2, "do_sample": True}, "`force_words`: .* does not draw"),
        ({"glossary": {"house": " "}, "num_beams": 2}, "`glossary` must be texts with tokens"),
        ({"glossary": {" ": "Haus"}, "num_beams": 2}, "`glossary` must map terms"),
        ({"glossary": {"house": []}, "num_beams": 2}, "`glossary` must map terms"),
        ({"glossary": [["house", "Haus"]]}, "`glossary` must be a map from terms to their translations"),
        ({"bad_words": [""]}, "`bad_words` must be texts with tokens"),
        ({"target_prefix": ["a", "b"]}, r"`target_prefix` must be a text, or one for each prompt \(3\)"),
        ({"target_prefix": "a", "decoder_input_ids": [[5]]}, "say the same in two ways"),
        ({"target_prefix": "a", "split": "sentences"}, "`target_prefix` begins a whole text"),
    ],
)
def test_texts_of_the_output_that_cannot_be_are_refused_by_name(marian, fields, reason):
    with pytest.raises(rsgen.RsgenError, match=reason):
        rsgen.Generator(marian).translate(TEXTS, max_new_tokens=3, **fields)


def test_a_glossary_needs_texts_and_a_prefix_an_encoder(nllb, marian, gen):
    with pytest.raises(rsgen.RsgenError, match=r"`glossary` must be words that the tokenizer can write"):
        nllb.translate(TEXTS, target="deu_Latn", glossary={"house": "\u9fa5"}, num_beams=2, max_new_tokens=3)
    with pytest.raises(rsgen.RsgenError, match="`glossary` is for prompts that are texts"):
        rsgen.Generator(marian).translate([[5, 6]], glossary={"a": "Haus"}, num_beams=2, max_new_tokens=3)
    with pytest.raises(rsgen.RsgenError, match="`target_prefix` goes with models that have an encoder"):
        gen.generate("Once", target_prefix="Das", max_new_tokens=3)
    out = gen.generate("Once upon a time", force_words=["lake", "old well"], num_beams=4, max_new_tokens=20)
    assert " lake" in out.text
    assert " old well" in out.text
    first = gen.generate("Once upon a time", max_new_tokens=10).text.split()[-1]
    assert first not in gen.generate("Once upon a time", bad_words=first, max_new_tokens=10).text.split()


def shell(*arguments: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rsgen", "translate", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)


def test_the_command_keeps_lines_and_goes_on_where_it_stopped(marian, tmp_path):
    lines = [TEXTS[0], "", TEXTS[1], "  ", TEXTS[2], "tea " * 200]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out.txt"
    options = ("--model", marian, "--num-beams", 3, "--max-new-tokens", 7, tmp_path / "text.txt")
    ran = shell(*options, "-o", out)
    # The last line is longer than the encoder reads.
    assert ran.returncode == 1
    assert "line 6: " in ran.stderr
    assert "reads at most" in ran.stderr
    gen = rsgen.Generator(marian)
    alone = [gen.translate(text, num_beams=3, max_new_tokens=7).text for text in TEXTS]
    expected = [alone[0], "", alone[1], "  ", alone[2], ""]
    whole = out.read_text()
    assert whole == "\n".join(expected) + "\n"
    out.write_text("\n".join(expected[:3]) + "\n")
    shell(*options, "-o", out, "--resume")
    assert out.read_text() == whole
    # Its sentences are not longer.
    long = "The house is small.  I like tea. " * 20
    ran = shell(*options[:-1], "--split-sentences", text=f"{long}\n\n{TEXTS[1]}\n")
    assert ran.returncode == 0
    parts = [
        gen.translate(text, num_beams=3, max_new_tokens=7).text
        for text in ("The house is small.", "I like tea.")
    ]
    assert ran.stdout.split("\n") == [f"{parts[0]}  {parts[1]} " * 20, "", alone[1], ""]
    (tmp_path / "terms.tsv").write_text("house\tHaus\ngreen\tgrün\tgrüne\n")
    ran = shell(*options[:-1], "--glossary", tmp_path / "terms.tsv", text="\n".join(TEXTS))
    fields = {"num_beams": 3, "max_new_tokens": 7}
    expected = gen.translate(TEXTS, glossary={"house": "Haus", "green": ["grün", "grüne"]}, **fields).texts
    assert ran.stdout == "\n".join(expected) + "\n"
    assert "Haus" in expected[0]
    # The same line by line, each cut into sentences with their own terms.
    lines = [f"{TEXTS[0]}  {TEXTS[1]}", "", "{0} –", f"\t{TEXTS[2]}", "  "]
    ran = shell(
        *(*options[:-1], "--glossary", tmp_path / "terms.tsv", "--split-sentences"),
        text="\n".join(lines) + "\n",
    )
    assert ran.returncode == 0
    split = [f"{expected[0]}  {expected[1]}", "", "{0} –", f"\t{expected[2]}", "  "]
    assert ran.stdout == "\n".join(split) + "\n"
    # What cannot be is said before a file is replaced.
    wrong = (*options, "-o", out, "--glossary", '{"house": []}'), (*options, "-o", out, "--to", "deu")
    said = (2, "`--glossary` must map terms"), (1, "no languages")
    for arguments, (code, why) in zip(wrong, said, strict=True):
        ran = shell(*arguments)
        assert (ran.returncode, out.read_text()) == (code, whole)
        assert why in ran.stderr
    ran = shell(*options[:-1], "--target-prefix", "Das", "--bad-words", "Haus", text=TEXTS[0])
    assert ran.stdout == gen.translate(TEXTS[0], target_prefix="Das", bad_words="Haus", **fields).text + "\n"
    ran = shell(*options[:-1], "--json", text=TEXTS[0] + "\n")
    assert json.loads(ran.stdout) == {"schema_version": 1, "text": TEXTS[0], "translation": alone[0]}


def test_a_line_that_is_no_utf_8_is_named_and_the_others_go_on(marian, tmp_path):
    (tmp_path / "text.txt").write_bytes(b"\n".join([TEXTS[0].encode(), b"bad\xff", TEXTS[1].encode(), b""]))
    options = ("--model", marian, "--num-beams", 3, "--max-new-tokens", 7, tmp_path / "text.txt")
    ran = shell(*options)
    gen = rsgen.Generator(marian)
    first, second = (gen.translate(text, num_beams=3, max_new_tokens=7).text for text in TEXTS[:2])
    assert ran.stdout == f"{first}\n\n{second}\n"
    assert ran.returncode == 1
    assert "line 2: the text must be UTF-8, but byte 3 is not" in ran.stderr
    assert "1 of 3 lines failed" in ran.stderr


def test_the_programs_about_summaries_run(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[1] / "docs" / "summaries.md").read_text()
    special = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    folder_of(
        tmp_path / "path" / "to" / "bart-large-cnn", "bart", "bart", **special, max_length=12, num_beams=2
    )
    monkeypatch.chdir(tmp_path)
    article = " ".join(TEXTS) + "\n\n" + " ".join(TEXTS)
    names = {"article": article, "articles": [article, *TEXTS]}
    exec("\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)), names)
    printed = capsys.readouterr().out
    gen = rsgen.Generator(tmp_path / "path" / "to" / "bart-large-cnn")
    first = gen.generate(article).text
    assert printed.startswith(first)
    assert first
    ids = gen.tokenizer.encode(article)
    assert len(names["beginning"]) == min(60, len(ids))


def test_a_text_is_split_into_sentences_and_put_together_again(marian):
    gen = rsgen.Generator(marian)
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 7}
    text = " \n The house is small.  I like tea.\r\n\r\n\tThe garden is green. "
    out = gen.translate([text, "", TEXTS[2], " \n"], split="sentences", **options)
    parts = gen.translate([TEXTS[0], TEXTS[2], TEXTS[1]], **options)
    first, second = parts.texts[::2], parts.texts[1::2]
    joined = [" \n {}  {}\r\n\r\n\t{} ".format(*rank) for rank in (first, second)]
    assert out.texts == [*joined, "", "", first[1], second[1], " \n", " \n"]
    # Its tokens are those of its sentences, its score is the sum of theirs.
    assert out.token_ids[0].tolist() == [int(i) for row in parts.token_ids[::2] for i in row]
    assert out.sequences_scores[0] == pytest.approx(parts.sequences_scores[::2].sum(), rel=1e-6)
    assert out.token_ids[2].tolist() == []
    assert len(out.logprobs[0]) == len(out.token_ids[0])
    assert out.usage.generated_tokens == sum(len(row) for row in out.token_ids)
    assert gen.translate(text, split="sentences", max_new_tokens=7).text == " \n {}  {}\r\n\r\n\t{} ".format(
        *(gen.translate(part, max_new_tokens=7).text for part in (TEXTS[0], TEXTS[2], TEXTS[1]))
    )
    done = []
    gen.translate(
        [text, "", TEXTS[2]], split="sentences", max_new_tokens=3, progress=lambda *now: done.append(now)
    )
    assert len(done) >= 3
    assert gen.translate("\n", split="sentences").text == "\n"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"split": "words"}, 'must be "sentences" or None'),
        ({"split": "sentences", "output_scores": True}, "`output_scores` has no place"),
        ({"split": "sentences", "top_logprobs": 2}, "`top_logprobs` has no place"),
        ({"split": "sentences", "output_events": True}, "`output_events` has no place"),
        ({"split": "sentences", "do_sample": True, "seed": [1, 2, 3]}, "`seed` must be one number"),
        ({"split": "sentences", "decoder_input_ids": [[5]]}, "`decoder_input_ids` begins a whole text"),
    ],
)
def test_what_belongs_to_whole_texts_is_refused_for_sentences(marian, fields, reason):
    with pytest.raises(rsgen.RsgenError, match=reason):
        rsgen.Generator(marian).translate(TEXTS, max_new_tokens=3, **fields)


def test_only_texts_are_split_and_a_long_sentence_is_named(marian):
    gen = rsgen.Generator(marian)
    with pytest.raises(rsgen.InputError, match="only texts can be split"):
        gen.translate([[5, 6]], split="sentences", max_new_tokens=3)
    with pytest.raises(rsgen.InputError, match="an empty list"):
        gen.translate([], split="sentences", max_new_tokens=3)
    with pytest.raises(rsgen.InputError, match=r"prompt 1: .*reads at most"):
        gen.translate(["I like tea. I like it.", "I like tea. " + "tea " * 200, "Tea."], split="sentences")
