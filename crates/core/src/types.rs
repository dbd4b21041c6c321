//! The identifiers that all layers share, the reasons why a row of a request ends, and choices with their
//! reasons.
//!
//! Identifiers are newtypes because they are all small integers that would be easy to swap.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id_types {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The identifier as an index.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    )*};
}

id_types! {
    /// An entry of the vocabulary.
    TokenId(u32);
    /// A cached sequence, numbered by the search that owns it, from 0 within its request.
    SeqId(u32);
    /// A block of the KV slab.
    BlockId(u32);
}

/// Why a row of a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FinishReason {
    /// An end-of-sequence token was generated.
    Eos,
    /// A stop string was completed, or a criterion of the caller's said stop.
    Stop,
    /// `max_new_tokens`, `max_length` or the model's context was reached, or the row is a beam that was left
    /// over when its search ended.
    Length,
    /// `max_time` was over.
    Time,
    /// The caller left the stream, or interrupted the call.
    Cancelled,
}

impl FinishReason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Eos, Self::Stop, Self::Length, Self::Time, Self::Cancelled];

    /// The name that Python, JSON and the shell use: `eos`, `stop`, `length`, `time` or `cancelled`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eos => "eos",
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Time => "time",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for FinishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A value, given or default, with the rule that chose it.
///
/// The reason prints as the end of a sentence, such as `named by RSGEN_ISA`; in JSON its fields stand beside
/// `value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Choice<T, R> {
    /// The value.
    pub value: T,
    /// Why.
    #[serde(flatten)]
    pub reason: R,
}

impl<T, R> Choice<T, R> {
    /// A value and its reason.
    pub const fn new(value: T, reason: R) -> Self {
        Self { value, reason }
    }

    /// The same reason for what `change` makes of the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Choice<U, R> {
        Choice { value: change(self.value), reason: self.reason }
    }
}

/// A set of layer indices, 0 to 127. Layer `i` means the state *before* block `i`; the number of layers means
/// the state after the last block and the final norm, as in transformers' `hidden_states`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LayerSet(u128);

impl LayerSet {
    /// No layer.
    pub const EMPTY: Self = Self(0);

    /// The most layers a set can name.
    pub const CAPACITY: usize = 128;

    /// The set with `layer` added; `None` when `layer` is 128 or more.
    #[must_use]
    pub const fn with(self, layer: usize) -> Option<Self> {
        if layer < Self::CAPACITY { Some(Self(self.0 | 1 << layer)) } else { None }
    }

    /// The set of one layer; empty when `layer` is 128 or more.
    #[must_use]
    pub const fn single(layer: usize) -> Self {
        match Self::EMPTY.with(layer) {
            Some(set) => set,
            None => Self::EMPTY,
        }
    }

    /// The layers 0 to `num_layers`, both included; `None` when there are more than a set can name.
    #[must_use]
    pub const fn through(num_layers: usize) -> Option<Self> {
        if num_layers >= Self::CAPACITY {
            None
        } else {
            Some(Self(u128::MAX >> (Self::CAPACITY - 1 - num_layers)))
        }
    }

    /// Whether `layer` is in the set.
    pub const fn contains(self, layer: usize) -> bool {
        layer < Self::CAPACITY && self.0 >> layer & 1 == 1
    }

    /// The number of layers in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether no layer is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The layers, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Self::CAPACITY).filter(move |&layer| self.contains(layer))
    }
}

/// The sizes of a model's hidden states and attention weights.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LayerShape {
    /// The numbers of a hidden state before a layer.
    pub hidden_size: usize,
    /// The numbers of the one after the last layer: fewer or more where it is projected to the width of the
    /// embedding.
    pub last_size: usize,
    /// Query heads of a layer.
    pub num_heads: usize,
    /// The sliding window of each layer, of `[num_layers]`; `None` for one that sees the whole context.
    pub windows: Vec<Option<usize>>,
}

impl LayerShape {
    /// The shape of a model with these layers.
    pub fn new(hidden_size: usize, num_heads: usize, windows: Vec<Option<usize>>) -> Self {
        Self { hidden_size, last_size: hidden_size, num_heads, windows }
    }

    /// The same with so many numbers after the last layer.
    #[must_use]
    pub fn with_last_size(self, last_size: usize) -> Self {
        Self { last_size, ..self }
    }

    /// The numbers of the state before a layer, or after the last one.
    pub fn size_of(&self, layer: usize) -> usize {
        if layer == self.num_layers() { self.last_size } else { self.hidden_size }
    }

    /// The number of decoder layers.
    pub fn num_layers(&self) -> usize {
        self.windows.len()
    }

    /// The numbers of all hidden states of a token: before each layer, and after the last.
    pub fn hidden_len(&self) -> usize {
        self.num_layers() * self.hidden_size + self.last_size
    }

    /// The numbers of all attention weights of the token at a position.
    pub fn attention_len(&self, position: usize) -> usize {
        self.num_layers() * self.num_heads * (position + 1)
    }
}

/// The requested outputs of a row of a forward pass, besides its entry in the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RowOutputs {
    /// The logits after the last layer, `[vocab_size]`.
    pub logits: bool,
    /// The hidden states of these layers, `[hidden_size]` each; that after the last layer is as wide as the head
    /// reads it.
    pub hidden_states: LayerSet,
    /// The logits that the language-model head gives on the hidden states of these layers, without the final
    /// norm for layers below the last (`dola`), `[vocab_size]` each.
    pub layer_logits: LayerSet,
    /// The attention weights of all layers, `[num_layers, num_heads, position + 1]`.
    pub attentions: bool,
}

impl RowOutputs {
    /// Nothing: the row only enters the cache.
    pub const NONE: Self = Self {
        logits: false,
        hidden_states: LayerSet::EMPTY,
        layer_logits: LayerSet::EMPTY,
        attentions: false,
    };
    /// The logits alone.
    pub const LOGITS: Self = Self { logits: true, ..Self::NONE };

    /// Whether nothing is wanted.
    pub const fn is_none(self) -> bool {
        !self.logits && self.hidden_states.is_empty() && self.layer_logits.is_empty() && !self.attentions
    }

    /// What either wants.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            logits: self.logits || other.logits,
            hidden_states: LayerSet(self.hidden_states.0 | other.hidden_states.0),
            layer_logits: LayerSet(self.layer_logits.0 | other.layer_logits.0),
            attentions: self.attentions || other.attentions,
        }
    }
}
