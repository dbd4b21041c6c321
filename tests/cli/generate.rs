//! `rsgen generate`: the texts, options and numbers of the library.

use rsgen::{GenerationConfig, Generator};
use serde_json::{Value, json};

use super::support::{PROMPT, json_of, quiet_stdout, stdout, with_stdin};

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
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("rsgen: error: the text on standard input"));
}

#[test]
fn without_any_prompt_the_model_begins_by_itself() {
    let json = json_of(&["generate", "--json", "--max-new-tokens=5"]);
    assert_eq!((&json["prompt"], &json["usage"]["prompt_tokens"]), (&json!(""), &json!(1)));
    assert_eq!(json["usage"]["generated_tokens"], 5);
}

#[test]
fn a_stop_text_ends_the_text_and_stays_in_it() {
    let json = json_of(&["generate", "--json", "--stop", "never", "--stop", ".", PROMPT]);
    assert_eq!(json["finish_reasons"], json!(["stop"]));
    let text = json["text"].as_str().unwrap();
    assert!(text.trim_end().ends_with('.') && text.matches('.').count() == 1, "{text}");
}
