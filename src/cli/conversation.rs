//! Conversations as JSON on standard input: a list of messages, or an object with messages, tools and more.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::failure::Failure;
use super::prompt::{MARK, not_utf_8};
use rsgen_core::{Error, Result};
use rsgen_text::{ChatOptions, Message};

/// A conversation with its options.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) options: ChatOptions,
}

/// The object form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    documents: Option<Vec<Value>>,
    continue_final_message: Option<Value>,
    #[serde(default)]
    chat_template_kwargs: Map<String, Value>,
}

impl From<Message> for Conversation {
    fn from(message: Message) -> Self {
        Self { messages: vec![message], ..Self::default() }
    }
}

impl TryFrom<Value> for Conversation {
    type Error = Error;

    fn try_from(value: Value) -> Result<Self> {
        let messages =
            |messages: Vec<Value>| messages.into_iter().map(Message::try_from).collect::<Result<_>>();
        if let Value::Array(list) = value {
            return Ok(Self { messages: messages(list)?, ..Self::default() });
        }
        let fields: Fields = serde_json::from_value(value).map_err(|error| {
            Error::input("a conversation must be a list of messages, or an object with `messages`")
                .with_source(error)
        })?;
        let continue_final_message = match fields.continue_final_message {
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some("content".to_owned()),
            Some(Value::String(field)) => Some(field),
            Some(other) => {
                return Err(Error::input(format!("must be true, false or the name of a field, got {other}"))
                    .about("continue_final_message"));
            }
        };
        let options = ChatOptions {
            tools: fields.tools,
            documents: fields.documents,
            continue_final_message,
            chat_template_kwargs: fields.chat_template_kwargs,
            ..ChatOptions::default()
        };
        Ok(Self { messages: messages(fields.messages)?, options })
    }
}

impl Conversation {
    /// Inserts a system message at the beginning; an error if there is one.
    pub(super) fn add_system(&mut self, system: Option<&str>) -> Result<()> {
        let Some(system) = system else { return Ok(()) };
        if self.has_system() {
            return Err(Error::input(
                "the conversation has a system message of its own; leave `--system` out",
            ));
        }
        self.messages.insert(0, Message::system(system));
        Ok(())
    }

    /// Replaces the system message.
    pub(super) fn set_system(&mut self, system: Option<&str>) {
        let own = usize::from(self.has_system());
        self.messages.splice(..own, system.map(Message::system));
    }

    /// Removes all messages but the system message.
    pub(super) fn clear(&mut self) {
        self.messages.truncate(usize::from(self.has_system()));
    }

    fn has_system(&self) -> bool {
        let is_system = |message: &Message| message.fields().get("role").is_some_and(|role| role == "system");
        self.messages.first().is_some_and(is_system)
    }
}

const NO_JSON: &str = "the conversation on standard input must be JSON";

/// Parses consecutive conversations. One that is none, or has bytes that are no UTF-8, is an error of its own; after one that is
/// no JSON they go on with the next line that begins a list or an object.
pub(super) fn read_conversations(bytes: &[u8]) -> Result<Vec<Result<Conversation>>, Failure> {
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    let (text, bad) = marked(bytes);
    let (mut conversations, mut start) = (Vec::new(), 0);
    while !text[start..].trim_start().is_empty() {
        start = text.len() - text[start..].trim_start().len();
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let value = values.next().transpose();
        let next = match &value {
            Ok(_) => start + values.byte_offset(),
            Err(_) => next_conversation(&text, start),
        };
        let is_bad = |byte: &&usize| (start..next).contains(*byte);
        conversations.push(match (bad.iter().find(is_bad), &value) {
            (Some(&byte), Err(_)) => Err(not_utf_8(NO_JSON, bytes, byte)),
            (Some(&byte), Ok(_)) => Err(not_utf_8("the conversation", bytes, byte)),
            (None, Err(error)) => Err(no_json(&text, start, error)),
            (None, Ok(value)) => Conversation::try_from(value.clone().unwrap_or_default()),
        });
        start = next;
    }
    if conversations.is_empty() {
        return Err(
            Error::input("there is no conversation on standard input; give a list of messages").into()
        );
    }
    Ok(conversations)
}

/// The error of a conversation that begins at this byte and is no JSON.
fn no_json(text: &str, start: usize, error: &serde_json::Error) -> Error {
    let line = text[..start].matches('\n').count() + error.line();
    let reason = error.to_string();
    let reason = reason.split(" at line ").next().unwrap_or_default();
    Error::input(format!("{NO_JSON}: {reason} in line {line}"))
}

/// Where the next conversation begins after one that is no JSON.
fn next_conversation(text: &str, start: usize) -> usize {
    let mut lines = text[start..].match_indices('\n').map(|(at, _)| start + at + 1);
    lines.find(|at| text[*at..].starts_with(['[', '{'])).unwrap_or(text.len())
}

/// The text, with a question mark for each byte that is no UTF-8, and the places of those.
fn marked(bytes: &[u8]) -> (String, Vec<usize>) {
    let (mut text, mut bad) = (String::with_capacity(bytes.len()), Vec::new());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        bad.extend(text.len()..text.len() + chunk.invalid().len());
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    (text, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match read_conversations(text.as_bytes()) {
            Err(Failure::Library(error)) => error.to_string(),
            Ok(conversations) => conversations.into_iter().find_map(Result::err).unwrap().to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_conversation_is_a_list_or_an_object() {
        let text = r#"[{"role": "user", "content": "a"}]
            {"messages": [{"role": "user", "content": "b"}], "tools": [{}], "continue_final_message": true,
             "chat_template_kwargs": {"enable_thinking": false}}"#;
        let conversations = read_conversations(text.as_bytes()).unwrap();
        let conversations: Vec<_> = conversations.into_iter().map(Result::unwrap).collect();
        assert_eq!(conversations[0].messages, [Message::user("a")]);
        assert_eq!(conversations[1].messages, [Message::user("b")]);
        let options = &conversations[1].options;
        assert_eq!(options.continue_final_message.as_deref(), Some("content"));
        assert_eq!((options.tools.as_ref().map(Vec::len), options.chat_template_kwargs.len()), (Some(1), 1));
    }

    #[test]
    fn bytes_that_are_no_utf_8_concern_their_conversation_alone() {
        let message = |content: &[u8]| [br#"[{"role": "user", "content": ""#, content, b"\"}]\n"].concat();
        let bytes = [&message("é".as_bytes())[..], &message(b"\xff\xfe"), &message(b"b")].concat();
        let found = read_conversations(&bytes).unwrap();
        assert_eq!(found[0].as_ref().unwrap().messages, [Message::user("é")]);
        assert_eq!(found[2].as_ref().unwrap().messages, [Message::user("b")]);
        let error = found[1].as_ref().unwrap_err().to_string();
        assert!(error.contains("in line 2") && error.contains("UTF-8"), "{error}");
        let error = read_conversations(b"[]\n{\xff}").unwrap().pop().unwrap().unwrap_err();
        assert!(error.to_string().contains("in line 2"), "{error}");
    }

    #[test]
    fn a_conversation_that_is_none_leaves_the_others() {
        let found = read_conversations(br#"[3] [{"role": "user", "content": "a"}] {"messages": 1}"#).unwrap();
        assert_eq!(found.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_line_that_is_no_json_leaves_the_others() {
        let good = r#"[{"role": "user", "content": "a"}]"#;
        let pretty = "[\n  {\n    \"role\": \"user\",\n    \"content\": \"a\"\n  }\n]";
        for (bad, line) in [("[{]", 2), ("oops", 2), ("[{\"role\": \"user\"", 3), ("]", 2)] {
            let text = format!("{good}\n{bad}\n{pretty}\n\n{good}\n");
            let found = read_conversations(text.as_bytes()).unwrap();
            assert_eq!(
                found.iter().map(Result::is_ok).collect::<Vec<_>>(),
                [true, false, true, true],
                "{bad}"
            );
            let error = found[1].as_ref().unwrap_err().to_string();
            assert!(error.contains("must be JSON") && error.ends_with(&format!("in line {line}")), "{error}");
        }
        let cut = read_conversations(format!("{good}\n{}", &good[..9]).as_bytes()).unwrap();
        assert_eq!(cut.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn an_invalid_conversation_is_refused() {
        assert!(refused("").contains("no conversation"));
        assert!(refused("[").contains("must be JSON"));
        assert!(refused("3").contains("a list of messages"));
        assert!(refused("[3]").contains("a message must be an object"));
        assert!(refused(r#"{"messages": [], "top_p": 1}"#).contains("top_p"));
        assert!(refused(r#"{"messages": [], "continue_final_message": 1}"#).contains("got 1"));
    }

    #[test]
    fn a_second_system_message_is_refused() {
        let mut conversation = Conversation::from(Message::user("a"));
        conversation.add_system(None).unwrap();
        conversation.add_system(Some("b")).unwrap();
        assert_eq!(conversation.messages, [Message::system("b"), Message::user("a")]);
        assert!(conversation.add_system(Some("c")).is_err());
    }
}
