//! The files of `rsgen run-batch`: requests, and existing answers.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _, copy, stdin};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::serve::BatchRequest;
use rsgen_core::error::{Error, Result};
use rsgen_core::files::open_regular;

/// The longest line of a file.
const MAX_LINE: u64 = 64 << 20;

/// The first bytes of every answer.
const ANSWER_START: &[u8] = br#"{"id":"batch_req_"#;

/// A shard: every n-th request, from the i-th on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard {
    index: usize,
    count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match parts {
            Some((index, count)) if index < count => Ok(Self { index, count }),
            _ => {
                Err("it must be I/N with I from 0 to N - 1, such as 0/4 for the first of four parts"
                    .to_owned())
            }
        }
    }
}

impl Shard {
    /// All requests.
    pub(super) const WHOLE: Self = Self { index: 0, count: 1 };

    fn has(self, row: usize) -> bool {
        row % self.count == self.index
    }
}

/// The lines of a file that are not blank, with their numbers from 1.
struct Lines {
    reader: BufReader<File>,
    number: usize,
    path: PathBuf,
}

impl Lines {
    fn new(file: File, path: &Path) -> Self {
        Self { reader: BufReader::new(file), number: 0, path: path.to_owned() }
    }

    /// An error about the current line.
    fn wrong(&self, why: impl std::fmt::Display) -> Error {
        Error::input(format!("{}, line {}: {why}", self.path.display(), self.number))
    }

    /// The next line, with its end if it has one.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            self.number += 1;
            let mut line = Vec::new();
            let read = self.reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
            let read = read.map_err(|error| self.wrong(format_args!("it cannot be read: {error}")))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 > MAX_LINE {
                return Err(self.wrong(format_args!("it must have at most {MAX_LINE} bytes, but has more")));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

/// The requests of a file, all of them valid.
pub(super) struct Requests {
    lines: Lines,
    shard: Shard,
    row: usize,
    /// The ids of this shard.
    ids: HashSet<String>,
}

impl Requests {
    /// Reads the file once, so that a mistake in the last line is found before anything is computed; for `-`
    /// standard input, which a file without a name holds meanwhile.
    ///
    /// # Errors
    /// `Input`, naming the line.
    pub(super) fn open(path: &Path, shard: Shard) -> Result<Self> {
        let file = if path == Path::new("-") { standard_input() } else { open_regular(path) };
        let file = file.map_err(|error| unreadable(path, &error))?;
        let (mut lines, mut all, mut ids, mut row) =
            (Lines::new(file, path), HashSet::new(), HashSet::new(), 0);
        while let Some(line) = lines.next()? {
            let request = parse(&lines, &line)?;
            if shard.has(row) {
                ids.insert(request.custom_id.clone());
            }
            row += 1;
            if let Some(twice) = all.replace(request.custom_id) {
                return Err(lines.wrong(format_args!(
                    "`custom_id` must be unique, but an earlier line has {twice:?} too; give each line an id of its own"
                )));
            }
        }
        let mut file = lines.reader.into_inner();
        file.seek(SeekFrom::Start(0)).map_err(|error| unreadable(path, &error))?;
        Ok(Self { lines: Lines::new(file, path), shard, row: 0, ids })
    }

    /// The number of requests in this shard.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The requests without an answer, in the order of the file.
    pub(super) fn without(mut self, answered: HashSet<String>) -> impl Iterator<Item = Result<BatchRequest>> {
        std::iter::from_fn(move || {
            loop {
                let request =
                    self.lines.next().and_then(|line| line.map(|line| parse(&self.lines, &line)).transpose());
                let request = match request.transpose()? {
                    Ok(request) => request,
                    Err(error) => return Some(Err(error)),
                };
                let is_ours = self.shard.has(self.row);
                self.row += 1;
                if is_ours && !answered.contains(&request.custom_id) {
                    return Some(Ok(request));
                }
            }
        })
    }
}

fn parse(lines: &Lines, line: &[u8]) -> Result<BatchRequest> {
    BatchRequest::read(line).map_err(|error| lines.wrong(error))
}

/// A copy of standard input, from its beginning.
fn standard_input() -> std::io::Result<File> {
    let mut file = tempfile::tempfile()?;
    copy(&mut stdin().lock(), &mut file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// The file of answers, which this process alone writes.
pub(super) struct Answers {
    file: File,
    path: PathBuf,
}

#[derive(Deserialize)]
struct Answered {
    custom_id: String,
    /// Without it the line is a request.
    #[expect(dead_code, reason = "it has to be there")]
    response: IgnoredAny,
}

impl Answers {
    /// Opens the file and returns the ids that it answers. Removes an incomplete answer at its end.
    ///
    /// # Errors
    /// `Config` when it has answers and `resume` is false; `Input` when another run writes it, when it is no
    /// file of answers, or when it answers other requests than these.
    pub(super) fn open(path: &Path, resume: bool, requests: &Requests) -> Result<(Self, HashSet<String>)> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| unreadable(path, &error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(Error::input(format!("another run writes {}; wait for its end", path.display())));
            }
            // Not every file system has locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
        if !metadata.is_file() {
            return Err(Error::input(format!(
                "{} must be a regular file to hold the answers",
                path.display()
            )));
        }
        if metadata.len() > 0 && !resume {
            return Err(Error::config(format!(
                "{} has answers already; `--resume` goes on with it, or give another file",
                path.display()
            )));
        }
        let reading = file.try_clone().map_err(|error| unreadable(path, &error))?;
        let (mut lines, mut answered, mut end) = (Lines::new(reading, path), HashSet::new(), 0);
        while let Some(line) = lines.next()? {
            if line.last() != Some(&b'\n') {
                // Only a part of an answer is removed, or the zeros that a crashed machine may have left.
                let begins = line.iter().zip(ANSWER_START).all(|(byte, start)| byte == start);
                if !begins && line.iter().any(|&byte| byte != 0) {
                    return Err(lines.wrong("it is no answer of a batch; give another file"));
                }
                break;
            }
            let Answered { custom_id, .. } = serde_json::from_slice(&line)
                .map_err(|error| lines.wrong(format_args!("it is no answer of a batch: {error}")))?;
            if !requests.ids.contains(&custom_id) {
                return Err(lines.wrong(format_args!(
                    "it answers {custom_id:?}, which is not among the requests; give the file of the same input and shard"
                )));
            }
            if let Some(twice) = answered.replace(custom_id) {
                return Err(lines.wrong(format_args!("{twice:?} is answered twice; remove one of the lines")));
            }
            end = lines.reader.stream_position().map_err(|error| unreadable(path, &error))?;
        }
        if end < metadata.len() {
            file.set_len(end).map_err(|error| unreadable(path, &error))?;
        }
        Ok((Self { file, path: path.to_owned() }, answered))
    }

    /// Writes a line with one call of the system, so that a killed run leaves at most one unfinished.
    pub(super) fn write(&mut self, answer: &str) -> Result<()> {
        let written = self.file.write_all(format!("{answer}\n").as_bytes());
        written.map_err(|error| Error::input(format!("{} cannot be written: {error}", self.path.display())))
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::input(format!("{} cannot be opened: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rsgen-batch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn line(id: &str) -> String {
        json!({ "custom_id": id, "url": "/v1/completions", "body": { "prompt": "a" } }).to_string()
    }

    fn answer(id: &str) -> String {
        let response = json!({ "status_code": 200, "request_id": "r", "body": {} });
        json!({ "id": "batch_req_r", "custom_id": id, "response": response, "error": null }).to_string()
            + "\n"
    }

    fn ids(requests: impl Iterator<Item = Result<BatchRequest>>) -> Vec<String> {
        requests.map(|request| request.unwrap().custom_id).collect()
    }

    #[test]
    fn shards_divide_the_rows() {
        let path = folder("shards").join("in.jsonl");
        let text: Vec<String> = (0..7).map(|id| line(&id.to_string())).collect();
        std::fs::write(&path, text.join("\n\n")).unwrap();
        let mut all = Vec::new();
        for shard in ["0/3", "1/3", "2/3"] {
            let requests = Requests::open(&path, shard.parse().unwrap()).unwrap();
            let count = requests.len();
            let part = ids(requests.without(HashSet::new()));
            assert_eq!(part.len(), count);
            all.extend(part);
        }
        all.sort();
        assert_eq!(all, ["0", "1", "2", "3", "4", "5", "6"]);
        for wrong in ["3/3", "1", "a/b", "0/0", "-1/2"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mistake_in_any_line_is_found_before_the_first_is_computed() {
        let path = folder("mistakes").join("in.jsonl");
        for (last, why) in [
            ("{", "line 2: it must be a JSON object"),
            (&*line("a"), "line 2: `custom_id` must be unique"),
            (r#"{"custom_id": "b", "url": "/v1/files", "body": {}}"#, "line 2: `url` must be one of"),
            (r#"{"custom_id": 7, "url": "/v1/completions", "body": {}}"#, "line 2: "),
        ] {
            std::fs::write(&path, format!("{}\n{last}\n", line("a"))).unwrap();
            let error = Requests::open(&path, Shard::WHOLE).err().map(|error| error.to_string());
            assert!(error.as_deref().is_some_and(|error| error.contains(why)), "{error:?}");
        }
    }

    #[test]
    fn a_run_goes_on_where_another_was_killed() {
        let folder = folder("resume");
        let (input, output) = (folder.join("in.jsonl"), folder.join("out.jsonl"));
        std::fs::write(&input, format!("{}\n{}\n{}\n", line("a"), line("b"), line("c"))).unwrap();
        let _ = std::fs::remove_file(&output);
        let open = |resume| Answers::open(&output, resume, &Requests::open(&input, Shard::WHOLE).unwrap());

        let (mut answers, answered) = open(false).unwrap();
        assert!(answered.is_empty());
        answers.write(answer("b").trim_end()).unwrap();
        // Nobody else writes meanwhile.
        assert!(open(true).err().is_some_and(|error| error.to_string().contains("another run")));
        drop(answers);
        let whole = std::fs::read(&output).unwrap();
        assert!(open(false).err().is_some_and(|error| error.to_string().contains("--resume")));

        // Killed in the middle of a line.
        std::fs::write(&output, [&whole[..], br#"{"id":"batch_req_x","custom_"#].concat()).unwrap();
        let (answers, answered) = open(true).unwrap();
        assert_eq!(answered, HashSet::from(["b".to_owned()]));
        assert_eq!(std::fs::read(&output).unwrap(), whole);
        drop(answers);
        assert_eq!(ids(Requests::open(&input, Shard::WHOLE).unwrap().without(answered)), ["a", "c"]);

        // A machine that went down in the middle of a line.
        std::fs::write(&output, [&whole[..], &[0; 100]].concat()).unwrap();
        drop(open(true).unwrap());
        assert_eq!(std::fs::read(&output).unwrap(), whole);

        std::fs::write(&output, [&whole[..], &whole[..]].concat()).unwrap();
        assert!(open(true).err().is_some_and(|error| error.to_string().contains("answered twice")));
        let other = answer("z");
        std::fs::write(&output, other).unwrap();
        assert!(open(true).err().is_some_and(|error| error.to_string().contains("not among the requests")));
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let folder = folder("else");
        let (input, output) = (folder.join("in.jsonl"), folder.join("out.jsonl"));
        std::fs::write(&input, format!("{}\n{}", line("a"), line("b"))).unwrap();
        let open = |path: &Path| Answers::open(path, true, &Requests::open(&input, Shard::WHOLE).unwrap());
        for text in [&*format!("{}\n{}", line("a"), line("b")), &*line("a"), "notes", "{\"id\": 7}"] {
            std::fs::write(&output, text).unwrap();
            let error = open(&output).err().map(|error| error.to_string());
            assert!(
                error.as_deref().is_some_and(|error| error.contains("no answer of a batch")),
                "{error:?}"
            );
            assert_eq!(std::fs::read_to_string(&output).unwrap(), text);
        }
        // The requests themselves.
        let before = std::fs::read(&input).unwrap();
        assert!(open(&input).is_err());
        assert_eq!(std::fs::read(&input).unwrap(), before);
    }
}
