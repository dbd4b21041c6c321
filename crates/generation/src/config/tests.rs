//! Tests of the configuration table: types, names, files, precedence.

use serde_json::json;

use super::*;
use rsgen_core::ErrorKind;

fn call(value: Value) -> Result<GenerationConfig> {
    let Value::Object(map) = value else { panic!("not an object") };
    GenerationConfig::from_call(map)
}

fn message(value: Value) -> String {
    call(value).unwrap_err().to_string()
}

#[test]
fn builder_calls_and_json_set_the_same_fields() {
    let built = GenerationConfig::new()
        .max_length(100)
        .max_new_tokens(60)
        .min_length(3)
        .min_new_tokens(2)
        .max_time(1.5)
        .stop_strings(["a", "b"])
        .do_sample(true)
        .sequence_bias(SequenceBias::new([(vec![TokenId(1), TokenId(2)], -0.5)]))
        .logit_bias(LogitBias::new([(TokenId(3), 2.0)]))
        .diversity_penalty(0.5)
        .encoder_repetition_penalty(1.2)
        .repetition_penalty(1.1)
        .frequency_penalty(0.1)
        .presence_penalty(-0.1)
        .no_repeat_ngram_size(3)
        .encoder_no_repeat_ngram_size(4)
        .bad_words_ids(vec![vec![TokenId(5)], vec![TokenId(6), TokenId(7)]])
        .forced_bos_token_id(1)
        .forced_eos_token_id([TokenId(1), TokenId(2)])
        .remove_invalid_values(true)
        .exponential_decay_length_penalty((5, 1.01))
        .suppress_tokens(vec![TokenId(8)])
        .begin_suppress_tokens(vec![TokenId(9)])
        .num_beams(3)
        .early_stopping(EarlyStopping::Never)
        .length_penalty(-0.5)
        .num_beam_groups(3)
        .force_words_ids([
            ForcedWord::Phrase(vec![TokenId(4), TokenId(5)]),
            ForcedWord::AnyOf(vec![vec![TokenId(6)], vec![TokenId(7), TokenId(8)]]),
        ])
        .penalty_alpha(0.6)
        .dola_layers(vec![0, 2])
        .low_memory(true)
        .temperature(0.7)
        .top_h(0.4)
        .top_k(10)
        .top_p(0.9)
        .min_p(0.05)
        .typical_p(0.8)
        .epsilon_cutoff(0.01)
        .eta_cutoff(0.02)
        .renormalize_logits(true)
        .num_return_sequences(2)
        .pad_token_id(2)
        .bos_token_id(0)
        .eos_token_id(vec![TokenId(1), TokenId(7)])
        .output_scores(true)
        .output_logits(false)
        .return_dict_in_generate(true)
        .compat(Compat::V4_49)
        .use_cache(true)
        .prefill_chunk_size(64)
        .seed([7, 8]);
    let json = built.to_json();
    assert_eq!(GenerationConfig::from_call(json.clone()).unwrap(), built);
    assert_eq!(GenerationConfig::from_json_file(&Value::Object(json.clone()).to_string()).unwrap(), built);
    assert_eq!(json["stop_strings"], json!(["a", "b"]));
    assert_eq!(json["eos_token_id"], json!([1, 7]));
    assert_eq!(GenerationConfig::new().eos_token_id(1).stop_strings("a").seed(3).to_json()["seed"], json!(3));
}

#[test]
fn every_field_comes_back_from_json_and_from_its_value() {
    let samples = json!([
        true, 3, 1.5, "4.49", "never", "low", [5, 1.5], [5, 6], [[5], [6, 7]], [0, 1], "constant", {"5": 2.5}, {"(5, 6)": 2.5}, {"bias": 2.5}, {"house": ["Haus", "Heim"]}, "text"
    ]);
    let mut config = GenerationConfig::new();
    for info in GenerationConfig::FIELDS {
        let mut fitting = samples.as_array().unwrap().iter().cloned().map(FieldValue::from);
        let sample = fitting.find(|value| config.set(info.name, value).is_ok());
        assert!(sample.is_some(), "no sample fits `{}`", info.name);
        assert!(
            info.kind.python() == info.served.python() && !info.kind.python().is_empty(),
            "{}",
            info.name
        );
        let mut copy = GenerationConfig::new();
        copy.set(info.name, &config.get(info.name).unwrap()).unwrap();
        assert_eq!(copy.get(info.name), config.get(info.name), "{}", info.name);
    }
    let json = config.to_json();
    assert_eq!(json.len(), GenerationConfig::FIELDS.len());
    assert_eq!(GenerationConfig::from_call(json.clone()).unwrap(), config);
    assert_eq!(GenerationConfig::from_json_file(&Value::Object(json).to_string()).unwrap(), config);
}

#[test]
fn every_field_can_be_set_by_its_name_and_is_documented() {
    for info in GenerationConfig::FIELDS {
        let mut config = GenerationConfig::new();
        config.set(info.name, &FieldValue::Null).unwrap();
        assert_eq!(config, GenerationConfig::new());
        assert!(!info.doc.trim().is_empty() && !info.kind.describe().is_empty() && !info.default.is_empty());
    }
}

#[test]
fn unknown_names_in_a_call_are_refused_with_the_name_that_was_meant() {
    assert_eq!(
        message(json!({"topp": 0.9})),
        "`topp` is not a field of GenerationConfig; did you mean `top_p`?"
    );
    assert!(message(json!({"max_new_token": 5})).contains("did you mean `max_new_tokens`?"));
    assert!(message(json!({"max_tokens": 5})).contains("did you mean `max_new_tokens`?"));
    assert!(
        message(json!({"banana": 5}))
            .ends_with("is not a field of GenerationConfig, or not one of this version")
    );
    assert!(message(json!({"x".repeat(100_000): 5})).len() < 200);
    assert_eq!(call(json!({"topp": 0.9})).unwrap_err().field(), Some("topp"));
}

#[test]
fn values_of_another_type_are_refused_with_field_kind_and_value() {
    for (value, expected) in [
        (
            json!({"top_k": 2.5}),
            "`top_k` must be an integer of 0 or more, but is 2.5; leaving it out leaves it unset",
        ),
        (
            json!({"top_k": -1}),
            "`top_k` must be an integer of 0 or more, but is -1; leaving it out leaves it unset",
        ),
        (
            json!({"top_k": true}),
            "`top_k` must be an integer of 0 or more, but is true; leaving it out leaves it unset",
        ),
        (json!({"top_p": "0.9"}), "`top_p` must be a number, but is \"0.9\"; leaving it out leaves it unset"),
        (
            json!({"do_sample": 1}),
            "`do_sample` must be true or false, but is 1; leaving it out leaves it unset",
        ),
        (
            json!({"stop_strings": ["a", 1]}),
            "`stop_strings` must be a text or a list of texts, but is [\"a\", 1]; leaving it out leaves it unset",
        ),
        (
            json!({"eos_token_id": [1, -1]}),
            "`eos_token_id` must be a token id (an integer of 0 or more) or a list of them, but is [1, \
             -1]; leaving it out leaves it \
             unset",
        ),
        (
            json!({"pad_token_id": 4_294_967_296_u64}),
            "`pad_token_id` must be a token id (an integer of 0 or more), but is 4294967296; leaving it out leaves \
             it unset",
        ),
        (
            json!({"temperature": {"a": 1}}),
            "`temperature` must be a number, but is {\"a\": 1}; leaving it out leaves it unset",
        ),
    ] {
        assert_eq!(message(value), expected);
    }
}

#[test]
fn long_values_are_shown_in_part() {
    assert!(message(json!({"top_p": "x".repeat(1_000_000)})).len() < 200);
    assert!(message(json!({"top_p": vec![1; 100_000]})).len() < 200);
    assert!(message(json!({"top_p": "ü".repeat(200)})).len() < 300);
}

#[test]
fn integers_are_numbers_and_null_is_unset() {
    let config = call(json!({"temperature": 2, "top_p": null})).unwrap();
    assert_eq!(config.temperature, Some(2.0));
    assert_eq!(config.top_p, None);
}

#[test]
fn not_a_number_passes_the_type_check_of_a_call_for_the_plan_to_refuse() {
    let config = GenerationConfig::from_call([("top_p".to_owned(), f64::NAN)]).unwrap();
    assert!(config.top_p.unwrap().is_nan());
}

#[test]
fn negative_seeds_are_those_of_torch() {
    assert_eq!(call(json!({"seed": -1})).unwrap().seed, Some(OneOrMany::One(u64::MAX)));
    assert_eq!(call(json!({"seed": u64::MAX})).unwrap().seed, Some(OneOrMany::One(u64::MAX)));
    let beyond = FieldValue::Int(i128::from(u64::MAX) + 1);
    assert!(GenerationConfig::from_call([("seed".to_owned(), beyond)]).is_err());
}

#[test]
fn a_file_keeps_what_is_no_field() {
    let text = r#"{"transformers_version": "4.57.6", "eos_token_id": [1, -1], "pad_token_id": -1,
        "trainer_seed": 1, "top_k": 5}"#;
    let config = GenerationConfig::from_json_file(text).unwrap();
    assert_eq!(config.eos_token_id, Some(OneOrMany::Many(vec![TokenId(1)])));
    assert_eq!(config.pad_token_id, None);
    assert_eq!(config.top_k, Some(5));
    assert_eq!(config.extra["trainer_seed"], json!(1));
    assert_eq!(config.to_json()["transformers_version"], json!("4.57.6"));
}

#[test]
fn damaged_files_are_refused() {
    for (text, reason) in [
        ("", "it is not valid JSON"),
        ("[1]", "it must be a JSON object"),
        ("{\"top_k\": ", "it is not valid JSON"),
        ("{\"top_k\": NaN}", "which has no NaN and no Infinity"),
        (r#"{"top_k": 1, "top_k": 2}"#, "the key \"top_k\" comes twice"),
        (r#"{"other": {"a": 1, "a": 2}}"#, "the key \"a\" comes twice"),
    ] {
        let error = GenerationConfig::from_json_file(text).unwrap_err();
        assert_eq!(error.kind(), rsgen_core::error::ErrorKind::Load);
        assert!(error.to_string().contains(reason), "{error}");
    }
    let error = GenerationConfig::from_json_file(r#"{"top_k": "many"}"#).unwrap_err();
    assert_eq!(error.kind(), rsgen_core::error::ErrorKind::Load);
    assert!(error.to_string().contains("`top_k` must be an integer"), "{error}");
}

#[test]
fn set_fields_have_precedence_over_the_base_one_by_one() {
    let base = GenerationConfig::from_json_file(r#"{"top_k": 5, "top_p": 0.5, "a": 1, "b": 2}"#).unwrap();
    let mut config = GenerationConfig::new().top_k(7).seed(1);
    config.extra.insert("a".to_owned(), json!(3));
    let merged = config.merged_over(&base);
    assert_eq!((merged.top_k, merged.top_p, merged.min_p), (Some(7), Some(0.5), None));
    assert_eq!((&merged.extra["a"], &merged.extra["b"]), (&json!(3), &json!(2)));
}

#[test]
fn null_in_a_call_switches_a_field_off() {
    let base = GenerationConfig::new().top_k(5).eos_token_id(2).temperature(0.5);
    let off = call(json!({"top_k": null, "eos_token_id": null, "max_time": null})).unwrap();
    let merged = off.merged_over(&base);
    assert_eq!((merged.top_k, &merged.eos_token_id, merged.temperature), (None, &None, Some(0.5)));
    assert_eq!((merged.top_k_or_default(), GenerationConfig::new().top_k_or_default()), (0, 50));
    assert_eq!(merged.merged_over(&base), merged, "it stays off however often it is merged");
    assert_eq!(GenerationConfig::new().top_k(7).merged_over(&off).top_k, Some(7));
    assert_eq!(off.clone().top_k(3).merged_over(&base).top_k, Some(3), "setting it switches it on again");
    assert_eq!(call(Value::Object(off.to_json())).unwrap(), off);
    assert!(GenerationConfig::new().switch_off("banana").is_err());
    assert_eq!(GenerationConfig::new().switch_off("use_mtp").unwrap(), GenerationConfig::new());
}

#[test]
fn an_end_token_of_minus_one_is_no_token() {
    assert_eq!(call(json!({"eos_token_id": -1})).unwrap().eos_token_id, Some(OneOrMany::Many(Vec::new())));
    assert!(call(json!({"pad_token_id": -1})).is_err());
}

#[test]
fn a_models_config_gives_its_generation_fields() {
    let Value::Object(model) =
        json!({"hidden_size": 8, "bos_token_id": 1, "eos_token_id": [2, -1], "pad_token_id": -1})
    else {
        unreachable!()
    };
    let config = GenerationConfig::from_model_config(model).unwrap();
    assert_eq!(config, GenerationConfig::new().bos_token_id(1).eos_token_id(vec![TokenId(2)]));
    // As transformers 5.24: null is unset, the part for the decoder fills in, and own fields are none of a
    // model's.
    let read = |json: Value| GenerationConfig::from_model_config(json.as_object().unwrap().clone()).unwrap();
    let inner = json!({"num_beams": 4, "top_k": 7, "eos_token_id": 9});
    for part in ["decoder", "generator", "text_config"] {
        let config = read(json!({"top_k": 5, "num_beams": null, "seed": 3, "window": 9, part: inner}));
        assert_eq!(config, read(json!({"top_k": 5, "num_beams": 4, "eos_token_id": 9})), "{part}");
    }
    assert_eq!(read(json!({"text_config": {"seed": 3}, "hidden_size": 8})), GenerationConfig::new());
}

#[test]
fn each_refused_value_names_its_field_as_data() {
    let numbers = [-1.0, 0.0, 1.5, 1e300, f64::NAN, f64::INFINITY].map(FieldValue::Float);
    let integers = [-1, 0, 2, i128::from(u64::MAX), i128::MAX].map(FieldValue::Int);
    let others = [json!("("), json!([]), json!([[]]), json!([0, 1e300]), json!({"not": {}}), json!(true)];
    let values: Vec<FieldValue> =
        numbers.into_iter().chain(integers).chain(others.map(FieldValue::from)).collect();
    for info in GenerationConfig::FIELDS {
        let mut refused = 0;
        for value in &values {
            let mut config = GenerationConfig::new().max_new_tokens(5);
            let checked = config.set(info.name, value).and_then(|()| config.validate());
            let Err(error) = checked else { continue };
            refused += 1;
            assert_eq!(error.field(), Some(info.name), "{value}: {error}");
            assert_eq!((error.kind(), error.origin()), (ErrorKind::Config, None), "{error}");
            let shouted = error.in_words(&|mention| format!("<{mention:?}>"));
            assert!(shouted.starts_with(&format!("<Name({:?})>", info.name)), "{shouted}");
            for word in ["None", "True", "False"] {
                assert!(!error.to_string().split(' ').any(|part| part == word), "Python's word: {error}");
            }
        }
        assert!(refused > 0, "{} takes everything", info.name);
    }
}
