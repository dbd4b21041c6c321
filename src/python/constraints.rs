//! transformers' constraints as Python objects, and constraints that a caller writes as classes of Python.
//!
//! Those of this file run natively in a search; objects of any other class are asked through their methods, and each
//! copy that a search needs is made by their own `copy`. What they raise ends the request and comes out of the call.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};

use super::callbacks::{Code, each};
use super::config::{field_value, python_value};
use super::errors::{config_error, guarded, to_python, undefined};
use super::prompts::shown;
use crate::error::Result;
use crate::generation::FieldValue;
use crate::generation::constraint::{self, ConstraintStep};
use crate::sync::Mutex;
use crate::types::TokenId;

/// What makes an object a constraint.
const METHODS: [&str; 5] = ["advance", "does_advance", "update", "remaining", "copy"];

/// The base of all constraints, also of those that you write as classes.
///
/// A constraint says, step by step, what an output has to hold. A class of yours defines the methods
/// below, and the attribute `seqlen`, the most steps it takes. A search never changes your object:
/// it works on what `copy()` returns, and asks it from the first token of the prompt on. What a
/// method raises comes out of the call.
///
/// Args:
///     *_arguments (Any): Whatever your class takes.
///     **_keywords (Any): Whatever your class takes.
#[pyclass(module = "rsgen.constraints", name = "Constraint", subclass, frozen)]
pub(super) struct Constraint;

/// The base of the constraints of `rsgen.constraints`, which run without Python.
#[pyclass(
    module = "rsgen.constraints",
    name = "BuiltInConstraint",
    extends = Constraint,
    subclass,
    frozen
)]
pub(super) struct BuiltInConstraint {
    constraint: Mutex<Box<dyn constraint::Constraint>>,
    tokens: Tokens,
}

/// What a constraint of transformers' was made from.
#[derive(Clone)]
enum Tokens {
    Phrase(Vec<TokenId>),
    AnyOf(Vec<Vec<TokenId>>),
}

/// A phrase that has to occur: these tokens, one after the other.
///
/// Args:
///     token_ids (Ids): The tokens of the phrase.
///
/// Example:
///     >>> fox = rsgen.constraints.PhrasalConstraint([5, 9])
///     >>> gen.beam_search("Once upon a time", constraints=[fox])
#[pyclass(
    module = "rsgen.constraints",
    name = "PhrasalConstraint",
    extends = BuiltInConstraint,
    subclass,
    frozen
)]
pub(super) struct PhrasalConstraint;

/// Several phrases of which one has to occur. None of them may begin another.
///
/// Args:
///     nested_token_ids (Sequence[Ids]): The tokens of each phrase.
#[pyclass(
    module = "rsgen.constraints",
    name = "DisjunctiveConstraint",
    extends = BuiltInConstraint,
    subclass,
    frozen
)]
pub(super) struct DisjunctiveConstraint;

/// The constraints of an argument: one, a list of them, or nothing.
pub(super) fn constraints(
    given: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<Arc<dyn constraint::Constraint>>> {
    each(given)?.into_iter().map(|object| native(&object).map_or_else(|| own(&object), Ok)).collect()
}

/// The constraint of an object whose class is one of this file's, and none that a caller has derived from it.
fn native(object: &Bound<'_, PyAny>) -> Option<Arc<dyn constraint::Constraint>> {
    let is_exact = object.is_exact_instance_of::<PhrasalConstraint>()
        || object.is_exact_instance_of::<DisjunctiveConstraint>();
    let built_in = is_exact.then(|| object.cast::<BuiltInConstraint>().ok())??;
    Some(Arc::from(built_in.get().tokens.constraint().ok()?))
}

/// A constraint of the caller's.
fn own(object: &Bound<'_, PyAny>) -> PyResult<Arc<dyn constraint::Constraint>> {
    for method in METHODS {
        if !object.getattr_opt(method)?.is_some_and(|method| method.is_callable()) {
            return Err(PyTypeError::new_err(format!(
                "`constraints` must be a constraint or a list of them, got {}, which has no method {method}; derive its \
                 class from rsgen.constraints.Constraint",
                shown(object)
            )));
        }
    }
    Ok(Arc::new(Own::new(object)?))
}

impl Tokens {
    fn constraint(&self) -> Result<Box<dyn constraint::Constraint>> {
        Ok(match self {
            Self::Phrase(phrase) => Box::new(constraint::PhrasalConstraint::new(phrase.clone())?),
            Self::AnyOf(phrases) => Box::new(constraint::DisjunctiveConstraint::new(phrases.clone())?),
        })
    }

    fn value(&self) -> FieldValue {
        let phrase = |phrase: &Vec<TokenId>| phrase.iter().map(|id| FieldValue::Int(id.0.into())).collect();
        match self {
            Self::Phrase(ids) => phrase(ids),
            Self::AnyOf(phrases) => phrases.iter().map(phrase).collect(),
        }
    }
}

/// Token ids of a list.
fn phrase(value: &FieldValue) -> Option<Vec<TokenId>> {
    let FieldValue::List(ids) = value else { return None };
    ids.iter().map(token).collect()
}

fn token(value: &FieldValue) -> Option<TokenId> {
    match value {
        FieldValue::Int(id) => u32::try_from(*id).ok().map(TokenId),
        _ => None,
    }
}

#[pymethods]
impl Constraint {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        guarded(|| Ok(Self))
    }

    /// Returns the tokens that would bring it a step further.
    ///
    /// Returns:
    ///     int | list[int] | None: One token, several, or None once it is fulfilled.
    fn advance(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        guarded(|| Err(undefined(slf.as_any(), "advance(self)")))
    }

    /// Returns whether the token would bring it a step further.
    ///
    /// Args:
    ///     token_id (int): The token.
    ///
    /// Returns:
    ///     bool: True for a step.
    #[pyo3(signature = (token_id))]
    fn does_advance(slf: &Bound<'_, Self>, token_id: &Bound<'_, PyAny>) -> PyResult<bool> {
        let _ = token_id;
        guarded(|| Err(undefined(slf.as_any(), "does_advance(self, token_id)")))
    }

    /// Takes a token.
    ///
    /// Args:
    ///     token_id (int): The token.
    ///
    /// Returns:
    ///     tuple[bool, bool, bool]: Whether it was a step, whether the constraint is fulfilled now, and
    ///         whether it begins again because the token broke it.
    #[pyo3(signature = (token_id))]
    fn update(slf: &Bound<'_, Self>, token_id: &Bound<'_, PyAny>) -> PyResult<(bool, bool, bool)> {
        let _ = token_id;
        guarded(|| Err(undefined(slf.as_any(), "update(self, token_id)")))
    }

    /// Begins again.
    fn reset(slf: &Bound<'_, Self>) -> PyResult<()> {
        guarded(|| Err(undefined(slf.as_any(), "reset(self)")))
    }

    /// Returns the most steps that are left.
    ///
    /// Returns:
    ///     int: 0 once it is fulfilled.
    fn remaining(slf: &Bound<'_, Self>) -> PyResult<usize> {
        guarded(|| Err(undefined(slf.as_any(), "remaining(self)")))
    }

    /// Returns a copy.
    ///
    /// Args:
    ///     stateful (bool): Copies the state as it is now. Otherwise the copy begins anew.
    ///
    /// Returns:
    ///     Constraint: The copy.
    #[pyo3(signature = (stateful=false))]
    fn copy(slf: &Bound<'_, Self>, stateful: bool) -> PyResult<Py<PyAny>> {
        let _ = stateful;
        guarded(|| Err(undefined(slf.as_any(), "copy(self, stateful=False)")))
    }

    /// Walks through a copy once. A call does so, too.
    ///
    /// Raises:
    ///     CallbackError: The constraint can never be fulfilled.
    fn test(slf: &Bound<'_, Self>) -> PyResult<()> {
        guarded(|| {
            let constraint = native(slf.as_any()).map_or_else(|| own(slf.as_any()), Ok)?;
            constraint::check(&*constraint).map_err(|error| to_python(slf.py(), error))
        })
    }
}

impl BuiltInConstraint {
    fn new(py: Python<'_>, tokens: Tokens) -> PyResult<PyClassInitializer<Self>> {
        let constraint = tokens.constraint().map_err(|error| to_python(py, error))?;
        let own = Self { constraint: Mutex::new(constraint), tokens };
        Ok(PyClassInitializer::from(Constraint).add_subclass(own))
    }
}

#[pymethods]
impl BuiltInConstraint {
    fn advance<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let next = self.constraint.lock().advance().map_err(|error| to_python(py, error))?;
            let ids = || next.iter().map(|id| FieldValue::Int(id.0.into()));
            let value = match &self.tokens {
                Tokens::Phrase(_) => ids().next().unwrap_or(FieldValue::Null),
                Tokens::AnyOf(_) => ids().collect(),
            };
            python_value(py, &value)
        })
    }

    #[pyo3(signature = (token_id))]
    fn does_advance(&self, token_id: &Bound<'_, PyAny>) -> PyResult<bool> {
        guarded(|| {
            let token = given_token(token_id)?;
            let advances = self.constraint.lock().does_advance(token);
            advances.map_err(|error| to_python(token_id.py(), error))
        })
    }

    #[pyo3(signature = (token_id))]
    fn update(&self, token_id: &Bound<'_, PyAny>) -> PyResult<(bool, bool, bool)> {
        guarded(|| {
            let token = given_token(token_id)?;
            let step = self.constraint.lock().update(token);
            let step = step.map_err(|error| to_python(token_id.py(), error))?;
            Ok((step.stepped, step.completed, step.reset))
        })
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            let mut constraint = self.constraint.lock();
            *constraint = constraint.fresh().map_err(|error| to_python(py, error))?;
            Ok(())
        })
    }

    fn remaining(&self, py: Python<'_>) -> PyResult<usize> {
        guarded(|| self.constraint.lock().remaining().map_err(|error| to_python(py, error)))
    }

    #[pyo3(signature = (stateful=false))]
    fn copy<'py>(&self, py: Python<'py>, stateful: bool) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let base = Self::new(py, self.tokens.clone())?;
            let copy = match self.tokens {
                Tokens::Phrase(_) => Bound::new(py, base.add_subclass(PhrasalConstraint))?.into_any(),
                Tokens::AnyOf(_) => Bound::new(py, base.add_subclass(DisjunctiveConstraint))?.into_any(),
            };
            if stateful {
                let state = self.constraint.lock().fork().map_err(|error| to_python(py, error))?;
                *copy.cast::<Self>()?.get().constraint.lock() = state;
            }
            Ok(copy)
        })
    }

    /// list[Any]: The tokens it was made from.
    #[getter]
    fn token_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| python_value(py, &self.tokens.value()))
    }

    /// int: The most steps it takes.
    #[getter]
    fn seqlen(&self) -> PyResult<usize> {
        guarded(|| Ok(self.constraint.lock().max_steps()))
    }

    /// bool: Whether it is fulfilled.
    #[getter]
    fn completed(&self, py: Python<'_>) -> PyResult<bool> {
        guarded(|| Ok(self.remaining(py)? == 0))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        guarded(|| {
            let tokens = slf.get().token_ids(slf.py())?;
            Ok(format!("{}({})", slf.get_type().name()?, tokens.repr()?))
        })
    }
}

fn given_token(token_id: &Bound<'_, PyAny>) -> PyResult<TokenId> {
    token(&field_value(token_id)?).ok_or_else(|| {
        config_error(token_id.py(), format!("`token_id` must be a token id, got {}", shown(token_id)))
    })
}

#[pymethods]
impl PhrasalConstraint {
    #[new]
    #[pyo3(signature = (token_ids))]
    fn new(token_ids: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<Self>> {
        guarded(|| {
            let rule = "`token_ids` of a PhrasalConstraint must be a list of token ids";
            let tokens = phrase(&field_value(token_ids)?).map(Tokens::Phrase);
            let wrong = || config_error(token_ids.py(), format!("{rule}, got {}", shown(token_ids)));
            Ok(BuiltInConstraint::new(token_ids.py(), tokens.ok_or_else(wrong)?)?.add_subclass(Self))
        })
    }
}

#[pymethods]
impl DisjunctiveConstraint {
    #[new]
    #[pyo3(signature = (nested_token_ids))]
    fn new(nested_token_ids: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<Self>> {
        guarded(|| {
            let (py, rule) = (
                nested_token_ids.py(),
                "`nested_token_ids` of a DisjunctiveConstraint must be a list of lists of token ids",
            );
            let phrases = match field_value(nested_token_ids)? {
                FieldValue::List(phrases) => phrases.iter().map(phrase).collect(),
                _ => None,
            };
            let wrong = || config_error(py, format!("{rule}, got {}", shown(nested_token_ids)));
            Ok(BuiltInConstraint::new(py, Tokens::AnyOf(phrases.ok_or_else(wrong)?))?.add_subclass(Self))
        })
    }
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
        let max_steps = seqlen.as_ref().and_then(|seqlen| seqlen.extract().ok());
        let max_steps = max_steps.ok_or_else(|| {
            let given = seqlen.map_or_else(|| "none".to_owned(), |seqlen| shown(&seqlen));
            PyTypeError::new_err(format!(
                "a constraint must have an attribute `seqlen`, the number of its steps, but {} has {given}",
                code.name
            ))
        })?;
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
        value.extract().map_err(|_| self.returned(method, rule, value))
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
