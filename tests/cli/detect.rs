//! `rsgen detect`: what the library's detectors find.

use rsgen::generation::{
    GenerationConfig, SynthIDTextWatermarkDetector, SynthIDTextWatermarkingConfig, WatermarkDetector,
    WatermarkingConfig,
};
use rsgen::{Generator, TokenId};
use serde_json::json;

use super::support::{PROMPT, failure, json_of, keys, quiet_stdout, run_with, stdout};

const GREEN: &str = r#"{"bias": 6.0, "greenlist_ratio": 0.5}"#;
const SYNTHID: &str = r#"{"ngram_len": 3, "keys": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]}"#;

/// A text of the bundled model with this watermark, as the ids that the command takes.
fn marked(watermark: &str) -> (String, Vec<TokenId>) {
    let arguments = [
        "generate",
        "--json",
        "--do-sample",
        "--seed=4",
        "--temperature=1.6",
        "--max-new-tokens=150",
        "--watermarking-config",
        watermark,
        PROMPT,
    ];
    let object = json_of(&arguments);
    let ids: Vec<u32> = serde_json::from_value(object["token_ids"][0].clone()).unwrap();
    let text: Vec<String> = ids.iter().map(u32::to_string).collect();
    (text.join(" "), ids.into_iter().map(TokenId).collect())
}

#[test]
fn a_marked_text_is_found_and_another_is_not() {
    let (text, ids) = marked(GREEN);
    let object = json_of(&["detect", "--json", "--token-ids", "--watermarking-config", GREEN, &text]);
    let generator = Generator::bundled().unwrap();
    let config = WatermarkingConfig { bias: 6.0, greenlist_ratio: 0.5, ..WatermarkingConfig::default() };
    let model = generator.config();
    let detector = WatermarkDetector::new(&config, model.vocab_size, model.bos_token_id).unwrap();
    let found = detector.detect(&ids).unwrap();
    assert_eq!(object["z_score"], json!(found.z_score));
    assert_eq!(object["p_value"], json!(found.p_value));
    assert_eq!(object["num_green_tokens"], found.num_green_tokens);
    assert_eq!(object["prediction"], true);
    let another = r#"{"hashing_key": 77, "greenlist_ratio": 0.5}"#;
    let object = json_of(&["detect", "--json", "--token-ids", "--watermarking-config", another, &text]);
    assert_eq!(object["prediction"], false, "{object}");
    let shown = stdout(&["detect", "--token-ids", "--watermarking-config", GREEN, &text]);
    assert!(shown.starts_with("a watermark: "), "{shown}");
    let plain = stdout(&["detect", "One day, a little fox saw the blue xylophone."]);
    assert!(plain.starts_with("no watermark: "), "{plain}");
}

#[test]
fn the_scores_of_synthid_are_those_of_the_library() {
    let (text, ids) = marked(SYNTHID);
    let object = json_of(&["detect", "--json", "--token-ids", "--watermarking-config", SYNTHID, &text]);
    assert_eq!(
        keys(&object),
        ["schema_version", "model", "num_tokens_scored", "mean", "weighted_mean", "posterior"]
    );
    let eos = Generator::bundled().unwrap().generation_config().eos_token_id.clone();
    let eos = eos.map(|eos| eos.as_slice().to_vec()).unwrap_or_default();
    let config = SynthIDTextWatermarkingConfig::new(3, (5..25).collect());
    let scores = SynthIDTextWatermarkDetector::new(config, eos).unwrap().detect(&ids).unwrap();
    assert_eq!(object["mean"], json!(scores.mean()));
    assert_eq!(object["weighted_mean"], json!(scores.weighted_mean()));
    // Six standard deviations above the mean of a text without a mark.
    assert!(scores.mean() > 0.55, "{}", scores.mean());
    let output = run_with(&[("RSGEN_WATERMARKING_CONFIG", SYNTHID)], &["detect", "--token-ids", &text]);
    assert!(quiet_stdout(&output).contains("0.5 is no watermark"));
    assert!(GenerationConfig::is_field("watermarking_config"));
}

#[test]
fn what_is_wrong_is_said_with_the_option() {
    for (arguments, said) in [
        (&["detect", "--watermarking-config", "{", "x"][..], "it must be JSON"),
        (&["detect", "--watermarking-config", r#"{"bais": 1}"#, "x"], "\"bais\", which is no field"),
        (
            &["detect", "--watermarking-config", r#"{"greenlist_ratio": 2}"#, "a text"],
            "`greenlist_ratio` must be above 0",
        ),
        (&["detect", ""], "more tokens than `context_width`"),
        (&["detect", "--token-ids", "a"], "token ids must be numbers"),
        (&["detect", "--detector", "nobody/nothing", PROMPT], "nobody/nothing"),
    ] {
        let (_, error) = failure(arguments);
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}
