//! Candidates of assisted decoding: tokens that are proposed cheaply, for the model to check.

mod adaptive_length;
mod prompt_lookup;
mod translate;

pub(super) use adaptive_length::AdaptiveLength;
pub(super) use prompt_lookup::PromptLookup;
pub(super) use translate::Translation;
pub use translate::VocabularyMap;
