//! Tests of grammars on a vocabulary of bytes and words.

mod classes;
mod schemas;
mod thinking;

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::super::plan::{GenerationPlan, PlanContext};
use super::super::{config::GenerationConfig, prompt::PromptBatch, search, vocabulary::Vocabulary as _};
use super::*;
use crate::tests::{ScriptedModel, WordVocabulary, run};
use rsgen_core::types::FinishReason;

/// All bytes but the marker of special tokens, then words, then one token that ends a text.
const WORDS: [&str; 12] =
    ["{\"", "\": ", "\",\"", "\"}", "true", "null", "12", "the ", "ab", "aba", "b\"", "\"a\""];
const EOS: TokenId = TokenId(256 + WORDS.len() as u32);
const VOCAB: usize = EOS.0 as usize + 3;

fn vocabulary() -> Vec<Vec<u8>> {
    let bytes = (0..=255_u8).map(|byte| vec![byte]);
    let words = WORDS.iter().map(|word| word.as_bytes().to_vec());
    bytes.chain(words).chain([b"</s>".to_vec()]).collect()
}

fn context() -> PlanContext {
    let mut context = PlanContext::new(VOCAB, 4096);
    context.vocabulary = Some(Arc::new(WordVocabulary::new(vocabulary())));
    context
}

/// The grammar of a greedy search.
fn request(fields: &GenerationConfig, eos: &[TokenId], context: &PlanContext) -> RequestGrammar {
    let config = ResolvedConfig {
        vocabulary: context.vocabulary.clone(),
        eos_token_ids: eos.to_vec(),
        ..ResolvedConfig::of_fields(fields.clone(), context.vocab_size)
    };
    RequestGrammar::of(&config, &context.grammars).unwrap().unwrap()
}

fn text(ids: &[TokenId]) -> String {
    let ids: Vec<TokenId> = ids.iter().copied().filter(|id| *id != EOS).collect();
    WordVocabulary::new(vocabulary()).decode(&ids, false).unwrap()
}

/// Logits that depend on all tokens, the same on every machine.
fn logits(tokens: &[TokenId], salt: u64) -> Vec<f32> {
    let mut state =
        tokens.iter().fold(salt, |hash, token| (hash ^ u64::from(token.0)).wrapping_mul(0x0100_0000_01b3));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 22) as f32
    };
    (0..VOCAB).map(|_| next()).collect()
}

fn model() -> ScriptedModel {
    ScriptedModel::new(VOCAB, |tokens| logits(tokens, 1))
        .with_draft(|tokens| logits(tokens, 1 + tokens.len() as u64 % 2))
}

fn plan(config: &GenerationConfig, context: &PlanContext) -> Result<GenerationPlan> {
    let prompt = PromptBatch::single(vec![TokenId(65), TokenId(66), TokenId(65), TokenId(66)]).unwrap();
    GenerationPlan::new(config, prompt, context)
}

fn refusal(config: &GenerationConfig) -> String {
    let error = plan(config, &context()).err().unwrap_or_else(|| panic!("{config:?} is accepted"));
    assert_eq!(error.kind(), rsgen_core::error::ErrorKind::Config, "{error}");
    error.to_string()
}

/// Whether a text follows the grammar of a configuration to an end.
fn is_accepted(config: &GenerationConfig, text: &str) -> bool {
    let ids: Vec<TokenId> = text.bytes().map(|byte| TokenId(byte.into())).collect();
    thread_local!(static CONTEXT: PlanContext = context());
    match CONTEXT.with(|context| request(config, &[EOS], context)).state().allowed(&ids).unwrap() {
        state::Allowed::Tokens { may_end, .. } => may_end,
        state::Allowed::End => true,
        _ => false,
    }
}

fn generated(config: &GenerationConfig, context: &PlanContext) -> Vec<(String, FinishReason)> {
    let transcript = run(search::build(plan(config, context).unwrap()), &mut model()).unwrap();
    transcript.output.rows.iter().map(|row| (text(&row.token_ids), row.finish_reason)).collect()
}

fn config() -> GenerationConfig {
    GenerationConfig::new().max_new_tokens(200).eos_token_id(EOS)
}

fn list_of_words() -> Value {
    json!({"type": "array", "items": {"type": "string", "pattern": "^[ab]{1,3}$"}, "minItems": 2, "maxItems": 3})
}

fn is_list_of_words(text: &str) -> bool {
    let Ok(Value::Array(words)) = serde_json::from_str(text) else { return false };
    let is_word = |word: &Value| {
        word.as_str()
            .is_some_and(|word| (1..=3).contains(&word.len()) && word.bytes().all(|b| b"ab".contains(&b)))
    };
    (2..=3).contains(&words.len()) && words.iter().all(is_word)
}

/// Every search, and what sets it.
fn searches() -> Vec<(&'static str, GenerationConfig)> {
    let sample = || config().do_sample(true).seed(3_u64);
    vec![
        ("greedy", config()),
        ("sample", sample().temperature(1.5)),
        ("several", sample().num_return_sequences(5)),
        ("beams", config().num_beams(4).num_return_sequences(4)),
        ("beams early", config().num_beams(4).early_stopping(true).num_return_sequences(2)),
        ("beam sample", sample().num_beams(4).top_k(0)),
        ("groups", config().num_beams(4).num_beam_groups(2).diversity_penalty(0.7).num_return_sequences(2)),
        ("old beams", config().num_beams(4).compat(super::super::config::Compat::V4_49)),
        ("lookup", config().prompt_lookup_num_tokens(3_usize)),
        ("lookup sample", sample().prompt_lookup_num_tokens(3_usize)),
    ]
}

#[test]
fn every_search_follows_the_schema_to_its_end() {
    for (name, config) in searches() {
        let rows = generated(&config.json_schema(list_of_words()), &context());
        for (text, reason) in rows {
            assert!(is_list_of_words(&text) && reason == FinishReason::Eos, "{name}: {text:?} {reason:?}");
        }
    }
}

#[test]
fn rows_without_an_end_token_stop_when_nothing_can_follow() {
    for (name, config) in searches() {
        if ["groups", "old beams"].contains(&name) {
            let message = refusal(&config.eos_token_id(Vec::new()).pad_token_id(EOS).regex("a"));
            assert!(message.contains("`eos_token_id` must name a token when `regex` is used"), "{message}");
            continue;
        }
        let config = config.eos_token_id(Vec::new()).pad_token_id(EOS).json_schema(list_of_words());
        for (text, reason) in generated(&config, &context()) {
            assert!(is_list_of_words(&text) && reason == FinishReason::Stop, "{name}: {text:?} {reason:?}");
        }
    }
}

#[test]
fn drafts_change_no_token() {
    let mut with_draft = context();
    with_draft.draft = Some(super::super::plan::DraftContext::new(VOCAB, 4096));
    for config in [
        config().json_schema(list_of_words()),
        config().regex("(ab|ba){3,9}c?"),
        config().grammar("start: \"<\" item+ \">\"\nitem: /[a-d]{2}/ \";\""),
    ] {
        let plain = generated(&config, &context());
        assert_eq!(generated(&config.clone().num_assistant_tokens(4), &with_draft), plain);
        assert_eq!(generated(&config.clone().prompt_lookup_num_tokens(4_usize), &context()), plain);
        let sampled = config.do_sample(true).seed(11_u64);
        let schedule = super::super::config::AssistantTokensSchedule::Adaptive;
        let adaptive = sampled.clone().num_assistant_tokens_schedule(schedule).num_assistant_tokens(4);
        assert_eq!(generated(&adaptive, &with_draft), generated(&sampled, &context()));
        // As transformers draws, other tokens come out, by the same grammar.
        let drafted = generated(&sampled.num_assistant_tokens(4), &with_draft);
        assert_eq!(drafted[0].1, FinishReason::Eos);
    }
}

#[test]
fn an_end_is_allowed_where_the_grammar_may_end_only() {
    let context = context();
    let request = request(&config().regex("ab*"), &[EOS], &context);
    let processor = request.processor(GenerationMode::Greedy, false);
    let left = |ids: &[u8]| -> Vec<usize> {
        let ids: Vec<TokenId> = ids.iter().map(|byte| TokenId(u32::from(*byte))).collect();
        let mut scores = vec![1.0; VOCAB];
        let mut row = super::super::logits::RowContext::of_prompt(&ids);
        row.prompt_len = 0;
        processor.process_row(&mut scores, &mut row).unwrap();
        (0..VOCAB).filter(|id| scores[*id] == 1.0).collect()
    };
    let ab = 256 + WORDS.iter().position(|word| *word == "ab").unwrap();
    assert_eq!(left(b""), [usize::from(b'a'), ab]);
    assert_eq!(left(b"a"), [usize::from(b'b'), EOS.index()]);
    assert_eq!(left(b"abb"), [usize::from(b'b'), EOS.index()]);
}

#[test]
fn the_grammar_counts_for_more_than_what_removes_tokens() {
    let config =
        config().regex("(ab){2}").min_new_tokens(50_usize).suppress_tokens(vec![TokenId(u32::from(b'a'))]);
    let config = config.bad_words_ids(vec![vec![TokenId(257)], vec![TokenId(u32::from(b'b'))]]);
    assert_eq!(generated(&config, &context()), [("abab".to_owned(), FinishReason::Eos)]);
}

#[test]
fn mistakes_are_errors_that_name_the_field() {
    let without_tokenizer = plan(&config().regex("a"), &PlanContext::new(VOCAB, 99)).unwrap_err().to_string();
    assert!(without_tokenizer.contains("`regex` needs the model's tokenizer"), "{without_tokenizer}");
    let schema = |schema: Value| config().json_schema(schema);
    for (config, part) in vec![
        (config().regex("a").grammar("start: \"a\""), "`regex` and `grammar` are both set"),
        (config().regex("a("), "`regex` cannot be followed"),
        (config().regex("a(?=b)"), "`regex` cannot be followed"),
        (config().grammar("begin: \"a\""), "`grammar` cannot be followed"),
        (config().grammar(""), "`grammar` cannot be followed"),
        (config().grammar("start: other"), "`grammar` cannot be followed"),
        (schema(json!({"not": {"type": "string"}})), "the keyword `not` at `#`"),
        (
            schema(json!({"properties": {"a/b": {"uniqueItems": true}}})),
            "`uniqueItems` at `#/properties/a~1b`",
        ),
        (schema(json!({"type": "object", "minProperties": 3})), "`minProperties` beyond 1"),
        (schema(json!(false)), "no value satisfies it"),
    ] {
        let message = refusal(&config);
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn hostile_grammars_end_soon_in_an_error_or_work() {
    let nested =
        |open: &str, close: &str, depth: usize| format!("{}a{}", open.repeat(depth), close.repeat(depth));
    let chain = (0..9_000).map(|i| format!("T{i}: \"a\" T{}\n", i + 1)).collect::<Vec<_>>().concat();
    let rules = (0..9_000).map(|i| format!("r{i}: \"a\" r{} | \"b\"\n", i + 1)).collect::<Vec<_>>().concat();
    let refs: serde_json::Map<String, Value> =
        (0..1_500).map(|i| (format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", i + 1)}))).collect();
    let mut defs = refs.clone();
    defs.insert("d1500".to_owned(), json!({"type": "null"}));
    let products: Vec<Value> = (0..12)
        .map(|i| json!({"anyOf": (0..12).map(|j| json!({"properties": {format!("p{i}"): {"const": j}}})).collect::<Vec<_>>()}))
        .collect();
    let wide: serde_json::Map<String, Value> =
        (0..4_000).map(|i| (format!("name{i}"), json!({"type": "string", "maxLength": i}))).collect();
    let schema = |schema: Value| config().json_schema(schema);
    let all = vec![
        ("long", config().regex("a".repeat(140_000))),
        ("nested groups", config().regex(nested("(", ")", 100_000))),
        ("nested groups below the limit", config().regex(nested("(", ")", 120))),
        ("counted", config().regex("((a{1,1000}){1,1000}){1,1000}")),
        ("counted once", config().regex("a{1,1000000000}")),
        ("alternatives", config().regex(vec!["[a-z]{1,40}x"; 2_000].join("|"))),
        ("states", config().regex("(a|b)*a(a|b){40}")),
        ("unicode", config().regex("(\\p{L}|\\p{N}){1,900}\\p{Sc}")),
        (
            "lark nested",
            config().grammar(format!("start: {}", nested("(", ")", 30_000).replace('a', "\"a\""))),
        ),
        ("terminals", config().grammar(format!("start: T0\n{chain}T9000: \"a\""))),
        ("rules", config().grammar(format!("start: r0\n{rules}r9000: \"a\""))),
        ("left recursion", config().grammar("start: start start | \"a\" | ")),
        ("ambiguous", config().grammar("start: x+\nx: y y | y\ny: \"a\"* | x")),
        ("endless", config().grammar("start: start")),
        ("recursive terminal", config().grammar("start: A\nA: \"a\" A")),
        ("repeat", config().grammar("start: (\"a\"{1,100000}){1,100000}")),
        ("references", schema(json!({"$defs": defs, "$ref": "#/$defs/d0"}))),
        (
            "circle",
            schema(
                json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            ),
        ),
        (
            "circle with siblings",
            schema(json!({"$defs": {"a": {"$ref": "#/$defs/a", "type": "object"}}, "$ref": "#/$defs/a"})),
        ),
        ("itself", schema(json!({"$ref": "#"}))),
        ("products", schema(json!({"type": "object", "allOf": products}))),
        ("wide", schema(json!({"type": "object", "properties": wide}))),
        ("items", schema(json!({"type": "array", "minItems": 1_000_000_000_u64}))),
        (
            "items in items",
            schema(
                json!({"type": "array", "minItems": 100_000, "items": {"type": "array", "minItems": 100_000}}),
            ),
        ),
        ("length", schema(json!({"type": "string", "minLength": 1_000_000_000_u64}))),
        ("length beyond", schema(json!({"type": "string", "maxLength": 99_999_999_999_u64}))),
        (
            "pattern",
            schema(json!({"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$", "minLength": 5_000})),
        ),
        (
            "two patterns",
            schema(json!({"patternProperties": {"^(a|b)*a(a|b){30}$": {}, "(b|a)*b(a|b){30}": {}}})),
        ),
        ("multiple", schema(json!({"type": "number", "multipleOf": 1e-300}))),
        ("multiple of zero", schema(json!({"type": "integer", "multipleOf": 0}))),
        ("large multiple", schema(json!({"type": "integer", "multipleOf": 4_294_967_291_u64}))),
        ("bounds", schema(json!({"type": "number", "minimum": -1e308, "maximum": 1e308}))),
        ("enum", schema(json!({"enum": (0..20_000).map(|i| format!("value {i}")).collect::<Vec<_>>()}))),
        (
            "options",
            schema(json!({"x-guidance": {"whitespace_pattern": "(a|b)*a(a|b){40}"}, "type": "array"})),
        ),
        ("no options", schema(json!({"x-guidance": 3}))),
    ];
    let context = context();
    for (name, config) in all {
        let started = Instant::now();
        let outcome = plan(&config.max_new_tokens(40), &context).and_then(|plan| {
            run(search::build(plan), &mut model())
                .map(|transcript| text(&transcript.output.rows[0].token_ids))
        });
        let seconds = started.elapsed().as_secs_f64();
        println!("{name}: {seconds:.3} s: {outcome:?}");
        if let Err(error) = outcome {
            let message = error.to_string();
            let names = ["`regex`", "`grammar`", "`json_schema`"].iter().any(|field| message.contains(field));
            assert!(
                names && message.len() < 1_100 && error.kind() == rsgen_core::error::ErrorKind::Config,
                "{name}: {message}"
            );
        }
        assert!(seconds < 20.0, "{name} took {seconds} s");
    }
}

#[test]
#[expect(clippy::format_collect, reason = "a test")]
fn what_would_take_long_is_refused_before_it_begins() {
    let row = "a*b?".repeat(20_000);
    let terminals: String = (0..2_000).map(|i| format!("T{i}: \"a\"? T{} \"b\"?\n", i + 1)).collect();
    for (field, config) in [
        ("regex", config().regex(format!("({row}){{0,500}}"))),
        ("regex", config().regex("\\w?".repeat(30_000))),
        ("json_schema", config().json_schema(json!({"type": "string", "pattern": row.clone()}))),
        ("json_schema", config().json_schema(json!({"patternProperties": {row.clone(): {}}}))),
        ("grammar", config().grammar(format!("start: /{row}/"))),
        ("grammar", config().grammar(format!("start: T0\n{terminals}T2000: \"x\""))),
    ] {
        let (grammars, started) = (Grammars::default(), Instant::now());
        let source = GrammarSource::of(&config).unwrap().unwrap();
        let refused = grammars.prepare(&config, context().vocabulary.as_ref(), VOCAB, &mut || false);
        let (error, seconds) = (refused.unwrap_err(), started.elapsed().as_secs_f64());
        println!("{field}, {} bytes: {seconds:.3} s: {error}", source.text().len());
        assert!(error.field() == Some(field) && error.to_string().contains("steps to compile"), "{error}");
        // A tenth of that where it is optimized.
        assert!(seconds < 1.0, "{field} took {seconds} s");
    }
}

#[test]
fn compiling_ends_with_its_caller() {
    let words: Vec<String> = (0..9_000).map(|i| format!("w{i}x")).collect();
    let (mut asked, config) = (0, config().regex(words.join("|")));
    let outcome = Grammars::default().prepare(&config, context().vocabulary.as_ref(), VOCAB, &mut || {
        asked += 1;
        true
    });
    let was_quick = outcome.is_ok() && asked == 0;
    assert!(was_quick || outcome.is_err_and(|error| error.kind() == rsgen_core::error::ErrorKind::Cancelled));
}

/// A vocabulary of 49,152 tokens: bytes, and words with and without a space, a capital, or the signs of JSON
/// around them.
fn large_vocabulary() -> Vec<Vec<u8>> {
    const PARTS: [&str; 24] = [
        "a", "be", "con", "der", "en", "for", "ing", "ion", "ka", "lo", "ment", "ne", "or", "per", "qua",
        "re", "st", "ter", "un", "ver", "way", "xi", "you", "ze",
    ];
    const AROUND: [(&str, &str); 10] = [
        ("", ""),
        (" ", ""),
        ("", "s"),
        (" ", "ed"),
        ("\"", "\""),
        ("\"", "\":"),
        (", ", ""),
        ("", "."),
        ("_", ""),
        ("\n", "\u{e9}"),
    ];
    let numbers = (0..1_000).map(|number| number.to_string());
    let spaces = (1..64).map(|count| " ".repeat(count));
    let word = |mut number: usize| {
        let mut word = String::new();
        while number > 0 || word.is_empty() {
            word.push_str(PARTS[number % PARTS.len()]);
            number /= PARTS.len();
        }
        word
    };
    let words = (0..).flat_map(|number| {
        let word = word(number);
        AROUND.map(|(before, after)| format!("{before}{word}{after}"))
    });
    let texts = numbers.chain(spaces).chain(words).map(String::into_bytes);
    (0..=255_u8).map(|byte| vec![byte]).chain(texts).take(49_152).collect()
}

#[test]
fn a_mask_of_a_large_vocabulary_takes_little_time() {
    let tokens = large_vocabulary();
    let vocabulary: Arc<dyn super::super::vocabulary::Vocabulary> =
        Arc::new(WordVocabulary::new(tokens.clone()));
    let mut context = PlanContext::new(tokens.len(), 4096);
    context.vocabulary = Some(Arc::clone(&vocabulary));
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "address": {"type": "object", "properties": {"city": {"type": "string", "minLength": 1}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["city"]},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
            "height": {"type": "number", "minimum": 0},
            "notes": {"type": "array", "items": {"type": "string", "maxLength": 40}},
        },
        "required": ["name", "address", "height"],
        "additionalProperties": false,
    });
    let text = r#"{"name": "consterment wayxi \"unre\"", "address": {"city": "Vereden", "zip": "12345"}, "tags": ["red", "blue"], "height": 172.25, "notes": ["for youre perment", "abezeor"]}"#;
    let config = GenerationConfig::new().json_schema(schema);
    let started = Instant::now();
    let compiled = request(&config, &[TokenId(0)], &context);
    let first = started.elapsed();
    let started = Instant::now();
    drop(request(&GenerationConfig::new().regex("a"), &[], &context));
    println!("the tokens and a schema: {first:?}; a regular expression more: {:?}", started.elapsed());
    let processor = compiled.processor(GenerationMode::Greedy, false);
    let ids = vocabulary.encode(text, false).unwrap();
    let (mut masks, mut whole, mut forks) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..4 {
        let mut state = compiled.state();
        for len in 0..=ids.len() {
            let mut scores = vec![0.5; tokens.len()];
            let started = Instant::now();
            let allowed = state.allowed(&ids[..len]).unwrap();
            let mask = started.elapsed();
            assert!(!matches!(allowed, state::Allowed::Nothing), "{:?}", &text[..len]);
            let remover = GrammarLogitsProcessor::new(compiled.clone(), false, false);
            remover.remove(&mut scores, &allowed);
            let all = started.elapsed();
            if len < ids.len() {
                assert_eq!(scores[ids[len].index()], 0.5);
            }
            let started = Instant::now();
            let copy = state.clone();
            forks.push(started.elapsed());
            drop(copy);
            if round > 0 {
                masks.push(mask);
                whole.push(all);
            }
        }
    }
    drop(processor);
    for (name, mut times) in [("mask", masks), ("mask and scores", whole), ("fork", forks)] {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() - 1) * part / 100];
        println!("{name}: median {:?}, 90 of 100 within {:?}, most {:?}", at(50), at(90), at(100));
        assert!(at(50).as_micros() < 100, "{name}: {:?}", at(50));
    }
}

/// Allows what the grammar allows, found anew from all tokens in each step.
fn recomputed(config: &GenerationConfig) -> PlanContext {
    let mut context = context();
    let request = request(config, &[EOS], &context);
    let allowed = move |_: usize, ids: &[TokenId]| -> Vec<TokenId> {
        match request.state().allowed(&ids[4..]).unwrap() {
            state::Allowed::Tokens { mask, may_end } => {
                let tokens = (0..EOS.0).filter(|id| mask.is_allowed(*id)).map(TokenId);
                tokens.chain(may_end.then_some(EOS)).collect()
            }
            // A beam that the grammar does not allow has no chance, whatever follows.
            _ => vec![EOS],
        }
    };
    context.prefix_allowed_tokens_fn = Some(Arc::new(allowed));
    context
}

#[test]
fn beams_are_those_of_a_filter_that_remembers_nothing() {
    for form in [config().json_schema(list_of_words()), config().regex("(ab|ba|aab){2,9}(true|null)?c")] {
        let by_hand = recomputed(&form);
        for (name, search) in searches() {
            if name.contains("lookup") {
                continue;
            }
            let rows = |config: &GenerationConfig, context: &PlanContext| {
                let output = run(search::build(plan(config, context).unwrap()), &mut model()).unwrap().output;
                output
                    .rows
                    .into_iter()
                    .map(|row| (row.token_ids, row.score.map(f32::to_bits)))
                    .collect::<Vec<_>>()
            };
            let with_grammar = form.merged_over(&search);
            assert_eq!(rows(&with_grammar, &context()), rows(&search, &by_hand), "{name}");
        }
    }
}
