//! Models with an encoder: prompts are its sources, and a call may give the decoder's prompts as well.

use std::sync::Arc;

use super::{Call, Generator, Prompt};
use crate::engine::{EvaluatedText, Interrupt, ModelRunner};
use rsgen_core::{AdapterWeights, Error, Result, TokenId, message, refuse_if};
use rsgen_generation::{EncoderContext, GenerationConfig, OneOrMany, PromptBatch, PromptRow};
use rsgen_model::cache::{BLOCK_TOKENS, blocks_for};

/// The most tokens of a target that nothing limits, after a short source.
const TARGET_LEN: usize = 512;

/// The prompts of the decoder in a call: one for all sources, or one for each.
#[derive(Debug, Clone, Default)]
pub(super) struct DecoderPrompts {
    rows: Option<Vec<Vec<TokenId>>>,
    masks: Option<Vec<Vec<bool>>>,
}

impl Call<'_> {
    /// What the decoder of a model with an encoder begins with, for all prompts or for each one: transformers'
    /// argument of that name. The start token is prepended unless a prompt begins with it. The output begins
    /// with these ids.
    pub fn decoder_input_ids(mut self, rows: Vec<Vec<TokenId>>) -> Self {
        self.decoder.rows = Some(rows);
        self
    }

    /// Which of the [`decoder_input_ids`](Self::decoder_input_ids) are real; padding stands before them.
    pub fn decoder_attention_mask(mut self, masks: Vec<Vec<bool>>) -> Self {
        self.decoder.masks = Some(masks);
        self
    }
}

impl DecoderPrompts {
    /// Takes what `target_prefix` begins the targets with.
    pub(super) fn begin(&mut self, rows: Vec<Vec<TokenId>>) -> Result<()> {
        refuse_if(self.are_given(), "target_prefix", || {
            message!("and `decoder_input_ids` say the same in two ways; leave out one of them")
        })?;
        self.rows = Some(rows);
        Ok(())
    }

    pub(super) fn are_given(&self) -> bool {
        self.rows.is_some()
    }

    /// Those of the requests of a call, given the number of prompts in each.
    pub(super) fn divide(self, counts: &[usize]) -> Result<Vec<Option<PromptBatch>>> {
        let Self { rows, masks } = self;
        let Some(mut rows) = rows else {
            refuse_if(
                masks.is_some(),
                "decoder_attention_mask",
                || "goes with `decoder_input_ids`, which are not given; leave it out",
            )?;
            return Ok(vec![None; counts.len()]);
        };
        let all: usize = counts.iter().sum();
        let wrong = |field: &'static str, found: usize, rule: String| {
            Err(Error::input(format!("must have {rule}, but has {found}")).about(field))
        };
        if masks.as_ref().is_some_and(|masks| masks.len() != rows.len()) {
            let found = masks.map_or(0, |masks| masks.len());
            return wrong(
                "decoder_attention_mask",
                found,
                format!("a row for each of the {} ids", rows.len()),
            );
        }
        if rows.len() != 1 && rows.len() != all {
            return wrong(
                "decoder_input_ids",
                rows.len(),
                format!("one row, or one for each prompt ({all})"),
            );
        }
        let mut masks =
            masks.unwrap_or_else(|| rows.iter().map(|row: &Vec<TokenId>| vec![true; row.len()]).collect());
        if rows.len() == 1 {
            (rows, masks) = (vec![rows.swap_remove(0); all], vec![masks.swap_remove(0); all]);
        }
        let (mut rows, mut masks) = (rows.into_iter(), masks.into_iter());
        let batch = |&count: &usize| {
            let batch = PromptBatch::with_mask(
                rows.by_ref().take(count).collect(),
                masks.by_ref().take(count).collect(),
            );
            batch
                .map(Some)
                .map_err(|error| error.context("`decoder_input_ids`").concerning("decoder_input_ids"))
        };
        counts.iter().map(batch).collect()
    }
}

impl Generator {
    /// What plans know of the model's encoder; `None` for a model without one.
    pub(super) fn encoder(&self) -> Option<EncoderContext> {
        let model = self.engine().model();
        let encoder = model.encoder()?;
        let pad = self.config().raw.get("pad_token_id").and_then(serde_json::Value::as_u64);
        let pad = pad.and_then(|pad| u32::try_from(pad).ok()).map(TokenId);
        Some(EncoderContext {
            max_source_len: encoder.max_source_len(),
            vocab_size: encoder.source_vocab_size(),
            has_positions: !model.can_shift(),
            position_pad: pad.filter(|&pad| encoder.slots(&[pad, pad]) != [0, 1]),
        })
    }

    /// Whether prompts are the sources of an encoder.
    pub fn has_encoder(&self) -> bool {
        self.engine().model().encoder().is_some()
    }

    /// Refuses what only a model without an encoder can do.
    pub(super) fn check_no_encoder(&self, what: &str, remedy: &str) -> Result<()> {
        if !self.has_encoder() {
            return Ok(());
        }
        Err(Error::input(format!(
            "{what} is not possible with {}, a model with an encoder; {remedy}",
            self.name()
        )))
    }

    /// The blocks of the cache that the longest of these sources takes, and the most tokens of a target that
    /// nothing else limits: many decoders have no end of their own.
    pub(super) fn source_room(&self, batches: &[Result<PromptBatch>]) -> (usize, usize) {
        if !self.has_encoder() {
            return (0, usize::MAX);
        }
        let rows = batches.iter().flatten().flat_map(PromptBatch::rows);
        let longest = rows.map(|row| row.mask.len()).max().unwrap_or(0);
        (blocks_for(longest), TARGET_LEN.max(2 * longest))
    }

    /// A target to score after its source: the decoder's start token and the target's tokens.
    pub(super) fn target(
        &self,
        (source, target): (Prompt, Prompt),
        interrupted: &mut Interrupt<'_>,
    ) -> Result<EvaluatedText> {
        let Some(encoder) = self.encoder() else {
            return Err(Error::input(format!(
                "a target follows a source in models with an encoder, which {} has not; score one text",
                self.name()
            )));
        };
        let source = self.encode_prompt(source, None, interrupted)?;
        let source = encoder.source("the source", &PromptRow::of_ids(source), 0)?;
        let defaults = self.generation_config();
        let start = match &defaults.decoder_start_token_id {
            Some(starts) => OneOrMany::as_slice(starts).first().copied(),
            None => defaults.bos_token_id,
        };
        let start = start.ok_or_else(|| {
            Error::config(message!(
                "or " {bos_token_id} " must be set in the model's files to score a target, but neither is"
            ))
            .about("decoder_start_token_id")
        })?;
        let mut token_ids = vec![start];
        token_ids.extend(match target {
            Prompt::Text(text) => {
                self.check_bytes(&text)?;
                self.tokenizer()?.encode_target_interruptible(&text, true, interrupted)?
            }
            target => self.encode_text(target, true, interrupted)?,
        });
        self.check_context(token_ids.len())?;
        Ok(EvaluatedText {
            token_ids,
            source: Some(Arc::new(source)),
            kept: None,
            adapters: AdapterWeights::default(),
            cache_salt: None,
        })
    }
}

/// The tokens of each row that fit into the cache. Limits only calls without a limit of their own:
/// one that asks for more is an error.
pub(super) fn room_in_cache(
    generator: &Generator,
    draft: Option<&ModelRunner>,
    config: &GenerationConfig,
    source_blocks: usize,
) -> usize {
    let rows = config.num_return_sequences.max(config.num_beams).unwrap_or(1).max(1);
    let blocks = generator.shared.engine.pool().stats().max_blocks;
    let blocks = draft.map_or(blocks, |draft| blocks.min(draft.pool().stats().max_blocks));
    // One block is reserved for the copy of a shared one.
    blocks.saturating_sub(source_blocks + usize::from(rows > 1)) / rows * BLOCK_TOKENS
}
