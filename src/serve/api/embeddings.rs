//! `POST /v1/embeddings`: the vectors of texts, as OpenAI and vLLM answer them.

use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::{Value, json};

use super::fields::{BOOL, EMBEDDINGS, Field, Kind, MAX_INPUTS, POOLED, field, integer};
use super::prompts;
use super::request::{Request, either};
use super::text::{Text, check_vectors};
use super::usage::with_ignored;
use crate::engine::{Interrupt, Pooling};
use crate::generator::{Generator, Prompt, to_unit_length};
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json::Admitted;
use crate::serve::work;
use rsgen_generation::config::{FieldKind, MAX_COUNT};

const FLOAT: &str = "float";
const BASE64: &str = "base64";
const FORMAT: Kind = Kind::Of(FieldKind::Word(&[FLOAT, BASE64]));
const POOLING: Kind = Kind::Of(FieldKind::Word(&["mean", "last", "cls"]));
const SIDE: Kind = Kind::Of(FieldKind::Word(&["left", "right"]));

#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    field(EMBEDDINGS, "input", Kind::Prompt(MAX_INPUTS), "required", "", "A text, token ids, or a list of either; at most 2048."),
    field(EMBEDDINGS, "encoding_format", FORMAT, "\"float\"", "", "`base64` is the text of the bytes of its numbers: 32 bits each, the lowest byte first."),
    field(EMBEDDINGS, "dimensions", integer(1, MAX_COUNT), "all", "", "Keeps so many of the first numbers of each vector, before it is divided by its length."),
    field(EMBEDDINGS, "use_activation", BOOL, "true", "", "Divides each vector by its Euclidean length."),
    field(EMBEDDINGS, "normalize", BOOL, "true", "", "The same as `use_activation`, as older versions of vLLM name it."),
    field(EMBEDDINGS, "embed_dtype", Kind::Of(FieldKind::Word(&["float32"])), "\"float32\"", "", "The type of the numbers in `base64`."),
    field(EMBEDDINGS, "endianness", Kind::Of(FieldKind::Word(&["native", "little"])), "\"little\"", "", "The order of the bytes in `base64`."),
    field(POOLED, "truncation_side", SIDE, "\"left\"", "", "The side of a text that `truncate_prompt_tokens` cuts off."),
    field(POOLED, "pooling", POOLING, "\"mean\"", "", "How the hidden states of a text become one vector: their mean, that of the last token, or that of the first."),
    field(POOLED, "layer", integer(-MAX_COUNT, MAX_COUNT), "-1", "", "The layer of the hidden states, as transformers counts them; -1 is after the last one and the norm."),
];

/// The vectors of a list of texts.
pub(super) struct Vectors {
    pub(super) all: Vec<Vec<f32>>,
    pub(super) num_tokens: usize,
}

/// The head of an answer that is a list.
#[derive(Serialize)]
pub(super) struct Head {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
}

#[derive(Serialize)]
struct Item<'a> {
    index: usize,
    object: &'static str,
    embedding: Written<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Written<'a> {
    Numbers(&'a [f32]),
    Base64(String),
}

/// Answers with the vectors of texts.
pub(super) async fn embeddings(admitted: Admitted) -> Result<Response, Failure> {
    let Admitted { app, fields, place, tenant } = admitted;
    let request = Request::new(&app, EMBEDDINGS, fields)?.of(tenant).at(&place);
    let ignored = request.ignored().to_vec();
    let head = Head::new(&app, &request, "embd");
    let answered = work::run(&app, place, move |generator, interrupted| {
        Ok(answer(generator, &request, &head, interrupted))
    });
    let text = answered.await?.map_err(|failure| app.public(failure))?;
    Ok(with_ignored(text.into_response(), &ignored))
}

fn answer(
    generator: &Generator,
    request: &Request,
    head: &Head,
    interrupted: &mut Interrupt<'_>,
) -> Result<Text, Failure> {
    let Vectors { all, num_tokens } = of_input(generator, request, interrupted)?;
    let in_base64 = request.text("encoding_format") == Some(BASE64);
    let mut text = Text::begin(head, "data")?;
    for (index, vector) in all.iter().enumerate() {
        let embedding = if in_base64 { Written::Base64(base64(vector)) } else { Written::Numbers(vector) };
        text.item(&Item { index, object: "embedding", embedding })?;
    }
    text.end("usage", &usage(num_tokens))
}

/// The vectors of the field `input`, as short and as long as the request says.
///
/// # Errors
/// As for [`vectors`], and when a field contradicts the model or another one.
pub(super) fn of_input(
    generator: &Generator,
    request: &Request,
    interrupted: &mut Interrupt<'_>,
) -> Result<Vectors, Failure> {
    let normalizes =
        either(("use_activation", request.flag("use_activation")), ("normalize", request.flag("normalize")))?;
    let size = generator.engine().model().hidden_size();
    let dimensions = request.count("dimensions").unwrap_or(size);
    if dimensions > size {
        let message =
            format!("`dimensions` must be at most {size}, the size of the vectors, but is {dimensions}");
        return Err(Failure::invalid("dimensions", message));
    }
    let texts = prompts::listed(request, "input", MAX_INPUTS)?;
    let mut vectors = vectors(generator, request, "input", texts, interrupted)?;
    for vector in &mut vectors.all {
        vector.truncate(dimensions);
        if normalizes.unwrap_or(true) {
            to_unit_length(vector);
        }
    }
    Ok(vectors)
}

/// The vectors of the texts of a field, as the request says.
///
/// # Errors
/// When a text cannot be encoded or is longer than the context, or the answer may not fit into the available memory;
/// when interrupted.
pub(super) fn vectors(
    generator: &Generator,
    request: &Request,
    field: &str,
    texts: Vec<Prompt>,
    interrupted: &mut Interrupt<'_>,
) -> Result<Vectors, Failure> {
    let model = generator.engine().model();
    check_vectors(texts.len(), model.hidden_size())?;
    let encoded = prompts::encode(generator, request, texts, interrupted);
    let encoded = encoded.map_err(|failure| failure.renamed("prompt", field))?;
    let context = prompts::context(generator);
    for (index, len) in encoded.iter().map(|prompt| prompt.ids.len()).enumerate() {
        if model.encoder().is_none() && len > context {
            let message = format!(
                "`{field}` has {len} tokens, but the context holds {context}; shorten it, or set \
                 `truncate_prompt_tokens`"
            );
            let failure = Failure::invalid(field, message).with_code("context_length_exceeded");
            return Err(prompts::named(failure, index, encoded.len()));
        }
    }
    let num_tokens = encoded.iter().map(|prompt| prompt.ids.len()).sum();
    let pooling = match request.text("pooling") {
        Some("last") => Pooling::Last,
        Some("cls") => Pooling::Cls,
        _ => Pooling::Mean,
    };
    let layer = request.integer("layer").unwrap_or(-1);
    let adapted = request.adapter.as_ref().map(|name| generator.with_adapter(name)).transpose()?;
    let texts = encoded.into_iter().map(|prompt| Prompt::Ids(prompt.ids));
    let salt = request.cache_salt();
    let generator = adapted.as_ref().unwrap_or(generator);
    let all = generator.pool_texts(texts, pooling, layer, salt.as_ref(), interrupted)?;
    request.embedded(num_tokens);
    Ok(Vectors { all, num_tokens })
}

impl Head {
    pub(super) fn new(app: &App, request: &Request, kind: &str) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            id: app.state.new_id(kind),
            object: "list",
            created: now.unwrap_or_default().as_secs(),
            model: request.model(app),
        }
    }
}

/// The tokens of an answer that generates none.
pub(super) fn usage(num_tokens: usize) -> Value {
    json!({ "prompt_tokens": num_tokens, "total_tokens": num_tokens, "completion_tokens": 0 })
}

/// The bytes of numbers, the lowest of each first, in base64.
fn base64(numbers: &[f32]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let byte = |index: usize| u32::from(part.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= part.len() { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_base64_with_the_lowest_byte_first() {
        for (numbers, text) in [
            (&[][..], ""),
            (&[1.0], "AACAPw=="),
            (&[1.0, -2.5], "AACAPwAAIMA="),
            (&[0.0, f32::MAX, -0.0], "AAAAAP//f38AAACA"),
        ] {
            assert_eq!(base64(numbers), text, "{numbers:?}");
        }
    }
}
