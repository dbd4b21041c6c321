//! Decoding with any decoder, and rendering any conversation: what comes out is bounded, and the same in every way of
//! asking for it.

use arbitrary::{Arbitrary, Unstructured};
use serde_json::{Map, Value, json};

use super::{MAX_PROMPT_LEN, MAX_PROMPT_LEN_PER_BYTE, expect, split};
use rsgen_core::error::ErrorKind;
use rsgen_core::types::TokenId;
use rsgen_text::{ChatOptions, ChatTemplate, Detokenizer, Message, Tokenizer};

/// Tokens that decoders treat in ways of their own.
const TOKENS: [&str; 32] = [
    "?", "<s>", "a", "b", " ", "▁", "▁a", "▁▁", "Ġ", "Ġa", "Ċ", "##a", "##", "a</w>", "</w>", "'", "n't",
    ".", "<0x0A>", "<0x20>", "<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "<0xAC>", "<0xFF>", "Ã", "©", "âĤ", "é",
    "日", "aab",
];

/// A `decoder` section, after a zero byte a byte of settings, and then ids.
pub fn decoding(data: &[u8]) {
    let (decoder, ids) = split(data);
    let Some((&settings, ids)) = ids.split_first() else { return };
    let Ok(decoder) = serde_json::from_slice::<Value>(decoder) else { return };
    let vocab: Map<String, Value> =
        TOKENS.iter().zip(0_u32..).map(|(token, id)| ((*token).to_owned(), id.into())).collect();
    let special = json!({"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true});
    let file = json!({"version": "1.0", "added_tokens": [special], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": decoder,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "?"}});
    let config = json!({"clean_up_tokenization_spaces": settings & 1 == 1});
    let tokenizer =
        Tokenizer::from_bytes(file.to_string().as_bytes(), Some(config.to_string().as_bytes()), None);
    let tokenizer = match tokenizer {
        Ok(tokenizer) => tokenizer,
        Err(error) => return expect(&error, &[ErrorKind::Load]),
    };
    let skip = settings & 2 == 2;
    // A few ids beyond the vocabulary, as models with padded embeddings produce.
    let ids: Vec<TokenId> =
        ids.iter().map(|&id| TokenId(u32::from(id) % (TOKENS.len() as u32 + 2))).collect();
    let whole = tokenizer.decode(&ids, skip).expect("a short text");
    let mut stream = Detokenizer::new(&tokenizer, &[], skip);
    let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
    streamed.push_str(&stream.flush());
    assert_eq!(streamed, whole, "a stream decodes as the whole");
    let (prompt, continuation) = ids.split_at(ids.len() / 2);
    let before = tokenizer.decode(prompt, skip).expect("a short text");
    let shared = before.chars().zip(whole.chars()).take_while(|(left, right)| left == right);
    let shared: usize = shared.map(|(char, _)| char.len_utf8()).sum();
    let mut stream = Detokenizer::new(&tokenizer, prompt, skip);
    let mut continued: String = continuation.iter().map(|&id| stream.push(id)).collect();
    continued.push_str(&stream.flush());
    assert_eq!(continued, whole[shared..], "a continuation is what it adds to its prompt");
}

/// Templates as models have them, of all that they use.
const TEMPLATES: [&str; 4] = [
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}\
     {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
     {{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}\
     {{ '[INST] ' ~ message['content'] | trim ~ ' [/INST]' }}{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}\
     {% endfor %}",
    "{%- set ns = namespace(first=true, names=[]) -%}{%- if tools %}{{- 'Tools:\n' }}{%- for tool in tools %}\
     {{- tool | tojson(indent=2) }}{%- endfor %}{%- endif %}{%- for message in messages %}\
     {%- if message.tool_calls is defined and message.tool_calls %}{%- for call in message.tool_calls %}\
     {{- call.function.name ~ call.function.arguments | tojson }}{%- endfor %}\
     {%- elif message.content is string %}{{- message.role.upper() + ': ' + message.content.strip() }}\
     {%- else %}{%- for part in message.content or [] %}{%- if part.type == 'text' %}{{- part.text }}{%- endif %}\
     {%- endfor %}{%- endif %}{%- set ns.first = false %}{%- endfor %}",
    "{% macro show(value, depth) %}{% if value is mapping %}{% for key, item in value | dictsort %}{{ key }}=\
     {{ show(item, depth + 1) }}{% endfor %}{% elif value is string %}{{ value.split('</think>')[-1].lstrip('\n') }}\
     {% elif value is iterable %}{% for item in value %}{{ show(item, depth + 1) }},{% endfor %}{% else %}{{ value }}\
     {% endif %}{% endmacro %}{% for message in messages[::-1] %}{{ show(message, 0) | replace('\n', ' ') }}{% endfor %}",
];

/// A conversation, for a template of a model.
#[derive(Debug, Arbitrary)]
struct Conversation {
    template: u8,
    messages: Vec<Turn>,
    tools: Option<Vec<Field>>,
    add_generation_prompt: bool,
    continue_final_message: bool,
}

#[derive(Debug, Arbitrary)]
struct Turn {
    role: u8,
    content: Field,
    tool_calls: Option<Vec<(String, Field)>>,
    other: Vec<(String, Field)>,
}

/// Any JSON.
#[derive(Debug, Arbitrary)]
enum Field {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Parts(Vec<String>),
    List(Vec<Field>),
    Object(Vec<(String, Field)>),
}

impl From<Field> for Value {
    fn from(field: Field) -> Self {
        let part = |text: String| json!({"type": "text", "text": text});
        match field {
            Field::Null => Self::Null,
            Field::Bool(value) => value.into(),
            Field::Int(value) => value.into(),
            Field::Float(value) => value.into(),
            Field::Text(value) => value.into(),
            Field::Parts(values) => values.into_iter().map(part).collect(),
            Field::List(values) => values.into_iter().map(Self::from).collect(),
            Field::Object(values) => {
                values.into_iter().map(|(key, value)| (key, Self::from(value))).collect()
            }
        }
    }
}

impl From<Turn> for Message {
    fn from(turn: Turn) -> Self {
        let role = ["user", "assistant", "system", "tool", ""][usize::from(turn.role % 5)];
        let mut message = Self::new(role, Value::from(turn.content));
        if let Some(calls) = turn.tool_calls {
            let call = |(name, arguments): (String, Field)| json!({"type": "function", "function": {"name": name, "arguments": Value::from(arguments)}});
            message = message.with("tool_calls", calls.into_iter().map(call).collect::<Value>());
        }
        turn.other.into_iter().fold(message, |message, (name, value)| message.with(name, Value::from(value)))
    }
}

/// Decodes a conversation from the bytes and renders it.
pub fn conversation(data: &[u8]) {
    let Ok(conversation) = Conversation::arbitrary(&mut Unstructured::new(data)) else { return };
    let template = TEMPLATES[usize::from(conversation.template) % TEMPLATES.len()];
    let tokens = [("bos_token", "<s>"), ("eos_token", "</s>")];
    let template = ChatTemplate::with_special_tokens(template, tokens).expect("a template that compiles");
    let messages: Vec<Message> = conversation.messages.into_iter().map(Message::from).collect();
    let options = ChatOptions {
        tools: conversation.tools.map(|tools| tools.into_iter().map(Value::from).collect()),
        add_generation_prompt: conversation.add_generation_prompt,
        continue_final_message: conversation.continue_final_message.then(|| "content".to_owned()),
        ..ChatOptions::default()
    };
    match template.render(&messages, &options) {
        Ok(prompt) => {
            assert!(
                prompt.len() <= MAX_PROMPT_LEN + MAX_PROMPT_LEN_PER_BYTE * data.len(),
                "{} bytes",
                prompt.len()
            );
            assert_eq!(prompt, template.render(&messages, &options).expect("the same again"));
        }
        Err(error) => expect(&error, &[ErrorKind::Input]),
    }
}
