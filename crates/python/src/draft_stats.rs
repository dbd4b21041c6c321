//! The class `DraftStats`: what became of drafts.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::errors::guarded;
use super::pickle::{self, Restored};

/// What became of the drafts of a call, in assisted decoding and prompt lookup.
///
/// Example:
///     >>> out = gen.prompt_lookup("One two three. One two", max_new_tokens=30)
///     >>> out.draft_stats.acceptance
#[pyclass(module = "rsgen", frozen, eq)]
#[derive(PartialEq)]
pub(super) struct DraftStats(pub(super) rsgen_generation::DraftStats);

#[pymethods]
impl DraftStats {
    /// int: Tokens that were drafted or looked up.
    #[getter]
    fn drafted(&self) -> PyResult<u64> {
        guarded(|| Ok(self.0.drafted))
    }

    /// int: Of these, tokens that the model checked.
    #[getter]
    fn verified(&self) -> PyResult<u64> {
        guarded(|| Ok(self.0.verified))
    }

    /// int: Of these, tokens that became part of the output.
    #[getter]
    fn accepted(&self) -> PyResult<u64> {
        guarded(|| Ok(self.0.accepted))
    }

    /// int: Checks of a row, each of which gave the accepted tokens and one more.
    #[getter]
    fn rounds(&self) -> PyResult<u64> {
        guarded(|| Ok(self.0.rounds))
    }

    /// float | None: The share of the checked tokens that were accepted; None when none was checked.
    #[getter]
    fn acceptance(&self) -> PyResult<Option<f64>> {
        guarded(|| Ok(self.0.acceptance()))
    }

    /// Returns the values, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[Any]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Restored<'py, [u64; 4]>> {
        guarded(|| {
            let rsgen_generation::DraftStats { drafted, verified, accepted, rounds, .. } = slf.get().0;
            Ok((pickle::restorer(slf)?, ([drafted, verified, accepted, rounds],)))
        })
    }

    #[classmethod]
    fn _restore(_class: &Bound<'_, PyType>, values: [u64; 4]) -> PyResult<Self> {
        guarded(|| {
            let mut stats = rsgen_generation::DraftStats::default();
            [stats.drafted, stats.verified, stats.accepted, stats.rounds] = values;
            Ok(Self(stats))
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        guarded(|| {
            let rsgen_generation::DraftStats { drafted, verified, accepted, rounds, .. } = self.0;
            Ok(format!(
                "DraftStats(drafted={drafted}, verified={verified}, accepted={accepted}, rounds={rounds})"
            ))
        })
    }
}

impl DraftStats {
    /// The values by their names.
    pub(super) fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("drafted", self.0.drafted)?;
        dict.set_item("verified", self.0.verified)?;
        dict.set_item("accepted", self.0.accepted)?;
        dict.set_item("rounds", self.0.rounds)?;
        Ok(dict)
    }
}
