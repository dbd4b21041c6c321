//! [`FieldInfo`]: what is known of a field. The parsers, JSON schemas, options, signatures and checks of all
//! interfaces are made from it.

use super::kind::FieldKind;
use super::{FieldValue, GenerationConfig};
use crate::mode::GenerationMode;
use rsgen_core::Result;

/// The most rows that a request to a service computes: prompts, times the rows or beams of each.
pub const MAX_ROWS: usize = 64;
/// The most entries of a list or a map in a request.
pub const MAX_ENTRIES: usize = 1024;
/// The most stop strings of a request.
pub const MAX_STOPS: usize = 16;
/// The longest text of a request that is no prompt, in bytes.
pub const MAX_TEXT: usize = 4096;

/// A field, for help pages, bindings and checks.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FieldInfo {
    /// The name, as in transformers.
    pub name: &'static str,
    /// Its values.
    pub kind: FieldKind,
    /// The values that a service allows: with these no computation leaves the real numbers, and no request is
    /// too large. The library itself has wider ranges, which depend on other fields and on the model.
    pub served: FieldKind,
    /// The default.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The group of its option.
    pub heading: Heading,
    /// The searches that read it.
    pub searches: Searches,
    pub(super) get: fn(&GenerationConfig) -> Option<FieldValue>,
    pub(super) set: fn(&mut GenerationConfig, &FieldValue) -> Result<()>,
    pub(super) explain: fn(&FieldValue) -> Option<String>,
}

impl FieldInfo {
    /// The field of that name.
    pub fn of(name: &str) -> Option<&'static Self> {
        GenerationConfig::FIELDS.iter().find(|field| field.name == name)
    }

    /// Says what is wrong within a value that is nearly one of the field's, to follow its name.
    pub fn explain(&self, value: &FieldValue) -> Option<String> {
        (self.explain)(value)
    }
}

/// A group of fields, in the order of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Heading {
    /// When a text ends.
    Length,
    /// What most calls set.
    Decoding,
    /// What may be drawn.
    Sampling,
    /// Beams and other searches.
    Searches,
    /// Drafts of tokens.
    Drafts,
    /// What a text follows.
    Structure,
    /// Penalties and biases.
    Penalties,
    /// Guidance by a negative prompt.
    Guidance,
    /// The ids of special tokens.
    SpecialTokens,
    /// What an output holds besides.
    Results,
    /// Arrays of an output, for programs alone.
    Arrays,
    /// Accepted without effect.
    Accepted,
}

impl Heading {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Length => "Length",
            Self::Decoding => "Decoding",
            Self::Sampling => "Sampling",
            Self::Searches => "Beams and other searches",
            Self::Drafts => "Drafts",
            Self::Structure => "Structured output",
            Self::Penalties => "Penalties and biases",
            Self::Guidance => "Guidance",
            Self::SpecialTokens => "Special tokens",
            Self::Results => "More results",
            Self::Arrays => "Arrays",
            Self::Accepted => "Without effect",
        }
    }
}

/// The searches that read a field. Others check its value and go on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Searches {
    /// Every search.
    All,
    /// Wherever tokens are drawn.
    Sampling,
    /// Sampling, and contrastive search.
    SamplingOrContrastive,
    /// Contrastive search.
    Contrastive,
    /// Decoding by contrasting layers.
    Dola,
    /// Prompt lookup.
    PromptLookup,
    /// Assisted decoding.
    Assisted,
    /// Both that draft.
    Drafts,
    /// Searches with beams.
    Beams,
    /// Beam search in groups.
    BeamGroups,
    /// Constrained beam search.
    Constrained,
}

impl Searches {
    /// Whether a search is one of them; `samples` is whether it draws.
    pub const fn includes(self, mode: GenerationMode, samples: bool) -> bool {
        use GenerationMode as Mode;
        match self {
            Self::All => true,
            Self::Sampling => samples,
            Self::SamplingOrContrastive => samples || matches!(mode, Mode::ContrastiveSearch),
            Self::Contrastive => matches!(mode, Mode::ContrastiveSearch),
            Self::Dola => matches!(mode, Mode::Dola),
            Self::PromptLookup => matches!(mode, Mode::PromptLookup),
            Self::Assisted => matches!(mode, Mode::AssistedDecoding),
            Self::Drafts => matches!(mode, Mode::PromptLookup | Mode::AssistedDecoding),
            Self::Beams => mode.has_beams(),
            Self::BeamGroups => matches!(mode, Mode::GroupBeamSearch),
            Self::Constrained => matches!(mode, Mode::ConstrainedBeamSearch),
        }
    }
}
