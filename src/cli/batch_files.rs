//! The files of `rsgen run-batch`: requests, and existing answers.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Seek as _, SeekFrom, copy, stdin};
use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::serve::BatchRequest;
use rsgen_core::files::open_regular;
use rsgen_core::lines::Lines;
use rsgen_core::row_file::{RowFile, RowKind};
use rsgen_core::{Error, Result};

/// The lines of a file of answers.
const ANSWERS: RowKind = RowKind { name: "answer of a batch", start: br#"{"id":"batch_req_"# };

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

/// The requests of a file, all of them valid.
pub(super) struct Requests {
    lines: Lines<BufReader<File>>,
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
            (Lines::new(BufReader::new(file), path), HashSet::new(), HashSet::new(), 0);
        while let Some(line) = lines.next_line()? {
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
        let mut reader = lines.reader;
        reader.seek(SeekFrom::Start(0)).map_err(|error| unreadable(path, &error))?;
        Ok(Self { lines: Lines::new(reader, path), shard, row: 0, ids })
    }

    /// The number of requests in this shard.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The requests without an answer, in the order of the file.
    pub(super) fn without(mut self, answered: HashSet<String>) -> impl Iterator<Item = Result<BatchRequest>> {
        std::iter::from_fn(move || {
            loop {
                let request = self
                    .lines
                    .next_line()
                    .and_then(|line| line.map(|line| parse(&self.lines, &line)).transpose());
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

fn parse(lines: &Lines<BufReader<File>>, line: &[u8]) -> Result<BatchRequest> {
    BatchRequest::read(line).map_err(|error| lines.wrong(error))
}

/// A copy of standard input, from its beginning.
fn standard_input() -> std::io::Result<File> {
    let mut file = tempfile::tempfile()?;
    copy(&mut stdin().lock(), &mut file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

#[derive(Deserialize)]
struct Answered {
    custom_id: String,
    /// Without it the line is a request.
    #[expect(dead_code, reason = "it has to be there")]
    response: IgnoredAny,
}

/// Opens the file of answers, each the row of its request's id.
///
/// # Errors
/// `Config` when it has answers and `resume` is false; `Input` when another run writes it, when it is no file
/// of answers, or when it answers other requests than these.
pub(super) fn open_answers(path: &Path, resume: bool, requests: &Requests) -> Result<RowFile<String>> {
    if !resume && path.metadata().is_ok_and(|found| found.len() > 0) {
        return Err(Error::config(format!(
            "{} has answers already; `--resume` goes on with it, or give another file",
            path.display()
        )));
    }
    RowFile::open(path, ANSWERS, |line| match serde_json::from_slice(line).ok() {
        Some(Answered { custom_id, .. }) if !requests.ids.contains(&custom_id) => Err(format!(
            "it answers {custom_id:?}, which is not among the requests; give the file of the same input and shard"
        )),
        answer => Ok(answer.map(|answer| answer.custom_id)),
    })
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::input(format!("{} cannot be opened: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
    fn answers_are_those_of_the_requests_and_others_are_left_alone() {
        let folder = folder("resume");
        let (input, output) = (folder.join("in.jsonl"), folder.join("out.jsonl"));
        std::fs::write(&input, format!("{}\n{}\n{}\n", line("a"), line("b"), line("c"))).unwrap();
        let _ = std::fs::remove_file(&output);
        let requests = || Requests::open(&input, Shard::WHOLE).unwrap();
        let open = |path: &Path, resume| open_answers(path, resume, &requests());
        let why = |path: &Path, resume| open(path, resume).err().map(|error| error.to_string()).unwrap();

        let mut answers = open(&output, false).unwrap();
        assert!(answers.rows().is_empty());
        answers.write("b".to_owned(), answer("b").trim_end()).unwrap();
        drop(answers);
        let whole = std::fs::read(&output).unwrap();
        assert_eq!(String::from_utf8_lossy(&whole), answer("b"));
        assert!(why(&output, false).contains("--resume"));

        // Killed in the middle of a line.
        std::fs::write(&output, [&whole[..], br#"{"id":"batch_req_x","custom_"#].concat()).unwrap();
        let answers = open(&output, true).unwrap();
        assert_eq!(std::fs::read(&output).unwrap(), whole);
        let answered = answers.rows().keys().cloned().collect();
        drop(answers);
        assert_eq!(ids(requests().without(answered)), ["a", "c"]);

        std::fs::write(&output, answer("z")).unwrap();
        assert!(why(&output, true).contains("not among the requests"));
        let two = format!("{}\n{}", line("a"), line("b"));
        for text in [&*two, &line("a"), &format!("{}\n", line("a")), "notes", "{\"id\": 7}"] {
            std::fs::write(&output, text).unwrap();
            assert!(why(&output, true).contains("it is no answer of a batch; give another file"));
            assert_eq!(std::fs::read_to_string(&output).unwrap(), text);
        }
        // The requests themselves.
        let before = std::fs::read(&input).unwrap();
        assert!(open(&input, true).is_err());
        assert_eq!(std::fs::read(&input).unwrap(), before);
    }
}
