//! The fields of a `quantization_config` that say how bits are read, and what each may hold. Fields that only say
//! how a model was quantized, or what is done to activations, are not read.

use serde_json::{Map, Value};

use super::config::wrong;
use rsgen_core::error::Result;

/// What a field may hold; `null` counts as absent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    /// One of these whole numbers.
    Among(&'static [u64]),
    /// A whole number from 1 on, or -1 for one group.
    GroupSize,
    /// `true` or `false`.
    Flag,
    /// One of these texts, in any case.
    Text(&'static [&'static str]),
    /// Two whole numbers from 1 on.
    Sizes,
    /// An object.
    Object,
    /// Nothing, as what it asks for is not supported; an object without fields asks for nothing.
    Absent,
}

/// A field, its rule, and whether it must be there.
pub(super) type Field = (&'static str, Rule, bool);

pub(super) const GPTQ: &[Field] = &[
    ("bits", Rule::Among(&[2, 3, 4, 8]), true),
    ("group_size", Rule::GroupSize, false),
    ("desc_act", Rule::Flag, false),
    ("sym", Rule::Flag, false),
    ("checkpoint_format", Rule::Text(&["gptq", "gptq_v2"]), false),
    ("format", Rule::Text(&["gptq", "gptq_v2"]), false),
    ("pack_dtype", Rule::Text(&["int32", "torch.int32"]), false),
];
pub(super) const AWQ: &[Field] = &[
    ("bits", Rule::Among(&[4]), false),
    ("w_bit", Rule::Among(&[4]), false),
    ("group_size", Rule::GroupSize, false),
    ("q_group_size", Rule::GroupSize, false),
    ("zero_point", Rule::Flag, false),
    ("version", Rule::Text(&["gemm"]), false),
    ("backend", Rule::Text(&["autoawq"]), false),
];
/// The formats of compressed-tensors that are read.
pub(super) const COMPRESSED: Rule = Rule::Text(&[
    "dense",
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "mixed-precision",
]);
pub(super) const COMPRESSED_TENSORS: &[Field] = &[
    ("format", COMPRESSED, false),
    ("config_groups", Rule::Object, false),
    ("kv_cache_scheme", Rule::Absent, false),
    ("transform_config", Rule::Absent, false),
    ("sparsity_config", Rule::Object, false),
];
pub(super) const FP8: &[Field] =
    &[("fmt", Rule::Text(&["e4m3", "float8_e4m3fn"]), false), ("weight_block_size", Rule::Sizes, false)];
pub(super) const MXFP4: &[Field] = &[];
pub(super) const BITSANDBYTES: &[Field] = &[
    ("load_in_4bit", Rule::Flag, false),
    ("load_in_8bit", Rule::Flag, false),
    ("bnb_4bit_quant_type", Rule::Text(&["nf4", "fp4"]), false),
    ("bnb_4bit_use_double_quant", Rule::Flag, false),
    ("bnb_4bit_quant_storage", Rule::Text(&["uint8", "int8", "bfloat16", "float16", "float32"]), false),
];
pub(super) const MLX: &[Field] = &[
    ("mode", Rule::Text(&["affine", "mxfp4"]), false),
    ("bits", Rule::Among(&[2, 3, 4, 5, 6, 8]), false),
    ("group_size", Rule::Among(&[32, 64, 128]), false),
];

/// Checks the fields of an object; `scope` comes before their names in errors.
///
/// # Errors
/// `Load`, naming the field, its rule and its value.
pub(super) fn check(fields: &[Field], object: &Map<String, Value>, scope: &str) -> Result<()> {
    for &(name, rule, is_required) in fields {
        let value = object.get(name).unwrap_or(&Value::Null);
        if value.is_null() && is_required || !value.is_null() && !rule.allows(value) {
            return Err(wrong(&format!("{scope}{name}"), &rule.wording(), value));
        }
    }
    Ok(())
}

impl Rule {
    /// Whether a value that is not `null` is allowed.
    pub(super) fn allows(self, value: &Value) -> bool {
        match self {
            Self::Among(numbers) => value.as_u64().is_some_and(|number| numbers.contains(&number)),
            Self::GroupSize => value.as_i64().is_some_and(|size| size > 0 || size == -1),
            Self::Flag => value.is_boolean(),
            Self::Text(texts) => {
                let text = value.as_str();
                text.is_some_and(|text| texts.iter().any(|known| known.eq_ignore_ascii_case(text)))
            }
            Self::Sizes => sizes(value).is_some(),
            Self::Object => value.is_object(),
            Self::Absent => value.as_object().is_some_and(Map::is_empty),
        }
    }

    /// What a field must be.
    pub(super) fn wording(self) -> String {
        match self {
            Self::Among(numbers) => one_of(numbers.iter().map(u64::to_string)),
            Self::GroupSize => "a whole number from 1 on, or -1".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Text(texts) => one_of(texts.iter().map(|text| format!("\"{text}\""))),
            Self::Sizes => "two whole numbers from 1 on".to_owned(),
            Self::Object => "an object".to_owned(),
            Self::Absent => "absent, as it changes the results".to_owned(),
        }
    }
}

/// The two sizes of a block.
pub(super) fn sizes(value: &Value) -> Option<[usize; 2]> {
    let size = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|&size| size > 0);
    match &value.as_array()?[..] {
        [rows, columns] => Some([size(rows)?, size(columns)?]),
        _ => None,
    }
}

fn one_of(choices: impl Iterator<Item = String>) -> String {
    let mut choices: Vec<_> = choices.collect();
    match (choices.pop(), choices.is_empty()) {
        (Some(last), false) => format!("{} or {last}", choices.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{FORMATS, config};
    use super::*;

    /// Values at the edges of every rule.
    fn edges() -> Vec<Value> {
        vec![
            json!(true),
            json!(0),
            json!(1),
            json!(4),
            json!(-1),
            json!(-4),
            json!(4.5),
            json!(1e300),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(""),
            json!("4"),
            json!("x".repeat(100_000)),
            json!("\u{202e}\u{1b}[2J"),
            json!([]),
            json!([0, 128]),
            json!([128, -1]),
            json!([128, 128, 128]),
            json!([u64::MAX, 1]),
            json!({}),
            json!({"a": [1]}),
        ]
    }

    /// A configuration of a method that is allowed.
    fn allowed(method: &str) -> Map<String, Value> {
        let config = json!({"quant_method": method, "bits": 4});
        config.as_object().unwrap().clone()
    }

    #[test]
    fn every_field_of_every_method_is_checked_at_its_edges() {
        let (mut refused, mut opened) = (0, 0);
        for (method, fields, _) in FORMATS {
            assert!(config::method(&allowed(method)).is_ok(), "{method}");
            for (name, rule, is_required) in *fields {
                let mut absent = allowed(method);
                absent.remove(*name);
                assert_eq!(config::method(&absent).is_err(), *is_required, "{method}: {name}");
                absent.insert((*name).to_owned(), Value::Null);
                assert_eq!(config::method(&absent).is_err(), *is_required, "{method}: {name} is null");
                for value in edges() {
                    let mut config = allowed(method);
                    config.insert((*name).to_owned(), value.clone());
                    let Err(error) = config::method(&config) else {
                        assert!(rule.allows(&value), "{method}: {name} may not be {value}");
                        opened += 1;
                        continue;
                    };
                    let error = error.to_string();
                    let rule = format!("quantization_config: {name} must be {}, found ", rule.wording());
                    assert!(error.starts_with(&rule), "{method}: {value}: {error}");
                    assert!(error.contains("; use ") && error.chars().count() < 600, "{error}");
                    assert!(!error.contains(['\u{202e}', '\u{1b}']), "{error:?}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 400 && opened > 25, "{refused} refused, {opened} opened");
    }

    #[test]
    fn modules_of_mlx_have_the_rules_of_all() {
        for (name, value) in [("bits", json!(7)), ("group_size", json!(-1)), ("mode", json!("nvfp4"))] {
            let config =
                json!({"quant_method": "mlx", "bits": 4, "model.layers.0.mlp.up_proj": {name: value}});
            let error = config::method(config.as_object().unwrap()).unwrap_err().to_string();
            assert!(error.contains(&format!("model.layers.0.mlp.up_proj.{name} must be ")), "{error}");
        }
    }

    #[test]
    fn the_method_is_named_whatever_it_is() {
        for value in edges() {
            let config = json!({"quant_method": value});
            let error = config::method(config.as_object().unwrap()).unwrap_err().to_string();
            assert!(error.contains("quantization_config") && error.contains("quant_method"), "{error}");
            assert!(error.contains("use ") && error.chars().count() < 600, "{error}");
        }
    }
}
