//! Writes results to standard output: rows of text in order, or one JSON object on a line.

use std::io::{self, Write, stdout};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::args::OutputArguments;
use super::terminal::Terminal;
use rsgen_core::{Error, Result, escape};

/// The version of all JSON output. It grows when a field changes its meaning or is removed, not when one is
/// added.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// A report with the version of its form.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    #[serde(flatten)]
    report: &'a T,
}

impl OutputArguments {
    /// Writes a report to standard output: as JSON, or as `text` tells it.
    pub(super) fn write(&self, report: &impl Serialize, text: impl FnOnce() -> String) -> io::Result<()> {
        let mut out = stdout().lock();
        if self.json {
            return write_report(&mut out, report);
        }
        out.write_all(text().as_bytes())?;
        out.flush()
    }
}

/// Writes a report in JSON on a line of its own.
pub(super) fn write_report(out: &mut impl Write, report: &impl Serialize) -> io::Result<()> {
    write_json(out, &Versioned { schema_version: SCHEMA_VERSION, report })
}

/// Writes JSON on a line of its own.
pub(super) fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut *out, Escaping))?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Compact JSON that writes hidden characters as `\u202e`: the same strings for a program, and harmless to a
/// terminal.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some((at, hidden)) = rest.char_indices().find(|&(_, letter)| escape::is_hidden(letter)) {
            out.write_all(&rest.as_bytes()[..at])?;
            for unit in hidden.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[at + hidden.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

/// Stores the error of a failed write, and returns one that stops the work.
pub(super) fn or_stop(written: io::Result<()>, failed: &mut Option<io::Error>) -> Result<()> {
    written.map_err(|error| {
        *failed = Some(error);
        Error::cancelled()
    })
}

/// Writes the texts of concurrently generated rows in order: streams the first incomplete row, and buffers
/// the others.
pub(super) struct RowPrinter<'a, W: Write> {
    out: W,
    terminal: &'a Terminal,
    /// The prompt as shown before each row.
    prompt: String,
    rows: Vec<Row>,
    /// The row that is being written; the number of rows at the end.
    current: usize,
    /// The numbers of the rows, and how many there would be, where some are left out.
    numbers: Option<(Vec<usize>, usize)>,
}

#[derive(Clone, Default)]
struct Row {
    /// The buffered text.
    waiting: String,
    complete: bool,
}

impl<'a, W: Write> RowPrinter<'a, W> {
    pub(super) fn new(out: W, prompt: String, num_rows: usize, terminal: &'a Terminal) -> Self {
        Self { out, terminal, prompt, rows: vec![Row::default(); num_rows], current: 0, numbers: None }
    }

    /// Numbers the rows as some of `total`.
    pub(super) fn numbered(self, numbers: Vec<usize>, total: usize) -> Self {
        Self { numbers: Some((numbers, total)), ..self }
    }

    /// Begins the first row, before any token.
    pub(super) fn start(&mut self) -> io::Result<()> {
        self.begin_row()?;
        self.out.flush()
    }

    /// Adds text to a row.
    pub(super) fn push(&mut self, index: usize, text: &str, complete: bool) -> io::Result<()> {
        let Some(row) = self.rows.get_mut(index) else { return Ok(()) };
        row.complete = complete;
        if index != self.current {
            row.waiting.push_str(text);
            return Ok(());
        }
        self.out.write_all(text.as_bytes())?;
        while self.rows.get(self.current).is_some_and(|row| row.complete) {
            self.end_row()?;
        }
        self.out.flush()
    }

    /// Writes the text so far of incomplete rows.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        while self.current < self.rows.len() {
            self.end_row()?;
        }
        self.out.flush()
    }

    fn begin_row(&mut self) -> io::Result<()> {
        let Some(row) = self.rows.get(self.current) else { return Ok(()) };
        let (number, total) = match &self.numbers {
            Some((numbers, total)) => (numbers[self.current], *total),
            None => (self.current + 1, self.rows.len()),
        };
        if total > 1 {
            let gap = if self.current == 0 { "" } else { "\n" };
            let header = self.terminal.dimmed(&format!("[{number}/{total}]"));
            writeln!(self.out, "{gap}{header}")?;
        }
        write!(self.out, "{}{}", self.prompt, row.waiting)
    }

    fn end_row(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n")?;
        self.current += 1;
        self.begin_row()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(num_rows: usize, steps: &[(usize, &str, bool)]) -> Vec<String> {
        let terminal = Terminal::new(false);
        let mut shared = Vec::new();
        let mut states = Vec::new();
        let mut printer = RowPrinter::new(&mut shared, "P".to_owned(), num_rows, &terminal);
        printer.start().unwrap();
        states.push(String::from_utf8(printer.out.clone()).unwrap());
        for &(index, text, complete) in steps {
            printer.push(index, text, complete).unwrap();
            states.push(String::from_utf8(printer.out.clone()).unwrap());
        }
        printer.finish().unwrap();
        states.push(String::from_utf8(printer.out.clone()).unwrap());
        states
    }

    #[test]
    fn json_escapes_hidden_characters() {
        let text = "a\u{202e}b\u{7f}\u{e0041}\u{1b}ü\"\\";
        let mut out = Vec::new();
        write_json(&mut out, &[text]).unwrap();
        assert_eq!(out, "[\"a\\u202eb\\u007f\\udb40\\udc41\\u001bü\\\"\\\\\"]\n".as_bytes());
        assert_eq!(serde_json::from_slice::<[String; 1]>(&out).unwrap(), [text]);
    }

    #[test]
    fn a_single_row_is_written_as_it_comes() {
        let states = printed(1, &[(0, "a", false), (0, "", false), (0, "b", true)]);
        assert_eq!(states, ["P", "Pa", "Pa", "Pab\n", "Pab\n"]);
    }

    #[test]
    fn a_row_that_never_ends_still_ends_its_line() {
        assert_eq!(printed(1, &[(0, "a", false)]).last().unwrap(), "Pa\n");
        assert_eq!(printed(1, &[]).last().unwrap(), "P\n");
    }

    #[test]
    fn rows_are_written_in_order() {
        let steps = [(0, "a", false), (1, "x", true), (2, "1", false), (0, "b", true), (2, "2", false)];
        let states = printed(3, &steps);
        assert_eq!(states[3], "[1/3]\nPa");
        assert_eq!(states[4], "[1/3]\nPab\n\n[2/3]\nPx\n\n[3/3]\nP1");
        assert_eq!(states[6], "[1/3]\nPab\n\n[2/3]\nPx\n\n[3/3]\nP12\n");
    }
}
