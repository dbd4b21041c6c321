//! A file that keeps finished rows, one on each line, so that another run goes on where one has ended:
//! killed, on a full disk, with the machine.
//!
//! A row is added by one call of the system, so that only the last line can be a part of one: that is
//! removed, and its row computed again. One run has the file at a time.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::Hash;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::lines::Lines;

/// What the lines of a file are.
#[derive(Debug, Clone, Copy)]
pub struct RowKind {
    /// What messages call a line.
    pub name: &'static str,
    /// The first bytes of every line.
    pub start: &'static [u8],
}

/// A file of finished rows, each with a key of its own.
pub struct RowFile<K> {
    file: File,
    path: PathBuf,
    /// Where the line of each row begins: the lines stay in the file.
    rows: HashMap<K, u64>,
    end: u64,
}

impl<K: Eq + Hash> RowFile<K> {
    /// Opens a file, or makes it, for this run alone, and removes a part of a line at its end. `key_of` gives
    /// the key of a whole line, `None` for what is no row of this kind, and the reason for a row that may not
    /// be there.
    ///
    /// # Errors
    /// `Input` when another run writes the file, when it is no regular one, or naming a line that is no row
    /// or comes twice: then it stays as it is.
    pub fn open(
        path: &Path,
        kind: RowKind,
        key_of: impl Fn(&[u8]) -> Result<Option<K>, String>,
    ) -> Result<Self> {
        let failed = |error| failed(path, "opened", error);
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        // Not every file system has locks.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::input(format!("another run writes {}; wait for its end", path.display())));
        }
        if !file.metadata().map_err(failed)?.is_file() {
            let path = path.display();
            return Err(Error::input(format!("{path} must be a regular file to keep finished rows")));
        }
        let (mut lines, mut rows, mut end) = (Lines::new(BufReader::new(file), path), HashMap::new(), 0);
        while let Some(line) = lines.next_line()? {
            let other = || lines.wrong(format_args!("it is no {}; give another file", kind.name));
            if line.last() != Some(&b'\n') {
                // Only a part of a row is removed, or the zeros that a crashed machine may have left.
                let is_part = line.iter().zip(kind.start).all(|(byte, start)| byte == start);
                if !is_part && line.iter().any(|&byte| byte != 0) {
                    return Err(other());
                }
                break;
            }
            let key = key_of(&line).map_err(|why| lines.wrong(why))?.ok_or_else(other)?;
            if rows.insert(key, lines.end - line.len() as u64).is_some() {
                return Err(lines.wrong("the same row came before; remove one of the lines"));
            }
            end = lines.end;
        }
        let file = lines.reader.into_inner();
        file.set_len(end).map_err(failed)?;
        Ok(Self { file, path: path.to_owned(), rows, end })
    }

    /// The keys of the finished rows, and where their lines begin.
    pub fn rows(&self) -> &HashMap<K, u64> {
        &self.rows
    }

    /// The line of a row, if it is finished.
    ///
    /// # Errors
    /// `Input` when the file cannot be read any more.
    pub fn read(&self, key: &K) -> Result<Option<Vec<u8>>> {
        let Some(&start) = self.rows.get(key) else { return Ok(None) };
        let (mut reader, mut line) = (BufReader::new(&self.file), Vec::new());
        let found = reader.seek(SeekFrom::Start(start)).and_then(|_| reader.read_until(b'\n', &mut line));
        found.map_err(|error| failed(&self.path, "read", error))?;
        Ok(Some(line))
    }

    /// Adds a row, by one call of the system. One that is finished already stays as it is.
    ///
    /// # Errors
    /// `Input`, as when there is no room on the disk. The file has to be opened again then: its end may be a
    /// part of the row.
    pub fn write(&mut self, key: K, line: &str) -> Result<()> {
        if !self.rows.contains_key(&key) {
            let line = format!("{line}\n");
            self.file.write_all(line.as_bytes()).map_err(|error| failed(&self.path, "written", error))?;
            self.rows.insert(key, self.end);
            self.end += line.len() as u64;
        }
        Ok(())
    }
}

fn failed(path: &Path, done: &str, why: impl Display) -> Error {
    Error::input(format!("{} cannot be {done}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const KIND: RowKind = RowKind { name: "row of a test", start: b"row " };

    /// A row is `row 7: anything`, up to row 9.
    fn open(path: &Path) -> Result<RowFile<u32>> {
        let key_of = |line: &[u8]| {
            let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("row "));
            let key = line.and_then(|line| line.split_once(':')?.0.parse().ok());
            if key > Some(9) { Err("there are ten rows".to_owned()) } else { Ok(key) }
        };
        RowFile::open(path, KIND, key_of)
    }

    fn why(result: Result<RowFile<u32>>) -> String {
        result.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_run_goes_on_where_another_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let mut rows = open(&path).unwrap();
        assert!(rows.rows().is_empty());
        for key in [3, 5, 3] {
            rows.write(key, &format!("row {key}: text {}", rows.rows().len())).unwrap();
        }
        assert!(why(open(&path)).contains("another run writes"));
        drop(rows);
        let whole = "row 3: text 0\nrow 5: text 1\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        // In the middle of a line; a machine that went down; blank lines of an editor.
        for torn in ["", "r", "row 5: te", "\0\0\0\0", "\n \n"] {
            fs::write(&path, format!("{whole}{torn}")).unwrap();
            let mut rows = open(&path).unwrap();
            assert_eq!((rows.rows().len(), rows.read(&4).unwrap()), (2, None));
            rows.write(7, "row 7: more").unwrap();
            for (key, line) in [(3, "row 3: text 0\n"), (5, "row 5: text 1\n"), (7, "row 7: more\n")] {
                assert_eq!(rows.read(&key).unwrap().unwrap(), line.as_bytes());
            }
            drop(rows);
            assert_eq!(open(&path).unwrap().rows().len(), 3);
        }
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        for (text, expected) in [
            ("notes", "line 1: it is no row of a test; give another file"),
            ("row 1: a\n\nnotes\n", "line 3: it is no row of a test; give another file"),
            ("row 1: a\nrow", ""),
            ("row 1: a\nrows", "line 2: it is no row of a test"),
            ("row 1: a\nrow 1: b\n", "line 2: the same row came before; remove one of the lines"),
            ("row 12: a\n", "line 1: there are ten rows"),
        ] {
            fs::write(&path, text).unwrap();
            let error = why(open(&path));
            assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{text:?}: {error}");
            let left = if expected.is_empty() { "row 1: a\n" } else { text };
            assert_eq!(fs::read_to_string(&path).unwrap(), left);
        }
        assert!(why(open(folder.path())).contains("cannot be opened"));
    }
}
