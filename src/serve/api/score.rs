//! `POST /v1/score` and `POST /v1/rerank` as vLLM has them, and Jina: how alike texts are.
//!
//! The score of two texts is the cosine of their vectors, as vLLM scores with models that are not trained to score.

use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;

use super::embeddings::{Head, Vectors, usage, vectors};
use super::fields::{BOOL, Field, Kind, MAX_INPUTS, POOLED, RERANK, Routes, SCORE, TEXT, field, integer};
use super::request::Request;
use super::text::Text;
use super::usage::with_ignored;
use crate::engine::Interrupt;
use crate::generator::{Generator, Prompt};
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json::Admitted;
use crate::serve::work;
use rsgen_generation::config::{FieldKind, MAX_COUNT};

/// The names that the two lists of texts may have.
const PAIRS: [(&str, &str); 4] =
    [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")];

const TEXTS: Kind = Kind::Of(FieldKind::OneOrMany(&FieldKind::TEXT, MAX_INPUTS));
const DOCUMENTS: Kind =
    Kind::Of(FieldKind::List(&FieldKind::AnyOf(&[FieldKind::TEXT, FieldKind::Object]), MAX_INPUTS));

#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    field(SCORE, "text_1", TEXTS, "required", "", "A text, or a list of up to 2048. One text is compared with each of `text_2`, several with one each."),
    field(SCORE, "text_2", TEXTS, "required", "", "A text, or a list of up to 2048."),
    field(SCORE, "queries", TEXTS, "unset", "", "The same as `text_1`, with `documents` or `items`."),
    field(SCORE, "documents", TEXTS, "unset", "", "The same as `text_2`, with `queries`."),
    field(SCORE, "items", TEXTS, "unset", "", "The same as `text_2`, with `queries`."),
    field(SCORE, "data_1", TEXTS, "unset", "", "The same as `text_1`, with `data_2`."),
    field(SCORE, "data_2", TEXTS, "unset", "", "The same as `text_2`, with `data_1`."),
    field(RERANK, "query", TEXT, "required", "", "The text that documents are compared with."),
    field(RERANK, "documents", DOCUMENTS, "required", "", "Up to 2048 texts, or objects with a `text`."),
    field(RERANK, "top_n", integer(0, MAX_COUNT), "all", "", "The most documents of the answer; 0 is all."),
    field(RERANK, "return_documents", BOOL, "true", "", "Whether results have the text of their document."),
    field(POOLED & !super::fields::EMBEDDINGS, "use_activation", BOOL, "true", "", "Accepted without effect: a cosine is between -1 and 1."),
];

#[derive(Serialize)]
struct Pair {
    index: usize,
    object: &'static str,
    score: f64,
}

#[derive(Serialize)]
struct Ranked<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Document<'a>>,
    relevance_score: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    text: &'a str,
}

/// The head of a ranking.
#[derive(Serialize)]
struct RankingHead {
    id: String,
    model: String,
}

/// Scores pairs of texts.
pub(super) async fn score(admitted: Admitted) -> Result<Response, Failure> {
    answer(admitted, SCORE, |app, request| {
        let head = Head::new(app, request, "score");
        Box::new(move |generator, request, interrupted| scored(generator, request, &head, interrupted))
    })
    .await
}

/// Orders documents by their likeness to a query.
pub(super) async fn rerank(admitted: Admitted) -> Result<Response, Failure> {
    answer(admitted, RERANK, |app, request| {
        let head = RankingHead { id: app.state.new_id("rerank"), model: request.model(app) };
        Box::new(move |generator, request, interrupted| ranked(generator, request, &head, interrupted))
    })
    .await
}

type Work = Box<dyn FnOnce(&Generator, &Request, &mut Interrupt<'_>) -> Result<Text, Failure> + Send>;

async fn answer(
    admitted: Admitted,
    route: Routes,
    work: fn(&App, &Request) -> Work,
) -> Result<Response, Failure> {
    let Admitted { app, fields, place, tenant } = admitted;
    let request = Request::new(&app, route, fields)?.of(tenant).at(&place);
    let ignored = request.ignored().to_vec();
    let work = work(&app, &request);
    let answered =
        work::run(&app, place, move |generator, interrupted| Ok(work(generator, &request, interrupted)));
    let text = answered.await?.map_err(|failure| app.public(failure))?;
    Ok(with_ignored(text.into_response(), &ignored))
}

fn scored(
    generator: &Generator,
    request: &Request,
    head: &Head,
    interrupted: &mut Interrupt<'_>,
) -> Result<Text, Failure> {
    let (first, second) = pair(request)?;
    let [texts, others] = [first, second].map(|name| request.texts(name));
    for (name, texts) in [(first, &texts), (second, &others)] {
        if texts.is_empty() {
            let message = format!("`{name}` must hold at least one text, but is empty");
            return Err(Failure::invalid(name, message));
        }
    }
    if texts.len() != 1 && texts.len() != others.len() {
        let message = format!(
            "`{first}` must hold one text, or as many as `{second}`, but holds {}, and `{second}` {}",
            texts.len(),
            others.len()
        );
        return Err(Failure::invalid(first, message));
    }
    let mut embed = |name, texts: Vec<String>| {
        let texts = texts.into_iter().map(Prompt::Text).collect();
        vectors(generator, request, name, texts, interrupted)
    };
    let (a, b) = (embed(first, texts)?, embed(second, others)?);
    let mut text = Text::begin(head, "data")?;
    for (index, vector) in b.all.iter().enumerate() {
        let other = if a.all.len() == 1 { &a.all[0] } else { &a.all[index] };
        text.item(&Pair { index, object: "score", score: cosine(other, vector) })?;
    }
    text.end("usage", &usage(a.num_tokens + b.num_tokens))
}

/// The names of the two lists that a request has.
fn pair(request: &Request) -> Result<(&'static str, &'static str), Failure> {
    let given = |name: &str| request.get(name).is_some();
    let (first, second) = *PAIRS
        .iter()
        .find(|(first, second)| given(first) && given(second))
        .or_else(|| PAIRS.iter().find(|(first, second)| given(first) || given(second)))
        .unwrap_or(&PAIRS[0]);
    for name in [first, second] {
        if !given(name) {
            return Err(request.missing(name, "a text, or a list of texts"));
        }
    }
    let others = PAIRS.iter().flat_map(|(first, second)| [*first, *second]);
    match others.filter(|name| *name != first && *name != second).find(|name| given(name)) {
        None => Ok((first, second)),
        Some(other) => {
            let message = format!(
                "`{other}` has no place beside `{first}` and `{second}`; give the texts under one pair of names"
            );
            Err(Failure::invalid(other, message))
        }
    }
}

fn ranked(
    generator: &Generator,
    request: &Request,
    head: &RankingHead,
    interrupted: &mut Interrupt<'_>,
) -> Result<Text, Failure> {
    let query = request.text("query").ok_or_else(|| request.missing("query", "a text"))?;
    let documents = request.get("documents").and_then(Value::as_array);
    let documents = documents.ok_or_else(|| request.missing("documents", "a list of texts"))?;
    if documents.is_empty() {
        let message = "`documents` must hold at least one document, but is empty";
        return Err(Failure::invalid("documents", message));
    }
    let documents: Vec<&str> = documents.iter().enumerate().map(document).collect::<Result<_, Failure>>()?;
    let mut embed = |name, texts: Vec<Prompt>| vectors(generator, request, name, texts, interrupted);
    let queries: Vectors = embed("query", vec![Prompt::Text(query.to_owned())])?;
    let texts = documents.iter().map(|&text| Prompt::Text(text.to_owned())).collect();
    let found = embed("documents", texts)?;
    let scores = found.all.iter().map(|vector| cosine(&queries.all[0], vector));
    let mut scores: Vec<(usize, f64)> = scores.enumerate().collect();
    // Stable: those of one score keep their order.
    scores.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let most = request.count("top_n").filter(|&most| most > 0).unwrap_or(scores.len());
    let returns = request.flag("return_documents").unwrap_or(true);
    let mut text = Text::begin(head, "results")?;
    for &(index, relevance_score) in scores.iter().take(most) {
        let document = returns.then(|| Document { text: documents[index] });
        text.item(&Ranked { index, document, relevance_score })?;
    }
    text.end("usage", &usage(queries.num_tokens + found.num_tokens))
}

/// The text of a document.
fn document((index, value): (usize, &Value)) -> Result<&str, Failure> {
    let at = format!("documents[{index}]");
    match value {
        Value::String(text) => Ok(text),
        Value::Object(fields) => match fields.get("text") {
            Some(Value::String(text)) => Ok(text),
            _ if fields.contains_key("image") => {
                let message = format!("`{at}` is an image, but the model reads text alone; leave it out");
                Err(Failure::unsupported(at, message))
            }
            _ => {
                let message = format!("`{at}` must have `text`, which is a text");
                Err(Failure::invalid(at, message))
            }
        },
        _ => Err(Failure::invalid(&*at, format!("`{at}` must be a text, or an object with a `text`"))),
    }
}

/// The cosine of the angle between two vectors.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum() };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-12)
}
