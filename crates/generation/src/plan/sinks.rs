//! Attention sinks: how a text goes on past the context, by keeping its first and its last tokens in the
//! cache.

use super::PlanContext;
use crate::config::GenerationConfig;
use crate::mode::GenerationMode;
use rsgen_core::error::{Error, Result};
use rsgen_core::message;

/// The sinks when only the window is given: those of the paper.
const DEFAULT_SINKS: usize = 4;

/// The most tokens that leave the cache at once: a block.
const MOST_DROPPED: usize = 32;

/// The new tokens of a row that nothing limits.
const DEFAULT_NEW_TOKENS: usize = 1 << 20;

/// Which tokens stay in the cache (Xiao et al., arXiv:2309.17453): the first ones, and of the others the last
/// ones. Positions are those within the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionSinks {
    sinks: u32,
    window: u32,
}

impl AttentionSinks {
    /// The sinks that the fields of a request ask for.
    pub(super) fn resolve(
        merged: &GenerationConfig,
        mode: GenerationMode,
        context: &PlanContext,
    ) -> Result<Option<Self>> {
        if !merged.has_sinks() {
            return Ok(None);
        }
        let sinks = merged.attention_sinks.unwrap_or(DEFAULT_SINKS);
        let (window, most) = (merged.window.unwrap_or(context.max_window), context.max_window);
        if most == 0 {
            return Err(Error::config(message!(
                "and " {window} " must be unset with this model, whose cached tokens cannot move to other \
                 positions; leave both out"
            ))
            .about("attention_sinks"));
        }
        if window > most {
            return Err(Error::config(message!(
                "must be at most the {most} tokens that every layer of the model was made for, but is \
                 {window}; set " {window = most} ", or leave it unset"
            ))
            .about("window"));
        }
        if window < sinks.saturating_add(2) {
            return Err(Error::config(message!(
                "must be 2 or more above " {attention_sinks} " ({sinks}), which it includes, but is {window}; \
                 raise it, or lower " {attention_sinks}
            ))
            .about("window"));
        }
        let is_possible = matches!(
            mode,
            GenerationMode::Greedy
                | GenerationMode::Sample
                | GenerationMode::BeamSearch
                | GenerationMode::BeamSample
        );
        if !is_possible {
            return Err(Error::config(message!(
                "and " {window} " must be unset in {mode}, which takes tokens back or looks at states that \
                 have left the cache; leave them out, or use greedy search, sampling or beam search without \
                 an assistant"
            ))
            .about("attention_sinks"));
        }
        if context.keeps_cache {
            return Err(Error::config(message!(
                "and " {window} " must be unset beside `return_cache`: most of the text has left the cache; \
                 leave them out, or `return_cache`"
            ))
            .about("attention_sinks"));
        }
        // No model has a longer context.
        let narrow = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        Ok(Some(Self { sinks: narrow(sinks), window: narrow(window) }))
    }

    /// The context of a model that such a request never fills.
    pub(super) fn context(context: &PlanContext, prompt_len: usize) -> PlanContext {
        let most = prompt_len.saturating_add(DEFAULT_NEW_TOKENS);
        PlanContext { max_position_embeddings: most, context_len: usize::MAX, ..context.clone() }
    }

    /// The first tokens, which stay.
    pub fn sinks(&self) -> usize {
        self.sinks as usize
    }

    /// The most tokens in the cache, sinks included.
    pub fn window(&self) -> usize {
        self.window as usize
    }

    /// How many tokens leave a full cache at once, the oldest after the sinks.
    pub fn dropped(&self) -> usize {
        ((self.window() - self.sinks()) / 2).clamp(1, MOST_DROPPED)
    }

    /// The position of the next token when the cache has `len`: lower than that where others leave it first.
    pub fn next_position(&self, len: usize) -> usize {
        if len < self.window() { len } else { len - self.dropped() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(config: &GenerationConfig) -> Result<Option<AttentionSinks>> {
        let mut context = PlanContext::new(10, 4096);
        context.max_window = 1024;
        AttentionSinks::resolve(config, GenerationMode::of(config, false), &context)
    }

    #[test]
    fn each_of_the_fields_has_a_default_when_the_other_is_set() {
        let config = GenerationConfig::new;
        assert_eq!(resolve(&config()).unwrap(), None);
        let of = |config: GenerationConfig| {
            let sinks = resolve(&config).unwrap().unwrap();
            (sinks.sinks(), sinks.window(), sinks.dropped())
        };
        assert_eq!(of(config().window(100)), (4, 100, 32));
        assert_eq!(of(config().attention_sinks(8)), (8, 1024, 32));
        assert_eq!(of(config().attention_sinks(0).window(2)), (0, 2, 1));
        assert_eq!(of(config().attention_sinks(2).window(12)), (2, 12, 5));
    }

    #[test]
    fn a_full_cache_gives_up_its_oldest_tokens_before_the_next() {
        let sinks = resolve(&GenerationConfig::new().window(100)).unwrap().unwrap();
        assert_eq!([0, 99, 100].map(|len| sinks.next_position(len)), [0, 99, 68]);
    }

    #[test]
    fn what_is_impossible_is_refused_with_its_rule() {
        let config = || GenerationConfig::new().attention_sinks(4);
        for (impossible, message) in [
            (config().window(1025), "at most the 1024 tokens"),
            (config().window(5), "2 or more above `attention_sinks` (4)"),
            (config().window(64).penalty_alpha(0.6).top_k(4), "unset in contrastive search"),
            (config().window(64).prompt_lookup_num_tokens(3), "unset in prompt lookup"),
            (config().attention_sinks(usize::MAX).window(64), "2 or more above"),
        ] {
            let error = resolve(&impossible).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
