//! The number of rows of a request.

use crate::error::{Error, Result};

use super::super::config::GenerationConfig;
use super::super::mode::GenerationMode;

/// The most rows of one request, which bounds the memory of its bookkeeping.
const MAX_ROWS: usize = 65_536;

/// The rows of the output of each prompt.
///
/// # Errors
/// When the search gives fewer, or when there are too many in all.
pub(super) fn num_return_sequences(
    merged: &GenerationConfig,
    mode: GenerationMode,
    prompts: usize,
) -> Result<usize> {
    let rows_each = merged.num_return_sequences.unwrap_or(1);
    if rows_each == 0 {
        return Err(Error::config(
            "`num_return_sequences` must be 1 or more, but is 0; None leaves it unset",
        ));
    }
    let num_beams = merged.num_beams.unwrap_or(1);
    if mode.has_beams() && rows_each > num_beams {
        return Err(Error::config(format!(
            "`num_return_sequences` must be at most `num_beams` ({num_beams}), but is {rows_each}; set \
             num_beams={rows_each}, or return fewer"
        )));
    }
    if num_beams.checked_mul(prompts).is_none_or(|rows| rows > MAX_ROWS) {
        return Err(Error::config(format!(
            "`num_beams` times the number of prompts must be at most {MAX_ROWS}, but is {num_beams} times \
             {prompts}; make several requests"
        )));
    }
    if rows_each > 1 && merged.do_sample != Some(true) && !mode.has_beams() {
        return Err(Error::config(format!(
            "`num_return_sequences` must be 1 in {mode}, which gives the same row each time, but is \
             {rows_each}; set do_sample=True"
        )));
    }
    if rows_each.checked_mul(prompts).is_none_or(|rows| rows > MAX_ROWS) {
        return Err(Error::config(format!(
            "`num_return_sequences` times the number of prompts must be at most {MAX_ROWS}, but is \
             {rows_each} times \
             {prompts}; make several requests"
        )));
    }
    Ok(rows_each)
}
