//! The fields of guidance that hold prompts: ids, and which of them are padding.

use rsgen_core::TokenId;

use super::GenerationConfig;
use super::field::{FieldType, OneOrMany};
use super::kind::FieldKind;
use super::value::FieldValue;

/// What is given of negative prompts: one row for all prompts, or one for each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NegativeRows<T> {
    rows: Vec<Vec<T>>,
}

impl<T> NegativeRows<T> {
    /// One row for all prompts, or one for each.
    pub fn new(rows: Vec<Vec<T>>) -> Self {
        Self { rows }
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<T>] {
        &self.rows
    }

    /// Keeps the row of a prompt, the `index`th of `count`, where there is a list of one for each.
    fn keep(&mut self, index: usize, count: usize) {
        if self.rows.len() == count && count > 1 {
            self.rows = vec![self.rows.swap_remove(index)];
        }
    }
}

/// Negative prompts as token ids: one for all prompts, or one for each.
///
/// Written as a list of ids, or as a list of such lists.
pub type NegativePromptIds = NegativeRows<TokenId>;

impl From<Vec<TokenId>> for NegativePromptIds {
    fn from(ids: Vec<TokenId>) -> Self {
        Self { rows: vec![ids] }
    }
}

impl From<Vec<Vec<TokenId>>> for NegativePromptIds {
    fn from(rows: Vec<Vec<TokenId>>) -> Self {
        Self { rows }
    }
}

impl FieldType for NegativePromptIds {
    const KIND: FieldKind = FieldKind::Described(
        "a list of token ids, or a list of such lists, one for each prompt",
        &FieldKind::AnyOf(&[FieldKind::IDS, FieldKind::List(&FieldKind::IDS, usize::MAX)]),
    );

    fn parse(value: &FieldValue) -> Option<Self> {
        let rows = Vec::parse(value).or_else(|| Some(vec![Vec::parse(value)?]))?;
        Some(Self { rows })
    }

    fn to_value(&self) -> FieldValue {
        self.rows.to_value()
    }
}

impl GenerationConfig {
    /// The configuration of one prompt, the `index`th of `count` that become calls of their own: the negative
    /// prompt and the beginning of the target are its own where there is a list of one for each.
    #[must_use]
    pub fn of_prompt(&self, index: usize, count: usize) -> Self {
        let mut own = self.clone();
        for texts in [&mut own.negative_prompt, &mut own.target_prefix] {
            if let Some(OneOrMany::Many(texts)) = texts
                && texts.len() == count
            {
                *texts = vec![texts.swap_remove(index)];
            }
        }
        own.negative_prompt_ids.iter_mut().for_each(|ids| ids.keep(index, count));
        own.negative_prompt_attention_mask.iter_mut().for_each(|mask| mask.keep(index, count));
        own
    }
}

/// Which ids of negative prompts are real, in the shape of the ids.
///
/// Written as a list of 0 and 1, or as a list of such lists.
pub type NegativePromptMask = NegativeRows<bool>;

impl FieldType for NegativePromptMask {
    const KIND: FieldKind = FieldKind::Other(
        "a list of 0 and 1, or a list of such lists, one for each negative prompt",
        "list[int] | list[list[int]]",
        &["array"],
    );

    fn parse(value: &FieldValue) -> Option<Self> {
        let FieldValue::List(values) = value else { return None };
        let rows: Option<Vec<_>> = values.iter().map(mask).collect();
        Some(Self { rows: rows.or_else(|| Some(vec![mask(value)?]))? })
    }

    fn to_value(&self) -> FieldValue {
        let row = |row: &Vec<bool>| row.iter().map(|&real| FieldValue::Int(real.into())).collect();
        self.rows.iter().map(row).collect()
    }
}

/// A list of 0 and 1, or of truth values.
fn mask(value: &FieldValue) -> Option<Vec<bool>> {
    let FieldValue::List(values) = value else { return None };
    let real = |value: &FieldValue| match value {
        FieldValue::Bool(real) => Some(*real),
        FieldValue::Int(0) => Some(false),
        FieldValue::Int(1) => Some(true),
        _ => None,
    };
    values.iter().map(real).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_prompt_may_stand_alone() {
        let ids = |json: serde_json::Value| NegativePromptIds::parse(&json.into());
        assert_eq!(ids(json!([1, 2])), ids(json!([[1, 2]])));
        assert_eq!(ids(json!([1, 2])), Some(vec![TokenId(1), TokenId(2)].into()));
        assert_eq!(ids(json!([[1], [2, 3]])).map(|ids| ids.rows().len()), Some(2));
        assert_eq!((ids(json!("a")), ids(json!([[1], 2])), ids(json!([-1]))), (None, None, None));
        let mask = |json: serde_json::Value| NegativePromptMask::parse(&json.into());
        assert_eq!(mask(json!([0, 1])), mask(json!([[false, true]])));
        assert_eq!((mask(json!([2])), mask(json!(1)), mask(json!([[1], 1]))), (None, None, None));
        assert_eq!(mask(json!([0, 1])).unwrap().to_value(), json!([[0, 1]]).into());
    }
}
