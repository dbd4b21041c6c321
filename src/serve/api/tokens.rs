//! Text to tokens and back: `/tokenize`, `/detokenize`, `/tokenizer_info` and `/apply-template`.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use super::fields::{DETOKENIZE, Routes, TEMPLATE, TOKENIZE};
use super::prompts;
use super::request::Request;
use super::text::{List, Text};
use super::usage::with_ignored;
use crate::engine::Interrupt;
use crate::generator::{Generator, Prompt};
use crate::serve::failure::Failure;
use crate::serve::json::{Body, Named};
use crate::serve::work;
use rsgen_core::types::TokenId;

/// The answer of `/tokenize`.
#[derive(Serialize)]
struct Encoded<'a, T> {
    count: usize,
    max_model_len: usize,
    tokens: &'a [TokenId],
    token_strs: Option<T>,
}

/// The tokens of a text or of a conversation.
pub(super) async fn tokenize(body: Body) -> Result<Response, Failure> {
    answer(TOKENIZE, body, |generator, request, interrupted| {
        let ids = if prompts::is_chat(request)? {
            prompts::encode_chat(generator, request, interrupted)?.ids
        } else {
            let text = Prompt::Text(request.text("prompt").unwrap_or_default().to_owned());
            generator.encode_text(text, request.flag("add_special_tokens").unwrap_or(true), interrupted)?
        };
        let tokenizer = generator.tokenizer()?;
        let texts = List(&ids, |&id: &TokenId| tokenizer.token(id));
        let mut text = Text::default();
        text.push(&Encoded {
            count: ids.len(),
            max_model_len: prompts::context(generator),
            tokens: &ids,
            token_strs: request.is("return_token_strs").then_some(texts),
        })?;
        Ok(text)
    })
    .await
}

/// The text of tokens.
pub(super) async fn detokenize(body: Body) -> Result<Response, Failure> {
    answer(DETOKENIZE, body, |generator, request, interrupted| {
        let missing = || request.missing("tokens", "a list of token ids");
        let ids = request.ids("tokens").ok_or_else(missing)?;
        let tokenizer = generator.tokenizer()?;
        if let Some(id) = ids.iter().find(|id| id.index() >= tokenizer.len()) {
            let message = format!(
                "`tokens` holds the id {id}, but the tokenizer has the ids 0 to {}",
                tokenizer.len() - 1
            );
            return Err(Failure::invalid("tokens", message));
        }
        prompt(&tokenizer.decode_interruptible(&ids, false, interrupted)?)
    })
    .await
}

/// The prompt of a conversation.
pub(super) async fn apply_template(body: Body) -> Result<Response, Failure> {
    answer(TEMPLATE, body, |generator, request, interrupted| {
        prompt(&prompts::render(generator, request, interrupted)?)
    })
    .await
}

fn prompt(prompt: &str) -> Result<Text, Failure> {
    let mut text = Text::default();
    text.push(&Map::from_iter([("prompt".to_owned(), Value::from(prompt))]))?;
    Ok(text)
}

async fn answer(
    route: Routes,
    Body { app, fields, _busy }: Body,
    work: fn(&Generator, &Request, &mut Interrupt<'_>) -> Result<Text, Failure>,
) -> Result<Response, Failure> {
    let request = Request::new(&app, route, fields)?;
    let ignored = request.ignored().to_vec();
    let answered =
        work::prepare(&app, move |generator, interrupted| Ok(work(generator, &request, interrupted)));
    let text = answered.await?.map_err(|failure| app.public(failure))?;
    Ok(with_ignored(text.into_response(), &ignored))
}

/// The special tokens, and the chat template: what a client that tokenizes by itself asks for.
pub(super) async fn tokenizer_info(Named(app): Named) -> Result<Json<Value>, Failure> {
    let tokenizer = app.generator.tokenizer().map_err(|error| app.failure(error))?;
    let mut info: Map<String, Value> = ["bos_token", "eos_token", "pad_token", "unk_token"]
        .into_iter()
        .map(|name| (name.to_owned(), Value::Null))
        .collect();
    info.extend(tokenizer.special_tokens_map().map(|(name, token)| (name.to_owned(), token.into())));
    for (name, id) in [("bos", tokenizer.bos()), ("eos", tokenizer.eos()), ("pad", tokenizer.pad())] {
        info.insert(format!("{name}_token_id"), id.map(|id| id.0).into());
        let text = id.and_then(|id| tokenizer.token(id)).map(Value::from);
        let known = info.get(&format!("{name}_token")).filter(|known| !known.is_null()).cloned();
        info.insert(format!("{name}_token"), known.or(text).unwrap_or_default());
    }
    info.insert("vocab_size".to_owned(), tokenizer.vocab_size().into());
    info.insert("model_max_length".to_owned(), prompts::context(&app.generator).into());
    let template = app.generator.chat_templates().choose(None, false).ok();
    info.insert("chat_template".to_owned(), template.map(|template| template.source().to_owned()).into());
    Ok(Json(Value::Object(info)))
}
