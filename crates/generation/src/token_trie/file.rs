//! The file of a [`TokenTrie`]: a header, then its arrays as little-endian numbers.
//!
//! The file is read, not mapped. Its size has to be that which the header implies before anything is
//! allocated, and everything that the arrays imply is checked, so that a damaged file is an error.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use super::payloads::Payloads;
use super::{NO_ENTRY, TokenTrie};
use rsgen_core::{Error, Result, ResultExt, TokenId, files, json, memory};

/// What a file begins with: its kind, and the version of its form.
const MAGIC: [u8; 8] = *b"rsgtrie1";
/// The numbers after it: of nodes, of entries, of the bytes of payloads, and the checksum of what follows.
const HEADER_NUMBERS: usize = 4;
/// The number of bytes of payloads where there are none.
const NO_PAYLOADS: u64 = u64::MAX;
/// The bytes that are read or written at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// Whether to end early.
type Interrupt<'a> = dyn FnMut() -> bool + 'a;

/// The error of a file that is written.
struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(unwritten(error))
    }
}

impl TokenTrie {
    /// Writes it to a file, which is replaced as a whole or stays as it was; ends early when `interrupted` returns true.
    ///
    /// # Errors
    /// `Load` when the file cannot be written; `Cancelled`.
    pub fn save(&self, path: impl AsRef<Path>, interrupted: &mut Interrupt<'_>) -> Result<()> {
        let path = path.as_ref();
        let written = files::replace(path, |file| {
            let mut out = BufWriter::with_capacity(CHUNK_BYTES, file);
            self.write(&mut out, interrupted)?;
            Ok::<_, Failure>(out.flush()?)
        });
        written.map_err(|Failure(error)| error).context(|| path.display().to_string())
    }

    /// Writes it in the form of its file.
    ///
    /// # Errors
    /// As for [`TokenTrie::save`].
    pub fn write(&self, out: &mut dyn Write, interrupted: &mut Interrupt<'_>) -> Result<()> {
        let payload_bytes = self.payloads.as_ref().map_or(NO_PAYLOADS, |payloads| payloads.text.len() as u64);
        let mut checksum = Checksum::default();
        self.each_chunk(&mut |chunk| {
            checksum.add(chunk);
            Ok(())
        })?;
        let header = [self.tokens.len() as u64, self.len() as u64, payload_bytes, checksum.0];
        out.write_all(&MAGIC).map_err(unwritten)?;
        out.write_all(&header.map(u64::to_le_bytes).concat()).map_err(unwritten)?;
        self.each_chunk(&mut |chunk| {
            if interrupted() {
                return Err(Error::cancelled());
            }
            out.write_all(chunk).map_err(unwritten)
        })
    }

    /// Calls `done` with the bytes after the header, some at a time.
    fn each_chunk(&self, done: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut bytes = Vec::new();
        for chunk in self.tokens.chunks(CHUNK_BYTES / 4) {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|token| token.0.to_le_bytes()));
            done(&bytes)?;
        }
        for numbers in [&self.first_child, &self.entries] {
            for chunk in numbers.chunks(CHUNK_BYTES / 4) {
                bytes.clear();
                bytes.extend(chunk.iter().flat_map(|number| number.to_le_bytes()));
                done(&bytes)?;
            }
        }
        let Some(payloads) = &self.payloads else { return Ok(()) };
        for chunk in payloads.ends.chunks(CHUNK_BYTES / 8) {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|end| end.to_le_bytes()));
            done(&bytes)?;
        }
        payloads.text.as_bytes().chunks(CHUNK_BYTES).try_for_each(done)
    }

    /// Opens a file that [`TokenTrie::save`] has written; ends early when `interrupted` returns true.
    ///
    /// # Errors
    /// `Load` when it is missing, damaged, or another kind of file; `Capacity` when there is no memory for it;
    /// `Cancelled`.
    pub fn open(path: impl AsRef<Path>, interrupted: &mut Interrupt<'_>) -> Result<Self> {
        let path = path.as_ref();
        let opened = files::open_regular(path).map_err(unread).and_then(|file: File| {
            let len = file.metadata().map_err(unread)?.len();
            Self::read(&mut BufReader::with_capacity(CHUNK_BYTES, file), len, interrupted)
        });
        opened.context(|| path.display().to_string())
    }

    /// Reads one of `len` bytes.
    ///
    /// # Errors
    /// As for [`TokenTrie::open`].
    pub fn read(input: &mut dyn Read, len: u64, interrupted: &mut Interrupt<'_>) -> Result<Self> {
        let mut header = [0; 8 * (1 + HEADER_NUMBERS)];
        if len < header.len() as u64 {
            return Err(Error::load(format!(
                "a catalogue has at least {} bytes, found {len}; save it again",
                header.len()
            )));
        }
        input.read_exact(&mut header).map_err(unread)?;
        let (magic, numbers) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(Error::load(
                "it is not a catalogue of this version; make one with `rsgen.TokenTrie(...).save(path)`",
            ));
        }
        let number = |place: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&numbers[8 * place..][..8]);
            u64::from_le_bytes(bytes)
        };
        let (num_nodes, num_entries, payload_bytes) = (number(0), number(1), number(2));
        let implied = implied_bytes(num_nodes, num_entries, payload_bytes)?;
        if implied != u128::from(len) {
            return Err(damaged("num_nodes", format!("implies {implied} bytes, but the file has {len}")));
        }
        let mut reader = Reader { input, interrupted, checksum: Checksum::default() };
        let (num_nodes, num_entries) = (num_nodes as usize, num_entries as usize);
        let tokens = reader.numbers(num_nodes, |bytes| TokenId(u32::from_le_bytes(bytes)))?;
        let first_child = reader.numbers(num_nodes + 1, u32::from_le_bytes)?;
        let entries = reader.numbers(num_nodes, u32::from_le_bytes)?;
        let payloads = if payload_bytes == NO_PAYLOADS {
            None
        } else {
            let ends = reader.numbers(num_entries, u64::from_le_bytes)?;
            let text = reader.numbers(payload_bytes as usize, |[byte]: [u8; 1]| byte)?;
            let text = String::from_utf8(text).map_err(|_| damaged("payloads", "are not UTF-8"))?;
            Some(Payloads { text, ends })
        };
        if reader.checksum.0 != number(3) {
            return Err(damaged("checksum", "is not that of the rest of the file"));
        }
        check_nodes(&tokens, &first_child)?;
        let nodes = nodes_of(&entries, &first_child, num_entries)?;
        if let Some(payloads) = &payloads {
            check_payloads(payloads, reader.interrupted)?;
        }
        Ok(Self::of_nodes(tokens, first_child, entries, nodes, payloads))
    }
}

/// The bytes of a file with these numbers in its header.
fn implied_bytes(num_nodes: u64, num_entries: u64, payload_bytes: u64) -> Result<u128> {
    if !(2..=u64::from(NO_ENTRY)).contains(&num_nodes) {
        return Err(damaged("num_nodes", format!("must be 2 to {NO_ENTRY}, but is {num_nodes}")));
    }
    if !(1..num_nodes).contains(&num_entries) {
        let rule = format!("must be 1 to {}, but is {num_entries}", num_nodes - 1);
        return Err(damaged("num_entries", rule));
    }
    let header = 8 * (1 + HEADER_NUMBERS) as u128;
    let payloads = match payload_bytes {
        NO_PAYLOADS => 0,
        bytes => 8 * u128::from(num_entries) + u128::from(bytes),
    };
    Ok(header + 12 * u128::from(num_nodes) + 4 + payloads)
}

/// Checks that every node but the root is the child of one before it, and that siblings are in order.
fn check_nodes(tokens: &[TokenId], first_child: &[u32]) -> Result<()> {
    let num_nodes = tokens.len();
    if first_child[0] != 1 || first_child[num_nodes] as usize != num_nodes {
        return Err(damaged("first_child", format!("must go from 1 to {num_nodes}")));
    }
    for (node, pair) in first_child.windows(2).enumerate() {
        let (first, end) = (pair[0] as usize, pair[1] as usize);
        // So that all children come after their parent, and every index is one.
        if first <= node || end < first || end > num_nodes {
            return Err(damaged(
                "first_child",
                format!("of node {node} must be above it, in ascending order, but is {first}"),
            ));
        }
        if !tokens[first..end].is_sorted_by(|a, b| a < b) {
            return Err(damaged(
                "tokens",
                format!("of the children of node {node} must be in ascending order"),
            ));
        }
    }
    Ok(())
}

/// The node of each entry: every entry ends at one, and an entry ends at every node without children.
fn nodes_of(entries: &[u32], first_child: &[u32], num_entries: usize) -> Result<Vec<u32>> {
    let mut nodes = Vec::new();
    memory::reserve(&mut nodes, num_entries, "entries")?;
    nodes.resize(num_entries, 0);
    for (node, (&entry, children)) in entries.iter().zip(first_child.windows(2)).enumerate() {
        if entry == NO_ENTRY {
            if children[0] == children[1] {
                return Err(damaged(
                    "entries",
                    format!("must have one at node {node}, where nothing follows"),
                ));
            }
            continue;
        }
        // Entries have a token, so 0 is no node of one.
        match nodes.get_mut(entry as usize) {
            Some(place) if *place == 0 && node > 0 => *place = node as u32,
            _ => {
                let rule =
                    format!("must be 0 to {}, each once, but is {entry} at node {node}", num_entries - 1);
                return Err(damaged("entries", rule));
            }
        }
    }
    match nodes.iter().position(|&node| node == 0) {
        Some(missing) => Err(damaged("entries", format!("must hold each once, but {missing} is missing"))),
        None => Ok(nodes),
    }
}

fn check_payloads(payloads: &Payloads, interrupted: &mut Interrupt<'_>) -> Result<()> {
    let len = payloads.text.len() as u64;
    if !payloads.ends.is_sorted() || payloads.ends.last() != Some(&len) {
        return Err(damaged("payloads", format!("must end in ascending order, the last at {len}")));
    }
    for index in 0..payloads.ends.len() {
        if index.is_multiple_of(1 << 12) && interrupted() {
            return Err(Error::cancelled());
        }
        let text = payloads.text_of(index);
        let text =
            text.ok_or_else(|| damaged("payloads", format!("of entry {index} is cut within a character")))?;
        json::check(text.as_bytes()).context(|| format!("payload of entry {index}"))?;
    }
    Ok(())
}

struct Reader<'a, 'b> {
    input: &'a mut dyn Read,
    interrupted: &'a mut Interrupt<'b>,
    checksum: Checksum,
}

impl Reader<'_, '_> {
    /// The next `len` numbers of `N` bytes each: the size of the file has shown that they are there.
    fn numbers<T, const N: usize>(&mut self, len: usize, number: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
        let mut numbers = Vec::new();
        memory::reserve(&mut numbers, len, "numbers of a catalogue")?;
        let mut bytes = vec![0; CHUNK_BYTES];
        while numbers.len() < len {
            if (self.interrupted)() {
                return Err(Error::cancelled());
            }
            let chunk = &mut bytes[..N * (len - numbers.len()).min(CHUNK_BYTES / N)];
            self.input.read_exact(chunk).map_err(unread)?;
            self.checksum.add(chunk);
            numbers.extend(chunk.as_chunks::<N>().0.iter().map(|&bytes| number(bytes)));
        }
        Ok(numbers)
    }
}

/// FNV-1a over words of eight bytes: it differs wherever a single word does.
struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    /// Adds a chunk, whose last word may be shorter.
    fn add(&mut self, chunk: &[u8]) {
        let (words, rest) = chunk.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let last = (!rest.is_empty()).then_some(last);
        for word in words.iter().copied().chain(last) {
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

fn damaged(field: &str, rule: impl Into<String>) -> Error {
    Error::load(format!("`{field}` {}; the file is damaged: save it again", rule.into())).concerning(field)
}

fn unread(error: std::io::Error) -> Error {
    Error::load("the catalogue cannot be read").with_source(error)
}

fn unwritten(error: std::io::Error) -> Error {
    Error::load("the catalogue cannot be written").with_source(error)
}
