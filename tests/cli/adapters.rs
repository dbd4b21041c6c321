//! `--adapter`, and adapters given to `rsgen inspect`.

use std::fs;

use serde_json::{Value, json};

use super::support::{failure, json_of, keys, stdout};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const STORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");

fn adapter(name: &str) -> String {
    format!("{ROOT}/tests/golden/adapters/{name}")
}

fn score(arguments: &[&str]) -> Value {
    json_of(&[&["score", "--json", "Once upon a time there was a fox."], arguments].concat())
}

#[test]
fn an_adapter_changes_what_the_model_says() {
    let plain = score(&[]);
    let adapted = score(&["--adapter", &adapter("story")]);
    assert_eq!(keys(&plain), keys(&adapted));
    assert_ne!(plain, adapted);
    let (code, error) = failure(&["score", "--adapter", STORY, "Once"]);
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("adapter_config.json is missing"), "{error}");
}

#[test]
fn a_packed_model_holds_the_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("packed");
    let (adapter, out) = (adapter("story"), out.to_str().unwrap());
    stdout(&["pack", STORY, out, "--dtype", "int8", "--adapter", &adapter]);
    let packed = score(&["--model", out])["logprobs"].clone();
    assert_eq!(packed, score(&["--model", STORY, "--dtype", "int8", "--adapter", &adapter])["logprobs"]);
    assert_ne!(packed, score(&["--model", STORY, "--dtype", "int8"])["logprobs"]);
}

#[test]
fn an_adapter_is_described() {
    let described = json_of(&["inspect", "--json", &adapter("apart")]);
    assert_eq!(described["supported"], true);
    assert_eq!(described["base_model_name_or_path"], "multi_head");
    assert_eq!((&described["r"], &described["lora_alpha"]), (&json!(4), &json!(6.0)));
    assert_eq!(described["target_modules"], json!(["embed_tokens", "lm_head"]));
    assert_eq!(described["modules_to_save"], json!(["norm"]));
    let page = stdout(&["inspect", &adapter("rslora_in_bfloat16")]);
    for expected in
        ["LoRA, of PEFT", "yes: open its base model with --adapter", "bfloat16", "root of the rank"]
    {
        assert!(page.contains(expected), "{expected}: {page}");
    }
}

#[test]
fn an_adapter_of_another_kind_is_described_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("adapter_config.json"), r#"{"peft_type": "IA3"}"#).unwrap();
    let path = folder.path().to_str().unwrap();
    let described = json_of(&["inspect", "--json", path]);
    assert_eq!(described["supported"], false);
    let reason = described["unsupported_because"].as_str().unwrap();
    assert!(reason.contains("peft_type must be \"LORA\""), "{reason}");
    let page = stdout(&["inspect", path]);
    assert!(page.contains("no: ") && page.contains("IA3"), "{page}");
}
