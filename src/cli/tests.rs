//! What of the command can be tested without a process of its own.

use clap::CommandFactory;

use super::args::{Arguments, Verb};
use super::*;

fn parsed(line: &str) -> Result<Verb, clap::Error> {
    let arguments = std::iter::once("rsgen").chain(line.split_whitespace()).map(OsString::from);
    parse(arguments).map(|arguments| arguments.verb)
}

fn generate(line: &str) -> args::GenerateArguments {
    match parsed(&format!("generate {line}")) {
        Ok(Verb::Generate(arguments)) => *arguments,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_definition_of_the_arguments_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn every_option_has_its_name_in_the_environment() {
    for verb in Arguments::command().get_subcommands() {
        for option in verb.get_arguments() {
            // That of the number of threads is read by the engine, and help, version and verbose have none.
            let Some(long) = option.get_long().filter(|long| *long != "num-threads") else { continue };
            let expected = format!("RSGEN_{}", long.to_ascii_uppercase().replace('-', "_"));
            assert_eq!(option.get_env().and_then(|name| name.to_str()), Some(&*expected), "--{long}");
        }
    }
}

#[test]
fn options_have_the_names_of_the_fields_they_set() {
    let line = "--max-new-tokens 1 --min-new-tokens 2 --max-length 3 --max-time 4.5 --stop a --stop b --do-sample \
                --temperature 0.5 --top-k 6 --top-p 0.7 --min-p 0.08 --repetition-penalty 1.9 \
                --num-return-sequences 10 --seed 18446744073709551615 text";
    let arguments = generate(line);
    assert_eq!(arguments.prompt.as_deref(), Some("text"));
    let fields = arguments.generation_config().to_json();
    let expected = serde_json::json!({
        "max_length": 3, "max_new_tokens": 1, "min_new_tokens": 2, "max_time": 4.5, "stop_strings": ["a", "b"],
        "do_sample": true, "temperature": 0.5, "top_k": 6, "top_p": 0.7, "min_p": 0.08, "repetition_penalty": 1.9,
        "num_return_sequences": 10, "seed": u64::MAX
    });
    assert_eq!(serde_json::Value::Object(fields), expected);
    assert!(
        generate("text").generation_config().to_json().is_empty(),
        "what is not given stays with the model"
    );
}

#[test]
fn sampling_can_be_switched_off_and_does_not_take_the_prompt_for_its_value() {
    assert_eq!(generate("--do-sample=false x").generation_config().do_sample, Some(false));
    let arguments = generate("--do-sample no");
    assert_eq!(arguments.prompt.as_deref(), Some("no"));
    assert_eq!(arguments.generation_config().do_sample, Some(true));
}

#[test]
fn bytes_may_be_given_in_units() {
    let bytes = |text: &str| generate(&format!("--kv-cache-bytes {text}")).model.kv_cache_bytes;
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
    assert_eq!(generate("x").model.dtype.dtype(), None);
    assert_eq!(generate("--dtype bfloat16 x").model.dtype.dtype(), Some(crate::tensor::DType::Bf16));
    assert!(parsed("generate --dtype int3 x").is_err());
}

#[test]
fn a_panic_becomes_the_exit_code_of_a_defect() {
    let bundled = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m"));
    let arguments = ["rsgen", "generate", "--json", "x"].map(OsString::from);
    assert_eq!(run(arguments, Some(bundled), &mut || panic!("a defect")), 70);
}
