//! Finds phrases in texts, as whole words.

use std::collections::HashMap;
use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;

/// Phrases that are looked for in texts. Words are those of Unicode (UAX #29), so that scripts without spaces have
/// them, too; letters have to be the same in case.
#[derive(Debug, Clone, Default)]
pub struct Phrases {
    /// Each as its words and what stands between them.
    phrases: Vec<Vec<String>>,
    /// The phrases that begin with a word, the longest first.
    of_first: HashMap<String, Vec<usize>>,
}

impl Phrases {
    /// These phrases; white space around them counts for nothing, and an empty one is nowhere.
    pub fn new<'p>(phrases: impl IntoIterator<Item = &'p str>) -> Self {
        let words = |phrase: &str| phrase.trim().split_word_bounds().map(str::to_owned).collect();
        let phrases: Vec<Vec<String>> = phrases.into_iter().map(words).collect();
        let mut of_first: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, phrase) in phrases.iter().enumerate() {
            if let Some(first) = phrase.first() {
                of_first.entry(first.clone()).or_default().push(index);
            }
        }
        for indices in of_first.values_mut() {
            indices.sort_by_key(|&index| std::cmp::Reverse(phrases[index].len()));
        }
        Self { phrases, of_first }
    }

    /// The indices of those in a text, each once, in the order of the text. Of phrases that begin at the same word the
    /// longest counts, and none within another.
    pub fn within(&self, text: &str) -> Vec<usize> {
        let mut found = Vec::new();
        for (index, _) in self.places(text) {
            if !found.contains(&index) {
                found.push(index);
            }
        }
        found
    }

    /// Where they are in a text, in bytes, each with its index.
    pub(crate) fn places(&self, text: &str) -> Vec<(usize, Range<usize>)> {
        if self.of_first.is_empty() {
            return Vec::new();
        }
        let words: Vec<&str> = text.split_word_bounds().collect();
        let (mut found, mut at, mut start) = (Vec::new(), 0, 0);
        while let Some(&word) = words.get(at) {
            let is_here = |&&index: &&usize| {
                let phrase = &self.phrases[index];
                words.get(at..at + phrase.len()).is_some_and(|here| here == phrase)
            };
            let index = self.of_first.get(word).and_then(|indices| indices.iter().find(is_here)).copied();
            let count = index.map_or(1, |index| self.phrases[index].len());
            let end = start + words[at..at + count].iter().map(|word| word.len()).sum::<usize>();
            found.extend(index.map(|index| (index, start..end)));
            (at, start) = (at + count, end);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_whole_words() {
        let phrases = ["house", "green house", "green", "can", " tea ", "", "\u{9752}\u{8336}", "AT&T"];
        for (text, expected) in [
            ("The house is green.", &[0, 2][..]),
            ("A green house, a house", &[1, 0]),
            ("Houses, households, House", &[]),
            ("I can't", &[]),
            ("(can) tea\ttea", &[3, 4]),
            ("\u{6211}\u{559d}\u{9752}\u{8336}\u{3002}", &[6]),
            ("AT&T", &[7]),
            ("", &[]),
        ] {
            let known = Phrases::new(phrases);
            assert_eq!(known.within(text), expected, "{text}");
            for (index, place) in known.places(text) {
                assert_eq!(&text[place], phrases[index].trim(), "{text}");
            }
        }
    }
}
