//! Tests of the command that need no process of their own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Arg, Command};

use super::args::Subcommand;
use super::environment::{LIBRARY_VARIABLES, command, variable};
use super::*;

fn parsed(line: &str) -> Result<Subcommand, clap::Error> {
    let line: Vec<OsString> =
        std::iter::once("rsgen").chain(line.split_whitespace()).map(OsString::from).collect();
    environment::parse(&line).map(|(arguments, _)| arguments.subcommand)
}

fn generate(line: &str) -> args::GenerateArguments {
    match parsed(&format!("generate {line}")) {
        Ok(Subcommand::Generate(arguments)) => *arguments,
        other => panic!("{line}: {other:?}"),
    }
}

/// All arguments of all subcommands, with the subcommand.
fn each_argument(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let subcommands = std::iter::once(command).chain(command.get_subcommands());
    subcommands.flat_map(|subcommand| subcommand.get_arguments().map(|arg| (subcommand.get_name(), arg)))
}

#[test]
fn the_definition_of_the_arguments_is_consistent() {
    command().debug_assert();
}

#[test]
fn every_option_has_an_environment_variable() {
    for (subcommand, option) in each_argument(&command()) {
        let Some(long) = option.get_long() else { continue };
        let expected = format!("RSGEN_{}", long.to_ascii_uppercase().replace('-', "_"));
        assert_eq!(variable(option), Some(expected), "{subcommand} --{long}");
    }
}

#[test]
fn an_environment_variable_means_the_same_in_every_subcommand() {
    let command = command();
    let mut meanings = BTreeMap::new();
    for (subcommand, arg) in each_argument(&command) {
        let Some(variable) = variable(arg) else { continue };
        // Defaults depend on the subcommand.
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.split(" [default").next().map(str::to_owned);
        let meaning = (help, arg.get_value_names());
        let (other, known) = meanings.entry(variable.clone()).or_insert((subcommand, meaning.clone()));
        assert_eq!(*known, meaning, "{variable} in {other} and in {subcommand}");
    }
    assert!(meanings.len() > 20, "{meanings:?}");
}

#[test]
fn every_subcommand_has_json_and_examples() {
    for subcommand in command().get_subcommands() {
        let name = subcommand.get_name();
        assert!(subcommand.get_arguments().any(|arg| arg.get_long() == Some("json")), "{name}");
        assert!(subcommand.get_after_help().is_some_and(|help| help.to_string().contains("rsgen")), "{name}");
    }
}

#[test]
fn the_table_of_json_in_docs_shell_has_every_subcommand() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/shell.md")).unwrap();
    let (_, table) = page.split_once("| command | fields |\n|---|---|\n").unwrap();
    let rows = table.lines().map_while(|line| line.strip_prefix("| `")?.split('`').next());
    let mut listed: Vec<&str> = rows.collect();
    let command = command();
    let mut names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    listed.sort_unstable();
    names.sort_unstable();
    assert_eq!(listed, names);
}

/// The generated part of docs/shell.md.
fn tables() -> String {
    let command = command();
    let mut page = String::from("| command | |\n|---|---|\n");
    for subcommand in command.get_subcommands() {
        let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(page, "| `{}` | {about} |", subcommand.get_name());
    }
    page.push_str("\n| variable | option | of | |\n|---|---|---|---|\n");
    let mut rows: BTreeMap<String, (String, Vec<&str>, String)> = BTreeMap::new();
    for (subcommand, arg) in each_argument(&command) {
        let Some(variable) = variable(arg).filter(|_| !arg.is_hide_set()) else { continue };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let row = rows.entry(variable).or_insert_with(|| (String::new(), Vec::new(), help));
        if let Some(long) = arg.get_long() {
            row.0 = format!("`--{long}`");
        }
        row.1.push(subcommand);
    }
    for (variable, (option, subcommands, help)) in rows {
        let subcommands =
            if subcommands == ["rsgen"] || subcommands.len() == command.get_subcommands().count() {
                "all commands".to_owned()
            } else {
                subcommands.join(", ")
            };
        let _ = writeln!(page, "| `{variable}` | {option} | {subcommands} | {help} |");
    }
    page
}

#[test]
fn docs_shell_has_the_generated_tables() {
    const BEGIN: &str = "<!-- tables of the command: begin -->\n\n";
    const END: &str = "\n<!-- tables of the command: end -->";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/shell.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var_os("RSGEN_TEST_WRITE").is_some() {
        std::fs::write(path, [before, BEGIN, &tables(), END, after].concat()).unwrap();
        return;
    }
    assert_eq!(found, tables(), "docs/shell.md is not up to date: run this test with RSGEN_TEST_WRITE=1");
    for name in LIBRARY_VARIABLES {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn switches_can_be_switched_off() {
    for (options, json, no_prompt) in [
        ("", false, false),
        ("--json --no-prompt", true, true),
        ("--json=1 --no-prompt=false", true, false),
        ("--json=no --no-prompt=YES", false, true),
    ] {
        let arguments = generate(&format!("{options} text"));
        assert_eq!((arguments.output.json, arguments.no_prompt), (json, no_prompt), "{options}");
        assert_eq!(arguments.prompt.as_deref(), Some("text"));
    }
    assert!(parsed("generate --json=maybe").is_err());
}

#[test]
fn json_errors_are_detected_before_the_command_line_is_parsed() {
    let asks = |line: &str| {
        let line: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        environment::asks_for_json(&line)
    };
    for line in ["rsgen x --json", "rsgen --json --bogus", "rsgen x --json=false --json=1"] {
        assert!(asks(line), "{line}");
    }
    for line in ["rsgen", "rsgen x", "rsgen x --json=0", "rsgen x -- --json", "rsgen --jsonl", "--json"] {
        assert!(!asks(line), "{line}");
    }
}

#[test]
fn options_have_the_names_of_the_fields_they_set() {
    let line = "--max-new-tokens 1 --min-new-tokens 2 --max-length 3 --max-time 4.5 --stop a --stop b --do-sample \
                --temperature 0.5 --top-k 6 --top-p 0.7 --min-p 0.08 --repetition-penalty 1.9 \
                --num-return-sequences 10 --seed 18446744073709551615 text";
    let arguments = generate(line);
    assert_eq!(arguments.prompt.as_deref(), Some("text"));
    let fields = arguments.decoding.0.to_json();
    let expected = serde_json::json!({
        "max_length": 3, "max_new_tokens": 1, "min_new_tokens": 2, "max_time": 4.5, "stop_strings": ["a", "b"],
        "do_sample": true, "temperature": 0.5, "top_k": 6, "top_p": 0.7, "min_p": 0.08, "repetition_penalty": 1.9,
        "num_return_sequences": 10, "seed": u64::MAX
    });
    assert_eq!(serde_json::Value::Object(fields), expected);
    assert!(generate("text").decoding.0.to_json().is_empty(), "what is not given stays with the model");
}

#[test]
fn sampling_can_be_switched_off_and_does_not_take_the_prompt_for_its_value() {
    assert_eq!(generate("--do-sample=false x").decoding.0.do_sample, Some(false));
    let arguments = generate("--do-sample no");
    assert_eq!(arguments.prompt.as_deref(), Some("no"));
    assert_eq!(arguments.decoding.0.do_sample, Some(true));
}

#[test]
fn bytes_may_be_given_in_units() {
    let bytes = |text: &str| generate(&format!("--kv-cache-bytes {text}")).model.loading.kv_cache_bytes;
    assert_eq!(bytes("1000"), Some(1000));
    assert_eq!(bytes("3k"), Some(3 << 10));
    assert_eq!(bytes("512M"), Some(512 << 20));
    assert_eq!(bytes("2GiB"), Some(2 << 30));
    for wrong in ["M", "-1", "1X", "1.5G", "99999999999T", ""] {
        assert!(parsed(&format!("generate --kv-cache-bytes={wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn a_dash_is_a_prompt_and_two_end_the_options() {
    assert_eq!(generate("-").prompt.as_deref(), Some("-"));
    assert_eq!(generate("-- --top-p").prompt.as_deref(), Some("--top-p"));
}

#[test]
fn weights_can_be_rounded_while_they_are_loaded() {
    assert_eq!(generate("x").model.loading.dtype, None);
    assert_eq!(
        generate("--dtype bfloat16 x").model.loading.dtype,
        Some(rsgen_kernels::tensor::DType::Bf16.into())
    );
    assert!(parsed("generate --dtype int3 x").is_err());
}

#[test]
fn a_panic_becomes_the_exit_code_of_a_defect() {
    let bundled = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m"));
    let arguments = ["rsgen", "generate", "--json", "x"].map(OsString::from);
    assert_eq!(run(arguments, Some(bundled), &mut || panic!("a defect")), 70);
}
