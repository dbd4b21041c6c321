//! The prompts that two processors use, under transformers' name: `encoder_input_ids`.

use rsgen_core::{Error, Result, TokenId, refuse_if};

use super::super::config::{FieldKind, FieldType, FieldValue};

/// The prompts of a request, `[num_prompts, prompt_len]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderInputIds {
    rows: Vec<Vec<TokenId>>,
}

impl EncoderInputIds {
    /// These prompts.
    pub fn new(rows: Vec<Vec<TokenId>>) -> Self {
        Self { rows }
    }

    /// The prompts.
    pub(super) fn rows(&self) -> &[Vec<TokenId>] {
        &self.rows
    }

    /// The prompts, or an error if there are none.
    pub(super) fn checked(self) -> Result<Self> {
        refuse_if(
            self.rows.is_empty(),
            "encoder_input_ids",
            || "must hold at least one prompt, but is empty; give the ids of the prompts",
        )?;
        Ok(self)
    }

    /// The prompt that row `row` of `num_rows` continues: each prompt has the same number of rows, which are
    /// consecutive.
    pub(super) fn of_row(&self, row: usize, num_rows: usize) -> Result<&[TokenId]> {
        let rows_each = (num_rows / self.rows.len()).max(1);
        self.rows.get(row / rows_each).map(Vec::as_slice).ok_or_else(|| {
            Error::input(format!(
                "must hold a prompt for each row, but has {} for {num_rows} rows",
                self.rows.len()
            ))
            .about("encoder_input_ids")
        })
    }
}

impl FieldType for EncoderInputIds {
    const KIND: FieldKind =
        FieldKind::Other("an array of token ids, one row for each prompt", "ArrayLike", &["array"]);

    fn parse(value: &FieldValue) -> Option<Self> {
        let rows = Vec::parse(value).or_else(|| Some(vec![Vec::parse(value)?]))?;
        Some(Self { rows })
    }

    fn to_value(&self) -> FieldValue {
        self.rows.to_value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_share_the_prompts_evenly() {
        let prompts = EncoderInputIds::new(vec![vec![TokenId(1)], vec![TokenId(2)]]);
        let of_rows = |num_rows| -> Vec<u32> {
            (0..num_rows).map(|row| prompts.of_row(row, num_rows).unwrap()[0].0).collect()
        };
        assert_eq!(of_rows(1), [1]);
        assert_eq!(of_rows(2), [1, 2]);
        assert_eq!(of_rows(6), [1, 1, 1, 2, 2, 2]);
        assert!(prompts.of_row(4, 5).unwrap_err().to_string().contains("has 2 for 5 rows"));
    }

    #[test]
    fn one_row_may_stand_alone() {
        let of = |json: serde_json::Value| EncoderInputIds::parse(&json.into());
        assert_eq!(of(serde_json::json!([1, 2])), of(serde_json::json!([[1, 2]])));
        assert_eq!(of(serde_json::json!(["a"])), None);
    }
}
