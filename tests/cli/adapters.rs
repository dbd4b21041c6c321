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
fn a_model_is_described_with_adapters_beside_it() {
    let own = adapter("story");
    let described = json_of(&["inspect", "--json", STORY, "--adapter", &own, "--adapter", &own]);
    assert_eq!(described["architecture"], "LlamaForCausalLM");
    let adapters = described["adapters"].as_array().unwrap();
    assert_eq!(adapters.len(), 2);
    assert_eq!(
        (&adapters[0]["r"], &adapters[0]["target_modules"]),
        (&json!(2), &json!(["q_proj", "v_proj"]))
    );
    assert!(adapters[0]["bytes_on_disk"].as_u64().unwrap() > 1000);
    let page = stdout(&["inspect", STORY, "--adapter", &own]);
    assert!(page.contains("rank 2, changes q_proj, v_proj; "), "{page}");
    assert!(json_of(&["inspect", "--json", STORY]).get("adapters").is_none());
    let (code, error) = failure(&["inspect", &own, "--adapter", &own]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("is an adapter and no model"), "{error}");
    let (code, error) = failure(&["inspect", STORY, "--adapter", "nowhere"]);
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("nowhere"), "{error}");
}

#[test]
fn weighted_adapters_add_up_in_every_command() {
    let scaled = |weight: &str| format!("{}:{weight}", adapter("story"));
    let [half, whole, none] = ["0.5", "1", "0"].map(scaled);
    let logprobs = |arguments: &[&str]| score(arguments)["logprobs"].clone();
    let sum = logprobs(&["--lora-scaled", &half, "--lora-scaled", &half]);
    assert_eq!(sum, logprobs(&["--lora-scaled", &whole]));
    assert_ne!(sum, logprobs(&["--lora-scaled", &half]));
    assert_eq!(logprobs(&["--lora-scaled", &none]), logprobs(&[]));
    assert_ne!(sum, logprobs(&[]));
    let generated = |arguments: &[&str]| {
        stdout(&[&["generate", "Once upon a time", "--max-new-tokens", "8"], arguments].concat())
    };
    let strong = scaled("-40");
    assert_ne!(generated(&["--lora-scaled", &strong]), generated(&[]));
    for wrong in ["nope", "a:", "a:nan"] {
        let (code, error) = failure(&["score", "--lora-scaled", wrong, "Once"]);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains("FOLDER:WEIGHT"), "{error}");
    }
    let (code, error) = failure(&["score", "--lora-scaled", "nowhere:1", "Once"]);
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("nowhere"), "{error}");
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
