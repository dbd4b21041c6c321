//! The identifiers that all layers share, and the reasons why a row of a request ends.
//!
//! Identifiers are newtypes because they are all small integers that would be easy to swap.

use std::fmt;

macro_rules! id_types {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
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
    /// A request, numbered by the engine.
    RequestId(u64);
    /// A block of the KV slab.
    BlockId(u32);
}

/// Why a row of a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FinishReason {
    /// An end-of-sequence token was generated.
    Eos,
    /// A stop string was completed, or a criterion of the caller's said stop.
    Stop,
    /// `max_new_tokens`, `max_length` or the model's context was reached.
    Length,
    /// `max_time` was over.
    Time,
    /// The caller left the stream, or interrupted the call.
    Cancelled,
}

impl FinishReason {
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
