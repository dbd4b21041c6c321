//! The values that a template computes with: Python's, as far as templates meet them.
//!
//! Values are immutable, as in the sandbox of transformers, but for namespaces. Namespaces, loops and macros belong to the
//! interpreter and are named by their number, so that no value can hold itself and none is lost.

use std::cmp::Ordering;
use std::rc::Rc;

use super::budget::Budget;
use super::failure::{Failure, Result};

/// Entries that are passed in the time of a step when a key is looked for.
const ENTRIES_PER_STEP: usize = 8;

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// What is not there, with the reason.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Rc<str>),
    Seq(Rc<Seq>),
    Dict(Rc<Dict>),
    Namespace(usize),
    Loop(usize),
    Macro(usize),
    Function(Function),
    /// A method with the value that it belongs to.
    Method(Rc<(Self, Rc<str>)>),
}

/// A list, or what is like one.
#[derive(Debug)]
pub(super) struct Seq {
    pub(super) kind: SeqKind,
    pub(super) items: Vec<Value>,
    pub(super) depth: u16,
}

/// What kind of list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeqKind {
    List,
    Tuple,
    /// A tuple of `groupby`, whose items have names.
    Group,
    Range,
    Keys,
    Values,
    Items,
}

/// A dict, in the order of insertion.
#[derive(Debug, Clone, Default)]
pub(super) struct Dict {
    pub(super) entries: Vec<(Value, Value)>,
    pub(super) depth: u16,
}

/// The functions that templates have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Range,
    Dict,
    Namespace,
    RaiseException,
    StrftimeNow,
}

impl Function {
    /// All of them, by name.
    pub(super) const ALL: [(&'static str, Self); 5] = [
        ("range", Self::Range),
        ("dict", Self::Dict),
        ("namespace", Self::Namespace),
        ("raise_exception", Self::RaiseException),
        ("strftime_now", Self::StrftimeNow),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| name)
    }
}

impl SeqKind {
    /// Whether it is a tuple to Python.
    pub(super) fn is_tuple(self) -> bool {
        matches!(self, Self::Tuple | Self::Group)
    }

    /// Whether it is a view of a dict, which has no items by number.
    pub(super) fn is_view(self) -> bool {
        matches!(self, Self::Keys | Self::Values | Self::Items)
    }
}

impl Value {
    /// A short text; long ones are made by the [`Budget`].
    pub(super) fn str(text: &str) -> Self {
        Self::Str(text.into())
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Python's name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Seq(seq) => match seq.kind {
                SeqKind::List => "list",
                SeqKind::Tuple | SeqKind::Group => "tuple",
                SeqKind::Range => "range",
                SeqKind::Keys => "dict_keys",
                SeqKind::Values => "dict_values",
                SeqKind::Items => "dict_items",
            },
            Self::Dict(_) => "dict",
            Self::Namespace(_) => "Namespace",
            Self::Loop(_) => "LoopContext",
            Self::Macro(_) => "Macro",
            Self::Function(_) => "function",
            Self::Method(_) => "method",
        }
    }

    /// Python's truth.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::Seq(seq) => !seq.items.is_empty(),
            Self::Dict(dict) => !dict.entries.is_empty(),
            _ => true,
        }
    }

    /// How deep lists and dicts are nested in it.
    pub(super) fn depth(&self) -> u16 {
        match self {
            Self::Seq(seq) => seq.depth,
            Self::Dict(dict) => dict.depth,
            Self::Method(method) => method.0.depth(),
            _ => 0,
        }
    }

    /// As an integer, booleans included.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Bool(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    /// As a number.
    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            _ => self.as_int().map(|value| value as f64),
        }
    }

    /// Python's `==`.
    pub(super) fn equals(&self, other: &Self, budget: &Budget) -> Result<bool> {
        budget.charge(1)?;
        Ok(match (self, other) {
            (Self::Str(a), Self::Str(b)) => {
                budget.scan(a.len().min(b.len()))?;
                a == b
            }
            (Self::Seq(a), Self::Seq(b)) => {
                let kinds = a.kind == b.kind || (a.kind.is_tuple() && b.kind.is_tuple());
                if !kinds || a.items.len() != b.items.len() {
                    return Ok(false);
                }
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Dict(a), Self::Dict(b)) => {
                if a.entries.len() != b.entries.len() {
                    return Ok(false);
                }
                for (key, value) in &a.entries {
                    match b.get(budget, key)? {
                        Some(other) if value.equals(other, budget)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Self::None, Self::None) | (Self::Undefined(_), Self::Undefined(_)) => true,
            (Self::Namespace(a), Self::Namespace(b))
            | (Self::Loop(a), Self::Loop(b))
            | (Self::Macro(a), Self::Macro(b)) => a == b,
            (Self::Function(a), Self::Function(b)) => a == b,
            _ => match (self.as_int(), other.as_int()) {
                (Some(a), Some(b)) => a == b,
                _ => matches!((self.as_float(), other.as_float()), (Some(a), Some(b)) if a == b),
            },
        })
    }

    /// Python's order; `None` where a number is NaN.
    pub(super) fn compare(&self, other: &Self, operator: &str, budget: &Budget) -> Result<Option<Ordering>> {
        match (self, other) {
            (Self::Str(a), Self::Str(b)) => {
                budget.scan(a.len().min(b.len()))?;
                Ok(Some(a.cmp(b)))
            }
            (Self::Seq(a), Self::Seq(b))
                if (a.kind == SeqKind::List && b.kind == SeqKind::List)
                    || (a.kind.is_tuple() && b.kind.is_tuple()) =>
            {
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, budget)? {
                        return a.compare(b, operator, budget);
                    }
                }
                Ok(Some(a.items.len().cmp(&b.items.len())))
            }
            _ => match (self.as_int(), other.as_int(), self.as_float(), other.as_float()) {
                (Some(a), Some(b), ..) => Ok(Some(a.cmp(&b))),
                (_, _, Some(a), Some(b)) => Ok(a.partial_cmp(&b)),
                _ => {
                    self.must_be_defined()?;
                    other.must_be_defined()?;
                    Err(Failure::new(format!(
                        "`{operator}` does not go with {} and {}",
                        self.type_name(),
                        other.type_name()
                    )))
                }
            },
        }
    }

    /// Refuses what is undefined, with the reason why it is.
    pub(super) fn must_be_defined(&self) -> Result<()> {
        match self {
            Self::Undefined(reason) => Err(Failure::new(&**reason)),
            _ => Ok(()),
        }
    }
}

impl Dict {
    /// The value of a key.
    pub(super) fn get(&self, budget: &Budget, key: &Value) -> Result<Option<&Value>> {
        if let Value::Str(name) = key {
            return self.named(budget, name);
        }
        for (known, value) in &self.entries {
            if known.equals(key, budget)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The value of a key that is a text.
    pub(super) fn named(&self, budget: &Budget, name: &str) -> Result<Option<&Value>> {
        budget.charge(self.entries.len() / ENTRIES_PER_STEP)?;
        Ok(self.entries.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value))
    }

    /// Sets a key, which must be one that Python can hash.
    pub(super) fn insert(&mut self, budget: &Budget, key: Value, value: Value) -> Result<()> {
        must_be_hashable(&key, budget)?;
        for (known, old) in &mut self.entries {
            if known.equals(&key, budget)? {
                *old = value;
                return Ok(());
            }
        }
        self.entries.push((key, value));
        Ok(())
    }
}

/// Refuses keys that Python cannot hash.
pub(super) fn must_be_hashable(key: &Value, budget: &Budget) -> Result<()> {
    match key {
        Value::Seq(seq) if seq.kind.is_tuple() => seq.items.iter().try_for_each(|item| {
            budget.charge_elements(1)?;
            must_be_hashable(item, budget)
        }),
        Value::Seq(_) | Value::Dict(_) => {
            Err(Failure::new(format!("a {} cannot be the key of a dict", key.type_name())))
        }
        _ => Ok(()),
    }
}
