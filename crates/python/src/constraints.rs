//! transformers' constraints as Python objects, and constraints that a caller writes as classes of Python.
//!
//! Those of this file run natively in a search.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyDict, PyList, PyListMethods, PyTuple, PyType};

use super::built_in::{Class, Made, value};
use super::callbacks::each;
use super::caller_constraint::own;
use super::errors::{guarded, to_python};
use super::field_values::{field_value, python_value};
use super::held::Slot;
use super::prompts::shown;
use super::walk::Walk;
use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;
use rsgen_core::types::TokenId;
use rsgen_generation::FieldValue;
use rsgen_generation::constraint::{self, ConstraintStep};

/// The base of the constraints of `rsgen.constraints`, which run without Python.
///
/// Args:
///     *arguments (Any): Those of the class.
///     **keywords (Any): Those of the class.
#[pyclass(module = "rsgen.constraints", name = "BuiltInConstraint", subclass, frozen)]
pub(super) struct BuiltInConstraint {
    progress: Mutex<Progress>,
    made: Made,
    /// Its class in the table.
    class: &'static str,
}

/// The state of a constraint of this file.
struct Progress {
    constraint: Box<dyn constraint::Constraint>,
    /// The tokens that it has matched so far.
    matched: Vec<TokenId>,
}

/// The class whose `advance` returns a single token.
const PHRASAL: &str = "PhrasalConstraint";

/// The classes of `rsgen.constraints`.
pub(super) const CONSTRAINTS: [Class<Box<dyn constraint::Constraint>>; 2] = classes! {
    /// A phrase that has to occur: these tokens, one after the other.
    ///
    /// Args:
    ///     token_ids (Ids): The tokens of the phrase.
    ///
    /// Example:
    ///     >>> fox = rsgen.constraints.PhrasalConstraint([5, 9])
    ///     >>> gen.beam_search("Once upon a time", constraints=[fox])
    PhrasalConstraint(
        token_ids: "Ids",
    ) => phrasal;

    /// Several phrases of which one has to occur. None of them may begin another.
    ///
    /// Args:
    ///     nested_token_ids (Sequence[Ids]): The tokens of each phrase.
    DisjunctiveConstraint(
        nested_token_ids: "Sequence[Ids]",
    ) => disjunctive;
};

fn phrasal(given: &Bound<'_, PyDict>) -> PyResult<Box<dyn constraint::Constraint>> {
    let rule = "`token_ids` of a PhrasalConstraint must be a list of token ids";
    let ids = tokens(given, "token_ids", rule, phrase)?;
    constraint::PhrasalConstraint::new(ids)
        .map(|made| Box::new(made) as _)
        .map_err(|error| to_python(given.py(), error))
}

fn disjunctive(given: &Bound<'_, PyDict>) -> PyResult<Box<dyn constraint::Constraint>> {
    let rule = "`nested_token_ids` of a DisjunctiveConstraint must be a list of lists of token ids";
    if let Ok(phrases) = value(given, "nested_token_ids")?.cast::<PyList>() {
        // Lists say how long they are before their tokens are read.
        let walk = Walk::default();
        let lens =
            walk.items(phrases)?.map(|phrase| Ok(phrase?.cast::<PyList>().map_or(0, PyListMethods::len)));
        let lens = lens.collect::<PyResult<Vec<_>>>()?;
        constraint::DisjunctiveConstraint::check_len(lens).map_err(|error| to_python(given.py(), error))?;
    }
    let phrases = tokens(given, "nested_token_ids", rule, |value| match value {
        FieldValue::List(phrases) => phrases.iter().map(phrase).collect::<Option<Vec<_>>>(),
        _ => None,
    })?;
    constraint::DisjunctiveConstraint::new(&phrases)
        .map(|made| Box::new(made) as _)
        .map_err(|error| to_python(given.py(), error))
}

/// The tokens of an argument, which is kept as lists of numbers.
fn tokens<T>(
    given: &Bound<'_, PyDict>,
    name: &str,
    rule: &str,
    read: impl Fn(&FieldValue) -> Option<T>,
) -> PyResult<T> {
    let (py, value) = (given.py(), value(given, name)?);
    let plain = field_value(&value)?;
    let tokens = read(&plain).ok_or_else(|| config_error!(py, "{rule}, got {}", shown(&value)))?;
    given.set_item(name, python_value(py, &plain)?)?;
    Ok(tokens)
}

/// The constraints of an argument: one, a list of them, or nothing. Their Python objects go to `slots`.
pub(super) fn constraints(
    given: Option<&Bound<'_, PyAny>>,
    slots: &mut Vec<Arc<Slot>>,
) -> PyResult<Vec<Arc<dyn constraint::Constraint>>> {
    each("constraints", given)?
        .into_iter()
        .map(|object| native(&object).map_or_else(|| own(&object, slots), Ok))
        .collect()
}

/// The native constraint of an object of exactly one of this file's classes; `None` for a caller's subclass.
fn native(object: &Bound<'_, PyAny>) -> Option<Arc<dyn constraint::Constraint>> {
    let built_in = object.cast::<BuiltInConstraint>().ok()?.get();
    let fresh = built_in.made.is_exact.then(|| built_in.progress.lock().constraint.fresh());
    fresh?.ok().map(Arc::from)
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

/// Walks through a copy of a constraint once.
///
/// Args:
///     constraint (Constraint): The constraint.
///
/// Raises:
///     CallbackError: It can never be fulfilled.
#[guarded]
#[pyfunction]
#[pyo3(name = "_check_constraint", signature = (constraint))]
pub(super) fn check_constraint(constraint: &Bound<'_, PyAny>) -> PyResult<()> {
    let own = native(constraint).map_or_else(|| own(constraint, &mut Vec::new()), Ok)?;
    constraint::check(&*own).map_err(|error| to_python(constraint.py(), error))
}

made_by_table!(BuiltInConstraint, "constraints", &CONSTRAINTS);

impl BuiltInConstraint {
    fn of(class: &Class<Box<dyn constraint::Constraint>>, made: Made, py: Python<'_>) -> PyResult<Self> {
        let constraint = (class.construct)(made.arguments(py))?;
        Ok(Self {
            progress: Mutex::new(Progress { constraint, matched: Vec::new() }),
            made,
            class: class.name,
        })
    }
}

#[guarded]
#[pymethods]
impl BuiltInConstraint {
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.made.traverse(&visit)
    }

    /// Returns the tokens that would bring it a step further.
    ///
    /// Returns:
    ///     int | list[int] | None: One token, several, or None once it is fulfilled.
    fn advance<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let next = self.progress.lock().constraint.advance().map_err(|error| to_python(py, error))?;
        let ids = || next.iter().map(|id| FieldValue::Int(id.0.into()));
        let is_single = self.class == PHRASAL;
        python_value(py, &if is_single { ids().next().unwrap_or(FieldValue::Null) } else { ids().collect() })
    }

    /// Returns whether the token would bring it a step further.
    ///
    /// Args:
    ///     token_id (int): The token.
    ///
    /// Returns:
    ///     bool: True for a step.
    #[pyo3(signature = (token_id))]
    fn does_advance(&self, token_id: &Bound<'_, PyAny>) -> PyResult<bool> {
        let token = given_token(token_id)?;
        let advances = self.progress.lock().constraint.does_advance(token);
        advances.map_err(|error| to_python(token_id.py(), error))
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
    fn update(&self, token_id: &Bound<'_, PyAny>) -> PyResult<(bool, bool, bool)> {
        let token = given_token(token_id)?;
        let step = self.progress.lock().update(token);
        let step = step.map_err(|error| to_python(token_id.py(), error))?;
        Ok((step.stepped, step.completed, step.reset))
    }

    /// Begins again.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.progress.lock().restore(&[]).map_err(|error| to_python(py, error))
    }

    /// Returns the most steps that are left.
    ///
    /// Returns:
    ///     int: 0 once it is fulfilled.
    fn remaining(&self, py: Python<'_>) -> PyResult<usize> {
        self.progress.lock().constraint.remaining().map_err(|error| to_python(py, error))
    }

    /// Returns a copy.
    ///
    /// Args:
    ///     stateful (bool): Copies the state as it is now. Otherwise the copy begins anew.
    ///
    /// Returns:
    ///     Constraint: The copy.
    #[pyo3(signature = (stateful=false))]
    fn copy<'py>(&self, py: Python<'py>, stateful: bool) -> PyResult<Bound<'py, PyAny>> {
        let class = py.import("rsgen.constraints")?.getattr(self.class)?;
        let copy = class.call((), Some(self.made.arguments(py)))?;
        if stateful {
            let matched = self.progress.lock().matched.clone();
            let restored = copy.cast::<Self>()?.get().progress.lock().restore(&matched);
            restored.map_err(|error| to_python(py, error))?;
        }
        Ok(copy)
    }

    /// Returns the attributes of a caller's subclass, and the tokens matched so far, for pickle.
    ///
    /// Returns:
    ///     tuple[dict[str, Any] | None, list[int]]: The attributes, and the tokens so far.
    fn __getstate__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Option<Bound<'py, PyAny>>, Vec<u32>)> {
        let matched = slf.get().progress.lock().matched.iter().map(|id| id.0).collect();
        Ok((slf.as_any().getattr_opt("__dict__")?, matched))
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
        let (attributes, matched) = state;
        let matched: Vec<u32> = Walk::default().list(&matched)?;
        if let Some(attributes) = attributes {
            slf.as_any().getattr("__dict__")?.call_method1("update", (attributes,))?;
        }
        let matched: Vec<_> = matched.into_iter().map(TokenId).collect();
        slf.get().progress.lock().restore(&matched).map_err(|error| to_python(slf.py(), error))
    }

    /// list[Any]: The tokens it was made from.
    #[getter]
    fn token_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tokens = self.made.arguments(py).values().get_item(0)?;
        python_value(py, &field_value(&tokens)?)
    }

    /// int: The most steps it takes.
    #[getter]
    fn seqlen(&self) -> usize {
        self.progress.lock().constraint.max_steps()
    }

    /// bool: Whether it is fulfilled.
    #[getter]
    fn completed(&self, py: Python<'_>) -> bool {
        self.remaining(py)? == 0
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let tokens = slf.get().token_ids(slf.py())?;
        Ok(format!("{}({})", slf.get_type().name()?, tokens.repr()?))
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

    /// Resets the constraint and matches these tokens.
    fn restore(&mut self, matched: &[TokenId]) -> Result<()> {
        (self.constraint, self.matched) = (self.constraint.fresh()?, Vec::new());
        matched.iter().try_for_each(|&token| self.update(token).map(drop))
    }
}

fn given_token(token_id: &Bound<'_, PyAny>) -> PyResult<TokenId> {
    token(&field_value(token_id)?)
        .ok_or_else(|| config_error!(token_id.py(), "`token_id` must be a token id, got {}", shown(token_id)))
}
