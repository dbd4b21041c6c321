//! Tests of the table of families; what each computes is compared with transformers elsewhere.

use serde_json::{Value, json};

use super::*;

/// What the family of this type says of a configuration with these fields beside its defaults.
fn checked(architecture: &str, fields: &Value) -> Result<()> {
    let mut file = fields.clone();
    file["architectures"] = json!([architecture]);
    check(&ModelConfig::from_json(file.to_string().as_bytes(), SUPPORTED_ARCHITECTURES)?)
}

#[test]
fn the_defaults_of_every_family_are_json_that_describes_a_model() {
    for family in SUPPORTED_ARCHITECTURES {
        serde_json::from_str::<serde_json::Map<String, Value>>(family.defaults).unwrap();
        let layers = match family.model_type {
            // Its defaults are Mamba layers.
            "granitemoehybrid" => json!({"layer_types": vec!["attention"; 32]}),
            _ => json!({}),
        };
        checked(family.architecture, &layers).unwrap();
    }
}

#[test]
fn names_are_those_of_one_family_each() {
    for (index, family) in SUPPORTED_ARCHITECTURES.iter().enumerate() {
        for other in &SUPPORTED_ARCHITECTURES[..index] {
            assert_ne!(family.architecture, other.architecture);
            assert_ne!(family.model_type, other.model_type);
        }
    }
}

#[test]
fn what_a_family_does_not_compute_is_refused_by_name() {
    let table = [
        ("LlamaForCausalLM", json!({"hidden_act": "gelu"}), "hidden_act must be \"silu\""),
        ("GPT2LMHeadModel", json!({"activation_function": "tanh"}), "hidden_act must be silu, gelu"),
        ("GPT2LMHeadModel", json!({"add_cross_attention": true}), "attention to an encoder is not supported"),
        ("Gemma3ForCausalLM", json!({"use_bidirectional_attention": true}), "attention to later tokens"),
        ("ApertusForCausalLM", json!({"hidden_act": "silu"}), "hidden_act must be xielu"),
        ("GraniteMoeHybridForCausalLM", json!({"layer_types": ["mamba"]}), "Mamba layers are not supported"),
        ("MixtralForCausalLM", json!({"num_experts_per_tok": 9}), "a whole number from 1 to 8, found 9"),
        ("MixtralForCausalLM", json!({"num_local_experts": 0}), "num_experts must be a whole number from 1"),
        (
            "Ministral3ForCausalLM",
            json!({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}),
            "llama_4_scaling_beta must be a number above 0, found nothing",
        ),
    ];
    for (architecture, fields, expected) in table {
        let message = checked(architecture, &fields).unwrap_err().to_string();
        assert!(message.contains(expected), "{architecture}: {message}");
    }
    let message =
        checked("Qwen3NextForCausalLM", &json!({"model_type": "qwen3_next"})).unwrap_err().to_string();
    assert!(message.contains("gated delta rules are missing; use Qwen3-MoE"), "{message}");
}
