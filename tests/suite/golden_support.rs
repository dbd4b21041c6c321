//! Reading the goldens of `tests/golden`, comparing with them, and collecting what differs.
//!
//! The format is described in `tests/golden/README.md`. This module does not depend on how rsgen computes.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use rsgen::TokenId;
use serde_json::Value;

/// The differences of all cases, so that one run reports all of them.
#[derive(Default)]
pub(crate) struct Faults {
    checks: usize,
    faults: Vec<String>,
}

impl Faults {
    /// Counts a check; `problem` describes a failure.
    pub(crate) fn check(&mut self, case: impl Display, problem: Option<String>) {
        self.checks += 1;
        self.faults.extend(problem.map(|problem| format!("{case}: {problem}")));
    }

    /// # Panics
    /// When anything differs, or when there was less to check than `at_least`.
    pub(crate) fn report(self, at_least: usize) {
        assert!(self.faults.is_empty(), "{} faults:\n{}", self.faults.len(), self.faults.join("\n"));
        assert!(self.checks >= at_least, "{} checks, expected {at_least} or more", self.checks);
    }
}

/// The tolerance of a number.
#[derive(Clone, Copy)]
pub(crate) struct Tolerance {
    pub(crate) absolute: f32,
    pub(crate) relative: f32,
}

/// The documented tolerance of logits, scores and log-probabilities.
pub(crate) const PROMISED: Tolerance = Tolerance { absolute: 1e-4, relative: 1e-5 };
pub(crate) const EQUAL: Tolerance = Tolerance { absolute: 0.0, relative: 0.0 };

/// The worst of the numbers that are too far from the expected ones; infinities must be equal.
pub(crate) fn difference(actual: &[f32], expected: &[f32], tolerance: Tolerance) -> Option<String> {
    if actual.len() != expected.len() {
        return Some(format!("{} numbers, expected {}", actual.len(), expected.len()));
    }
    let excess = |index: usize| {
        let (a, b) = (actual[index], expected[index]);
        // A NaN is never within a bound, and infinities have no distance.
        let excess = (a - b).abs() - tolerance.absolute - tolerance.relative * b.abs();
        if a == b {
            f32::NEG_INFINITY
        } else if excess.is_nan() {
            f32::INFINITY
        } else {
            excess
        }
    };
    let wrong: Vec<usize> = (0..actual.len()).filter(|&index| excess(index) > 0.0).collect();
    let worst = wrong.iter().copied().max_by(|&a, &b| excess(a).total_cmp(&excess(b)))?;
    Some(format!(
        "{} of {} numbers are too far; number {worst} is {:?}, expected {:?}",
        wrong.len(),
        actual.len(),
        actual[worst],
        expected[worst]
    ))
}

/// The first index where two lists differ.
pub(crate) fn unequal<T: PartialEq + std::fmt::Debug>(actual: &[T], expected: &[T]) -> Option<String> {
    if actual == expected {
        return None;
    }
    let at =
        actual.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(actual.len().min(expected.len()));
    Some(format!(
        "entry {at} is {:?}, expected {:?} ({} entries, expected {})",
        actual.get(at),
        expected.get(at),
        actual.len(),
        expected.len()
    ))
}

pub(crate) fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// A path from the root of the repository.
pub(crate) fn path(relative: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative).to_str().expect("a path in UTF-8").to_owned()
}

/// One file of `tests/golden`.
pub(crate) fn golden(name: &str) -> Value {
    let path = path(&format!("tests/golden/{name}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let golden: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(golden["format"], 1, "{path}");
    golden
}

/// The goldens of models, by name, sorted.
pub(crate) fn model_goldens() -> Vec<(String, Value)> {
    let files = fs::read_dir(path("tests/golden")).expect("tests/golden");
    let paths: Vec<PathBuf> = files.map(|file| file.expect("a readable folder").path()).collect();
    let mut goldens: Vec<(String, Value)> = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter_map(|path| path.file_stem()?.to_str())
        .map(|name| (name.to_owned(), golden(name)))
        .filter(|(_, golden)| golden.get("model").is_some())
        .collect();
    goldens.sort_by(|a, b| a.0.cmp(&b.0));
    goldens
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("expected a list, got {value}"))
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("expected a text, got {value}"))
}

pub(crate) fn integer(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("expected an integer, got {value}"))
}

pub(crate) fn integers(value: &Value) -> Vec<u64> {
    list(value).iter().map(integer).collect()
}

pub(crate) fn token_ids(value: &Value) -> Vec<TokenId> {
    integers(value).into_iter().map(|id| TokenId(id as u32)).collect()
}

/// The numbers of a tensor, row-major.
pub(crate) fn tensor(value: &Value) -> Vec<f32> {
    let bytes = base64(text(&value["f32"]));
    let numbers: Vec<f32> =
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
    assert_eq!(numbers.len() as u64, integers(&value["shape"]).iter().product::<u64>(), "the tensor's shape");
    numbers
}

pub(crate) fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut buffer, mut held) = (Vec::new(), 0_u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|&known| known == digit).expect("a digit of base64");
        buffer = buffer << 6 | value as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((buffer >> held) as u8);
        }
    }
    bytes
}

/// The bytes of hexadecimal digits.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.as_bytes().chunks(2).map(byte).collect()
}
