"""``rsgen.integrations`` without an engine: what is imported, and what a row gives. `make test-integrations` has the engines."""

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest
import rsgen
from rsgen import integrations
from rsgen.integrations import RowGenerator, dask, ray, row_seed, spark

ROWS = {"id": list(range(12)), "prompt": ["Once upon a time", "A fox", "Near the lake"] * 4}
SAMPLE = {
    "id_column": "id",
    "seed": 5,
    "do_sample": True,
    "max_new_tokens": 8,
    "model_kwargs": {"num_threads": 2},
}


def part(rows):
    return {name: values[rows] for name, values in ROWS.items()}


def test_the_engines_are_imported_when_they_are_used():
    program = """
import sys
import rsgen.integrations.ray, rsgen.integrations.spark, rsgen.integrations.dask
assert not {"ray", "pyspark", "dask", "distributed", "pandas", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_modules_are_found_without_importing_each():
    program = """
import rsgen
assert {"ray", "spark", "dask", "RowGenerator"} <= set(dir(rsgen.integrations))
print(rsgen.integrations.ray.RsgenPredictor, rsgen.integrations.spark.make_map_fn, rsgen.integrations.dask.generate)
try:
    rsgen.integrations.flink
except AttributeError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert "RsgenPredictor" in out
    assert "has no attribute 'flink'; it has RowGenerator, row_seed, dask, lm_eval, ray, spark" in out


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("ray", lambda: ray.deployment(num_cpus=1)),
        ("pyspark", lambda: spark.output_schema(None)),
        ("dask", lambda: dask.generate(None)),
    ],
)
def test_a_missing_engine_is_an_error_with_the_remedy(monkeypatch, module, use):
    for name in ("ray", "ray.serve", "pyspark", "pyspark.sql.types", "dask", "dask.dataframe"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"needs {module}.*pip install 'rsgen\["):
        use()


def test_without_lm_eval_its_module_is_an_error_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "lm_eval.models", None)
    monkeypatch.delitem(sys.modules, "rsgen.integrations.lm_eval", raising=False)
    with pytest.raises(ImportError, match=r"needs lm_eval.models.*pip install 'rsgen\[lm_eval\]'"):
        _ = integrations.lm_eval


def test_public_names_are_documented():
    for module in (integrations, ray, spark, dask):
        for name in module.__all__:
            assert inspect.getdoc(getattr(module, name)), name
    assert {"model", "prompt_column", "id_column", "seed", "on_error"} <= set(
        inspect.signature(RowGenerator).parameters
    )


@pytest.mark.parametrize("kind", [RowGenerator, ray.RsgenPredictor])
def test_a_dict_of_columns_gives_what_a_list_with_those_seeds_gives(gen, kind):
    table = kind(**SAMPLE)(ROWS)
    seeds = [row_seed(5, row) for row in ROWS["id"]]
    out = gen.generate(ROWS["prompt"], do_sample=True, seed=seeds, max_new_tokens=8)
    assert list(table) == ["id", "prompt", "text", "token_count", "finish_reason", "error", "seed"]
    assert table["text"].tolist() == out.texts
    assert table["token_count"].tolist() == [len(ids) for ids in out.token_ids]
    assert table["finish_reason"].tolist() == out.finish_reasons
    assert table["seed"].tolist() == seeds
    assert set(table["error"]) == {None}
    assert len(set(table["text"])) > 6, "rows with the same prompt draw differently"


@pytest.mark.parametrize("size", [1, 5])
def test_a_row_does_not_depend_on_its_table(size):
    rows = RowGenerator(**SAMPLE)
    expected = rows(ROWS)["text"].tolist()
    texts = [text for row in range(0, 12, size) for text in rows(part(slice(row, row + size)))["text"]]
    assert texts == expected
    assert pickle.loads(pickle.dumps(rows))(ROWS)["text"].tolist() == expected
    assert RowGenerator(**{**SAMPLE, "seed": 6})(ROWS)["text"].tolist() != expected


def test_seeds_are_pinned_and_tell_rows_and_types_apart():
    assert row_seed(0, 0) == 5531914691758552265
    assert row_seed(7, "a") == 5425065787900969677
    assert row_seed(7, np.int64(3)) == row_seed(7, 3) != row_seed(7, "3")
    assert len({row_seed(seed, row) for seed in range(10) for row in range(100)}) == 1000
    for bad in (None, 1.5, True, [1]):
        with pytest.raises(rsgen.InputError, match="cast the column"):
            row_seed(0, bad)


def test_without_an_id_equal_prompts_give_equal_texts_also_as_ids(gen):
    options = {name: value for name, value in SAMPLE.items() if name != "id_column"}
    texts = RowGenerator(**options)({"prompt": ["A fox", "The", "A fox"]})["text"]
    assert texts[0] == texts[2]
    ids = gen.tokenizer.encode("A fox")
    table = RowGenerator(**options)({"prompt": [ids, np.array(ids)]})
    assert table["text"][0] == table["text"][1]
    assert table["seed"][0] == table["seed"][1]


def test_an_empty_table_has_the_columns_and_opens_no_model():
    table = RowGenerator("no/such/model", max_new_tokens=1)({"prompt": []})
    assert {name: (len(column), column.dtype.kind) for name, column in table.items() if name != "prompt"} == {
        "text": (0, "O"),
        "token_count": (0, "i"),
        "finish_reason": (0, "O"),
        "error": (0, "O"),
        "seed": (0, "i"),
    }


BAD = {"id": [0, 1, 2, None, 4, 5], "prompt": ["A fox", None, "fox " * 2000, "The", float("nan"), "Near"]}


def test_rows_that_fail_fill_the_column_of_errors_and_leave_the_others_alone():
    table = RowGenerator(**SAMPLE, on_error="column")(BAD)
    good = RowGenerator(**SAMPLE)({"id": [0, 5], "prompt": ["A fox", "Near"]})
    assert [table["text"][0], table["text"][5]] == good["text"].tolist()
    assert table["text"][1:5].tolist() == [None] * 4
    messages = [None, "got None", "shorten the prompt", "the id of a row must be", "got nan", None]
    for message, error in zip(messages, table["error"], strict=True):
        assert error is None if message is None else message in error
    assert table["token_count"].tolist()[1:5] == [0] * 4


@pytest.mark.parametrize(
    ("row", "message"),
    [(1, "row 1: the prompt must be"), (2, r"row 2: the prompt has \d+ tokens"), (3, "row None: the id")],
)
def test_a_row_that_fails_is_named(row, message):
    rows = [0, row, 5]
    with pytest.raises(rsgen.InputError, match=f"^{message}"):
        RowGenerator(**SAMPLE)({name: [values[place] for place in rows] for name, values in BAD.items()})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_nw_tokens": 3}, TypeError, "did you mean `max_new_tokens`"),
        ({"num_beams": -1}, rsgen.ConfigError, "num_beams"),
        ({"num_return_sequences": 2}, rsgen.ConfigError, "repeat the row"),
        ({"seed": [1, 2]}, rsgen.ConfigError, "`seed` must be an integer"),
        ({"on_error": "ignore"}, rsgen.ConfigError, "'raise' or 'column'"),
    ],
)
def test_a_wrong_argument_is_refused_before_the_job_starts(options, error, message):
    with pytest.raises(error, match=message):
        RowGenerator(**options)


def test_a_generator_does_not_travel(gen):
    with pytest.raises(TypeError, match="must be a path or an id"):
        RowGenerator(gen)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"text": ["A"]}, rsgen.InputError, "no column 'prompt'; it has"),
        ({"prompt": ["A"], "seed": [1]}, rsgen.InputError, "'seed' already, which rsgen adds"),
        (["A"], TypeError, "a dict of columns or a pandas DataFrame, got list"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table, error, message):
    with pytest.raises(error, match=message):
        RowGenerator(max_new_tokens=1)(table)


def test_a_process_keeps_the_two_latest_models(make_llama):
    folders = [make_llama(seed=seed) for seed in range(3)]
    rows = [RowGenerator(folder, max_new_tokens=2, prompt_column="ids") for folder in folders]
    first = rows[0].generator()
    assert rows[0].generator() is first
    rows[1].generator()
    rows[2].generator()
    assert rows[0].generator() is not first
