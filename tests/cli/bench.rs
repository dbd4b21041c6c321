//! `rsgen bench`, and `RSGEN_TIMING`: measurements and reports.

use serde_json::{Value, json};

use super::support::{PROMPT, json_of, keys, only_object, quiet_stdout, run_with, stdout};

const LIMITS: [&str; 4] =
    ["read_gb_per_second", "float32_gflop_per_second", "bfloat16_gflop_per_second", "int8_gop_per_second"];
const QUICK: [&str; 6] =
    ["--repeats=1", "--new-tokens=4", "--prompt-tokens=40", "--batch-size=3", "--num-beams=2", "--json"];

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0 && number.is_finite())
}

#[test]
fn the_limits_of_the_machine_need_no_model() {
    let report = json_of(&["bench", "--limits", "--json", "--num-threads=1", "nobody/nothing"]);
    assert_eq!(keys(&report), ["schema_version", "isa", "num_threads", "limits", "model"]);
    assert_eq!((&report["num_threads"], &report["model"]), (&json!(1), &Value::Null));
    assert_eq!(keys(&report["limits"]), LIMITS);
    assert!(
        [LIMITS[0], LIMITS[1], LIMITS[3]].iter().all(|limit| positive(&report["limits"][limit])),
        "{report}"
    );
    let scalar = quiet_stdout(&run_with(&[("RSGEN_ISA", "scalar")], &["bench", "--limits", "--json"]));
    let scalar = only_object(&scalar);
    assert_eq!(scalar["isa"], "scalar");
    assert_eq!(scalar["limits"][LIMITS[2]], Value::Null, "there are no products of bfloat16");
}

#[test]
fn each_task_says_what_it_was_and_how_fast() {
    let report = json_of(&[&["bench"][..], &QUICK].concat());
    let model = &report["model"];
    assert_eq!(keys(model), ["name", "load_seconds", "matrix_bytes", "tasks"]);
    assert_eq!(model["name"], "story-3m");
    let tasks = model["tasks"].as_array().unwrap();
    let names = ["task", "prompt_tokens", "batch_size", "num_beams", "tokens"];
    let expected = [
        json!(["prefill", 40, 1, 1, 40]),
        json!(["decode", 40, 1, 1, 4]),
        json!(["decode", 40, 3, 1, 12]),
        json!(["beams", 40, 1, 2, 4]),
    ];
    assert_eq!(tasks.len(), expected.len());
    for (task, expected) in tasks.iter().zip(&expected) {
        assert_eq!(&json!(names.map(|name| task[name].clone())), expected);
        assert!(positive(&task["seconds"]), "{task}");
        let rate = task["tokens"].as_f64().unwrap() / task["seconds"].as_f64().unwrap();
        assert!((task["tokens_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{task}");
    }
}

#[test]
fn beams_are_timed_from_their_first_step_on() {
    // Beams agree on a token late, often not before the end, which says nothing about their speed.
    let report = json_of(&["bench", "--new-tokens=40", "--prompt-tokens=40", "--json"]);
    let seconds = |task: usize| report["model"]["tasks"][task]["seconds"].as_f64().unwrap();
    let [decode, beams] = [seconds(1), seconds(3)];
    assert!(beams > 0.5 * decode, "40 passes of 4 rows in {beams} s, those of one row in {decode} s");
}

#[test]
fn the_page_has_a_line_for_each_limit_and_task() {
    let page = stdout(&[&["bench"][..], &QUICK[..5]].concat());
    let lines: Vec<&str> = page.lines().collect();
    for (line, name) in
        lines.iter().zip(["instructions", "threads", "limits", "model", "", "task", "prefill"])
    {
        assert!(line.starts_with(name), "{page}");
    }
    assert_eq!(lines.len(), 10, "{page}");
}

/// The lines of the log about where the time went, by their first word.
fn timing_log(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let variables = [&[("RSGEN_TIMING", "1")], variables].concat();
    let output = run_with(&variables, arguments);
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stderr).unwrap()
}

fn stages(log: &str) -> Vec<&str> {
    log.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect()
}

const STAGES: [&str; 13] = [
    "stage",
    "prepare",
    "wait",
    "cache",
    "embedding",
    "qkv",
    "rope_kv",
    "attention",
    "output",
    "gate_up",
    "down",
    "head",
    "search",
];

#[test]
fn timing_says_where_the_time_of_prompts_and_steps_went() {
    let line = ["generate", "--max-new-tokens=9", PROMPT];
    let log = timing_log(&line, &[]);
    assert!(log.starts_with("rsgen: info: ") && log.contains("threads, "), "{log}");
    assert!(
        log.contains("\nprompt: passes 1, rows 5, ") && log.contains("\nsteps: passes 8, rows 8, "),
        "{log}"
    );
    assert_eq!(stages(&log), [STAGES, STAGES].concat(), "{log}");
    // Six layers in each of eight passes.
    let steps = log.split("\nsteps: ").nth(1).unwrap();
    for (stage, count, has_work) in [("qkv", "48", true), ("head", "8", true)] {
        let line = steps.lines().find(|line| line.trim_start().starts_with(stage)).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((cells[1], cells.len()), (count, if has_work { 7 } else { 4 }), "{line}");
    }
    let shares: f64 = steps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3)?.strip_suffix('%')?.parse::<f64>().ok())
        .sum();
    assert!((shares - 100.0).abs() < 1.0, "{shares} per cent: {log}");
    let with_text = run_with(&[("RSGEN_TIMING", "1")], &line);
    assert_eq!(String::from_utf8(with_text.stdout).unwrap(), stdout(&line), "the text is as ever");
}

#[test]
fn passes_of_an_encoder_are_a_kind_of_their_own() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/toy_translation");
    let line = ["generate", "--model", model, "--num-beams=1", "--max-new-tokens=3", ">>deu<< I like tea."];
    let log = timing_log(&line, &[]);
    let kinds: Vec<&str> = log.lines().filter(|line| line.contains(": passes ")).collect();
    let begin = |kind: &str| kind.split(", ").take(2).collect::<Vec<_>>().join(", ");
    assert!(kinds[0].starts_with("encoder: passes 1, rows "), "{log}");
    // The decoder begins with a token of its own.
    let of_decoder: Vec<String> = kinds[1..].iter().map(|kind| begin(kind)).collect();
    assert_eq!(of_decoder, ["prompt: passes 1, rows 1", "steps: passes 2, rows 2"], "{log}");
    let report = json_of(&[&line[..], &["--json"]].concat());
    let seconds = |name: &str| report["timings"][name].as_f64().unwrap();
    assert!(seconds("encoder_seconds") > 0.0, "{report}");
    assert!(seconds("encoder_seconds") < seconds("first_token_seconds"), "{report}");
    let report = json_of(&[&["bench", model][..], &QUICK].concat());
    let [encoder, decode] = [0, 1].map(|task| &report["model"]["tasks"][task]);
    assert_eq!((&encoder["task"], &encoder["tokens"]), (&json!("encoder"), &json!(40)));
    assert!(positive(&encoder["seconds"]), "{report}");
    assert_eq!((&decode["task"], &decode["tokens"]), (&json!("decode"), &json!(4)));
}

#[test]
fn timing_is_a_record_of_the_log_where_the_log_is_json_and_nothing_when_off() {
    let log = only_object(&timing_log(&["generate", "--json", "--max-new-tokens=2", PROMPT], &[]));
    assert_eq!(log["log"]["level"], "info");
    assert_eq!(stages(log["log"]["message"].as_str().unwrap()).len(), 2 * STAGES.len());
    let log = timing_log(&["score", PROMPT], &[("RSGEN_VERBOSE", "0")]);
    // Nothing follows the last token.
    assert!(log.contains("\nprompt: passes 1, rows 4, ") && !log.contains("\nsteps: "), "{log}");
    assert_eq!(String::from_utf8(run_with(&[("RSGEN_TIMING", "0")], &["score", PROMPT]).stderr).unwrap(), "");
}

#[test]
fn what_the_machine_can_do_is_measured_once_and_not_by_each_call() {
    let log = timing_log(&["bench", "--prompt-tokens=4", "--new-tokens=2", "--repeats=3"], &[]);
    let mut limits: Vec<&str> = log.lines().filter(|line| line.contains("threads, ")).collect();
    assert!(limits.len() > 2, "{log}");
    limits.dedup();
    assert_eq!(limits.len(), 1, "{log}");
}

#[test]
fn each_run_computes_its_prompt_anew() {
    let log = timing_log(&["bench", "--prompt-tokens=64", "--new-tokens=1", "--repeats=2"], &[]);
    let rows: Vec<usize> = log
        .lines()
        .filter(|line| line.starts_with("prompt: "))
        .map(|line| line.split([',', ' ']).nth(5).unwrap().parse().unwrap())
        .collect();
    // Two runs each of the prompt, one text, eight texts and beams. Passes over prompts may have the steps of other texts.
    let prompts = [64, 64, 64, 64, 512, 512, 64, 64];
    assert!(rows.len() == 8 && rows.iter().zip(prompts).all(|(&rows, prompt)| rows >= prompt), "{log}");
}
