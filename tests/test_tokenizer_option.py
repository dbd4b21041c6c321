"""`tokenizer=`: a model that takes its tokenizer and chat templates from another folder."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import rsgen

STORY = Path(rsgen.__file__).parent / "models" / "story-3m"


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The story model without its tokenizer."""
    folder = tmp_path_factory.mktemp("bare") / "model"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(STORY / name, folder)
    return folder


def test_a_model_without_a_tokenizer_takes_another_ones(bare, gen):
    other = rsgen.Generator(bare, tokenizer=STORY)
    expected = gen.generate("Once upon a time", max_new_tokens=12)
    assert other.generate("Once upon a time", max_new_tokens=12).text == expected.text
    assert pickle.loads(pickle.dumps(other)).generate("Once", max_new_tokens=3).text
    with pytest.raises(rsgen.RsgenError, match="tokenizer"):
        rsgen.Generator(bare).generate("Once upon a time")


def test_chat_templates_come_with_the_tokenizer(bare, tmp_path):
    folder = shutil.copytree(STORY, tmp_path / "chat")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "{% for message in messages %}[{{ message.content }}]{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    gen = rsgen.Generator(bare, tokenizer=folder)
    assert gen.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "[hi]"


@pytest.mark.parametrize("tokenizer", ["no-such-folder", "~/tokenizer"])
def test_a_tokenizer_that_is_not_there_is_named(bare, tokenizer):
    with pytest.raises(rsgen.LoadError, match="`tokenizer`"):
        rsgen.Generator(bare, tokenizer=tokenizer)


def test_a_folder_without_a_tokenizer_is_refused(bare):
    with pytest.raises(rsgen.LoadError, match=r"`tokenizer`.*tokenizer\.json"):
        rsgen.Generator(tokenizer=bare)


def test_a_tilde_is_not_expanded():
    with pytest.raises(rsgen.LoadError, match="only a shell expands"):
        rsgen.Generator("~/model")
