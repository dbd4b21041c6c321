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
fn each_side_has_its_own_sizes_whatever_the_common_names_say() {
    let sizes = |file: &Value| {
        let config = ModelConfig::from_json(file.to_string().as_bytes(), SUPPORTED_ARCHITECTURES).unwrap();
        let encoder = config.encoder.as_deref().unwrap();
        [encoder, &config].map(|side| (side.num_hidden_layers, side.num_attention_heads, side.vocab_size))
    };
    let bart = |fields: Value| {
        let mut file = json!({"architectures": ["BartForConditionalGeneration"], "vocab_size": 9});
        file.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        sizes(&file)
    };
    assert_eq!(bart(json!({})), [(12, 16, 9), (12, 16, 9)]);
    assert_eq!(bart(json!({"encoder_layers": 3, "decoder_layers": 2})), [(3, 16, 9), (2, 16, 9)]);
    // As distilled models have them: a common name is the encoder's.
    assert_eq!(
        bart(json!({"num_hidden_layers": 5, "decoder_layers": 2, "num_attention_heads": 8})),
        [(5, 8, 9), (2, 16, 9)]
    );
    let t5 = |fields: Value| {
        let mut file =
            json!({"architectures": ["T5ForConditionalGeneration"], "vocab_size": 9, "num_heads": 4});
        file.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        sizes(&file)
    };
    assert_eq!(t5(json!({"num_layers": 5})), [(5, 4, 9), (5, 4, 9)]);
    assert_eq!(t5(json!({"num_layers": 5, "num_decoder_layers": 2})), [(5, 4, 9), (2, 4, 9)]);
    assert_eq!(t5(json!({"num_layers": 5, "num_decoder_layers": null})), [(5, 4, 9), (5, 4, 9)]);
    let marian = json!({
        "architectures": ["MarianMTModel"], "vocab_size": 9, "decoder_vocab_size": 11,
        "share_encoder_decoder_embeddings": false, "pad_token_id": 8
    });
    assert_eq!(sizes(&marian), [(12, 16, 9), (12, 16, 11)]);
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
            "T5ForConditionalGeneration",
            json!({"feed_forward_proj": "gated-tanh"}),
            "hidden_act must be \"silu\", \"gelu_pytorch_tanh\"",
        ),
        (
            "UMT5ForConditionalGeneration",
            json!({"relative_attention_max_distance": 16}),
            "relative_attention_max_distance must be from 17 to 4096, found 16",
        ),
        (
            "MT5ForConditionalGeneration",
            json!({"relative_attention_num_buckets": 3}),
            "relative_attention_num_buckets must be at least 4, found 3",
        ),
        (
            "BartForConditionalGeneration",
            json!({"decoder_attention_heads": 7}),
            "a divisor of hidden_size (1024)",
        ),
        (
            "BartForConditionalGeneration",
            json!({"encoder_attention_heads": 7}),
            "a divisor of hidden_size (1024)",
        ),
        ("MarianMTModel", json!({"activation_function": "tanh"}), "hidden_act must be silu, gelu"),
        ("M2M100ForConditionalGeneration", json!({"pad_token_id": null}), "pad_token_id must be a token id"),
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
    for (architecture, model_type, expected) in [
        ("BlenderbotForConditionalGeneration", "blenderbot", "use BART"),
        ("FSMTForConditionalGeneration", "fsmt", "use opus-mt (Marian) or NLLB"),
        ("LEDForConditionalGeneration", "led", "use BART or Pegasus"),
        ("LongT5ForConditionalGeneration", "longt5", "use Flan-T5"),
        ("NllbMoeForConditionalGeneration", "nllb-moe", "experts in an encoder are missing"),
        (
            "SwitchTransformersForConditionalGeneration",
            "switch_transformers",
            "experts in an encoder are missing",
        ),
        ("T5GemmaForConditionalGeneration", "t5gemma", "use Flan-T5, or Gemma 3"),
        ("T5Gemma2ForConditionalGeneration", "t5gemma2", "use Flan-T5, or Gemma 3"),
        ("WhisperForConditionalGeneration", "whisper", "the part that reads sound is missing"),
    ] {
        let message = checked(architecture, &json!({"model_type": model_type})).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let message =
        checked("Qwen3NextForCausalLM", &json!({"model_type": "qwen3_next"})).unwrap_err().to_string();
    assert!(message.contains("gated delta rules are missing; use Qwen3-MoE"), "{message}");
}
