//! Tests of config.json as transformers 4 and 5 write it, and of every range.

use serde_json::json;

use super::super::family::Switch;
use super::super::rope::{RopeKind, RopeRule};
use super::super::window::{LayerType, WindowRule};
use super::*;

/// A family whose defaults differ from each other; what real families have is compared with transformers
/// elsewhere.
const LLAMA: FamilyConfig = FamilyConfig {
    defaults: r#"{
        "vocab_size": 101, "hidden_size": 64, "intermediate_size": 102, "num_hidden_layers": 3,
        "num_attention_heads": 8, "max_position_embeddings": 103, "rms_norm_eps": 1e-4, "bos_token_id": 5,
        "eos_token_id": 6
    }"#,
    ..FamilyConfig::LLAMA
};

/// A family with everything that llama has not.
const WINDOWED: FamilyConfig = FamilyConfig {
    architecture: "WindowedForCausalLM",
    model_type: "windowed",
    defaults: r#"{
        "vocab_size": 101, "hidden_size": 64, "intermediate_size": 102, "num_hidden_layers": 3,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 20, "max_position_embeddings": 103,
        "rms_norm_eps": 1e-4, "sliding_window": 7, "max_window_layers": 2,
        "original_max_position_embeddings": 32, "bos_token_id": 5, "eos_token_id": 6
    }"#,
    aliases: &[("hidden_size", "d_model")],
    attention_bias: Switch::On,
    mlp_bias: Switch::Off,
    window: WindowRule::FromLayer,
    rope: RopeRule::Phi3,
    ..LLAMA
};

const SUPPORTED: &[FamilyConfig] = &[LLAMA, WINDOWED];

/// A config.json as transformers 4.57 writes it.
fn version_4() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 0, "eos_token_id": 1, "head_dim": 32, "hidden_act": "silu", "hidden_size": 192,
        "initializer_range": 0.02, "intermediate_size": 512, "max_position_embeddings": 512, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 6, "num_hidden_layers": 6, "num_key_value_heads": 3,
        "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
        "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.57.6", "use_cache": true, "vocab_size": 2048
    })
}

/// A config.json as transformers 5.23 writes it.
fn version_5() -> Value {
    let mut config = version_4();
    let object = config.as_object_mut().unwrap();
    for old in ["torch_dtype", "rope_theta", "rope_scaling"] {
        object.remove(old);
    }
    object.insert("dtype".into(), json!("bfloat16"));
    object.insert("rope_parameters".into(), json!({"rope_theta": 10000.0, "rope_type": "default"}));
    object.insert("transformers_version".into(), json!("5.23.0"));
    config
}

fn with(mut config: Value, field: &str, value: Value) -> Value {
    config.as_object_mut().unwrap().insert(field.to_owned(), value);
    config
}

fn without(mut config: Value, field: &str) -> Value {
    config.as_object_mut().unwrap().remove(field);
    config
}

fn read(config: &Value) -> Result<ModelConfig> {
    ModelConfig::from_json(config.to_string().as_bytes(), SUPPORTED)
}

fn error(config: &Value) -> String {
    read(config).expect_err(&config.to_string()).to_string()
}

#[test]
fn versions_4_and_5_give_the_same() {
    let four = read(&version_4()).unwrap();
    let five = read(&version_5()).unwrap();
    let understood = |config: ModelConfig| ModelConfig { raw: Map::new(), complete: Map::new(), ..config };
    assert_eq!(understood(four.clone()), understood(five));
    assert_eq!(
        (four.hidden_size, four.num_key_value_heads, four.head_dim, four.vocab_size),
        (192, 3, 32, 2048)
    );
    assert_eq!(four.rope, Some(RopeParameters { theta: 10_000.0, dim: 32, kind: RopeKind::Default }));
    assert_eq!(four.window, SlidingWindow { size: None, layer_types: vec![LayerType::FullAttention; 6] });
    assert_eq!(four.dtype, Some(DType::Bf16));
    assert_eq!((four.bos_token_id, four.pad_token_id), (Some(TokenId(0)), Some(TokenId(2))));
    assert_eq!(four.raw["initializer_range"], json!(0.02));
}

#[test]
fn the_bundled_model_has_its_config() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/rsgen/models/story-3m/config.json");
    let config = ModelConfig::from_json(&std::fs::read(path).unwrap(), SUPPORTED).unwrap();
    assert_eq!(config, read(&version_4()).unwrap());
}

/// A config.json of nothing but these fields.
fn windowed(fields: Value) -> Value {
    with(fields, "architectures", json!(["WindowedForCausalLM"]))
}

#[test]
fn absent_fields_have_the_defaults_of_their_family() {
    let config = read(&json!({"model_type": "llama"})).unwrap();
    assert_eq!(config.architecture, "LlamaForCausalLM");
    assert_eq!((config.vocab_size, config.hidden_size, config.intermediate_size), (101, 64, 102));
    assert_eq!((config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads), (3, 8, 8));
    assert_eq!((config.head_dim, config.max_position_embeddings, config.rms_norm_eps), (8, 103, 1e-4));
    assert!(!config.tie_word_embeddings && !config.attention_bias && !config.mlp_bias);
    assert_eq!(config.rope, Some(RopeParameters { theta: 10_000.0, dim: 8, kind: RopeKind::Default }));
    assert_eq!((config.bos_token_id, config.pad_token_id), (Some(TokenId(5)), None));
    assert_eq!((config.eos_token_ids, config.dtype), (vec![TokenId(6)], None));

    let config = read(&windowed(json!({}))).unwrap();
    assert_eq!((config.num_key_value_heads, config.head_dim), (4, 20));
    let error = error(&windowed(json!({"num_attention_heads": 6})));
    assert!(
        error.contains("a divisor of num_attention_heads (6), or given: without it there are 4"),
        "{error}"
    );
}

#[test]
fn a_family_decides_which_switches_count() {
    let all =
        json!({"attention_bias": false, "mlp_bias": true, "sliding_window": 5, "use_sliding_window": true});
    let config = read(&windowed(all.clone())).unwrap();
    assert!(config.attention_bias && !config.mlp_bias && config.window.size == Some(5));
    let config = read(&with(all, "model_type", json!("llama"))).unwrap();
    assert!(!config.attention_bias && config.mlp_bias && config.window.size.is_none());
}

#[test]
fn longrope_and_partial_rotation_are_read_from_both_versions() {
    let (short, long) = (vec![1.0, 1.5, 2.0, 2.5, 3.0], vec![4.0, 5.0, 6.0, 7.0, 8.0]);
    let expected = RopeKind::LongRope {
        short_factor: short.clone(),
        long_factor: long.clone(),
        factor: 4.0,
        attention_factor: None,
        original_max_position_embeddings: 64,
    };
    let sizes = json!({"max_position_embeddings": 256, "original_max_position_embeddings": 64});
    for name in ["longrope", "su", "yarn"] {
        let scaling = json!({"type": name, "short_factor": short, "long_factor": long});
        let old = with(with(sizes.clone(), "rope_scaling", scaling), "partial_rotary_factor", json!(0.5));
        let rope = read(&windowed(old)).unwrap().rope.unwrap();
        assert_eq!((rope.dim, &rope.kind), (10, &expected), "{name}");
    }
    let new = json!({"rope_type": "longrope", "type": "su", "short_factor": short, "long_factor": long,
        "partial_rotary_factor": 0.5, "rope_theta": 500.0, "original_max_position_embeddings": 3});
    let config = with(with(sizes, "rope_parameters", new.clone()), "partial_rotary_factor", json!(0.75));
    let config = read(&windowed(config)).unwrap();
    assert_eq!(config.rope, Some(RopeParameters { theta: 500.0, dim: 10, kind: expected }));
    assert_eq!(config.context_len(), 256);
    let RopeKind::LongRope { original_max_position_embeddings: original, factor, attention_factor, .. } =
        read(&windowed(
            json!({"rope_parameters": with(with(new, "factor", json!(3)), "attention_factor", json!(1.5))}),
        ))
        .unwrap()
        .rope
        .unwrap()
        .kind
    else {
        panic!()
    };
    assert_eq!(
        (original, factor, attention_factor),
        (32, 3.0, Some(1.5)),
        "beside the parameters it has its default"
    );
    let rope = read(&windowed(json!({"head_dim": 6, "partial_rotary_factor": 0.5}))).unwrap().rope.unwrap();
    assert_eq!((rope.dim, rope.kind), (3, RopeKind::Default));
}

#[test]
fn yarn_may_say_its_context_before_stretching() {
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128});
    let context = |max_positions: u32| {
        let config = with(version_4(), "max_position_embeddings", json!(max_positions));
        read(&with(config, "rope_scaling", yarn.clone())).unwrap().context_len()
    };
    assert_eq!([128, 512, 600].map(context), [512, 512, 600]);
}

#[test]
fn null_means_absent_except_for_special_tokens() {
    let config = with(with(version_4(), "num_key_value_heads", json!(null)), "head_dim", json!(null));
    let config = read(&with(with(config, "eos_token_id", json!(null)), "bos_token_id", json!(null))).unwrap();
    assert_eq!((config.num_key_value_heads, config.head_dim), (6, 32));
    assert_eq!((config.bos_token_id, config.eos_token_ids), (None, vec![]));
}

#[test]
fn special_tokens_may_be_lists_and_minus_one_is_none() {
    let config = with(with(version_4(), "eos_token_id", json!([1, 128_009])), "pad_token_id", json!(-1));
    let config = read(&config).unwrap();
    assert_eq!((config.eos_token_ids, config.pad_token_id), (vec![TokenId(1), TokenId(128_009)], None));
}

/// Each kind as version 4 (two spellings of its name) and version 5 write it.
#[test]
fn every_kind_of_rope_is_read_from_both_versions() {
    let llama3 = json!({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256});
    let yarn = json!({"factor": 4, "attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2,
        "mscale": 0.7, "mscale_all_dim": 1.0, "truncate": false, "original_max_position_embeddings": 128});
    let plain_yarn = RopeKind::Yarn {
        factor: 2.0,
        attention_factor: None,
        beta_fast: 32.0,
        beta_slow: 1.0,
        mscale: None,
        mscale_all_dim: None,
        truncate: true,
        original_max_position_embeddings: 512,
    };
    let full_yarn = RopeKind::Yarn {
        factor: 4.0,
        attention_factor: Some(1.5),
        beta_fast: 16.0,
        beta_slow: 2.0,
        mscale: Some(0.7),
        mscale_all_dim: Some(1.0),
        truncate: false,
        original_max_position_embeddings: 128,
    };
    let ratio_yarn = RopeKind::Yarn {
        factor: 512.0 / 128.0,
        attention_factor: None,
        beta_fast: 32.0,
        beta_slow: 1.0,
        mscale: None,
        mscale_all_dim: None,
        truncate: true,
        original_max_position_embeddings: 128,
    };
    let table = [
        ("default", json!({}), RopeKind::Default),
        ("linear", json!({"factor": 2.5}), RopeKind::Linear { factor: 2.5 }),
        (
            "dynamic",
            json!({"factor": 4.0, "original_max_position_embeddings": 64}),
            RopeKind::Dynamic { factor: 4.0, original_max_position_embeddings: 512 },
        ),
        (
            "llama3",
            llama3,
            RopeKind::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_position_embeddings: 256,
            },
        ),
        ("yarn", json!({"factor": 2.0, "beta_fast": 0, "mscale": 0.0, "truncate": null}), plain_yarn),
        ("yarn", yarn, full_yarn),
        ("yarn", json!({"factor": null, "original_max_position_embeddings": 128}), ratio_yarn),
    ];
    for (name, parameters, kind) in table {
        let expected = RopeParameters { theta: 5e5, dim: 32, kind };
        for key in ["type", "rope_type"] {
            let scaling = with(parameters.clone(), key, json!(name));
            let old = with(with(version_4(), "rope_theta", json!(500_000)), "rope_scaling", scaling);
            assert_eq!(read(&old).unwrap().rope, Some(expected.clone()), "{name}");
        }
        let new = with(with(parameters, "rope_type", json!(name)), "rope_theta", json!(500_000.0));
        assert_eq!(read(&with(version_5(), "rope_parameters", new)).unwrap().rope, Some(expected), "{name}");
    }
}

#[test]
fn the_original_context_beside_the_parameters_wins() {
    let scaling = json!({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64});
    let config =
        with(with(version_4(), "rope_scaling", scaling), "original_max_position_embeddings", json!(32));
    let RopeKind::Yarn { original_max_position_embeddings, .. } = read(&config).unwrap().rope.unwrap().kind
    else {
        panic!()
    };
    assert_eq!(original_max_position_embeddings, 32);
}

#[test]
fn a_bad_value_is_named_with_field_rule_and_value() {
    let yarn = |extra: &str, value: Value| with(json!({"rope_type": "yarn", "factor": 2.0}), extra, value);
    let table = [
        ("vocab_size", json!(0), "a whole number from 1 to 4194304, found 0"),
        ("vocab_size", json!(4_194_305), "found 4194305"),
        ("hidden_size", json!(-192), "a whole number from 1 to 65536, found -192"),
        ("hidden_size", json!(192.5), "found 192.5"),
        ("hidden_size", json!("192"), "found \"192\""),
        ("hidden_size", json!(1e300), "found 1e+300"),
        ("intermediate_size", json!(u64::MAX), "found 18446744073709551615"),
        ("num_hidden_layers", json!(1025), "a whole number from 1 to 1024, found 1025"),
        ("num_attention_heads", json!(0), "found 0"),
        ("num_key_value_heads", json!(4), "a divisor of num_attention_heads (6), found 4"),
        ("num_key_value_heads", json!(12), "a whole number from 1 to 6, found 12"),
        ("head_dim", json!(31), "an even number"),
        ("head_dim", json!(true), "found true"),
        ("max_position_embeddings", json!(1_u64 << 40), "found 1099511627776"),
        ("rms_norm_eps", json!(0.0), "a number from 1e-15 to 1e0, found 0.0"),
        ("rms_norm_eps", json!(-1e-5), "found -0.00001"),
        ("rms_norm_eps", json!([1]), "found [1]"),
        ("tie_word_embeddings", json!("yes"), "true or false, found \"yes\""),
        ("attention_bias", json!(1), "true or false, found 1"),
        ("rope_theta", json!(0), "a number from 1e-15 to 1e15, found 0"),
        ("rope_theta", json!(1e-300), "found 1e-300"),
        ("model_type", json!("mistral"), "the family of LlamaForCausalLM, \"llama\", found \"mistral\""),
        ("rope_theta", json!(-1.0), "found -1.0"),
        ("eos_token_id", json!("</s>"), "a token id or a list of them, found \"</s>\""),
        ("eos_token_id", json!([1, 1_u64 << 32]), "a token id or a list of them"),
        ("quantization_config", json!({"bits": 4}), "quant_method must be given"),
        (
            "quantization_config",
            json!({"quant_method": "hqq"}),
            "by the quant_method \"hqq\" are not supported",
        ),
        ("partial_rotary_factor", json!(0.5), "partial rotation is not supported"),
        ("rope_scaling", json!("linear"), "an object"),
        (
            "rope_scaling",
            json!({"type": "longrope"}),
            "default, linear, dynamic, llama3 or yarn, found \"longrope\"",
        ),
        (
            "rope_scaling",
            json!({"type": "linear"}),
            "rope_scaling.factor must be given for this rope_type, found nothing",
        ),
        ("rope_scaling", json!({"type": "linear", "factor": 0}), "a number from 1e-15"),
        (
            "rope_scaling",
            json!({"full_attention": {"rope_type": "default"}}),
            "per layer type are not supported",
        ),
        (
            "rope_scaling",
            json!({"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4}),
            "rope_scaling.high_freq_factor must be a number above low_freq_factor (4), found 4",
        ),
        ("rope_scaling", yarn("original_max_position_embeddings", json!(0)), "found 0"),
        ("rope_scaling", yarn("beta_slow", json!(-1)), "found -1"),
        ("rope_scaling", yarn("truncate", json!(1)), "true or false"),
        ("rope_scaling", yarn("rope_theta", json!(1.0)), "above 1 for yarn"),
    ];
    for (field, value, expected) in table {
        let message = error(&with(version_4(), field, value));
        assert!(message.starts_with("config.json: ") && message.contains(field), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let longrope = |name: &str, value: Value| {
        let scaling = json!({"type": "longrope", "short_factor": vec![1; 10], "long_factor": vec![2; 10]});
        json!({"rope_scaling": with(scaling, name, value)})
    };
    let table = [
        (json!({"partial_rotary_factor": 0}), "partial_rotary_factor must be a number from 1e-15 to 1e0"),
        (json!({"partial_rotary_factor": 1.5}), "found 1.5"),
        (json!({"partial_rotary_factor": 0.01}), "so large that one of the 20 dimensions of a head turns"),
        (
            json!({"rope_scaling": {"type": "linear", "factor": 2}}),
            "must be default or longrope, found \"linear\"",
        ),
        (
            longrope("short_factor", json!(vec![1; 9])),
            "short_factor must be a list of 10 numbers from 1e-6 to 1e6",
        ),
        (longrope("long_factor", json!(null)), "rope_scaling.long_factor must be a list of 10 numbers"),
        (longrope("long_factor", json!(vec![0; 10])), "long_factor must be"),
        (longrope("short_factor", json!(vec!["1"; 10])), "short_factor must be"),
        (longrope("attention_factor", json!(0)), "attention_factor must be a number from 1e-15"),
        (longrope("factor", json!(-2)), "factor must be a number from 1e-15"),
        (
            with(longrope("factor", json!(2)), "original_max_position_embeddings", json!(1)),
            "original_max_position_embeddings must be a whole number from 2",
        ),
    ];
    for (fields, expected) in table {
        let message = error(&windowed(fields));
        assert!(message.starts_with("config.json: ") && message.contains(expected), "{message}");
    }
    let uneven = without(with(version_4(), "num_attention_heads", json!(9)), "head_dim");
    assert!(error(&uneven).contains("a divisor of hidden_size (192), found 9"));
    let tiny = with(
        with(version_4(), "head_dim", json!(2)),
        "rope_scaling",
        json!({"type": "dynamic", "factor": 2}),
    );
    assert!(error(&tiny).contains("head_dim must be at least 4"));
}

#[test]
fn an_unknown_architecture_is_named_with_those_that_are_known() {
    let other = error(&with(version_4(), "architectures", json!(["BertModel"])));
    assert_eq!(
        other,
        "config.json: architectures: \"BertModel\" is not supported; supported are LlamaForCausalLM, WindowedForCausalLM"
    );
    let family = error(&json!({"model_type": "gpt2"}));
    assert!(
        family.contains("\"gpt2\" is not supported; supported are LlamaForCausalLM, WindowedForCausalLM"),
        "{family}"
    );
    for endless in [json!({"model_type": "g".repeat(3000)}), json!({"architectures": ["g".repeat(3000)]})] {
        assert!(error(&endless).len() < 200);
    }
    assert!(
        error(&with(version_4(), "architectures", json!("LlamaForCausalLM")))
            .contains("a list of class names")
    );
    assert!(error(&json!({})).contains("is not supported"));
}

#[test]
fn a_key_that_comes_twice_is_refused() {
    let text = br#"{"model_type": "llama", "hidden_size": 64, "hidden_size": 128}"#;
    let error = ModelConfig::from_json(text, SUPPORTED).unwrap_err().to_string();
    assert!(error.contains("config.json: ") && error.contains("\"hidden_size\" comes twice"), "{error}");
}

proptest::proptest! {
    #[test]
    fn no_value_of_any_field_makes_it_panic(
        field in 0_usize..40, number in proptest::num::f64::ANY, kind in 0..7, windowed_family: bool
    ) {
        let base = ["sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "partial_rotary_factor",
            "original_max_position_embeddings"].iter().fold(version_4(), |base, name| with(base, name, json!(null)));
        let base = if windowed_family { windowed(base) } else { base };
        let object = base.as_object().unwrap();
        let names: Vec<&String> = object.keys().collect();
        let name = names[field % names.len()].clone();
        let value = match kind {
            0 => json!(number),
            1 => json!(number as i64),
            2 => json!(number as u64),
            3 => json!([number as u32]),
            4 => json!({"rope_type": "yarn", "factor": number, "rope_theta": number}),
            5 => json!({"rope_type": "longrope", "factor": number, "short_factor": vec![number; 16], "long_factor": vec![1; 16]}),
            _ => json!(number.to_string()),
        };
        if let Ok(config) = read(&with(base, &name, value)) {
            proptest::prop_assert!(config.num_attention_heads % config.num_key_value_heads == 0);
            proptest::prop_assert!(config.head_dim % 2 == 0 && config.rms_norm_eps > 0.0 && config.rope.unwrap().theta > 0.0);
        }
    }
}
