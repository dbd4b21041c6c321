//! Classifier-free guidance, as in transformers' `UnbatchedClassifierFreeGuidanceLogitsProcessor`.
//!
//! The logits of the negative prompt come from an unconditional sequence that runs beside each row: it forks,
//! rolls back and ends with it.

use rsgen_core::{Error, Result, TokenId, memory, message, refuse_if};

use super::super::config::{FieldKind, FieldType, FieldValue, NegativePromptIds, NegativePromptMask};
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Moves the log-probabilities away from those after a negative prompt.
#[derive(Debug, Clone)]
pub struct UnbatchedClassifierFreeGuidanceLogitsProcessor {
    scale: f32,
    /// The negative prompts without padding; empty when each row has the last token of its prompt instead.
    prompts: Vec<Vec<TokenId>>,
    /// The prompt of the call that the first of several negative prompts is for.
    first_prompt: usize,
}

impl UnbatchedClassifierFreeGuidanceLogitsProcessor {
    /// Above 1 moves away from the negative prompts, which are one for all prompts or one for each; 1 only
    /// makes the scores log-probabilities. Without them the unconditional sequence begins with the last token
    /// of the prompt. `model` and `use_cache` are accepted for transformers' sake: the model is that of the
    /// call, with its cache.
    ///
    /// # Errors
    /// When the scale is no number that float32 holds, or the mask has another shape than the ids.
    #[expect(clippy::needless_pass_by_value, reason = "as constructors take their arguments")]
    pub fn new(
        guidance_scale: f64,
        _model: OwnModel,
        unconditional_ids: Option<NegativePromptIds>,
        unconditional_attention_mask: Option<NegativePromptMask>,
        _use_cache: bool,
    ) -> Result<Self> {
        let prompts = match unconditional_ids {
            None => Vec::new(),
            Some(ids) => {
                let names = ["unconditional_ids", "unconditional_attention_mask"];
                masked(names, &ids, unconditional_attention_mask.as_ref())?
            }
        };
        Self::with_prompts(guidance_scale, prompts, 0)
    }

    fn with_prompts(guidance_scale: f64, prompts: Vec<Vec<TokenId>>, first_prompt: usize) -> Result<Self> {
        let scale = guidance_scale as f32;
        refuse_if(!scale.is_finite(), "guidance_scale", || {
            format!(
                "must be a number within the range of float32, but is {guidance_scale:?}; 1.5 is usual, \
                 and 1.0 is no guidance"
            )
        })?;
        Ok(Self { scale, prompts, first_prompt })
    }
}

/// The ids of negative prompts that `mask` says are real; `names` are those of the ids and the mask, for
/// errors.
///
/// # Errors
/// When there is no prompt, one is empty, or the mask has another shape.
pub(crate) fn masked(
    names: [&str; 2],
    ids: &NegativePromptIds,
    mask: Option<&NegativePromptMask>,
) -> Result<Vec<Vec<TokenId>>> {
    let [ids_name, mask_name] = names;
    let masks = mask.map(NegativePromptMask::rows);
    refuse_if(
        masks.is_some_and(|masks| !masks.iter().map(Vec::len).eq(ids.rows().iter().map(Vec::len))),
        mask_name,
        || format!("must have the shape of `{ids_name}`: 0 or 1 for each id"),
    )?;
    let mut prompts = ids.rows().to_vec();
    for (prompt, mask) in prompts.iter_mut().zip(masks.unwrap_or_default()) {
        let mut real = mask.iter();
        prompt.retain(|_| real.next() == Some(&true));
    }
    refuse_if(prompts.is_empty() || prompts.iter().any(Vec::is_empty), ids_name, || {
        "must hold at least one token that is not padding; leave it out to begin with the last \
                 token of the prompt"
    })?;
    Ok(prompts)
}

impl BuiltIn for UnbatchedClassifierFreeGuidanceLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let prompts = config.negative_prompts.clone();
        let scale = config.fields.guidance_scale.unwrap_or(1.0);
        let processor = Self::with_prompts(scale, prompts, config.first_prompt)?;
        Ok((scale != 1.0).then_some(processor))
    }
}

impl LogitsProcessor for UnbatchedClassifierFreeGuidanceLogitsProcessor {
    fn unconditional_prompt(&self, prompt_index: usize, prompt: &[TokenId]) -> Option<Vec<TokenId>> {
        if self.scale == 1.0 {
            return None;
        }
        Some(match &self.prompts[..] {
            [] => prompt[prompt.len().saturating_sub(1)..].to_vec(),
            [one] => one.clone(),
            // None for this prompt is an error of the plan.
            each => prompt_index
                .checked_sub(self.first_prompt)
                .and_then(|index| each.get(index))
                .cloned()
                .unwrap_or_default(),
        })
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        rsgen_kernels::log_softmax(row.isa, scores);
        if self.scale == 1.0 {
            return Ok(());
        }
        let Some(logits) = row.unconditional_logits() else {
            return Err(Error::input(message!(
                "guidance takes the logits of a negative prompt, which only a call of the model computes; \
                 pass the processor to `generate`, or set " {guidance_scale} " there"
            )));
        };
        let mut unconditional = memory::copied(logits, "log-probabilities")?;
        rsgen_kernels::log_softmax(row.isa, &mut unconditional);
        for (score, unconditional) in scores.iter_mut().zip(unconditional) {
            *score = self.scale * (*score - unconditional) + unconditional;
        }
        Ok(())
    }
}

/// The argument `model` of transformers' constructor: whatever it is, the model is that of the call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnModel;

impl FieldType for OwnModel {
    const KIND: FieldKind = FieldKind::Other("the model, which is that of the call", "object", &[]);

    fn parse(_value: &FieldValue) -> Option<Self> {
        Some(Self)
    }

    fn to_value(&self) -> FieldValue {
        FieldValue::Null
    }
}

#[cfg(test)]
mod tests {
    use super::super::UnconditionalLogits;
    use super::super::tests::FIRST;
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn guided(scale: f64, prompts: Vec<Vec<TokenId>>) -> UnbatchedClassifierFreeGuidanceLogitsProcessor {
        let ids = Some(prompts).filter(|prompts| !prompts.is_empty()).map(NegativePromptIds::new);
        UnbatchedClassifierFreeGuidanceLogitsProcessor::new(scale, OwnModel, ids, None, true).unwrap()
    }

    #[test]
    fn scores_move_away_from_those_of_the_negative_prompt() {
        let logits = [0.0, 0.0, 0.0_f32.exp().ln(), 2.0_f32.ln()];
        let rows = [Some(0)];
        let mut row = RowContext {
            unconditional: UnconditionalLogits { rows: &rows, logits: &logits, vocab_size: 4 },
            ..RowContext::of_prompt(&[])
        };
        // Probabilities of 1/4 each, and after the negative prompt of 1/5, 1/5, 1/5 and 2/5.
        let mut scores = [1.0; 4];
        guided(3.0, vec![]).process_row(&mut scores, &mut row).unwrap();
        let expected = [0.2, 0.2, 0.2, 0.4].map(|u: f32| 3.0 * (0.25_f32.ln() - u.ln()) + u.ln());
        for (score, expected) in scores.iter().zip(expected) {
            assert!((score - expected).abs() < 1e-6, "{scores:?} {expected}");
        }
    }

    // UnbatchedClassifierFreeGuidanceLogitsProcessor(1.0, None)(ids, scores), transformers 5.23
    #[test]
    fn a_scale_of_1_makes_log_probabilities_and_needs_no_model() {
        let mut scores = FIRST.to_vec();
        let one = guided(1.0, vec![ids(&[1])]);
        one.process_row(&mut scores, &mut RowContext::of_prompt(&[])).unwrap();
        let mut expected = FIRST.to_vec();
        rsgen_kernels::log_softmax(RowContext::of_prompt(&[]).isa, &mut expected);
        assert_eq!(scores, expected);
        assert_eq!(one.unconditional_prompt(0, &ids(&[4])), None);
        let error =
            guided(2.0, vec![]).process_row(&mut scores, &mut RowContext::of_prompt(&[])).unwrap_err();
        assert!(error.to_string().contains("only a call of the model computes"), "{error}");
    }

    #[test]
    fn a_row_has_its_own_negative_prompt_one_for_all_or_the_last_token_of_its_prompt() {
        let of = |prompts: &[&[u32]], index| {
            let prompts = prompts.iter().copied().map(ids).collect();
            guided(2.0, prompts).unconditional_prompt(index, &ids(&[7, 8])).unwrap()
        };
        assert_eq!(of(&[], 0), ids(&[8]));
        assert_eq!(of(&[&[1, 2]], 5), ids(&[1, 2]));
        assert_eq!(of(&[&[1, 2], &[3]], 1), ids(&[3]));
        assert_eq!(of(&[&[1, 2], &[3]], 2), ids(&[]));
    }

    #[test]
    fn padding_is_left_out_and_other_shapes_are_refused() {
        let new = |ids: &[&[u32]], mask: &[&[bool]]| {
            let ids = NegativePromptIds::new(ids.iter().map(|row| self::ids(row)).collect());
            let mask = NegativePromptMask::new(mask.iter().map(|row| row.to_vec()).collect());
            masked(["the_ids", "the_mask"], &ids, Some(&mask)).map_err(|error| error.to_string())
        };
        assert_eq!(new(&[&[0, 7]], &[&[false, true]]), Ok(vec![ids(&[7])]));
        assert!(
            new(&[&[0, 7]], &[&[true]]).unwrap_err().contains("`the_mask` must have the shape of `the_ids`")
        );
        for empty in [new(&[&[0]], &[&[false]]), new(&[], &[]), new(&[&[]], &[&[]])] {
            assert!(empty.unwrap_err().contains("`the_ids` must hold at least one token"));
        }
        for scale in [f64::NAN, f64::INFINITY, 1e39] {
            let error =
                UnbatchedClassifierFreeGuidanceLogitsProcessor::new(scale, OwnModel, None, None, true);
            assert!(error.unwrap_err().to_string().starts_with("`guidance_scale` must be a number"));
        }
    }
}
