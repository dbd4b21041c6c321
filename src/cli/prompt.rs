//! Reads texts from the argument, standard input, or a file.

use std::io::{IsTerminal, Read, stdin};
use std::path::Path;

use super::failure::Failure;
use rsgen_core::Error;
use rsgen_core::files::open_regular;

/// The most bytes that are read from standard input or a file: far more than any context holds.
const MAX_BYTES: u64 = 64 << 20;

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
pub(super) fn read_texts(argument: Option<&str>) -> Result<Vec<String>, Failure> {
    match argument {
        Some("-") | None => Ok(read_all(stdin().lock(), STDIN)?.lines().map(str::to_owned).collect()),
        Some(text) => Ok(vec![text.to_owned()]),
    }
}

/// The lines of a file, or of standard input for `-`.
pub(super) fn read_lines(file: &Path) -> Result<Vec<String>, Failure> {
    if file == Path::new("-") {
        return read_texts(None);
    }
    Ok(read_file("--prompts", file)?.lines().map(str::to_owned).collect())
}

/// The text of a file that `argument` names, or of standard input for `-`.
pub(super) fn read_file(argument: &str, file: &Path) -> Result<String, Failure> {
    if file == Path::new("-") {
        return read_all(stdin().lock(), STDIN);
    }
    let cannot_read = |error| {
        let message =
            format!("`{argument}`: {} cannot be read; name a file, or - for standard input", file.display());
        Error::input(message).with_source(error)
    };
    read_all(open_regular(file).map_err(cannot_read)?, &format!("of {}", file.display()))
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

fn read_all(reader: impl Read, source: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let cannot_read = |error| Error::input(format!("the text {source} cannot be read")).with_source(error);
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot_read)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("the text {source} must have at most {MAX_BYTES} bytes; shorten it");
        return Err(Error::input(message).into());
    }
    String::from_utf8(bytes).map(without_mark).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        Error::input(format!("the text {source} must be UTF-8, but byte {byte} is not; convert it")).into()
    })
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
        assert!(error.to_string().contains("byte 2 is not"), "{error}");
    }

    #[test]
    fn an_endless_prompt_is_refused() {
        let Err(failure) = from_reader(std::io::repeat(b'a')) else { panic!("accepted") };
        assert_eq!(failure.exit_code(), 1);
    }
}
