//! What beam searches emit while they run: drawn cases, each cancelled after every step, too. That the events
//! of a row are its first tokens, `run` and `run_steps` check.

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::super::super::config::{Compat, EarlyStopping, ForcedWord};
use super::super::super::logits::{LogitsProcessor, RowContext};
use super::super::super::output::transition_scores;
use super::*;
use crate::tests::run_steps;
use rsgen_core::ErrorKind;

/// A number from 0 to 1 that depends on a seed and on all tokens.
fn noise(seed: u32, tokens: &[TokenId]) -> f32 {
    let all =
        tokens.iter().fold(seed, |all, token| (all ^ token.0).wrapping_mul(0x9E37_79B1).rotate_left(11));
    (all.wrapping_mul(0x85EB_CA6B) >> 8) as f32 / (1 << 24) as f32
}

/// Removes what a seed says, at times everything, and its scores differ a little between equal sequences.
struct Removes {
    seed: u32,
    share: f32,
    is_fickle: bool,
    calls: AtomicU32,
}

impl LogitsProcessor for Removes {
    fn name(&self) -> &'static str {
        "Removes"
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let calls = self.calls.fetch_add(u32::from(self.is_fickle), Ordering::Relaxed);
        let share = if noise(self.seed, row.input_ids) < self.share / 4.0 { 1.0 } else { self.share };
        for (token, score) in (0..).zip(scores) {
            *score -= noise(calls, &[]) * 1e-3 * (calls % 2) as f32;
            if noise(self.seed, &[row.input_ids[row.input_ids.len() - 1], TokenId(token)]) < share {
                *score = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }
}

/// Ends one row or another, equal ones at different times.
struct Fickle(AtomicU32);

impl StoppingCriterion for Fickle {
    fn name(&self) -> &'static str {
        "Fickle"
    }

    fn should_stop(&self, _row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let call = self.0.fetch_add(1, Ordering::Relaxed);
        Ok((noise(call, &[]) < 0.2).then_some(FinishReason::Stop))
    }
}

#[derive(Debug, Clone)]
struct Case {
    config: GenerationConfig,
    seed: u32,
    /// How sure the model is.
    sharpness: f32,
    num_prompts: usize,
    removed: f32,
    is_fickle: bool,
    has_criterion: bool,
}

impl Case {
    /// `None` for a case that has no result.
    fn run(&self, steps: Option<usize>) -> Option<Transcript> {
        let mut context = context();
        if self.removed > 0.0 || self.is_fickle {
            let calls = AtomicU32::new(1);
            let removes = Removes { seed: self.seed, share: self.removed, is_fickle: self.is_fickle, calls };
            context.processors.push(Arc::new(removes));
        }
        if self.has_criterion {
            context.criteria.push(Arc::new(Fickle(AtomicU32::new(self.seed))));
        }
        let prompts = (0..self.num_prompts as u32).map(|prompt| ids(&[3, prompt])).collect();
        let prompts = PromptBatch::rectangular(prompts).unwrap();
        let (seed, sharpness) = (self.seed, self.sharpness);
        let mut model = ScriptedModel::new(VOCAB, move |tokens| {
            let next = |token| [&tokens[tokens.len().saturating_sub(3)..], &[TokenId(token)]].concat();
            (0..VOCAB as u32).map(|token| sharpness * noise(seed, &next(token))).collect()
        });
        let search = build(GenerationPlan::new(&self.config, prompts, &context).unwrap());
        let done = match steps {
            Some(steps) => run_steps(search, &mut model, steps),
            None => run(search, &mut model),
        };
        match done {
            Ok(transcript) => Some(transcript),
            Err(error) if error.kind() == ErrorKind::Numerical => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Checks the events of the whole search, and of the search cancelled after each step. Returns the number
    /// of tokens of best rows that came before the last step.
    fn check(&self) -> usize {
        let Some(whole) = self.run(None) else { return 0 };
        let rows = &whole.output.rows;
        let scores = transition_scores(rows.iter(), false, |step, sequence| {
            whole.output.sequences[sequence].scores.as_ref()?.get(step).map(Vec::as_slice)
        });
        for (index, (row, scores)) in rows.iter().zip(scores).enumerate() {
            // In 4.49 the last token may be another one than the one that was chosen.
            let kept = row.token_ids.len() - usize::from(!row.token_ids.is_empty());
            let events = whole.events.iter().filter(|event| event.row == index).take(kept);
            let events: Vec<u32> = events.map(|event| event.score.to_bits()).collect();
            assert_eq!(events, scores[..kept].iter().map(|score| score.to_bits()).collect::<Vec<_>>());
        }
        let mut early = 0;
        for steps in 1.. {
            let cut = self.run(Some(steps)).unwrap();
            assert_eq!(format!("{:?}", cut.events), format!("{:?}", &whole.events[..cut.events.len()]));
            if cut.is_finished {
                break;
            }
            early = cut.events.len();
        }
        early
    }
}

/// Every kind of beam search, with everything that ends or removes its beams.
fn cases() -> impl Strategy<Value = Case> {
    let lengths = (2..=5_usize, 1..=9_usize, 0..=2_u32, 1..=3_usize);
    let rules = (0..6_u8, 0..3_u8, 0..5_usize, any::<u32>());
    let model = (prop_oneof![Just(3.0_f32), Just(12.0), Just(40.0)], 0..4_u8, any::<[bool; 2]>());
    (lengths, rules, model).prop_map(
        |((beams, new_tokens, ends, num_prompts), (kind, early, penalty, seed), model)| {
            let (sharpness, removed, [is_fickle, has_criterion]) = model;
            let beams = if kind == 2 { 2 * beams.min(3) } else { beams };
            let mut config = config()
                .num_beams(beams)
                .num_return_sequences(1 + seed as usize % beams)
                .max_new_tokens(new_tokens)
                .eos_token_id(ids(&[0, 7][..ends as usize]))
                .pad_token_id(0)
                .length_penalty([-12.0, -1.0, 0.0, 1.0, 2.0][penalty])
                .early_stopping(
                    [EarlyStopping::True, EarlyStopping::False, EarlyStopping::Never][early as usize],
                )
                .output_scores(true)
                .top_logprobs(2);
            config = match kind {
                0 => config,
                1 => config.do_sample(true).seed(u64::from(seed)).top_k(4),
                2 => config.num_beam_groups(2).diversity_penalty(0.1),
                3 => config.force_words_ids(vec![ForcedWord::Phrase(ids(&[5, 6]))]),
                4 => config.compat(Compat::V4_49),
                _ => config.compat(Compat::V4_49).do_sample(true).seed(u64::from(seed)),
            };
            let removed = f32::from(removed.saturating_sub(1)) * 0.3;
            Case {
                config,
                seed,
                sharpness,
                num_prompts,
                removed,
                is_fickle,
                has_criterion: has_criterion && seed % 3 == 0,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_emitted_is_never_contradicted(case in cases()) {
        case.check();
    }
}

/// Removes everything after a few tokens. Before that it lowers all scores, so that no continuation takes the
/// place of an empty slot.
struct RemovesAll;

impl LogitsProcessor for RemovesAll {
    fn name(&self) -> &'static str {
        "RemovesAll"
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let lowered = if row.input_ids.len() > 6 { f32::INFINITY } else { 50.0 };
        for score in scores {
            *score -= lowered;
        }
        Ok(())
    }
}

#[test]
fn what_was_emitted_stays_when_every_beam_becomes_impossible() {
    let config = config().num_beams(2).max_new_tokens(9);
    let context = PlanContext { processors: vec![Arc::new(RemovesAll)], ..context() };
    let sure = |tokens: &[TokenId]| {
        (0..VOCAB).map(|token| if token == tokens.len() { 9.0 } else { 0.01 * token as f32 }).collect()
    };
    let mut model = ScriptedModel::new(VOCAB, sure);
    let transcript = try_generate(&config, single(&[3]), &context, &mut model).unwrap();
    let (tokens, reason) = row(&transcript);
    assert_eq!((tokens.len(), reason), (7, FinishReason::Length));
    let emitted =
        run_steps(build(GenerationPlan::new(&config, single(&[3]), &context).unwrap()), &mut model, 6);
    let emitted: Vec<u32> = emitted.unwrap().events.iter().map(|event| event.token.0).collect();
    assert!(emitted.len() >= 3 && tokens.starts_with(&emitted), "{emitted:?} {tokens:?}");
}

#[test]
fn a_slot_that_holds_no_more_than_was_emitted_cannot_end_its_row() {
    let case = Case {
        config: config()
            .num_beams(4)
            .num_return_sequences(2)
            .max_new_tokens(5)
            .length_penalty(-12.0)
            .early_stopping(true)
            .output_scores(true)
            .top_logprobs(2),
        seed: 2_754_017_585,
        sharpness: 3.0,
        num_prompts: 2,
        removed: 0.6,
        is_fickle: false,
        has_criterion: false,
    };
    assert!(case.check() > 0);
}

#[test]
fn a_model_that_is_sure_is_streamed_as_it_goes() {
    for kind in 0..5_u32 {
        let mut config = config().num_beams(4).max_new_tokens(12);
        config = match kind {
            0 => config,
            1 => config.do_sample(true).seed(3),
            2 => config.num_beam_groups(2).diversity_penalty(0.1),
            3 => config.force_words_ids(vec![ForcedWord::Phrase(ids(&[5]))]),
            _ => config.compat(Compat::V4_49),
        };
        let case = Case {
            config: config.output_scores(true).top_logprobs(2),
            seed: 5,
            sharpness: 60.0,
            num_prompts: 1,
            removed: 0.0,
            is_fickle: false,
            has_criterion: false,
        };
        let early = case.check();
        // Groups differ from their first token on.
        assert!(early > 0 || kind == 2, "search {kind}");
    }
}
