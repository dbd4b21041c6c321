//! The normalizer of a tokenizer.json, one step after the other and within a budget.

use std::cell::{Cell, RefCell};

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokenizers::pattern::Pattern;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper, Offsets};

use super::bounded_regex::BoundedRegex;
use super::budget::{Budget, MAX_TEXT_BYTES, check_length};
use super::checks::growth;
use rsgen_core::error::{Error, Result};

/// The length of the pieces that a step is tried on, to see how long it makes a text.
const TRIAL_BYTES: usize = 256;

/// The `normalizer` of a tokenizer.json.
#[derive(Debug, Clone, Default)]
pub(super) struct Normalizing(Vec<Step>);

#[derive(Debug, Clone)]
enum Step {
    Replace { pattern: BoundedRegex, content: String },
    Other { normalizer: NormalizerWrapper, growth: usize },
}

impl Normalizing {
    fn add(&mut self, normalizer: NormalizerWrapper) -> Result<()> {
        if let NormalizerWrapper::Sequence(sequence) = normalizer {
            return sequence.into_iter().try_for_each(|part| self.add(part));
        }
        let json = serde_json::to_value(&normalizer)
            .map_err(|error| Error::load("its normalizer cannot be used").with_source(error))?;
        self.0.push(match normalizer {
            NormalizerWrapper::Replace(replace) => {
                Step::Replace { pattern: pattern(&json["pattern"])?, content: replace.content }
            }
            normalizer => Step::Other { growth: growth(&json)?, normalizer },
        });
        Ok(())
    }

    pub(super) fn within<'a, 'b>(&'a self, budget: &'a Budget<'b>) -> Within<'a, 'b> {
        Within { normalizing: self, budget, state: RefCell::new(Ok(0)) }
    }

    fn apply(&self, text: &mut NormalizedString, budget: &Budget<'_>) -> Result<()> {
        self.0.iter().try_for_each(|step| step.apply(text, budget))
    }
}

/// A normalizer within a budget. The crate ignores an error of a normalizer, so it is kept here.
pub(super) struct Within<'a, 'b> {
    normalizing: &'a Normalizing,
    budget: &'a Budget<'b>,
    /// The bytes so far, or why it stopped.
    state: RefCell<Result<usize>>,
}

impl Within<'_, '_> {
    /// # Errors
    /// `Input` when a text is too long or cannot be normalized; `Cancelled`.
    pub(super) fn finish(self) -> Result<()> {
        self.state.into_inner().map(|_| ())
    }
}

impl Normalizer for Within<'_, '_> {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        let mut state = self.state.borrow_mut();
        if let Ok(bytes) = &mut *state {
            let applied = self.normalizing.apply(text, self.budget);
            *bytes += text.get().len();
            let checked = applied.and_then(|()| check_length(*bytes));
            if let Err(error) = checked {
                *state = Err(error);
            }
        }
        Ok(())
    }
}

/// The pattern of a `Replace`, of a normalizer or a decoder.
pub(super) fn pattern(pattern: &Value) -> Result<BoundedRegex> {
    match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
        (Some(text), _) => BoundedRegex::of_text(text),
        (_, Some(regex)) => BoundedRegex::new(regex),
        _ => Err(Error::load("a Replace must have a pattern: a String or a Regex")),
    }
}

impl Step {
    fn apply(&self, text: &mut NormalizedString, budget: &Budget<'_>) -> Result<()> {
        budget.work(text.get().len())?;
        let done = match self {
            Self::Replace { pattern, content } => {
                let parts = pattern.parts(text.get(), budget)?;
                let length = |&((start, end), found): &(Offsets, bool)| {
                    if found { content.len() } else { end - start }
                };
                check_length(parts.iter().map(length).sum())?;
                text.replace(Found(Cell::new(parts)), content)
            }
            Self::Other { normalizer: NormalizerWrapper::Prepend(prepend), .. } => {
                check_length(text.get().len() + prepend.prepend.len())?;
                prepend.normalize(text)
            }
            Self::Other { normalizer, growth } => {
                if text.get().len().saturating_mul(*growth) > MAX_TEXT_BYTES {
                    check_length(trial(normalizer, *growth, text.get(), budget)?)?;
                }
                normalizer.normalize(text)
            }
        };
        done.map_err(|cause| Error::input("the tokenizer cannot normalize the text").with_source(cause))
    }
}

/// The most bytes that a step makes of a text: normalizes it piece by piece. What the step does across the border of two
/// pieces adds no more than it can make of a character.
fn trial(normalizer: &NormalizerWrapper, growth: usize, text: &str, budget: &Budget<'_>) -> Result<usize> {
    let (mut rest, mut bytes) = (text, 0);
    while !rest.is_empty() && bytes <= MAX_TEXT_BYTES {
        let end = (1..=TRIAL_BYTES.min(rest.len())).rev().find(|&end| rest.is_char_boundary(end));
        let (piece, later) = rest.split_at(end.unwrap_or(rest.len()));
        budget.work(piece.len())?;
        let mut piece = NormalizedString::from(piece);
        let normalized = normalizer.normalize(&mut piece);
        normalized
            .map_err(|cause| Error::input("the tokenizer cannot normalize the text").with_source(cause))?;
        bytes += piece.get().len() + growth;
        rest = later;
    }
    Ok(bytes)
}

/// Matches that were found before.
struct Found(Cell<Vec<(Offsets, bool)>>);

impl Pattern for Found {
    fn find_matches(&self, _: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        Ok(self.0.take())
    }
}

/// Without a budget, for the tokens of the file itself.
impl Normalizer for Normalizing {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        Ok(self.apply(text, &Budget::new(&mut || false))?)
    }
}

impl TryFrom<NormalizerWrapper> for Normalizing {
    type Error = Error;

    fn try_from(normalizer: NormalizerWrapper) -> Result<Self> {
        let mut normalizing = Self::default();
        normalizing.add(normalizer)?;
        Ok(normalizing)
    }
}

impl<'de> Deserialize<'de> for Normalizing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(NormalizerWrapper::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
