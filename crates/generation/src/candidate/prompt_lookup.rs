//! Prompt lookup: proposes what followed the newest tokens where they occurred before.

use rsgen_core::{Result, TokenId, message, refuse_if};

use super::super::config::GenerationConfig;

/// The longest n-gram to look up, unless `max_matching_ngram_size` says otherwise.
const MAX_MATCHING_NGRAM_SIZE: usize = 2;

/// transformers' `PromptLookupCandidateGenerator`. The default finds nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PromptLookup {
    num_tokens: usize,
    max_matching_ngram_size: usize,
}

impl PromptLookup {
    /// The lookup that the fields of a configuration ask for, if they do.
    ///
    /// # Errors
    /// `Config` when a field is 0.
    pub(crate) fn of(config: &GenerationConfig) -> Result<Option<Self>> {
        let Some(num_tokens) = config.prompt_lookup_num_tokens else { return Ok(None) };
        let max_matching_ngram_size = config.max_matching_ngram_size.unwrap_or(MAX_MATCHING_NGRAM_SIZE);
        for (field, value) in
            [("prompt_lookup_num_tokens", num_tokens), ("max_matching_ngram_size", max_matching_ngram_size)]
        {
            refuse_if(value == 0, field, || {
                message!(
                    "must be 1 or more for prompt lookup, but is 0; " {None} " switches prompt lookup off"
                )
            })?;
        }
        Ok(Some(Self { num_tokens, max_matching_ngram_size }))
    }

    /// The tokens that may follow `ids`: of the longest n-gram at their end that occurs before, what followed
    /// its leftmost occurrence, up to the first end token.
    ///
    /// `allowed(len, tokens)` is how many of the tokens are possible after the first `len` ids and those
    /// before them; when none is, the next occurrence is tried.
    ///
    /// # Errors
    /// The first one of `allowed`.
    pub(crate) fn candidates(
        &self,
        ids: &[TokenId],
        eos_token_ids: &[TokenId],
        max_length: usize,
        mut allowed: impl FnMut(&[TokenId]) -> Result<usize>,
    ) -> Result<Vec<TokenId>> {
        if ids.len() + 1 >= max_length {
            return Ok(Vec::new());
        }
        for ngram_size in (1..=self.max_matching_ngram_size.min(ids.len().saturating_sub(1))).rev() {
            let newest = &ids[ids.len() - ngram_size..];
            // Few windows begin with the right token: only these are compared as slices.
            let begins = ids.iter().enumerate().filter(|&(_, id)| *id == newest[0]);
            for (index, _) in begins.filter(|&(index, _)| ids[index..].starts_with(newest)) {
                let start = index + ngram_size;
                let followed = &ids[start..start.saturating_add(self.num_tokens).min(ids.len())];
                let possible = if followed.is_empty() { 0 } else { allowed(followed)? };
                if possible > 0 {
                    let possible = &followed[..possible];
                    let end = possible.iter().position(|token| eos_token_ids.contains(token));
                    return Ok(possible[..end.unwrap_or(possible.len())].to_vec());
                }
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lookup: PromptLookup, ids: &[u32], eos: u32, max_length: usize) -> Vec<u32> {
        let ids: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
        let candidates = lookup.candidates(&ids, &[TokenId(eos)], max_length, |tokens| Ok(tokens.len()));
        candidates.unwrap().into_iter().map(|token| token.0).collect()
    }

    // PromptLookupCandidateGenerator(eos_token_id, num_output_tokens, max_matching_ngram_size,
    // max_length).get_candidates
    #[test]
    fn the_leftmost_occurrence_of_the_longest_ngram_is_continued() {
        let lookup = PromptLookup { num_tokens: 3, max_matching_ngram_size: 2 };
        assert_eq!(found(lookup, &[5, 6, 7, 8, 6, 7, 9, 6, 7], 0, 99), [8, 6, 7]);
        assert_eq!(found(lookup, &[7, 1, 6, 7, 9, 8, 7], 0, 99), [1, 6, 7], "of one token");
        assert_eq!(found(lookup, &[5, 6, 7, 8], 0, 99), [0; 0], "the newest token occurs once");
        assert_eq!(found(lookup, &[3, 3], 0, 99), [3]);
        assert_eq!(found(lookup, &[4], 0, 99), [0; 0]);
    }

    #[test]
    fn candidates_end_before_an_end_token_and_leave_room_for_one_more() {
        let lookup = PromptLookup { num_tokens: 9, max_matching_ngram_size: 1 };
        assert_eq!(found(lookup, &[5, 6, 2, 8, 5], 2, 99), [6]);
        assert_eq!(found(lookup, &[5, 2, 8, 5], 2, 99), [0; 0]);
        assert_eq!(found(lookup, &[5, 6, 5], 2, 4), [0; 0]);
    }

    #[test]
    fn an_occurrence_whose_continuation_is_impossible_is_passed_over() {
        let lookup = PromptLookup { num_tokens: 2, max_matching_ngram_size: 1 };
        let ids: Vec<TokenId> = [5, 6, 5, 7, 8, 5].map(TokenId).to_vec();
        let allowed = |tokens: &[TokenId]| Ok(tokens.iter().take_while(|token| token.0 != 6).count());
        assert_eq!(lookup.candidates(&ids, &[], 99, allowed).unwrap(), [TokenId(7), TokenId(8)]);
    }

    #[test]
    fn a_size_of_0_is_refused() {
        let config = || GenerationConfig::new().prompt_lookup_num_tokens(3_usize);
        assert!(PromptLookup::of(&GenerationConfig::new()).unwrap().is_none());
        assert!(PromptLookup::of(&config()).unwrap().is_some());
        let error = PromptLookup::of(&config().max_matching_ngram_size(0_usize)).unwrap_err();
        assert!(error.to_string().contains("`max_matching_ngram_size` must be 1 or more"), "{error}");
    }
}
