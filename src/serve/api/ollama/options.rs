//! Ollama's options, `format` and `think` as fields of OpenAI's routes.

use serde_json::{Map, Value, json};

use super::super::request::Request;
use super::super::single::Names;
use crate::serve::failure::Failure;
use rsgen_generation::config::integer;
use rsgen_generation::{FieldValue, GenerationConfig};

/// The fields of OpenAI's routes, and the options that set them.
pub(super) const NAMES: Names = &[
    ("max_tokens", "options.num_predict"),
    ("repetition_penalty", "options.repeat_penalty"),
    ("temperature", "options.temperature"),
    ("top_k", "options.top_k"),
    ("top_p", "options.top_p"),
    ("min_p", "options.min_p"),
    ("typical_p", "options.typical_p"),
    ("presence_penalty", "options.presence_penalty"),
    ("frequency_penalty", "options.frequency_penalty"),
    ("seed", "options.seed"),
    ("stop", "options.stop"),
    ("response_format", "format"),
];

/// How much a model may think.
const EFFORTS: [&str; 3] = ["low", "medium", "high"];

/// Options about the machine and the memory, and those that only others of these options use.
const WITHOUT_EFFECT: &[&str] = &[
    "embedding_only",
    "f16_kv",
    "logits_all",
    "low_vram",
    "main_gpu",
    "mirostat_eta",
    "mirostat_tau",
    "num_batch",
    "num_ctx",
    "num_gpu",
    "num_keep",
    "num_thread",
    "numa",
    "penalize_newline",
    "use_mlock",
    "use_mmap",
    "vocab_only",
];

/// Adds the options of a request, its format, and whether it thinks.
///
/// # Errors
/// For an option that would change the answer and is not supported.
pub(super) fn add(
    request: &Request,
    fields: &mut Map<String, Value>,
    strict: bool,
    ignored: &mut Vec<String>,
) -> Result<(), Failure> {
    let none = Map::new();
    let options = request.get("options").and_then(Value::as_object).unwrap_or(&none);
    let mut is_plain = true;
    for (name, value) in options.iter().filter(|(_, value)| !value.is_null()) {
        let at = format!("options.{name}");
        let known = NAMES.iter().find(|(_, own)| *own == at);
        match (&**name, known) {
            ("num_predict", _) if matches!(integer(value), Some(-1 | -2)) => {}
            ("seed", _) if integer(value).is_some_and(|seed| seed < 0) => {}
            ("num_ctx", _) if integer(value).is_none_or(|size| size < 1) => {
                let value = FieldValue::from(value.clone());
                let message = format!("`{at}` must be an integer of 1 or more, but is {value}");
                return Err(Failure::invalid(at, message));
            }
            ("repeat_last_n", _) => check_window(options, &at, value)?,
            ("repeat_penalty", _) if options.get("repeat_last_n").and_then(integer) == Some(0) => {}
            (_, Some((field, _))) => {
                fields.insert((*field).to_owned(), value.clone());
            }
            (name, None) if WITHOUT_EFFECT.contains(&name) => {}
            ("num_return_sequences", None) if integer(value) != Some(1) => {
                let message = format!("`{at}` must be 1: an answer here is one; leave it out");
                return Err(Failure::unsupported(at, message));
            }
            (name, None) if GenerationConfig::is_field(name) => {
                is_plain = false;
                fields.insert(name.to_owned(), value.clone());
            }
            (name, None) => Request::check_foreign(&at, (name, value), strict, ignored)
                .map_err(|failure| failure.renamed(name, &at))?,
        }
    }
    let is_greedy = options.get("temperature").and_then(Value::as_f64) == Some(0.0);
    if is_plain && !is_greedy {
        // Ollama's own defaults, where no other strategy is asked for.
        for (name, value) in [("temperature", json!(0.8)), ("top_k", json!(40)), ("top_p", json!(0.9))] {
            fields.entry(name).or_insert(value);
        }
    }
    add_format(request, fields)?;
    match request.get("think") {
        None => {}
        Some(Value::Bool(thinks)) => {
            fields.insert("chat_template_kwargs".to_owned(), json!({ "enable_thinking": thinks }));
        }
        Some(Value::String(effort)) if EFFORTS.contains(&&**effort) => {
            fields.insert("chat_template_kwargs".to_owned(), json!({ "enable_thinking": true }));
            fields.insert("reasoning_effort".to_owned(), effort.as_str().into());
        }
        Some(think) => {
            let message = format!(
                "`think` must be true, false, \"low\", \"medium\" or \"high\", but is {}",
                FieldValue::from(think.clone())
            );
            return Err(Failure::invalid("think", message));
        }
    }
    Ok(())
}

/// Penalties here are about all tokens of a sequence.
fn check_window(options: &Map<String, Value>, at: &str, value: &Value) -> Result<(), Failure> {
    let penalties = [("repeat_penalty", 1.0), ("presence_penalty", 0.0), ("frequency_penalty", 0.0)];
    let penalizes = penalties.into_iter().any(|(name, neutral)| {
        let given = options.get(name).filter(|value| !value.is_null());
        given.is_some_and(|value| value.as_f64() != Some(neutral))
    });
    match integer(value) {
        Some(-1 | 0) => Ok(()),
        Some(_) if !penalizes => Ok(()),
        _ => {
            let message = format!(
                "`{at}` must be -1 or 0, but is {}: a penalty is about all tokens; leave it out, or set it to -1",
                FieldValue::from(value.clone())
            );
            Err(Failure::unsupported(at, message))
        }
    }
}

fn add_format(request: &Request, fields: &mut Map<String, Value>) -> Result<(), Failure> {
    let format = match request.get("format") {
        None => return Ok(()),
        Some(Value::String(word)) if word.is_empty() => return Ok(()),
        Some(Value::String(word)) if word == "json" => json!({ "type": "json_object" }),
        Some(schema @ Value::Object(_)) => {
            json!({ "type": "json_schema", "json_schema": { "schema": schema } })
        }
        Some(other) => {
            let other = FieldValue::from(other.clone());
            let message = format!("`format` must be \"json\" or a JSON schema, but is {other}");
            return Err(Failure::invalid("format", message));
        }
    };
    fields.insert("response_format".to_owned(), format);
    Ok(())
}
