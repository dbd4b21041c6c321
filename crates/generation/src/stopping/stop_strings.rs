//! Stop strings, matched on bytes, as in transformers 5's `StopStringCriteria`.
//!
//! A row stops when a stop string ends inside its newest token or at that token's end; the string may have
//! begun in the prompt, and text that follows it inside the token stays. Nothing is trimmed here. Bytes, not
//! characters, are compared, so a character that is split over tokens matches too.

use std::sync::Arc;

use rsgen_core::{FinishReason, Result, TokenId, refuse_if};

use super::super::resolved::ResolvedConfig;
use super::super::vocabulary::Vocabulary;
use super::{Built, StopContext, StoppingCriterion, needs_vocabulary};

/// Bounds on the work of a request after every token.
const MAX_STRINGS: usize = 1024;
const MAX_STRING_BYTES: usize = 4096;

/// Stops a row when a stop string is completed.
#[derive(Clone)]
pub struct StopStringCriteria {
    stop_strings: Vec<Vec<u8>>,
    /// The number of bytes before the newest token that can belong to a stop string.
    longest_start: usize,
    vocabulary: Arc<dyn Vocabulary>,
}

impl StopStringCriteria {
    /// Stops on any of `stop_strings`, matched against the bytes of `vocabulary`'s tokens.
    ///
    /// # Errors
    /// When a string is empty, too long, or cannot be completed by any token; when there are too many.
    pub fn new(vocabulary: Arc<dyn Vocabulary>, stop_strings: &[String]) -> Result<Self> {
        refuse_if(stop_strings.len() > MAX_STRINGS, "stop_strings", || {
            format!("must hold at most {MAX_STRINGS} texts, but holds {}", stop_strings.len())
        })?;
        for (index, text) in stop_strings.iter().enumerate() {
            refuse_if(text.is_empty(), "stop_strings", || {
                format!(
                    "must hold texts that are not empty, but entry {index} is \"\", which every text \
                 contains; remove it"
                )
            })?;
            refuse_if(text.len() > MAX_STRING_BYTES, "stop_strings", || {
                format!(
                    "must hold texts of at most {MAX_STRING_BYTES} bytes, but entry {index} has {}",
                    text.len()
                )
            })?;
            let ids = 0..u32::try_from(vocabulary.len()).unwrap_or(u32::MAX);
            let mut tokens = ids.filter_map(|id| vocabulary.token_bytes(TokenId(id)));
            refuse_if(!tokens.any(|token| ends_in(text.as_bytes(), token)), "stop_strings", || {
                format!(
                    ": no token of the vocabulary can complete {text:?}, so it would never stop; remove it"
                )
            })?;
        }
        let stop_strings: Vec<Vec<u8>> = stop_strings.iter().map(|text| text.clone().into_bytes()).collect();
        let longest_start = stop_strings.iter().map(|text| text.len() - 1).max().unwrap_or(0);
        Ok(Self { stop_strings, longest_start, vocabulary })
    }

    pub(super) fn build(config: &ResolvedConfig) -> Built {
        let stop_strings = config.fields.stop_strings.as_ref().map_or(&[][..], |texts| texts.as_slice());
        if stop_strings.is_empty() {
            return Ok(None);
        }
        let vocabulary = config.vocabulary.as_ref().ok_or_else(|| needs_vocabulary("stop_strings"))?;
        Ok(Some(Arc::new(Self::new(Arc::clone(vocabulary), stop_strings)?)))
    }

    /// The last bytes of `ids`, as many as a stop string can need. An id without a token interrupts the text.
    fn bytes_before(&self, ids: &[TokenId]) -> Vec<u8> {
        let mut reversed = Vec::new();
        for &id in ids.iter().rev() {
            let Some(bytes) = self.vocabulary.token_bytes(id) else { break };
            let room = self.longest_start - reversed.len();
            reversed.extend(bytes.iter().rev().take(room));
            if reversed.len() == self.longest_start {
                break;
            }
        }
        reversed.reverse();
        reversed
    }
}

impl StoppingCriterion for StopStringCriteria {
    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let Some((&newest, earlier)) = row.input_ids.split_last() else { return Ok(None) };
        let Some(newest) = self.vocabulary.token_bytes(newest) else { return Ok(None) };
        let mut candidates = self.stop_strings.iter().filter(|text| ends_in(text, newest)).peekable();
        if candidates.peek().is_none() {
            return Ok(None);
        }
        let mut bytes = self.bytes_before(earlier);
        let start_of_newest = bytes.len();
        bytes.extend(newest);
        let completed = candidates.any(|text| {
            // The string has to end after the newest token's start.
            let first = (start_of_newest + 1).saturating_sub(text.len());
            bytes[first..].windows(text.len()).any(|window| window == text)
        });
        Ok(completed.then_some(FinishReason::Stop))
    }
}

impl std::fmt::Debug for StopStringCriteria {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts = self.stop_strings.iter().map(|text| String::from_utf8_lossy(text));
        f.debug_list().entries(texts).finish()
    }
}

/// Whether `text` can end inside `token` or at its end, given the right text before.
fn ends_in(text: &[u8], token: &[u8]) -> bool {
    (1..=token.len()).any(|end| {
        let overlap = end.min(text.len());
        text[text.len() - overlap..] == token[end - overlap..end]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::WordVocabulary;

    /// Whether the last of `tokens` completes one of `stop_strings`.
    fn stops(stop_strings: &[&str], tokens: &[&[u8]]) -> bool {
        let vocabulary = Arc::new(WordVocabulary::new(tokens.iter().map(|token| token.to_vec()).collect()));
        let texts: Vec<String> = stop_strings.iter().map(|&text| text.to_owned()).collect();
        let criterion = StopStringCriteria::new(vocabulary, &texts).unwrap();
        let ids: Vec<TokenId> = (0..tokens.len() as u32).map(TokenId).collect();
        criterion.should_stop(&StopContext::of_row(&ids, 0)).unwrap().is_some()
    }

    // The examples of transformers' documentation of the criterion.
    #[test]
    fn a_string_may_end_anywhere_in_the_newest_token() {
        for tokens in [
            &["st", "op"][..],
            &["stop"],
            &["st", "opera"],
            &["sto", "pper"],
            &["las", "topper"],
            &["s", "to", "pped"],
        ] {
            let tokens: Vec<&[u8]> = tokens.iter().map(|token| token.as_bytes()).collect();
            assert!(stops(&["stop"], &tokens), "{tokens:?}");
        }
    }

    #[test]
    fn a_string_that_ended_before_the_newest_token_does_not_count() {
        for tokens in [&["stop", "at"][..], &["st", "op", "at"], &["st", "opera", "tion"], &["s", "op", "p"]]
        {
            let tokens: Vec<&[u8]> = tokens.iter().map(|token| token.as_bytes()).collect();
            assert!(!stops(&["stop"], &tokens), "{tokens:?}");
        }
    }

    #[test]
    fn every_overlap_with_the_newest_token_is_tried() {
        assert!(stops(&["aab"], &[b"aa", b"aab"]));
        assert!(stops(&["abab"], &[b"ab", b"abab"]));
        assert!(stops(&["\n\n"], &[b".\n", b"\nThe"]));
        assert!(stops(&["never", "yes"], &[b"never2", b"y", b"es"]));
        assert!(!stops(&["ok"], &[b"o\n", b"k"]));
    }

    #[test]
    fn a_character_split_over_tokens_matches_by_its_bytes() {
        assert!(stops(&["é"], &[b"caf\xc3", b"\xa9"]));
        assert!(stops(&["→"], &[b"\xe2", b"\x86", b"\x92!"]));
    }

    #[test]
    fn an_id_without_a_token_breaks_the_text() {
        let vocabulary = Arc::new(WordVocabulary::new(vec![b"st".to_vec(), b"op".to_vec()]));
        let criterion = StopStringCriteria::new(vocabulary, &["stop".to_owned()]).unwrap();
        let stops = |ids: &[u32]| {
            let ids: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
            criterion.should_stop(&StopContext::of_row(&ids, 0)).unwrap().is_some()
        };
        assert!(stops(&[0, 1]));
        assert!(!stops(&[0, 99, 1]));
        assert!(!stops(&[0, 1, 99]));
        assert!(!stops(&[]));
    }

    #[test]
    fn strings_that_could_never_stop_are_refused() {
        let vocabulary = || Arc::new(WordVocabulary::new(vec![b"ab".to_vec()]));
        let error =
            |text: &str| StopStringCriteria::new(vocabulary(), &[text.to_owned()]).unwrap_err().to_string();
        assert!(error("xyz").contains("no token of the vocabulary can complete \"xyz\""));
        assert!(error("").contains("entry 0 is \"\""));
        assert!(error(&"a".repeat(5000)).contains("at most 4096 bytes, but entry 0 has 5000"));
        let many = vec!["ab".to_owned(); 2000];
        let message = StopStringCriteria::new(vocabulary(), &many).unwrap_err().to_string();
        assert!(message.contains("at most 1024 texts, but holds 2000"));
    }
}
