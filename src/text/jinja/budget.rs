//! What a rendering may cost: one number that pays for time and for memory, so that neither can run away.
//!
//! Every step of the interpreter costs, every byte of text it makes and every element of a list. What would cost more
//! than is left is refused before it is made. Larger inputs have larger budgets: a long conversation is no attack.

use std::cell::Cell;
use std::rc::Rc;

use super::failure::{Failure, Result};
use super::value::{Dict, Seq, SeqKind, Value};

/// What a step costs: one expression or statement, some tens of nanoseconds.
pub(super) const STEP: usize = 32;
/// What an element of a list or dict costs, besides what it holds.
const ELEMENT: usize = 32;
/// What a byte of text costs.
const BYTE: usize = 2;
/// What a rendering may cost whatever its input: a million steps, or 16 MiB of text.
const BASE: usize = 32 << 20;
/// What each byte of the input adds: its text may be copied 128 times.
const PER_INPUT_BYTE: usize = 256;

/// Lists within lists, at most: far from the end of the stack.
pub(super) const MAX_DEPTH: u16 = 200;

/// What is left.
#[derive(Debug)]
pub(super) struct Budget(Cell<usize>);

impl Budget {
    /// For an input of so many bytes, each element of it counted as some.
    pub(super) fn for_input(bytes: usize) -> Self {
        Self(Cell::new(BASE.saturating_add(bytes.saturating_mul(PER_INPUT_BYTE))))
    }

    /// Takes from what is left.
    pub(super) fn charge(&self, cost: usize) -> Result<()> {
        match self.0.get().checked_sub(cost) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => {
                self.0.set(0);
                Err(Failure::new(
                    "it takes more time or memory than a chat template may: it loops, recurses, or makes texts or lists \
                     without end",
                ))
            }
        }
    }

    /// Pays for so many bytes of text.
    pub(super) fn charge_bytes(&self, bytes: usize) -> Result<()> {
        self.charge(bytes.saturating_mul(BYTE))
    }

    /// Pays for so many elements.
    pub(super) fn charge_elements(&self, elements: usize) -> Result<()> {
        self.charge(elements.saturating_mul(ELEMENT))
    }

    /// Adds to a text.
    pub(super) fn push(&self, text: &mut String, more: &str) -> Result<()> {
        self.charge_bytes(more.len())?;
        text.push_str(more);
        Ok(())
    }

    /// A text as a value.
    pub(super) fn text(&self, text: impl Into<Rc<str>>) -> Result<Value> {
        let text = text.into();
        self.charge_bytes(text.len())?;
        Ok(Value::Str(text))
    }

    /// A list.
    pub(super) fn list(&self, items: Vec<Value>) -> Result<Value> {
        self.seq(SeqKind::List, items)
    }

    /// A list, a tuple or a view.
    pub(super) fn seq(&self, kind: SeqKind, items: Vec<Value>) -> Result<Value> {
        self.charge_elements(items.len() + 1)?;
        let depth = depth(items.iter())?;
        Ok(Value::Seq(Rc::new(Seq { kind, items, depth })))
    }

    /// A dict; of equal keys the last one counts, at the place of the first.
    pub(super) fn dict(&self, entries: impl IntoIterator<Item = (Value, Value)>) -> Result<Value> {
        let mut dict = Dict::default();
        for (key, value) in entries {
            self.charge_elements(2)?;
            dict.insert(self, key, value)?;
        }
        dict.depth = depth(dict.entries.iter().map(|(_, value)| value))?;
        Ok(Value::Dict(Rc::new(dict)))
    }
}

/// One more than that of the deepest item.
fn depth<'a>(items: impl Iterator<Item = &'a Value>) -> Result<u16> {
    let depth = 1 + items.map(Value::depth).max().unwrap_or(0);
    if depth > MAX_DEPTH {
        return Err(Failure::new(format!("lists and dicts may be nested {MAX_DEPTH} deep")));
    }
    Ok(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_beyond_the_budget_fails_and_so_does_all_after_it() {
        let budget = Budget::for_input(0);
        assert!(budget.charge(BASE - 1).is_ok());
        assert!(budget.charge(2).is_err());
        assert!(budget.charge(1).is_err());
        assert!(Budget::for_input(usize::MAX).charge(usize::MAX).is_ok());
    }

    #[test]
    fn nesting_has_an_end() {
        let budget = Budget::for_input(0);
        let mut value = Value::None;
        for _ in 0..MAX_DEPTH {
            value = budget.list(vec![value]).unwrap();
        }
        assert!(budget.list(vec![value.clone()]).is_err());
        assert!(budget.dict([(Value::None, value)]).is_err());
    }
}
