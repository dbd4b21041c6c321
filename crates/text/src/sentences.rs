//! Cuts long texts into sentences, and puts what becomes of them together again.
//!
//! Lines stay lines: a sentence ends with its line at the latest, and white space, blank lines and line ends are
//! kept beside the sentences. Within a line the rules are those of Unicode (UAX #29), but that no sentence ends
//! behind an abbreviation, within braces or a term, or between ASCII characters without a space
//! (docs/decisions/0015). What has no word, such as `---` or `{name}`, is kept beside the sentences, too.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;

use crate::Phrases;

/// Words whose full stop ends no sentence, without it, in lower case. A single letter is one in any case.
const ABBREVIATIONS: &str = "abs approx art bd bzw ca cf co cpt d.h dr e.g eds etc fig gen gov hr i.e inc jr kap lt ltd \
     mlle mm mme mr mrs ms mt nr no num o.ä op p.ex pag pp prof resp rev sen sgt sr sra st str u.a usw v.a vgl vol vs z.b";

/// A text, cut into sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentences<'t> {
    /// What is kept before the first sentence: white space, and what has no word.
    before: &'t str,
    /// Each sentence with what is kept behind it.
    sentences: Vec<(&'t str, &'t str)>,
}

impl<'t> Sentences<'t> {
    /// Cuts a text.
    pub fn new(text: &'t str) -> Self {
        Self::with_terms(text, &Phrases::default())
    }

    /// Cuts a text, but none of these terms in it.
    pub fn with_terms(text: &'t str, terms: &Phrases) -> Self {
        let terms: Vec<Range<usize>> = terms.places(text).into_iter().map(|(_, place)| place).collect();
        // Where each sentence is.
        let (mut places, mut from): (Vec<Range<usize>>, _) = (Vec::new(), 0);
        for end in ends(text, &terms) {
            let part = &text[from..end];
            if has_words(part) {
                let start = end - part.trim_start().len();
                places.push(start..from + part.trim_end().len());
            }
            from = end;
        }
        let start_of =
            |index: usize| places.get(index).map_or(text.len(), |place: &Range<usize>| place.start);
        let kept = |(index, place): (usize, &Range<usize>)| {
            (&text[place.clone()], &text[place.end..start_of(index + 1)])
        };
        Self { before: &text[..start_of(0)], sentences: places.iter().enumerate().map(kept).collect() }
    }

    /// The sentences, without what is kept around them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'t str> {
        self.sentences.iter().map(|&(sentence, _)| sentence)
    }

    /// Where a text is among those that [`join`](Self::join) puts together, with what is kept behind it, in bytes.
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

    /// Puts one text for each sentence in its place; what is between them stays. Sentences that are left over stay
    /// too.
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

/// Where sentences may end, in order; the last is the end of the text.
fn ends(text: &str, terms: &[Range<usize>]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    let lines = text.split_inclusive(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
    lines.flat_map(move |line| {
        let start = at;
        at += line.len();
        let braces = in_braces(line);
        let ends = line.split_sentence_bound_indices().map(|(from, sentence)| from + sentence.len());
        let ends = ends.filter(move |&end| {
            let is_within = is_within(&braces, end) || is_within(terms, start + end);
            end == line.len() || !is_within && !joins(line, end) && !is_abbreviated(&line[..end])
        });
        ends.map(move |end| start + end)
    })
}

/// Whether a place is inside of one of these, which are in order.
fn is_within(places: &[Range<usize>], at: usize) -> bool {
    let place = places.get(places.partition_point(|place| place.end <= at));
    place.is_some_and(|place| place.start < at)
}

/// What stands in braces, with them: placeholders of many kinds. Braces within others count as a part of them.
fn in_braces(line: &str) -> Vec<Range<usize>> {
    let (mut open, mut places) = (Vec::new(), Vec::<Range<usize>>::new());
    for (at, char) in line.char_indices() {
        match char {
            '{' => open.push(at),
            '}' => {
                let Some(start) = open.pop() else { continue };
                while places.last().is_some_and(|last| last.start > start) {
                    places.pop();
                }
                places.push(start..at + 1);
            }
            _ => {}
        }
    }
    places
}

/// Whether ASCII characters follow each other there without white space, as in an address.
fn joins(line: &str, end: usize) -> bool {
    let [before, after] = [line[..end].chars().next_back(), line[end..].chars().next()];
    [before, after].iter().flatten().all(|char| char.is_ascii() && !char.is_whitespace())
}

/// Whether there is a letter or a digit outside of placeholders: braces around what has no white space.
fn has_words(text: &str) -> bool {
    let (mut places, mut chars) = (in_braces(text), text.char_indices());
    places.retain(|place| {
        let name = text[place.clone()].trim_matches(['{', '}']).trim();
        !name.contains(char::is_whitespace)
    });
    chars.any(|(at, char)| char.is_alphanumeric() && !is_within(&places, at))
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
            ("Ask http://a.org/?q=1 again! Or \"a?b\".", &["Ask http://a.org/?q=1 again!", "Or \"a?b\"."]),
            ("\u{623f}\u{5b50}?\u{82b1}\u{56ed}!", &["\u{623f}\u{5b50}?", "\u{82b1}\u{56ed}!"]),
            ("Dear {name!r}. {N, One. {Two. {x}}} Or", &["Dear {name!r}.", "{N, One. {Two. {x}}} Or"]),
            ("{ One. Two. }", &["{ One. Two. }"]),
            ("{ Never closed. Two.", &["{ Never closed.", "Two."]),
            ("--- \n{{ it.name }}!\n{0}\n\u{2026} {a} {{b}}.\nOne.\n***\n", &["One."]),
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

    #[test]
    fn no_sentence_ends_within_a_term_but_a_line_does() {
        let terms = Phrases::new(["U.S. Navy", "Yahoo! Mail", "end. And"]);
        for (text, sentences) in [
            ("The U.S. Navy. The U.S. It.", &["The U.S. Navy.", "The U.S.", "It."][..]),
            ("Yahoo! Mail! Yahoo! It.", &["Yahoo! Mail!", "Yahoo!", "It."]),
            ("An end.\nAnd", &["An end.", "And"]),
            ("bend. And", &["bend.", "And"]),
        ] {
            let cut = Sentences::with_terms(text, &terms);
            assert_eq!(cut.iter().collect::<Vec<_>>(), sentences, "{text:?}");
            assert_eq!(cut.join(cut.iter()), text);
        }
        assert_eq!(cut("Yahoo! Mail."), ["Yahoo!", "Mail."]);
    }

    #[test]
    fn what_has_no_word_is_kept_where_it_is() {
        let text = "{0}\n---\nOne. {A}.\n\n * * *\nTwo.\n{b}\n";
        let sentences = Sentences::new(text);
        assert_eq!(sentences.iter().collect::<Vec<_>>(), ["One.", "Two."]);
        assert_eq!(sentences.join(["Eins.", "Zwei."]), text.replace("One", "Eins").replace("Two", "Zwei"));
    }

    proptest! {
        #[test]
        fn the_parts_of_a_text_are_the_text(text in "(\\PC|[ .!?。Mr{}]|[\n\r\t\u{85}\u{2028}\u{3000}]{1,4})*") {
            let sentences = Sentences::with_terms(&text, &Phrases::new(["M. r", "r! M"]));
            prop_assert_eq!(sentences.join(sentences.iter()), &text[..]);
            prop_assert_eq!(sentences.join::<&str>([]), &text[..]);
            for sentence in sentences.iter() {
                prop_assert!(!sentence.is_empty() && sentence.trim() == sentence, "{:?}", sentence);
            }
        }
    }
}
