//! `POST /rsgen/v1/translate`, with all fields of `generate()`; `POST /translate` and `GET /languages` as
//! LibreTranslate has them.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};

use super::decoding::named;
use super::fields::{LIBRETRANSLATE, TRANSLATE};
use super::generate;
use super::request::Request;
use super::text::Text;
use super::usage::with_ignored;
use crate::engine::{GenerationOutput, Interrupt};
use crate::generator::{Call, Generator, Prepared, Prompts};
use crate::serve::failure::Failure;
use crate::serve::forms::{ALTERNATIVES, TEXTS};
use crate::serve::json::{Admitted, Named};
use crate::serve::work;
use rsgen_generation::GenerationConfig;
use rsgen_text::LanguagePlace;

/// The most rows of a request: those of its texts, or of the sentences that they are split into.
const MAX_ROWS: usize = 8192;
/// A language that the model decides.
const AUTO: &str = "auto";

/// Translates as `Generator.translate` does.
pub(super) async fn translate(admitted: Admitted) -> Result<Response, Failure> {
    generate::answer(admitted, TRANSLATE).await
}

/// Translates as LibreTranslate does: sentence by sentence.
pub(super) async fn libretranslate(admitted: Admitted) -> Result<Response, Failure> {
    let Admitted { app, fields, place, tenant } = admitted;
    let request = Request::new(&app, LIBRETRANSLATE, fields)?.of(tenant);
    check(&app.generator)?;
    let ignored = request.ignored().to_vec();
    let held = place.clone();
    let translated = work::run(&app, place, move |generator, interrupted| {
        let answer = of_libretranslate(generator, &request, interrupted).and_then(|output| {
            let mut text = Text::default();
            text.push(&written(&request, &output))?;
            Ok((text, output))
        });
        Ok(answer)
    });
    let (text, output) = translated.await?.map_err(|failure| app.public(failure))?;
    app.metrics.finished(&held, &output);
    Ok(with_ignored(text.into_response(), &ignored))
}

/// The languages, each with those that it is translated into.
pub(super) async fn languages(Named(app): Named) -> Result<Json<Value>, Failure> {
    check(&app.generator)?;
    let known = Languages::of(&app.generator);
    let mut all: Vec<&String> = known.sources.iter().collect();
    all.extend(known.targets.iter().filter(|target| !known.sources.contains(target)));
    let language = |code: &String| {
        let targets = if known.sources.contains(code) { &known.targets[..] } else { &[] };
        json!({ "code": code, "name": code, "targets": targets })
    };
    Ok(Json(all.into_iter().map(language).collect()))
}

/// Refuses to detect a language, in LibreTranslate's form.
pub(super) async fn detect() -> Failure {
    Failure::bad_request("this server detects no languages; name the `source` of a text, one of `/languages`")
}

/// Refuses a request to a model that does not translate.
///
/// # Errors
/// 400.
pub(super) fn check(generator: &Generator) -> Result<(), Failure> {
    if generator.has_encoder() {
        return Ok(());
    }
    let message = "`model`: the served model has no encoder to translate with; ask it by `/v1/completions`, and say in \
                   the prompt what to do";
    Err(Failure::invalid("model", message))
}

/// The texts of a request: one, or a list.
///
/// # Errors
/// When there is none.
pub(super) fn texts(request: &Request, field: &str) -> Result<Prompts, Failure> {
    let is_list = request.get(field).is_some_and(Value::is_array);
    let mut texts = request.texts(field);
    match texts.len() {
        0 => Err(request.missing(field, "a text, or a list of texts")),
        1 if !is_list => Ok(Prompts::from(texts.swap_remove(0))),
        _ => Ok(Prompts::from(texts)),
    }
}

/// Prepares a translation, and checks its size.
///
/// # Errors
/// As for the call, and when its answer may be too long.
pub(super) fn prepare<'a>(
    generator: &'a Generator,
    request: &Request,
    (mut call, config): (Call<'a>, &GenerationConfig),
    splits: bool,
    interrupted: &mut Interrupt<'_>,
) -> Result<Prepared<'a>, Failure> {
    if splits {
        call = call.split_sentences();
    }
    if let Some(salt) = request.cache_salt() {
        call = call.cache_salt(salt);
    }
    let prepared = call.config(config).prepare(true, interrupted).map_err(|error| named(error, request))?;
    let rows = prepared.num_rows();
    if rows > MAX_ROWS {
        let message = format!(
            "a request translates at most {MAX_ROWS} rows, but its texts or sentences times rows are {rows}; make several requests"
        );
        return Err(Failure::bad_request(message));
    }
    let merged = config.merged_over(generator.generation_config());
    generate::check_answer(generator, &merged, rows)?;
    Ok(prepared)
}

fn of_libretranslate(
    generator: &Generator,
    request: &Request,
    interrupted: &mut Interrupt<'_>,
) -> Result<GenerationOutput, Failure> {
    let prompts = texts(request, TEXTS)?;
    let known = Languages::of(generator);
    let source = known.own(request, "source", &known.sources)?;
    let target = known.own(request, "target", &known.targets)?;
    let mut config = GenerationConfig::new();
    let wanted = 1 + request.count(ALTERNATIVES).unwrap_or(0);
    if wanted > 1 {
        let beams = generator.generation_config().num_beams.unwrap_or(1);
        (config.num_beams, config.num_return_sequences) = (Some(beams.max(wanted)), Some(wanted));
    }
    let call = generator.call(prompts).translation(source, target);
    let prepared = prepare(generator, request, (call, &config), true, interrupted)?;
    prepared.run(interrupted).map_err(|error| named(error, request))
}

/// The answer to a request of LibreTranslate.
fn written(request: &Request, output: &GenerationOutput) -> Value {
    let alternatives = request.count(ALTERNATIVES).unwrap_or(0);
    let texts: Vec<&str> = output.texts().collect();
    let of_texts = texts.chunks(1 + alternatives);
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for rows in of_texts {
        let mut different: Vec<&str> = Vec::new();
        for &row in rows {
            if !different.contains(&row) {
                different.push(row);
            }
        }
        first.push(Value::from(different.remove(0)));
        others.push(Value::from(different));
    }
    let is_list = request.get(TEXTS).is_some_and(Value::is_array);
    let one_or_many =
        |mut values: Vec<Value>| if is_list { Value::from(values) } else { values.swap_remove(0) };
    let mut answer = Map::new();
    answer.insert("translatedText".to_owned(), one_or_many(first));
    if alternatives > 0 {
        answer.insert("alternatives".to_owned(), one_or_many(others));
    }
    Value::Object(answer)
}

/// The languages of a model as clients of LibreTranslate name them: they always name both.
struct Languages {
    sources: Vec<String>,
    targets: Vec<String>,
    /// Whether the model has tokens for its sources, and for its targets. Otherwise there is no choice.
    has_tokens: [bool; 2],
}

impl Languages {
    fn of(generator: &Generator) -> Self {
        let names = generator.languages();
        let place = generator.tokenizer().ok().and_then(rsgen_text::Tokenizer::language_place);
        let has_tokens = [place.is_some_and(|place| place != LanguagePlace::BeforeSource), place.is_some()];
        let [source, target] = generator.language_pair().map(|name| vec![name.unwrap_or(AUTO).to_owned()]);
        Self {
            sources: if has_tokens[0] { names.clone() } else { source },
            targets: if has_tokens[1] { names } else { target },
            has_tokens,
        }
    }

    /// The language that a field names; `None` where the model has no token for it.
    fn own<'a>(
        &self,
        request: &'a Request,
        field: &'static str,
        known: &[String],
    ) -> Result<Option<&'a str>, Failure> {
        let [of_sources, of_targets] = self.has_tokens;
        let has_token = if field == "source" { of_sources } else { of_targets };
        let name = request.text(field).ok_or_else(|| request.missing(field, "a language of `/languages`"))?;
        if known.iter().any(|known| known == name) || name == AUTO && !has_token {
            return Ok(Some(name).filter(|_| has_token));
        }
        let some: Vec<&str> = known.iter().take(3).map(String::as_str).collect();
        let more = if known.len() > some.len() { ", …" } else { "" };
        let detects = if name == AUTO { "; languages are not detected" } else { "" };
        let message = format!(
            "`{field}` must be a language of this model: {}{more}, but is {name:?}{detects}",
            some.join(", ")
        );
        Err(Failure::invalid(field, message))
    }
}
