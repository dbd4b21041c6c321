//! The lines of a file, one after the other.

use std::fmt::Display;
use std::io::{BufRead, Read as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The longest line.
const MAX_LINE: u64 = 64 << 20;

/// The lines of a file that are not blank.
pub struct Lines<R> {
    /// It has read ahead.
    pub reader: R,
    /// The number of the current line, from 1.
    pub number: usize,
    /// Where it ends, in bytes.
    pub end: u64,
    path: PathBuf,
}

impl<R: BufRead> Lines<R> {
    /// Those of a reader, from its beginning; `path` is for messages.
    pub fn new(reader: R, path: &Path) -> Self {
        Self { reader, number: 0, end: 0, path: path.to_owned() }
    }

    /// An error about the current line.
    pub fn wrong(&self, why: impl Display) -> Error {
        Error::input(format!("{}, line {}: {why}", self.path.display(), self.number))
    }

    /// The next line, with its end if it has one.
    ///
    /// # Errors
    /// `Input`, naming the line, when it cannot be read or has more than 64 MiB.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            let read = self.reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
            self.number += usize::from(!matches!(read, Ok(0)));
            let read = read.map_err(|error| self.wrong(format_args!("it cannot be read: {error}")))? as u64;
            if read == 0 {
                return Ok(None);
            }
            if read > MAX_LINE {
                return Err(self.wrong(format_args!("it must have at most {MAX_LINE} bytes, but has more")));
            }
            self.end += read;
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_counted_and_left_out() {
        let text: &[u8] = b"a\n\n \r\nb\xff\n\nlast";
        let (mut lines, mut found) = (Lines::new(text, Path::new("file")), Vec::new());
        while let Some(line) = lines.next_line().unwrap() {
            found.push((lines.number, lines.end, line));
        }
        let expected: [(usize, u64, &[u8]); 3] = [(1, 2, b"a\n"), (4, 9, b"b\xff\n"), (6, 14, b"last")];
        assert_eq!(found, expected.map(|(number, end, line)| (number, end, line.to_vec())));
        assert_eq!(lines.wrong("it is short").to_string(), "file, line 6: it is short");
    }
}
