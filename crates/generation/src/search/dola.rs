//! DoLa (Chuang et al., arXiv:2309.03883), as transformers had it until 4.55: the logits of the last layer contrasted
//! with those of the inner layer that differs most from it; then greedy search or sampling.
//!
//! transformers chooses one layer for all rows of a batch; here each row chooses its own.

use rsgen_core::error::{Error, Result};
use rsgen_core::types::{LayerSet, RowOutputs, TokenId};
use rsgen_kernels::{Isa, log_sum_exp};

use super::super::config::{DolaLayers, GenerationConfig};
use super::super::output::SearchOutput;
use super::super::plan::{GenerationPlan, PlanContext};
use super::greedy::HighestScore;
use super::registry::SearchPlan;
use super::rows::{RowSearch, TokenChoice};
use super::sample::Draw;
use super::{Search, SearchInputs, SearchResults, SearchStep};

/// Tokens below this fraction of the most probable one's probability are removed.
const RELATIVE_TOP: f64 = 0.1;

/// Plans the layers to contrast with.
pub(super) fn plan(config: &GenerationConfig, context: &PlanContext) -> Result<SearchPlan> {
    let layers = layers(config.dola_layers.as_ref().unwrap_or(&DolaLayers::High), context)?;
    Ok(SearchPlan::of_rows(config, move |plan| DolaSearch::new(plan, layers)))
}

/// The layers to contrast with, from the model's number of layers, by transformers' rules.
fn layers(wanted: &DolaLayers, context: &PlanContext) -> Result<LayerSet> {
    context.check_layers("dola_layers")?;
    let count = context.num_layers;
    // With tied embeddings the head would return the input token.
    let start = match (context.tied_embeddings, count) {
        (true, 3..) => 2,
        (true, 2) => 1,
        _ => 0,
    };
    let layers: Vec<usize> = match wanted {
        DolaLayers::Low if start == count / 2 => vec![start],
        DolaLayers::Low if count <= 40 => (start..count / 2).step_by(2).collect(),
        DolaLayers::Low => (start..20).step_by(2).collect(),
        DolaLayers::High if count <= 40 => (count / 2..count).step_by(2).collect(),
        DolaLayers::High => (count - 20..count).step_by(2).collect(),
        DolaLayers::Layers(layers) => layers.iter().copied().filter(|&layer| layer < count).collect(),
    };
    let set = layers.into_iter().try_fold(LayerSet::EMPTY, LayerSet::with);
    set.filter(|set| !set.is_empty()).ok_or_else(|| {
        Error::config(format!(
            "must name inner layers of the model, 0 to {}, but {} leaves none; give a list of layers",
            count.saturating_sub(1),
            match wanted {
                DolaLayers::Low => "\"low\"".to_owned(),
                DolaLayers::High => "\"high\"".to_owned(),
                DolaLayers::Layers(layers) => format!("{layers:?}"),
            }
        ))
        .about("dola_layers")
    })
}

/// transformers' DoLa decoding.
struct DolaSearch {
    rows: RowSearch,
    choice: Contrast,
    seed: Option<u64>,
}

/// Contrasts the logits, then chooses a token.
struct Contrast {
    isa: Isa,
    num_layers: usize,
    inner: Inner,
    /// Scratch of `[vocab_size]`.
    last: Vec<f32>,
    base: Vec<f32>,
}

enum Inner {
    Highest(HighestScore),
    Draw(Draw),
}

impl DolaSearch {
    fn new(plan: GenerationPlan, layers: LayerSet) -> Self {
        let seed = plan.seed;
        let inner = match seed {
            Some(seed) => Inner::Draw(Draw::new(seed, &plan)),
            None => Inner::Highest(HighestScore(plan.isa)),
        };
        let choice =
            Contrast { isa: plan.isa, num_layers: layers.len(), inner, last: Vec::new(), base: Vec::new() };
        let outputs = RowOutputs { layer_logits: layers, ..RowOutputs::LOGITS };
        Self { rows: RowSearch::with_outputs(plan, outputs), choice, seed }
    }
}

impl Search for DolaSearch {
    fn wants(&mut self, inputs: &mut SearchInputs) {
        self.rows.wants(inputs);
    }

    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()> {
        self.rows.advance(results, &mut self.choice, step)
    }

    fn finish(self: Box<Self>) -> SearchOutput {
        SearchOutput { seed: self.seed, ..self.rows.finish() }
    }
}

impl TokenChoice for Contrast {
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
        match &mut self.inner {
            Inner::Highest(highest) => highest.choose(scores),
            Inner::Draw(draw) => draw.choose(scores),
        }
    }

    fn skip_row(&mut self, vocab_size: usize) {
        match &mut self.inner {
            Inner::Highest(highest) => highest.skip_row(vocab_size),
            Inner::Draw(draw) => draw.skip_row(vocab_size),
        }
    }
}

fn log_softmax_into(isa: Isa, logits: &[f32], log_probabilities: &mut Vec<f32>) {
    let normalizer = log_sum_exp(isa, logits);
    log_probabilities.clear();
    log_probabilities.extend(logits.iter().map(|logit| logit - normalizer));
}

/// transformers' Jensen-Shannon divergence of two distributions, given their log-probabilities: the mean divergence of
/// their average from each, times a constant that depends only on the vocabulary.
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
