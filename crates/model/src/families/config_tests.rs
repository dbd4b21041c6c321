//! Tests of config.json against the classes of transformers, whose fields and values
//! `tools/golden/family_config_goldens.py` writes.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::*;
use crate::weights::RopeKind;

/// Fields of classes that change no number of a text: those of training and of other heads, and what the library does.
const IGNORED: &[&str] = &[
    // Of training.
    "activation_dropout",
    "attention_dropout",
    "attn_pdrop",
    "classifier_dropout",
    "decoder_layerdrop",
    "dropout",
    "dropout_rate",
    "embd_pdrop",
    "embed_dropout",
    "embedding_dropout",
    "encoder_layerdrop",
    "hidden_dropout",
    "init_std",
    "initializer_factor",
    "initializer_range",
    "layerdrop",
    "output_router_logits",
    "resid_dropout",
    "resid_pdrop",
    "residual_dropout",
    "router_aux_loss_coef",
    "router_jitter_noise",
    // Of the library, and of its arithmetic in half precision.
    "attention_softmax_in_fp32",
    "is_decoder",
    "pretraining_tp",
    "reorder_and_upcast_attn",
    "scale_attention_softmax_in_fp32",
    "slow_but_exact",
    "use_cache",
    // Of requests, whose defaults they are.
    "decoder_start_token_id",
    "forced_eos_token_id",
    // Of other heads.
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    // Of layers that no supported model has.
    "mamba_chunk_size",
    "mamba_conv_bias",
    "mamba_d_conv",
    "mamba_d_head",
    "mamba_d_state",
    "mamba_expand",
    "mamba_n_groups",
    "mamba_n_heads",
    "mamba_proj_bias",
    "time_step_limit",
    // Not read by the model.
    "eod_token_id",
];

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/family_configs.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn read(file: &Value) -> Result<ModelConfig> {
    let config = ModelConfig::from_json(file.to_string().as_bytes(), SUPPORTED_ARCHITECTURES)?;
    describe(&config).map(|_| config)
}

/// What a file comes to: everything that decides numbers, or its error.
fn understood(file: &Value) -> String {
    match read(file) {
        Ok(config) => format!("{:?} {:?}", config.understood(), describe(&config).unwrap()),
        Err(error) => error.to_string(),
    }
}

/// The files of a family.
fn files<'a>(golden: &'a Value, model_type: &'a str) -> impl Iterator<Item = &'a Value> {
    let groups = golden["groups"].as_array().unwrap().iter().map(|group| &group["file"]);
    groups.filter(move |file| file["model_type"] == model_type)
}

#[test]
fn every_field_of_a_class_is_read_or_refused_or_ignored_by_name() {
    let (golden, mut faults, mut ignored) = (golden(), Vec::new(), BTreeSet::new());
    for (model_type, fields) in golden["fields"].as_object().unwrap() {
        let files: Vec<_> = files(&golden, model_type).map(|file| (file, understood(file))).collect();
        for field in fields.as_array().unwrap() {
            let field = field.as_str().unwrap();
            let values = [
                json!(null),
                json!(true),
                json!(false),
                json!(1),
                json!(2),
                json!(3),
                json!(0.37),
                json!("x"),
                json!([1, 0, 1, 1]),
                json!({"rope_type": "x"}),
            ];
            let changes = files.iter().any(|(file, before)| {
                values.iter().any(|value| {
                    let mut file = (*file).clone();
                    file[field] = value.clone();
                    understood(&file) != *before
                })
            });
            // Goldens have no experts in hybrids, and no longrope; the class of mT5 ties in any case.
            let elsewhere = [
                ("granitemoehybrid", "num_experts_per_tok"),
                ("mt5", "tie_word_embeddings"),
                ("phi3", "original_max_position_embeddings"),
            ];
            if elsewhere.contains(&(model_type, field)) {
                continue;
            }
            let is_ignored = IGNORED.contains(&field);
            if is_ignored {
                ignored.insert(field.to_owned());
            }
            if changes == is_ignored {
                faults
                    .push(format!("{model_type}: {field} is {}", if changes { "read" } else { "not read" }));
            }
        }
    }
    let unknown: Vec<_> = IGNORED.iter().filter(|name| !ignored.contains(**name)).collect();
    assert!(faults.is_empty() && unknown.is_empty(), "{}\n{unknown:?}", faults.join("\n"));
}

/// Whether the value is what transformers has; null is as good as absent, and both are false.
fn equal(found: Option<&Value>, expected: &Value) -> bool {
    let is_off = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false)) || value.as_array().is_some_and(Vec::is_empty)
    };
    let found = found.unwrap_or(&Value::Null);
    match (found.as_f64(), expected.as_f64()) {
        (Some(found), Some(expected)) => found == expected,
        _ => found == expected || is_off(found) && is_off(expected),
    }
}

/// The values of a field in rsgen and in transformers, where both have it.
fn values(config: &ModelConfig, field: &str, expected: &Map<String, Value>) -> Option<[Value; 2]> {
    let family = FAMILIES.iter().find(|family| family.config.architecture == config.architecture).unwrap();
    let aliases = family.config.aliases.iter();
    let name = aliases.filter(|(_, own)| *own == field).map(|(name, _)| *name).next().unwrap_or(field);
    let own = family.config.encoder.unwrap_or_default().iter().find(|(_, own)| *own == field);
    let (config, name) = match (own, &config.encoder) {
        (Some((name, _)), Some(encoder)) => (&**encoder, *name),
        _ => (config, name),
    };
    let theirs = expected[field].clone();
    let ids = |ids: &[rsgen_core::types::TokenId]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
    let is_wrapped = config.raw.contains_key("text_config");
    let found = match name {
        // The wrapper has a head of its own.
        "tie_word_embeddings" | "final_logit_softcapping" if is_wrapped => return None,
        // It counts in the new architecture only.
        "num_key_value_heads"
            if field == "num_kv_heads" && expected.get("new_decoder_architecture") != Some(&json!(true)) =>
        {
            return None;
        }
        // It counts where each side has its own.
        "decoder_vocab_size" if expected.get("share_encoder_decoder_embeddings") != Some(&json!(false)) => {
            return None;
        }
        // The width of experts, which there are none of.
        "intermediate_size" if config.model_type == "granitemoehybrid" => return None,
        // The layers follow from it.
        "no_rope_layers" if config.fields().get(name).is_none() => return None,
        "sliding_window_pattern" if config.window.size.is_none() => return None,
        // Special tokens that a file lacks are no defaults of requests.
        "eos_token_id" if config.raw.get(name).is_none_or(Value::is_null) => return None,
        // Nulls that transformers cannot compute with.
        "rms_norm_eps" | "hidden_act" | "num_key_value_heads" if theirs.is_null() => return None,
        "layer_types"
            if config.window.size.is_none() && expected.get("sliding_window").is_none_or(Value::is_null) =>
        {
            return None;
        }
        _ if IGNORED.contains(&field) => return None,
        "hidden_size" => json!(config.hidden_size),
        // What it is without a value.
        "intermediate_size" if theirs.is_null() => {
            return Some([json!(config.intermediate_size), json!(4 * config.hidden_size)]);
        }
        "intermediate_size" => json!(config.intermediate_size),
        "word_embed_proj_dim" if theirs == config.hidden_size => return None,
        "num_hidden_layers" | "num_decoder_layers" => json!(config.num_hidden_layers),
        "num_attention_heads" => json!(config.num_attention_heads),
        "num_key_value_heads" => json!(config.num_key_value_heads),
        "head_dim" => json!(config.head_dim),
        "vocab_size" | "decoder_vocab_size" => json!(config.vocab_size),
        "max_position_embeddings" => json!(config.max_position_embeddings),
        "rms_norm_eps" => json!(config.rms_norm_eps),
        "tie_word_embeddings" => json!(config.tie_word_embeddings),
        "hidden_act" => json!(config.hidden_act),
        "bos_token_id" => json!(config.bos_token_id.map(|id| id.0)),
        "pad_token_id" => json!(config.pad_token_id.map(|id| id.0)),
        "eos_token_id" => {
            let theirs = match theirs {
                Value::Null => json!([]),
                Value::Array(_) => theirs,
                _ => json!([theirs]),
            };
            return Some([json!(ids(&config.eos_token_ids)), theirs]);
        }
        "layer_types" => {
            let theirs = theirs
                .as_array()?
                .iter()
                .map(|kind| if kind == "attention" { json!("full_attention") } else { kind.clone() });
            let found: Vec<_> = config.window.layer_types.iter().map(|kind| json!(kind.as_str())).collect();
            return Some([json!(found), theirs.collect()]);
        }
        "sliding_window" | "window_size" => {
            config.window.size?;
            json!(config.window.size)
        }
        "rope_parameters" => return rope(config, &theirs),
        _ => config.fields().get(name).cloned().unwrap_or(Value::Null),
    };
    Some([found, theirs])
}

/// The kind of rotary embedding, its base, and the dimensions that are rotated.
fn rope(config: &ModelConfig, theirs: &Value) -> Option<[Value; 2]> {
    let (rope, theirs) = (config.rope.as_ref()?, theirs.as_object()?);
    let nested = theirs.get("full_attention").and_then(Value::as_object);
    let theirs = nested.unwrap_or(theirs);
    let kind = match rope.kind {
        RopeKind::Default => "default",
        RopeKind::Linear { .. } => "linear",
        RopeKind::Dynamic { .. } => "dynamic",
        RopeKind::Llama3 { .. } => "llama3",
        RopeKind::Yarn { .. } => "yarn",
        RopeKind::LongRope { .. } => "longrope",
    };
    let part = theirs.get("partial_rotary_factor").and_then(Value::as_f64).unwrap_or(1.0);
    let dim = (config.head_dim as f64 * part) as usize;
    let theta = theirs.get("rope_theta").cloned().unwrap_or(json!(10000.0));
    if theirs.contains_key("alpha") {
        // The base is stretched already.
        return None;
    }
    Some([json!([kind, rope.theta, rope.dim]), json!([theirs["rope_type"], theta.as_f64(), dim])])
}

#[test]
fn files_come_to_what_the_classes_of_transformers_make_of_them() {
    let (golden, mut faults, mut checked, mut refused) = (golden(), Vec::new(), 0, [0; 2]);
    for group in golden["groups"].as_array().unwrap() {
        let cases = group["cases"].as_array().unwrap();
        for case in std::iter::once(&Value::Null).chain(cases) {
            let (mut file, mut expected) =
                (group["file"].clone(), group["resolved"].as_object().unwrap().clone());
            let fields = file.as_object_mut().unwrap();
            for name in case["without"].as_array().into_iter().flatten() {
                fields.remove(name.as_str().unwrap());
            }
            for (into, change) in [(fields, "set"), (&mut expected, "differs")] {
                into.extend(
                    case[change].as_object().into_iter().flatten().map(|(a, b)| (a.clone(), b.clone())),
                );
            }
            let label = format!("{} {case}", group["file"]["architectures"][0]);
            let config = match read(&file) {
                Ok(config) => config,
                // A file that misses a field may be none of a model, which rsgen says.
                Err(error) if !case.is_null() || error.to_string().contains("Mamba layers") => {
                    assert!(error.to_string().contains(" must be "), "{label}: {error}");
                    let of_family = |known: &&Family| file["model_type"] == known.config.model_type;
                    let family = FAMILIES.iter().find(of_family);
                    refused[usize::from(family.is_some_and(|known| known.config.encoder.is_some()))] += 1;
                    continue;
                }
                Err(error) => {
                    faults.push(format!("{label}: {error}"));
                    continue;
                }
            };
            for field in expected.keys() {
                let Some([found, theirs]) = values(&config, field, &expected) else { continue };
                checked += 1;
                if !equal(Some(&found), &theirs) {
                    faults.push(format!("{label}: {field} is {found}, in transformers {theirs}"));
                }
            }
        }
    }
    // Without and with an encoder; the heads of both sides have to divide the width.
    assert!(
        checked > 50_000 && refused[0] < 150 && refused[1] < 45,
        "{checked} values, {refused:?} files refused"
    );
    assert!(faults.is_empty(), "{} of {checked}\n{}", faults.len(), faults.join("\n"));
}
