//! The hashes of SynthID: which tokens win the tournaments of a step, from transformers'
//! `SynthIDTextWatermarkLogitsProcessor`.
//!
//! A hash takes in numbers one after the other, wrapping around at 64 bits: the tokens before, the candidate,
//! a key. Looked up in a random table it gives a g-value, 0 or 1. The hash of a window of tokens follows from
//! that of the one before.

use std::sync::{Arc, OnceLock};

use super::super::config::SynthIDTextWatermarkingConfig;
use super::recent::Recent;
use rsgen_core::{Error, Result, TokenId, memory, refuse_if};
use rsgen_kernels::TorchRng;

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
/// The largest table.
const MAX_TABLE_SIZE: usize = 1 << 24;

/// The deepest tournament: each layer looks at all candidates.
pub(crate) const MAX_DEPTH: usize = 1024;

/// The g-values of a configuration.
pub(crate) struct GValues {
    config: SynthIDTextWatermarkingConfig,
    table: OnceLock<Arc<Vec<u64>>>,
}

/// Tables, as bits, by their seeds, of which 32 bits count, and their sizes.
static TABLES: Recent<(u32, usize), Vec<u64>> = Recent::new();

/// A hash that has taken in another number.
fn hashed(hash: u64, number: u64) -> u64 {
    hash.wrapping_add(number).wrapping_mul(MULTIPLIER).wrapping_add(1)
}

impl GValues {
    /// The values of a configuration.
    ///
    /// # Errors
    /// `Config` for a value outside of its range.
    pub(crate) fn new(config: SynthIDTextWatermarkingConfig) -> Result<Self> {
        refuse_if(config.ngram_len == 0, "ngram_len", || "must be 1 or more, but is 0; 5 is usual")?;
        refuse_if(!(1..=MAX_DEPTH).contains(&config.keys.len()), "keys", || {
            format!(
                "must hold 1 to {MAX_DEPTH} integers, but holds {}; 20 to 30 are usual",
                config.keys.len()
            )
        })?;
        let size = config.sampling_table_size;
        refuse_if(!(1..=MAX_TABLE_SIZE).contains(&size), "sampling_table_size", || {
            format!("must be from 1 to 2^24, but is {size}; 65536 is usual")
        })?;
        Ok(Self { config, table: OnceLock::new() })
    }

    pub(crate) fn config(&self) -> &SynthIDTextWatermarkingConfig {
        &self.config
    }

    /// The number of keys: g-values of a token.
    pub(crate) fn depth(&self) -> usize {
        self.config.keys.len()
    }

    /// The table that hashes are looked up in.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for it.
    pub(crate) fn table(&self) -> Result<GTable<'_>> {
        let size = self.config.sampling_table_size;
        let bits = if let Some(table) = self.table.get() {
            table
        } else {
            let seed = self.config.sampling_table_seed as u32;
            let table = TABLES.get(&(seed, size), || drawn_table(seed, size))?;
            self.table.get_or_init(|| table)
        };
        let mask = if size.is_power_of_two() { size as u64 - 1 } else { 0 };
        Ok(GTable { bits, size: size as i64, mask, keys: &self.config.keys })
    }

    /// The hashes of the contexts of `tokens`: of those before each token and of those after the last one, of
    /// `ngram_len - 1` tokens each. Before the first token, zeros count.
    fn context_hashes<'a>(&self, tokens: &'a [TokenId]) -> impl Iterator<Item = u64> + 'a {
        let len = self.config.ngram_len - 1;
        // What the tokens add is a polynomial in the multiplier; the rest is the same in all windows.
        let (power, sum) = powers(len as u64);
        let constant = power.wrapping_add(sum);
        let leaving = power.wrapping_mul(MULTIPLIER);
        let mut added = 0_u64;
        (0..=tokens.len()).map(move |index| {
            if let Some(last) = index.checked_sub(1) {
                let left = last.checked_sub(len).map_or(0, |left| tokens[left].0);
                added = added
                    .wrapping_add(tokens[last].0.into())
                    .wrapping_mul(MULTIPLIER)
                    .wrapping_sub(leaving.wrapping_mul(left.into()));
            }
            constant.wrapping_add(added)
        })
    }

    /// The hash of the context after `generated`; `None` where that context marks nothing: it is among the
    /// latest ones, or before the first marked token.
    pub(crate) fn context_after(&self, generated: &[TokenId]) -> Option<u64> {
        let first = if self.config.skip_first_ngram_calls { self.config.ngram_len - 1 } else { 0 };
        let num_earlier = generated.len().checked_sub(first)?;
        let hash = self.context_hashes(generated).last()?;
        let kept = num_earlier.min(self.config.context_history_size);
        let earlier = self.context_hashes(generated).take(generated.len()).skip(generated.len() - kept);
        let is_repeated = Self::is_unused_place(hash, kept, self.config.context_history_size)
            || earlier.into_iter().any(|earlier| earlier == hash);
        (!is_repeated).then_some(hash)
    }

    /// In transformers the places of contexts that have not come yet hold 0.
    fn is_unused_place(hash: u64, kept: usize, size: usize) -> bool {
        hash == 0 && kept < size
    }

    /// For each n-gram of `tokens`: whether its context is not among the latest ones, as the mask of a
    /// detector has it.
    pub(crate) fn new_contexts(
        &self,
        tokens: &[TokenId],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<bool>> {
        let len = self.config.ngram_len - 1;
        let count = tokens.len().saturating_sub(len);
        let mut hashes = Vec::new();
        memory::reserve(&mut hashes, count, "hashes of contexts")?;
        let before = &tokens[..tokens.len().saturating_sub(1)];
        hashes.extend(self.context_hashes(before).skip(len).take(count));
        let size = self.config.context_history_size;
        // Where a hash was last seen.
        let mut seen = std::collections::HashMap::new();
        let mut is_new = |(index, &hash): (usize, &u64)| {
            let last = seen.insert(hash, index);
            let is_repeated = last.is_some_and(|last| index - last <= size);
            !is_repeated && !Self::is_unused_place(hash, index.min(size), size)
        };
        let unless_interrupted = |entry| if interrupted() { Err(Error::cancelled()) } else { Ok(entry) };
        hashes.iter().enumerate().map(unless_interrupted).map(|entry| entry.map(&mut is_new)).collect()
    }

    /// The g-values of each n-gram of `tokens`, `[num_ngrams, depth]`.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for them.
    pub(crate) fn of_ngrams(
        &self,
        tokens: &[TokenId],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<bool>> {
        let len = self.config.ngram_len - 1;
        let table = self.table()?;
        let count = tokens.len().saturating_sub(len);
        let mut values = Vec::new();
        memory::reserve(&mut values, count.saturating_mul(self.depth()), "g-values")?;
        let contexts = self.context_hashes(tokens).skip(len);
        for (context, &token) in contexts.zip(&tokens[tokens.len() - count..]) {
            if interrupted() {
                return Err(Error::cancelled());
            }
            let ngram = GTable::ngram(context, token.0);
            values.extend((0..self.depth()).map(|layer| table.value(ngram, layer)));
        }
        Ok(values)
    }
}

/// The table of g-values, with the keys.
#[derive(Clone, Copy)]
pub(crate) struct GTable<'a> {
    bits: &'a [u64],
    size: i64,
    /// What a power of two leaves of a hash; 0 for other sizes.
    mask: u64,
    keys: &'a [i64],
}

impl GTable<'_> {
    /// The hash of a context with a token after it.
    #[inline]
    pub(crate) fn ngram(context: u64, token: u32) -> u64 {
        hashed(context, token.into())
    }

    /// The g-value of an n-gram in a layer of the tournament.
    #[inline]
    pub(crate) fn value(&self, ngram: u64, layer: usize) -> bool {
        let hash = hashed(ngram, self.keys[layer] as u64);
        let place =
            if self.mask == 0 { (hash as i64).rem_euclid(self.size) as u64 } else { hash & self.mask };
        self.bits[(place / 64) as usize] >> (place % 64) & 1 == 1
    }
}

/// `torch.randint(0, 2, (size,))`, as bits.
fn drawn_table(seed: u32, size: usize) -> Result<Vec<u64>> {
    let mut bits = Vec::new();
    memory::reserve(&mut bits, size.div_ceil(64), "bits of a sampling table")?;
    bits.resize(size.div_ceil(64), 0);
    let mut rng = TorchRng::manual_seed(seed.into());
    for place in 0..size {
        bits[place / 64] |= u64::from(rng.next_u32() & 1) << (place % 64);
    }
    Ok(bits)
}

/// `m^count` and `1 + m + … + m^(count - 1)` for the multiplier `m`.
fn powers(mut count: u64) -> (u64, u64) {
    // The map x → m x + 1, repeated.
    let (mut power, mut sum) = (1_u64, 0_u64);
    let (mut square_power, mut square_sum) = (MULTIPLIER, 1_u64);
    while count > 0 {
        if count & 1 == 1 {
            sum = sum.wrapping_mul(square_power).wrapping_add(square_sum);
            power = power.wrapping_mul(square_power);
        }
        square_sum = square_sum.wrapping_mul(square_power).wrapping_add(square_sum);
        square_power = square_power.wrapping_mul(square_power);
        count >>= 1;
    }
    (power, sum)
}

impl std::fmt::Debug for GValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GValues").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(config: SynthIDTextWatermarkingConfig) -> GValues {
        GValues::new(config).unwrap()
    }

    fn config(ngram_len: usize) -> SynthIDTextWatermarkingConfig {
        SynthIDTextWatermarkingConfig::new(ngram_len, vec![3, -7])
    }

    /// transformers' state, taken along from call to call.
    struct Naive {
        context: Vec<u64>,
        history: Vec<u64>,
        num_calls: usize,
    }

    impl Naive {
        fn new(config: &SynthIDTextWatermarkingConfig) -> Self {
            Self {
                context: vec![0; config.ngram_len - 1],
                history: vec![0; config.context_history_size],
                num_calls: 0,
            }
        }

        fn call(&mut self, config: &SynthIDTextWatermarkingConfig, last: Option<u32>) -> Option<u64> {
            if let Some(last) = last {
                self.context.push(last.into());
                self.context.remove(0);
            }
            self.num_calls += 1;
            if config.skip_first_ngram_calls && self.num_calls < config.ngram_len {
                return None;
            }
            let hash = self.context.iter().fold(1, |hash, &token| hashed(hash, token));
            let is_repeated = self.history.contains(&hash);
            self.history.insert(0, hash);
            self.history.pop();
            (!is_repeated).then_some(hash)
        }
    }

    proptest! {
        #[test]
        fn the_state_after_any_tokens_is_that_of_transformers_after_as_many_calls(
            tokens in prop::collection::vec(0_u32..3, 0..40),
            ngram_len in 1_usize..6,
            context_history_size in 0_usize..12,
            skip_first_ngram_calls in any::<bool>(),
        ) {
            let config =
                SynthIDTextWatermarkingConfig { context_history_size, skip_first_ngram_calls, ..config(ngram_len) };
            let (values, mut naive) = (values(config.clone()), Naive::new(&config));
            let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
            for len in 0..=tokens.len() {
                let expected = naive.call(&config, len.checked_sub(1).map(|last| tokens[last]));
                prop_assert_eq!(values.context_after(&ids[..len]), expected, "after {}", len);
            }
        }

        #[test]
        fn the_mask_of_contexts_is_that_of_a_history(
            tokens in prop::collection::vec(0_u32..3, 0..40),
            ngram_len in 1_usize..6,
            context_history_size in 0_usize..12,
        ) {
            let config = SynthIDTextWatermarkingConfig { context_history_size, ..config(ngram_len) };
            let mut history = vec![0; context_history_size];
            let contexts = tokens[..tokens.len().saturating_sub(1)].windows(ngram_len.max(2) - 1);
            let mut expected = Vec::new();
            for index in 0..tokens.len().saturating_sub(ngram_len - 1) {
                let context = if ngram_len == 1 { &[][..] } else { contexts.clone().nth(index).unwrap() };
                let hash = context.iter().fold(1, |hash, &token| hashed(hash, token.into()));
                expected.push(!history.contains(&hash));
                history.insert(0, hash);
                history.pop();
            }
            let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
            prop_assert_eq!(values(config).new_contexts(&ids, &mut || false).unwrap(), expected);
        }
    }

    // p = SynthIDTextWatermarkLogitsProcessor(n, [3, -7, 2**62], 1000 or 1024, 5, 8, "cpu")
    // p.compute_g_values(torch.tensor([[1, 5, 9, 2, 40000, 7]]))[0].flatten().tolist()
    #[test]
    fn g_values_are_those_of_transformers() {
        let tokens = [1, 5, 9, 2, 40_000, 7].map(TokenId);
        for (ngram_len, sampling_table_size, expected) in G_VALUES {
            let values = values(SynthIDTextWatermarkingConfig {
                sampling_table_size: *sampling_table_size,
                sampling_table_seed: 5,
                ..SynthIDTextWatermarkingConfig::new(*ngram_len, vec![3, -7, 1 << 62])
            });
            let found: Vec<u8> =
                values.of_ngrams(&tokens, &mut || false).unwrap().into_iter().map(u8::from).collect();
            assert_eq!(found, *expected, "{ngram_len} {sampling_table_size}");
        }
    }

    #[test]
    fn contexts_of_any_length_take_no_time() {
        let values = values(config(usize::MAX));
        assert!(values.context_after(&[TokenId(4)]).is_some());
        assert!(values.of_ngrams(&[TokenId(4)], &mut || false).unwrap().is_empty());
        assert!(values.new_contexts(&[TokenId(4)], &mut || false).unwrap().is_empty());
    }

    #[test]
    fn impossible_settings_are_refused() {
        let base = || config(5);
        for (config, expected) in [
            (config(0), "`ngram_len` must be 1 or more"),
            (
                SynthIDTextWatermarkingConfig { keys: Vec::new(), ..base() },
                "`keys` must hold 1 to 1024 integers",
            ),
            (SynthIDTextWatermarkingConfig { keys: vec![1; 1025], ..base() }, "but holds 1025"),
            (SynthIDTextWatermarkingConfig { sampling_table_size: 0, ..base() }, "from 1 to 2^24, but is 0"),
            (
                SynthIDTextWatermarkingConfig { sampling_table_size: (1 << 24) + 1, ..base() },
                "from 1 to 2^24, but is 16777217",
            ),
        ] {
            let error = GValues::new(config).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    // Made with transformers 5.23 and torch 2.13.
    const G_VALUES: &[(usize, usize, &[u8])] = &[
        (1, 1000, &[1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0]),
        (2, 1024, &[1, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0]),
        (5, 1000, &[0, 1, 0, 1, 1, 0]),
        (6, 1024, &[0, 1, 0]),
    ];
}
