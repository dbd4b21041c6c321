//! Searches in a catalogue: the same as with a function over its entries, and as ranking them all.

use std::collections::BTreeSet;

use super::super::super::config::Compat;
use super::super::super::token_trie::TokenTrie;
use super::*;

const WORDS: usize = 300;
const EOS: u32 = 0;

/// Numbers that look drawn.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % bound
    }

    /// The table of a model of `WORDS` words, whose logits are often equal if they are `coarse`.
    fn model(&mut self, coarse: bool) -> Vec<Vec<f32>> {
        let mut logit =
            || self.below(if coarse { 4 } else { 100_000 }) as f32 / if coarse { 1.0 } else { 20_000.0 };
        (0..WORDS).map(|_| (0..WORDS).map(|_| logit()).collect()).collect()
    }

    fn entries(&mut self) -> Vec<Vec<TokenId>> {
        let (count, words) = (1 + self.below(40), [2, 3, 200][self.below(3) as usize]);
        let mut entries = BTreeSet::new();
        for _ in 0..count {
            let len = 1 + self.below(4);
            entries.insert((0..len).map(|_| TokenId(1 + self.below(words))).collect::<Vec<_>>());
        }
        let mut entries: Vec<_> = entries.into_iter().collect();
        let first = self.below(entries.len() as u32) as usize;
        entries.rotate_left(first);
        entries
    }
}

/// What may follow, as transformers' users write it.
fn function(
    entries: &[Vec<TokenId>],
    prompt_len: usize,
) -> impl Fn(usize, &[TokenId]) -> Vec<TokenId> + 'static {
    let entries: Vec<Vec<TokenId>> = entries.iter().map(|entry| [entry, &ids(&[EOS])[..]].concat()).collect();
    move |_, row| {
        let new = &row[prompt_len..];
        let next = entries.iter().filter_map(|entry| entry.strip_prefix(new)?.first().copied());
        let next: BTreeSet<TokenId> = next.collect();
        if next.is_empty() { ids(&[EOS]) } else { next.into_iter().collect() }
    }
}

fn context_of(vocab: usize) -> PlanContext {
    PlanContext::new(vocab, 64)
}

#[test]
fn every_search_finds_what_it_finds_with_a_function_over_the_entries() {
    let mut draws = Draws(1);
    for case in 0..400 {
        let coarse = case % 2 == 0;
        let base = config().eos_token_id(EOS).max_new_tokens(1 + draws.below(6) as usize).seed(case);
        let beams = [1, 2, 3, 8][draws.below(4) as usize];
        let config = match case % 8 {
            0 => base.clone(),
            1 => base.clone().do_sample(true).num_return_sequences(3),
            2 => base.clone().do_sample(true).num_beams(1 + beams),
            3 => base.clone().num_beams(6).num_beam_groups(3).diversity_penalty(0.5).num_return_sequences(6),
            4 => base.clone().num_beams(1 + beams).num_return_sequences(1 + beams).compat(Compat::V4_49),
            5 => base.clone().num_beams(1 + beams).num_return_sequences(1 + beams).min_new_tokens(2),
            _ => base.clone().num_beams(1 + beams).num_return_sequences(1 + beams),
        };
        let config = config.early_stopping(case % 3 == 0).length_penalty(f64::from(draws.below(3)));
        let entries = draws.entries();
        let model = draws.model(coarse);
        let prompts = || PromptBatch::rectangular(vec![ids(&[3, 5]), ids(&[4, 200])]).unwrap();
        let (mut by_trie, mut by_function) = (context_of(WORDS), context_of(WORDS));
        by_trie.allowed_sequences = Some(Arc::new(TokenTrie::new(&entries).unwrap()));
        by_function.prefix_allowed_tokens_fn = Some(Arc::new(function(&entries, 2)));
        let found = try_generate(&config, prompts(), &by_trie, &mut ScriptedModel::bigram(model.clone()));
        let expected =
            try_generate(&config, prompts(), &by_function, &mut ScriptedModel::bigram(model.clone()));
        let (found, expected) = match (found, expected) {
            (Ok(found), Ok(expected)) => (found, expected),
            (Err(found), Err(expected)) => {
                assert_eq!(found.kind(), expected.kind(), "{case}");
                continue;
            }
            (found, expected) => panic!("{case}: {:?} {:?}", found.err(), expected.err()),
        };
        assert_eq!(found.output.rows, expected.output.rows, "{case}");
        for (row, entry) in found.output.rows.iter().zip(found.output.entries.as_ref().unwrap()) {
            let ended = row.token_ids.split_last().filter(|_| row.finish_reason == FinishReason::Eos);
            let index = ended.and_then(|(_, tokens)| entries.iter().position(|entry| entry == tokens));
            match entry {
                Some(entry) => assert_eq!(Some(entry.index), index, "{case}"),
                // With beams it may have been named before.
                None => assert!(index.is_none() || config.num_beams.is_some(), "{case}"),
            }
        }
    }
}

#[test]
fn beams_as_wide_as_the_catalogue_rank_all_of_it() {
    let mut draws = Draws(2);
    for case in 0..50 {
        let (entries, model) = (draws.entries(), draws.model(false));
        if entries.len() < 2 {
            continue;
        }
        let config = config().eos_token_id(EOS).max_new_tokens(6).length_penalty(0.0);
        let config = config.num_beams(entries.len()).num_return_sequences(entries.len());
        let mut context = context_of(WORDS);
        context.allowed_sequences = Some(Arc::new(TokenTrie::new(&entries).unwrap()));
        let found =
            try_generate(&config, single(&[3, 5]), &context, &mut ScriptedModel::bigram(model.clone()))
                .unwrap()
                .output;
        let found: Vec<(usize, f32)> = found
            .entries
            .unwrap()
            .into_iter()
            .zip(&found.rows)
            .map(|(entry, row)| (entry.unwrap().index, row.score.unwrap()))
            .collect();
        let mut ranked: Vec<(usize, f32)> = entries
            .iter()
            .enumerate()
            .map(|(index, entry)| {
                let mut config = config.clone().num_beams(1).num_return_sequences(1);
                config.length_penalty = None;
                let mut alone = context_of(WORDS);
                alone.allowed_sequences = Some(Arc::new(TokenTrie::new([entry]).unwrap()));
                let row =
                    try_generate(&config, single(&[3, 5]), &alone, &mut ScriptedModel::bigram(model.clone()))
                        .unwrap();
                (index, row.output.rows[0].logprobs.iter().sum())
            })
            .collect();
        ranked.sort_by(|one, other| other.1.total_cmp(&one.1));
        let indices = |list: &[(usize, f32)]| list.iter().map(|(index, _)| *index).collect::<Vec<_>>();
        assert_eq!(indices(&found), indices(&ranked), "{case}");
        assert!(found.iter().zip(&ranked).all(|(one, other)| (one.1 - other.1).abs() < 1e-4), "{case}");
    }
}

#[test]
fn a_catalogue_and_banned_words_are_an_intersection() {
    let mut draws = Draws(3);
    let (mut ends, mut rows) = (0, 0);
    for case in 0..200 {
        let (entries, model) = (draws.entries(), draws.model(case % 2 == 0));
        let banned = TokenId(1 + draws.below(3));
        let base = config().eos_token_id(EOS).max_new_tokens(6).bad_words_ids(vec![vec![banned]]);
        let config = match case % 4 {
            0 => base,
            1 => base.do_sample(true).seed(case).num_return_sequences(2),
            2 => base.num_beams(3).num_return_sequences(3),
            _ => base.num_beams(4).num_beam_groups(2).diversity_penalty(0.5).num_return_sequences(2),
        };
        let mut context = context_of(WORDS);
        context.allowed_sequences = Some(Arc::new(TokenTrie::new(&entries).unwrap()));
        match try_generate(&config, single(&[3, 5]), &context, &mut ScriptedModel::bigram(model.clone())) {
            Err(error) => {
                assert!(error.to_string().contains("`allowed_sequences` leaves no token"), "{error}");
                ends += 1;
            }
            Ok(found) => {
                for entry in found.output.entries.unwrap().into_iter().flatten() {
                    assert!(!entries[entry.index].contains(&banned), "{case}");
                    rows += 1;
                }
            }
        }
    }
    assert!(ends > 10 && rows > 100, "{ends} {rows}");
}

#[test]
fn entries_that_a_model_cannot_write_or_end_are_refused() {
    let mut context = context_of(WORDS);
    context.allowed_sequences = Some(Arc::new(TokenTrie::new([ids(&[5]), ids(&[6, 300])]).unwrap()));
    let error = |config: &GenerationConfig, context: &PlanContext| {
        GenerationPlan::new(config, single(&[3]), context).unwrap_err().to_string()
    };
    let message = error(&config().eos_token_id(EOS), &context);
    assert!(message.contains(
        "`allowed_sequences` must hold ids of the model's vocabulary, 0 to 299, but one of them is 300"
    ));
    context.allowed_sequences = Some(Arc::new(TokenTrie::new([ids(&[5])]).unwrap()));
    let message = error(&config(), &context);
    assert!(
        message.contains("`eos_token_id` must name a token when `allowed_sequences` is given"),
        "{message}"
    );
}
