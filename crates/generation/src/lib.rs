//! From logits to tokens: configuration, logits processors, stopping criteria and searches.
//!
//! Nothing here calls a model or knows what a tokenizer is. A [`search::Search`] requests rows of tokens,
//! receives their logits, and returns events; the engine may batch the rows of many searches in one forward
//! pass. Text is reached through the trait [`Vocabulary`] alone.
//!
//! A [`GenerationConfig`] (plain data, transformers' names) and a [`PromptBatch`] become a validated
//! [`GenerationPlan`], which [`search::build`] turns into a search, which returns a [`SearchOutput`].
#![forbid(unsafe_code)]

mod candidate;
pub mod config;
pub mod constraint;
pub mod embeddings;
mod exact;
mod grammar;
mod healing;
pub mod layer_states;
pub mod logits;
pub mod mode;
pub mod output;
pub mod plan;
mod prefix_allowed_tokens;
pub mod prompt;
mod random_state;
mod resolved;
pub mod search;
pub mod source;
mod step_cost;
pub mod stopping;
pub mod strategy;
#[cfg(test)]
mod tests;
mod thinking;
mod token_trie;
pub mod vocabulary;
mod watermark;

pub use candidate::VocabularyMap;
pub use config::{
    AssistantTokensSchedule, Compat, DolaLayers, EarlyStopping, FieldInfo, FieldValue, ForcedWord,
    GenerationConfig, JsonSchema, LogitBias, OneOrMany, SeedingScheme, SequenceBias,
    SynthIDTextWatermarkingConfig, Watermarking, WatermarkingConfig,
};
pub use embeddings::Embeddings;
pub use grammar::Grammars;
pub use layer_states::{LayerStates, SourceStates};
pub use logits::{LogitsProcessor, ProcessContext, ProcessorState, RowContext, ScoreRows};
pub use mode::GenerationMode;
pub use output::{DraftStats, OutputRow, SearchOutput, SequenceScores};
pub use plan::{
    DefaultLength, DraftContext, DraftPlan, DraftSource, EncoderContext, GenerationPlan, KeptTokens,
    PlanContext,
};
pub use prefix_allowed_tokens::PrefixAllowedTokens;
pub use prompt::{PromptBatch, PromptRow};
pub use random_state::RandomState;
pub use resolved::ResolvedConfig;
pub use rsgen_kernels::TorchRng;
pub use search::{Search, SearchInputs, SearchResults, SearchStep, TokenEvent};
pub use source::Source;
pub use step_cost::{PassSeconds, StepCost};
pub use stopping::{StopContext, StoppingCriterion};
pub use strategy::Strategy;
pub use token_trie::{TokenTrie, TokenTrieBuilder, TrieEntry};
pub use vocabulary::Vocabulary;
pub use watermark::{
    BayesianDetectorModel, SynthIDScores, SynthIDTextWatermarkDetector, WatermarkDetection, WatermarkDetector,
};

/// The name of a type, without its path.
fn type_name<T: ?Sized>() -> &'static str {
    let path = std::any::type_name::<T>();
    path.rsplit("::").next().unwrap_or(path)
}
