//! What goes into the layers of every family and what comes out of them, against transformers.

use rsgen::generation::Embeddings;
use rsgen::generator::Pooling;
use rsgen::{Generator, GeneratorOptions, TokenId};
use serde_json::Value;

use crate::families::{floats, goldens, greedy, open};
use crate::golden_support::{Faults, PROMISED, difference, list, token_ids, unequal};

fn opened(golden: &Value) -> (Generator, Vec<TokenId>) {
    (open(golden, &GeneratorOptions::default()).unwrap(), token_ids(&golden["input_ids"]))
}

#[test]
fn embeddings_are_those_of_transformers_and_give_the_tokens_of_their_ids() {
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let (generator, ids) = opened(&golden);
        let (size, embedded) = (generator.embedding_size(), generator.embed(&ids).unwrap());
        let last = difference(&embedded[embedded.len() - size..], &floats(&golden["embedding"]), PROMISED);
        faults.check(format!("{name}, embedding"), last);
        let expected = token_ids(&golden["greedy"]);
        let prompt = Embeddings::new(embedded, size).unwrap();
        let output = generator.generate(prompt, &greedy(expected.len())).unwrap();
        faults.check(format!("{name}, tokens"), unequal(output.token_ids(), &expected));
    }
    faults.report(2 * 60);
}

/// In some models the last state has another size than the others.
#[test]
fn hidden_states_have_the_sizes_of_transformers_and_the_last_one_its_numbers() {
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let (generator, ids) = opened(&golden);
        let texts = std::slice::from_ref(&ids);
        let (_, states) = generator.forward_states(texts, true, false, &mut || false).unwrap();
        let state = |layer| states[0].hidden_state(ids.len() - 1, layer).unwrap_or_default();
        let sizes = list(&golden["state_sizes"]).iter().map(|size| size.as_u64().unwrap() as usize);
        let expected: Vec<_> = sizes.collect();
        let sizes: Vec<_> = (0..expected.len()).map(|layer| state(layer).len()).collect();
        faults.check(format!("{name}, sizes"), unequal(&sizes, &expected));
        let last = difference(state(sizes.len() - 1), &floats(&golden["last_state"]), PROMISED);
        faults.check(format!("{name}, last state"), last);
        for (layer, index) in [(0, 0), (-1, sizes.len() - 1)] {
            let pooled = generator.embed_texts([ids.clone()], Pooling::Last, layer, false, &mut || false);
            faults.check(format!("{name}, pooled"), unequal(&pooled.unwrap()[0][..], state(index)));
        }
    }
    faults.report(4 * 60);
}

/// Contrastive search compares the states that the head reads: those after the norm, as wide as the embedding.
#[test]
fn contrastive_search_takes_the_candidates_that_the_last_states_ask_for() {
    const ALPHA: f64 = 0.6;
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let (generator, mut text) = opened(&golden);
        let vocab_size = generator.config().vocab_size;
        let config = greedy(5).penalty_alpha(ALPHA).top_k(4);
        let output = generator.generate(text.clone(), &config).unwrap();
        let context = |text: &[TokenId]| {
            let (logits, states) =
                generator.forward_states(&[text.to_vec()], true, false, &mut || false).unwrap();
            let last = states[0].shape.num_layers();
            let states: Vec<_> =
                (0..text.len()).map(|token| states[0].hidden_state(token, last).unwrap().to_vec()).collect();
            (logits[logits.len() - vocab_size..].to_vec(), states)
        };
        for &chosen in output.token_ids() {
            let logits = context(&text).0;
            let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
            let mut order: Vec<usize> = (0..vocab_size).collect();
            order.sort_by(|&one, &other| logits[other].total_cmp(&logits[one]));
            let scores: Vec<(TokenId, f64)> = order[..4]
                .iter()
                .map(|&token| {
                    let token = TokenId(token as u32);
                    let states = context(&[&text[..], &[token]].concat()).1;
                    let (own, before) = states.split_last().unwrap();
                    let likeness =
                        before.iter().map(|other| cosine(own, other)).fold(f64::NEG_INFINITY, f64::max);
                    let probability = f64::from(logits[token.index()]).exp() / sum;
                    (token, (1.0 - ALPHA) * probability - ALPHA * likeness)
                })
                .collect();
            let best = scores.iter().map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
            let own = scores.iter().find(|(token, _)| *token == chosen);
            let is_best = own.is_some_and(|(_, score)| *score > best - 1e-5);
            faults.check(
                format!("{name}, after {}", text.len()),
                (!is_best).then(|| format!("{chosen:?} of {scores:?}")),
            );
            text.push(chosen);
        }
    }
    faults.report(5 * 60);
}

fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot = |one: &[f32], other: &[f32]| -> f64 {
        one.iter().zip(other).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}
