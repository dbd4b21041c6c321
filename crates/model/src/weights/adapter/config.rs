//! The fields of `adapter_config.json` that decide what is merged. All others are about training.

use regex::Regex;
use serde_json::{Map, Value};

use super::super::fields::Fields;
use rsgen_core::error::{Error, Result};
use rsgen_core::json::{object, shown};

/// The largest file.
const MAX_BYTES: usize = 1 << 20;
/// The largest rank: that of the widest matrix.
const MAX_RANK: usize = 1 << 20;
/// The largest `lora_alpha`.
const MAX_ALPHA: f64 = 1e9;
/// The most patterns, and the memory that a compiled one may take.
const MAX_PATTERNS: usize = 2000;
const MAX_PATTERN_BYTES: usize = 1 << 18;

/// Fields that change what an adapter computes in ways that are not supported, unless they are unset.
const UNSUPPORTED: [&str; 15] = [
    "use_dora",
    "use_qalora",
    "lora_bias",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
    "use_bdlora",
    "velora_config",
    "monteclora_config",
    "kasa_config",
    "megatron_config",
    "use_vera",
    "xlora_depth",
];

/// The configuration of an adapter.
#[derive(Debug, Clone)]
pub struct AdapterConfig {
    /// The rank of modules without a pattern of their own.
    pub r: usize,
    /// The alpha of modules without a pattern of their own: a module's product is scaled by alpha / rank.
    pub lora_alpha: f64,
    /// Whether products are divided by the square root of the rank instead of the rank.
    pub use_rslora: bool,
    /// The model that it was trained for.
    pub base_model: Option<String>,
    /// The modules that it changes, as its file names them; empty when it names them by an expression.
    pub target_modules: Vec<String>,
    /// The modules that it holds as a whole.
    pub modules_to_save: Vec<String>,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
}

impl AdapterConfig {
    /// Reads the text of an `adapter_config.json`.
    ///
    /// # Errors
    /// `Load`, naming the field, its rule and the value.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let raw = object(text, MAX_BYTES)?;
        let fields = Fields::new(&raw, "");
        if fields.text("peft_type")? != Some("LORA") {
            return Err(fields.wrong("peft_type", "\"LORA\", the one kind of adapter that is supported"));
        }
        for name in UNSUPPORTED {
            if fields.get(name).is_some_and(is_set) {
                return Err(unsupported(&raw, name, "unset"));
            }
        }
        if !matches!(fields.text("bias")?, None | Some("none")) {
            return Err(unsupported(&raw, "bias", "\"none\""));
        }
        match fields.get("init_lora_weights") {
            None | Some(Value::Bool(_)) => {}
            Some(Value::String(name))
                if ["gaussian", "eva", "orthogonal"].contains(&&*name.to_lowercase()) => {}
            Some(_) => {
                let rule = "true, false, \"gaussian\", \"eva\" or \"orthogonal\"";
                return Err(unsupported(&raw, "init_lora_weights", rule));
            }
        }
        let rank = |fields: Fields<'_>, name: &str| fields.integer(name, 1..=MAX_RANK);
        let alpha = |fields: Fields<'_>, name: &str| alpha(fields, name);
        Ok(Self {
            r: rank(fields, "r")?.unwrap_or(8),
            lora_alpha: alpha(fields, "lora_alpha")?.unwrap_or(8.0),
            use_rslora: fields.flag("use_rslora")?.unwrap_or(false),
            base_model: fields.text("base_model_name_or_path")?.map(str::to_owned),
            target_modules: names(fields.get("target_modules")),
            modules_to_save: names(fields.get("modules_to_save")),
            ranks: patterns(fields, "rank_pattern", rank)?,
            alphas: patterns(fields, "alpha_pattern", alpha)?,
        })
    }

    /// The rank of a module, such as `model.layers.0.self_attn.q_proj`.
    pub(super) fn rank(&self, module: &str) -> usize {
        find(&self.ranks, module).unwrap_or(self.r)
    }

    /// The scale of a module's product.
    pub(super) fn scale(&self, module: &str) -> f64 {
        let rank = self.rank(module) as f64;
        let alpha = find(&self.alphas, module).unwrap_or(self.lora_alpha);
        if self.use_rslora { alpha / rank.sqrt() } else { alpha / rank }
    }

    /// Whether the adapter holds this module as a whole.
    pub(super) fn saves(&self, module: &str) -> bool {
        self.modules_to_save.iter().any(|name| module.ends_with(&**name))
    }
}

/// Whether a field is set.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    }
}

fn unsupported(raw: &Map<String, Value>, name: &str, rule: &str) -> Error {
    let found = raw.get(name).map_or_else(|| "nothing".to_owned(), shown);
    Error::load(format!(
        "{name} must be {rule}, found {found}, which is not supported; merge the adapter with PEFT, by \
         `merge_and_unload()` and `save_pretrained(folder)`, and open that folder"
    ))
}

fn alpha(fields: Fields<'_>, name: &str) -> Result<Option<f64>> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    let number = value.as_f64().filter(|number| number.abs() <= MAX_ALPHA);
    number.map(Some).ok_or_else(|| fields.wrong(name, &format!("a number of at most {MAX_ALPHA:e}")))
}

/// The names of a list, or the one in place of a list.
fn names(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// An object of patterns of module names, each the end of a name after a dot or all of it.
fn patterns<T>(
    fields: Fields<'_>,
    name: &str,
    read: impl Fn(Fields<'_>, &str) -> Result<Option<T>>,
) -> Result<Vec<(Regex, T)>> {
    let Some(value) = fields.get(name) else { return Ok(Vec::new()) };
    let Value::Object(map) = value else { return Err(fields.wrong(name, "an object of patterns")) };
    if map.len() > MAX_PATTERNS {
        return Err(fields.wrong(name, &format!("an object of at most {MAX_PATTERNS} patterns")));
    }
    let prefix = format!("{name}.");
    let mut found = Vec::with_capacity(map.len());
    for pattern in map.keys() {
        let inner = Fields::new(map, &prefix);
        let anchored = regex::RegexBuilder::new(&format!(r"^(?:(.*\.)?(?:{pattern}))$"))
            .size_limit(MAX_PATTERN_BYTES)
            .build()
            .map_err(|error| inner.wrong(pattern, "named by a regular expression").with_source(error))?;
        let value = read(inner, pattern)?.ok_or_else(|| inner.wrong(pattern, "a number"))?;
        found.push((anchored, value));
    }
    Ok(found)
}

/// The value of the first pattern that fits.
fn find<T: Copy>(patterns: &[(Regex, T)], module: &str) -> Option<T> {
    patterns.iter().find(|(pattern, _)| pattern.is_match(module)).map(|&(_, value)| value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(mut fields: Value) -> Result<AdapterConfig> {
        fields.as_object_mut().unwrap().entry("peft_type").or_insert(json!("LORA"));
        AdapterConfig::from_json(fields.to_string().as_bytes())
    }

    #[test]
    fn patterns_give_modules_a_rank_and_a_scale_of_their_own() {
        let config = read(json!({
            "r": 8, "lora_alpha": 16,
            "rank_pattern": {"q_proj": 4, r"model\.layers\.1\.mlp\..*": 2},
            "alpha_pattern": {"layers.0.self_attn.q_proj": 2.5},
        }))
        .unwrap();
        let (q, k) = ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj");
        assert_eq!((config.rank(q), config.scale(q)), (4, 2.5 / 4.0));
        assert_eq!((config.rank(k), config.scale(k)), (8, 2.0));
        assert_eq!(config.rank("model.layers.1.self_attn.q_proj"), 4);
        assert_eq!(config.scale("model.layers.1.mlp.up_proj"), 8.0);
        // A name that only ends like a pattern is another module.
        assert_eq!(config.rank("model.layers.0.self_attn.new_q_proj"), 8);
        let rooted = read(json!({"r": 4, "lora_alpha": 6, "use_rslora": true})).unwrap();
        assert_eq!(rooted.scale(q), 3.0);
    }

    #[test]
    fn absent_and_empty_fields_have_the_defaults_of_peft() {
        let config = read(json!({"loftq_config": {}, "use_dora": false, "layer_replication": null})).unwrap();
        assert_eq!((config.r, config.lora_alpha, config.use_rslora), (8, 8.0, false));
    }

    #[test]
    fn what_is_no_plain_lora_is_named_with_its_remedy() {
        for (fields, field) in [
            (json!({"peft_type": "IA3"}), "peft_type"),
            (json!({"use_dora": true}), "use_dora"),
            (json!({"lora_bias": true}), "lora_bias"),
            (json!({"bias": "all"}), "bias"),
            (json!({"init_lora_weights": "pissa_niter_4"}), "init_lora_weights"),
            (json!({"layer_replication": [[0, 4], [2, 5]]}), "layer_replication"),
            (json!({"target_parameters": ["mlp.experts"]}), "target_parameters"),
            (json!({"r": 0}), "r must be"),
            (json!({"lora_alpha": "big"}), "lora_alpha"),
            (json!({"rank_pattern": {"q_proj": 0}}), "rank_pattern.q_proj"),
            (json!({"rank_pattern": {"q_(": 4}}), "rank_pattern.q_("),
            (json!({"alpha_pattern": [1]}), "alpha_pattern"),
        ] {
            let error = read(fields).unwrap_err().to_string();
            assert!(error.contains(field) && error.contains("found"), "{error}");
        }
    }
}
