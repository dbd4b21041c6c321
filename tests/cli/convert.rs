//! `rsgen convert`.

use serde_json::json;

use super::support::{failure, json_of, stdout};

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/torch");

#[test]
fn a_model_is_converted_once_and_the_report_counts_files_and_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, two) = (out("one"), out("two"));
    let report = stdout(&["convert", &format!("{MODELS}/model"), &one]);
    assert!(report.starts_with(&one) && report.contains(": 1 file, "), "{report}");
    let report = json_of(&["convert", &format!("{MODELS}/model_parts"), &two, "--json"]);
    assert_eq!((&report["out"], &report["num_files"]), (&json!(two), &json!(2)));
    let facts = json_of(&["inspect", &two, "--json"]);
    assert_eq!((&facts["supported"], &facts["bytes_on_disk"]), (&json!(true), &report["bytes"]));
    let (code, error) = failure(&["convert", &one, &out("three")]);
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("there is no pytorch_model.bin to convert"), "{error}");
}

#[test]
fn a_gguf_file_becomes_a_folder_of_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("folder").to_str().unwrap().to_owned();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/gguf_blocks");
    let report = json_of(&["convert", &format!("{golden}/llama.gguf"), &out, "--json"]);
    let facts = json_of(&["inspect", &out, "--json"]);
    assert_eq!((&facts["supported"], &facts["bytes_on_disk"]), (&json!(true), &report["bytes"]));
    assert_eq!(facts["weight_dtypes"], json!(["bfloat16", "float16", "float32"]));
    let (code, error) = failure(&["convert", &format!("{golden}/gpt_oss.gguf"), &format!("{out}-2")]);
    assert!(code == 3 && error.contains("in stacks; open the file as it is"), "{error}");
}
