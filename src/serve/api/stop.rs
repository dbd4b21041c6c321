//! OpenAI's stop strings: they end an answer when its new text holds one, and the answer ends before it.
//!
//! `stop_strings` of transformers may begin in the prompt and stay in the text.

use std::sync::Arc;

use crate::engine::{HeldText, StopTexts, TokenizerVocabulary};
use crate::generator::Generator;
use crate::serve::failure::Failure;
use rsgen_core::error::{Mention, Result};
use rsgen_core::types::FinishReason;
use rsgen_generation::stopping::StopStringCriteria;
use rsgen_generation::{StopContext, StoppingCriterion};

/// The most bytes of all stop strings of a request, which bounds the work after each token.
const MAX_BYTES: usize = 4096;

/// The stop strings of a request.
#[derive(Debug)]
pub(super) struct Stops {
    texts: Vec<String>,
    of_text: Arc<StopTexts>,
}

impl Stops {
    /// # Errors
    /// When they are longer than a request may have them.
    pub(super) fn new(texts: Vec<String>, is_kept: bool) -> Result<Self, Failure> {
        let bytes: usize = texts.iter().map(String::len).sum();
        if bytes > MAX_BYTES {
            let message =
                format!("`stop` must have at most {MAX_BYTES} bytes together, but has {bytes}; shorten it");
            return Err(Failure::invalid("stop", message));
        }
        Ok(Self { of_text: Arc::new(StopTexts::new(texts.clone(), is_kept)), texts })
    }

    /// The text of an answer, which they end.
    pub(super) fn held_text(&self) -> HeldText {
        HeldText::new(Arc::clone(&self.of_text), String::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// Stops a row when its new text completes a stop string.
pub(super) struct StopInNewText(StopStringCriteria);

impl StopInNewText {
    /// # Errors
    /// When the model has no tokenizer, or none of its tokens can complete a stop string.
    pub(super) fn new(generator: &Generator, stops: &Stops) -> Result<Self, Failure> {
        let vocabulary = Arc::new(TokenizerVocabulary(generator.tokenizer()?.clone()));
        let criteria = StopStringCriteria::new(vocabulary, &stops.texts);
        criteria.map(Self).map_err(|error| {
            Failure::invalid(
                "stop",
                error.in_words(&|mention| match mention {
                    Mention::Name(_) => "`stop`".to_owned(),
                    other => other.plain(),
                }),
            )
        })
    }
}

impl StoppingCriterion for StopInNewText {
    fn name(&self) -> &'static str {
        "StopInNewText"
    }

    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let mut new = *row;
        (new.input_ids, new.prompt_len) = (row.new_tokens(), 0);
        self.0.should_stop(&new)
    }
}
