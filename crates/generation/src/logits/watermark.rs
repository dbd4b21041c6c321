//! A bias for the tokens of pseudorandom green lists, as in transformers' `WatermarkLogitsProcessor`.

use std::sync::Arc;

use rsgen_core::{Result, TokenId, refuse_if};

use super::super::config::{SeedingScheme, Watermarking, WatermarkingConfig};
use super::super::resolved::ResolvedConfig;
use super::super::watermark::GreenLists;
use super::{BuiltIn, LogitsProcessor, RowContext};
use rsgen_kernels::torch_sort::largest_set;

/// The candidates that selfhash looks at.
const CANDIDATES: usize = 40;

/// Adds a bias to the scores of green tokens, which the tokens before, a key and, with selfhash, the token
/// itself decide.
#[derive(Debug, Clone)]
pub struct WatermarkLogitsProcessor {
    lists: Arc<GreenLists>,
}

impl WatermarkLogitsProcessor {
    /// Green lists of the tokens below `vocab_size`.
    ///
    /// # Errors
    /// When a value is outside of its range: see [`WatermarkingConfig`].
    pub fn new(
        vocab_size: usize,
        greenlist_ratio: f64,
        bias: f64,
        hashing_key: i128,
        seeding_scheme: SeedingScheme,
        context_width: usize,
    ) -> Result<Self> {
        let config = WatermarkingConfig { greenlist_ratio, bias, hashing_key, seeding_scheme, context_width };
        Ok(Self { lists: GreenLists::of(&config, vocab_size)? })
    }
}

impl BuiltIn for WatermarkLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(Watermarking::GreenList(watermarking)) = &config.fields.watermarking_config else {
            return Ok(None);
        };
        let lists = GreenLists::of(watermarking, config.vocab_size)
            .map_err(|error| error.within("watermarking_config"))?;
        Ok(Some(Self { lists }))
    }
}

impl LogitsProcessor for WatermarkLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        refuse_if(scores.len() < self.lists.vocab_size(), "vocab_size", || {
            format!(
                "must be at most the number of scores, {}, but is {}",
                scores.len(),
                self.lists.vocab_size()
            )
        })?;
        let config = self.lists.config();
        let bias = config.bias as f32;
        let Some(last) = row.input_ids.last().filter(|_| row.input_ids.len() >= config.context_width) else {
            return Ok(());
        };
        match config.seeding_scheme {
            SeedingScheme::LeftHash => {
                let list = self.lists.list_after(*last)?;
                for (word, scores) in list.iter().zip(scores.chunks_mut(64)) {
                    for (place, score) in scores.iter_mut().enumerate() {
                        if word >> place & 1 == 1 {
                            *score += bias;
                        }
                    }
                }
            }
            SeedingScheme::SelfHash => {
                // Removed tokens stay removed.
                let candidates = largest_set(scores, CANDIDATES)?.into_iter().map(TokenId);
                let candidates: Vec<TokenId> =
                    candidates.filter(|token| scores[token.index()] > f32::NEG_INFINITY).collect();
                let green = self.lists.are_green(row.input_ids, &candidates)?;
                for (token, _) in candidates.iter().zip(green).filter(|(_, green)| *green) {
                    scores[token.index()] += bias;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::GenerationConfig;
    use super::super::tests::{process, resolved};
    use super::*;

    fn processor(
        vocab_size: usize,
        seeding_scheme: SeedingScheme,
        context_width: usize,
    ) -> WatermarkLogitsProcessor {
        WatermarkLogitsProcessor::new(vocab_size, 0.25, 2.0, 15_485_863, seeding_scheme, context_width)
            .unwrap()
    }

    fn gained(processor: &WatermarkLogitsProcessor, ids: &[u32], scores: &[f32]) -> Vec<usize> {
        let processed = process(processor, ids, scores);
        (0..scores.len())
            .filter(|&token| {
                let gained = processed[token] != scores[token];
                assert!(!gained || processed[token] == scores[token] + 2.0);
                gained
            })
            .collect()
    }

    // scores = (torch.arange(50) * 7919 + 13) % 1009 * 0.01 WatermarkLogitsProcessor(50, "cpu",
    // seeding_scheme=…, context_width=…)(torch.tensor([ids]), scores[None])
    fn scores() -> Vec<f32> {
        (0..50).map(|index| ((index * 7919 + 13) % 1009) as f32 * 0.01).collect()
    }

    #[test]
    fn green_tokens_gain_the_bias_as_in_transformers() {
        let left = processor(50, SeedingScheme::LeftHash, 2);
        assert_eq!(gained(&left, &[4, 7], &scores()), LEFT);
        assert_eq!(gained(&left, &[9, 7], &scores()), LEFT, "the last token alone counts");
        assert_eq!(gained(&left, &[7], &scores()), [0; 0], "too few tokens");
        let own = processor(50, SeedingScheme::SelfHash, 3);
        assert_eq!(gained(&own, &[4, 7, 9], &scores()), OWN);
        assert_eq!(gained(&own, &[7, 9], &scores()), [0; 0], "too few tokens");
    }

    #[test]
    fn of_many_tokens_the_forty_best_can_gain_and_removed_ones_stay_so() {
        let own = processor(500, SeedingScheme::SelfHash, 1);
        let rising: Vec<f32> = (0..500).map(|index| index as f32 * 0.01).collect();
        let best = gained(&own, &[3], &rising);
        assert!(best.len() > 2 && best.iter().all(|token| *token >= 460), "{best:?}");
        let mut few = vec![f32::NEG_INFINITY; 500];
        few[best[0]] = 0.5;
        assert_eq!(gained(&own, &[3], &few), best[..1]);
        assert_eq!(gained(&own, &[3], &[f32::NEG_INFINITY; 500]), [0; 0]);
    }

    #[test]
    fn a_vocabulary_beyond_the_scores_is_refused() {
        let mut row = RowContext::of_prompt(&[TokenId(1)]);
        let error =
            processor(51, SeedingScheme::LeftHash, 1).process_row(&mut [0.0; 50], &mut row).unwrap_err();
        assert!(
            error.to_string().contains("`vocab_size` must be at most the number of scores, 50"),
            "{error}"
        );
    }

    #[test]
    fn the_field_switches_it_on_and_its_errors_name_the_field() {
        let built = |config: WatermarkingConfig| {
            let config = GenerationConfig::new().watermarking_config(config);
            WatermarkLogitsProcessor::from_config(&resolved(&config)).map(|built| built.is_some())
        };
        assert!(built(WatermarkingConfig::default()).unwrap());
        let wrong = WatermarkingConfig { greenlist_ratio: 1.5, ..WatermarkingConfig::default() };
        let error = built(wrong).unwrap_err().to_string();
        assert!(error.starts_with("`watermarking_config`: `greenlist_ratio` must be above 0"), "{error}");
    }

    const LEFT: [usize; 12] = [1, 7, 16, 18, 19, 23, 28, 31, 34, 42, 44, 46];
    const OWN: &[usize] = &[14, 16, 22, 47];
}
