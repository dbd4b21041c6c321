//! Detects files that are not models (a Git LFS pointer, a PEFT adapter), and weights under other names or in
//! other formats. Each error names the kind and how to get the model.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;

use serde_json::Value;

use super::gguf::is_one as is_gguf;
use rsgen_core::files::open_regular;
use rsgen_core::json::shown;

const ADAPTER: &str = "adapter_config.json";
/// The most bytes read of `adapter_config.json`.
const MAX_ADAPTER_BYTES: u64 = 1 << 20;
/// Pointers have three short lines.
const MAX_POINTER_BYTES: u64 = 1024;
/// The bytes that tell what a file is.
const FIRST_BYTES: u64 = 128;
/// How HTML pages begin.
const PAGES: [&[u8]; 2] = [b"<!doctype html", b"<html"];
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// The error message for a GGUF file in place of another one, recognised by its first bytes.
pub(super) fn gguf(first_bytes: &[u8]) -> Option<&'static str> {
    is_gguf(first_bytes)
        .then_some("it is a GGUF file under the name of another; open it by its path, as a model of its own")
}

/// The error message for a file that is no file of a model.
///
/// # Errors
/// When the file cannot be read. After success its cursor is at the start.
pub(super) fn foreign_file(mut file: &File) -> io::Result<Option<&'static str>> {
    let mut bytes = Vec::with_capacity(FIRST_BYTES as usize);
    file.take(FIRST_BYTES).read_to_end(&mut bytes)?;
    file.rewind()?;
    if file.metadata()?.len() <= MAX_POINTER_BYTES && bytes.starts_with(POINTER) {
        return Ok(Some(
            "it is a Git LFS pointer in place of the file; run `git lfs pull` there, or download the model with `hf download`",
        ));
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes).trim_ascii_start().to_ascii_lowercase();
    Ok(PAGES.iter().any(|page| text.starts_with(page)).then_some(
        "it is an HTML page in place of the file, as a browser or a login saves it; download the model with `hf download`",
    ))
}

/// The error message for a folder that holds an adapter or GGUF files instead of a model.
pub(super) fn foreign_folder(folder: &Path) -> Option<String> {
    if let Ok(file) = open_regular(&folder.join(ADAPTER)) {
        let mut text = Vec::new();
        let _ = file.take(MAX_ADAPTER_BYTES).read_to_end(&mut text);
        let config = serde_json::from_slice::<Value>(&text).unwrap_or_default();
        let base = config.get("base_model_name_or_path").filter(|base| base.is_string());
        let base = base.map_or_else(String::new, |base| format!(" for {}", shown(base)));
        return Some(format!(
            "it is a PEFT adapter (LoRA){base}, not a model; open its base model with it: \
             `Generator(base, adapter=folder)`, or `--model base --adapter folder`"
        ));
    }
    let entries = folder.read_dir().ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = entries.collect();
    if names.iter().any(|name| name.ends_with(".index.json")) {
        names.retain(|name| !name.contains("-of-"));
    }
    names.sort();
    let found = |is_one: &dyn Fn(&str) -> bool| {
        names.iter().find(|name| is_one(name)).map(|name| shown(&(**name).into()))
    };
    if let Some(file) = found(&|name| ending(name) == "gguf") {
        let file = file.trim_matches('"');
        return Some(format!(
            "it holds GGUF files; open one by its path, such as {}",
            folder.join(file).display()
        ));
    }
    for (is_one, what) in OTHER_WEIGHTS {
        if let Some(file) = found(&is_one) {
            return Some(format!("{} {what}", file.trim_matches('"')));
        }
    }
    if let Some(inner) = found(&|name| folder.join(name).join("config.json").is_file()) {
        return Some(format!("its folder {inner} holds a model; open that folder"));
    }
    let holds = |name: &str| WEIGHTS.iter().any(|weights| folder.join(name).join(weights).is_file());
    let inner = found(&holds)?;
    Some(format!("its folder {inner} holds weights; put them and config.json into one folder"))
}

/// Files by which weights are found.
const WEIGHTS: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// Files of weights that are not read: which, what they are, and what to do.
type OtherWeights = (fn(&str) -> bool, &'static str);
const OTHER_WEIGHTS: [OtherWeights; 5] = [
    (
        |name| name.contains(".index.") && ending(name) == "json" && name.split('.').count() > 4,
        "is the index of a variant of the weights; rename it to model.safetensors.index.json",
    ),
    (
        |name| is_weights(name) && name.contains("-of-"),
        "is one part of a model, and the index of its parts is missing; download model.safetensors.index.json or \
         pytorch_model.bin.index.json as well",
    ),
    (
        |name| name.starts_with("consolidated"),
        "has the names of its maker's own format; download the files of the same model that transformers reads",
    ),
    (
        |name| {
            is_weights(name)
                && !name.starts_with("openvino")
                && name != "training_args.bin"
                && !WEIGHTS.contains(&name)
        },
        "has a name that is not looked for, such as that of a variant; if it is the whole model, rename it to \
         model.safetensors or pytorch_model.bin, as it ends",
    ),
    (
        |name| {
            ["h5", "msgpack", "ot", "onnx", "xml", "npz", "pth", "pt", "ckpt", "nemo"].contains(&ending(name))
        },
        "is of another format: save the model as safetensors",
    ),
];

/// What follows the last dot.
fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

fn is_weights(name: &str) -> bool {
    ["safetensors", "bin"].contains(&ending(name))
}
