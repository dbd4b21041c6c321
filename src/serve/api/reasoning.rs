//! The thinking in the answers of chats.

use serde_json::{Value, json};

use super::decoding::Decoding;
use super::fields::CHAT;
use super::prompts::EncodedPrompt;
use super::request::Request;
use super::tools;
use crate::generator::Generator;
use crate::serve::failure::Failure;
use rsgen_core::error::Result;
use rsgen_text::ChatOptions;

/// Finds how the model thinks, and sets the tokens that a grammar begins behind and a budget ends with.
///
/// # Errors
/// When the tokenizer fails.
pub(super) fn set(
    generator: &Generator,
    request: &Request,
    decoding: &mut Decoding,
    prompts: &[EncodedPrompt],
) -> Result<(), Failure> {
    if request.route() != CHAT {
        return Ok(());
    }
    let options = options(request);
    let found = generator.reasoning(&options, request.reasoning_parser.as_deref())?;
    let Some(reasoning) = found else { return Ok(()) };
    let is_open = |prompt: &EncodedPrompt| -> Result<bool> {
        Ok(match &prompt.text {
            Some(text) => reasoning.is_open(text, &options),
            None => reasoning.is_open(&generator.tokenizer()?.decode(&prompt.ids, false)?, &options),
        })
    };
    let are_open = prompts.iter().map(is_open).collect::<Result<Vec<_>>>()?;
    reasoning.set(
        &mut decoding.config,
        are_open.first().copied().unwrap_or_default(),
        decoding.holds_calls,
    )?;
    decoding.reasoning = Some((reasoning, are_open));
    Ok(())
}

/// Refuses a request whose field of this name asks for thinking, where the model has no form of it.
///
/// # Errors
/// As it says; and when there is no template.
pub(super) fn require(generator: &Generator, request: &Request, field: &str) -> Result<(), Failure> {
    if generator.reasoning(&options(request), request.reasoning_parser.as_deref())?.is_some() {
        return Ok(());
    }
    let message =
        format!("`{field}` asks for thinking, but the model's chat template has no form of it; leave it out");
    Err(Failure::unsupported(field, message))
}

fn options(request: &Request) -> ChatOptions {
    let continues = request.is("continue_final_message").then(|| "content".to_owned());
    ChatOptions { tools: tools::shown(request), continue_final_message: continues, ..ChatOptions::default() }
}

/// Adds thinking to a message or a part of one: under the name of `DeepSeek`, and under vLLM's newer one.
pub(super) fn add(message: &mut Value, reasoning: &str) {
    if !reasoning.is_empty() {
        message["reasoning"] = reasoning.into();
        message["reasoning_content"] = reasoning.into();
    }
}

/// A part of thinking as a stream has it.
pub(super) fn delta(reasoning: &str) -> Value {
    let mut delta = json!({});
    add(&mut delta, reasoning);
    delta
}
