//! Runs the committed inputs of the fuzz targets as a regression test.
//!
//! `make fuzz` goes on from them; `CONTRIBUTING.md` says how a find becomes one of them.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

/// The most bytes of all inputs together.
const MAX_CORPUS_BYTES: u64 = 500_000;
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 14] = [
    ("answer", rsgen_fuzz::answer),
    ("config", rsgen_fuzz::config),
    ("conversation", rsgen_fuzz::conversation),
    ("decoding", rsgen_fuzz::decoding),
    ("generate_arguments", rsgen_fuzz::generate_arguments),
    ("gguf_file", rsgen_fuzz::gguf_file),
    ("header", rsgen_fuzz::header),
    ("quantization_config", rsgen_fuzz::quantization_config),
    ("sentencepiece", rsgen_fuzz::sentencepiece),
    ("template", rsgen_fuzz::template),
    ("token_trie", rsgen_fuzz::token_trie),
    ("tokenizer", rsgen_fuzz::tokenizer),
    ("torch_file", rsgen_fuzz::torch_file),
    ("trace", rsgen_fuzz::trace),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn the_committed_inputs_break_no_promise() {
    for (target, run) in TARGETS {
        let inputs = files(&folder("corpus").join(target));
        assert!(!inputs.is_empty(), "{target} has no inputs");
        for input in inputs {
            println!("{}", input.display());
            run(&fs::read(&input).unwrap());
        }
    }
}

#[test]
fn every_target_has_its_function_and_its_inputs() {
    let stems = |folder: &Path| -> Vec<String> {
        files(folder).iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let names = TARGETS.map(|(name, _)| name);
    assert_eq!(stems(&folder("fuzz_targets")), names);
    assert_eq!(stems(&folder("corpus")), names);
}

#[test]
fn the_committed_inputs_stay_small() {
    let inputs = TARGETS.iter().flat_map(|(target, _)| files(&folder("corpus").join(target)));
    let bytes: u64 = inputs.map(|input| fs::metadata(input).unwrap().len()).sum();
    assert!(bytes < MAX_CORPUS_BYTES, "{bytes} bytes");
}
