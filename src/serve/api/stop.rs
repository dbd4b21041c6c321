//! OpenAI's stop strings: they end an answer when its new text holds one, and the answer ends before it.
//!
//! `stop_strings` of transformers may begin in the prompt and stay in the text.

use std::sync::Arc;

use crate::engine::TokenizerVocabulary;
use crate::generator::Generator;
use crate::serve::failure::Failure;
use rsgen_core::error::Result;
use rsgen_core::types::FinishReason;
use rsgen_generation::stopping::StopStringCriteria;
use rsgen_generation::{StopContext, StoppingCriterion};

/// The most bytes of all stop strings of a request, which bounds the work after each token.
const MAX_BYTES: usize = 4096;

/// The stop strings of a request.
#[derive(Debug)]
pub(super) struct Stops {
    texts: Vec<String>,
    /// Whether the answer includes the stop string that ends it.
    is_kept: bool,
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
        Ok(Self { texts, is_kept })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The earliest stop string in `text` that ends after its byte `new`, as the range of bytes that it
    /// takes.
    fn find(&self, text: &str, new: usize) -> Option<(usize, &str)> {
        let found = self.texts.iter().filter_map(|stop| {
            let mut from = (new + 1).saturating_sub(stop.len());
            while !text.is_char_boundary(from) {
                from += 1;
            }
            Some((from + text.get(from..)?.find(stop.as_str())?, stop.as_str()))
        });
        found.min_by_key(|(start, _)| *start)
    }

    /// The start of the longest end of `text` that begins a stop string.
    fn possible_start(&self, text: &str) -> usize {
        let is_start = |end: &str| self.texts.iter().any(|stop| stop.starts_with(end));
        text.char_indices()
            .map(|(start, _)| start)
            .find(|&start| is_start(&text[start..]))
            .unwrap_or(text.len())
    }
}

/// The text of a growing answer. It holds back what may become a stop string.
#[derive(Debug)]
pub(super) struct HeldText {
    stops: Arc<Stops>,
    held: String,
}

impl HeldText {
    pub(super) fn new(stops: Arc<Stops>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Adds the text of a token, and returns the text that no later token can change. With the reason of a
    /// row's end, returns the rest, and the stop string that has ended the row.
    pub(super) fn push(&mut self, text: &str, finish: Option<FinishReason>) -> (String, Option<&str>) {
        let new = self.held.len();
        self.held.push_str(text);
        if finish.is_none() {
            let start = self.stops.possible_start(&self.held);
            let held = self.held.split_off(start);
            return (std::mem::replace(&mut self.held, held), None);
        }
        let found = match finish {
            Some(FinishReason::Stop) => self.stops.find(&self.held, new),
            _ => None,
        };
        if let Some((start, stop)) = found {
            self.held.truncate(if self.stops.is_kept { start + stop.len() } else { start });
        }
        (std::mem::take(&mut self.held), found.map(|(_, stop)| stop))
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
        criteria
            .map(Self)
            .map_err(|error| Failure::invalid("stop", error.to_string().replace("`stop_strings`", "`stop`")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn held(stops: &[&str], is_kept: bool) -> HeldText {
        let texts = stops.iter().map(|&stop| stop.to_owned()).collect();
        HeldText::new(Arc::new(Stops::new(texts, is_kept).unwrap()))
    }

    #[test]
    fn an_answer_ends_before_its_stop_string_or_after_it() {
        for (is_kept, expected) in [(false, "one "), (true, "one two")] {
            let mut text = held(&["two"], is_kept);
            assert_eq!(text.push("one t", None), ("one ".to_owned(), None));
            assert_eq!(text.push("w", None).0, "");
            let (end, stop) = text.push("o three", Some(FinishReason::Stop));
            assert_eq!(stop, Some("two"));
            assert_eq!(format!("one {end}"), expected);
        }
        let mut text = held(&["two"], false);
        assert_eq!(text.push("tw", None).0, "");
        assert_eq!(text.push("ice", None).0, "twice", "what was held comes when it is no stop string");
        assert_eq!(text.push(" tw", Some(FinishReason::Length)).0, " tw");
        let mut text = held(&["aab"], false);
        assert_eq!(text.push("aa", None).0 + &text.push("ab", Some(FinishReason::Stop)).0, "a");
    }

    proptest! {
        #[test]
        fn pieces_joined_are_the_text_before_the_first_stop_string(
            pieces in proptest::collection::vec("[abé]{0,3}", 1..8),
            stops in proptest::collection::vec("[abé]{1,3}", 1..4),
        ) {
            // A row ends with the first token that completes a stop string.
            let whole = |count: usize| pieces[..count].concat();
            let ended = (1..=pieces.len()).find(|&count| stops.iter().any(|stop| whole(count).contains(stop.as_str())));
            let texts: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (mut text, mut joined) = (held(&texts, false), String::new());
            let count = ended.unwrap_or(pieces.len());
            for (index, piece) in pieces[..count].iter().enumerate() {
                let reason = if ended.is_some() { FinishReason::Stop } else { FinishReason::Length };
                joined += &text.push(piece, (index + 1 == count).then_some(reason)).0;
            }
            let text = whole(count);
            let first = stops.iter().filter_map(|stop| text.find(stop.as_str())).min();
            prop_assert_eq!(&joined, &text[..first.unwrap_or(text.len())]);
        }
    }
}
