//! The detector of SynthID: transformers' `SynthIDTextWatermarkDetector`, and the scores that need no trained
//! model.

use super::super::config::SynthIDTextWatermarkingConfig;
use super::bayesian::BayesianDetectorModel;
use super::synthid::GValues;
use rsgen_core::{Error, Result, TokenId};

/// Computes the g-values of texts, and scores from them.
///
/// ```
/// use rsgen_core::types::TokenId;
/// use rsgen_generation::{SynthIDTextWatermarkDetector, SynthIDTextWatermarkingConfig};
///
/// let watermark = SynthIDTextWatermarkingConfig::new(3, vec![654, 400, 836]);
/// let detector = SynthIDTextWatermarkDetector::new(watermark, [TokenId(0)])?;
/// let scores = detector.detect(&[5, 70, 9, 300, 12].map(TokenId))?;
/// assert_eq!(scores.mask.len(), 3); // n-grams
/// assert!((0.0..=1.0).contains(&scores.mean()));
/// # Ok::<(), rsgen_core::error::Error>(())
/// ```
#[derive(Debug)]
pub struct SynthIDTextWatermarkDetector {
    values: GValues,
    eos_token_ids: Vec<TokenId>,
}

/// What a detector computes of a text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SynthIDScores {
    /// The g-values, `[num_ngrams, depth]`.
    pub g_values: Vec<bool>,
    /// Which n-grams count: those before the end of the text whose context is new, `[num_ngrams]`.
    pub mask: Vec<bool>,
    /// The number of keys.
    pub depth: usize,
}

impl SynthIDTextWatermarkDetector {
    /// A detector for the settings that texts were marked with. From the first of `eos_token_ids` on, tokens
    /// do not count.
    ///
    /// # Errors
    /// `Config` for a value outside of its range.
    pub fn new(
        watermarking_config: SynthIDTextWatermarkingConfig,
        eos_token_ids: impl Into<Vec<TokenId>>,
    ) -> Result<Self> {
        Ok(Self { values: GValues::new(watermarking_config)?, eos_token_ids: eos_token_ids.into() })
    }

    /// The g-values of a text, best without its prompt, and which of them count.
    ///
    /// # Errors
    /// As for [`compute_g_values`](Self::compute_g_values).
    pub fn detect(&self, input_ids: &[TokenId]) -> Result<SynthIDScores> {
        self.detect_interruptible(input_ids, &mut || false)
    }

    /// [`SynthIDTextWatermarkDetector::detect`], ended with a `Cancelled` when the callback, which is asked
    /// again and again, returns true.
    ///
    /// # Errors
    /// As for [`SynthIDTextWatermarkDetector::detect`], and `Cancelled`.
    pub fn detect_interruptible(
        &self,
        input_ids: &[TokenId],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<SynthIDScores> {
        self.check(input_ids)?;
        let g_values = self.values.of_ngrams(input_ids, interrupted)?;
        let mut mask = self.values.new_contexts(input_ids, interrupted)?;
        let eos = self.compute_eos_token_mask(input_ids);
        let skipped = self.values.config().ngram_len - 1;
        for (counts, is_before_eos) in mask.iter_mut().zip(&eos[skipped..]) {
            *counts &= is_before_eos;
        }
        Ok(SynthIDScores { g_values, mask, depth: self.values.depth() })
    }

    /// The g-values of each n-gram, `[num_ngrams, depth]`.
    ///
    /// # Errors
    /// `Input` when the text has fewer than `ngram_len` tokens.
    pub fn compute_g_values(&self, input_ids: &[TokenId]) -> Result<Vec<bool>> {
        self.check(input_ids)?;
        self.values.of_ngrams(input_ids, &mut || false)
    }

    /// For each n-gram whether the tokens before its last one are not among the latest contexts,
    /// `[num_ngrams]`.
    ///
    /// # Errors
    /// `Input` when the text has fewer than `ngram_len` tokens.
    pub fn compute_context_repetition_mask(&self, input_ids: &[TokenId]) -> Result<Vec<bool>> {
        self.compute_context_repetition_mask_interruptible(input_ids, &mut || false)
    }

    /// [`SynthIDTextWatermarkDetector::compute_context_repetition_mask`], ended with a `Cancelled` when the
    /// callback returns true.
    ///
    /// # Errors
    /// As for [`SynthIDTextWatermarkDetector::compute_context_repetition_mask`], and `Cancelled`.
    pub fn compute_context_repetition_mask_interruptible(
        &self,
        input_ids: &[TokenId],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<bool>> {
        self.check(input_ids)?;
        self.values.new_contexts(input_ids, interrupted)
    }

    /// For each token whether it comes before the first one that ends texts, `[len]`.
    pub fn compute_eos_token_mask(&self, input_ids: &[TokenId]) -> Vec<bool> {
        let end = input_ids.iter().position(|token| self.eos_token_ids.contains(token));
        (0..input_ids.len()).map(|index| end.is_none_or(|end| index < end)).collect()
    }

    fn check(&self, input_ids: &[TokenId]) -> Result<()> {
        let ngram_len = self.values.config().ngram_len;
        if input_ids.len() >= ngram_len {
            return Ok(());
        }
        Err(Error::input(format!(
            "must hold at least `ngram_len` tokens, {ngram_len}, but hold {}; give a longer text",
            input_ids.len()
        ))
        .about("input_ids"))
    }
}

impl SynthIDScores {
    /// The mean of the g-values that count; about 0.5 without a mark. NaN where none counts.
    pub fn mean(&self) -> f64 {
        self.weighted(|_| 1.0)
    }

    /// The mean with layers weighted from 10, the first, down to 1. NaN where none counts.
    pub fn weighted_mean(&self) -> f64 {
        let steps = (self.depth - 1).max(1) as f64;
        let weight = |layer: usize| 10.0 - 9.0 * layer as f64 / steps;
        let sum: f64 = (0..self.depth).map(weight).sum();
        self.weighted(|layer| weight(layer) * self.depth as f64 / sum)
    }

    /// The probability of a mark, by a trained model.
    ///
    /// # Errors
    /// `Input` when the model was trained for another number of keys.
    pub fn posterior(&self, model: &BayesianDetectorModel) -> Result<f32> {
        model.posterior(&self.g_values, &self.mask)
    }

    /// [`SynthIDScores::posterior`], ended with a `Cancelled` when the callback returns true.
    ///
    /// # Errors
    /// As for [`SynthIDScores::posterior`], and `Cancelled`.
    pub fn posterior_interruptible(
        &self,
        model: &BayesianDetectorModel,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<f32> {
        model.posterior_interruptible(&self.g_values, &self.mask, interrupted)
    }

    fn weighted(&self, weight: impl Fn(usize) -> f64) -> f64 {
        let counting = self.g_values.chunks_exact(self.depth).zip(&self.mask).filter(|(_, counts)| **counts);
        let mut wins = vec![0_usize; self.depth];
        let mut num_ngrams = 0_usize;
        for (values, _) in counting {
            num_ngrams += 1;
            for (wins, value) in wins.iter_mut().zip(values) {
                *wins += usize::from(*value);
            }
        }
        let sum: f64 = wins.iter().enumerate().map(|(layer, &wins)| wins as f64 * weight(layer)).sum();
        sum / (self.depth * num_ngrams) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detector(ngram_len: usize, history: usize) -> SynthIDTextWatermarkDetector {
        let config = SynthIDTextWatermarkingConfig {
            context_history_size: history,
            ..SynthIDTextWatermarkingConfig::new(ngram_len, vec![5, 6, 7])
        };
        SynthIDTextWatermarkDetector::new(config, [TokenId(9)]).unwrap()
    }

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn bits(values: &[bool]) -> Vec<u8> {
        values.iter().copied().map(u8::from).collect()
    }

    // p = SynthIDTextWatermarkLogitsProcessor(3, [5, 6, 7], 65536, 0, 4, "cpu"); x = torch.tensor([[1, 2, 1,
    // 2, 3, 1, 2, 9, 1]]) p.compute_g_values(x), p.compute_context_repetition_mask(x),
    // p.compute_eos_token_mask(x, 9)
    #[test]
    fn g_values_and_masks_are_those_of_transformers() {
        let (detector, text) = (detector(3, 4), ids(&[1, 2, 1, 2, 3, 1, 2, 9, 1]));
        assert_eq!(bits(&detector.compute_g_values(&text).unwrap()), G_VALUES);
        assert_eq!(bits(&detector.compute_context_repetition_mask(&text).unwrap()), CONTEXTS);
        assert_eq!(bits(&detector.compute_eos_token_mask(&text)), ENDS);
        let scores = detector.detect(&text).unwrap();
        assert_eq!(scores.g_values, detector.compute_g_values(&text).unwrap());
        let both: Vec<bool> = (0..7).map(|index| CONTEXTS[index] == 1 && ENDS[index + 2] == 1).collect();
        assert_eq!(scores.mask, both);
    }

    #[test]
    fn means_count_what_the_mask_leaves() {
        let scores = SynthIDScores {
            g_values: [1, 0, 1, 1, 1, 1, 0, 0, 1].map(|value| value == 1).to_vec(),
            mask: vec![true, false, true],
            depth: 3,
        };
        assert_eq!(scores.mean(), 3.0 / 6.0);
        // The weights 10, 5.5 and 1, scaled to a sum of 3.
        let scale = 3.0 / 16.5;
        assert!((scores.weighted_mean() - (10.0 + 2.0) * scale / 6.0).abs() < 1e-15);
        assert!(SynthIDScores { mask: vec![false; 3], ..scores }.mean().is_nan());
        let single = SynthIDScores { g_values: vec![true, false], mask: vec![true; 2], depth: 1 };
        assert_eq!((single.mean(), single.weighted_mean()), (0.5, 0.5));
    }

    #[test]
    fn a_text_shorter_than_an_ngram_is_refused() {
        let error = detector(5, 4).detect(&ids(&[1, 2, 3, 4])).unwrap_err().to_string();
        assert!(error.contains("at least `ngram_len` tokens, 5, but hold 4"), "{error}");
        assert_eq!(detector(5, 4).detect(&ids(&[1, 2, 3, 4, 5])).unwrap().mask, [true]);
    }

    const G_VALUES: [u8; 21] = [1, 1, 1, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0];
    const CONTEXTS: [u8; 7] = [1, 1, 0, 1, 1, 0, 1];
    const ENDS: [u8; 9] = [1, 1, 1, 1, 1, 1, 1, 0, 0];
}
