//! The choice of the chat template, and the preparation of messages. `chat_templates` tests whole prompts.

use rsgen::text::{ChatOptions, ChatTemplate, ChatTemplates, Message};
use rsgen::{ErrorKind, Result};
use serde_json::{Value, json};

fn render(source: &str, messages: &[Message], options: &ChatOptions) -> String {
    ChatTemplate::from_source(source).unwrap().render(messages, options).unwrap()
}

fn refused(source: &str, messages: &[Message], options: &ChatOptions) -> String {
    let error = ChatTemplate::from_source(source).unwrap().render(messages, options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    error.to_string()
}

fn continuing(field: &str) -> ChatOptions {
    ChatOptions { continue_final_message: Some(field.to_owned()), ..ChatOptions::default() }
}

/// The source of the chosen template.
fn chosen(templates: &ChatTemplates, given: Option<&str>, has_tools: bool) -> Result<String> {
    templates.choose(given, has_tools).map(|template| template.source().to_owned())
}

#[test]
fn files_count_before_the_configuration() {
    let config = br#"{"chat_template": "config"}"#;
    let more = [("tool_use".to_owned(), b"tools".to_vec()), ("rag".to_owned(), b"rag".to_vec())];
    let one = ChatTemplates::read(Some(b"file"), &[], Some(config)).unwrap();
    assert_eq!(chosen(&one, None, true).unwrap(), "file");
    assert_eq!(chosen(&one, Some("rag"), false).unwrap(), "rag", "a template, for there are no names");
    let several = ChatTemplates::read(Some(b"file"), &more, Some(config)).unwrap();
    assert_eq!(chosen(&several, None, false).unwrap(), "file");
    assert_eq!(chosen(&several, None, true).unwrap(), "tools");
    assert_eq!(chosen(&several, Some("rag"), true).unwrap(), "rag");
    assert_eq!(chosen(&several, Some("{{ 1 }}"), true).unwrap(), "{{ 1 }}");
    assert_eq!(several.names().collect::<Vec<_>>(), ["default", "rag", "tool_use"]);
    let without_default = ChatTemplates::read(None, &more, Some(config)).unwrap();
    let message = chosen(&without_default, None, false).unwrap_err().to_string();
    assert!(message.contains(r#"one of ["rag", "tool_use"]"#), "{message}");
}

#[test]
fn the_configuration_holds_one_template_or_a_list_with_names() {
    let read = |config: &str| ChatTemplates::read(None, &[], Some(config.as_bytes()));
    let named =
        r#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}"#;
    assert_eq!(chosen(&read(named).unwrap(), None, true).unwrap(), "t");
    assert_eq!(chosen(&read(named).unwrap(), None, false).unwrap(), "d");
    assert_eq!(chosen(&read(r#"{"chat_template": "c"}"#).unwrap(), None, true).unwrap(), "c");
    for none in ["{}", r#"{"chat_template": null}"#] {
        let message = chosen(&read(none).unwrap(), None, false).unwrap_err().to_string();
        assert!(message.contains("no chat template") && message.contains("`chat_template`"), "{message}");
        assert_eq!(chosen(&read(none).unwrap(), Some("own"), false).unwrap(), "own");
    }
    for wrong in [r#"{"chat_template": 3}"#, r#"{"chat_template": [{"name": "a"}]}"#, "{"] {
        assert_eq!(read(wrong).unwrap_err().kind(), ErrorKind::Load);
    }
    assert_eq!(ChatTemplates::read(Some(b"\xff"), &[], None).unwrap_err().kind(), ErrorKind::Load);
}

#[test]
fn special_tokens_are_variables_that_the_caller_may_set() {
    let templates = ChatTemplates::read(Some(b"{{ bos_token }}{{ eos_token }}"), &[], None).unwrap();
    let template = templates.with_special_tokens([("bos_token", "<s>")]).choose(None, false).unwrap();
    let mut options = ChatOptions::default();
    let messages = [Message::user("Hi")];
    assert_eq!(template.render(&messages, &options).unwrap(), "<s>");
    options.chat_template_kwargs.insert("bos_token".to_owned(), json!("<b>"));
    options.chat_template_kwargs.insert("eos_token".to_owned(), json!("</s>"));
    assert_eq!(template.render(&messages, &options).unwrap(), "<b></s>");
}

#[test]
fn what_a_call_gives_cannot_be_replaced_by_a_variable() {
    for name in [
        "messages",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
        "conversation",
        "conversations",
    ] {
        let mut options = ChatOptions::default();
        options.chat_template_kwargs.insert(name.to_owned(), json!([]));
        let message = refused("{{ messages }}", &[Message::user("Hi")], &options);
        assert!(message.contains(&format!("`{name}` must not be among the variables")), "{message}");
    }
}

#[test]
fn fields_without_a_value_are_not_there_and_reasoning_has_all_its_names() {
    let message = Message::assistant("x").with("tool_calls", Value::Null).with("reasoning", "r");
    assert_eq!(
        render("{{ messages|tojson }}", &[message], &ChatOptions::default()),
        r#"[{"thinking": "r", "role": "assistant", "content": "x", "reasoning": "r", "reasoning_content": "r"}]"#
    );
}

#[test]
fn a_continued_message_stays_open() {
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}";
    let messages = [Message::user("Hi"), Message::assistant("Well, ")];
    assert_eq!(render(source, &messages, &continuing("content")), "<user>Hi</><assistant>Well, ");
    let stripping = source.replace("m.content", "m.content|trim");
    assert_eq!(render(&stripping, &messages, &continuing("content")), "<user>Hi</><assistant>Well,");
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]);
    let source = "{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}";
    assert_eq!(render(source, &[Message::assistant(parts)], &continuing("content")), "[a][b");
    let thinking = Message::assistant("").with("thinking", "hm");
    let source = "<think>{{ messages[0].reasoning_content }}</think>{{ messages[0].content }}";
    assert_eq!(render(source, &[thinking], &continuing("thinking")), "<think>hm");
}

#[test]
fn a_message_that_cannot_be_continued_is_refused() {
    let source = "{{ messages[-1].content[:2] }}";
    let said = [Message::assistant("Well, well")];
    let both = ChatOptions { add_generation_prompt: true, ..continuing("content") };
    assert!(refused(source, &said, &both).contains("set one of them"));
    assert!(refused(source, &said, &continuing("reasoning")).contains("no `reasoning`"));
    let extra = [Message::assistant("a").with("extra", "b")];
    assert!(refused(source, &extra, &continuing("extra")).contains("has no use for a field `extra`"));
    assert!(refused(source, &said, &continuing("content")).contains("does not appear in the prompt"));
    let image = [Message::assistant(json!([{"type": "image"}]))];
    assert!(refused(source, &image, &continuing("content")).contains("no part of the final message"));
    let number = [Message::assistant(3)];
    assert!(refused(source, &number, &continuing("content")).contains("got a number"));
}

#[test]
fn conversations_and_documents_are_checked_as_far_as_transformers_does() {
    assert!(refused("", &[], &ChatOptions::default()).contains("at least one message"));
    let options = ChatOptions { documents: Some(vec![json!("text")]), ..ChatOptions::default() };
    assert!(refused("", &[Message::user("Hi")], &options).contains("documents must be objects"));
    assert!(Message::try_from(json!("Hi")).unwrap_err().to_string().contains("got a text"));
    assert_eq!(ChatTemplate::from_source("{% if %}").unwrap_err().kind(), ErrorKind::Input);
}
