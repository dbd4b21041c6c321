//! Text of files and requests as messages show it: short, and without characters that hide, reorder or
//! control.
//!
//! Every error, log line and description goes through here, so that no file can move the cursor of a
//! terminal, forge a line of a log or fill one.

use std::borrow::Cow;
use std::ops::RangeInclusive;

/// The longest name in a message, in characters.
const MAX_NAME: usize = 200;
/// The longest message, in characters.
const MAX_MESSAGE: usize = 1000;

/// A name out of a file or a request, with at most 200 characters: the middle of a longer one becomes `…`.
/// Control, invisible and bidirectional characters are escaped as `\u{202e}`.
pub fn name(text: &str) -> Cow<'_, str> {
    shortened(text, MAX_NAME)
}

/// As [`name`], for a whole message: at most 1,000 characters.
pub fn message(text: &str) -> Cow<'_, str> {
    shortened(text, MAX_MESSAGE)
}

/// At most `most` characters, the last third of them from the end of the text. Applying it twice changes
/// nothing.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    // Nearly every message; a full cache refuses each request that waits, pass after pass.
    if text.len() <= most && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let ends = |(at, letter): (usize, char)| (at + letter.len_utf8(), letter);
    if prefix(text.char_indices().map(ends), most) == text.len() {
        if !text.contains(is_hidden) {
            return Cow::Borrowed(text);
        }
        return escaped(text).collect::<String>().into();
    }
    let tail = most / 3;
    let start = prefix(text.char_indices().map(ends), most - tail - 1);
    let end = prefix(text.char_indices().rev().map(|(at, letter)| (text.len() - at, letter)), tail);
    escaped(&text[..start]).chain(['…']).chain(escaped(&text[text.len() - end..])).collect::<String>().into()
}

/// The number of bytes that take at most `most` characters when they are escaped. `letters` are characters
/// with the bytes up to their end.
fn prefix(letters: impl Iterator<Item = (usize, char)>, most: usize) -> usize {
    let (mut width, mut bytes) = (0, 0);
    for (end, letter) in letters {
        width += if is_hidden(letter) { letter.escape_default().len() } else { 1 };
        if width > most {
            break;
        }
        bytes = end;
    }
    bytes
}

fn escaped(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(|letter| {
        let escape = is_hidden(letter).then(|| letter.escape_default());
        escape.is_none().then_some(letter).into_iter().chain(escape.into_iter().flatten())
    })
}

/// Whether a character controls a terminal, cannot be seen, or changes the order of its neighbours: Unicode's
/// categories Cc, Cf, Zl and Zp, and letters without a shape.
pub fn is_hidden(letter: char) -> bool {
    const HIDDEN: [RangeInclusive<char>; 24] = [
        '\u{ad}'..='\u{ad}',
        '\u{34f}'..='\u{34f}',
        '\u{600}'..='\u{605}',
        '\u{61c}'..='\u{61c}',
        '\u{6dd}'..='\u{6dd}',
        '\u{70f}'..='\u{70f}',
        '\u{890}'..='\u{891}',
        '\u{8e2}'..='\u{8e2}',
        '\u{115f}'..='\u{1160}',
        '\u{17b4}'..='\u{17b5}',
        '\u{180b}'..='\u{180f}',
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{3164}'..='\u{3164}',
        '\u{feff}'..='\u{feff}',
        '\u{ffa0}'..='\u{ffa0}',
        '\u{fff0}'..='\u{fffb}',
        '\u{110bd}'..='\u{110bd}',
        '\u{110cd}'..='\u{110cd}',
        '\u{13430}'..='\u{1343f}',
        '\u{1bca0}'..='\u{1bca3}',
        '\u{1d173}'..='\u{1d17a}',
        '\u{e0000}'..='\u{e0fff}',
    ];
    letter.is_control() || HIDDEN.iter().any(|range| range.contains(&letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for text in ["", "model.norm.weight", "Grüße, 世界 \"a\\b\" e\u{301} 👩", &"ü".repeat(200)] {
            assert!(matches!(name(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn what_hides_or_controls_is_written_out() {
        for (text, expected) in [
            ("a\x1b[2Jb", r"a\u{1b}[2Jb"),
            ("one\ntwo\r\t\0", r"one\ntwo\r\t\u{0}"),
            ("\u{202e}gpj.exe", r"\u{202e}gpj.exe"),
            ("a\u{200b}b\u{feff}\u{2066}\u{2028}", r"a\u{200b}b\u{feff}\u{2066}\u{2028}"),
            ("\u{7f}\u{85}\u{9b}\u{ad}\u{e0041}", r"\u{7f}\u{85}\u{9b}\u{ad}\u{e0041}"),
        ] {
            assert_eq!(name(text), expected);
            assert_eq!(name(expected), expected, "twice changes nothing");
        }
    }

    #[test]
    fn long_texts_lose_their_middle_and_never_a_part_of_an_escape() {
        let long = format!("{}{}", "a".repeat(5000), "b".repeat(5000));
        let short = name(&long);
        assert_eq!(short.chars().count(), 200);
        assert!(short.starts_with("aaa") && short.ends_with("bbb") && short.contains("a…b"), "{short}");
        assert_eq!(message(&long).chars().count(), 1000);
        let hidden = "\u{202e}".repeat(100_000);
        for text in [name(&hidden), message(&hidden)] {
            assert!(text.chars().count() <= 1000 && !text.contains(is_hidden), "{text}");
            assert_eq!(text.replace(r"\u{202e}", ""), "…", "{text}");
            assert_eq!(message(&text), text);
        }
    }
}
