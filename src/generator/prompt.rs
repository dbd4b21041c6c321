//! What can be given as a prompt.

use crate::generation::PromptBatch;
use crate::types::TokenId;

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text, which the model's tokenizer encodes, special tokens added.
    Text(String),
    /// Token ids, taken as they are.
    Ids(Vec<TokenId>),
}

/// One prompt or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompts {
    /// One prompt.
    One(Prompt),
    /// Independent prompts: each gives what it gives alone.
    List(Vec<Prompt>),
    /// A rectangle of ids, padded and masked: what transformers makes of a batch, its shared random generator included.
    Batch(PromptBatch),
}

macro_rules! from {
    ($($source:ty => |$value:ident| $prompt:expr;)*) => {$(
        impl From<$source> for Prompt {
            fn from($value: $source) -> Self {
                $prompt
            }
        }

        impl From<$source> for Prompts {
            fn from(value: $source) -> Self {
                Self::One(value.into())
            }
        }

        impl From<Vec<$source>> for Prompts {
            fn from(values: Vec<$source>) -> Self {
                Self::List(values.into_iter().map(Prompt::from).collect())
            }
        }
    )*};
}

from! {
    &str => |text| Self::Text(text.to_owned());
    String => |text| Self::Text(text);
    Vec<TokenId> => |token_ids| Self::Ids(token_ids);
    &[TokenId] => |token_ids| Self::Ids(token_ids.to_vec());
}

impl From<Prompt> for Prompts {
    fn from(prompt: Prompt) -> Self {
        Self::One(prompt)
    }
}

impl From<Vec<Prompt>> for Prompts {
    fn from(prompts: Vec<Prompt>) -> Self {
        Self::List(prompts)
    }
}

impl From<PromptBatch> for Prompts {
    fn from(batch: PromptBatch) -> Self {
        Self::Batch(batch)
    }
}
