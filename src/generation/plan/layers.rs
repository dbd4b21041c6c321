//! The inner layers that a search looks at, from the model's number of layers, by transformers' rules.

use crate::error::{Error, Result};
use crate::types::LayerSet;

use super::super::config::{DolaLayers, GenerationConfig};
use super::super::mode::GenerationMode;
use super::PlanContext;

/// The layers that `DoLa` contrasts with; none in other modes.
pub(super) fn dola_layers(
    merged: &GenerationConfig,
    mode: GenerationMode,
    context: &PlanContext,
) -> Result<LayerSet> {
    let count = context.num_layers;
    if mode == GenerationMode::ContrastiveSearch && count >= LayerSet::CAPACITY {
        return Err(too_deep("penalty_alpha", count));
    }
    let Some(wanted) = &merged.dola_layers else { return Ok(LayerSet::EMPTY) };
    if mode != GenerationMode::Dola {
        return Err(Error::config(format!(
            "`dola_layers` goes with greedy search and sampling, but the other fields ask for {mode}; leave it out, or \
             set num_beams=1"
        )));
    }
    if count >= LayerSet::CAPACITY {
        return Err(too_deep("dola_layers", count));
    }
    // On a tied embedding the head would give back the token that went in.
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
            "`dola_layers` must name inner layers of the model, 0 to {}, but {} leaves none; give a list of layers",
            count.saturating_sub(1),
            match wanted {
                DolaLayers::Low => "\"low\"".to_owned(),
                DolaLayers::High => "\"high\"".to_owned(),
                DolaLayers::Layers(layers) => format!("{layers:?}"),
            }
        ))
    })
}

fn too_deep(field: &str, count: usize) -> Error {
    Error::config(format!(
        "`{field}` looks at inner layers, which is possible in models of up to {} layers, but this one has {count}; \
         leave it out",
        LayerSet::CAPACITY - 1
    ))
}
