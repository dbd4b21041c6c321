//! The method `map` of `Generator`, which `rsgen._map` writes in Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::errors::guarded;
use super::generator::Generator;

#[guarded]
#[pymethods]
impl Generator {
    /// Generates for each row of a table or a file, while the rows that come are iterated.
    ///
    /// A row that is a text is its own prompt. The results are dicts: the row, and the text under the name `output`.
    /// Rows are read as they are needed, and no more than `concurrency` are computed at a time, so any number of
    /// them takes little memory.
    ///
    /// Args:
    ///     rows (Any): A list or another iterable of dicts or texts, a dict of columns, a DataFrame of pandas or polars,
    ///         a table, batch or reader of Arrow, a data set of Hugging Face, or the path of a file of JSON lines.
    ///     template (str | Callable[[Any], Any] | None): The prompt with the names of columns in braces, as for
    ///         `str.format`, or a function that returns the prompt of a row: a text, ids, or messages for `chat()`.
    ///         None is the column `prompt`.
    ///     output (str): The name under which a result has its text; with `output_type` what is parsed. With several
    ///         returned sequences it is a list.
    ///     in_order (bool): Gives results in the order of the rows; False as soon as they are there.
    ///     on_error (Literal["raise", "return"]): "raise" ends with the error of a row, which names the row; "return"
    ///         gives the row with the message under `error`, which is None for the others.
    ///     concurrency (int): How many rows are computed at a time.
    ///     resume (str | os.PathLike[str] | None): A file that keeps the finished rows. Called again with it, those are
    ///         read and not computed.
    ///     details (bool): Gives `token_count` and `finish_reason` besides, and with `allowed_sequences` the `entry` and
    ///         its `entry_logprob`.
    ///     adapter (Adapter | Callable[[Any], Adapter | None] | None): The adapter of all rows, as `generate()` takes it for
    ///         one prompt, or a function that returns that of a row.
    ///     progress (bool | Callable[[int, int | None], object]): True shows a bar with the rate and the time that is
    ///         left. A function is called with the number of rows done, and of all if that is known.
    ///     **keywords (Any): The other arguments of `generate()`. With `seed=s`, row `i` draws with seed `s + i`; the
    ///         name of a column takes the seeds from there.
    ///
    /// Returns:
    ///     RowResults: An iterator of dicts.
    ///
    /// Example:
    ///     >>> rows = [{"name": "Tom"}, {"name": "Mia"}]
    ///     >>> for row in gen.map(rows, "One day, {name}", max_new_tokens=20, output="story"):
    ///     ...     print(row["name"], row["story"])
    #[pyo3(
        signature = (rows, template=None, **keywords),
        text_signature = "($self, rows, template=None, *, output='text', in_order=True, on_error='raise', concurrency=32, resume=None, details=False, adapter=None, progress=False, **keywords)"
    )]
    fn map<'py>(
        slf: &Bound<'py, Self>,
        rows: &Bound<'py, PyAny>,
        template: Option<&Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("rsgen._map")?.getattr("RowResults")?.call((slf, rows, template), keywords)
    }
}
