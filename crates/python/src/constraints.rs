//! transformers' constraints as Python objects, and constraints that a caller writes as classes of Python.
//!
//! Those of this file run natively in a search.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::callbacks::each;
use super::caller_constraint::own;
use super::config::{field_value, python_value};
use super::errors::{config_error, guarded, to_python, undefined};
use super::held::Slot;
use super::prompts::shown;
use super::walk::Walk;
use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;
use rsgen_core::types::TokenId;
use rsgen_generation::FieldValue;
use rsgen_generation::constraint::{self, ConstraintStep};

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
    progress: Mutex<Progress>,
    tokens: Tokens,
}

/// How far a constraint of this file is.
struct Progress {
    constraint: Box<dyn constraint::Constraint>,
    /// The tokens that brought it there.
    matched: Vec<TokenId>,
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

/// The constraints of an argument: one, a list of them, or nothing. What they hold of Python goes to `slots`.
pub(super) fn constraints(
    given: Option<&Bound<'_, PyAny>>,
    slots: &mut Vec<Arc<Slot>>,
) -> PyResult<Vec<Arc<dyn constraint::Constraint>>> {
    each(given)?.into_iter().map(|object| native(&object).map_or_else(|| own(&object, slots), Ok)).collect()
}

/// The constraint of an object whose class is one of this file's, and none that a caller has derived from it.
fn native(object: &Bound<'_, PyAny>) -> Option<Arc<dyn constraint::Constraint>> {
    let is_exact = object.is_exact_instance_of::<PhrasalConstraint>()
        || object.is_exact_instance_of::<DisjunctiveConstraint>();
    let built_in = is_exact.then(|| object.cast::<BuiltInConstraint>().ok())??;
    Some(Arc::from(built_in.get().tokens.constraint().ok()?))
}

impl Tokens {
    fn constraint(&self) -> Result<Box<dyn constraint::Constraint>> {
        Ok(match self {
            Self::Phrase(phrase) => Box::new(constraint::PhrasalConstraint::new(phrase.clone())?),
            Self::AnyOf(phrases) => Box::new(constraint::DisjunctiveConstraint::new(phrases)?),
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
pub(super) fn phrase(value: &FieldValue) -> Option<Vec<TokenId>> {
    let FieldValue::List(ids) = value else { return None };
    ids.iter().map(token).collect()
}

pub(super) fn token(value: &FieldValue) -> Option<TokenId> {
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
            let constraint = native(slf.as_any()).map_or_else(|| own(slf.as_any(), &mut Vec::new()), Ok)?;
            constraint::check(&*constraint).map_err(|error| to_python(slf.py(), error))
        })
    }
}

impl BuiltInConstraint {
    fn new(py: Python<'_>, tokens: Tokens) -> PyResult<PyClassInitializer<Self>> {
        let constraint = tokens.constraint().map_err(|error| to_python(py, error))?;
        let own = Self { progress: Mutex::new(Progress { constraint, matched: Vec::new() }), tokens };
        Ok(PyClassInitializer::from(Constraint).add_subclass(own))
    }
}

#[pymethods]
impl BuiltInConstraint {
    fn advance<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let next = self.progress.lock().constraint.advance().map_err(|error| to_python(py, error))?;
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
            let advances = self.progress.lock().constraint.does_advance(token);
            advances.map_err(|error| to_python(token_id.py(), error))
        })
    }

    #[pyo3(signature = (token_id))]
    fn update(&self, token_id: &Bound<'_, PyAny>) -> PyResult<(bool, bool, bool)> {
        guarded(|| {
            let token = given_token(token_id)?;
            let step = self.progress.lock().update(token);
            let step = step.map_err(|error| to_python(token_id.py(), error))?;
            Ok((step.stepped, step.completed, step.reset))
        })
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| self.progress.lock().restore(&[]).map_err(|error| to_python(py, error)))
    }

    fn remaining(&self, py: Python<'_>) -> PyResult<usize> {
        guarded(|| self.progress.lock().constraint.remaining().map_err(|error| to_python(py, error)))
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
                let matched = self.progress.lock().matched.clone();
                let restored = copy.cast::<Self>()?.get().progress.lock().restore(&matched);
                restored.map_err(|error| to_python(py, error))?;
            }
            Ok(copy)
        })
    }

    /// Returns the arguments that it was made from, for pickle.
    ///
    /// Returns:
    ///     tuple[tuple[Any], dict[str, Any]]: The arguments.
    fn __getnewargs_ex__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<((Bound<'py, PyAny>,), Bound<'py, PyDict>)> {
        guarded(|| Ok(((slf.get().token_ids(slf.py())?,), PyDict::new(slf.py()))))
    }

    /// Returns the attributes that a caller's class has added, and how far the constraint is.
    ///
    /// Returns:
    ///     tuple[dict[str, Any] | None, list[int]]: The attributes, and the tokens so far.
    fn __getstate__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Option<Bound<'py, PyAny>>, Vec<u32>)> {
        guarded(|| {
            let matched = slf.get().progress.lock().matched.iter().map(|id| id.0).collect();
            Ok((slf.as_any().getattr_opt("__dict__")?, matched))
        })
    }

    /// Restores what `__getstate__` has returned.
    ///
    /// Args:
    ///     state (tuple[dict[str, Any] | None, list[int]]): The attributes, and the tokens so far.
    #[pyo3(signature = (state, /))]
    fn __setstate__(
        slf: &Bound<'_, Self>,
        state: (Option<Bound<'_, PyAny>>, Bound<'_, PyAny>),
    ) -> PyResult<()> {
        guarded(|| {
            let (attributes, matched) = state;
            let matched: Vec<u32> = Walk::default().list(&matched)?;
            if let Some(attributes) = attributes {
                slf.as_any().getattr("__dict__")?.call_method1("update", (attributes,))?;
            }
            let matched: Vec<_> = matched.into_iter().map(TokenId).collect();
            slf.get().progress.lock().restore(&matched).map_err(|error| to_python(slf.py(), error))
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
        guarded(|| Ok(self.progress.lock().constraint.max_steps()))
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

impl Progress {
    fn update(&mut self, token: TokenId) -> Result<ConstraintStep> {
        let step = self.constraint.update(token)?;
        if step.stepped {
            self.matched.push(token);
        } else {
            self.matched.clear();
        }
        Ok(step)
    }

    /// Begins again with these tokens.
    fn restore(&mut self, matched: &[TokenId]) -> Result<()> {
        (self.constraint, self.matched) = (self.constraint.fresh()?, Vec::new());
        matched.iter().try_for_each(|&token| self.update(token).map(drop))
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

    /// int: The place of the newest token of the phrase that has occurred; -1 before the first.
    #[getter]
    fn fulfilled_idx(slf: &Bound<'_, Self>) -> PyResult<isize> {
        guarded(|| {
            let matched = slf.as_any().cast::<BuiltInConstraint>()?.get().progress.lock().matched.len();
            Ok(matched.cast_signed() - 1)
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

    /// list[int]: The tokens so far, the beginning of one of the phrases.
    #[getter]
    fn current_seq(slf: &Bound<'_, Self>) -> PyResult<Vec<u32>> {
        guarded(|| {
            let built_in = slf.as_any().cast::<BuiltInConstraint>()?.get();
            Ok(built_in.progress.lock().matched.iter().map(|id| id.0).collect())
        })
    }
}
