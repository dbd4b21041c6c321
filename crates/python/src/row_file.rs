//! The class `_RowFile`: the file that keeps the finished rows of `Generator.map`.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::errors::{guarded, input_error, to_python};
use super::exit::detached;
use rsgen_core::row_file::{RowFile, RowKind};
use rsgen_core::sync::Mutex;
use rsgen_core::{Error, Result};

const ROWS: RowKind = RowKind { name: "row of `map`", start: br#"{"row":"# };

/// A line: the texts of a row, why they ended, how many tokens they have and their entries of a catalogue, with a digest
/// of its prompt.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    row: u64,
    prompt: String,
    texts: Vec<String>,
    finish_reasons: Vec<Option<String>>,
    token_counts: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entries: Option<Value>,
}

/// The texts of a row, why they ended, how many tokens they have, and the JSON of their entries of a catalogue.
type Answer = (Vec<String>, Vec<Option<String>>, Vec<u64>, Option<String>);

/// The finished rows in a file, which one run has at a time.
///
/// Args:
///     path (str | os.PathLike[str]): The file, which is made if it is not there.
#[pyclass(module = "rsgen._rsgen", name = "_RowFile", frozen, weakref)]
pub(super) struct FinishedRows {
    path: PathBuf,
    /// `None` while another run may have it.
    file: Mutex<Option<RowFile<u64>>>,
}

impl FinishedRows {
    /// Works with the file, which an error gives up.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut RowFile<u64>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let done = detached(py, || {
            let mut held = self.file.lock();
            let number_of = |line: &[u8]| Ok(serde_json::from_slice(line).ok().map(|line: Line| line.row));
            let mut file = held.take().map_or_else(|| RowFile::open(&self.path, ROWS, number_of), Ok)?;
            let done = work(&mut file)?;
            *held = Some(file);
            Ok(done)
        });
        done.map_err(|error| to_python(py, error))
    }
}

#[guarded]
#[pymethods]
impl FinishedRows {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let rows = Self { path, file: Mutex::default() };
        rows.with(py, |_| Ok(()))?;
        Ok(rows)
    }

    /// Returns what was written of a row.
    ///
    /// Args:
    ///     number (int): The number of the row.
    ///     prompt (str): A digest of its prompt.
    ///
    /// Returns:
    ///     tuple[list[str], list[str | None], list[int], str | None] | None: Its texts, why they ended, how many tokens
    ///         they have, and the JSON of their entries of a catalogue. None if it is not finished.
    fn read(&self, py: Python<'_>, number: u64, prompt: &str) -> PyResult<Option<Answer>> {
        let wrong = |why: String| Err(Error::input(format!("{} {why}", self.path.display())));
        self.with(py, |file| {
            let Some(line) = file.read(&number)? else { return Ok(None) };
            match serde_json::from_slice::<Line>(&line) {
                Ok(line) if line.row == number && line.prompt == prompt => {
                    let entries = line.entries.as_ref().map(Value::to_string);
                    Ok(Some((line.texts, line.finish_reasons, line.token_counts, entries)))
                }
                Ok(line) if line.row == number => wrong(format!(
                    "must be of the same rows, but row {number} has another prompt; give another file for `resume`"
                )),
                _ => wrong("was changed while it was open; call map() again".to_owned()),
            }
        })
    }

    /// Adds a row, by one call of the system.
    ///
    /// Args:
    ///     number (int): The number of the row.
    ///     prompt (str): A digest of its prompt.
    ///     answer (tuple[list[str], list[str | None], list[int], str | None]): Its texts, why they ended, how many tokens
    ///         they have, and the JSON of their entries of a catalogue.
    fn write(&self, py: Python<'_>, number: u64, prompt: String, answer: Answer) -> PyResult<()> {
        let (texts, finish_reasons, token_counts, entries) = answer;
        let wrong = |error: serde_json::Error| input_error(py, error.to_string());
        let entries = entries.map(|entries| serde_json::from_str(&entries)).transpose().map_err(wrong)?;
        let line = Line { row: number, prompt, texts, finish_reasons, token_counts, entries };
        let line = serde_json::to_string(&line).map_err(wrong)?;
        self.with(py, |file| file.write(number, &line))
    }

    /// Lets another run have the file, until it is used again.
    fn release(&self) {
        *self.file.lock() = None;
    }
}
