//! Constraints that a caller writes as classes of Python.
//!
//! A search calls their methods, and copies them by their own `copy`. An exception of a method ends the
//! request and comes out of the call.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};

use super::callbacks::Code;
use super::constraints::{phrase, token};
use super::errors::replaced;
use super::field_values::field_value;
use super::held::Slot;
use super::prompts::shown;
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;
use rsgen_generation::FieldValue;
use rsgen_generation::constraint::{self, ConstraintStep};

/// The methods of a constraint.
const METHODS: [&str; 5] = ["advance", "does_advance", "update", "remaining", "copy"];

/// A caller's constraint. Its Python object goes to `slots`.
pub(super) fn own(
    object: &Bound<'_, PyAny>,
    slots: &mut Vec<Arc<Slot>>,
) -> PyResult<Arc<dyn constraint::Constraint>> {
    for method in METHODS {
        if !object.getattr_opt(method)?.is_some_and(|method| method.is_callable()) {
            return Err(type_error!(
                "`constraints` must be a constraint or a list of them, got {}, which has no method {method}; derive its \
                 class from rsgen.constraints.Constraint",
                shown(object)
            ));
        }
    }
    let own = Own::new(object)?;
    slots.push(own.code.slot());
    Ok(Arc::new(own))
}

/// A constraint that is an object of the caller's. A search never changes it: it works on copies.
struct Own {
    code: Code,
    max_steps: usize,
}

impl Own {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let code = Code::new(object)?;
        let seqlen = object.getattr_opt("seqlen")?;
        let wrong = |given: &str| {
            type_error!(
                "a constraint must have an attribute `seqlen`, the number of its steps, but {} has {given}",
                code.name
            )
        };
        let seqlen = seqlen.ok_or_else(|| wrong("none"))?;
        let max_steps = seqlen.extract();
        let max_steps =
            max_steps.map_err(|error| replaced(object.py(), error, |_| wrong(&shown(&seqlen))))?;
        Ok(Self { code, max_steps })
    }

    fn copied(&self, stateful: bool) -> Result<Box<dyn constraint::Constraint>> {
        self.code.attached(|object| {
            let keywords = PyDict::new(object.py());
            keywords.set_item("stateful", stateful)?;
            let copy = object.call_method("copy", (), Some(&keywords))?;
            Ok(Box::new(Self::new(&copy)?) as _)
        })
    }

    fn returned(&self, method: &str, rule: &str, value: &Bound<'_, PyAny>) -> PyErr {
        self.code.returned(value.py(), &format!(".{method}()"), rule, &shown(value))
    }

    fn truth(&self, method: &str, rule: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let wrong = |_: &PyErr| self.returned(method, rule, value);
        value.extract().map_err(|error| replaced(value.py(), error, wrong))
    }
}

impl constraint::Constraint for Own {
    fn advance(&self) -> Result<Vec<TokenId>> {
        self.code.attached(|object| {
            let value = object.call_method0("advance")?;
            let tokens = match field_value(&value)? {
                FieldValue::Null => Some(Vec::new()),
                single @ FieldValue::Int(_) => token(&single).map(|token| vec![token]),
                several => phrase(&several),
            };
            tokens.ok_or_else(|| self.returned("advance", "a token id, a list of them or None", &value))
        })
    }

    fn does_advance(&self, token: TokenId) -> Result<bool> {
        self.code.attached(|object| {
            let value = object.call_method1("does_advance", (token.0,))?;
            self.truth("does_advance", "True or False", &value)
        })
    }

    fn update(&mut self, token: TokenId) -> Result<ConstraintStep> {
        self.code.attached(|object| {
            let rule = "three truth values: stepped, completed, reset";
            let value = object.call_method1("update", (token.0,))?;
            let parts: Vec<Bound<'_, PyAny>> = match (value.cast::<PyTuple>(), value.cast::<PyList>()) {
                (Ok(parts), _) => parts.iter().collect(),
                (_, Ok(parts)) => parts.iter().collect(),
                _ => Vec::new(),
            };
            let [stepped, completed, reset] = &parts[..] else {
                return Err(self.returned("update", rule, &value));
            };
            Ok(ConstraintStep {
                stepped: self.truth("update", rule, stepped)?,
                completed: self.truth("update", rule, completed)?,
                reset: self.truth("update", rule, reset)?,
            })
        })
    }

    fn remaining(&self) -> Result<usize> {
        self.code.attached(|object| {
            let value = object.call_method0("remaining")?;
            let number = value.cast::<PyInt>().ok().and_then(|number| number.extract().ok());
            number.ok_or_else(|| self.returned("remaining", "the number of steps that are left", &value))
        })
    }

    fn max_steps(&self) -> usize {
        self.max_steps
    }

    fn fresh(&self) -> Result<Box<dyn constraint::Constraint>> {
        self.copied(false)
    }

    fn fork(&self) -> Result<Box<dyn constraint::Constraint>> {
        self.copied(true)
    }
}
