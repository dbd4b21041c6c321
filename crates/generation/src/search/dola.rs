//! DoLa (Chuang et al., arXiv:2309.03883), as transformers had it until 4.55: the logits of the last layer
//! contrasted with those of the inner layer that differs most from it; then greedy search or sampling.
//!
//! transformers chooses one layer for all rows of a batch; here each row chooses its own.

use rsgen_core::{Error, Result, RowOutputs, TokenId};
use rsgen_kernels::{Isa, log_sum_exp};

use super::super::plan::GenerationPlan;
use super::Search;
use super::greedy::HighestScore;
use super::rows::{RowSearch, TokenChoice};
use super::sample::Draw;

/// Tokens below this fraction of the most probable one's probability are removed.
const RELATIVE_TOP: f64 = 0.1;

/// Contrasts the logits, then chooses a token as `inner` does.
struct Contrast<C> {
    isa: Isa,
    num_layers: usize,
    inner: C,
    /// Scratch of `[vocab_size]`.
    last: Vec<f32>,
    base: Vec<f32>,
}

/// transformers' DoLa decoding of a plan.
pub(super) fn dola_search(plan: GenerationPlan) -> Box<dyn Search> {
    match plan.config.seed {
        Some(seed) => contrasted(Draw::new(seed, &plan), plan),
        None => contrasted(HighestScore(plan.config.isa), plan),
    }
}

fn contrasted(inner: impl TokenChoice + 'static, plan: GenerationPlan) -> Box<dyn Search> {
    let (isa, layers) = (plan.config.isa, plan.search.layers);
    let choice = Contrast { isa, num_layers: layers.len(), inner, last: Vec::new(), base: Vec::new() };
    let outputs = RowOutputs { layer_logits: layers, ..RowOutputs::LOGITS };
    Box::new(RowSearch::new(plan, choice, outputs))
}

impl<C: TokenChoice> TokenChoice for Contrast<C> {
    const CHANGED_BY: &'static str = "dola_layers";

    fn prepare(&mut self, logits: &mut [f32], layer_logits: &[f32], main_row: usize) -> Result<()> {
        let vocab_size = logits.len();
        let row = main_row * self.num_layers * vocab_size..(main_row + 1) * self.num_layers * vocab_size;
        let layers = layer_logits
            .get(row)
            .ok_or_else(|| Error::internal("a search was given fewer inner logits than it asked for"))?;
        log_softmax_into(self.isa, logits, &mut self.last);
        let mut best: Option<f64> = None;
        let mut base = &layers[..vocab_size];
        if self.num_layers > 1 {
            for layer in layers.chunks_exact(vocab_size) {
                log_softmax_into(self.isa, layer, &mut self.base);
                let divergence = divergence(&self.last, &self.base);
                if best.is_none_or(|best| divergence > best) {
                    (best, base) = (Some(divergence), layer);
                }
            }
        }
        log_softmax_into(self.isa, base, &mut self.base);
        let most = self.last.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let threshold = most + RELATIVE_TOP.ln() as f32;
        for ((logit, &last), &base) in logits.iter_mut().zip(&self.last).zip(&self.base) {
            *logit = if last < threshold { f32::NEG_INFINITY } else { last - base };
        }
        Ok(())
    }

    fn choose(&mut self, scores: &[f32]) -> Result<TokenId> {
        self.inner.choose(scores)
    }

    fn skip_row(&mut self, vocab_size: usize) {
        self.inner.skip_row(vocab_size);
    }
}

fn log_softmax_into(isa: Isa, logits: &[f32], log_probabilities: &mut Vec<f32>) {
    let normalizer = log_sum_exp(isa, logits);
    log_probabilities.clear();
    log_probabilities.extend(logits.iter().map(|logit| logit - normalizer));
}

/// transformers' Jensen-Shannon divergence of two distributions, given their log-probabilities: the mean
/// divergence of their average from each, times a constant that depends only on the vocabulary.
fn divergence(last: &[f32], inner: &[f32]) -> f64 {
    let terms = last.iter().zip(inner).map(|(&last, &inner)| {
        let average = 0.5 * (last.exp() + inner.exp());
        if average == 0.0 {
            return 0.0;
        }
        let log = average.ln();
        f64::from(average * (log - last)) + f64::from(average * (log - inner))
    });
    terms.sum()
}
