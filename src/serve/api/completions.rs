//! `POST /v1/completions`.

use axum::response::Response;

use super::answer::{AnswerSettings, Choice, Content, Piece};
use super::fields::COMPLETIONS;
use super::generation::{self, Form};
use super::logprobs::Logprobs;
use super::prompts;
use super::request::Request;
use crate::serve::failure::Failure;
use crate::serve::json::Admitted;

pub(super) static FORM: Form = Form {
    route: COMPLETIONS,
    id: "cmpl",
    object: "text_completion",
    chunk: "text_completion",
    check,
    num_prompts: |request| prompts::given(request).map_or(1, |prompts| prompts.len()),
    prompts: |generator, request, interrupted| {
        prompts::encode(generator, request, prompts::given(request)?, interrupted)
    },
    choice,
    first: |_| None,
    delta: |settings, index, piece| vec![choice(settings, index, piece)],
};

/// Completes prompts.
pub(super) async fn completions(admitted: Admitted) -> Result<Response, Failure> {
    generation::answer(admitted, &FORM).await
}

fn check(request: &Request) -> Result<(), Failure> {
    prompts::given(request)?;
    if request.get("suffix").is_some_and(|suffix| suffix != "") {
        let message =
            "`suffix` is not supported: the model continues prompts, and cannot fill them in; leave it out";
        return Err(Failure::unsupported("suffix", message));
    }
    if request.is("stream") && request.get("prompt_logprobs").is_some() {
        let message =
            "`prompt_logprobs` is not sent in a stream; leave out one of them, or use `echo` with `logprobs`";
        return Err(Failure::invalid("prompt_logprobs", message));
    }
    Ok(())
}

fn choice<'a>(settings: &'a AnswerSettings, index: usize, piece: &'a Piece) -> Choice<'a> {
    let logprobs = settings.logprobs.map(|_| Logprobs::Completion(&settings.names, &piece.tokens));
    Choice { logprobs, ..Choice::new(index, Content::Text(&piece.text)) }.ending(piece)
}
