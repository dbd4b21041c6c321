//! Checks the counts of a request: beams, rows, alternatives, and the seed of each.

use rsgen_core::{Error, Result, message, refuse_if};

use super::super::config::{GenerationConfig, OneOrMany};
use super::super::mode::GenerationMode;
use super::super::random_state::RandomState;
use super::{Healing, PlanContext};
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
    refuse_if(merged.num_beams == Some(0), "num_beams", || "must be 1 or more, but is 0; leave it unset")?;
    refuse_if(
        merged.prefill_chunk_size == Some(0),
        "prefill_chunk_size",
        || message!("must be 1 or more, but is 0; " {None} " lets the engine choose"),
    )?;
    let rows_each = merged.num_return_sequences.unwrap_or(1);
    refuse_if(
        rows_each == 0,
        "num_return_sequences",
        || message!("must be 1 or more, but is 0; " {None} " leaves it unset"),
    )?;
    let num_beams = merged.num_beams.unwrap_or(1);
    refuse_if(mode.has_beams() && rows_each > num_beams, "num_return_sequences", || {
        message!(
            "must be at most " {num_beams} " ({num_beams}), but is {rows_each}; set "
            {num_beams = rows_each} ", or return fewer"
        )
    })?;
    let is_repeated = rows_each > 1 && merged.do_sample != Some(true) && !mode.has_beams();
    refuse_if(is_repeated, "num_return_sequences", || {
        message!(
            "must be 1 in {mode}, which gives the same row each time, but is {rows_each}; set "
            {do_sample = true}
        )
    })?;
    for (field, each) in [("num_beams", num_beams), ("num_return_sequences", rows_each)] {
        refuse_if(each.checked_mul(prompts).is_none_or(|rows| rows > MAX_ROWS), field, || {
            format!(
                "times the number of prompts must be at most {MAX_ROWS}, but is {each} times {prompts}; make \
                 several requests"
            )
        })?;
    }
    let count = merged.top_logprobs.unwrap_or(0);
    refuse_if(count > vocab_size, "top_logprobs", || {
        format!(
            "must be at most the size of the model's vocabulary ({vocab_size}), but is {count}; 5 is usual"
        )
    })
}

/// The random numbers of sampling, where they go on from another call.
pub(super) fn random_state(
    merged: &GenerationConfig,
    mode: GenerationMode,
    context: &PlanContext,
) -> Result<Option<RandomState>> {
    let Some(state) = &context.random_state else { return Ok(None) };
    let rule = "must be a number where tokens are drafted or healed, whose draws are others than torch's";
    let is_drafted = matches!(mode, GenerationMode::AssistedDecoding | GenerationMode::PromptLookup);
    let is_other = merged.do_sample == Some(true) && (is_drafted || merged.token_healing == Some(true));
    refuse_if(is_other, "seed", || format!("{rule}, got a Seed; give a number, or leave the drafts out"))?;
    Ok(Some(state.clone()))
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
