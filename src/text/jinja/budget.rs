//! What a rendering may cost, in time and in memory, so that neither can run away.
//!
//! Every step of the interpreter is paid for, every byte of text it makes and every element of a list, before it is made;
//! what was made stays paid for when it goes. Larger inputs have larger budgets: a long conversation is no attack.

use std::cell::Cell;
use std::rc::Rc;

use super::failure::{Failure, Result};
use super::value::{Dict, Seq, SeqKind, Value};

/// The steps of a rendering, whatever its input. A step is one expression or statement: some tens of nanoseconds.
const STEPS: usize = 500_000;
/// The steps that each byte of the input adds.
const STEPS_PER_INPUT_BYTE: usize = 40;
/// The bytes that a rendering may make, whatever its input.
const BYTES: usize = 16 << 20;
/// The bytes that each byte of the input adds: templates copy it a dozen times.
const BYTES_PER_INPUT_BYTE: usize = 128;
/// Bytes of text that are made or looked through in the time of a step.
const BYTES_PER_STEP: usize = 32;
/// The bytes of an element of a list or dict, besides what it holds.
const ELEMENT_BYTES: usize = 32;

/// Lists within lists, at most: far from the end of the stack.
pub(super) const MAX_DEPTH: u16 = 200;

/// What is left.
#[derive(Debug)]
pub(super) struct Budget {
    steps: Cell<usize>,
    bytes: Cell<usize>,
}

impl Budget {
    /// For an input of so many bytes, each element of it counted as some.
    pub(super) fn for_input(bytes: usize) -> Self {
        let budget =
            |base: usize, per_byte: usize| Cell::new(base.saturating_add(bytes.saturating_mul(per_byte)));
        Self { steps: budget(STEPS, STEPS_PER_INPUT_BYTE), bytes: budget(BYTES, BYTES_PER_INPUT_BYTE) }
    }

    /// Pays for so many steps.
    pub(super) fn charge(&self, steps: usize) -> Result<()> {
        take(&self.steps, steps, "time")
    }

    /// Pays for looking through so many bytes of text.
    pub(super) fn scan(&self, bytes: usize) -> Result<()> {
        self.charge(bytes / BYTES_PER_STEP)
    }

    /// Pays for making so many bytes of text.
    pub(super) fn charge_bytes(&self, bytes: usize) -> Result<()> {
        self.scan(bytes)?;
        take(&self.bytes, bytes, "memory")
    }

    /// Pays for so many elements.
    pub(super) fn charge_elements(&self, elements: usize) -> Result<()> {
        self.charge(elements)?;
        take(&self.bytes, elements.saturating_mul(ELEMENT_BYTES), "memory")
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

fn take(left: &Cell<usize>, amount: usize, of: &str) -> Result<()> {
    let rest = left.get().checked_sub(amount);
    left.set(rest.unwrap_or(0));
    rest.map(|_| ()).ok_or_else(|| {
        Failure::new(format!(
            "it takes more {of} than a chat template may: it loops, recurses, or makes texts or lists without end"
        ))
    })
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
        assert!(budget.charge(STEPS - 1).is_ok());
        assert!(budget.charge(2).is_err());
        assert!(budget.charge(1).is_err());
        let budget = Budget::for_input(1);
        assert!(budget.charge_bytes(BYTES).is_err(), "making so much takes too long");
        let budget = Budget::for_input(10);
        assert!(budget.charge_elements(STEPS + 400).is_ok());
        assert!(budget.charge_elements(1).is_err(), "nothing is left");
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
