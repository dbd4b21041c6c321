//! Every search against transformers, without it: the goldens of `tests/golden/strategies`.
//!
//! Each named search is compared with the version of transformers that it follows: greedy search, sampling and
//! the beam searches with 5.24, which gives what 5.23 gives in all but beam sampling; group and constrained beam
//! search, contrastive search and `DoLa` with 4.55.4, the last that has them; all of them under `compat` with
//! 4.49.0, whose beams, and all groups and constraints, are `ScorerBeamSearch`.

use std::collections::HashMap;

use crate::golden_support::{
    Faults, PROMISED, Tolerance, difference, golden, integer, integers, list, path, text, token_ids, unequal,
};
use rsgen::generation::config::OneOrMany;
use rsgen::{GenerationConfig, GenerationOutput, Generator, PromptBatch, Prompts, TokenId};
use serde_json::Value;

/// The searches of transformers 5.
const OF_5: [&str; 4] = ["greedy_search", "sample", "beam_search", "beam_sample"];
/// The ways of transformers 5 to check several tokens in a pass.
const ASSISTED: [&str; 4] = ["prompt_lookup", "early_exit", "assisted_greedy", "assisted_sample"];
/// Guidance, in which candidates and beams take their negative prompt along.
const GUIDED: [&str; 3] = ["guidance", "guided_beams", "guided_lookup"];
/// Those that were last in 4.55.4.
const OF_4_55: [&str; 4] = ["group_beam_search", "constrained_beam_search", "contrastive_search", "dola"];

#[test]
fn searches_of_5_24_give_what_transformers_gives() {
    check("transformers_5_24", &["beam_sample", "watermark_beams"], 80);
    let golden = golden("strategies/transformers_5_23");
    let draws_beams = |config: &Value| config["num_beams"].as_u64() > Some(1) && config["do_sample"] == true;
    let cases = list(&golden["cases"]).iter();
    let same: Vec<Value> = cases.filter(|case| !draws_beams(&case["config"])).cloned().collect();
    assert!(same.len() >= 380, "{}", same.len());
    let without_compat = serde_json::json!({"config": {}});
    run_cases(&without_compat, &same, "transformers_5_24", Compared::AsGiven);
}

#[test]
fn searches_give_what_5_23_gives_on_request() {
    check("transformers_5_23", &[&OF_5[..], &ASSISTED, &GUIDED].concat(), 440);
}

#[test]
fn searches_of_4_55_give_what_transformers_gives() {
    check("transformers_4_55", &OF_4_55, 160);
}

#[test]
fn all_searches_of_transformers_give_what_4_49_gives_on_request() {
    check("transformers_4_49", &[OF_5, OF_4_55].concat(), 160);
}

#[test]
fn scores_that_multiply_rounding_are_those_of_transformers_before_that() {
    for (file, count) in [
        ("transformers_5_24", 4),
        ("transformers_5_23", 8),
        ("transformers_4_55", 8),
        ("transformers_4_49", 16),
    ] {
        let golden = golden(&format!("strategies/{file}"));
        let cases = list(&golden["multiplied"]);
        assert_eq!(cases.len(), count, "{file}");
        run_cases(&golden, cases, file, Compared::BeforeMultiplying);
    }
}

/// Runs the cases of a file, which are so many of these searches.
fn check(file: &str, searches: &[&str], count: usize) {
    let golden = golden(&format!("strategies/{file}"));
    let cases = list(&golden["cases"]);
    for search in searches {
        let there = cases.iter().filter(|case| text(&case["strategy"]) == *search).count();
        assert!(there >= count / searches.len(), "{search}: only {there} cases");
    }
    run_cases(&golden, cases, file, Compared::AsGiven);
}

fn run_cases(golden: &Value, cases: &[Value], file: &str, compared: Compared) {
    let of_all = golden["config"].as_object().unwrap();
    let newest = file.starts_with("transformers_5");
    let mut generators = HashMap::new();
    let mut faults = Faults::default();
    for (number, case) in cases.iter().enumerate() {
        let model = text(&case["model"]);
        let mut open = |model| -> Generator {
            generators.entry(model).or_insert_with(|| Generator::open(path(model)).unwrap()).clone()
        };
        let generator = open(model);
        let assistant = case["assistant"].as_str().map(open);
        let mut fields = case["config"].as_object().unwrap().clone();
        fields.extend(of_all.clone());
        let config = GenerationConfig::from_call(fields).unwrap().output_scores(true);
        let search = text(&case["strategy"]);
        let label = format!("{file}, case {number}, {search} of {model}");
        match run(&generator, assistant.as_ref(), case, config) {
            Ok(output) => check_output(&mut faults, &label, &output, case, newest, compared),
            Err(error) => faults.check(label, Some(error.to_string())),
        }
    }
    faults.report(2 * cases.len());
}

/// The values that the tolerance applies to.
#[derive(Clone, Copy, PartialEq)]
enum Compared {
    /// The scores.
    AsGiven,
    /// The inputs of scores that amplify rounding: the sums that a negative `length_penalty` multiplies, and the
    /// logits whose differences are the scores of `DoLa`.
    BeforeMultiplying,
}

impl Compared {
    fn tolerance(self, case: &Value) -> Tolerance {
        match (self, case["largest_logit"].as_f64()) {
            (Self::BeforeMultiplying, Some(largest)) => {
                Tolerance { absolute: PROMISED.absolute + PROMISED.relative * largest as f32, relative: 0.0 }
            }
            _ => PROMISED,
        }
    }

    /// The scores of rows, or their sums.
    fn sums(self, scores: &[f32], rows: &[Vec<TokenId>], case: &Value) -> Vec<f32> {
        if self == Self::AsGiven {
            return scores.to_vec();
        }
        let penalty = case["config"]["length_penalty"].as_f64().unwrap();
        let sum = |(score, row): (&f32, &Vec<TokenId>)| score * (row.len() as f64).powf(penalty) as f32;
        scores.iter().zip(rows).map(sum).collect()
    }
}

fn run(
    generator: &Generator,
    assistant: Option<&Generator>,
    case: &Value,
    mut config: GenerationConfig,
) -> rsgen::Result<GenerationOutput> {
    let ids: Vec<Vec<TokenId>> = list(&case["input_ids"]).iter().map(token_ids).collect();
    let mask: Vec<Vec<bool>> = list(&case["attention_mask"])
        .iter()
        .map(|row| integers(row).iter().map(|&real| real == 1).collect())
        .collect();
    let seed = integer(&case["seed"]);
    if case["is_list"] == true {
        let real = |(ids, mask): (&Vec<TokenId>, &Vec<bool>)| {
            ids.iter().zip(mask).filter(|(_, real)| **real).map(|(&id, _)| id).collect::<Vec<_>>()
        };
        let prompts: Vec<Vec<TokenId>> = ids.iter().zip(&mask).map(real).collect();
        config.seed = Some(OneOrMany::Many((seed..seed + prompts.len() as u64).collect()));
        return generator.call(prompts).config(&config).assistant(assistant).run();
    }
    let prompts: Prompts = match &ids[..] {
        [ids] if mask[0].iter().all(|&real| real) => ids.clone().into(),
        _ => PromptBatch::with_mask(ids, mask)?.into(),
    };
    generator.call(prompts).config(&config.seed(seed)).assistant(assistant).run()
}

/// `newest`: rows hold what was generated alone. In the old beam searches what fills a row can be an end of text, which
/// their goldens keep.
fn check_output(
    faults: &mut Faults,
    label: &str,
    output: &GenerationOutput,
    case: &Value,
    newest: bool,
    compared: Compared,
) {
    let beams = output.rows.iter().all(|row| row.generated.score.is_some());
    let mut rows: Vec<Vec<TokenId>> = output.rows.iter().map(|row| row.generated.token_ids.clone()).collect();
    if beams && !newest {
        let pad = case["config"].get("pad_token_id").map(|pad| TokenId(integer(pad) as u32));
        rows = output.rows.iter().map(|row| without_fill(row.generated.token_ids.clone(), pad)).collect();
    }
    let expected: Vec<Vec<TokenId>> = list(&case["tokens"]).iter().map(token_ids).collect();
    faults.check(format!("{label}: tokens"), unequal(&rows, &expected));
    if let Some(sequences) = case.get("beam_indices") {
        let expected: Vec<Vec<u32>> = list(sequences)
            .iter()
            .map(|row| integers(row).into_iter().map(|sequence| sequence as u32).collect())
            .collect();
        let sequences: Vec<_> = output.rows.iter().map(|row| row.generated.beam_indices.clone()).collect();
        faults.check(format!("{label}: beam_indices"), unequal(&sequences, &expected));
    }
    if let Some(scores) = case.get("sequences_scores") {
        let actual: Vec<f32> = output.rows.iter().filter_map(|row| row.generated.score).collect();
        let [actual, given] = [actual, numbers(scores)].map(|each| compared.sums(&each, &expected, case));
        faults.check(format!("{label}: sequences_scores"), difference(&actual, &given, PROMISED));
    }
    if let Some(scores) = case.get("token_scores") {
        for (row, expected) in list(scores).iter().enumerate() {
            let steps = output.sequences[row].scores.as_ref().unwrap();
            let actual: Vec<f32> = output.rows[row]
                .generated
                .token_ids
                .iter()
                .zip(steps)
                .map(|(token, scores)| scores[token.index()])
                .collect();
            let problem = difference(&actual, &numbers(expected), compared.tolerance(case));
            faults.check(format!("{label}: scores of row {row}"), problem);
        }
    }
}

fn without_fill(mut tokens: Vec<TokenId>, pad: Option<TokenId>) -> Vec<TokenId> {
    while pad.is_some() && tokens.last() == pad.as_ref() {
        tokens.pop();
    }
    tokens
}

fn numbers(value: &Value) -> Vec<f32> {
    list(value).iter().map(|number| number.as_f64().unwrap_or(f64::NAN) as f32).collect()
}
