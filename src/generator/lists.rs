//! The list-valued fields of a call: lists of ids, and the seeds of its requests.

use rsgen_core::{Error, Result, message};
use rsgen_generation::{GenerationConfig, OneOrMany};
use rsgen_model::weights::available_memory;

/// The estimated bytes of a listed id, in the configuration and in the tables of its processor.
const LISTED_ID_BYTES: usize = 128;
/// Smaller lists are not compared with the available memory, because reading it is slow.
const UNCHECKED_BYTES: usize = 8 << 20;

/// Refuses lists of ids, such as `bad_words_ids`, that take more memory than is available: each request has
/// its own tables of them.
pub(super) fn check_lists(
    config: &GenerationConfig,
    defaults: &GenerationConfig,
    requests: usize,
) -> Result<()> {
    let ids = config.num_listed_ids() + defaults.num_listed_ids();
    let bytes = ids.saturating_mul(requests + 2).saturating_mul(LISTED_ID_BYTES);
    if bytes < UNCHECKED_BYTES {
        return Ok(());
    }
    match available_memory().filter(|&available| bytes as u64 > available) {
        None => Ok(()),
        Some(available) => Err(Error::capacity(message!(
            {bad_words_ids} ", " {sequence_bias} " and the other lists hold {ids} token ids, which take \
             about {bytes} bytes of memory for {requests} prompts, but {available} are available; shorten \
             them, or give fewer prompts at a time"
        ))),
    }
}

/// The seed of each request: those of a list, or consecutive seeds from a single one, so that no prompt's
/// tokens depend on the other prompts.
pub(super) fn seeds(
    config: &GenerationConfig,
    defaults: &GenerationConfig,
    requests: usize,
) -> Result<Option<Vec<u64>>> {
    match config.merged_over(defaults).seed {
        None => Ok(None),
        Some(OneOrMany::One(seed)) => Ok(Some((0..requests as u64).map(|i| seed.wrapping_add(i)).collect())),
        Some(OneOrMany::Many(seeds)) if seeds.len() == requests => Ok(Some(seeds)),
        Some(OneOrMany::Many(seeds)) => Err(Error::config(format!(
            "must be one number or a list of one for each prompt ({requests}), got a list of {}",
            seeds.len()
        ))
        .about("seed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_prompts_are_consecutive_or_listed() {
        let (none, one) = (GenerationConfig::new(), GenerationConfig::new().seed(u64::MAX));
        assert_eq!(seeds(&one, &none, 3).unwrap(), Some(vec![u64::MAX, 0, 1]));
        let listed = GenerationConfig::new().seed([5, 9]);
        assert_eq!(seeds(&listed, &one, 2).unwrap(), Some(vec![5, 9]));
        assert_eq!(seeds(&none, &listed, 2).unwrap(), Some(vec![5, 9]));
        let message = seeds(&listed, &none, 3).unwrap_err().to_string();
        assert!(message.contains("one for each prompt (3), got a list of 2"), "{message}");
        assert_eq!(seeds(&none, &none, 1).unwrap(), None);
    }
}
