"""An output as rows and as a mapping: what `for row in out`, `out["sequences"]` and a table get."""

import copy
import pickle
import sys
from collections.abc import Iterable

import numpy as np
import pytest
import rsgen

PROMPTS = ["Once upon a time", "One day", "Tom had"]


@pytest.fixture(scope="module")
def out(gen) -> rsgen.GenerationOutput:
    return gen.beam_search(PROMPTS, num_beams=3, num_return_sequences=2, max_new_tokens=9)


def test_a_row_has_what_the_output_has_of_it(out):
    rows = list(out)
    assert len(rows) == len(out) == 6
    assert isinstance(out, Iterable)
    for index, row in enumerate(rows):
        assert type(row) is rsgen.GeneratedRow
        assert row.prompt_index == out.prompt_indices[index]
        assert row.text == out.texts[index]
        assert row.token_ids.tolist() == out.token_ids[index].tolist()
        assert row.logprobs.tolist() == out.logprobs[index].tolist()
        assert row.score == out.sequences_scores[index]
        assert row.finish_reason == out.finish_reasons[index]
        np.testing.assert_array_equal(row, out.sequences[index])
        np.testing.assert_array_equal(row, out[index])
        assert out[index].text == out[index - 6].text == out[np.int64(index)].text == row.text
    for beyond in (6, -7):
        with pytest.raises(IndexError):
            out[beyond]
    assert [row.text for row in rows] == [row.text for row in out], "it can be iterated again"


def test_without_beams_a_row_has_no_score(gen):
    (row,) = gen.generate("One day", max_new_tokens=2)
    assert row.score is row.entry is row.entry_logprob is None
    assert row.finish_reason == "length"


def test_of_a_model_without_a_tokenizer_a_row_has_ids(make_llama):
    out = rsgen.Generator(make_llama(), num_threads=1).generate([[1, 2], [3]], max_new_tokens=2)
    assert [(row.text, row.token_ids.tolist()) for row in out] == [
        ("", ids.tolist()) for ids in out.token_ids
    ]


def test_a_row_is_the_array_that_transformers_returns(gen, out):
    row = out[0]
    assert isinstance(row, np.ndarray)
    assert row.dtype == np.int64
    assert type(row[1:]) is np.ndarray
    assert type(row[0]) is np.int64
    assert type(row + 1) is np.ndarray
    assert type(row == row) is np.ndarray
    assert isinstance(row.max(), np.int64)
    assert gen.tokenizer.decode(row) == gen.tokenizer.decode(out.sequences[0].tolist())
    assert gen.tokenizer.batch_decode(out) == [gen.tokenizer.decode(row) for row in out]
    assert type(out[:2]) is np.ndarray
    assert out[:2].shape[0] == 2
    assert out[0, -1] == out.sequences[0, -1]
    assert np.asarray(out).shape == out.sequences.shape
    with pytest.raises(TypeError, match="cannot create"):
        rsgen.GeneratedRow(3)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda row: pickle.loads(pickle.dumps(row))])
def test_copies_of_a_row_have_all_of_it(out, way):
    row, again = out[1], way(out[1])
    assert type(again) is rsgen.GeneratedRow
    assert (again.text, again.score, again.prompt_index) == (row.text, row.score, row.prompt_index)
    np.testing.assert_array_equal(again, row)
    with pytest.raises(AttributeError, match="only a row of an output has text"):
        np.zeros(3, np.int64).view(rsgen.GeneratedRow).text  # noqa: B018


def test_it_is_a_mapping_by_names(out, gen):
    assert "sequences" in out
    assert "text" in out
    assert "scores" not in out, "it was not asked for, as in transformers"
    assert "banana" not in out
    assert out.keys()[0] == "sequences"
    assert [name for name, _ in out.items()] == out.keys()
    assert len(out.values()) == len(out.keys())
    mapping = dict(out)
    assert list(mapping) == out.keys()
    np.testing.assert_array_equal(mapping["sequences"], out["sequences"])
    assert (lambda **values: sorted(values))(**out) == sorted(out.keys())
    assert out.get("scores") is None
    assert out.get("scores", 5) == 5
    assert out.get("banana", 5) == 5
    assert out.get("texts") == out.texts
    with pytest.raises(KeyError, match="banana"):
        out["banana"]
    scored = gen.generate("One day", max_new_tokens=2, output_scores=True)
    assert "scores" in scored
    assert "scores" in set(scored.keys())
    assert 5 not in gen.generate([6, 7], max_new_tokens=1, suppress_tokens=[5])


def test_it_becomes_a_table(out, gen):
    table = out.to_pandas()
    assert list(table.columns) == ["prompt_index", "text", "token_ids", "score", "finish_reason"]
    assert table["text"].tolist() == out.texts
    best = table.loc[table.groupby("prompt_index")["score"].idxmax()]
    assert best["text"].tolist() == out.texts[::2]
    assert "score" not in gen.generate("One day", max_new_tokens=2).to_pandas()


def test_without_pandas_the_error_says_what_to_install(out, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"`to_pandas` needs pandas: pip install pandas"):
        out.to_pandas()


def test_it_becomes_a_page(out, gen, tmp_path):
    path = tmp_path / "beams.html"
    shown = gen.beam_search("One day <b>", num_beams=3, max_new_tokens=5, output_events=True)
    shown.to_html(path)
    page = path.read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "charset" in page
    assert shown._repr_html_() in page
    with pytest.raises(FileNotFoundError):
        shown.to_html(tmp_path / "nowhere" / "at.html")
