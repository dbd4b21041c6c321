//! `rsgen chat`: one question, conversations from a pipe, and models without a template.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::support::{failure, failure_of, json_of, keys, only_object, quiet_stdout, stdout, with_stdin};

const QUESTION: &str = "Tell me a story about a fox and a kite.";
const STORY_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");

/// The story model with another template, or with none.
fn model_with(template: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(STORY_MODEL).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let file = folder.path().join("tokenizer_config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config.as_object_mut().unwrap().remove("chat_template");
    fs::write(&file, config.to_string()).unwrap();
    if let Some(template) = template {
        fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    }
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn piped(arguments: &[&str], input: &Value) -> Vec<Value> {
    let output = with_stdin(
        &[&["chat", "--json", "--max-new-tokens=8"], arguments].concat(),
        input.to_string().as_bytes(),
    );
    quiet_stdout(&output).lines().map(|line| only_object(&format!("{line}\n"))).collect()
}

#[test]
fn a_question_has_the_reply_that_its_prompt_goes_on_with() {
    let report = json_of(&["chat", "--json", "--max-new-tokens=8", "-p", QUESTION]);
    assert_eq!(report["prompt"], format!("<s><|user|>{QUESTION}<|assistant|>"));
    let fields = ["schema_version", "model", "prompt", "text", "texts", "token_ids", "finish_reasons"];
    assert_eq!(keys(&report)[..7], fields);
    let reply = report["text"].as_str().unwrap();
    assert!(reply.len() > 10, "{reply}");
    assert_eq!(stdout(&["chat", "--max-new-tokens=8", "-p", QUESTION]), format!("{reply}\n"));
    assert_eq!(
        quiet_stdout(&with_stdin(&["chat", "--max-new-tokens=8"], format!("{QUESTION}\n").as_bytes())),
        format!("{reply}\n")
    );
}

#[test]
fn a_pipe_holds_conversations_as_json() {
    let asked = json!([{"role": "user", "content": QUESTION}]);
    let [reply] = &piped(&[], &asked)[..] else { panic!("one reply") };
    assert_eq!(reply["text"], json_of(&["chat", "--json", "--max-new-tokens=8", "-p", QUESTION])["text"]);

    let folder =
        model_with(Some("{{ messages[0].role }} {{ tools|length }} {{ mood }} {{ messages[-1].content }}"));
    let conversation =
        json!({"messages": asked, "tools": [{}, {}], "chat_template_kwargs": {"mood": "glad"}});
    let [reply] = &piped(&[text(folder.path()), "--system", "Be brief."], &conversation)[..] else {
        panic!("one reply")
    };
    assert_eq!(reply["prompt"], format!("system 2 glad {QUESTION}"));

    let open =
        json!({"messages": [{"role": "assistant", "content": "Once upon"}], "continue_final_message": true});
    let [reply] = &piped(&[], &open)[..] else { panic!("one reply") };
    assert_eq!(reply["prompt"], "<s><|assistant|>Once upon");
}

#[test]
fn several_conversations_have_a_reply_on_a_line_each() {
    let one = json!([{"role": "user", "content": QUESTION}]);
    let input = format!("{one}\n{one}\n");
    let output = with_stdin(&["chat", "--json", "--max-new-tokens=4"], input.as_bytes());
    let lines = quiet_stdout(&output);
    let texts: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["text"].clone()).collect();
    assert_eq!((texts.len(), &texts[0]), (2, &texts[1]));
}

#[test]
fn a_template_can_be_given_as_a_file() {
    let folder = model_with(None);
    let file = folder.path().join("own.jinja");
    fs::write(&file, "{{ bos_token }}Q: {{ messages[0].content }} A:").unwrap();
    let report = json_of(&[
        "chat",
        text(folder.path()),
        "--json",
        "--max-new-tokens=2",
        "-p",
        "why",
        "--chat-template",
        text(&file),
    ]);
    assert_eq!(report["prompt"], "<s>Q: why A:");
    let (code, errors) = failure(&["chat", "-p", "x", "--chat-template", "/no/such/file"]);
    assert!(code == 1 && errors.contains("/no/such/file cannot be read"), "{errors}");
}

#[test]
fn a_model_without_a_template_is_an_error_that_says_what_to_give() {
    let folder = model_with(None);
    let (code, errors) = failure(&["chat", text(folder.path()), "-p", "Hi"]);
    assert!(
        code == 1 && errors.contains("no chat template") && errors.contains("`--chat-template`"),
        "{errors}"
    );
    // Once, however many conversations there are.
    let input = br#"[{"role": "user", "content": "a"}] [{"role": "user", "content": "b"}]"#;
    let output = with_stdin(&["chat", text(folder.path()), "--json"], input);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), errors.matches("no chat template").count()), (Some(1), 1), "{errors}");
    let broken = model_with(Some("{% if %}"));
    let (code, errors) = failure(&["chat", text(broken.path()), "-p", "Hi"]);
    assert!(code == 1 && errors.contains("chat template, line 1"), "{errors}");
}

#[test]
fn a_conversation_that_fails_is_named_and_the_others_go_on() {
    let folder = model_with(Some("{{ messages[0].content }}"));
    let conversation = |content: &[u8]| [br#"[{"role": "user", "content": ""#, content, b"\"}]\n"].concat();
    let long = "a b ".repeat(3000);
    let others = [&b"[3]\n"[..], b"[]\n", &conversation(long.as_bytes()), b"[{]\n"].concat();
    let input = [conversation(b"One"), conversation(b"bad\xff"), others, conversation(b"Two")].concat();
    let output = with_stdin(&["chat", text(folder.path()), "--json", "--max-new-tokens=2"], &input);
    let errors = String::from_utf8(output.stderr).unwrap();
    let written = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), written.lines().count()), (Some(1), 2), "{errors}");
    let named = (1..6).all(|index| errors.contains(&format!("conversation {index}: ")));
    let lines = [2, 6].iter().all(|line| errors.contains(&format!("in line {line}")));
    assert!(named && lines && errors.contains("5 of 7 conversations failed"), "{errors}");
}

#[test]
fn an_invalid_conversation_is_refused() {
    for (input, message) in [
        ("", "no conversation"),
        ("[", "must be JSON"),
        ("[]", "at least one message"),
        ("[1]", "must be an object"),
    ] {
        let (code, errors) = failure_of(&with_stdin(&["chat", "--json"], input.as_bytes()));
        assert!(code == 1 && errors.contains(message), "{input}: {errors}");
    }
    let own = json!([{"role": "system", "content": "a"}]).to_string();
    let (_, errors) = failure_of(&with_stdin(&["chat", "--json", "--system", "b"], own.as_bytes()));
    assert!(errors.contains("leave `--system` out"), "{errors}");
}

/// A number of questions with their replies, and one more question.
fn conversation(turns: usize) -> Value {
    let question = json!({"role": "user", "content": QUESTION});
    let reply = json!({"role": "assistant", "content": "The fox ran after the kite. ".repeat(6)});
    let mut messages = Vec::new();
    for _ in 0..turns {
        messages.extend([question.clone(), reply.clone()]);
    }
    messages.push(question);
    json!(messages)
}

#[test]
fn a_conversation_has_the_room_that_the_context_leaves() {
    // The prompt alone is longer than `max_length` of the model's file, 256.
    let output =
        with_stdin(&["chat", "--json", "--min-new-tokens=30"], conversation(5).to_string().as_bytes());
    let object = only_object(&quiet_stdout(&output));
    let prompt_tokens = object["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!((257..400).contains(&prompt_tokens), "{prompt_tokens}");
    assert!(object["usage"]["generated_tokens"].as_u64().unwrap() >= 30, "{object}");
}

#[test]
fn the_oldest_turns_make_way_with_a_notice() {
    let input = conversation(20).to_string();
    let output = with_stdin(&["chat", "--json", "--max-new-tokens=100"], input.as_bytes());
    let log = only_object(&String::from_utf8(output.stderr).unwrap());
    let message = log["log"]["message"].as_str().unwrap();
    assert!(message.contains("oldest messages were left out"), "{message}");
    let object = only_object(&String::from_utf8(output.stdout).unwrap());
    let prompt = object["prompt"].as_str().unwrap();
    assert!(prompt.ends_with(&format!("<|user|>{QUESTION}<|assistant|>")), "{prompt}");
    let usage = |field: &str| object["usage"][field].as_u64().unwrap();
    assert!((250..=412).contains(&usage("prompt_tokens")), "{}", usage("prompt_tokens"));
}
