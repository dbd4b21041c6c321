//! Helpers for tests of bitwise equality, and modified models.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rsgen::{GenerationOutput, TokenId};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// Tokens and the bits of the logits of every row.
pub(crate) fn bits(output: &GenerationOutput) -> Vec<(Vec<TokenId>, Vec<u32>)> {
    let rows = output.rows.iter().zip(&output.sequences);
    rows.map(|(row, kept)| {
        let logits = kept.logits.as_ref().unwrap();
        (row.generated.token_ids.clone(), logits.iter().flatten().map(|logit| logit.to_bits()).collect())
    })
    .collect()
}

/// The tensors of a model: type, shape and bytes by name.
pub(crate) type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// A copy of a model of this repository with its tensors changed.
pub(crate) fn with_tensors(model: &str, change: impl FnOnce(&mut Tensors)) -> tempfile::TempDir {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(model);
    let file = fs::read(source.join("model.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&file).unwrap().tensors().into_iter();
    let mut tensors: Tensors = stored
        .map(|(name, tensor)| (name, (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec())))
        .collect();
    change(&mut tensors);
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::copy(source.join("config.json"), folder.path().join("config.json")).unwrap();
    folder
}
