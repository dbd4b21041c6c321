//! The prompts of one request: rows of ids of equal width, some of which may be masked as padding.
//!
//! Rows of one request share one random generator, as the rows of a batch in transformers. Independent
//! prompts are separate requests, each with a batch of one row.

use super::embeddings::{EmbeddingRow, Embeddings};
use rsgen_core::{Error, Result, TokenId};

/// One prompt of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptRow {
    /// The ids, padding included. Beside embeddings they are what processors and criteria see of the prompt,
    /// and may be none.
    pub input_ids: Vec<TokenId>,
    /// Which positions of the embeddings, or without any of the ids, are real; the others are padding and
    /// never reach the model.
    pub mask: Vec<bool>,
    /// The embeddings that replace the ids for the model, padding included.
    pub embeddings: Option<Embeddings>,
}

impl PromptRow {
    /// The real tokens, padding left out. Ids that do not go with the embeddings one by one are all real.
    pub fn tokens(&self) -> Vec<TokenId> {
        if self.input_ids.len() != self.mask.len() {
            return self.input_ids.clone();
        }
        self.input_ids.iter().zip(&self.mask).filter_map(|(&id, &real)| real.then_some(id)).collect()
    }

    /// Ids without padding.
    pub fn of_ids(input_ids: Vec<TokenId>) -> Self {
        Self { mask: vec![true; input_ids.len()], input_ids, embeddings: None }
    }

    /// The number of ids before the first real one.
    pub fn padding_len(&self) -> usize {
        self.mask.iter().position(|&real| real).unwrap_or(self.mask.len())
    }
}

/// The input of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum RowInput {
    /// A token.
    Token(TokenId),
    /// An embedding instead of a token's, `[hidden_size]`.
    Embedding(EmbeddingRow),
}

/// The model's inputs of a prompt.
#[derive(Debug, Clone, Copy)]
pub enum PromptInputs<'a> {
    /// Its tokens.
    Tokens(&'a [TokenId]),
    /// Embeddings in their place.
    Embeddings(&'a Embeddings),
}

impl PromptInputs<'_> {
    /// The number of positions.
    #[expect(clippy::len_without_is_empty, reason = "prompts are not empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Tokens(tokens) => tokens.len(),
            Self::Embeddings(embeddings) => embeddings.len(),
        }
    }

    /// The input at a position.
    ///
    /// # Panics
    /// When there is none.
    pub fn input(&self, position: usize) -> RowInput {
        match self {
            Self::Tokens(tokens) => RowInput::Token(tokens[position]),
            Self::Embeddings(embeddings) => RowInput::Embedding(embeddings.row(position)),
        }
    }
}

/// The prompts of one request, at least one, of equal width of at least one id or embedding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptBatch {
    rows: Vec<PromptRow>,
    mask_given: bool,
}

impl PromptBatch {
    /// One prompt without padding.
    ///
    /// # Errors
    /// When it is empty.
    pub fn single(input_ids: Vec<TokenId>) -> Result<Self> {
        let mask = vec![true; input_ids.len()];
        Self::with_mask(vec![input_ids], vec![mask])
    }

    /// A rectangle of ids whose padding is inferred as transformers does it: see
    /// [`infer_mask`](Self::infer_mask).
    ///
    /// # Errors
    /// When there is no row, a row is empty, or rows differ in length.
    pub fn rectangular(input_ids: Vec<Vec<TokenId>>) -> Result<Self> {
        let masks = input_ids.iter().map(|row| vec![true; row.len()]).collect();
        Ok(Self { mask_given: false, ..Self::with_mask(input_ids, masks)? })
    }

    /// A rectangle of ids with an attention mask.
    ///
    /// # Errors
    /// When there is no row, a row is empty or all padding, or ids and mask are not of one rectangular shape.
    pub fn with_mask(input_ids: Vec<Vec<TokenId>>, masks: Vec<Vec<bool>>) -> Result<Self> {
        let width = input_ids.first().map_or(0, Vec::len);
        if width == 0 {
            return Err(Error::input(
                "the prompt has no token; give at least one, such as the model's bos_token_id",
            ));
        }
        if masks.len() != input_ids.len() {
            return Err(Error::input(format!(
                "attention_mask must have the shape of the ids, but has {} rows for {} prompts",
                masks.len(),
                input_ids.len()
            )));
        }
        for (index, (row, mask)) in input_ids.iter().zip(&masks).enumerate() {
            if row.len() != width {
                return Err(Error::input(format!(
                    "the prompts of one array must be of equal length, but prompt 0 has {width} ids and \
                     prompt {index} has \
                     {}; pad them on the left, or give a list of prompts",
                    row.len()
                )));
            }
            if mask.len() != width {
                return Err(Error::input(format!(
                    "attention_mask must have the shape of the ids, but row {index} has {} entries for \
                     {width} ids",
                    mask.len()
                )));
            }
            check_padding(index, mask)?;
        }
        let rows = input_ids.into_iter().zip(masks).map(|(input_ids, mask)| PromptRow {
            input_ids,
            mask,
            embeddings: None,
        });
        Ok(Self { rows: rows.collect(), mask_given: true })
    }

    /// Prompts whose embeddings are given. `input_ids` are what processors and criteria see of them: none, or
    /// rows of one length, which may differ from that of the embeddings. `masks` has an entry for each
    /// embedding.
    ///
    /// # Errors
    /// When there is no prompt, one is all padding, or the shapes do not fit together.
    pub fn with_embeddings(
        embeddings: Vec<Embeddings>,
        input_ids: Vec<Vec<TokenId>>,
        masks: Option<Vec<Vec<bool>>>,
    ) -> Result<Self> {
        let Some(first) = embeddings.first() else {
            return Err(Error::input("must hold at least one prompt, but is empty").about("inputs_embeds"));
        };
        let (count, len, hidden_size) = (embeddings.len(), first.len(), first.hidden_size());
        for (index, other) in embeddings.iter().enumerate() {
            if (other.len(), other.hidden_size()) != (len, hidden_size) {
                return Err(Error::input(format!(
                    "the `inputs_embeds` of one request must have one shape, but prompt 0 has [{len}, {hidden_size}] and \
                     prompt {index} [{}, {}]; pad them on the left, or give a list of prompts",
                    other.len(),
                    other.hidden_size()
                )));
            }
        }
        // A single prompt has no padding, whatever its ids.
        let mask_given = masks.is_some() || count == 1;
        let masks = masks.unwrap_or_else(|| vec![vec![true; len]; count]);
        if let Some(index) =
            masks.iter().position(|mask| mask.len() != len).or((masks.len() != count).then_some(0))
        {
            return Err(Error::input(format!(
                "must have the shape of the embeddings, [{count}, {len}], but has {} rows and {} \
                 entries in row {index}",
                masks.len(),
                masks.get(index).map_or(0, Vec::len)
            ))
            .about("attention_mask"));
        }
        masks.iter().enumerate().try_for_each(|(index, mask)| check_padding(index, mask))?;
        let input_ids = if input_ids.is_empty() { vec![Vec::new(); count] } else { input_ids };
        let width = input_ids[0].len();
        if input_ids.len() != count || input_ids.iter().any(|row| row.len() != width) {
            return Err(Error::input(format!(
                "beside `inputs_embeds` must have a row for each of their {count} prompts, all of one \
                 length, but there are {} rows of {:?} ids; leave them out, or give the ids that the \
                 embeddings stand for",
                input_ids.len(),
                input_ids.iter().map(Vec::len).take(8).collect::<Vec<_>>()
            ))
            .about("input_ids"));
        }
        let rows = embeddings.into_iter().zip(input_ids).zip(masks);
        let rows = rows.map(|((embeddings, input_ids), mask)| PromptRow {
            input_ids,
            mask,
            embeddings: Some(embeddings),
        });
        Ok(Self { rows: rows.collect(), mask_given })
    }

    /// The prompts.
    pub fn rows(&self) -> &[PromptRow] {
        &self.rows
    }

    /// The number of embeddings of each row, padding included; `None` for prompts of ids.
    pub fn embeddings_len(&self) -> Option<usize> {
        self.rows[0].embeddings.as_ref().map(Embeddings::len)
    }

    /// The number of ids in each row, padding included.
    pub fn width(&self) -> usize {
        self.rows[0].input_ids.len()
    }

    /// Whether the caller gave a mask.
    pub fn mask_given(&self) -> bool {
        self.mask_given
    }

    /// Without a mask from the caller, treats ids equal to `pad` as padding, unless `pad` is also an
    /// end-of-sequence token: then all ids are real.
    ///
    /// # Errors
    /// When a prompt is all padding.
    pub fn infer_mask(&mut self, pad: Option<TokenId>, eos: &[TokenId]) -> Result<()> {
        let Some(pad) = pad.filter(|pad| !self.mask_given && !eos.contains(pad)) else { return Ok(()) };
        // Ids that do not match the embeddings carry no padding.
        if self.embeddings_len().is_some_and(|len| len != self.width()) {
            return Ok(());
        }
        for (index, row) in self.rows.iter_mut().enumerate() {
            row.mask = row.input_ids.iter().map(|&id| id != pad).collect();
            check_padding(index, &row.mask)?;
        }
        Ok(())
    }
}

/// Refuses a prompt that is all padding.
fn check_padding(index: usize, mask: &[bool]) -> Result<()> {
    if mask.contains(&true) {
        return Ok(());
    }
    Err(Error::input(format!("prompt {index} is all padding; leave it out")).concerning_prompt(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn masked_ids_are_dropped_wherever_they_stand() {
        let batch = PromptBatch::with_mask(
            vec![ids(&[0, 0, 7, 8]), ids(&[5, 0, 6, 7])],
            vec![vec![false, false, true, true], vec![true, false, true, true]],
        )
        .unwrap();
        assert_eq!(batch.rows()[0].tokens(), ids(&[7, 8]));
        assert_eq!(batch.rows()[0].padding_len(), 2);
        assert_eq!(batch.rows()[1].tokens(), ids(&[5, 6, 7]));
        assert_eq!(batch.rows()[1].padding_len(), 0);
    }

    #[test]
    fn a_mask_is_inferred_from_the_pad_token_unless_it_also_ends_texts() {
        let batch = || PromptBatch::rectangular(vec![ids(&[2, 7, 8]), ids(&[5, 2, 7])]).unwrap();
        let mut inferred = batch();
        inferred.infer_mask(Some(TokenId(2)), &[TokenId(1)]).unwrap();
        assert_eq!(inferred.rows()[0].mask, [false, true, true]);
        assert_eq!(inferred.rows()[1].mask, [true, false, true]);
        for (pad, eos) in [(Some(TokenId(2)), vec![TokenId(1), TokenId(2)]), (None, vec![])] {
            let mut kept = batch();
            kept.infer_mask(pad, &eos).unwrap();
            assert_eq!(kept.rows()[0].mask, [true; 3]);
        }
        let mut single = PromptBatch::single(ids(&[2, 7])).unwrap();
        single.infer_mask(Some(TokenId(2)), &[]).unwrap();
        assert_eq!(single.rows()[0].mask, [true; 2]);
    }

    #[test]
    fn a_single_prompt_of_embeddings_has_no_padding() {
        let embeddings = || Embeddings::new(vec![0.5; 4], 2).unwrap();
        let mut single = PromptBatch::with_embeddings(vec![embeddings()], vec![ids(&[2, 7])], None).unwrap();
        single.infer_mask(Some(TokenId(2)), &[]).unwrap();
        assert_eq!(single.rows()[0].mask, [true; 2]);
        let both = vec![ids(&[2, 7]), ids(&[5, 6])];
        let mut batch = PromptBatch::with_embeddings(vec![embeddings(), embeddings()], both, None).unwrap();
        batch.infer_mask(Some(TokenId(2)), &[]).unwrap();
        assert_eq!(batch.rows()[0].mask, [false, true]);
    }

    #[test]
    fn shapes_that_are_no_rectangle_are_refused() {
        let message = |result: Result<PromptBatch>| result.unwrap_err().to_string();
        assert!(message(PromptBatch::single(vec![])).contains("no token"));
        assert!(message(PromptBatch::rectangular(vec![])).contains("no token"));
        assert!(
            message(PromptBatch::rectangular(vec![ids(&[1]), ids(&[1, 2])]))
                .contains("prompt 0 has 1 ids and prompt 1 has 2")
        );
        assert!(
            message(PromptBatch::with_mask(vec![ids(&[1, 2])], vec![vec![true]]))
                .contains("row 0 has 1 entries for 2 ids")
        );
        assert!(message(PromptBatch::with_mask(vec![ids(&[1])], vec![])).contains("0 rows for 1 prompts"));
        assert!(message(PromptBatch::with_mask(vec![ids(&[1])], vec![vec![false]])).contains("all padding"));
        let mut padded = PromptBatch::rectangular(vec![ids(&[2])]).unwrap();
        assert!(padded.infer_mask(Some(TokenId(2)), &[]).unwrap_err().to_string().contains("all padding"));
    }
}
