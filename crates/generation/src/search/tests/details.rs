//! What searches tell with `output_events`: the invariants of nodes and alternatives, on drawn requests.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::super::config::{Compat, EarlyStopping, ForcedWord};
use super::super::details::{BeamNode, BeamState, Beams, NUM_ALTERNATIVES};
use super::*;

/// A request with beams of any kind.
fn beams() -> impl Strategy<Value = GenerationConfig> {
    let kinds = 0..5_u8;
    (kinds, 2..4_usize, 1..9_usize, 0..3_u32, 0..3_u8, any::<u64>()).prop_map(
        |(kind, each, tokens, eos, early, seed)| {
            let config = config().num_beams(each).num_return_sequences(2).max_new_tokens(tokens);
            let config = match kind {
                0 => config,
                1 => config.do_sample(true).seed(seed).top_k(7),
                2 => config.num_beams(2 * each).num_beam_groups(2).diversity_penalty(0.7),
                3 => config.force_words_ids(vec![ForcedWord::Phrase(ids(&[4, 2]))]),
                _ => config.compat(Compat::V4_49),
            };
            let early = [EarlyStopping::False, EarlyStopping::True, EarlyStopping::Never][usize::from(early)];
            let config = if eos > 0 { config.eos_token_id(ids(&[4, 7][..eos as usize])) } else { config };
            config.early_stopping(early).length_penalty(0.5).repetition_penalty(1.2).pad_token_id(0)
        },
    )
}

fn prompts() -> PromptBatch {
    PromptBatch::rectangular(vec![ids(&[3, 5]), ids(&[2, 7])]).unwrap()
}

proptest! {
    #[test]
    fn nodes_form_trees_that_lead_to_the_results(config in beams()) {
        let transcript = generate(&config.clone().output_events(true), prompts());
        let steps: Vec<&Beams> = transcript.details.iter().flat_map(|details| &details.beams).collect();
        let mut known: BTreeMap<u32, BeamNode> = BTreeMap::new();
        for step in &steps {
            for node in &step.nodes {
                let parent = node.parent.map(|parent| known[&parent].clone());
                prop_assert_eq!(parent.is_none(), step.step == 0);
                let sum = parent.as_ref().map_or(0.0, |parent| parent.sum) + node.logprob;
                prop_assert!((sum - node.sum).abs() <= 1e-5 * sum.abs().max(1.0), "{node:?}");
                prop_assert!(parent.is_none_or(|parent| parent.group == node.group));
                prop_assert!(known.insert(node.n, node.clone()).is_none());
            }
            prop_assert!(step.frontier.len() <= config.num_beams.unwrap());
            prop_assert!(step.frontier.iter().all(|n| step.nodes.iter().any(|node| node.n == *n)));
            for node in &step.nodes {
                let runs = step.frontier.contains(&node.n);
                prop_assert!(runs || node.state != BeamState::Alive, "{step:?}");
                prop_assert!(!runs || node.state != BeamState::Pruned, "{step:?}");
            }
        }
        for row in &transcript.output.rows {
            let mut parent = None;
            for (position, (&beam, &token)) in row.beam_indices.iter().zip(&row.token_ids).enumerate() {
                let of_step = steps.iter().filter(|step| (step.prompt, step.step) == (row.prompt_index, position));
                let node = of_step.flat_map(|step| &step.nodes).find(|node| (node.beam, node.token.id) == (beam, token));
                // Where the version of transformers shows another end-of-sequence token than was generated,
                // there is none.
                let Some(node) = node else {
                    prop_assert!(position + 1 == row.token_ids.len() && config.eos_token_id.is_some());
                    break;
                };
                prop_assert!(position == 0 || node.parent == parent, "{node:?}");
                parent = Some(node.n);
                if position + 1 == row.token_ids.len() {
                    prop_assert_eq!(node.state, BeamState::Finished);
                    prop_assert!((node.score - row.score.unwrap()).abs() < 1e-5, "{node:?} {row:?}");
                }
            }
        }
        let plain = generate(&config, prompts());
        prop_assert!(plain.details.iter().all(|details| *details == StepDetails::default()), "off is free");
        prop_assert_eq!(plain.output.rows, transcript.output.rows);
    }

    #[test]
    fn each_token_comes_with_its_alternatives(
        sampling in any::<bool>(),
        top_k in 2..12_usize,
        seed in any::<u64>(),
    ) {
        let config = config().max_new_tokens(6).eos_token_id(4).pad_token_id(0).output_events(true);
        let config = if sampling {
            config.do_sample(true).seed(seed).top_k(top_k).temperature(1.5).num_return_sequences(2)
        } else {
            config.repetition_penalty(1.4).suppress_tokens(ids(&[8]))
        };
        let transcript = generate(&config, prompts());
        let details: Vec<_> = transcript.details.iter().flat_map(|details| &details.tokens).collect();
        prop_assert_eq!(details.len(), transcript.events.len());
        for (details, event) in details.into_iter().zip(&transcript.events) {
            let chosen = details.top.iter().find(|top| top.token.id == event.token).unwrap();
            prop_assert!((chosen.p_raw.ln() - event.logprob).abs() < 1e-4);
            prop_assert!(chosen.cut_by.is_none() && chosen.p_final > 0.0);
            prop_assert!(details.top.len() <= NUM_ALTERNATIVES + 1);
            prop_assert!(details.top.windows(2).all(|pair| pair[0].p_raw >= pair[1].p_raw), "{details:?}");
            prop_assert_eq!(details.rank == 1, details.top[0].p_raw <= chosen.p_raw);
            for top in &details.top {
                prop_assert_eq!(top.cut_by.is_some(), top.p_final == 0.0);
                let by = if sampling { "top_k" } else { "suppress_tokens" };
                prop_assert!(top.cut_by.as_deref().is_none_or(|cut_by| cut_by == by));
                prop_assert!(sampling || (top.token.id.0 == 8) == top.cut_by.is_some());
            }
        }
    }
}

proptest! {
    #[test]
    fn drafts_add_up_to_the_tokens(
        sampling in any::<bool>(),
        num_tokens in 1..6_usize,
        seed in any::<u64>(),
        eos in any::<bool>(),
    ) {
        let config = config().max_new_tokens(12).prompt_lookup_num_tokens(num_tokens).pad_token_id(0);
        let config = if sampling { config.do_sample(true).seed(seed).top_k(2).num_return_sequences(2) } else { config };
        let config = if eos { config.eos_token_id(7) } else { config };
        let prompt = || single(&[3, 10, 8, 9, 3, 10]);
        let transcript = generate(&config.clone().output_events(true), prompt());
        let rounds: Vec<_> = transcript.details.iter().flat_map(|details| &details.drafts).collect();
        for (index, row) in transcript.output.rows.iter().enumerate() {
            let rounds = rounds.iter().filter(|round| round.row == index);
            let mut tokens = Vec::new();
            for round in rounds {
                tokens.extend(round.proposed[..round.accepted].iter().map(|drafted| drafted.token.id));
                tokens.extend(round.next.iter().map(|next| next.id));
                let checked = round.proposed.iter().take(round.accepted + 1);
                prop_assert!(checked.into_iter().all(|drafted| drafted.p_target.is_some() || round.next.is_none()));
            }
            prop_assert_eq!(&tokens, &row.token_ids);
        }
        let stats = transcript.output.draft_stats.unwrap();
        prop_assert_eq!(stats.rounds as usize, rounds.len());
        prop_assert_eq!(stats.accepted as usize, rounds.iter().map(|round| round.accepted).sum::<usize>());
        let tokens = transcript.details.iter().map(|details| details.tokens.len()).sum::<usize>();
        prop_assert_eq!(tokens, transcript.events.len());
        prop_assert_eq!(generate(&config, prompt()).output.rows, transcript.output.rows);
    }
}
