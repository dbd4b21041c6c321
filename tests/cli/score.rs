//! `rsgen score`: the log-probabilities of the library, ranks, and totals.

use rsgen::{Generator, TokenId};
use serde_json::{Value, json};

use super::support::{PROMPT, failure, failure_of, json_of, keys, quiet_stdout, stdout, with_stdin};

const TEXT: &str = "One day, a little fox saw the blue xylophone.";

/// The values behind the `null` of the first token.
fn predicted<T: serde::de::DeserializeOwned>(list: &Value) -> Vec<T> {
    let list = list.as_array().unwrap();
    assert_eq!(list[0], Value::Null);
    serde_json::from_value(json!(list[1..])).unwrap()
}

#[test]
fn json_holds_the_score_of_the_library() {
    let generator = Generator::bundled().unwrap();
    let expected = generator.score(TEXT).unwrap();
    let object = json_of(&["score", "--json", TEXT]);
    let fields = [
        "schema_version",
        "model",
        "text",
        "token_ids",
        "tokens",
        "logprobs",
        "ranks",
        "total_logprob",
        "perplexity",
        "scored_tokens",
    ];
    assert_eq!(keys(&object), fields);
    assert_eq!((&object["model"], &object["text"]), (&json!(generator.name()), &json!(TEXT)));
    assert_eq!(predicted::<f32>(&object["logprobs"]), expected[1..], "to the bit");
    assert_eq!(object["scored_tokens"], expected.len() - 1);
    let total: f64 = expected.iter().copied().map(f64::from).sum();
    assert_eq!(object["total_logprob"], json!(total));
    assert_eq!(object["perplexity"], json!((-total / (expected.len() - 1) as f64).exp()));
}

#[test]
fn ranks_count_the_tokens_that_are_more_likely() {
    let generator = Generator::bundled().unwrap();
    let object = json_of(&["score", "--json", TEXT]);
    let ids: Vec<u32> = serde_json::from_value(object["token_ids"].clone()).unwrap();
    let logits = generator.forward(&[ids.iter().copied().map(TokenId).collect()]).unwrap();
    let rows: Vec<&[f32]> = logits.chunks_exact(logits.len() / ids.len()).collect();
    let expected: Vec<usize> = rows
        .iter()
        .zip(&ids[1..])
        .map(|(row, &id)| {
            let mut order: Vec<u32> = (0..row.len() as u32).collect();
            order.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]));
            1 + order.iter().position(|&other| other == id).unwrap()
        })
        .collect();
    let ranks: Vec<usize> = predicted(&object["ranks"]);
    assert_eq!(ranks, expected);
    assert!(ranks.contains(&1) && ranks.iter().any(|&rank| rank > 30), "an even and an odd text: {ranks:?}");
}

#[test]
fn each_line_of_standard_input_is_a_text() {
    let output = with_stdin(&["score", "--json", "-"], format!("{PROMPT}\n\n{TEXT}\r\n").as_bytes());
    let text = quiet_stdout(&output);
    let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 3);
    assert_eq!(objects[0], json_of(&["score", "--json", PROMPT]));
    assert_eq!(objects[2], json_of(&["score", "--json", TEXT]));
    assert_eq!((&objects[1]["scored_tokens"], &objects[1]["perplexity"]), (&json!(0), &Value::Null));
    assert_eq!(quiet_stdout(&with_stdin(&["score"], b"")), "");
}

#[test]
fn totals_are_one_line_for_each_text() {
    let object = json_of(&["score", "--json", "--totals", PROMPT]);
    let fields = ["schema_version", "model", "text", "total_logprob", "perplexity", "scored_tokens"];
    assert_eq!(keys(&object), fields);
    let (total, perplexity) =
        (object["total_logprob"].as_f64().unwrap(), object["perplexity"].as_f64().unwrap());
    let line = stdout(&["score", "--totals", PROMPT]);
    assert_eq!(line, format!("{total:.4}\t{perplexity:.4}\t4\t{PROMPT}\n"));
    let lines = quiet_stdout(&with_stdin(&["score", "--totals", "-"], format!("{PROMPT}\n\n").as_bytes()));
    assert_eq!(lines, format!("{line}0.0000\t-\t0\t\n"));
}

#[test]
fn the_table_has_a_line_for_each_token_and_the_totals() {
    let table = stdout(&["score", PROMPT]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 1 + 5 + 1, "{table}");
    assert!(lines[1].ends_with("<s>") && lines[2].ends_with("1  \"Once\""), "{table}");
    assert!(lines[6].starts_with("4 tokens scored: log-probability -1.30"), "{table}");
}

#[test]
fn special_tokens_are_left_out_on_demand() {
    let ids =
        |options: &[&str]| json_of(&[&["score", "--json", PROMPT], options].concat())["token_ids"].clone();
    assert_eq!(ids(&[]), json!([0, 569, 570, 263, 447]));
    assert_eq!(ids(&["--no-special-tokens"]), json!([569, 570, 263, 447]));
}

#[test]
fn a_text_that_is_too_long_is_named_by_its_line_and_the_others_go_on() {
    let input = format!("{PROMPT}\n{}\n{TEXT}\n", "Once upon a time ".repeat(1000));
    let output = with_stdin(&["score", "--totals"], input.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2, "the others are there");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.starts_with("rsgen: error: line 2: the text must fit the model's context"), "{errors}");
    assert!(errors.ends_with("rsgen: error: 1 of 3 lines failed\n"), "{errors}");
    let (code, errors) =
        failure_of(&with_stdin(&["score", "--json", &"Once upon a time ".repeat(1000)], b""));
    assert!(code == 1 && errors.contains(r#""message":"the text must fit"#), "{errors}");
}

#[test]
fn a_line_that_is_no_utf_8_is_named_and_the_others_go_on() {
    let input = [PROMPT.as_bytes(), b"\nbad\xff\n", TEXT.as_bytes(), b"\n"].concat();
    for options in
        [&["score", "--totals", "-"][..], &["score", "--json"], &["score", "--no-special-tokens", "--json"]]
    {
        let output = with_stdin(options, &input);
        let errors = String::from_utf8(output.stderr).unwrap();
        let written = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), written.lines().count()), (Some(1), 2), "{errors}");
        assert!(errors.contains("line 2: the text must be UTF-8, but byte 3 is not"), "{errors}");
    }
}

#[test]
fn the_likeliest_tokens_are_shown_on_demand() {
    let object = json_of(&["score", "--json", "--top-logprobs=3", PROMPT]);
    let top = object["top_logprobs"].as_array().unwrap();
    assert_eq!((top.len(), &top[0]), (5, &json!([])));
    for (place, (top, rank)) in top.iter().zip(object["ranks"].as_array().unwrap()).enumerate().skip(1) {
        assert_eq!((top.as_array().unwrap().len(), rank), (3, &json!(1)));
        assert_eq!(top[0], json!([object["token_ids"][place], object["logprobs"][place]]));
    }
    let table = stdout(&["score", "--top-logprobs=2", PROMPT]);
    assert!(table.contains("1  \"Once\"  likeliest: \"Once\" -1.3017, \"One\" "), "{table}");
    let (code, errors) = failure(&["score", "--top-logprobs=99999", PROMPT]);
    assert!(code == 2 && errors.contains("`--top-logprobs` must be at most"), "{errors}");
}
