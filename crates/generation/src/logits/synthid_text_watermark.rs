//! SynthID's watermark, as in transformers' `SynthIDTextWatermarkLogitsProcessor`.

use rsgen_core::{Result, memory};
use rsgen_kernels::torch_reduce::{ln, sum};

use super::super::config::{SynthIDTextWatermarkingConfig, Watermarking};
use super::super::resolved::ResolvedConfig;
use super::super::watermark::{GTable, GValues};
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Replaces the scores by log-probabilities after a tournament between candidates in several layers, whose
/// winners keys and the tokens before decide.
///
/// transformers remembers contexts from call to call and from row to row. Here they follow from the generated
/// tokens.
#[derive(Debug)]
pub struct SynthIDTextWatermarkLogitsProcessor {
    values: GValues,
}

impl SynthIDTextWatermarkLogitsProcessor {
    /// A tournament with a layer for each of `keys`.
    ///
    /// # Errors
    /// When a value is outside of its range: see [`SynthIDTextWatermarkingConfig`].
    pub fn new(
        ngram_len: usize,
        keys: Vec<i64>,
        sampling_table_size: usize,
        sampling_table_seed: u64,
        context_history_size: usize,
        skip_first_ngram_calls: bool,
        debug_mode: bool,
    ) -> Result<Self> {
        let values = GValues::new(SynthIDTextWatermarkingConfig {
            ngram_len,
            keys,
            context_history_size,
            sampling_table_seed,
            sampling_table_size,
            skip_first_ngram_calls,
            debug_mode,
        })?;
        Ok(Self { values })
    }

    /// Replaces `scores` by what the tournament after the context makes of them.
    fn play(&self, scores: &mut [f32], row: &RowContext<'_>, context: u64) -> Result<()> {
        // A row without a distribution is left to the search, which reports the error.
        if !rsgen_kernels::maximum(row.isa, scores).is_finite() {
            return Ok(());
        }
        let table = self.values.table()?;
        rsgen_kernels::softmax(row.isa, scores);
        // Removed tokens stay removed; only the others compete.
        let mut players: Vec<(u32, u64)> = Vec::new();
        let count = scores.iter().filter(|probability| **probability != 0.0).count();
        memory::reserve(&mut players, count, "candidates")?;
        let possible = (0_u32..).zip(&*scores).filter(|(_, probability)| **probability != 0.0);
        players.extend(possible.map(|(token, _)| (token, GTable::ngram(context, token))));
        let mut winning: Vec<f32> = Vec::new();
        memory::reserve(&mut winning, scores.len(), "probabilities")?;
        winning.resize(scores.len(), 0.0);
        for layer in 0..self.values.depth() {
            for &(token, ngram) in &players {
                let token = token as usize;
                // Branch-free: the branch would be unpredictable.
                let wins = u32::from(table.value(ngram, layer)).wrapping_neg();
                winning[token] = f32::from_bits(scores[token].to_bits() & wins);
            }
            let mass = sum(&winning);
            let factors = [1.0 - mass, 2.0 - mass];
            for &(token, _) in &players {
                let token = token as usize;
                // The probability of a winner is positive, or has become 0.
                scores[token] *= factors[usize::from(winning[token] != 0.0)];
            }
        }
        for score in scores {
            let log = ln(*score);
            *score = if log.is_finite() { log } else { f32::MIN };
        }
        Ok(())
    }
}

impl BuiltIn for SynthIDTextWatermarkLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(Watermarking::SynthIDText(watermarking)) = &config.fields.watermarking_config else {
            return Ok(None);
        };
        let values =
            GValues::new(watermarking.clone()).map_err(|error| error.within("watermarking_config"))?;
        Ok(Some(Self { values }))
    }
}

impl LogitsProcessor for SynthIDTextWatermarkLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if self.values.config().debug_mode {
            scores.fill(1.0);
        }
        match self.values.context_after(&row.input_ids[row.prompt_len.min(row.input_ids.len())..]) {
            Some(context) => self.play(scores, row, context),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::GenerationConfig;
    use super::super::tests::{process, resolved};
    use super::*;
    use rsgen_core::TokenId;

    fn processor(skips: bool, debugs: bool) -> SynthIDTextWatermarkLogitsProcessor {
        SynthIDTextWatermarkLogitsProcessor::new(3, vec![5, 6, 7], 65_536, 0, 4, skips, debugs).unwrap()
    }

    fn scores() -> Vec<f32> {
        (0..24).map(|index| ((index * 7919 + 13) % 1009) as f32 * 0.01).collect()
    }

    /// The scores after the prompt 8, 9 and these tokens.
    fn after(processor: &SynthIDTextWatermarkLogitsProcessor, generated: &[u32], given: &[f32]) -> Vec<f32> {
        let ids: Vec<TokenId> = [8, 9].iter().chain(generated).copied().map(TokenId).collect();
        let mut scores = given.to_vec();
        let mut row = RowContext { prompt_len: 2, ..RowContext::of_prompt(&ids) };
        processor.process_row(&mut scores, &mut row).unwrap();
        scores
    }

    // p = SynthIDTextWatermarkLogitsProcessor(3, [5, 6, 7], 65536, 0, 4, "cpu"), called with the prompt [8,
    // 9], then with a token more each time; the first four scores of each call
    #[test]
    fn tournaments_are_those_of_transformers_call_by_call() {
        let (processor, scores) = (processor(false, false), scores());
        for (generated, expected) in [
            (&[][..], [-12.030_526, -2.065_929_2, -3.595_929_1, -5.125_929_4]),
            (&[3], [-10.754_648, -4.128_559_6, -3.398_998_7, -5.254_649]),
            (&[3, 4], [-9.845_716, -3.597_011, -2.815_717_2, -6.296_686]),
            (&[3, 4, 3], [-11.684_157, -4.947_041, -5.961_209, -4.687_526_7]),
        ] {
            let found = after(&processor, generated, &scores);
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() <= 2e-7 * expected.abs(),
                    "{generated:?}: {found} {expected}"
                );
            }
        }
        for repeated in [&[3, 4, 3, 4][..], &[3, 4, 3, 4, 3]] {
            assert_eq!(after(&processor, repeated, &scores), scores, "a context that comes again");
        }
        // Four contexts later it is new again.
        assert_ne!(after(&processor, &[3, 4, 5, 6, 7, 1, 3, 4], &scores), scores);
    }

    #[test]
    fn the_prompt_does_not_count_and_the_first_calls_can_be_skipped() {
        let scores = scores();
        let skipping = processor(true, false);
        for generated in [&[][..], &[3]] {
            assert_eq!(after(&skipping, generated, &scores), scores);
        }
        assert_eq!(after(&skipping, &[3, 4], &scores), after(&processor(false, false), &[3, 4], &scores));
        assert_eq!(
            process(&processor(false, false), &[1, 1, 1], &scores),
            after(&processor(false, false), &[], &scores)
        );
    }

    #[test]
    fn removed_tokens_become_the_least_number_and_all_scores_are_equal_in_debug_mode() {
        let mut few = vec![f32::NEG_INFINITY; 24];
        (few[3], few[9]) = (1.0, 1.5);
        let found = after(&processor(false, false), &[], &few);
        assert!(found.iter().enumerate().all(|(token, score)| [3, 9].contains(&token) || *score == f32::MIN));
        let debugs = processor(false, true);
        assert_eq!(after(&debugs, &[], &few), after(&debugs, &[], &scores()));
        assert_eq!(after(&debugs, &[3, 3, 3, 3], &few), [1.0; 24]);
    }

    #[test]
    fn rows_without_a_finite_maximum_are_left_to_the_search() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut scores = [f32::NEG_INFINITY; 24];
            scores[7] = bad;
            let found = after(&processor(false, false), &[], &scores);
            assert!(found.iter().zip(&scores).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }

    #[test]
    fn the_field_switches_it_on_and_its_errors_name_the_field() {
        let built = |config: SynthIDTextWatermarkingConfig| {
            let config = GenerationConfig::new().watermarking_config(config);
            SynthIDTextWatermarkLogitsProcessor::from_config(&resolved(&config)).map(|built| built.is_some())
        };
        assert!(built(SynthIDTextWatermarkingConfig::new(5, vec![1])).unwrap());
        let error = built(SynthIDTextWatermarkingConfig::new(5, Vec::new())).unwrap_err().to_string();
        assert!(error.starts_with("`watermarking_config`: `keys` must hold 1 to 1024 integers"), "{error}");
    }
}
