//! The command `rsgen` as pip installs it: the same program as the binary, run inside Python.

use std::ffi::OsString;

use pyo3::prelude::*;

use super::errors::guarded;
use super::exit::detached;
use super::options::bundled;
use super::walk::Walk;
use rsgen::cli;

/// Runs the command `rsgen` and returns its exit code.
///
/// It is for a process of its own: Ctrl-C ends its work, and Python never hears of it.
///
/// Args:
///     arguments (list[str]): The command's arguments, without the program's name.
///
/// Returns:
///     int: The exit code.
#[guarded]
#[pyfunction]
#[pyo3(name = "cli", signature = (arguments))]
pub(super) fn run(py: Python<'_>, arguments: &Bound<'_, PyAny>) -> PyResult<i32> {
    let arguments: Vec<OsString> = Walk::default().list(arguments)?;
    let bundled = bundled(py)?;
    let arguments = std::iter::once(OsString::from("rsgen")).chain(arguments);
    Ok(detached(py, || cli::run(arguments, Some(&bundled), &mut cli::ctrl_c())))
}
