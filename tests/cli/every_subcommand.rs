//! Tests of all subcommands: help, JSON, the environment, closed pipes.

use std::io::Read;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::support::{
    PROMPT, SUBCOMMANDS, command, failure, failure_of, json_of, keys, only_object, quiet_stdout, run_with,
    stdout,
};

#[test]
fn the_short_help_fits_on_a_screen() {
    assert_eq!(stdout(&["--version"]), concat!("rsgen ", env!("CARGO_PKG_VERSION"), "\n"));
    let top = stdout(&["-h"]);
    assert!(SUBCOMMANDS.iter().all(|subcommand| top.contains(&format!("\n  {subcommand} "))), "{top}");
    for subcommand in [""].into_iter().chain(SUBCOMMANDS) {
        let arguments: Vec<&str> =
            [subcommand, "-h"].into_iter().filter(|argument| !argument.is_empty()).collect();
        let help = stdout(&arguments);
        let lines = if matches!(subcommand, "generate" | "chat" | "serve" | "translate") { 40 } else { 25 };
        assert!(help.lines().count() <= lines, "{} lines:\n{help}", help.lines().count());
        assert!(help.lines().all(|line| line.len() <= 80), "{help}");
        assert!(help.contains("\nExamples:\n  "), "{help}");
        assert!(!help.contains("RSGEN_") || subcommand == "generate", "no room for the environment: {help}");
    }
}

#[test]
fn the_long_help_is_grouped_and_names_variables_and_ends_with_examples() {
    let help = stdout(&["generate", "--help"]);
    let headings = ["\nLength:\n", "\nDecoding:\n", "\nModel:\n", "\nOutput:\n", "\nExamples:\n"];
    let places: Vec<usize> = headings.iter().map(|heading| help.find(heading).expect(heading)).collect();
    assert!(places.is_sorted(), "{help}");
    for option in ["--top-p <X>", "--min-p <X>", "--penalty-alpha <X>", "--kv-cache-bytes <BYTES>"] {
        let entry = help.split("\n\n").find(|entry| entry.contains(option)).expect(option);
        let name = option[2..].split(' ').next().unwrap().replace('-', "_").to_uppercase();
        assert!(entry.contains(&format!("[env: RSGEN_{name}]")), "{entry}");
    }
    assert!(help.lines().all(|line| line.len() <= 80), "{help}");
    assert!(!stdout(&["generate", "-h"]).contains("--min-p"), "rare options are in the long help alone");
}

#[test]
fn help_without_a_subcommand_is_a_wrong_usage() {
    let (code, errors) = failure(&[]);
    assert_eq!(code, 2);
    assert!(errors.starts_with("Text generation") && errors.contains("generate"), "{errors}");
}

#[test]
fn every_subcommand_writes_one_object_on_one_line_with_a_version() {
    let trace = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trace.path(), "{\"schema_version\": 1, \"events\": []}").unwrap();
    let trace_file = trace.path().to_str().unwrap();
    let page = include_str!("../../docs/shell.md");
    let row = |command: &str| page.lines().find(|line| line.starts_with(&format!("| `{command}` | ")));
    assert!(SUBCOMMANDS.iter().all(|command| row(command).is_some()), "docs/shell.md lists what each writes");
    for arguments in [
        &["generate", "--max-new-tokens=2", PROMPT][..],
        &["chat", "--max-new-tokens=2", "--prompt", PROMPT],
        &["score", PROMPT],
        &["detect", PROMPT],
        &["tokenize", PROMPT],
        &["inspect"],
        &["doctor"],
        &["bench", "--limits"],
        &["completions", "bash"],
        &["show", trace_file],
    ] {
        let object = json_of(&[arguments, &["--json"]].concat());
        assert_eq!(keys(&object)[0], "schema_version");
        let listed = row(if arguments[0] == "chat" { "generate" } else { arguments[0] }).unwrap();
        let is_listed = |key: &&str| listed.contains(&format!("`{key}`"));
        // Those of a config.json are not.
        assert!(
            arguments[0] == "inspect" || keys(&object)[1..].iter().all(is_listed),
            "{:?} in {listed}",
            keys(&object)
        );
        let from_environment = run_with(&[("RSGEN_JSON", "true")], arguments);
        assert_eq!(keys(&only_object(&quiet_stdout(&from_environment))), keys(&object));
    }
}

/// The error object of a run that failed, with its exit code.
fn error(output: &Output) -> (i32, Value) {
    let (code, errors) = failure_of(output);
    let object = only_object(&errors);
    assert_eq!(
        (keys(&object), keys(&object["error"])),
        (vec!["schema_version", "error"], vec!["kind", "message"])
    );
    (code, object["error"].clone())
}

#[test]
fn errors_are_json_on_standard_error_where_json_is_asked_for() {
    for (arguments, code, kind, said) in [
        (&["generate", "--json", "--bogus"][..], 2, "usage", "unexpected argument '--bogus' found"),
        (&["generate", "--top-k", "many", "--json"], 2, "usage", "invalid value 'many' for '--top-k <N>'"),
        (
            &["generate", "--json", "Once", "upon"],
            2,
            "usage",
            "found; a text of several words is one argument",
        ),
        (&["chat", "--json", "--model", "x"], 2, "usage", "the model is this command's argument"),
        (&["--json"], 2, "usage", "--json"),
        (&["frobnicate", "--json"], 2, "usage", "frobnicate"),
        (&["generate", "--json", "--max-new-tokens=0"], 2, "config", "`--max-new-tokens`"),
        (&["score", "--json", "--model", "nobody/nothing", "x"], 3, "load", "hf download nobody/nothing"),
        (&["generate", "--json", "--kv-cache-bytes=1K", "x"], 4, "capacity", "--kv-cache-bytes"),
        (&["tokenize", "--json", "--decode", "x"], 1, "input", "token ids"),
    ] {
        let (found, error) = error(&run_with(&[], arguments));
        assert_eq!((found, &error["kind"]), (code, &json!(kind)), "{arguments:?}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(said) && !message.contains("Usage:") && !message.contains('\n'),
            "{message}"
        );
    }
    assert_eq!(error(&run_with(&[("RSGEN_JSON", "on")], &["score", "--model", "/no"])).1["kind"], "load");
    let (_, text) =
        failure_of(&run_with(&[("RSGEN_JSON", "1")], &["score", "--model", "/no", "--json=false"]));
    assert!(text.starts_with("rsgen: error: "), "{text}");
    let (_, text) = failure(&["generate", "--model", "/no", "--", "--json"]);
    assert!(text.starts_with("rsgen: error: "), "a text is no option: {text}");
}

#[test]
fn the_log_is_json_where_errors_are() {
    let output = run_with(&[], &["generate", "-v", "--json", "--max-new-tokens=1", PROMPT]);
    let log = only_object(&String::from_utf8(output.stderr).unwrap());
    assert_eq!(log["log"]["level"], "info");
    let message = log["log"]["message"].as_str().unwrap();
    for part in ["threads: ", "instruction set: ", "memory: ", "weights: 5657472 bytes", "KV cache: up to "] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let output = run_with(&[("RSGEN_VERBOSE", "1")], &["generate", "--max-new-tokens=1", PROMPT]);
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("rsgen: info: story-3m: threads: "));
}

#[test]
fn options_can_come_from_the_environment_and_the_command_line_goes_before_it() {
    let expected = stdout(&["generate", "--do-sample", "--seed=4", "--max-new-tokens=8", PROMPT]);
    let variables = [("RSGEN_DO_SAMPLE", "1"), ("RSGEN_SEED", "4"), ("RSGEN_MAX_NEW_TOKENS", "20")];
    let output = run_with(&variables, &["generate", "--max-new-tokens=8", PROMPT]);
    assert_eq!(quiet_stdout(&output), expected);
}

#[test]
fn switches_take_every_spelling_and_empty_variables_count_as_absent() {
    let plain = stdout(&["generate", "--max-new-tokens=2", PROMPT]);
    let short = stdout(&["generate", "--max-new-tokens=2", "--no-prompt", PROMPT]);
    for (value, expected) in [
        ("1", &short),
        ("true", &short),
        ("TRUE", &short),
        ("on", &short),
        ("0", &plain),
        ("false", &plain),
        ("no", &plain),
        ("", &plain),
    ] {
        let variables = [("RSGEN_NO_PROMPT", value), ("RSGEN_TOP_K", ""), ("RSGEN_MODEL", "")];
        let output = run_with(&variables, &["generate", "--max-new-tokens=2", PROMPT]);
        assert_eq!(&quiet_stdout(&output), expected, "{value:?}");
    }
    let output =
        run_with(&[("RSGEN_NO_PROMPT", "1")], &["generate", "--max-new-tokens=2", "--no-prompt=0", PROMPT]);
    assert_eq!(quiet_stdout(&output), plain);
}

#[test]
fn a_wrong_value_from_the_environment_is_traced_to_its_variable() {
    for (variable, value, arguments, code) in [
        ("RSGEN_TOP_K", "many", &["generate", PROMPT][..], 2),
        ("RSGEN_JSON", "banana", &["inspect"], 2),
        ("RSGEN_VERBOSE", "much", &["doctor"], 2),
        ("RSGEN_DTYPE", "int3", &["score", PROMPT], 2),
        ("RSGEN_NUM_THREADS", "0", &["doctor"], 2),
        ("RSGEN_ISA", "sse9", &["doctor"], 2),
        ("RSGEN_TIMING", "much", &["generate", PROMPT], 2),
        ("RSGEN_MAX_NEW_TOKENS", "0", &["generate", PROMPT], 2),
        ("RSGEN_MODEL", "/no/such/folder", &["tokenize", PROMPT], 3),
        ("RSGEN_MODEL", "/no/such/folder", &["inspect"], 3),
        ("RSGEN_KV_CACHE_BYTES", "1K", &["generate", PROMPT], 4),
    ] {
        let (found, errors) = failure_of(&run_with(&[(variable, value)], arguments));
        assert_eq!(found, code, "{variable}: {errors}");
        assert!(errors.starts_with("rsgen: error: ") && errors.contains(variable), "{variable}: {errors}");
    }
    // The value of the command line is invalid, whatever the environment sets.
    let (_, errors) =
        failure_of(&run_with(&[("RSGEN_TOP_K", "many")], &["generate", "--top-k", "few", PROMPT]));
    assert!(errors.contains("'few'") && !errors.contains("RSGEN_TOP_K"), "{errors}");
    let (_, errors) =
        failure_of(&run_with(&[("RSGEN_TOP_K", "3")], &["generate", "--max-new-tokens=0", PROMPT]));
    assert!(!errors.contains("RSGEN_"), "{errors}");
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_work_quietly() {
    let long = "never ".repeat(20_000);
    for arguments in [
        &["generate", "--min-new-tokens=400", "--max-length=500", PROMPT][..],
        &["tokenize", &long],
        &["completions", "bash"],
        &["generate", "--help"],
    ] {
        let mut child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 20]).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{}", arguments[0]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    for arguments in [&["generate", PROMPT][..], &["score", PROMPT], &["tokenize", PROMPT], &["doctor"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.starts_with("rsgen: error: standard output cannot be written"), "{errors}");
    }
}

#[test]
fn messages_are_in_the_words_of_the_shell() {
    let (_, errors) = failure(&["generate", "--num-return-sequences=2", PROMPT]);
    assert!(errors.ends_with("but is 2; set --do-sample\n"), "{errors}");
    let output = run_with(&[], &["generate", "--top-p=0.5", "--max-new-tokens=1", PROMPT]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.starts_with("rsgen: warning: `--top-p` has no effect because `--do-sample` is not set"),
        "{errors}"
    );
}

#[test]
fn a_variable_that_nothing_reads_is_named_with_what_was_meant() {
    for (variable, said) in [
        (
            "RSGEN_TEMPRATURE",
            "RSGEN_TEMPRATURE is unknown and has no effect; did you mean RSGEN_TEMPERATURE?",
        ),
        ("RSGEN_MAX_TOKENS", "did you mean RSGEN_MAX_NEW_TOKENS?"),
        ("RSGEN_BANANA", "RSGEN_BANANA is unknown and has no effect\n"),
    ] {
        let output = run_with(&[(variable, "1")], &["tokenize", "--ids", PROMPT]);
        assert_eq!(output.stdout, stdout(&["tokenize", "--ids", PROMPT]).as_bytes());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.starts_with("rsgen: warning: ") && errors.contains(said), "{errors}");
    }
}
