//! The prompts of a request: their forms, their tokens, and whether they fit into the context.

use std::sync::Arc;

use serde_json::Value;

use super::fields::{COMPLETIONS, GENERATE, MAX_PROMPTS};
use super::messages::Form;
use super::request::{Request, check_prompts, id};
use crate::engine::Interrupt;
use crate::generator::{Call, Generator, Prompt};
use crate::serve::failure::Failure;
use rsgen_core::types::TokenId;
use rsgen_generation::GenerationConfig;
use rsgen_text::{ChatOptions, Message};

/// The most bytes of `chat_template_kwargs`.
const MAX_KWARGS: usize = 16 << 10;

/// A prompt with its tokens.
pub(super) struct EncodedPrompt {
    pub(super) ids: Vec<TokenId>,
    /// The text as it was given.
    pub(super) text: Option<Arc<str>>,
}

impl EncodedPrompt {
    /// A call with this prompt.
    pub(super) fn call<'a>(&self, generator: &'a Generator) -> Call<'a> {
        generator.call(Prompt::Ids(self.ids.clone())).prompt_texts(vec![self.text.clone()])
    }

    /// A call with a list of prompts.
    pub(super) fn call_all<'a>(prompts: &[Self], generator: &'a Generator) -> Call<'a> {
        let ids: Vec<Prompt> = prompts.iter().map(|prompt| Prompt::Ids(prompt.ids.clone())).collect();
        generator.call(ids).prompt_texts(prompts.iter().map(|prompt| prompt.text.clone()).collect())
    }
}

/// Refuses a glossary where the prompts are no texts to translate.
///
/// # Errors
/// 400, with the reason.
pub(super) fn check_glossary(
    generator: &Generator,
    request: &Request,
    config: &GenerationConfig,
) -> Result<(), Failure> {
    if config.glossary.is_none() {
        return Ok(());
    }
    let why = if request.get("messages").is_some() {
        "goes with texts to translate, and a conversation is none; leave it out, or say in a message how to \
         translate its terms"
    } else if request.route() == COMPLETIONS && !generator.has_encoder() {
        "goes with models that have an encoder, which the served model has not; leave it out, or say in the prompt \
         how to translate its terms"
    } else if request.get("truncate_prompt_tokens").is_some() {
        "finds its terms in whole texts, and `truncate_prompt_tokens` cuts them; leave out one of them"
    } else {
        return Ok(());
    };
    Err(Failure::invalid("glossary", format!("`glossary` {why}")))
}

/// The prompts of the field `prompt`.
///
/// # Errors
/// When it is missing, empty, or of another form.
pub(super) fn given(request: &Request) -> Result<Vec<Prompt>, Failure> {
    listed(request, "prompt", MAX_PROMPTS)
}

/// The prompts of a field, at most so many.
///
/// # Errors
/// As for [`given`].
pub(super) fn listed(request: &Request, field: &str, most: usize) -> Result<Vec<Prompt>, Failure> {
    let wrong = || {
        let message = format!(
            "`{field}` must be a text, a list of texts, a list of token ids, or a list of such lists"
        );
        Failure::invalid(field, message)
    };
    let ids = |values: &[Value]| values.iter().map(id).collect::<Option<Vec<_>>>().map(Prompt::Ids);
    match request.get(field) {
        None => Err(request.missing(field, "a text, or token ids")),
        Some(Value::String(text)) => Ok(vec![Prompt::Text(text.clone())]),
        Some(Value::Array(values)) if values.first().is_some_and(Value::is_number) => {
            Ok(vec![ids(values).ok_or_else(|| wrong_id(field, values))?])
        }
        Some(Value::Array(values)) => {
            check_prompts(field, values.len(), most)?;
            let one = |value: &Value| match value {
                Value::String(text) => Ok(Prompt::Text(text.clone())),
                Value::Array(values) => ids(values).ok_or_else(|| wrong_id(field, values)),
                _ => Err(wrong()),
            };
            values.iter().map(one).collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn wrong_id(field: &str, values: &[Value]) -> Failure {
    let (index, value) =
        values.iter().enumerate().find(|(_, value)| id(value).is_none()).unwrap_or((0, &Value::Null));
    let value = rsgen_generation::config::FieldValue::from(value.clone());
    Failure::invalid(field, format!("`{field}`: token {index} must be a token id, but is {value}"))
}

/// Encodes prompts, shortens them as `truncate_prompt_tokens` says, and checks their ids.
///
/// # Errors
/// When a prompt cannot be encoded, or holds an id outside of the vocabulary; when interrupted.
pub(super) fn encode(
    generator: &Generator,
    request: &Request,
    prompts: Vec<Prompt>,
    interrupted: &mut Interrupt<'_>,
) -> Result<Vec<EncodedPrompt>, Failure> {
    let add_special_tokens = request.flag("add_special_tokens").unwrap_or(true);
    let one = |prompt: Prompt| {
        let text = match &prompt {
            Prompt::Text(text) => Some(Arc::from(text.as_str())),
            Prompt::Ids(_) | Prompt::Embeddings { .. } => None,
        };
        let ids = generator.begun(generator.encode_text(prompt, add_special_tokens, interrupted)?, None)?;
        checked(generator, request, ids, text)
    };
    let count = prompts.len();
    let encoded = prompts.into_iter().map(one).enumerate();
    encoded.map(|(index, result)| result.map_err(|failure| named(failure, index, count))).collect()
}

/// The failure of one of several prompts says which.
pub(super) fn named(failure: Failure, index: usize, count: usize) -> Failure {
    if count == 1 {
        return failure;
    }
    Failure { message: format!("prompt {index}: {}", failure.message), ..failure }
}

/// A prompt within the vocabulary, shortened as the request says.
fn checked(
    generator: &Generator,
    request: &Request,
    mut ids: Vec<TokenId>,
    mut text: Option<Arc<str>>,
) -> Result<EncodedPrompt, Failure> {
    let model = generator.engine().model();
    let vocab_size = match model.encoder() {
        Some(encoder) => encoder.source_vocab_size(),
        None => model.vocab_size(),
    };
    if let Some(index) = ids.iter().position(|id| id.index() >= vocab_size) {
        return Err(Failure::invalid(
            "prompt",
            format!(
                "`prompt` holds the id {} (token {index}), but the vocabulary has the ids 0 to {}",
                ids[index],
                vocab_size - 1
            ),
        ));
    }
    let kept = match request.integer("truncate_prompt_tokens") {
        None => ids.len(),
        // Room for one new token.
        Some(-1) if !request.generates() && model.encoder().is_none() => context(generator),
        Some(-1) => match model.encoder() {
            Some(encoder) => encoder.max_source_len().unwrap_or(ids.len()),
            None => context(generator).saturating_sub(1),
        },
        Some(count) if count < 1 => {
            let message = "`truncate_prompt_tokens` must be 1 or more, or -1, but is 0";
            return Err(Failure::invalid("truncate_prompt_tokens", message));
        }
        Some(count) => count as usize,
    };
    if kept < ids.len() {
        if request.text("truncation_side") == Some("right") {
            ids.truncate(kept);
        } else {
            ids.drain(..ids.len() - kept);
        }
        text = None;
    }
    Ok(EncodedPrompt { ids, text })
}

/// The most tokens of a sequence: the model's context, or less if the KV cache is smaller.
pub(super) fn context(generator: &Generator) -> usize {
    generator.config().context_len().min(generator.cache_tokens())
}

/// Refuses prompts that leave no room for `new` tokens, as the field `param` requests.
///
/// # Errors
/// 400 `context_length_exceeded`, with the numbers.
pub(super) fn check_context(
    generator: &Generator,
    prompts: &[EncodedPrompt],
    new: usize,
    param: &str,
) -> Result<(), Failure> {
    // The tokens of a source are not in the decoder's context.
    if generator.has_encoder() {
        return Ok(());
    }
    let context = context(generator);
    for (index, len) in prompts.iter().map(|prompt| prompt.ids.len()).enumerate() {
        let wanted = len.saturating_add(new);
        if wanted > context {
            let message = format!(
                "the context holds {context} tokens, but the prompt has {len} and `{param}` asks for {new} more, {wanted} \
                 together; shorten the prompt, or lower `{param}`"
            );
            let failure = Failure::invalid(param, message).with_code("context_length_exceeded");
            return Err(named(failure, index, prompts.len()));
        }
    }
    Ok(())
}

/// The prompt that the model's template makes of a conversation, as text.
///
/// # Errors
/// When the template refuses it, or a field breaks a rule; when interrupted.
pub(super) fn render(
    generator: &Generator,
    request: &Request,
    interrupted: &mut Interrupt<'_>,
) -> Result<String, Failure> {
    if request.get("chat_template").is_some_and(|template| template != "") {
        let message = "`chat_template` must be the model's own: templates are programs, which clients cannot bring; leave it out";
        return Err(Failure::unsupported("chat_template", message));
    }
    let continues = request.is("continue_final_message");
    if continues && request.is("add_generation_prompt") {
        let message = "`continue_final_message` goes on with the last message, and `add_generation_prompt` begins a new one; leave out one of them";
        return Err(Failure::invalid("continue_final_message", message));
    }
    let list = |name: &str| request.get(name).and_then(Value::as_array).cloned();
    let tools = super::tools::shown(request);
    let given = list("messages").ok_or_else(|| request.missing("messages", "a list of messages"))?;
    // Transformers' route takes messages as they are.
    let form = match request.route() {
        GENERATE => None,
        _ => Some(request.forms.get(generator, tools.is_some(), interrupted)?),
    };
    let messages = given.into_iter().enumerate().map(|(index, message)| self::message(index, message, form));
    let messages = messages.collect::<Result<Vec<Message>, _>>()?;
    let options = ChatOptions {
        tools,
        documents: list("documents"),
        chat_template: None,
        add_generation_prompt: !continues && request.flag("add_generation_prompt").unwrap_or(true),
        continue_final_message: continues.then(|| "content".to_owned()),
        chat_template_kwargs: kwargs(generator, request)?,
    };
    let text = generator.apply_chat_template_interruptible(&messages, &options, interrupted);
    text.map_err(|error| match error.kind() {
        rsgen_core::error::ErrorKind::Input => Failure::of("messages", &error),
        _ => error.into(),
    })
}

fn message(index: usize, value: Value, form: Option<Form>) -> Result<Message, Failure> {
    let at = format!("messages[{index}]");
    let wrong = |rule: &str| Failure::invalid(&*at, format!("`{at}` must have {rule}"));
    let Value::Object(fields) = value else { return Err(wrong("the form of an object")) };
    let role = fields.get("role").and_then(Value::as_str).unwrap_or_default();
    if role.is_empty() {
        return Err(wrong("a `role`, such as \"user\""));
    }
    if let Some(form) = form {
        return form.message(&at, fields);
    }
    match fields.get("content") {
        None | Some(Value::Null) if fields.contains_key("tool_calls") => {}
        Some(Value::String(_)) => {}
        Some(Value::Array(parts))
            if parts.iter().all(|part| part.get("text").is_some_and(Value::is_string)) => {}
        _ => return Err(wrong("`content`: a text, or a list of parts of the type \"text\"")),
    }
    Ok(Message::from(fields))
}

/// The template variables that a client sets: limited in size, and no special tokens.
fn kwargs(generator: &Generator, request: &Request) -> Result<serde_json::Map<String, Value>, Failure> {
    let name = "chat_template_kwargs";
    let mut kwargs = request.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let bytes = serde_json::to_string(&kwargs).map_or(usize::MAX, |text| text.len());
    if bytes > MAX_KWARGS {
        let message = format!("`{name}` must have at most {MAX_KWARGS} bytes, but has {bytes}");
        return Err(Failure::invalid(name, message));
    }
    let special = |own: &str| {
        generator.tokenizer().is_ok_and(|it| it.special_tokens_map().any(|(token, _)| token == own))
    };
    if let Some(own) = kwargs.keys().find(|own| special(own)) {
        let message = format!("`{name}` must not set the special token `{own}`; leave it out");
        return Err(Failure::invalid(name, message));
    }
    if let Some(effort) = request.get("reasoning_effort") {
        kwargs.entry("reasoning_effort").or_insert_with(|| effort.clone());
    }
    Ok(kwargs)
}

/// The tokens of a conversation's prompt.
///
/// # Errors
/// As for [`render`], and when the text cannot be encoded.
pub(super) fn encode_chat(
    generator: &Generator,
    request: &Request,
    interrupted: &mut Interrupt<'_>,
) -> Result<EncodedPrompt, Failure> {
    let text = render(generator, request, interrupted)?;
    // The template writes the special tokens.
    let add_special_tokens = request.flag("add_special_tokens").unwrap_or(false);
    let ids = generator.encode_text(Prompt::Text(text.clone()), add_special_tokens, interrupted)?;
    checked(generator, request, ids, Some(text.into()))
}

/// Either `prompt` or `messages`.
///
/// # Errors
/// When both or neither are given.
pub(super) fn is_chat(request: &Request) -> Result<bool, Failure> {
    match (request.get("prompt").is_some(), request.get("messages").is_some()) {
        (true, true) => {
            Err(Failure::invalid("messages", "`prompt` and `messages` are both given; leave out one of them"))
        }
        (false, false) => Err(request.missing("prompt", "it, or `messages`")),
        (_, is_chat) => Ok(is_chat),
    }
}
