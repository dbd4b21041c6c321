//! The forms of prompts.

use rsgen_core::{Error, Result, TokenId};
use rsgen_generation::{Embeddings, PromptBatch};

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text. The model's tokenizer encodes it and adds special tokens.
    Text(String),
    /// Token ids, used as they are.
    Ids(Vec<TokenId>),
    /// Embeddings in place of tokens: transformers' `inputs_embeds`.
    /// [`Generator::embed`](super::Generator::embed) gives those of tokens.
    Embeddings {
        /// The embedding of each position.
        embeddings: Embeddings,
        /// The ids that processors, criteria and assistants see as the prompt, and that the output begins
        /// with; may be empty.
        input_ids: Vec<TokenId>,
    },
}

/// One prompt or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompts {
    /// One prompt.
    One(Prompt),
    /// Independent prompts: each gives the same output as alone.
    List(Vec<Prompt>),
    /// A rectangle of ids, padded and masked: a batch of transformers, with its shared random generator.
    Batch(PromptBatch),
}

impl Prompts {
    /// How many there are; the rows of a batch, which is one request.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::List(list) => list.len(),
            Self::Batch(batch) => batch.rows().len(),
        }
    }

    /// Checks that a stream can have them, before anything is encoded.
    ///
    /// # Errors
    /// `Input` for several independent ones.
    pub fn check_stream(&self) -> Result<()> {
        match self {
            Self::List(list) if list.len() > 1 => Err(several_in_a_stream()),
            _ => Ok(()),
        }
    }
}

/// The error for a stream of several prompts.
pub(super) fn several_in_a_stream() -> Error {
    Error::input("a stream has one prompt; open a stream for each, they can be read in turns")
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

impl From<Embeddings> for Prompt {
    fn from(embeddings: Embeddings) -> Self {
        Self::Embeddings { embeddings, input_ids: Vec::new() }
    }
}

impl From<Embeddings> for Prompts {
    fn from(embeddings: Embeddings) -> Self {
        Self::One(embeddings.into())
    }
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
