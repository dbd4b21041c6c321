//! Cuts long texts into sentences, and puts what becomes of them together again.
//!
//! Lines stay lines: a sentence ends with its line at the latest, and white space, blank lines and line ends are
//! kept beside the sentences. Within a line the rules are those of Unicode (UAX #29), but for a full stop behind
//! an abbreviation (docs/decisions/0015).

use unicode_segmentation::UnicodeSegmentation as _;

/// Words whose full stop ends no sentence, without it, in lower case. A single letter is one in any case.
const ABBREVIATIONS: &str = "abs approx art bd bzw ca cf co cpt d.h dr e.g eds etc fig gen gov hr i.e inc jr kap lt ltd \
     mlle mm mme mr mrs ms mt nr no num o.ä op p.ex pag pp prof resp rev sen sgt sr sra st str u.a usw v.a vgl vol vs z.b";

/// A text, cut into sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentences<'t> {
    /// White space before the first sentence.
    before: &'t str,
    /// Each sentence with the white space behind it.
    sentences: Vec<(&'t str, &'t str)>,
}

impl<'t> Sentences<'t> {
    /// Cuts a text.
    pub fn new(text: &'t str) -> Self {
        let start = text.len() - text.trim_start().len();
        let (before, text) = text.split_at(start);
        let mut sentences = Vec::new();
        let mut from = 0;
        for end in ends(text) {
            if end <= from {
                continue;
            }
            let sentence = text[from..end].trim_end();
            // White space alone belongs to the sentence before it.
            let next = text.len() - text[end..].trim_start().len();
            if !sentence.is_empty() {
                sentences.push((sentence, &text[from + sentence.len()..next]));
            }
            from = next;
        }
        Self { before, sentences }
    }

    /// The sentences, without the white space around them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'t str> {
        self.sentences.iter().map(|&(sentence, _)| sentence)
    }

    /// Where a text is among those that [`join`](Self::join) puts together, with the white space behind it, in
    /// bytes.
    pub fn place<S: AsRef<str>>(&self, texts: &[S], index: usize) -> (usize, usize) {
        let mut start = self.before.len();
        for (at, (text, (_, space))) in texts.iter().zip(&self.sentences).enumerate() {
            let end = start + text.as_ref().len() + space.len();
            if at == index {
                return (start, end);
            }
            start = end;
        }
        (start, start)
    }

    /// Puts one text for each sentence in its place; the white space between them stays. Sentences that are
    /// left over stay too.
    pub fn join<S: AsRef<str>>(&self, texts: impl IntoIterator<Item = S>) -> String {
        let mut texts = texts.into_iter();
        let mut joined = self.before.to_owned();
        for &(sentence, space) in &self.sentences {
            match texts.next() {
                Some(text) => joined.push_str(text.as_ref()),
                None => joined.push_str(sentence),
            }
            joined.push_str(space);
        }
        joined
    }
}

/// Where sentences end, in order; the last is the end of the text.
fn ends(text: &str) -> impl Iterator<Item = usize> {
    let mut at = 0;
    let lines = text.split_inclusive(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
    lines.flat_map(move |line| {
        let start = at;
        at += line.len();
        let ends = line.split_sentence_bound_indices().map(|(from, sentence)| from + sentence.len());
        let ends = ends.filter(move |&end| end == line.len() || !is_abbreviated(&line[..end]));
        ends.map(move |end| start + end)
    })
}

/// Whether a text ends with an abbreviation.
fn is_abbreviated(text: &str) -> bool {
    let Some(text) = text.trim_end().strip_suffix('.') else { return false };
    let word = text.rsplit(|char: char| !(char.is_alphabetic() || char == '.')).next().unwrap_or_default();
    let letters = word.chars().filter(|char| char.is_alphabetic()).count();
    let word = word.to_lowercase();
    letters == 1 || ABBREVIATIONS.split(' ').any(|known| known == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(text: &str) -> Vec<&str> {
        Sentences::new(text).iter().collect()
    }

    #[test]
    fn sentences_end_where_a_reader_ends_them() {
        for (text, sentences) in [
            ("The house is small. It is old!  Is it?", &["The house is small.", "It is old!", "Is it?"][..]),
            (
                "Mr. Smith met Dr. A. B. Jones. They talked.",
                &["Mr. Smith met Dr. A. B. Jones.", "They talked."],
            ),
            (
                "Das gilt z.B. Für alle. Es kostet 3.50 Euro.",
                &["Das gilt z.B. Für alle.", "Es kostet 3.50 Euro."],
            ),
            ("房子很小。花园很大！真的吗？", &["房子很小。", "花园很大！", "真的吗？"]),
            ("घर छोटा है। बगीचा बड़ा है।", &["घर छोटा है।", "बगीचा बड़ा है।"]),
            ("\"Yes.\" He left.", &["\"Yes.\"", "He left."]),
            ("one line\nanother line. And one", &["one line", "another line.", "And one"]),
            ("no end", &["no end"]),
            ("", &[]),
            (" \n\t\n", &[]),
        ] {
            assert_eq!(cut(text), sentences, "{text:?}");
        }
    }

    #[test]
    fn lines_and_blanks_stay_in_their_places() {
        let text = "\n  First one.  Second {0}.\r\n\r\n\t- third\n\n\nlast. \n";
        let sentences = Sentences::new(text);
        assert_eq!(sentences.iter().len(), 4);
        assert_eq!(sentences.join(sentences.iter()), text);
        let translations = ["A.", "B {0}.", "- c", "d."];
        let translated = sentences.join(translations);
        let (start, end) = sentences.place(&translations, 1);
        assert_eq!(&translated[start..end], "B {0}.\r\n\r\n\t");
        assert_eq!(translated, "\n  A.  B {0}.\r\n\r\n\tc\n\n\nd. \n".replace("\tc", "\t- c"));
        assert_eq!(sentences.join(["A."]), text.replace("First one.", "A."));
    }

    proptest! {
        #[test]
        fn the_parts_of_a_text_are_the_text(text in "(\\PC|[ .!?。Mr]|[\n\r\t\u{85}\u{2028}\u{3000}]{1,4})*") {
            let sentences = Sentences::new(&text);
            prop_assert_eq!(sentences.join(sentences.iter()), &text[..]);
            prop_assert_eq!(sentences.join::<&str>([]), &text[..]);
            for sentence in sentences.iter() {
                prop_assert!(!sentence.is_empty() && sentence.trim() == sentence, "{:?}", sentence);
            }
        }
    }
}
