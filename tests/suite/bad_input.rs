//! Bad input to the Rust interface, where it differs from Python's: its own types, options and values of fields. The
//! damaged folders and most requests are in `tests/test_bad_input.py` and `tests/test_bad_requests.py`.

use std::fs;
use std::sync::LazyLock;

use rsgen::generation::{FieldValue, OneOrMany};
use rsgen::text::{ChatOptions, Message};
use rsgen::{
    Error, ErrorKind, GenerationConfig, Generator, GeneratorOptions, Prompt, PromptBatch, Prompts, Result,
    TokenId,
};

const PROMPT: &str = "Once upon a time";

static GENERATOR: LazyLock<Generator> =
    LazyLock::new(|| Generator::bundled_with(&GeneratorOptions::new().num_threads(1)).unwrap());

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

/// The error must be of this kind and contain these words; the generator still works.
fn refused<T>(result: Result<T>, kind: ErrorKind, words: &[&str]) {
    static BEFORE: LazyLock<Vec<TokenId>> = LazyLock::new(answer);
    let error: Error = result.err().unwrap_or_else(|| panic!("an error with {words:?}"));
    let message = error.to_string();
    assert_eq!(error.kind(), kind, "{message}");
    assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
    assert_eq!(answer(), *BEFORE);
    let stats = GENERATOR.engine().pool().stats();
    assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0));
}

fn answer() -> Vec<TokenId> {
    let output = GENERATOR.generate(PROMPT, &GenerationConfig::new().max_new_tokens(6)).unwrap();
    output.token_ids().to_vec()
}

/// One test, because each case looks at the one generator's cache.
#[test]
fn bad_calls_are_refused_in_words_and_leave_nothing_behind() {
    let config = || GenerationConfig::new().max_new_tokens(2);
    let generate = |prompts: Prompts| GENERATOR.generate(prompts, &config());
    let input = ErrorKind::Input;

    refused(generate(Prompts::List(vec![])), input, &["list of prompts is empty", "at least one"]);
    refused(generate(ids(&[1, 2048]).into()), input, &["holds the id 2048 (token 1)", "0 to 2047"]);
    refused(generate(ids(&[u32::MAX]).into()), input, &["4294967295"]);
    refused(generate(ids(&[5; 512]).into()), input, &["512 tokens", "holds 512", "at least 1", "shorten"]);
    refused(
        generate(Prompts::List(vec![PROMPT.into(), Prompt::Ids(ids(&[9000]))])),
        input,
        &["prompt 1: the prompt holds the id 9000"],
    );
    refused(generate("a".repeat(1 << 20).into()), input, &["1048576 bytes", "256", "512 tokens", "shorten"]);

    refused(PromptBatch::single(vec![]), input, &["no token", "at least one"]);
    refused(
        PromptBatch::rectangular(vec![ids(&[1]), ids(&[1, 2])]),
        input,
        &["equal length", "prompt 1 has 2"],
    );
    refused(PromptBatch::with_mask(vec![ids(&[1])], vec![vec![]]), input, &["row 0 has 0 entries for 1 ids"]);
    refused(
        PromptBatch::with_mask(vec![ids(&[1])], vec![vec![false]]),
        input,
        &["all padding", "leave it out"],
    );

    refused(GENERATOR.forward(&[]), input, &["of one length, and not empty"]);
    refused(GENERATOR.forward(&[ids(&[1]), ids(&[1, 2])]), input, &["of one length"]);
    refused(GENERATOR.forward(&[ids(&[1, 5000])]), input, &["0 to 2047", "got 5000 at position 1"]);
    refused(GENERATOR.score(ids(&[5; 514])), input, &["513 tokens, got 514"]);

    let stop = |texts: Vec<String>| GENERATOR.generate(PROMPT, &config().stop_strings(texts));
    refused(
        stop(vec![String::new()]),
        ErrorKind::Config,
        &["`stop_strings`", "entry 0 is \"\"", "remove it"],
    );
    refused(stop(vec!["a".into(); 10_000]), ErrorKind::Config, &["at most 1024", "10000"]);
    let seeds = config().do_sample(true).seed(OneOrMany::Many(vec![1, 2, 3]));
    refused(GENERATOR.generate(PROMPT, &seeds), ErrorKind::Config, &["`seed`", "a list of 3"]);
    refused(
        GENERATOR.generate(PROMPT, &config().eos_token_id([TokenId(1), TokenId(u32::MAX)])),
        ErrorKind::Config,
        &["`eos_token_id`", "0 to 2047", "4294967295", "leaving it out leaves it unset"],
    );
    every_field();
}

/// `chat_limits` tests the limits of templates; here a model with such a template still works.
#[test]
fn a_chat_template_without_end_is_an_error_and_the_model_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let story = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
    for file in fs::read_dir(story).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let template = folder.path().join("chat_template.jinja");
    let bombs = [
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "than a chat template may",
        ),
        ("{% for a in range(9999) %}{{ 'a' * 100000 }}{% endfor %}", "than a chat template may"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "chat template"),
        ("{% for %}", "chat template"),
        ("{{ raise_exception('not so') }}", "not so"),
    ];
    for (source, words) in bombs {
        fs::write(&template, source).unwrap();
        let generator = Generator::open(folder.path().to_str().unwrap()).unwrap();
        let (hello, options) = ([Message::user("Hello!")], ChatOptions::default());
        let config = GenerationConfig::new().max_new_tokens(6);
        let errors = [
            generator.apply_chat_template(&hello, &options).err().unwrap(),
            generator.chat(&hello, &options, &config).err().unwrap(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Input, "{error}");
            assert!(error.to_string().contains(words) && error.to_string().len() < 500, "{error}");
        }
        let output = generator.generate(PROMPT, &config).unwrap();
        assert_eq!(output.token_ids().len(), 6);
        assert_eq!(generator.engine().pool().stats().used_blocks, 0);
    }
}

/// Every field with every awkward value: an output, or an error that names the field.
fn every_field() {
    let numbers = [0, -1, 1, i128::from(u32::MAX) + 1, i128::from(u64::MAX), i128::MAX, i128::MIN];
    let floats = [0.0, -0.0, 0.5, -1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324];
    let mut values: Vec<FieldValue> = numbers.map(FieldValue::Int).into();
    values.extend(floats.map(FieldValue::Float));
    values.extend(["", "5", "\u{0}", &"x".repeat(100_000)].map(FieldValue::from));
    values.extend([
        FieldValue::Null,
        FieldValue::Bool(true),
        FieldValue::Bool(false),
        FieldValue::Other("?".into()),
    ]);
    values.extend([vec![], vec![FieldValue::Null], vec![FieldValue::List(vec![])]].map(FieldValue::List));
    for field in GenerationConfig::FIELDS {
        for value in &values {
            for do_sample in [false, true] {
                let mut config = GenerationConfig::new().max_new_tokens(2).do_sample(do_sample).seed(1);
                let result = config.set(field.name, value).and_then(|()| GENERATOR.generate(PROMPT, &config));
                match result {
                    Ok(output) => assert!(!output.rows.is_empty()),
                    Err(error) => {
                        let message = error.to_string();
                        assert!(message.contains(&format!("`{}`", field.name)), "{value:?}: {message}");
                        assert!(message.len() < 500);
                        // Only the scores show that a penalty is too large.
                        let kinds = [ErrorKind::Config, ErrorKind::Capacity, ErrorKind::Numerical];
                        assert!(kinds.contains(&error.kind()), "{error:?}");
                    }
                }
            }
        }
    }
    assert_eq!(GENERATOR.engine().pool().stats().used_blocks, 0);
}

#[test]
fn options_and_models_that_are_not_possible_are_refused() {
    let open = |options: GeneratorOptions| Generator::bundled_with(&options.num_threads(1)).err().unwrap();
    let error = Generator::bundled_with(&GeneratorOptions::new().num_threads(0)).err().unwrap();
    assert_eq!(
        (error.kind(), error.to_string().contains("1 to 1024, got 0")),
        (ErrorKind::Config, true),
        "{error}"
    );
    for bytes in [0, 1, usize::MAX] {
        let error = open(GeneratorOptions::new().kv_cache_bytes(bytes));
        assert_eq!(error.kind(), ErrorKind::Capacity);
        assert!(
            error.to_string().contains("kv_cache_bytes") && error.to_string().contains(&bytes.to_string())
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weights");
    fs::write(&file, b"x").unwrap();
    let long = "x".repeat(100_000);
    let models = [
        ("", "no folder of this path"),
        ("\0", "no folder of this path"),
        (long.as_str(), "no folder of this path"),
        ("a/b/c", "no id of the Hugging Face Hub"),
        (file.to_str().unwrap(), "found another file; give the folder that it is in"),
        (folder.path().to_str().unwrap(), "config.json is missing"),
    ];
    for (model, words) in models {
        let error = Generator::open(model).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Load, "{error}");
        assert!(error.to_string().contains(words) && error.to_string().len() < 500, "{error}");
    }
}
