//! Checks the counts of a request: beams, rows, alternatives, and the seed of each.

use rsgen_core::error::{Error, Result};
use rsgen_core::message;

use super::super::config::{GenerationConfig, OneOrMany};
use super::super::mode::GenerationMode;
use super::Healing;
use rsgen_kernels::TorchRng;

/// The most rows of one request, which bounds the memory of its bookkeeping.
const MAX_ROWS: usize = 65_536;

/// Rejects counts that are 0, too many, or more than a search gives.
pub(super) fn check(
    merged: &GenerationConfig,
    mode: GenerationMode,
    prompts: usize,
    vocab_size: usize,
) -> Result<()> {
    if merged.num_beams == Some(0) {
        return Err(Error::config("must be 1 or more, but is 0; leave it unset").about("num_beams"));
    }
    if merged.prefill_chunk_size == Some(0) {
        return Err(Error::config(message!(
            "must be 1 or more, but is 0; " {None} " lets the engine choose"
        ))
        .about("prefill_chunk_size"));
    }
    let rows_each = merged.num_return_sequences.unwrap_or(1);
    if rows_each == 0 {
        return Err(Error::config(message!(
            "must be 1 or more, but is 0; " {None} " leaves it unset"
        ))
        .about("num_return_sequences"));
    }
    let num_beams = merged.num_beams.unwrap_or(1);
    if mode.has_beams() && rows_each > num_beams {
        return Err(Error::config(message!(
            "must be at most " {num_beams} " ({num_beams}), but is {rows_each}; set "
            {num_beams = rows_each} ", or return fewer"
        ))
        .about("num_return_sequences"));
    }
    if num_beams.checked_mul(prompts).is_none_or(|rows| rows > MAX_ROWS) {
        return Err(Error::config(format!(
            "times the number of prompts must be at most {MAX_ROWS}, but is {num_beams} times \
                 {prompts}; make several requests"
        ))
        .about("num_beams"));
    }
    if rows_each > 1 && merged.do_sample != Some(true) && !mode.has_beams() {
        return Err(Error::config(message!(
            "must be 1 in {mode}, which gives the same row each time, but is {rows_each}; set "
            {do_sample = true}
        ))
        .about("num_return_sequences"));
    }
    if rows_each.checked_mul(prompts).is_none_or(|rows| rows > MAX_ROWS) {
        return Err(Error::config(format!(
            "times the number of prompts must be at most {MAX_ROWS}, but is {rows_each} times \
                 {prompts}; make several requests"
        ))
        .about("num_return_sequences"));
    }
    match merged.top_logprobs.unwrap_or(0) {
        count if count > vocab_size => Err(Error::config(format!(
            "must be at most the size of the model's vocabulary ({vocab_size}), but is {count}; 5 is usual"
        ))
        .about("top_logprobs")),
        _ => Ok(()),
    }
}

/// The seed of sampling: that of the call, or one from entropy. The search of prompts that are healed first
/// has that of healing.
pub(super) fn seed(merged: &GenerationConfig, healing: Option<&Healing>) -> Result<Option<u64>> {
    let given = match &merged.seed {
        None => None,
        Some(OneOrMany::One(seed)) => Some(*seed),
        Some(OneOrMany::Many(seeds)) => match seeds[..] {
            [seed] => Some(seed),
            _ => {
                return Err(Error::config(format!(
                    "must be one seed for one request, but lists {}; lists of seeds go with lists of prompts",
                    seeds.len()
                ))
                .about("seed"));
            }
        },
    };
    let given = healing.map_or(given, Healing::seed);
    Ok((merged.do_sample == Some(true)).then(|| given.unwrap_or_else(TorchRng::entropy_seed)))
}
