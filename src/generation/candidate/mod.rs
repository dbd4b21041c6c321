//! Candidates of assisted decoding: tokens that are proposed cheaply, for the model to check.

mod prompt_lookup;

pub(super) use prompt_lookup::PromptLookup;
