//! Texts of rows that end before the stop string that has ended them.
//!
//! A stop string may begin in the prompt: then nothing of the new text is left.

use std::sync::Arc;

use rsgen_core::FinishReason;
use rsgen_generation::GenerationPlan;
use rsgen_generation::plan::PlannedPrompt;
use rsgen_text::Tokenizer;

/// The stop strings of a request.
#[derive(Debug)]
pub(crate) struct StopTexts {
    texts: Vec<String>,
    /// Whether a text includes the stop string that ends it.
    is_kept: bool,
}

impl StopTexts {
    /// Those of a request that may end its texts.
    pub(crate) fn new(texts: Vec<String>, is_kept: bool) -> Self {
        Self { texts, is_kept }
    }

    /// Those of a plan whose texts are to end before them.
    pub(super) fn of(plan: &GenerationPlan) -> Option<Arc<Self>> {
        let fields = &plan.config().fields;
        let texts = fields.stop_strings.as_ref()?.as_slice().to_vec();
        let is_left_out = fields.include_stop_str_in_output == Some(false) && !texts.is_empty();
        is_left_out.then(|| Arc::new(Self::new(texts, false)))
    }

    /// The end of the text of a prompt that may begin a stop string. `added` is a part of that text which is the
    /// beginning of the new one.
    pub(super) fn end_of(&self, tokenizer: &Tokenizer, prompt: &PlannedPrompt, added: &str) -> String {
        let longest = self.texts.iter().map(String::len).max().unwrap_or(0);
        let tokens = prompt.tokens();
        let last = &tokens[tokens.len().saturating_sub(longest + added.len())..];
        let mut text = tokenizer.decode(last, true).unwrap_or_default();
        if text.ends_with(added) {
            text.truncate(text.len() - added.len());
        }
        let mut start = text.len().saturating_sub(longest.saturating_sub(1));
        while !text.is_char_boundary(start) {
            start += 1;
        }
        text.split_off(start)
    }

    /// The earliest stop string in `text` that ends after its byte `new`, as where it begins, and itself.
    pub(crate) fn find(&self, text: &str, new: usize) -> Option<(usize, &str)> {
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

/// A growing text. It holds back what may become a stop string.
#[derive(Debug)]
pub(crate) struct HeldText {
    stops: Arc<StopTexts>,
    held: String,
    /// How many bytes at its beginning are the end of the prompt.
    before: usize,
}

impl HeldText {
    /// The text after one that ends with `before`.
    pub(crate) fn new(stops: Arc<StopTexts>, before: String) -> Self {
        Self { stops, before: before.len(), held: before }
    }

    /// Adds the text of a token, and returns the text that no later token can change. With the reason of a
    /// row's end, returns the rest, and the stop string that has ended the row.
    pub(crate) fn push(&mut self, text: &str, finish: Option<FinishReason>) -> (String, Option<&str>) {
        let new = self.held.len();
        self.held.push_str(text);
        if finish.is_none() {
            let start = self.stops.possible_start(&self.held);
            let held = self.held.split_off(start);
            let mut given = std::mem::replace(&mut self.held, held);
            let of_prompt = self.before.min(start);
            self.before -= of_prompt;
            return (given.split_off(of_prompt), None);
        }
        let mut rest = std::mem::take(&mut self.held);
        let found = match finish {
            Some(FinishReason::Stop) => self.stops.find(&rest, new),
            _ => None,
        };
        if let Some((start, stop)) = found {
            rest.truncate(if self.stops.is_kept { start + stop.len() } else { start });
        }
        let rest = rest.split_off(self.before.min(rest.len()));
        (rest, found.map(|(_, stop)| stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn held(stops: &[&str], is_kept: bool, before: &str) -> HeldText {
        let texts = stops.iter().map(|&stop| stop.to_owned()).collect();
        HeldText::new(Arc::new(StopTexts::new(texts, is_kept)), before.to_owned())
    }

    #[test]
    fn a_text_ends_before_its_stop_string_or_after_it() {
        for (is_kept, expected) in [(false, "one "), (true, "one two")] {
            let mut text = held(&["two"], is_kept, "");
            assert_eq!(text.push("one t", None), ("one ".to_owned(), None));
            assert_eq!(text.push("w", None).0, "");
            let (end, stop) = text.push("o three", Some(FinishReason::Stop));
            assert_eq!(stop, Some("two"));
            assert_eq!(format!("one {end}"), expected);
        }
        let mut text = held(&["two"], false, "");
        assert_eq!(text.push("tw", None).0, "");
        assert_eq!(text.push("ice", None).0, "twice", "what was held comes when it is no stop string");
        assert_eq!(text.push(" tw", Some(FinishReason::Length)).0, " tw");
        let mut text = held(&["aab"], false, "");
        assert_eq!(text.push("aa", None).0 + &text.push("ab", Some(FinishReason::Stop)).0, "a");
    }

    #[test]
    fn of_a_stop_string_that_begins_in_the_prompt_nothing_is_given() {
        let mut text = held(&["end."], false, "the end");
        assert_eq!(text.push(". So", Some(FinishReason::Stop)), (String::new(), Some("end.")));
        let mut text = held(&["end."], false, "end");
        assert_eq!(text.push("", None).0, "");
        assert_eq!(text.push("less", None).0, "less", "the prompt is not repeated");
        assert_eq!(text.push(" end", None).0, " ");
        assert_eq!(text.push(".", Some(FinishReason::Stop)).0, "");
    }

    proptest! {
        #[test]
        fn pieces_joined_are_the_text_before_the_first_stop_string(
            before in "[abé]{0,3}",
            pieces in proptest::collection::vec("[abé]{0,3}", 1..8),
            stops in proptest::collection::vec("[abé]{1,3}", 1..4),
        ) {
            // A row ends with the first token that completes a stop string.
            let whole = |count: usize| before.clone() + &pieces[..count].concat();
            let first = |count: usize| {
                let (all, known) = (whole(count), whole(count - 1).len());
                let ends = |stop: &String| all.match_indices(stop.as_str()).map(|(at, _)| at).chain(
                    // Matches may overlap.
                    all.char_indices().map(|(at, _)| at).filter(|&at| all[at..].starts_with(stop.as_str()))
                ).filter(|at| at + stop.len() > known).min();
                stops.iter().filter_map(ends).min()
            };
            let ended = (1..=pieces.len()).find(|&count| first(count).is_some());
            let texts: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (mut text, mut joined) = (held(&texts, false, &before), String::new());
            let count = ended.unwrap_or(pieces.len());
            for (index, piece) in pieces[..count].iter().enumerate() {
                let reason = if ended.is_some() { FinishReason::Stop } else { FinishReason::Length };
                joined += &text.push(piece, (index + 1 == count).then_some(reason)).0;
            }
            let all = whole(count);
            let end = first(count).unwrap_or(all.len()).max(before.len());
            prop_assert_eq!(&joined, &all[before.len()..end]);
        }
    }
}
