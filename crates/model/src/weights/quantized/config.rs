//! `quantization_config`, and what other writers have in its place.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::super::source::{MAX_TEXT_BYTES, ModelFiles};
use super::{FORMATS, fields};
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_core::json::{read_object, shown};

/// The method of models that MLX has converted, which name none.
pub(super) const MLX: &str = "mlx";
/// The fields of config.json: that of transformers, and that of MLX.
const FIELDS: [&str; 3] = ["quantization_config", "compression_config", "quantization"];
/// The file that GPTQ models had beside config.json.
const FILE: &str = "quantize_config.json";

/// What helps where a checkpoint is not read.
const REMEDY: &str = "use the checkpoint in bfloat16, or its GGUF file";

/// Methods that are known and not supported.
const REFUSED: &[&str] = &[
    "aqlm",
    "auto-round",
    "bitnet",
    "eetq",
    "exl2",
    "exl3",
    "fbgemm_fp8",
    "fouroversix",
    "fp_quant",
    "higgs",
    "hqq",
    "modelopt",
    "quanto",
    "quark",
    "sinq",
    "spqr",
    "torchao",
    "vptq",
];

/// Refuses a configuration of weights that are stored in a way that is not supported.
///
/// # Errors
/// `Load`, naming the method.
pub(in super::super) fn check(config: &Map<String, Value>) -> Result<()> {
    match in_config(config)? {
        Some(config) => method(&config).map(|_| ()),
        None => Ok(()),
    }
}

/// The quantization of a model's files, if they have one.
///
/// # Errors
/// `Load` when a file cannot be read, or the method is not supported.
pub(in super::super) fn find(files: &ModelFiles) -> Result<Option<Map<String, Value>>> {
    let Some(text) = files.read_optional("config.json")? else { return Ok(None) };
    let config = read_object("config.json", &text, MAX_TEXT_BYTES)?;
    if let Some(config) = in_config(&config)? {
        return Ok(Some(config.into_owned()));
    }
    let Some(text) = files.read_optional(FILE)? else { return Ok(None) };
    let mut config = read_object(FILE, &text, MAX_TEXT_BYTES)?;
    // AWQ's writer has the same file name, with fields of its own.
    let method = if config.contains_key("zero_point") { "awq" } else { "gptq" };
    config.entry("quant_method").or_insert_with(|| method.into());
    Ok(Some(config))
}

/// The one in config.json, of the model or of its text decoder.
///
/// # Errors
/// `Load` when it is no object.
fn in_config(config: &Map<String, Value>) -> Result<Option<Cow<'_, Map<String, Value>>>> {
    let places = [Some(config), config.get("text_config").and_then(Value::as_object)];
    let mut found = places.into_iter().flatten().flat_map(|config| {
        FIELDS.iter().filter_map(|&field| Some((field, config.get(field).filter(|value| !value.is_null())?)))
    });
    let Some((field, value)) = found.next() else { return Ok(None) };
    let Some(found) = value.as_object() else {
        return Err(Error::load(format!(
            "config.json: {field} must be an object, found {}; {REMEDY}",
            shown(value)
        )));
    };
    if field == "quantization"
        || !found.contains_key("quant_method")
            && found.contains_key("group_size")
            && !found.contains_key("sym")
    {
        let mut found = found.clone();
        found.insert("quant_method".to_owned(), MLX.into());
        return Ok(Some(Cow::Owned(found)));
    }
    Ok(Some(Cow::Borrowed(found)))
}

/// The method of a configuration, whose fields are checked.
///
/// # Errors
/// `Load` when it is none of those that are supported, or a field is against its rule.
pub(super) fn method(config: &Map<String, Value>) -> Result<&str> {
    let named = config.get("quant_method").filter(|method| !method.is_null());
    // Those of bitsandbytes were without it at first.
    let is_bitsandbytes = ["load_in_4bit", "load_in_8bit"].iter().any(|field| config.contains_key(*field));
    let method = match named.map(Value::as_str) {
        None if is_bitsandbytes => "bitsandbytes",
        Some(Some(method)) => method,
        None => {
            return Err(Error::load(format!("quantization_config: quant_method must be given; {REMEDY}")));
        }
        Some(None) => return Err(wrong("quant_method", "a text", named.unwrap_or(&Value::Null))),
    };
    if let Some((name, fields, _)) = FORMATS.iter().find(|(name, ..)| *name == method) {
        fields::check(fields, config, "")?;
        let modules = config.iter().filter(|_| *name == MLX);
        for (module, own) in modules.filter_map(|(module, own)| Some((module, own.as_object()?))) {
            fields::check(fields, own, &format!("{}.", escape::name(module)))?;
        }
        return Ok(name);
    }
    let known = if REFUSED.contains(&method) { "" } else { " (an unknown method)" };
    let names: Vec<_> = FORMATS.iter().map(|(name, ..)| *name).collect();
    Err(Error::load(format!(
        "quantization_config: weights that are stored by the quant_method {}{known} are not supported; {REMEDY}, or one by {}",
        shown(&method.into()),
        names.join(", ")
    )))
}

/// A whole number of the configuration.
///
/// # Errors
/// `Load` when it is no whole number from 0 on.
pub(super) fn integer(config: &Map<String, Value>, field: &str) -> Result<Option<usize>> {
    match config.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|value| usize::try_from(value).ok()) {
            Some(value) => Ok(Some(value)),
            None => Err(wrong(field, "a whole number", value)),
        },
    }
}

/// The error of a field.
pub(super) fn wrong(field: &str, rule: &str, value: &Value) -> Error {
    Error::load(format!("quantization_config: {field} must be {rule}, found {}; {REMEDY}", shown(value)))
}
