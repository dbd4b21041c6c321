//! Green lists: the tokens that transformers' `WatermarkLogitsProcessor` favours, drawn by torch's generator.
//!
//! A list is the beginning of a random permutation of the vocabulary. A Fisher-Yates shuffle fixes one place
//! with each draw, so only as many numbers are drawn as the list has tokens; and whether one token is in it
//! takes no list at all.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::super::config::{SeedingScheme, WatermarkingConfig};
use super::recent::Recent;
use rsgen_core::{Error, Mutex, Result, TokenId, memory, refuse_if};
use rsgen_kernels::TorchRng;

/// The numbers of the table that selfhash takes hashes from.
const TABLE_SIZE: u32 = 1_000_003;
/// The most bytes of green lists that are kept.
const LIST_BYTES: usize = 1 << 20;
/// The most tokens of which is kept whether they are green.
const MEMBERS: usize = 1 << 15;

/// The green lists of a configuration and a vocabulary.
pub(crate) struct GreenLists {
    config: WatermarkingConfig,
    vocab_size: u32,
    /// The tokens of a list.
    len: u32,
    table: OnceLock<Arc<Vec<u32>>>,
    known: Mutex<Known>,
}

/// Cached lists and memberships, by the low 32 bits of the seed (the only ones used).
#[derive(Default)]
struct Known {
    lists: HashMap<u32, Arc<Vec<u64>>>,
    members: HashMap<(u32, u32), bool>,
}

/// Lists of earlier requests.
static LISTS: Recent<(WatermarkingConfig, u32), GreenLists> = Recent::new();
/// Tables by the seed.
static TABLES: Recent<u32, Vec<u32>> = Recent::new();

impl GreenLists {
    /// The lists of a configuration for the tokens below `vocab_size`.
    ///
    /// # Errors
    /// `Config` for a value outside of its range.
    pub(crate) fn of(config: &WatermarkingConfig, vocab_size: usize) -> Result<Arc<Self>> {
        let WatermarkingConfig { greenlist_ratio: ratio, bias, hashing_key, seeding_scheme, context_width } =
            config;
        refuse_if(!(*ratio > 0.0 && *ratio < 1.0), "greenlist_ratio", || {
            format!("must be above 0 and below 1, but is {ratio:?}; 0.25 is usual")
        })?;
        refuse_if(!(*bias as f32).is_finite(), "bias", || {
            format!("must be a number within the range of float32, but is {bias:?}; 2.0 is usual")
        })?;
        let (largest, shown) = match seeding_scheme {
            SeedingScheme::LeftHash => (i128::from(u64::MAX), "2^64 - 1"),
            SeedingScheme::SelfHash => (i128::from(i64::MAX), "2^63 - 1 with selfhash"),
        };
        refuse_if(!(i128::from(i64::MIN)..=largest).contains(hashing_key), "hashing_key", || {
            format!("must be an integer from -2^63 to {shown}, but is {hashing_key}")
        })?;
        refuse_if(
            *context_width == 0,
            "context_width",
            || "must be 1 or more, but is 0; 1 makes marks depend on the last token alone",
        )?;
        let vocab_size = u32::try_from(vocab_size).ok().filter(|&size| size > 0).ok_or_else(|| {
            Error::config(format!("must be from 1 to {}, but is {vocab_size}", u32::MAX)).about("vocab_size")
        })?;
        let len = (f64::from(vocab_size) * ratio) as u32;
        let make = || {
            Ok(Self {
                config: config.clone(),
                vocab_size,
                len,
                table: OnceLock::new(),
                known: Mutex::default(),
            })
        };
        LISTS.get(&(config.clone(), vocab_size), make)
    }

    pub(crate) fn config(&self) -> &WatermarkingConfig {
        &self.config
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.vocab_size as usize
    }

    /// Lefthash: the green list after `last` as bits, token `i` at bit `i % 64` of word `i / 64`.
    pub(crate) fn list_after(&self, last: TokenId) -> Result<Arc<Vec<u64>>> {
        let seed = self.left_seed(last);
        if let Some(list) = self.known.lock().lists.get(&seed) {
            return Ok(Arc::clone(list));
        }
        let list = Arc::new(self.draw(seed)?);
        let kept = LIST_BYTES / (size_of::<u64>() * list.len());
        let mut known = self.known.lock();
        if known.lists.len() >= kept {
            known.lists.clear();
        }
        if kept > 0 {
            known.lists.insert(seed, Arc::clone(&list));
        }
        Ok(list)
    }

    /// Whether each of `candidates` is green after `input_ids`.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for the table of selfhash.
    pub(crate) fn are_green(&self, input_ids: &[TokenId], candidates: &[TokenId]) -> Result<Vec<bool>> {
        let context = match self.config.seeding_scheme {
            SeedingScheme::LeftHash => &input_ids[input_ids.len().saturating_sub(1)..],
            // With the candidate as many as the width.
            SeedingScheme::SelfHash => {
                &input_ids[input_ids.len().saturating_sub(self.config.context_width - 1)..]
            }
        };
        let seeds = candidates.iter().map(|&candidate| self.seed(context, candidate));
        let seeds: Vec<u32> = seeds.collect::<Result<_>>()?;
        let keys = || seeds.iter().copied().zip(candidates.iter().map(|candidate| candidate.0));
        let mut found: Vec<Option<bool>> = {
            let known = self.known.lock();
            keys().map(|key| known.members.get(&key).copied()).collect()
        };
        let mut new = Vec::new();
        for (key, found) in keys().zip(&mut found) {
            if found.is_none() {
                *found = Some(self.draws(key.0, key.1));
                new.push((key, *found == Some(true)));
            }
        }
        let mut known = self.known.lock();
        if known.members.len() + new.len() > MEMBERS {
            known.members.clear();
        }
        known.members.extend(new.into_iter().take(MEMBERS));
        Ok(found.into_iter().map(|found| found == Some(true)).collect())
    }

    /// The low 32 bits of the seed of a candidate's list after `context`.
    fn seed(&self, context: &[TokenId], candidate: TokenId) -> Result<u32> {
        match self.config.seeding_scheme {
            SeedingScheme::LeftHash => Ok(self.left_seed(context.last().copied().unwrap_or(TokenId(0)))),
            SeedingScheme::SelfHash => {
                let table = self.table()?;
                let hash = |token: TokenId| i64::from(table[(token.0 % TABLE_SIZE) as usize]) + 1;
                let key = self.config.hashing_key as i64;
                let own = hash(candidate);
                let product = |token: TokenId| key.wrapping_mul(hash(token)).wrapping_mul(own);
                let seeds = context.iter().map(|&token| product(token));
                Ok(low_bits(i128::from(seeds.fold(product(candidate), i64::min))))
            }
        }
    }

    fn left_seed(&self, last: TokenId) -> u32 {
        low_bits(self.config.hashing_key * i128::from(last.0))
    }

    /// The permutation that tokens are hashed by.
    fn table(&self) -> Result<&[u32]> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let seed = self.config.hashing_key as u32;
        let make = || {
            let mut table = identity(TABLE_SIZE)?;
            TorchRng::manual_seed(seed.into()).shuffle(&mut table, TABLE_SIZE);
            Ok(table)
        };
        let table = TABLES.get(&seed, make)?;
        Ok(self.table.get_or_init(|| table))
    }

    /// The green list of a seed.
    fn draw(&self, seed: u32) -> Result<Vec<u64>> {
        let mut order = identity(self.vocab_size)?;
        TorchRng::manual_seed(seed.into()).shuffle(&mut order, self.len);
        let words = (self.vocab_size as usize).div_ceil(64);
        let mut list = Vec::new();
        memory::reserve(&mut list, words, "bits of a green list")?;
        list.resize(words, 0);
        for &token in &order[..self.len as usize] {
            list[token as usize / 64] |= 1 << (token % 64);
        }
        Ok(list)
    }

    /// Whether a seed's list holds a token.
    fn draws(&self, seed: u32, token: u32) -> bool {
        TorchRng::manual_seed(seed.into()).randperm_begins_with(self.vocab_size, self.len, token)
    }
}

/// The numbers below `len`.
fn identity(len: u32) -> Result<Vec<u32>> {
    let mut order = Vec::new();
    memory::reserve(&mut order, len as usize, "places of a permutation")?;
    order.extend(0..len);
    Ok(order)
}

/// The bits that count of Python's `seed % (2**64 - 1)`.
fn low_bits(seed: i128) -> u32 {
    seed.rem_euclid(i128::from(u64::MAX)) as u32
}

impl std::fmt::Debug for GreenLists {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GreenLists")
            .field("config", &self.config)
            .field("vocab_size", &self.vocab_size)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "the tests make each for one call")]
    fn lists(config: WatermarkingConfig, vocab_size: usize) -> Arc<GreenLists> {
        GreenLists::of(&config, vocab_size).unwrap()
    }

    fn green(list: &[u64], vocab_size: u32) -> Vec<u32> {
        (0..vocab_size).filter(|token| list[*token as usize / 64] >> (token % 64) & 1 == 1).collect()
    }

    // sorted(WatermarkLogitsProcessor(20, "cpu", hashing_key=key)._get_greenlist_ids(torch.tensor([3,
    // last])).tolist())
    #[test]
    fn the_green_list_after_a_token_is_that_of_transformers() {
        for (key, last, expected) in LEFT {
            let lists = lists(WatermarkingConfig { hashing_key: key, ..WatermarkingConfig::default() }, 20);
            assert_eq!(green(&lists.list_after(TokenId(last)).unwrap(), 20), expected, "{key} {last}");
        }
    }

    #[test]
    fn a_token_is_green_where_the_list_of_its_seed_holds_it() {
        for (ratio, vocab_size) in [(0.25, 61_u32), (0.999, 20), (0.5, 2), (0.5, 1), (0.01, 50)] {
            let config = WatermarkingConfig { greenlist_ratio: ratio, ..WatermarkingConfig::default() };
            let lists = lists(config, vocab_size as usize);
            for seed in 0..40 {
                let list = green(&lists.draw(seed).unwrap(), vocab_size);
                let drawn: Vec<u32> = (0..vocab_size).filter(|&token| lists.draws(seed, token)).collect();
                assert_eq!(drawn, list, "{ratio} {vocab_size} {seed}");
                assert!(!lists.draws(seed, vocab_size));
                let mut all = TorchRng::manual_seed(seed.into()).randperm(vocab_size);
                all.truncate(lists.len as usize);
                all.sort_unstable();
                assert_eq!(list, all, "{ratio} {vocab_size} {seed}");
            }
        }
    }

    // p = WatermarkLogitsProcessor(200, "cpu", seeding_scheme="selfhash", context_width=w, hashing_key=key)
    // [t for t in range(200) if t in p._get_greenlist_ids(torch.tensor([5, 70, 9, t]))][:8]
    #[test]
    fn candidates_are_green_by_themselves_as_in_transformers() {
        let candidates: Vec<TokenId> = (0..200).map(TokenId).collect();
        for (key, context_width, expected) in OWN {
            let lists = lists(
                WatermarkingConfig {
                    hashing_key: key,
                    seeding_scheme: SeedingScheme::SelfHash,
                    context_width,
                    ..WatermarkingConfig::default()
                },
                200,
            );
            for _ in 0..2 {
                let found = lists.are_green(&[5, 70, 9].map(TokenId), &candidates).unwrap();
                let found: Vec<usize> = (0..200).filter(|&token| found[token]).take(8).collect();
                assert_eq!(found, expected, "{key} {context_width}");
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_changes_nothing() {
        let config =
            WatermarkingConfig { greenlist_ratio: 0.01, hashing_key: 77, ..WatermarkingConfig::default() };
        let lists = lists(config, 100_000);
        let first = lists.list_after(TokenId(0)).unwrap();
        for last in 0..200 {
            lists.list_after(TokenId(last)).unwrap();
        }
        assert!(lists.known.lock().lists.len() <= LIST_BYTES / (100_000 / 8));
        assert_eq!(lists.list_after(TokenId(0)).unwrap(), first);
        for last in 0..3 {
            let candidates: Vec<TokenId> = (0..20_000).map(TokenId).collect();
            assert_eq!(
                lists.are_green(&[TokenId(last)], &candidates[..50]).unwrap(),
                lists.are_green(&[TokenId(last)], &candidates).unwrap()[..50]
            );
            assert!(lists.known.lock().members.len() <= MEMBERS);
        }
    }

    #[test]
    fn impossible_settings_are_refused() {
        let base = WatermarkingConfig::default;
        let own = SeedingScheme::SelfHash;
        for (config, vocab_size, expected) in [
            (WatermarkingConfig { greenlist_ratio: 0.0, ..base() }, 9, "`greenlist_ratio` must be above 0"),
            (
                WatermarkingConfig { greenlist_ratio: f64::NAN, ..base() },
                9,
                "`greenlist_ratio` must be above 0",
            ),
            (WatermarkingConfig { greenlist_ratio: 1.0, ..base() }, 9, "but is 1.0"),
            (WatermarkingConfig { bias: 1e39, ..base() }, 9, "`bias` must be a number within"),
            (WatermarkingConfig { hashing_key: 1 << 64, ..base() }, 9, "`hashing_key` must be an integer"),
            (
                WatermarkingConfig { hashing_key: 1 << 63, seeding_scheme: own, ..base() },
                9,
                "to 2^63 - 1 with selfhash",
            ),
            (WatermarkingConfig { context_width: 0, ..base() }, 9, "`context_width` must be 1 or more"),
            (base(), 0, "`vocab_size` must be from 1"),
        ] {
            let error = GreenLists::of(&config, vocab_size).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    // Filled by transformers 5.23 with torch 2.13.
    #[allow(clippy::unreadable_literal, clippy::excessive_precision, reason = "as torch prints them")]
    const LEFT: [(i128, u32, [u32; 5]); 4] = [
        (15485863, 7, [6, 7, 9, 12, 17]),
        (-12345, 19, [0, 5, 9, 15, 18]),
        (18446744073709551615, 3, [4, 5, 7, 13, 19]),
        (9223372036854775813, 0, [4, 5, 7, 13, 19]),
    ];
    #[allow(clippy::unreadable_literal, clippy::excessive_precision, reason = "as torch prints them")]
    const OWN: [(i128, usize, [usize; 8]); 5] = [
        (15485863, 1, [0, 7, 9, 15, 16, 27, 33, 44]),
        (15485863, 2, [0, 7, 9, 16, 22, 44, 45, 46]),
        (15485863, 4, [2, 7, 16, 17, 24, 25, 39, 41]),
        (-987654321987, 3, [0, 9, 23, 29, 42, 49, 50, 55]),
        (9223372036854775807, 9, [10, 14, 23, 24, 27, 30, 33, 39]),
    ];
}
