"""The lengths of a tokenizer's call: each value is taken with the ids of transformers, or refused where it fails there."""

import itertools
import shutil
from pathlib import Path

import pytest
import rsgen

transformers = pytest.importorskip("transformers")

from tokenizers.processors import TemplateProcessing  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`max_length` is ignored")

STORY = Path(rsgen.__file__).parent / "models" / "story-3m"
TEXTS = ["One day a cat", "a", ""]
LENGTHS = [-5, -1, 0, 1, 2, 3, 4, 5, 8, 9, None, 2**40, 2**64 - 1, 2**64, 1.5, True, "3"]
MULTIPLES = [None, -8, -1, 0, 1, 3, 8, True, 1.5, "3"]
#: Refused here with a message of its own, and tested elsewhere: rsgen wants to be told the length.
UNTOLD = ("max_length", None)


@pytest.fixture(scope="module", params=[1, 2], ids=["a_token_before", "tokens_around"])
def pair(request, tmp_path_factory):
    """A tokenizer of transformers and rsgen's, with this many special tokens around a text."""
    folder = tmp_path_factory.mktemp("tokenizer")
    shutil.copytree(STORY, folder, dirs_exist_ok=True)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    theirs.pad_token = theirs.eos_token
    if request.param == 2:
        theirs.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{theirs.bos_token} $A {theirs.eos_token}",
            special_tokens=[
                (token, theirs.convert_tokens_to_ids(token)) for token in (theirs.bos_token, theirs.eos_token)
            ],
        )
    theirs.save_pretrained(folder)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    return theirs, rsgen.Tokenizer(folder)


def ids(tokenizer, options):
    try:
        return tokenizer(TEXTS, **options)["input_ids"]
    except (OverflowError, TypeError, ValueError, ZeroDivisionError) as error:
        return error


@pytest.mark.parametrize("padding", [False, True, "max_length", "do_not_pad"])
@pytest.mark.parametrize("truncation", [None, True, False, "longest_first"])
@pytest.mark.parametrize("special", [True, False])
def test_a_length_is_taken_or_refused_as_there(pair, padding, truncation, special):
    theirs, ours = pair
    for length, multiple in itertools.product(LENGTHS, MULTIPLES):
        if (padding, length) == UNTOLD or (padding == "max_length" and length in (2**40, 2**64 - 1)):
            continue
        options = {
            "padding": padding,
            "padding_side": "right",
            "truncation": truncation,
            "add_special_tokens": special,
            "max_length": length,
            "pad_to_multiple_of": multiple,
        }
        expected, found = ids(theirs, options), ids(ours, options)
        if isinstance(expected, Exception):
            assert isinstance(found, (TypeError, ValueError)), (options, expected, found)
            assert "`max_length`" in str(found) or "`pad_to_multiple_of`" in str(found), found
        else:
            assert found == expected, options
