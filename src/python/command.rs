//! The command `rsgen` as pip installs it: the same program as the binary, run inside Python.

use std::ffi::OsString;
use std::time::Instant;

use pyo3::prelude::*;

use super::errors::guarded;
use super::exit::{attached, detached};
use super::options::bundled;
use super::signals::{INTERVAL, check_signals};
use crate::cli;

/// Runs the command `rsgen` and returns its exit code.
///
/// Args:
///     arguments (list[str]): The command's arguments, without the program's name.
///
/// Returns:
///     int: The exit code.
#[pyfunction]
#[pyo3(name = "cli", signature = (arguments))]
pub(super) fn run(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<i32> {
    guarded(|| {
        let bundled = bundled(py)?;
        let arguments = std::iter::once(OsString::from("rsgen")).chain(arguments);
        let mut last: Option<Instant> = None;
        let mut interrupted = || match last {
            // From now on work can be ended in an orderly way, so Python takes the signal over.
            None => {
                last = Some(Instant::now());
                attached(handle_interrupts).is_none_or(|handled| handled.is_err())
            }
            Some(asked) if asked.elapsed() < INTERVAL => false,
            Some(_) => {
                last = Some(Instant::now());
                attached(check_signals).is_none_or(|checked| checked.is_err())
            }
        };
        Ok(detached(py, || cli::run(arguments, Some(&bundled), &mut interrupted)))
    })
}

fn handle_interrupts(py: Python<'_>) -> PyResult<()> {
    let signal = py.import("signal")?;
    signal.call_method1("signal", (signal.getattr("SIGINT")?, signal.getattr("default_int_handler")?))?;
    Ok(())
}
