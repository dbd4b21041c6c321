//! [`SearchPlan`]: what one kind of search needs besides the configuration that all share.

use rsgen_core::{Error, LayerSet, Result};

use super::super::candidate::PromptLookup;
use super::super::config::DolaLayers;
use super::super::mode::GenerationMode;
use super::super::resolved::ResolvedConfig;
use super::{DraftPlan, PlanContext};

/// The values of a search alone.
#[derive(Clone, Default)]
pub(crate) struct SearchPlan {
    /// The number of rows of each prompt that are computed in a step.
    pub(crate) sequences_each: usize,
    /// The most candidates of a row in a step.
    pub(crate) num_candidates: usize,
    /// Where prompt lookup looks; it finds nothing in other searches.
    pub(crate) lookup: PromptLookup,
    /// The sequences that it drafts in, if a model drafts.
    pub(crate) draft: Option<DraftPlan>,
    /// The layers whose states or logits it looks at.
    pub(crate) layers: LayerSet,
}

impl SearchPlan {
    /// Resolves what the search of a configuration needs of the model.
    ///
    /// # Errors
    /// For the first invalid value.
    pub(super) fn new(config: &ResolvedConfig, context: &PlanContext) -> Result<Self> {
        let rows = Self { sequences_each: config.num_return_sequences, ..Self::default() };
        Ok(match config.mode {
            GenerationMode::Greedy | GenerationMode::Sample => rows,
            GenerationMode::PromptLookup => {
                let lookup = PromptLookup::of(&config.fields)?
                    .ok_or_else(|| Error::internal("assisted decoding without candidates"))?;
                Self { lookup, num_candidates: config.fields.prompt_lookup_num_tokens.unwrap_or(0), ..rows }
            }
            GenerationMode::AssistedDecoding => {
                let draft = DraftPlan::new(config, context)?;
                Self { num_candidates: draft.num_candidates(), draft: Some(draft), ..rows }
            }
            GenerationMode::ContrastiveSearch => {
                context.check_layers("penalty_alpha")?;
                let candidates = config.fields.top_k_or_default().min(config.vocab_size);
                Self { sequences_each: candidates, layers: LayerSet::single(context.num_layers), ..rows }
            }
            GenerationMode::Dola => {
                let wanted = config.fields.dola_layers.as_ref().unwrap_or(&DolaLayers::High);
                Self { layers: dola_layers(wanted, context)?, ..rows }
            }
            GenerationMode::BeamSearch
            | GenerationMode::BeamSample
            | GenerationMode::GroupBeamSearch
            | GenerationMode::ConstrainedBeamSearch => Self { sequences_each: config.num_beams, ..rows },
        })
    }
}

/// The layers to contrast with, from the model's number of layers, by transformers' rules.
fn dola_layers(wanted: &DolaLayers, context: &PlanContext) -> Result<LayerSet> {
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
