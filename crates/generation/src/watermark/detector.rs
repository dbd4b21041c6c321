//! The detector of green lists: transformers' `WatermarkDetector`.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::super::config::{SeedingScheme, WatermarkingConfig};
use super::GreenLists;
use super::erfc::erfc;
use rsgen_core::{Error, Result, TokenId, message};

/// Counts the green tokens of a text.
///
/// ```
/// use rsgen_core::types::TokenId;
/// use rsgen_generation::{WatermarkDetector, WatermarkingConfig};
///
/// let detector = WatermarkDetector::new(&WatermarkingConfig::default(), 8192, None)?;
/// let found = detector.detect(&[5, 70, 9, 300, 12].map(TokenId))?;
/// assert_eq!(found.num_tokens_scored, 4);
/// assert!(!found.prediction(3.0));
/// # Ok::<(), rsgen_core::error::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WatermarkDetector {
    lists: Arc<GreenLists>,
    bos_token_id: Option<TokenId>,
    ignore_repeated_ngrams: bool,
}

/// What a detector finds in a text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WatermarkDetection {
    /// The tokens that could be green.
    pub num_tokens_scored: usize,
    /// The tokens that are.
    pub num_green_tokens: usize,
    /// Their part.
    pub green_fraction: f64,
    /// How many standard deviations the number of green tokens is above that of a text without a mark.
    pub z_score: f64,
    /// How probable so many green tokens are in a text without a mark.
    pub p_value: f64,
    /// `1 - p_value`.
    pub confidence: f64,
}

impl WatermarkDetection {
    /// Whether the z-score is above `z_threshold`; 3.0 is usual.
    pub fn prediction(&self, z_threshold: f64) -> bool {
        self.z_score > z_threshold
    }
}

impl WatermarkDetector {
    /// A detector for the settings that texts were marked with, by a model with `vocab_size` logits. A text's
    /// `bos_token_id` in front is left out.
    ///
    /// # Errors
    /// `Config` for a value outside of its range.
    pub fn new(
        watermarking_config: &WatermarkingConfig,
        vocab_size: usize,
        bos_token_id: Option<TokenId>,
    ) -> Result<Self> {
        let lists = GreenLists::of(watermarking_config, vocab_size)?;
        Ok(Self { lists, bos_token_id, ignore_repeated_ngrams: false })
    }

    /// Whether n-grams that come again count once.
    #[must_use]
    pub fn ignore_repeated_ngrams(self, ignore_repeated_ngrams: bool) -> Self {
        Self { ignore_repeated_ngrams, ..self }
    }

    /// Looks at a text, best without its prompt.
    ///
    /// # Errors
    /// `Input` when it has no more tokens than `context_width`.
    pub fn detect(&self, input_ids: &[TokenId]) -> Result<WatermarkDetection> {
        self.detect_interruptible(input_ids, &mut || false)
    }

    /// [`WatermarkDetector::detect`], ended with a `Cancelled` when the callback, which is asked again and
    /// again, returns true.
    ///
    /// # Errors
    /// As for [`WatermarkDetector::detect`], and `Cancelled`.
    pub fn detect_interruptible(
        &self,
        input_ids: &[TokenId],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<WatermarkDetection> {
        let config = self.lists.config();
        let is_bos = input_ids.first().is_some_and(|first| self.bos_token_id == Some(*first));
        let tokens = &input_ids[usize::from(is_bos)..];
        if tokens.len() <= config.context_width {
            return Err(Error::input(message!(
                ("must hold more tokens than `context_width`, {}, besides a first ", config.context_width)
                {bos_token_id} (", but hold {}; give a longer text", tokens.len())
            ))
            .about("input_ids"));
        }
        // Of an n-gram the last token is judged. With selfhash it is one of those that the list depends on.
        let n = match config.seeding_scheme {
            SeedingScheme::LeftHash => config.context_width + 1,
            SeedingScheme::SelfHash => config.context_width,
        };
        let mut counts: HashMap<&[TokenId], usize> = HashMap::new();
        for ngram in tokens.windows(n) {
            if interrupted() {
                return Err(Error::cancelled());
            }
            *counts.entry(ngram).or_default() += 1;
        }
        let (mut num_tokens_scored, mut num_green_tokens) = (0, 0);
        for (ngram, count) in counts {
            if interrupted() {
                return Err(Error::cancelled());
            }
            let count = if self.ignore_repeated_ngrams { 1 } else { count };
            let (last, before) =
                ngram.split_last().ok_or_else(|| Error::internal("an n-gram without tokens"))?;
            num_tokens_scored += count;
            num_green_tokens += count * usize::from(self.lists.are_green(before, &[*last])? == [true]);
        }
        let (scored, green, ratio) =
            (num_tokens_scored as f64, num_green_tokens as f64, config.greenlist_ratio);
        let z_score = (green - ratio * scored) / (scored * ratio * (1.0 - ratio)).sqrt();
        let p_value = 0.5 * erfc(z_score / 2.0_f64.sqrt());
        Ok(WatermarkDetection {
            num_tokens_scored,
            num_green_tokens,
            green_fraction: green / scored,
            z_score,
            p_value,
            confidence: 1.0 - p_value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Vec<TokenId> {
        (0..40_u32).map(|index| TokenId(index * 7 % 11 + index / 20)).collect()
    }

    // d = WatermarkDetector(config, "cpu", dict(seeding_scheme=s, context_width=w, greenlist_ratio=r),
    // ignore) with vocab_size 61 and bos_token_id 0; d(torch.tensor([ids]), return_dict=True)
    #[test]
    fn counts_and_scores_are_those_of_transformers() {
        for &(scheme, context_width, ratio, ignores, scored, green, z_score, p_value) in CASES {
            let seeding_scheme =
                if scheme == "selfhash" { SeedingScheme::SelfHash } else { SeedingScheme::LeftHash };
            let config = WatermarkingConfig {
                greenlist_ratio: ratio,
                seeding_scheme,
                context_width,
                ..WatermarkingConfig::default()
            };
            let detector = WatermarkDetector::new(&config, 61, Some(TokenId(0))).unwrap();
            let found = detector.ignore_repeated_ngrams(ignores).detect(&tokens()).unwrap();
            assert_eq!((found.num_tokens_scored, found.num_green_tokens), (scored, green));
            assert_eq!(found.z_score, z_score);
            assert!((found.p_value - p_value).abs() <= 4.0 * f64::EPSILON * p_value, "{found:?} {p_value}");
            assert_eq!(found.confidence, 1.0 - found.p_value);
            assert_eq!(found.green_fraction, green as f64 / scored as f64);
            assert!(!found.prediction(z_score));
            assert!(found.prediction(z_score - 0.1));
        }
    }

    #[test]
    fn a_text_without_a_token_to_judge_is_refused() {
        let config = WatermarkingConfig { context_width: 3, ..WatermarkingConfig::default() };
        let detector = WatermarkDetector::new(&config, 61, Some(TokenId(9))).unwrap();
        for ids in [&[][..], &[1, 2, 3], &[9, 1, 2, 3]] {
            let ids: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
            let error = detector.detect(&ids).unwrap_err().to_string();
            assert!(
                error.starts_with("`input_ids` must hold more tokens than `context_width`, 3"),
                "{error}"
            );
        }
        assert_eq!(detector.detect(&[1, 2, 3, 4].map(TokenId)).unwrap().num_tokens_scored, 1);
    }

    type Case = (&'static str, usize, f64, bool, usize, usize, f64, f64);
    #[allow(clippy::unreadable_literal, clippy::excessive_precision, reason = "as torch prints them")]
    const CASES: &[Case] = &[
        ("lefthash", 1, 0.25, false, 38, 13, 1.3112201362143716, 0.09489170060836344),
        ("lefthash", 1, 0.5, true, 14, 7, 0.0, 0.5),
        ("lefthash", 3, 0.25, false, 36, 12, 1.1547005383792515, 0.12410653949496182),
        ("selfhash", 1, 0.25, false, 39, 7, -1.0169503597462533, 0.8454114776835442),
        ("selfhash", 2, 0.3, true, 14, 2, -1.2830660557435696, 0.9002655326329498),
        ("selfhash", 4, 0.6, false, 36, 10, -3.9464001411506757, 0.9999603325063986),
    ];
}
