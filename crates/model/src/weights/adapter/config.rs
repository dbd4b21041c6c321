//! The fields of `adapter_config.json` that decide what is merged. The others are about training, or refused
//! by name.

use std::collections::HashSet;

use regex::Regex;
use serde_json::{Map, Value};

use super::super::fields::Fields;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
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
/// How often a pattern may be compared with a module: a second.
const MAX_COMPARISONS: usize = 10_000_000;

/// Fields that change what an adapter computes in ways that are not supported, unless they are unset.
const UNSUPPORTED: [&str; 16] = [
    // Of PEFT before 0.3: which parts of a fused matrix have factors.
    "enable_lora",
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

/// Fields that are read below, and those of PEFT 0.21 and before that change nothing once an adapter is
/// trained.
const KNOWN: [&str; 33] = [
    "peft_type",
    "bias",
    "init_lora_weights",
    "r",
    "lora_alpha",
    "use_rslora",
    "base_model_name_or_path",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "ensure_weight_tying",
    "auto_mapping",
    "corda_config",
    "eva_config",
    // PEFT sets it by the kind of the module.
    "fan_in_fan_out",
    "inference_mode",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "merge_weights",
    "modules_mapping",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "save_embedding_layers",
    "subfolder",
    "task_type",
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
    /// Whether embedding and head stay one matrix where the adapter changes one of them.
    pub(super) ensure_weight_tying: bool,
    /// The names of `target_modules`, unless they are not given as a list.
    listed: HashSet<String>,
    exclude_modules: HashSet<String>,
    /// The layers that it changes; all if empty.
    layers_to_transform: HashSet<u64>,
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
        let other = raw.keys().find(|name| !UNSUPPORTED.contains(&&***name) && !KNOWN.contains(&&***name));
        if let Some(name) = other.filter(|name| fields.get(name).is_some_and(is_set)) {
            return Err(unsupported(&raw, name, "absent, as in PEFT 0.21"));
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
            ensure_weight_tying: fields.flag("ensure_weight_tying")?.unwrap_or(false),
            listed: listed(fields.get("target_modules")),
            exclude_modules: listed(fields.get("exclude_modules")),
            layers_to_transform: layers(fields)?,
            ranks: patterns(fields, "rank_pattern", rank)?,
            alphas: patterns(fields, "alpha_pattern", alpha)?,
        })
    }

    /// Fails if there are too many patterns for so many modules.
    ///
    /// # Errors
    /// `Load`.
    pub(super) fn check_patterns(&self, num_modules: usize) -> Result<()> {
        let num_patterns = self.ranks.len() + self.alphas.len();
        if num_patterns * num_modules <= MAX_COMPARISONS {
            return Ok(());
        }
        Err(Error::load(format!(
            "rank_pattern and alpha_pattern must have at most {} patterns for {num_modules} modules, found {num_patterns}; merge \
             the adapter with PEFT, by `merge_and_unload()` and `save_pretrained(folder)`, and open that folder",
            MAX_COMPARISONS / num_modules
        )))
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

    /// Refuses factors for a module that PEFT gives none.
    ///
    /// # Errors
    /// `Load`.
    pub(super) fn check_target(&self, module: &str) -> Result<()> {
        if self.targets(module) {
            return Ok(());
        }
        Err(Error::load(format!(
            "{} has factors, but target_modules, exclude_modules and layers_to_transform of adapter_config.json leave it out, \
             as PEFT would then; correct the file",
            escape::name(module)
        )))
    }

    /// Whether PEFT gives factors to this module. Expressions are not evaluated.
    fn targets(&self, module: &str) -> bool {
        let named = |names: &HashSet<String>| {
            let mut ends = module.match_indices('.').map(|(dot, _)| &module[dot + 1..]);
            names.contains(module) || ends.any(|end| names.contains(end))
        };
        let layer = module.split('.').find_map(|part| part.parse().ok());
        let in_layer = self.layers_to_transform.is_empty()
            || layer.is_some_and(|layer| self.layers_to_transform.contains(&layer));
        let is_target = self.listed.is_empty() || named(&self.listed);
        is_target && in_layer && !named(&self.exclude_modules)
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

/// The names of a list.
fn listed(value: Option<&Value>) -> HashSet<String> {
    names(value.filter(|value| value.is_array())).into_iter().collect()
}

/// The layers of `layers_to_transform`: one or a list.
fn layers(fields: Fields<'_>) -> Result<HashSet<u64>> {
    const NAME: &str = "layers_to_transform";
    let Some(value) = fields.get(NAME) else { return Ok(HashSet::new()) };
    let listed = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let layers: Option<_> = listed.iter().map(Value::as_u64).collect();
    layers.ok_or_else(|| fields.wrong(NAME, "the number of a layer or a list of them"))
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
    fn every_field_of_peft_is_applied_without_effect_or_refused_by_name() {
        // All fields of `LoraConfig` in PEFT 0.21.2, with their defaults, and a value that is set.
        let table = json!({
            "task_type": [null, "CAUSAL_LM"], "auto_mapping": [null, {"base_model_class": "X"}],
            "peft_version": [null, "0.21.2"], "base_model_name_or_path": [null, "org/base"], "revision": [null, "main"],
            "inference_mode": [false, true], "r": [8, 4], "target_modules": [null, ["q_proj"]],
            "exclude_modules": [null, ["v_proj"]], "lora_alpha": [8, 16], "lora_dropout": [0.0, 0.1],
            "fan_in_fan_out": [false, true], "use_rslora": [false, true], "modules_to_save": [null, ["lm_head"]],
            "layers_to_transform": [null, [0, 1]], "layers_pattern": [null, "layers"], "rank_pattern": [{}, {"a": 2}],
            "alpha_pattern": [{}, {"a": 2}], "megatron_core": ["megatron.core", "other"], "loftq_config": [{}, {"loftq_bits": 4}],
            "eva_config": [null, {"rho": 2.0}], "corda_config": [null, {"x": 1}], "lora_ga_config": [null, {"x": 1}],
            "qalora_group_size": [16, 32], "ensure_weight_tying": [false, true], "runtime_config": [null, {"x": 1}],
            "init_lora_weights": [true, "gaussian"], "bias": ["none", "none"]
        });
        for (field, values) in table.as_object().unwrap() {
            for value in values.as_array().unwrap() {
                assert!(read(json!({field: value})).is_ok(), "{field}: {value}");
            }
        }
        for (field, unset) in [
            ("bias", json!("none")),
            ("init_lora_weights", json!(true)),
            ("megatron_config", json!(null)),
            ("trainable_token_indices", json!(null)),
            ("use_dora", json!(false)),
            ("velora_config", json!(null)),
            ("alora_invocation_tokens", json!(null)),
            ("use_qalora", json!(false)),
            ("monteclora_config", json!(null)),
            ("layer_replication", json!(null)),
            ("lora_bias", json!(false)),
            ("target_parameters", json!([])),
            ("use_bdlora", json!(null)),
            ("arrow_config", json!(null)),
            ("kasa_config", json!(null)),
            ("enable_lora", json!(null)),
            ("a_field_of_tomorrow", json!(false)),
        ] {
            assert!(read(json!({field: unset})).is_ok(), "{field}");
            let error = read(json!({field: "olora"})).unwrap_err().to_string();
            assert!(error.contains(field) && error.contains("merge the adapter with PEFT"), "{error}");
        }
    }

    #[test]
    fn factors_belong_to_the_modules_that_are_targets() {
        let (q, v) = ("model.layers.1.self_attn.q_proj", "model.layers.10.self_attn.v_proj");
        for (fields, targets) in [
            (json!({}), [true, true]),
            (json!({"target_modules": "all-linear"}), [true, true]),
            (json!({"target_modules": ".*q_proj"}), [true, true]),
            (json!({"target_modules": ["q_proj", "up_proj"]}), [true, false]),
            (json!({"target_modules": ["_proj"]}), [false, false]),
            (json!({"target_modules": ["layers.1.self_attn.q_proj"]}), [true, false]),
            (json!({"exclude_modules": ["v_proj"]}), [true, false]),
            (json!({"target_modules": ["q_proj", "v_proj"], "layers_to_transform": 10}), [false, true]),
            (json!({"target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1, 2]}), [true, false]),
        ] {
            let config = read(fields.clone()).unwrap();
            assert_eq!([q, v].map(|module| config.targets(module)), targets, "{fields}");
        }
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
