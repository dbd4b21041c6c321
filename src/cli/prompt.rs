//! Reads texts from the argument, standard input, or a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Read, stdin};
use std::path::Path;

use super::failure::Failure;
use rsgen_core::Error;
use rsgen_core::files::open_regular;

/// The most bytes that are read from standard input or a file: far more than any context holds.
const MAX_BYTES: u64 = 64 << 20;

/// A byte order mark.
pub(super) const MARK: &[u8] = b"\xef\xbb\xbf";

const STDIN: &str = "on standard input";

/// The prompt: the argument, or standard input for `-` and, unless it is a terminal, for no argument.
///
/// Removes one line break at the end of standard input, since `echo` and editors add one. Without any text
/// the prompt is empty, and the model begins by itself.
pub(super) fn read(argument: Option<&str>) -> Result<String, Failure> {
    match argument {
        Some("-") => from_reader(stdin().lock()),
        Some(text) => Ok(text.to_owned()),
        None if stdin().is_terminal() => Ok(String::new()),
        None => from_reader(stdin().lock()),
    }
}

/// The text: the argument, or standard input for `-` and for no argument, as [`read`] reads it.
pub(super) fn read_text(argument: Option<&str>) -> Result<String, Failure> {
    match argument {
        Some("-") | None => from_reader(stdin().lock()),
        Some(text) => Ok(text.to_owned()),
    }
}

/// The texts: the argument, or each line of standard input for `-` and for no argument.
pub(super) fn read_texts(argument: Option<&str>) -> Result<Lines, Failure> {
    match argument {
        Some("-") | None => Lines::new(&read_bytes(stdin().lock(), STDIN)?, STDIN),
        Some(text) => Ok(Lines { texts: vec![text.to_owned()], bad_bytes: BTreeMap::new() }),
    }
}

/// The lines of a file, or of standard input for `-`.
pub(super) fn read_lines(file: &Path) -> Result<Lines, Failure> {
    if file == Path::new("-") {
        return read_texts(None);
    }
    let source = format!("of {}", file.display());
    Lines::new(&read_bytes(open("--prompts", file)?, &source)?, &source)
}

/// Lines, of which some may be no UTF-8: each of those is an error, and the others count.
#[derive(Debug)]
pub(super) struct Lines {
    /// The text of each line; where it is no UTF-8, with replacement characters.
    pub(super) texts: Vec<String>,
    /// The place of the first bad byte of each line that has one.
    bad_bytes: BTreeMap<usize, usize>,
}

impl Lines {
    fn new(bytes: &[u8], source: &str) -> Result<Self, Failure> {
        // UTF-16 has no line that could be used.
        if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
            return Err(not_utf_8(&format!("the text {source}"), bytes, 0).into());
        }
        let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
        let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
        if lines.last().is_some_and(|line| line.is_empty()) {
            lines.pop();
        }
        let (mut texts, mut bad_bytes) = (Vec::with_capacity(lines.len()), BTreeMap::new());
        for (index, line) in lines.into_iter().enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Err(error) = std::str::from_utf8(line) {
                bad_bytes.insert(index, error.valid_up_to());
            }
            texts.push(String::from_utf8_lossy(line).into_owned());
        }
        Ok(Self { texts, bad_bytes })
    }

    /// Why a line cannot be used, if it is no UTF-8.
    pub(super) fn error(&self, index: usize) -> Option<Error> {
        let byte = self.bad_bytes.get(&index)?;
        Some(Error::input(format!("the text must be UTF-8, but byte {byte} is not; convert it")))
    }
}

/// The text of a file that `argument` names, or of standard input for `-`.
pub(super) fn read_file(argument: &str, file: &Path) -> Result<String, Failure> {
    if file == Path::new("-") {
        return read_all(stdin().lock(), STDIN);
    }
    read_all(open(argument, file)?, &format!("of {}", file.display()))
}

fn open(argument: &str, file: &Path) -> Result<File, Failure> {
    let cannot_read = |error| {
        let message =
            format!("`{argument}`: {} cannot be read; name a file, or - for standard input", file.display());
        Error::input(message).with_source(error)
    };
    Ok(open_regular(file).map_err(cannot_read)?)
}

/// A text without the byte order mark that Windows' editors put first.
pub(super) fn without_mark(mut text: String) -> String {
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    text
}

fn from_reader(reader: impl Read) -> Result<String, Failure> {
    let mut text = read_all(reader, STDIN)?;
    if text.ends_with('\n') {
        text.truncate(text.len() - if text.ends_with("\r\n") { 2 } else { 1 });
    }
    Ok(text)
}

/// The bytes of standard input.
pub(super) fn read_stdin() -> Result<Vec<u8>, Failure> {
    read_bytes(stdin().lock(), STDIN)
}

fn read_bytes(reader: impl Read, source: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let cannot_read = |error| Error::input(format!("the text {source} cannot be read")).with_source(error);
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot_read)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("the text {source} must have at most {MAX_BYTES} bytes; shorten it");
        return Err(Error::input(message).into());
    }
    Ok(bytes)
}

fn read_all(reader: impl Read, source: &str) -> Result<String, Failure> {
    String::from_utf8(read_bytes(reader, source)?).map(without_mark).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        not_utf_8(&format!("the text {source}"), error.as_bytes(), byte).into()
    })
}

/// The error about a byte of a text that is no UTF-8.
pub(super) fn not_utf_8(what: &str, bytes: &[u8], byte: usize) -> Error {
    let line = line_of(bytes, byte);
    Error::input(format!("{what} must be UTF-8, but byte {byte}, in line {line}, is not; convert it"))
}

/// The line of a byte, counted from 1.
fn line_of(bytes: &[u8], byte: usize) -> usize {
    bytes[..byte].split(|&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        from_reader(bytes).unwrap()
    }

    #[test]
    fn one_line_break_at_the_end_is_left_out() {
        assert_eq!(text(b"Once\nupon\n"), "Once\nupon");
        assert_eq!(text(b"Once\r\n"), "Once");
        assert_eq!(text(b"Once\n\n"), "Once\n");
        assert_eq!(text(b"Once "), "Once ");
        assert_eq!(text(b"\n"), "");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        assert_eq!(text(b"\xef\xbb\xbfOnce\n"), "Once");
        assert_eq!(text(b"Once\xef\xbb\xbf"), "Once\u{feff}");
    }

    #[test]
    fn invalid_utf_8_is_refused_with_its_position() {
        let Err(Failure::Library(error)) = from_reader(&b"ab\xff"[..]) else { panic!("accepted") };
        assert!(error.to_string().contains("byte 2, in line 1, is not"), "{error}");
    }

    #[test]
    fn lines_are_those_of_a_text_and_the_bad_ones_are_errors() {
        for text in ["", "\n", "a", "a\n", "a\r\n\nb", "a\n\n", "\u{feff}é\nb"] {
            let lines = Lines::new(text.as_bytes(), STDIN).unwrap();
            let expected: Vec<_> = text.trim_start_matches('\u{feff}').lines().collect();
            assert_eq!(
                (&lines.texts[..], lines.bad_bytes.len()),
                (&expected.iter().map(ToString::to_string).collect::<Vec<_>>()[..], 0),
                "{text:?}"
            );
        }
        let lines = Lines::new(b"a\nb\xff\xffc\n\xe9", STDIN).unwrap();
        assert_eq!(lines.texts.len(), 3);
        let errors: Vec<String> =
            (0..3).map(|line| lines.error(line).map_or(String::new(), |error| error.to_string())).collect();
        assert!(errors[0].is_empty() && errors[1].contains("byte 1 is") && errors[2].contains("byte 0 is"));
        assert!(Lines::new(b"\xff\xfea\0", STDIN).is_err());
    }

    #[test]
    fn an_endless_prompt_is_refused() {
        let Err(failure) = from_reader(std::io::repeat(b'a')) else { panic!("accepted") };
        assert_eq!(failure.exit_code(), 1);
    }
}
