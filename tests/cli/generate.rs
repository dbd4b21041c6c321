//! `rsgen generate`: the texts, options and numbers of the library.

use rsgen::generation::ForcedWord;
use rsgen::{GenerationConfig, Generator, TokenId};
use serde_json::{Value, json};

use super::support::{PROMPT, failure, failure_of, json_of, quiet_stdout, stdout, with_stdin};

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
            "cached_prompt_tokens": expected.usage.cached_prompt_tokens,
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
    assert_eq!(json["timings"]["encoder_seconds"], 0.0, "{json}");
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

#[test]
fn every_strategy_can_be_reached_and_gives_the_text_of_the_library() {
    let generator = Generator::bundled().unwrap();
    let words = || ForcedWord::Phrase(vec![TokenId(569), TokenId(570)]);
    let config = || GenerationConfig::new().max_new_tokens(8);
    for (options, config) in [
        (&["--num-beams=3"][..], config().num_beams(3)),
        (&["--num-beams=3", "--do-sample", "--seed=5"], config().num_beams(3).do_sample(true).seed(5)),
        (
            &["--num-beams=4", "--num-beam-groups=2", "--diversity-penalty=1.5"],
            config().num_beams(4).num_beam_groups(2).diversity_penalty(1.5),
        ),
        (&["--penalty-alpha=0.6", "--top-k=4"], config().penalty_alpha(0.6).top_k(4)),
        (&["--dola-layers=0,2"], config().dola_layers(vec![0, 2])),
        (
            &["--num-beams=3", "--force-words-ids=[[569, 570]]"],
            config().num_beams(3).force_words_ids([words()]),
        ),
    ] {
        let expected = generator.generate(PROMPT, &config).unwrap();
        let text = stdout(&[&["generate", "--max-new-tokens=8"], options, &[PROMPT]].concat());
        assert_eq!(text, format!("{PROMPT}{}\n", expected.text()), "{options:?}");
    }
}

#[test]
fn what_is_asked_for_besides_the_text_is_there() {
    let options = ["--num-beams=2", "--num-return-sequences=2", "--max-new-tokens=3"];
    let more = ["--top-logprobs=2", "--output-scores", "--output-logits"];
    let object = json_of(&[&["generate", "--json", PROMPT][..], &options, &more].concat());
    assert_eq!(object["sequences_scores"].as_array().unwrap().len(), 2);
    assert_eq!(object["top_logprobs"][1][2].as_array().unwrap().len(), 2);
    for kept in ["scores", "logits"] {
        assert_eq!(object[kept][0][0].as_array().unwrap().len(), 2048, "{kept}");
    }
    let plain = json_of(&["generate", "--json", "--max-new-tokens=3", PROMPT]);
    assert!(["sequences_scores", "top_logprobs", "scores"].iter().all(|name| plain.get(name).is_none()));
}

#[test]
fn each_line_of_a_file_is_a_prompt() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = ["Once upon a time", "", "One day,", "The little fox"];
    std::fs::write(file.path(), lines.join("\n")).unwrap();
    let path = file.path().to_str().unwrap();
    let options = ["--do-sample", "--seed=5", "--max-new-tokens=9"];
    let output = stdout(&[&["generate", "--json", "--prompts", path][..], &options].concat());
    let objects: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), lines.len());
    let config = GenerationConfig::new().max_new_tokens(9).do_sample(true).seed(5);
    let expected = Generator::bundled().unwrap().generate(lines.to_vec(), &config).unwrap();
    for ((object, line), text) in objects.iter().zip(lines).zip(expected.texts()) {
        assert_eq!((&object["prompt"], &object["text"]), (&json!(line), &json!(text)));
    }
    let texts: Vec<String> = lines
        .iter()
        .zip(expected.texts())
        .zip(1..)
        .map(|((line, text), row)| format!("[{row}/4]\n{line}{text}\n"))
        .collect();
    let piped = [&["generate", "--prompts", "-"][..], &options].concat();
    assert_eq!(quiet_stdout(&with_stdin(&piped, lines.join("\n").as_bytes())), texts.join("\n"));
    assert_eq!(quiet_stdout(&with_stdin(&["generate", "--prompts=-"], b"")), "");
}

#[test]
fn a_line_that_is_no_utf_8_is_named_and_the_others_go_on() {
    let input = [PROMPT.as_bytes(), b"\nbad\xff\n", PROMPT.as_bytes(), b"\n"].concat();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines.txt");
    std::fs::write(&file, &input).unwrap();
    let from_file = format!("--prompts={}", file.display());
    let options = ["generate", "--json", "--max-new-tokens=2"];
    for output in [
        with_stdin(&[&options[..], &["--prompts=-"]].concat(), &input),
        with_stdin(&[&options[..], &[&from_file]].concat(), b""),
    ] {
        let errors = String::from_utf8(output.stderr).unwrap();
        let written = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), written.lines().count()), (Some(1), 2), "{errors}");
        assert!(errors.contains("line 2: the text must be UTF-8, but byte 3 is not"), "{errors}");
        assert!(errors.contains("1 of 3 lines failed"), "{errors}");
    }
    let output = with_stdin(&["generate", "--num-return-sequences=2", "--do-sample", "--prompts=-"], &input);
    let written = String::from_utf8(output.stdout).unwrap();
    let headers: Vec<&str> = written.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(headers, ["[1/6]", "[2/6]", "[5/6]", "[6/6]"]);
    let (code, errors) = failure_of(&with_stdin(&["generate", "--prompts=-"], b"\xe9\n\xe9"));
    assert!(code == 1 && errors.contains("2 of 2 lines failed"), "{errors}");
    // One text is used as a whole.
    let (code, errors) = failure_of(&with_stdin(&["generate", "-"], b"One\nbad\xff\n"));
    assert!(code == 1 && errors.contains("byte 7, in line 2, is not"), "{errors}");
}

#[test]
fn a_line_that_cannot_be_continued_is_named_and_the_others_go_on() {
    let input = format!("{PROMPT}\n{}\n{PROMPT}\n", "Once upon a time ".repeat(1000));
    let output = with_stdin(&["generate", "--json", "--max-new-tokens=2", "--prompts=-"], input.as_bytes());
    assert_eq!(
        (output.status.code(), String::from_utf8(output.stdout).unwrap().lines().count()),
        (Some(1), 2)
    );
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("line 2: the prompt has") && errors.contains("1 of 3 lines failed"), "{errors}");

    let options =
        ["generate", "--num-return-sequences=2", "--do-sample", "--max-new-tokens=2", "--prompts=-"];
    let written = String::from_utf8(with_stdin(&options, input.as_bytes()).stdout).unwrap();
    let headers: Vec<&str> = written.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(headers, ["[1/6]", "[2/6]", "[5/6]", "[6/6]"], "{written}");
    let (code, errors) = failure_of(&with_stdin(&["generate", "--prompts=/no/such/file"], b""));
    assert!(code == 1 && errors.contains("/no/such/file cannot be read"), "{errors}");
}

#[test]
fn a_schema_is_a_text_or_a_file() {
    let schema = json!({"type": "array", "items": {"enum": ["cat", "dog"]}, "minItems": 2, "maxItems": 2});
    let config = GenerationConfig::new().json_schema(schema.clone()).max_new_tokens(40);
    let expected = Generator::bundled().unwrap().generate(PROMPT, &config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let of = |option: &str, value: &str| {
        stdout(&["generate", "--no-prompt", "--max-new-tokens=40", option, value, PROMPT])
    };
    let text = of("--json-schema", &schema.to_string());
    assert_eq!(text, format!("{expected}\n"));
    assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap().len(), 2);
    assert_eq!(of("--json-schema", &file("schema.json", &schema.to_string())), text);
    let grammar = "start: \"The \" /[a-z]{3}/ \".\"\n";
    let text = of("--grammar", grammar);
    assert!(text.starts_with("The ") && text.trim_end().len() == 8, "{text}");
    assert_eq!(of("--grammar", &file("grammar.lark", grammar)), text);
    assert_eq!(of("--regex", "The [a-z]{3}\\."), text);

    let failed = |option: &str, value: &str| failure(&["generate", option, value, PROMPT]);
    let (code, message) = failed("--json-schema", "no-such-file.json");
    assert!(code == 2 && message.contains("neither the text itself nor a file"), "{message}");
    let (code, message) = failed("--json-schema", r#"{"not": {"type": "null"}}"#);
    assert!(code == 2 && message.contains("`--json-schema` has the keyword `not`"), "{code} {message}");
    let (code, message) = failed("--regex", "(");
    assert!(code == 2 && message.contains("`--regex` cannot be followed"), "{code} {message}");
}
