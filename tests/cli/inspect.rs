//! `rsgen inspect`: describes a model without its weights.

use std::fs;

use serde_json::{Value, json};

use super::support::{PROMPT, command, failure, json_of, stdout};

#[test]
fn the_bundled_model_is_described() {
    let group = |group: &str, tensors: usize, parameters: usize| {
        json!({
            "group": group, "dtype": "bfloat16", "tensors": tensors, "parameters": parameters, "bytes": 2 * parameters
        })
    };
    let expected = json!({
        "schema_version": 1,
        "model": "story-3m",
        "supported": true,
        "unsupported_because": null,
        "architecture": "LlamaForCausalLM",
        "parameters": 2_828_736,
        "weight_dtypes": ["bfloat16"],
        "bytes_on_disk": 2 * 2_828_736,
        "tensor_groups": [
            group("embedding", 1, 2048 * 192),
            group("attention", 4 * 6, 6 * 2 * (192 + 96) * 192),
            group("mlp", 3 * 6, 6 * 3 * 512 * 192),
            group("norm", 2 * 6 + 1, 13 * 192)
        ],
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 32,
        "hidden_size": 192,
        "intermediate_size": 512,
        "vocab_size": 2048,
        "max_position_embeddings": 512,
        "rope": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": true,
        "attention_bias": false,
        "mlp_bias": false,
        "tokenizer": true,
        "tokenizer_file": "tokenizer.json",
        "tokenizer_model": "BPE",
        "special_tokens": {
            "bos": {"id": 0, "token": "<s>"},
            "eos": [{"id": 1, "token": "</s>"}],
            "pad": {"id": 2, "token": "<pad>"}
        },
        "generation_config": {
            "max_length": 256,
            "pad_token_id": 2,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "transformers_version": "4.57.6"
        },
        // 6 layers of K and V, 3 heads of 32 dimensions in 4 bytes; 1000 tokens need 32 blocks of 32.
        "memory": {"weight_bytes": 2 * 2_828_736, "kv_cache_bytes_per_1000_tokens": 6 * 2 * 3 * 32 * 4 * 1024}
    });
    assert_eq!(json_of(&["inspect", "--json"]), expected);

    let text = stdout(&["inspect"]);
    for expected in
        ["LlamaForCausalLM", "2.83 million", "bfloat16", "6 heads, 3 of keys and values", "512 tokens"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn types_and_sizes_of_quantized_and_gguf_models_are_shown_by_part() {
    let golden = |name: &str| format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let file = golden("gguf_blocks/qwen3_moe.gguf");
    let json = json_of(&["inspect", "--json", &file]);
    let groups = json["tensor_groups"].as_array().unwrap();
    let sum: u64 = groups.iter().map(|group| group["bytes"].as_u64().unwrap()).sum();
    assert_eq!(json["bytes_on_disk"], sum);
    assert!(
        json["num_experts"].as_u64() > Some(1) && json["num_experts_per_tok"].as_u64() >= Some(1),
        "{json}"
    );
    let text = stdout(&["inspect", &file]);
    assert!(text.contains("\nexperts       ") && text.contains(" for a token\n"), "{text}");
    for group in groups {
        let (part, dtype) = (group["group"].as_str().unwrap(), group["dtype"].as_str().unwrap());
        let line = text.lines().find(|line| line.contains(part) && line.contains(dtype));
        let count = format!(" {} tensor", group["tensors"]);
        assert!(line.is_some_and(|line| line.contains(&count) && line.len() <= 80), "{part} {dtype}: {text}");
    }
    // A type that is not read is shown, and why the model does not open.
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("model.gguf");
    let mut bytes = fs::read(&file).unwrap();
    let key = b"blk.0.attn_norm.weight";
    let at = bytes.windows(key.len()).position(|part| part == key).unwrap() + key.len();
    // After the number of dimensions and the only one: I32 is as large as F32.
    bytes[at + 12..at + 16].copy_from_slice(&26u32.to_le_bytes());
    fs::write(&damaged, bytes).unwrap();
    let json = json_of(&["inspect", "--json", damaged.to_str().unwrap()]);
    let reason = json["unsupported_because"].as_str().unwrap();
    assert!(
        reason.contains("stored as I32") && json["tensor_groups"].to_string().contains("\"I32\""),
        "{json}"
    );
    // The integers stay, though the inputs of a group are not neighbours.
    let folder = golden("quantized/gptq_4bit_asym_desc_act");
    assert!(stdout(&["inspect", &folder]).contains("attention  int4 in groups by index"));
    // Rows that are no whole blocks take more memory than they do in the file.
    let folder = golden("quantized/bnb_nf4");
    assert!(stdout(&["inspect", &folder]).contains("U8, kept as float32"));
    let json = json_of(&["inspect", "--json", &folder]);
    assert!(json["memory"]["weight_bytes"].as_u64() > json["bytes_on_disk"].as_u64(), "{json}");
    assert!(!stdout(&["inspect"]).contains("tensors "), "all of one type");
}

#[test]
fn what_config_json_says_of_tasks_is_shown_and_never_applied() {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
    for file in fs::read_dir(source).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let model = folder.path().to_str().unwrap();
    let tasks = json!({ "summarization": { "num_beams": 4, "prefix": "summarize: " } });
    config["task_specific_params"] = tasks.clone();
    config["prefix"] = json!("translate: ");
    fs::write(&path, config.to_string()).unwrap();
    let found = json_of(&["inspect", "--json", model]);
    assert_eq!(found["never_applied"], json!({ "task_specific_params": tasks, "prefix": "translate: " }));
    let text = stdout(&["inspect", model]);
    for expected in ["never applied", "\"num_beams\":4", "prefix \"translate: \"", "set what a task needs"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // The text is that without them.
    let generate =
        |model: &[&str]| stdout(&[&["generate", "--max-new-tokens", "8"], model, &[PROMPT]].concat());
    assert_eq!(generate(&["--model", model]), generate(&[]));
    (config["task_specific_params"], config["prefix"]) = (Value::Null, json!(""));
    fs::write(&path, config.to_string()).unwrap();
    assert_eq!(json_of(&["inspect", "--json", model])["never_applied"], Value::Null);
}

/// What a file says reaches the terminal in harmless words, and a program as it is.
#[test]
fn names_of_files_are_shown_in_harmless_words() {
    let evil = "\u{202e}\u{1b}]0;title\u{7}\u{200b}\n\u{2028}";
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
    for file in fs::read_dir(source).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let change = |file: &str, change: &dyn Fn(&mut Value)| {
        let path = folder.path().join(file);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(path, value.to_string()).unwrap();
    };
    let token = format!("<s>{evil}{}", "x".repeat(1000));
    change("tokenizer.json", &|file| {
        file["added_tokens"][0]["content"] = json!(token);
        let vocabulary = file["model"]["vocab"].as_object_mut().unwrap();
        vocabulary.remove("<s>");
        vocabulary.insert(token.clone(), json!(0));
    });
    change("generation_config.json", &|file| file["stop_strings"] = json!([evil]));
    for architecture in ["LlamaForCausalLM".to_owned(), format!("{evil}{}", "x".repeat(5000))] {
        change("config.json", &|file| file["architectures"] = json!([architecture]));
        let path = folder.path().to_str().unwrap();
        let text = stdout(&["inspect", path]);
        assert!(text.lines().all(|line| line.chars().count() <= 1020), "{text}");
        let hidden =
            |c: char| (c.is_control() && c != '\n') || evil.replace('\n', "").contains(c) && !c.is_ascii();
        assert!(!text.contains(hidden), "{text}");
        let json = stdout(&["inspect", path, "--json"]);
        assert!(!json.contains(hidden) && json.lines().count() == 1, "{json}");
        let object: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            object["generation_config"]["stop_strings"],
            json!([evil]),
            "a program reads the value itself"
        );
        assert!(object["architecture"].as_str().unwrap().chars().count() <= 200);
    }
}

#[test]
fn what_families_have_beside_llama_is_described() {
    // The goldens' files of defaults have entries that there is a warning for.
    let inspect = |name: &str, form: &[&str]| {
        let folder = format!("{}/tests/golden/models/{name}", env!("CARGO_MANIFEST_DIR"));
        let output = command(&[&["inspect", &folder], form].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let json = |name: &str| serde_json::from_str::<Value>(&inspect(name, &["--json"])).unwrap();
    let phi3 = json("phi3_longrope_partial");
    assert_eq!((&phi3["supported"], &phi3["architecture"]), (&json!(true), &json!("Phi3ForCausalLM")));
    let rope = json!({"rope_type": "longrope", "rope_theta": 10000.0, "factor": 8.0, "rotary_dim": 6});
    assert_eq!(phi3["rope"], rope);
    assert_eq!((&phi3["sliding_window"], &phi3["num_key_value_heads"]), (&json!(50), &json!(2)));
    assert_eq!(phi3["layer_types"], json!(["sliding_attention", "sliding_attention"]));
    assert_eq!(phi3["memory"]["weight_bytes"], phi3["bytes_on_disk"]);
    // 2 layers of K and V, 2 heads, 8 dimensions of K and a plane of 32 of V, in 4 bytes; 32 blocks of 32 tokens.
    assert_eq!(phi3["memory"]["kv_cache_bytes_per_1000_tokens"], json!(2 * 2 * (8 + 32) * 4 * 1024));

    let qwen2 = json("qwen2_window");
    assert_eq!((&qwen2["attention_bias"], &qwen2["mlp_bias"]), (&json!(true), &json!(false)));
    let text = inspect("qwen2_window", &[]);
    assert!(text.contains("9 tokens in 2 of 3 layers"), "{text}");
    let text = inspect("phi3_longrope_partial", &[]);
    assert!(text.contains("longrope, theta 10000, factor 8, 6 dimensions of a head"), "{text}");
    let text = inspect("mistral_no_window", &[]);
    assert!(text.contains("MistralForCausalLM") && !text.contains("window "), "{text}");
}

#[test]
fn a_sentencepiece_model_is_the_tokenizer_where_there_is_no_tokenizer_json() {
    let folder = tempfile::tempdir().unwrap();
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join("models/tied").join(file), folder.path().join(file)).unwrap();
    }
    let model = golden.join("sentencepiece/nmt_nfkc.model");
    std::fs::copy(model, folder.path().join("tokenizer.model")).unwrap();
    let path = folder.path().to_str().unwrap();
    let json = json_of(&["inspect", "--json", path]);
    assert_eq!(
        (&json["supported"], &json["tokenizer_file"], &json["tokenizer_model"]),
        (&json!(true), &json!("tokenizer.model"), &json!("Unigram"))
    );
    assert!(stdout(&["inspect", path]).contains("tokenizer.model, Unigram"));

    std::fs::write(folder.path().join("tokenizer.model"), b"IQ== 0").unwrap();
    let json = json_of(&["inspect", "--json", path]);
    assert!(json["unsupported_because"].as_str().unwrap().starts_with("tokenizer.model: "), "{json}");
    let story = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("python/rsgen/models/story-3m");
    std::fs::copy(story.join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
    assert_eq!(json_of(&["inspect", "--json", path])["tokenizer_file"], "tokenizer.json", "it comes first");
}

#[test]
fn a_model_that_is_not_supported_is_described_as_far_as_possible() {
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"architectures": ["MambaForCausalLM"], "model_type": "mamba", "vocab_size": 50257}"#;
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let folder = folder.path().to_str().unwrap();
    let json = json_of(&["inspect", "--json", folder]);
    assert_eq!((&json["supported"], &json["architecture"]), (&json!(false), &json!("MambaForCausalLM")));
    assert!(json["unsupported_because"].as_str().unwrap().contains("MambaForCausalLM"), "{json}");
    assert!(stdout(&["inspect", folder]).contains("supported"));
    assert_eq!(failure(&["generate", "--model", folder, PROMPT]).0, 3);
}
