"""`Generator.map`: rows in, rows with what was generated out."""

import itertools
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from typing import Literal

import pytest
import rsgen
from rsgen import _progress

ROWS = [{"id": i, "question": f"Once upon a time {i}"} for i in range(70)]
PROMPTS = [f"{row['question']} there" for row in ROWS]
TEMPLATE = "{question} there"


@pytest.fixture(scope="module")
def texts(gen):
    return gen.generate(PROMPTS, max_new_tokens=6).texts


@pytest.fixture(scope="module")
def answers(texts):
    return [{**row, "text": text} for row, text in zip(ROWS, texts, strict=True)]


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows), encoding="utf-8")
    return path


class Reader:
    """As a reader of Arrow's batches."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)

    def read_next_batch(self):
        raise NotImplementedError


COLUMNS = {"id": [row["id"] for row in ROWS], "question": [row["question"] for row in ROWS]}


def arrow_table():
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed").table(COLUMNS)


def arrow_reader(_):
    table, batch_reader = arrow_table(), sys.modules["pyarrow"].RecordBatchReader
    return batch_reader.from_batches(table.schema, table.to_batches(max_chunksize=7))


SOURCES = {
    "list": lambda _: ROWS,
    "tuple": lambda _: tuple(ROWS),
    "iterator": lambda _: iter(ROWS),
    "generator": lambda _: (row for row in ROWS),
    "columns": lambda _: COLUMNS,
    "path": lambda folder: lines(folder / "rows.jsonl", ROWS),
    "name of a path": lambda folder: str(lines(folder / "rows.ndjson", ROWS)),
    "pandas": lambda _: pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(ROWS),
    "polars": lambda _: pytest.importorskip("polars", reason="polars is not installed").DataFrame(ROWS),
    "Arrow's table": lambda _: arrow_table(),
    "Arrow's batch": lambda _: arrow_table().to_batches()[0],
    "Arrow's reader": arrow_reader,
    "a reader in Python": lambda _: Reader(arrow_table().to_batches(max_chunksize=9)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_rows_come_from_everywhere(gen, answers, tmp_path, source):
    assert list(gen.map(SOURCES[source](tmp_path), TEMPLATE, max_new_tokens=6)) == answers


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_missing_values_of_tables_are_none(gen, library):
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    table = module.DataFrame({"id": [1, 2], "question": ["Once", None]})
    done = list(gen.map(table, TEMPLATE, max_new_tokens=2, on_error="return"))
    assert [row["error"] is None for row in done] == [True, False]


@pytest.mark.parametrize("concurrency", [1, 7, 200])
def test_rows_are_those_of_a_list_in_order_or_as_they_come(gen, texts, concurrency):
    options = {"do_sample": True, "top_k": 0, "max_new_tokens": 25, "concurrency": concurrency}
    together = gen.generate(
        PROMPTS,
        seed=list(range(7, 77)),
        **{name: options[name] for name in ("do_sample", "top_k", "max_new_tokens")},
    )
    rows = list(gen.map(ROWS, TEMPLATE, seed=7, **options))
    assert [row["text"] for row in rows] == together.texts
    as_they_come = list(gen.map(ROWS, TEMPLATE, seed=7, in_order=False, **options))
    assert sorted(as_they_come, key=lambda row: row["id"]) == rows


def test_rows_are_read_as_they_are_needed_and_results_dropped(gen):
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield {"prompt": "One day"}

    results = gen.map(endless(), max_new_tokens=2, concurrency=4)
    for count in range(1, 40):
        assert next(results)["text"]
        assert read <= count + 16
    tracemalloc.start()
    try:
        for _ in range(100):
            next(results)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            next(results)
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()
    del results
    assert gen.stats().blocks_used == 0


def test_a_row_may_be_a_text_ids_or_messages(gen):
    text = gen.generate("One day", max_new_tokens=4).text
    ids = gen.tokenizer.encode("One day")
    assert list(gen.map(["One day"], max_new_tokens=4)) == [{"prompt": "One day", "text": text}]
    assert list(gen.map([{"prompt": ids}], max_new_tokens=4)) == [{"prompt": ids, "text": text}]
    made = gen.map([7], lambda row: "One day", max_new_tokens=4, output="answer")
    assert list(made) == [{"prompt": 7, "answer": text}]
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    messages = [{"role": "user", "content": "One day"}]
    chat = gen.chat(messages, chat_template=template, max_new_tokens=4).text
    talked = gen.map([{"a": 1}], lambda row: messages, chat_template=template, max_new_tokens=4)
    assert list(talked) == [{"a": 1, "text": chat}]
    assert list(gen.map([], max_new_tokens=4)) == []


def test_beams_and_returned_sequences(gen):
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5}
    out = gen.generate(PROMPTS[:5], **options)
    rows = list(gen.map(PROMPTS[:5], **options))
    assert [text for row in rows for text in row["text"]] == out.texts


@dataclass
class Review:
    mood: Literal["glad", "sad"]
    stars: Literal[1, 2, 3]


def test_seeds_of_a_column_and_details(gen, tmp_path):
    options = {"do_sample": True, "top_k": 0, "max_new_tokens": 9}
    seeds = [5, 3, 8]
    out = gen.generate(PROMPTS[:3], seed=seeds, **options)
    rows = [{"prompt": prompt, "seed": seed} for prompt, seed in zip(PROMPTS, seeds, strict=False)]
    for _ in range(2):  # the second time from the file
        made = list(gen.map(rows, seed="seed", details=True, resume=tmp_path / "rows.jsonl", **options))
        assert [row["text"] for row in made] == out.texts
        assert [row["finish_reason"] for row in made] == out.finish_reasons
        assert [row["token_count"] for row in made] == list(map(len, out.token_ids))
    with pytest.raises(rsgen.InputError, match="row 0: there is no column 'seed' but prompt"):
        next(gen.map([{"prompt": "a"}], seed="seed", **options))


def test_answers_with_types(gen, tmp_path):
    options = {"output_type": Review, "max_new_tokens": 60, "output": "review"}
    expected = gen.generate(PROMPTS[:9], output_type=Review, max_new_tokens=60).parsed_all
    for _ in range(2):  # the second time from the file
        rows = list(gen.map(PROMPTS[:9], resume=tmp_path / "rows.jsonl", **options))
        assert [row["review"] for row in rows] == expected
    path = tmp_path / "cut.jsonl"
    cut = list(gen.map(PROMPTS[:3], on_error="return", resume=path, **{**options, "max_new_tokens": 4}))
    assert path.read_bytes() == b"", "a row that failed is computed again"
    assert [row["review"] for row in cut] == [None] * 3
    assert all(f"row {i}: the text is cut off" in row["error"] for i, row in enumerate(cut))
    with pytest.raises(rsgen.ParseError, match=r"^row 0: the text is cut off"):
        next(gen.map(PROMPTS[:3], **{**options, "max_new_tokens": 4}))


BAD = [
    {"prompt": "One"},
    {"prompt": "a " * 5000},
    {"prompt": 5},
    {"other": 1},
    {"prompt": [10**6]},
    {"prompt": "Two"},
]
BAD += [{"prompt": [1, "a"]}, {"prompt": "\ud800"}]


def test_what_is_wrong_with_a_row_can_be_returned(gen):
    rows = list(gen.map(BAD, max_new_tokens=3, on_error="return"))
    good = [0, 5]
    assert [row["text"] is not None for row in rows] == [i in good for i in range(len(BAD))]
    for number, row in enumerate(rows):
        if number in good:
            assert row["error"] is None
        else:
            assert row["error"].startswith(f"row {number}: ")
    assert "there is no column 'prompt' but other" in rows[3]["error"]
    assert rows[2]["error"] == "row 2: the prompt must be a text or token ids, got 5"


def test_an_error_names_its_row_and_has_what_is_finished(gen):
    results = gen.map(BAD[:2] + [{"prompt": "Two"}] * 3, max_new_tokens=2)
    assert next(results)["prompt"] == "One"
    with pytest.raises(rsgen.InputError, match=r"^row 1: ") as raised:
        next(results)
    assert raised.value.prompt_index == 1
    assert [row["prompt"] for row in raised.value.finished] == ["Two"] * 3
    # The others follow if they are asked for.
    assert [row["prompt"] for row in results] == ["Two"] * 3


def test_an_exception_of_a_callback_comes_out(gen):
    def fail(ids, scores):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(gen.map(["One"], max_new_tokens=2, logits_processor=fail, on_error="return"))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_what_a_function_of_the_caller_raises_names_the_row(gen):
    rows = [{"a": "One"}, {"a": "Two"}, {"b": "Three"}]
    for functions in ({"template": lambda row: row["a"]}, {"adapter": lambda row: row["a"] and None}):
        with pytest.raises(KeyError, match="a") as raised:
            list(gen.map(rows, **{"template": lambda _: "One", **functions}, max_new_tokens=1))
        assert raised.value.__notes__ == ["row 2"]


def test_results_say_how_far_they_are(gen):
    results = gen.map(PROMPTS[:9], max_new_tokens=2, concurrency=4)
    assert repr(results) == "<rsgen.RowResults: 0 of 9 rows given; iterate to compute>"
    next(results)
    assert repr(results) == "<rsgen.RowResults: 1 of 9 rows given, 3 finished; iterate to compute>"
    assert repr(gen.map(iter(PROMPTS))) == "<rsgen.RowResults: 0 rows given; iterate to compute>"


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        (5, {}, "`rows` must be an iterable of rows, a table or the path of a file of JSON lines, got 5"),
        ("One day", {}, "`rows` as a text must be the path of a file that ends with .jsonl"),
        ({"prompt": "One"}, {}, "`rows` as a dict must have a list for each column, but 'prompt' is 'One'"),
        ({"a": [1], "b": [1, 2]}, {}, "the columns of `rows` must have one length, got"),
        (["a"], {"on_error": "ignore"}, "`on_error` must be 'raise' or 'return', but is 'ignore'"),
        (["a"], {"concurrency": 0}, "`concurrency` must be an integer of 1 or more, but is 0"),
        (["a"], {"output": 3}, "`output` must be the name of a column of its own, but is 3"),
        (["a"], {"seed": [1, 2]}, "`seed` must be an integer or the name of a column, but is"),
        (["a"], {"template": "{"}, "`template` must be a text with columns in braces, such as {question}: "),
        (["a"], {"template": "{}"}, "`template` must name each column, as in {question}, got '{}'"),
        (["a"], {"template": 5}, "`template` must be a text, a function or None, got 5"),
        (["a"], {"return_cache": True}, "`return_cache` is of a single call; leave it out"),
        (["a"], {"template": "{x}"}, "row 0: a row must be a dict for a template, got 'a'"),
        ([{"a": 1}], {"template": "{x}"}, "row 0: there is no column 'x' but a"),
        ([{"prompt": "a", "text": 1}], {}, "the rows have 'text' already; give another name as `output`"),
        (["a"], {"banana": 1}, "map() got an unexpected keyword argument: `banana`"),
        (["a"], {"top_p": 5}, "`top_p`"),
    ],
)
def test_what_is_wrong_with_a_call_is_raised(gen, rows, arguments, message):
    with pytest.raises((rsgen.RsgenError, TypeError)) as raised:
        list(gen.map(rows, **arguments))
    assert message in str(raised.value)
    if not message.startswith("row "):
        with pytest.raises((rsgen.RsgenError, TypeError)):
            list(gen.map(rows, **{"on_error": "return", **arguments}))


def test_a_file_of_lines_names_the_wrong_one(gen, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "One"}\n\n{\n')
    results = gen.map(path, max_new_tokens=2)
    with pytest.raises(rsgen.InputError, match=r"rows.jsonl, line 3: it must be JSON"):
        list(results)
    with pytest.raises(rsgen.InputError, match="`rows` ended with an error"):
        list(results)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'\xef\xbb\xbf{"prompt": "One"}\r\n{"prompt": "Two"}\r\n', ["One", "Two"]),
        ('{"prompt": "Zwölf"}\n"One"'.encode(), ["Zwölf", "One"]),
        (b"", []),
        (b"\n \n", []),
        ('{"prompt": "Zwölf"}\n'.encode("latin-1"), "line 1: it must be JSON, a row on each line: "),
        (b'[\n  {"prompt": "One"}\n]\n', "line 1: it must be JSON, a row on each line: "),
        (
            b'[{"prompt": "One"}, {"prompt": "Two"}]',
            "line 1: it must be one row, found a list of 2; write a row",
        ),
        (b'[{"role": "user", "content": "One"}]\n', [[{"role": "user", "content": "One"}]]),
        ('{"prompt": "One"}\n{"prompt": "Two"}\n'.encode("utf-16"), "it must be JSON, a row on each line: "),
    ],
    ids=["mark and CRLF", "texts", "empty", "blank", "Latin-1", "a document", "a list", "messages", "UTF-16"],
)
def test_files_of_lines_as_others_write_them(gen, tmp_path, content, expected):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    results = gen.map(path, max_new_tokens=1)
    if isinstance(expected, list):
        assert [row["prompt"] for row in results] == expected
    else:
        with pytest.raises(rsgen.InputError, match=expected):
            list(results)


class NoValue:
    """As the NA of pandas."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize("value", [None, float("nan"), NoValue()], ids=["None", "NaN", "NA"])
def test_a_cell_without_a_value_is_no_text(gen, value):
    rows = [{"name": "Tom"}, {"name": value}, {"name": 7}]
    done = list(gen.map(rows, "One day, {name}", max_new_tokens=1, on_error="return"))
    assert [row["error"] and row["error"].partition(";")[0] for row in done] == [
        None,
        "row 1: the column 'name' has no value",
        None,
    ]


def test_progress_counts_rows(gen, capsys):
    seen = []
    list(gen.map(iter(PROMPTS[:5]), max_new_tokens=2, progress=lambda *counts: seen.append(counts)))
    assert seen == [(i, None) for i in range(1, 6)]
    list(gen.map(PROMPTS[:5], max_new_tokens=2, progress=True))
    shown = capsys.readouterr().err
    assert shown.endswith("\n")
    assert "] 5/5 rows, " in shown
    assert " a second, 0:00 left" in shown
    list(gen.map(iter(PROMPTS[:5]), max_new_tokens=2, progress=True))
    assert capsys.readouterr().err.endswith(" a second \n")


def test_a_bar_that_is_interrupted_ends_its_line_and_its_clock(gen, capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now)

    def stop(ids, scores):
        nonlocal now
        now += 1
        if now == 4:
            raise KeyboardInterrupt
        return False

    options = {"max_new_tokens": 1, "concurrency": 1, "in_order": True}
    results = gen.map(PROMPTS[:5], progress=True, stopping_criteria=stop, **options)
    with pytest.raises(KeyboardInterrupt):
        list(results)
    assert capsys.readouterr().err.endswith("3/5 rows, 1.0 a second, 0:02 left \n")
    # An hour later, in the next cell.
    now += 3600
    assert len(list(results)) == 2
    # The row that was interrupted took two turns.
    assert "5/5 rows, 0.8 a second, 0:00 left \n" in capsys.readouterr().err


def test_a_bar_of_a_list_that_fails_ends_its_line(gen, capsys):
    calls = 0

    def fail(ids, scores):
        nonlocal calls
        calls += 1
        if calls > 2:
            raise KeyError("mine")
        return calls == 1

    with pytest.raises(KeyError, match="mine"):
        gen.generate(PROMPTS[:3], max_new_tokens=3, progress=True, stopping_criteria=fail)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.endswith("1/3\n")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")
@pytest.mark.parametrize("in_order", [True, False])
def test_ctrl_c_keeps_what_is_finished_and_the_rest_can_follow(gen, in_order):
    class Press(Exception):
        pass

    def press(*_):
        raise Press

    options = {"max_new_tokens": 30, "concurrency": 8, "in_order": in_order}
    expected = [row["text"] for row in gen.map(PROMPTS, max_new_tokens=30)]
    before = signal.signal(signal.SIGALRM, press)
    got, presses = [], 0
    results = gen.map([{"id": i, "prompt": prompt} for i, prompt in enumerate(PROMPTS)], **options)
    try:
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.03)
                for row in results:
                    got.append(row)
                break
            except Press as press:
                presses, ended = presses + 1, press
                assert all("text" in row for row in results.finished)
                assert ended.finished == results.finished
                # A pass or two without a press, so that there is an end.
                signal.setitimer(signal.ITIMER_REAL, 0)
                got.extend(itertools.islice(results, 3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert presses
    assert sorted(row["id"] for row in got) == list(range(70))
    assert [row["text"] for row in sorted(got, key=lambda row: row["id"])] == expected


def test_no_library_of_tables_is_imported():
    program = """
import sys, rsgen
for name in ("pandas", "polars", "pyarrow", "datasets", "pydantic"):
    sys.modules[name] = None
rows = list(rsgen.Generator().map([{"prompt": "One day"}], max_new_tokens=3))
assert rows[0]["text"] and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ)
