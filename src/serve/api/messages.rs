//! OpenAI's messages in the form that the model's template takes.
//!
//! A template is a program, so what it takes is found by rendering probes: whether it shows content that is a
//! text or a list of parts, and whether the arguments of a tool call have to be an object.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::engine::Interrupt;
use crate::generator::Generator;
use crate::serve::failure::Failure;
use crate::serve::json::object;
use rsgen_core::error::{ErrorKind, Result};
use rsgen_text::{ChatOptions, Message};

/// What a probe says; nothing of a template looks like it.
const MARK: &str = "rsgen_probe";

/// What the templates of a model take, without tools and with them.
#[derive(Debug, Default)]
pub(in crate::serve) struct Forms([OnceLock<Form>; 2]);

/// What a template takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// Content may be a list of parts.
    takes_parts: bool,
    /// Content may be a text.
    takes_texts: bool,
    /// The arguments of tool calls are objects, and not JSON text.
    needs_objects: bool,
    /// Tool calls need content, which may be empty.
    needs_content: bool,
    /// It knows the role `developer`.
    has_developer: bool,
}

impl Forms {
    /// What the template for a conversation with tools, or without, takes.
    ///
    /// # Errors
    /// When interrupted, or when a probe cannot be rendered for want of time or memory.
    pub(super) fn get(
        &self,
        generator: &Generator,
        has_tools: bool,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Form> {
        let known = &self.0[usize::from(has_tools)];
        if let Some(form) = known.get() {
            return Ok(*form);
        }
        let template = generator.chat_templates().choose(None, has_tools)?;
        let form = Form::of(template.source(), has_tools, &mut |messages, options| {
            template.render_interruptible(messages, options, interrupted)
        })?;
        Ok(*known.get_or_init(|| form))
    }
}

impl Form {
    fn of(
        source: &str,
        has_tools: bool,
        render: &mut dyn FnMut(&[Message], &ChatOptions) -> Result<String>,
    ) -> Result<Self> {
        let tool = json!({ "type": "function", "function": { "name": "tool", "description": "", "parameters": { "type": "object", "properties": {} } } });
        let options = ChatOptions { tools: has_tools.then(|| vec![tool]), ..ChatOptions::default() };
        // Whether the template shows the mark, and not within JSON or Python's notation, which quote it.
        let mut shows = |messages: &[Message], quoted: &[&str]| match render(messages, &options) {
            Ok(text) => Ok(text.contains(MARK) && !quoted.iter().any(|quoted| text.contains(quoted))),
            Err(error) if error.kind() == ErrorKind::Input => Ok(false),
            Err(error) => Err(error),
        };
        let (in_quotes, in_text) = ([&*format!("{MARK}'"), &*format!("{MARK}\"")], [&*format!("{MARK}\\\"")]);
        let takes_texts = shows(&[Message::user(MARK)], &[])?;
        let takes_parts = shows(&[Message::user(json!([{ "type": "text", "text": MARK }]))], &in_quotes)?;
        let arguments = json!({ MARK: "1" });
        let forms = [(false, false), (true, false), (false, true), (true, true)];
        let (mut needs_objects, mut needs_content) = (false, false);
        for (objects, content) in forms {
            let arguments = if objects { arguments.clone() } else { arguments.to_string().into() };
            let function = json!({ "name": "tool", "arguments": arguments });
            let calls = json!([{ "id": "call00000", "type": "function", "function": function }]);
            let content = if content { "".into() } else { Value::Null };
            let call = Message::assistant(content.clone()).with("tool_calls", calls);
            if shows(&[Message::user("?"), call], &in_text)? {
                (needs_objects, needs_content) = (objects, !content.is_null());
                break;
            }
        }
        let has_developer = source.contains("developer");
        Ok(Self { takes_parts, takes_texts, needs_objects, needs_content, has_developer })
    }

    /// A message of OpenAI's API as the template takes it; `at` is its place in the request.
    ///
    /// # Errors
    /// When the message has none of the forms of its role, or holds what the model cannot read.
    pub(super) fn message(self, at: &str, mut fields: Map<String, Value>) -> Result<Message, Failure> {
        let role = fields.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
        let new_role = match &*role {
            "developer" if !self.has_developer => "system",
            "function" => "tool",
            role => role,
        };
        fields.insert("role".to_owned(), new_role.into());
        if fields.get("audio").is_some_and(|audio| !audio.is_null()) {
            return Err(unread(&format!("{at}.audio"), "earlier audio"));
        }
        // The form that came before `tool_calls`.
        if let Some(call) = fields.remove("function_call").filter(|call| !call.is_null()) {
            fields.insert("tool_calls".to_owned(), json!([{ "type": "function", "function": call }]));
        }
        let refusal = fields.remove("refusal").filter(Value::is_string);
        let mut has_calls = false;
        if let Some(Value::Array(calls)) = fields.get_mut("tool_calls") {
            has_calls = !calls.is_empty();
            for (index, call) in calls.iter_mut().enumerate() {
                self.set_arguments(&format!("{at}.tool_calls[{index}]"), call)?;
            }
        }
        let given = fields.remove("content").filter(|content| !content.is_null());
        let content = match given.or(refusal) {
            Some(Value::String(text)) if self.takes_parts && !self.takes_texts => json!([text_part(&text)]),
            Some(Value::String(text)) => text.into(),
            Some(Value::Array(parts)) => {
                let at = |index| format!("{at}.content[{index}]");
                let texts = parts.iter().enumerate().map(|(index, part)| text_of(&at(index), part));
                let texts = texts.collect::<Result<Vec<_>, _>>()?;
                if self.takes_parts {
                    texts.into_iter().map(text_part).collect()
                } else {
                    texts.join("\n").into()
                }
            }
            None if has_calls && !self.needs_content => return Ok(fields.into()),
            None if has_calls || role == "function" => "".into(),
            _ => {
                let message =
                    format!("`{at}` must have `content`: a text, or a list of parts of the type \"text\"");
                return Err(Failure::invalid(at, message));
            }
        };
        fields.insert("content".to_owned(), content);
        Ok(fields.into())
    }

    /// Makes an object of the arguments of a tool call, which are JSON text, where the template needs one.
    fn set_arguments(self, at: &str, call: &mut Value) -> Result<(), Failure> {
        if call.get("type").is_some_and(|kind| !kind.is_null() && kind != "function") {
            let message = format!("`{at}` must be of the type \"function\", but is of {}", call["type"]);
            return Err(Failure::unsupported(at, message));
        }
        let at = format!("{at}.function.arguments");
        let Some(arguments) = call.pointer_mut("/function/arguments").filter(|_| self.needs_objects) else {
            return Ok(());
        };
        let Some(text) = arguments.as_str() else { return Ok(()) };
        let text = if text.trim().is_empty() { "{}" } else { text };
        match object(text.as_bytes()) {
            Ok((object, _)) => *arguments = Value::Object(object),
            Err(why) => return Err(Failure::invalid(&*at, format!("`{at}` must be {why}"))),
        }
        Ok(())
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// The text of a part.
fn text_of<'a>(at: &str, part: &'a Value) -> Result<&'a str, Failure> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("text");
    let name = match kind {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        kind => return Err(unread(at, &format!("a part of the type {kind:?}"))),
    };
    match part.get(name) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(Failure::invalid(at, format!("`{at}` must have `{name}`, which is a text"))),
    }
}

fn unread(at: &str, what: &str) -> Failure {
    Failure::unsupported(at, format!("`{at}` is {what}, but the model reads text alone; leave it out"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_text::ChatTemplate;

    /// Shows calls with their arguments as this expression has them.
    fn with_calls(arguments: &str) -> String {
        format!(
            "{{% for m in messages %}}[{{{{ m.role }}}}]{{{{ m.content }}}}{{% for c in m.tool_calls or [] %}}<{{{{ c.function.name }}}} \
             {arguments}>{{% endfor %}}{{% endfor %}}"
        )
    }

    fn form(source: &str, has_tools: bool) -> (Form, ChatTemplate) {
        let template =
            ChatTemplate::with_special_tokens(source, [("bos_token", "<s>"), ("eos_token", "</s>")]).unwrap();
        let form = Form::of(source, has_tools, &mut |messages, options| template.render(messages, options));
        (form.unwrap(), template)
    }

    fn rendered(source: &str, messages: &Value) -> Result<String, Failure> {
        let (form, template) = form(source, false);
        let messages = messages.as_array().unwrap().iter().enumerate().map(|(index, message)| {
            form.message(&format!("messages[{index}]"), message.as_object().unwrap().clone())
        });
        let messages = messages.collect::<Result<Vec<_>, _>>()?;
        Ok(template.render(&messages, &ChatOptions::default()).unwrap())
    }

    fn call(arguments: impl Into<Value>) -> Value {
        let arguments = arguments.into();
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": arguments } })
    }

    #[test]
    fn arguments_have_the_form_that_the_template_shows() {
        let text = r#"{"city":  "Zürich"}"#;
        let items = "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}";
        let either =
            "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}";
        for (arguments, shown) in [
            ("{{ c.function.arguments }}", text),
            ("{{ '' + c.function.arguments }}", text),
            (either, text),
            ("{{ c.function.arguments | tojson }}", r#"{"city": "Zürich"}"#),
            (items, "city=Zürich;"),
            ("{{ c.function.arguments['city'] or c.function.arguments.rsgen_probe }}", ""),
        ] {
            let messages = json!([
                { "role": "user", "content": "?" },
                { "role": "assistant", "content": null, "tool_calls": [call(text)] },
                { "role": "assistant", "function_call": { "name": "f", "arguments": text } },
                { "role": "tool", "tool_call_id": "c", "content": "sun" },
                { "role": "function", "name": "f", "content": null },
            ]);
            let text = rendered(&with_calls(arguments), &messages).unwrap();
            if !shown.is_empty() {
                let call = format!("[assistant]<f {shown}>");
                assert_eq!(text, format!("[user]?{call}{call}[tool]sun[tool]"), "{arguments}");
            }
        }
        let (tojson, needs) = (
            with_calls("{{ c.function.arguments | tojson }}"),
            "{% for m in messages %}{{ m.content + '' }}",
        );
        let calls = |arguments| json!([{ "role": "user", "content": "?" }, { "role": "assistant", "tool_calls": [call(arguments)] }]);
        assert!(rendered(&tojson, &calls("".into())).unwrap().ends_with("<f {}>"), "without arguments");
        assert!(
            rendered(&tojson, &calls(json!({ "a": 1 }))).unwrap().ends_with(r#"<f {"a": 1}>"#),
            "transformers' form"
        );
        let needs = format!(
            "{needs}{{% for c in m.tool_calls or [] %}}{{{{ c.function.arguments }}}}{{% endfor %}}{{% endfor %}}"
        );
        assert_eq!(rendered(&needs, &calls("{}".into())).unwrap(), "?{}", "content is there");
        let deep = "[".repeat(9999);
        for wrong in ["{", "[1]", "1", r#"{"a": 1, "a": 2}"#, &deep] {
            let failure = rendered(&tojson, &calls(wrong.into())).unwrap_err();
            assert_eq!(
                failure.param.as_deref(),
                Some("messages[1].tool_calls[0].function.arguments"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn content_has_the_form_that_the_template_shows() {
        let parts = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
        let refusal = json!([{ "type": "refusal", "refusal": "no" }]);
        let messages = json!([
            { "role": "developer", "content": parts },
            { "role": "system", "content": "s", "name": "n" },
            { "role": "user", "content": parts },
            { "role": "assistant", "content": refusal },
            { "role": "assistant", "content": null, "refusal": "no" },
            { "role": "tool", "content": parts, "tool_call_id": "c" },
        ]);
        let (texts, iterated) = ("{{ m.content }}", "{% for p in m.content %}({{ p.text }}){% endfor %}");
        let both = format!("{{% if m.content is string %}}{texts}{{% else %}}{iterated}{{% endif %}}");
        let tojson = "{{ m.content | tojson }}";
        for (content, [two, one, plain]) in [
            (texts, ["a\nb", "no", "s"]),
            (tojson, [r#""a\nb""#, r#""no""#, r#""s""#]),
            (iterated, ["(a)(b)", "(no)", "(s)"]),
            (&both, ["(a)(b)", "(no)", "s"]),
        ] {
            for developer in ["system", "developer"] {
                let source = format!(
                    "{{# {developer} #}}{{% for m in messages %}}[{{{{ m.role }}}}]{content}{{% endfor %}}"
                );
                let again = if content == both { "no" } else { one };
                assert_eq!(
                    rendered(&source, &messages).unwrap(),
                    format!(
                        "[{developer}]{two}[system]{plain}[user]{two}[assistant]{one}[assistant]{again}[tool]{two}"
                    ),
                    "{content}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_text_is_refused_by_its_name() {
        let user =
            |part: Value| json!({ "role": "user", "content": [{ "type": "text", "text": "a" }, part] });
        let assistant =
            |field: &str, value: Value| json!({ "role": "assistant", "content": "a", field: value });
        let custom = json!([{ "id": "c", "type": "custom", "custom": { "name": "f", "input": "" } }]);
        for (message, param, words) in [
            (
                user(json!({ "type": "image_url", "image_url": { "url": "data:," } })),
                "messages[0].content[1]",
                "\"image_url\"",
            ),
            (
                user(json!({ "type": "input_audio", "input_audio": {} })),
                "messages[0].content[1]",
                "\"input_audio\"",
            ),
            (user(json!({ "type": "file", "file": {} })), "messages[0].content[1]", "\"file\""),
            (user(json!({ "type": "text" })), "messages[0].content[1]", "`text`"),
            (user(json!({ "type": "refusal", "text": "a" })), "messages[0].content[1]", "`refusal`"),
            (user(json!(7)), "messages[0].content[1]", "`text`"),
            (json!({ "role": "user" }), "messages[0]", "`content`"),
            (json!({ "role": "user", "content": null }), "messages[0]", "`content`"),
            (json!({ "role": "user", "content": 7 }), "messages[0]", "`content`"),
            (json!({ "role": "assistant", "content": null, "tool_calls": [] }), "messages[0]", "`content`"),
            (assistant("audio", json!({ "id": "a" })), "messages[0].audio", "audio"),
            (assistant("tool_calls", custom), "messages[0].tool_calls[0]", "\"custom\""),
        ] {
            let failure = rendered("{% for m in messages %}{{ m.content }}{% endfor %}", &json!([message]))
                .unwrap_err();
            assert_eq!(failure.param.as_deref(), Some(param), "{message}: {}", failure.message);
            assert!(
                failure.message.contains(words) && failure.status == 400,
                "{message}: {}",
                failure.message
            );
        }
    }

    #[test]
    fn no_template_of_the_golden_gets_arguments_that_are_quoted_twice_or_parts_that_it_dumps() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/chat_templates.json");
        let golden: Value = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
        let mut with_calls = 0;
        for (family, template) in golden["templates"].as_object().unwrap() {
            let source = template["source"].as_str().unwrap();
            let (form, template) = form(source, false);
            let message =
                |message: Value| form.message("messages[0]", message.as_object().unwrap().clone()).unwrap();
            let parts = json!([{ "type": "text", "text": "first" }, { "type": "text", "text": "second" }]);
            let user = || message(json!({ "role": "user", "content": parts }));
            let text = template.render(&[user()], &ChatOptions::default()).unwrap();
            assert!(text.contains("first") && text.contains("second"), "{family}: {text}");
            assert!(!text.contains("'text'") && !text.contains("\"text\""), "{family}: {text}");
            let call = json!({ "id": "call00001", "type": "function", "function": { "name": "weather", "arguments": r#"{"city": "Bern"}"# } });
            let called = message(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
            let Ok(text) = template.render(&[user(), called], &ChatOptions::default()) else { continue };
            assert!(!text.contains("\\\"city"), "{family}: {text}");
            if text.contains("weather") {
                assert!(text.contains("Bern"), "{family}: {text}");
                with_calls += 1;
            }
        }
        assert!(with_calls >= 15, "{with_calls}");
    }
}
