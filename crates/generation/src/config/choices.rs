//! Fields that are one of a few words, or a word instead of a value of another type.

use std::fmt;

use super::field::{FieldType, words};
use super::kind::FieldKind;
use super::value::FieldValue;
use rsgen_core::TokenId;

/// When a beam search ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EarlyStopping {
    /// Once the running beams are unlikely to beat the finished ones.
    #[default]
    False,
    /// With as many finished hypotheses as beams.
    True,
    /// When no running beam can beat the finished ones.
    Never,
}

impl FieldType for EarlyStopping {
    const KIND: FieldKind = FieldKind::AnyOf(&[FieldKind::Bool, FieldKind::Word(&["never"])]);

    fn parse(value: &FieldValue) -> Option<Self> {
        match value {
            FieldValue::Bool(stop) => Some(Self::from(*stop)),
            FieldValue::Text(text) if text == "never" => Some(Self::Never),
            _ => None,
        }
    }

    fn to_value(&self) -> FieldValue {
        match self {
            Self::False => FieldValue::Bool(false),
            Self::True => FieldValue::Bool(true),
            Self::Never => FieldValue::from("never"),
        }
    }
}

impl From<bool> for EarlyStopping {
    fn from(stop: bool) -> Self {
        if stop { Self::True } else { Self::False }
    }
}

/// How many tokens an assistant drafts, from draft to draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AssistantTokensSchedule {
    /// As many each time.
    #[default]
    Constant,
    /// 2 more after a draft that was accepted whole, else 1 less; the next call with the assistant goes on
    /// from there.
    Heuristic,
    /// The same, but each call begins anew.
    HeuristicTransient,
    /// As many as make the tokens come fastest by the times of passes and the drafts accepted so far, or
    /// none. Of prompt lookup too. The tokens are those without drafts, also when they are drawn with a seed.
    Adaptive,
}

words!(AssistantTokensSchedule {
    Constant = "constant",
    Heuristic = "heuristic",
    HeuristicTransient = "heuristic_transient",
    Adaptive = "adaptive"
});

/// The layers that are contrasted with the last one in decoding by contrasting layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DolaLayers {
    /// `"low"`: the lower half.
    Low,
    /// `"high"`: the upper half.
    High,
    /// These layers.
    Layers(Vec<usize>),
}

impl FieldType for DolaLayers {
    const KIND: FieldKind = FieldKind::Described(
        "\"low\", \"high\" or a list of layer numbers",
        &FieldKind::AnyOf(&[FieldKind::Word(&["low", "high"]), Vec::<usize>::KIND]),
    );

    fn parse(value: &FieldValue) -> Option<Self> {
        match value {
            FieldValue::Text(text) if text == "low" => Some(Self::Low),
            FieldValue::Text(text) if text == "high" => Some(Self::High),
            layers => Vec::parse(layers).map(Self::Layers),
        }
    }

    fn to_value(&self) -> FieldValue {
        match self {
            Self::Low => FieldValue::from("low"),
            Self::High => FieldValue::from("high"),
            Self::Layers(layers) => layers.to_value(),
        }
    }
}

impl From<Vec<usize>> for DolaLayers {
    fn from(layers: Vec<usize>) -> Self {
        Self::Layers(layers)
    }
}

/// A phrase, or alternatives, that must occur in the output of a constrained beam search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForcedWord {
    /// These tokens, one after the other.
    Phrase(Vec<TokenId>),
    /// One of these phrases.
    AnyOf(Vec<Vec<TokenId>>),
}

impl FieldType for Vec<ForcedWord> {
    const KIND: FieldKind = FieldKind::Described(
        "a list of words, each a list of token ids or a list of such lists",
        &FieldKind::List(&FieldKind::AnyOf(&[FieldKind::IDS, Vec::<Vec<TokenId>>::KIND]), usize::MAX),
    );

    fn parse(value: &FieldValue) -> Option<Self> {
        let FieldValue::List(words) = value else { return None };
        let phrase = |word| Vec::parse(word).map(ForcedWord::Phrase);
        words.iter().map(|word| phrase(word).or_else(|| Vec::parse(word).map(ForcedWord::AnyOf))).collect()
    }

    fn to_value(&self) -> FieldValue {
        let word = |word: &ForcedWord| match word {
            ForcedWord::Phrase(phrase) => phrase.to_value(),
            ForcedWord::AnyOf(phrases) => phrases.to_value(),
        };
        self.iter().map(word).collect()
    }
}

/// An older transformers version to follow where its results differ from those of the newest, 5.24.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compat {
    /// transformers 4.49.0.
    V4_49,
    /// transformers 5.23.0.
    V5_23,
}

words!(Compat { V4_49 = "4.49", V5_23 = "5.23" } says "\"4.49\" or \"5.23\", an older transformers that results can follow");

impl fmt::Display for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
