//! `rsgen tokenize`: text to tokens and back.

use rsgen::Generator;
use serde_json::{Value, json};

use super::support::{
    PROMPT, failure, failure_of, json_of, keys, only_object, quiet_stdout, stdout, with_stdin,
};

const AWKWARD: &str = "Ein Bär</s> ging\n\tin den Wald 🦊 \u{1b}[2J";

#[test]
fn json_holds_the_tokens_of_the_library_with_their_places() {
    let generator = Generator::bundled().unwrap();
    let tokenizer = generator.tokenizer().unwrap();
    let object = json_of(&["tokenize", "--json", AWKWARD]);
    assert_eq!(keys(&object), ["schema_version", "model", "text", "token_ids", "tokens", "bytes", "offsets"]);
    let ids = tokenizer.encode(AWKWARD, true).unwrap();
    assert_eq!((&object["model"], &object["text"]), (&json!(generator.name()), &json!(AWKWARD)));
    assert_eq!(object["token_ids"], json!(ids.iter().map(|id| id.0).collect::<Vec<_>>()));
    assert_eq!(object["tokens"], json!(ids.iter().map(|&id| tokenizer.token(id)).collect::<Vec<_>>()));
    assert_eq!((&object["tokens"][0], &object["offsets"][0]), (&json!("<s>"), &Value::Null));

    // Without the first token, which was added, the bytes are those of the text, and the offsets cover it.
    let bytes: Vec<Vec<u8>> = serde_json::from_value(object["bytes"].clone()).unwrap();
    assert_eq!(bytes[1..].concat(), AWKWARD.as_bytes());
    let places: Vec<[usize; 2]> =
        serde_json::from_value(json!(object["offsets"].as_array().unwrap()[1..])).unwrap();
    let mut end = 0;
    for [first, last] in places {
        assert!(first <= end && last >= end, "{object}");
        end = last;
    }
    assert_eq!(end, AWKWARD.chars().count());
}

#[test]
fn the_table_shows_every_token_and_cannot_steer_a_terminal() {
    let table = stdout(&["tokenize", AWKWARD]);
    let object = json_of(&["tokenize", "--json", AWKWARD]);
    assert_eq!(table.lines().count(), 1 + object["token_ids"].as_array().unwrap().len());
    assert!(table.lines().nth(1).unwrap().ends_with(" 0              <s>"), "{table}");
    assert!(!table.contains('\u{1b}') && table.contains("u{1b}"), "{table}");
    assert!(table.contains(r#"6..7  "r""#), "{table}");
}

#[test]
fn ids_go_back_to_the_text() {
    for text in [PROMPT, AWKWARD, "", " two  spaces ", "line\n\nlines\n"] {
        let ids = stdout(&["tokenize", "--no-special-tokens", "--ids", text]);
        assert_eq!(stdout(&["tokenize", "--decode", &ids]), format!("{text}\n"));
        let output = with_stdin(&["tokenize", "--decode", "-"], ids.as_bytes());
        assert_eq!(quiet_stdout(&output), format!("{text}\n"));
        let object = json_of(&["tokenize", "--json", "--no-special-tokens", text]);
        let back = json_of(&["tokenize", "--decode", "--json", &object["token_ids"].to_string()]);
        assert_eq!(keys(&back), ["schema_version", "model", "token_ids", "text"]);
        assert_eq!((&back["text"], &back["token_ids"]), (&json!(text), &object["token_ids"]));
    }
}

#[test]
fn special_tokens_are_left_out_on_demand() {
    let ids = |options: &[&str]| stdout(&[&["tokenize", "--ids", PROMPT], options].concat());
    assert_eq!(ids(&[]), "0 569 570 263 447\n");
    assert_eq!(ids(&["--no-special-tokens"]), "569 570 263 447\n");
    assert_eq!(stdout(&["tokenize", "--decode", "0 569 1"]), "<s>Once</s>\n");
    assert_eq!(stdout(&["tokenize", "--decode", "--no-special-tokens", "0 569 1"]), "Once\n");
}

#[test]
fn the_text_may_come_from_standard_input() {
    for arguments in [&["tokenize", "--json"][..], &["tokenize", "--json", "-"]] {
        let output = with_stdin(arguments, b"Once\nupon\n");
        assert_eq!(only_object(&quiet_stdout(&output))["text"], "Once\nupon");
    }
    let (code, errors) = failure_of(&with_stdin(&["tokenize"], b"\xff"));
    assert!(code == 1 && errors.contains("UTF-8"), "{errors}");
}

#[test]
fn what_is_no_id_is_named() {
    let (code, errors) = failure(&["tokenize", "--decode", "1 two 3"]);
    assert!(code == 1 && errors.contains("got \"two\""), "{errors}");
}

#[test]
fn a_model_without_a_tokenizer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (code, errors) = failure(&["tokenize", "--model", folder.path().to_str().unwrap(), PROMPT]);
    assert!(code == 3 && errors.contains("tokenizer"), "{errors}");
}

#[test]
fn an_id_beyond_the_vocabulary_is_an_error() {
    let (code, errors) = failure(&["tokenize", "--decode", "569 99999"]);
    assert!(code == 1 && errors.contains("0 to 2047, got 99999"), "{errors}");
}
