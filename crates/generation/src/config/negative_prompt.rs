//! The fields of guidance that hold prompts: ids, and which of them are padding.

use rsgen_core::TokenId;

use super::GenerationConfig;
use super::field::{FieldType, OneOrMany};
use super::kind::FieldKind;
use super::value::FieldValue;

/// Negative prompts as token ids: one for all prompts, or one for each.
///
/// Written as a list of ids, or as a list of such lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NegativePromptIds {
    rows: Vec<Vec<TokenId>>,
}

impl NegativePromptIds {
    /// The negative prompts, one for all prompts or one for each.
    pub fn new(rows: Vec<Vec<TokenId>>) -> Self {
        Self { rows }
    }

    /// The negative prompts.
    pub fn rows(&self) -> &[Vec<TokenId>] {
        &self.rows
    }
}

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
    /// prompt is its own where there is a list of one for each.
    #[must_use]
    pub fn of_prompt(&self, index: usize, count: usize) -> Self {
        let mut own = self.clone();
        if let Some(OneOrMany::Many(texts)) = &mut own.negative_prompt
            && texts.len() == count
        {
            *texts = vec![texts.swap_remove(index)];
        }
        let keep = |len: usize| len == count && len > 1;
        if let Some(ids) = own.negative_prompt_ids.as_mut().filter(|ids| keep(ids.rows.len())) {
            ids.rows = vec![ids.rows.swap_remove(index)];
        }
        if let Some(mask) = own.negative_prompt_attention_mask.as_mut().filter(|mask| keep(mask.rows.len())) {
            mask.rows = vec![mask.rows.swap_remove(index)];
        }
        own
    }
}

/// Which ids of negative prompts are real, in the shape of the ids.
///
/// Written as a list of 0 and 1, or as a list of such lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NegativePromptMask {
    rows: Vec<Vec<bool>>,
}

impl NegativePromptMask {
    /// The masks, one for each negative prompt.
    pub fn new(rows: Vec<Vec<bool>>) -> Self {
        Self { rows }
    }

    /// The masks.
    pub fn rows(&self) -> &[Vec<bool>] {
        &self.rows
    }
}

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
