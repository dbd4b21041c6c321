//! The arguments of a call: by place and by name.

use std::rc::Rc;

use super::failure::{Failure, Result};
use super::value::Value;

/// What a filter, a test, a method, a function or a macro is called with.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Value>,
    pub(super) keywords: Vec<(Rc<str>, Value)>,
}

impl Arguments {
    /// Brings them in the order of the parameters. A parameter that is not given is `None`.
    pub(super) fn bind<const N: usize>(
        &self,
        callee: &str,
        parameters: [&str; N],
    ) -> Result<[Option<Value>; N]> {
        if self.positional.len() > N {
            return Err(Failure::new(format!(
                "{callee} takes at most {N} arguments, got {}",
                self.positional.len()
            )));
        }
        let mut bound = [const { None }; N];
        for (place, value) in bound.iter_mut().zip(&self.positional) {
            *place = Some(value.clone());
        }
        for (name, value) in &self.keywords {
            match parameters.iter().position(|parameter| *parameter == &**name) {
                Some(place) if bound[place].is_none() => bound[place] = Some(value.clone()),
                Some(_) => return Err(Failure::new(format!("{callee} got `{name}` twice"))),
                None => return Err(Failure::new(format!("{callee} has no argument `{name}`"))),
            }
        }
        Ok(bound)
    }

    /// As [`Self::bind`], for parameters that all have to be given.
    pub(super) fn bind_all<const N: usize>(&self, callee: &str, parameters: [&str; N]) -> Result<[Value; N]> {
        let bound = self.bind(callee, parameters)?;
        if let Some(missing) = bound.iter().position(Option::is_none) {
            return Err(Failure::new(format!("{callee} needs the argument `{}`", parameters[missing])));
        }
        Ok(bound.map(|value| value.unwrap_or(Value::None)))
    }
}

/// A text that was given as an argument; `None` counts as not given.
pub(super) fn text(callee: &str, value: Option<&Value>) -> Result<Option<Rc<str>>> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(Value::Str(text)) => Ok(Some(text.clone())),
        Some(other) => Err(Failure::new(format!("{callee} takes a text, got {}", other.type_name()))),
    }
}

/// A whole number that was given as an argument; `None` counts as not given. Beyond 64 bits it is the largest.
pub(super) fn integer(callee: &str, value: Option<&Value>) -> Result<Option<i64>> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(other) => match other.as_int() {
            Some(number) => Ok(Some(number.clamp(i64::MIN.into(), i64::MAX.into()) as i64)),
            None => Err(Failure::new(format!("{callee} takes a whole number, got {}", other.type_name()))),
        },
    }
}

/// Python's truth of an argument; false when it is not given.
pub(super) fn flag(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_true)
}
