//! What a search tells about a step besides its tokens, with `output_events`: the alternatives of each token,
//! the nodes of beams, and drafts. The same types are the events of a request, where tokens have their texts.

use serde::{Deserialize, Serialize};

use rsgen_core::{Result, TokenId, memory};
use rsgen_kernels::{Isa, softmax};

use super::super::logits::watched::WatchedToken;
use super::super::output::top_logprobs;

/// The alternatives that are kept for each token, the chosen one not counted if it is not among them.
pub const NUM_ALTERNATIVES: usize = 5;

/// The details of a step; empty without `output_events`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepDetails {
    /// One for each of the step's events, in their order. Beam searches have none: the nodes are their
    /// alternatives.
    pub tokens: Vec<TokenDetails>,
    /// The new nodes of each prompt whose beams run.
    pub beams: Vec<Beams>,
    /// The drafts that were checked.
    pub drafts: Vec<Draft>,
}

impl StepDetails {
    /// Empties it.
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.beams.clear();
        self.drafts.clear();
    }
}

/// The entropy of the model's distribution, and the rank and the alternatives of a chosen token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenDetails {
    /// The entropy of the model's own distribution, in nats.
    pub entropy: f32,
    /// The rank of the token in that distribution; 1 for the most probable one.
    pub rank: usize,
    /// The most probable tokens under the model's own logits, the most probable first, and the chosen token.
    pub top: Vec<Alternative>,
}

/// A token with its text, at most 64 characters of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenText {
    /// The token.
    pub id: TokenId,
    /// Its text by itself; bytes that are no whole character are U+FFFD. A search leaves it empty.
    pub text: String,
}

impl From<TokenId> for TokenText {
    fn from(id: TokenId) -> Self {
        Self { id, text: String::new() }
    }
}

/// A token that could have been chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The token.
    #[serde(flatten)]
    pub token: TokenText,
    /// Its probability under the model's own logits.
    pub p_raw: f32,
    /// Its probability after all processors; 0 when one removed it.
    pub p_final: f32,
    /// The field that switches on the processor that removed it, such as `top_k`, or the name of the caller's
    /// processor.
    pub cut_by: Option<String>,
}

/// The most probable tokens of a row of the model's own logits, to be watched.
pub(super) fn watched(isa: Isa, logits: &[f32]) -> Result<Vec<WatchedToken>> {
    let top = top_logprobs(isa, logits, NUM_ALTERNATIVES)?;
    Ok(top.into_iter().map(|(token, _)| WatchedToken { token, cut_by: None }).collect())
}

impl TokenDetails {
    /// The details of `token`, chosen from the scores `processed`, which were the logits `raw`, both
    /// `[vocab_size]`.
    pub(super) fn new(
        isa: Isa,
        raw: &[f32],
        processed: &[f32],
        token: TokenId,
        watched: Vec<WatchedToken>,
    ) -> Result<Self> {
        let probabilities = |scores: &[f32]| {
            let mut scores = memory::copied(scores, "probabilities")?;
            softmax(isa, &mut scores);
            // NaN, where a processor repairs the model's logits, is no probability.
            scores.iter_mut().filter(|p| !p.is_finite()).for_each(|p| *p = 0.0);
            Ok(scores)
        };
        let (before, after) = (probabilities(raw)?, probabilities(processed)?);
        let entropy = before.iter().filter(|&&p| p > 0.0).map(|&p| -f64::from(p) * f64::from(p).ln());
        let mut watched = watched;
        if watched.iter().all(|watched| watched.token != token) {
            watched.push(WatchedToken { token, cut_by: None });
        }
        let top = watched.into_iter().map(|WatchedToken { token, cut_by }| Alternative {
            token: token.into(),
            p_raw: before[token.index()],
            p_final: after[token.index()],
            cut_by,
        });
        Ok(Self {
            entropy: entropy.sum::<f64>() as f32,
            rank: 1 + raw.iter().filter(|&&logit| logit > raw[token.index()]).count(),
            top: top.collect(),
        })
    }
}

/// The new nodes of the beams of one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beams {
    /// The prompt.
    pub prompt: usize,
    /// The step, counted from 0: a node of step `s` is token `s` of its hypothesis.
    pub step: usize,
    /// The continuations that were considered, the most probable first within each group.
    pub nodes: Vec<BeamNode>,
    /// The numbers of the nodes that are beams now, the best first within each group.
    pub frontier: Vec<u32>,
}

/// A token in the tree of a prompt's beams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeamNode {
    /// Its number.
    pub n: u32,
    /// The node that it continues; `None` for the prompt.
    pub parent: Option<u32>,
    /// The sequence that it was chosen in: its `beam_indices` in the output.
    pub beam: u32,
    /// The token.
    #[serde(flatten)]
    pub token: TokenText,
    /// Its processed log-probability: what beams are compared by.
    pub logprob: f32,
    /// The sum of the log-probabilities from the prompt to here.
    pub sum: f32,
    /// The sum, divided by the length to the power of `length_penalty`: what results are compared by.
    pub score: f32,
    /// The group of beams.
    pub group: usize,
    /// What became of it in this step.
    pub state: BeamState,
}

/// What became of a continuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BeamState {
    /// It is a beam of the next step.
    Alive,
    /// It was considered and left out.
    Pruned,
    /// It ended and competes to be a result.
    Finished,
}

/// One round of assisted decoding for a row: the tokens that were drafted, and what the model made of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    /// The row.
    pub row: usize,
    /// The round of the row, from 0. A search leaves it 0.
    pub round: usize,
    /// Where the draft came from.
    pub source: DraftOrigin,
    /// The drafted tokens.
    pub proposed: Vec<DraftedToken>,
    /// How many of them the row takes, from the first one on.
    pub accepted: usize,
    /// The token that the model chose after them: the correction of the first rejected one, or a bonus.
    /// `None` when the row ends with an accepted one.
    pub next: Option<TokenText>,
}

/// A drafted token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DraftedToken {
    /// The token.
    #[serde(flatten)]
    pub token: TokenText,
    /// Its probability in the draft, if the source gives one.
    pub p_draft: Option<f32>,
    /// Its processed probability under the model, if it was checked.
    pub p_target: Option<f32>,
}

/// Where drafts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftOrigin {
    /// A smaller model.
    AssistantModel,
    /// The first layers of the model itself.
    EarlyExit,
    /// The prompt and the text so far.
    PromptLookup,
}

#[cfg(test)]
mod tests {
    use super::super::super::logits::watched::note_removed;
    use super::*;

    #[test]
    fn a_token_comes_with_its_rank_its_entropy_and_what_was_cut() {
        let isa = Isa::fastest();
        let raw: Vec<f32> = [0.4_f32, 0.3, 0.15, 0.1, 0.03, 0.02].iter().map(|p| p.ln()).collect();
        let mut watched = watched(isa, &raw).unwrap();
        let mut processed = raw.clone();
        processed[0] = f32::NEG_INFINITY;
        note_removed(&mut watched, &processed, || "suppress_tokens".to_owned());
        for token in [1, 2, 3, 4] {
            processed[token] = f32::NEG_INFINITY;
        }
        note_removed(&mut watched, &processed, || "top_k".to_owned());
        let details = TokenDetails::new(isa, &raw, &processed, TokenId(5), watched).unwrap();
        assert_eq!(details.rank, 6);
        let expected: f32 = raw.iter().map(|logprob| -logprob * logprob.exp()).sum();
        assert!((details.entropy - expected).abs() < 1e-5, "{}", details.entropy);
        let cut: Vec<_> = details.top.iter().map(|top| (top.token.id.0, top.cut_by.as_deref())).collect();
        let by_top_k = |token| (token, Some("top_k"));
        assert_eq!(
            cut,
            [(0, Some("suppress_tokens")), by_top_k(1), by_top_k(2), by_top_k(3), by_top_k(4), (5, None)]
        );
        assert!((details.top[0].p_raw - 0.4).abs() < 1e-6);
        assert_eq!((details.top[0].p_final, details.top[5].p_final), (0.0, 1.0));
    }

    #[test]
    fn logits_without_an_order_give_probabilities_of_zero() {
        let isa = Isa::fastest();
        let raw = [f32::NAN, 1.0];
        let watched = watched(isa, &raw).unwrap();
        let details = TokenDetails::new(isa, &raw, &[0.0, 0.0], TokenId(1), watched).unwrap();
        assert_eq!(details.entropy, 0.0);
        assert_eq!((details.top.len(), details.top[0].p_raw, details.top[0].p_final), (1, 0.0, 0.5));
    }
}
