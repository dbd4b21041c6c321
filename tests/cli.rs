//! The command as users run it: its own process, its outputs, its exit codes.
#![cfg(all(feature = "cli", feature = "bundled"))]
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

use rsgen::{GenerationConfig, Generator};
use serde_json::{Value, json};

const PROMPT: &str = "Once upon a time";

/// The command, without what the environment of the tests may set.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rsgen"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RSGEN_") && name != "RSGEN_ISA" {
            command.env_remove(name);
        }
    }
    command.args(arguments).env("COLUMNS", "80").env_remove("HF_HOME").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Standard output of a run that went well and had nothing to say on standard error.
fn stdout(arguments: &[&str]) -> String {
    quiet_stdout(&run(arguments))
}

fn quiet_stdout(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json_of(arguments: &[&str]) -> Value {
    let text = stdout(arguments);
    assert_eq!(text.matches('\n').count(), 1, "one line: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Exit code and standard error of a run that writes nothing to standard output.
fn failure(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn with_stdin(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

#[test]
fn help_fits_on_a_screen() {
    for (arguments, lines) in [(&["--help"][..], 24), (&["generate", "--help"], 40), (&["inspect", "-h"], 24)]
    {
        let help = stdout(arguments);
        assert!(help.lines().count() <= lines, "{} lines:\n{help}", help.lines().count());
        assert!(help.lines().all(|line| line.len() <= 80), "{help}");
        assert!(help.contains("Example"), "{help}");
    }
    assert_eq!(stdout(&["--version"]), concat!("rsgen ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn help_without_a_verb_is_a_wrong_usage() {
    let (code, errors) = failure(&[]);
    assert_eq!(code, 2);
    assert!(errors.starts_with("Text generation") && errors.contains("generate"), "{errors}");
}

#[test]
fn generate_writes_the_prompt_and_the_greedy_text_of_the_library() {
    let generator = Generator::bundled().unwrap();
    let expected = generator.stream(PROMPT, &GenerationConfig::new()).unwrap().into_output().unwrap();
    assert!(expected.text().len() > 40, "a story: {expected}");
    assert_eq!(stdout(&["generate", PROMPT]), format!("{PROMPT}{expected}\n"));
    assert_eq!(stdout(&["generate", "--no-prompt", PROMPT]), format!("{expected}\n"));
}

#[test]
fn json_holds_what_the_library_gives() {
    let generator = Generator::bundled().unwrap();
    let config = GenerationConfig::new().do_sample(true).top_p(0.9).seed(7).num_return_sequences(2);
    let expected = generator.generate(PROMPT, &config.clone().max_new_tokens(12)).unwrap();

    let options = ["--top-p=0.9", "--seed=7", "--num-return-sequences=2", "--max-new-tokens=12"];
    let json = json_of(&[&["generate", "--json", "--do-sample", PROMPT][..], &options].concat());
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["prompt"], PROMPT);
    assert_eq!(json["text"], expected.text());
    assert_eq!(json["texts"], json!(expected.texts().collect::<Vec<_>>()));
    assert_eq!(json["seed"], 7);
    assert_eq!(json["model"], generator.name());
    assert_eq!(
        json["usage"],
        json!({
            "prompt_tokens": expected.usage.prompt_tokens,
            "generated_tokens": expected.usage.generated_tokens
        })
    );
    for (index, row) in expected.rows.iter().enumerate() {
        let ids: Vec<u32> = row.generated.token_ids.iter().map(|token| token.0).collect();
        assert_eq!(json["token_ids"][index], json!(ids));
        assert_eq!(json["finish_reasons"][index], row.generated.finish_reason.as_str());
        let logprobs: Vec<f32> = serde_json::from_value(json["logprobs"][index].clone()).unwrap();
        assert_eq!(logprobs, row.generated.logprobs);
    }
    for time in ["load_seconds", "first_token_seconds", "total_seconds"] {
        assert!(json["timings"][time].as_f64().is_some_and(|seconds| seconds > 0.0), "{json}");
    }
}

#[test]
fn a_seed_gives_the_same_text_each_time_and_another_seed_another() {
    let text = |seed| stdout(&["generate", "--do-sample", "--max-new-tokens=30", "--seed", seed, PROMPT]);
    assert_eq!(text("5"), text("5"));
    assert_ne!(text("5"), text("6"));
}

#[test]
fn a_seed_that_was_drawn_is_reported_and_gives_the_text_again() {
    let drawn = json_of(&["generate", "--json", "--do-sample", "--max-new-tokens=20", PROMPT]);
    let seed = drawn["seed"].as_u64().unwrap().to_string();
    let again =
        json_of(&["generate", "--json", "--do-sample", "--max-new-tokens=20", "--seed", &seed, PROMPT]);
    assert_eq!(drawn["token_ids"], again["token_ids"]);
    assert_eq!(json_of(&["generate", "--json", "--max-new-tokens=1", PROMPT])["seed"], Value::Null);
}

#[test]
fn several_texts_are_written_one_after_the_other() {
    let options = ["--do-sample", "--seed=3", "--num-return-sequences=3", "--max-new-tokens=15"];
    let json = json_of(&[&["generate", "--json", PROMPT], &options[..]].concat());
    let texts: Vec<&str> = json["texts"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let expected: Vec<String> =
        texts.iter().zip(1..).map(|(text, row)| format!("[{row}/3]\n{PROMPT}{text}\n")).collect();
    assert_eq!(stdout(&[&["generate", PROMPT], &options[..]].concat()), expected.join("\n"));
}

#[test]
fn the_prompt_may_come_from_standard_input() {
    let expected = stdout(&["generate", "--max-new-tokens=10", PROMPT]);
    for arguments in [&["generate", "--max-new-tokens=10"][..], &["generate", "--max-new-tokens=10", "-"]] {
        let output = with_stdin(arguments, format!("{PROMPT}\n").as_bytes());
        assert_eq!(quiet_stdout(&output), expected);
    }
    let output = with_stdin(&["generate"], b"\xff\xfe");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).starts_with("rsgen: error: the prompt on standard input")
    );
}

#[test]
fn without_any_prompt_the_model_begins_by_itself() {
    let json = json_of(&["generate", "--json", "--max-new-tokens=5"]);
    assert_eq!((&json["prompt"], &json["usage"]["prompt_tokens"]), (&json!(""), &json!(1)));
    assert_eq!(json["usage"]["generated_tokens"], 5);
}

#[test]
fn options_can_come_from_the_environment_and_the_command_line_goes_before_it() {
    let expected = stdout(&["generate", "--do-sample", "--seed=4", "--max-new-tokens=8", PROMPT]);
    let mut command = command(&["generate", "--max-new-tokens=8", PROMPT]);
    command.envs([("RSGEN_DO_SAMPLE", "1"), ("RSGEN_SEED", "4"), ("RSGEN_MAX_NEW_TOKENS", "20")]);
    assert_eq!(quiet_stdout(&command.output().unwrap()), expected);
}

#[test]
fn a_stop_text_ends_the_text_and_stays_in_it() {
    let json = json_of(&["generate", "--json", "--stop", "never", "--stop", ".", PROMPT]);
    assert_eq!(json["finish_reasons"], json!(["stop"]));
    let text = json["text"].as_str().unwrap();
    assert!(text.trim_end().ends_with('.') && text.matches('.').count() == 1, "{text}");
}

#[test]
fn wrong_arguments_are_named_and_exit_with_2() {
    for (arguments, named) in [
        (&["generate", "--bogus", PROMPT][..], "--bogus"),
        (&["generate", "--top-k", "many", PROMPT], "'many' for '--top-k <K>'"),
        (&["generate", "--threads", "0", PROMPT], "1 or more"),
        (&["generate", "--kv-cache-bytes", "99999999999T", PROMPT], "number of bytes"),
        (&["generate", "--do-sample", "--top-p", "-0.5", PROMPT], "`top_p`"),
        (&["generate", "--max-new-tokens", "0", PROMPT], "`max_new_tokens`"),
        (&["generate", "--num-return-sequences", "2", PROMPT], "`num_return_sequences`"),
        (&["generate", "--model", "", PROMPT], "--model"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let (code, errors) = failure(arguments);
        assert_eq!(code, 2, "{arguments:?}: {errors}");
        assert!(errors.starts_with("rsgen: error: ") && errors.contains(named), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_model_that_cannot_be_loaded_exits_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    for arguments in [
        &["generate", "--model", "/no/such/folder", PROMPT][..],
        &["generate", "--model", "nobody/nothing", PROMPT],
        &["generate", "--model", empty, PROMPT],
        &["inspect", "/no/such/folder"],
        &["inspect", empty],
    ] {
        let (code, errors) = failure(arguments);
        assert_eq!(code, 3, "{arguments:?}: {errors}");
        assert!(errors.starts_with("rsgen: error: ") && errors.lines().count() == 1, "{errors}");
    }
}

#[test]
fn too_little_room_exits_with_4_and_too_long_a_prompt_with_1() {
    let (code, errors) = failure(&["generate", "--kv-cache-bytes", "1K", PROMPT]);
    assert_eq!(code, 4, "{errors}");
    let (code, errors) = failure(&["generate", &"Once upon a time ".repeat(1000)]);
    assert_eq!(code, 1, "{errors}");
}

#[test]
fn the_bundled_model_is_described() {
    let expected = json!({
        "schema_version": 1,
        "model": "story-3m",
        "supported": true,
        "unsupported_because": null,
        "architecture": "LlamaForCausalLM",
        "parameters": 2_828_736,
        "weight_dtypes": ["bfloat16"],
        "bytes_on_disk": 2 * 2_828_736,
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
    let config = r#"{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 50257}"#;
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let folder = folder.path().to_str().unwrap();
    let json = json_of(&["inspect", "--json", folder]);
    assert_eq!((&json["supported"], &json["architecture"]), (&json!(false), &json!("GPT2LMHeadModel")));
    assert!(json["unsupported_because"].as_str().unwrap().contains("GPT2LMHeadModel"), "{json}");
    assert!(stdout(&["inspect", folder]).contains("supported"));
    assert_eq!(failure(&["generate", "--model", folder, PROMPT]).0, 3);
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_work_quietly() {
    let mut child = command(&["generate", "--min-new-tokens=400", "--max-length=500", PROMPT])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 20]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(&["generate", PROMPT]).stdout(full).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with("rsgen: error: standard output cannot be written"), "{errors}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_with_the_text_so_far_and_130() {
    let arguments = ["generate", "--do-sample", "--num-return-sequences=200", "--min-new-tokens=490"];
    let mut child = command(&[&arguments[..], &["--max-length=512", PROMPT]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The header, the prompt, and a few tokens of the first text.
    let mut text = vec![0; 40];
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut text).unwrap();
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let sent = std::time::Instant::now();
    reader.read_to_end(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(sent.elapsed().as_secs() < 3, "took {:?}", sent.elapsed());
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(130), ""));
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with(&format!("[1/200]\n{PROMPT}")) && text.ends_with('\n'), "{text}");
}
