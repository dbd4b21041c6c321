//! Detects files that are not models (a Git LFS pointer, a GGUF file, a PEFT adapter). Each error names the
//! kind and how to get the model.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;

use serde_json::Value;

use rsgen_core::files::open_regular;
use rsgen_core::json::shown;

const ADAPTER: &str = "adapter_config.json";
/// The most bytes read of `adapter_config.json`.
const MAX_ADAPTER_BYTES: u64 = 1 << 20;
/// Pointers have three short lines.
const MAX_POINTER_BYTES: u64 = 1024;
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
const GGUF: &[u8] = b"GGUF";

/// The error message for a GGUF file, recognised by its first bytes.
pub(super) fn gguf(first_bytes: &[u8]) -> Option<&'static str> {
    first_bytes.starts_with(GGUF).then_some(
        "it is a GGUF file of llama.cpp, which is not supported; use the model in safetensors format that it was \
         converted from",
    )
}

/// The error message for a file that is no file of a model.
///
/// # Errors
/// When the file cannot be read. After success its cursor is at the start.
pub(super) fn foreign_file(mut file: &File) -> io::Result<Option<&'static str>> {
    if file.metadata()?.len() > MAX_POINTER_BYTES {
        return Ok(None);
    }
    let mut bytes = [0; POINTER.len()];
    let is_pointer = file.read_exact(&mut bytes).is_ok() && bytes == POINTER;
    file.rewind()?;
    Ok(is_pointer.then_some(
        "it is a Git LFS pointer in place of the file; run `git lfs pull` there, or download the model with `hf download`",
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
    let files = folder.read_dir().ok()?.flatten().map(|entry| entry.file_name());
    let file =
        files.filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "gguf")).min()?;
    gguf(GGUF).map(|what| format!("it holds {}: {what}", shown(&file.to_string_lossy().into())))
}
