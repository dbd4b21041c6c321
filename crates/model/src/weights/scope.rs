//! Scopes of tensor names, nested as model code is: `model.layers.3.self_attn.q_proj.weight`.
//!
//! The caller gives the shape that the configuration predicts; a tensor of another shape is an error.

use super::packed::packed_name;
use super::safetensors::TensorView;
use super::shards::Weights;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_kernels::tensor::StoredBytes;

/// How many similar names an error offers.
const SUGGESTIONS: usize = 3;

/// A prefix of tensor names.
#[derive(Debug, Clone)]
pub struct WeightScope<'a> {
    weights: &'a Weights,
    /// Ends in a dot, or is empty.
    prefix: String,
}

impl<'a> WeightScope<'a> {
    pub(super) fn new(weights: &'a Weights) -> Self {
        Self { weights, prefix: String::new() }
    }

    /// The scope `name` below this one; this one if it is empty.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if name.is_empty() {
            return self.clone();
        }
        Self { weights: self.weights, prefix: format!("{}{name}.", self.prefix) }
    }

    /// The scope of an element of a list, such as a layer.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.child(&index.to_string())
    }

    /// The full name of a tensor here.
    pub fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Whether there is a tensor of this name here.
    pub fn contains(&self, name: &str) -> bool {
        self.weights.contains(&self.full_name(name))
    }

    /// Whether the name of any tensor here begins with this.
    pub fn has_any(&self, prefix: &str) -> bool {
        let prefix = self.full_name(prefix);
        self.weights.names().any(|name| name.starts_with(&prefix))
    }

    /// Whether a matrix that its class keeps as `[inputs, outputs]` is stored as `[outputs, inputs]`.
    ///
    /// # Errors
    /// `Load` when the tensor is stored in a type that is not supported.
    pub fn is_transposed(&self, name: &str) -> Result<bool> {
        Ok(self.weights.tensor(&self.full_name(name))?.is_some_and(|tensor| tensor.is_transposed))
    }

    /// The tensor of this name, which must have this shape.
    ///
    /// # Errors
    /// `Load` when it is missing, of another shape, or stored in a type that is not supported.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'a>> {
        self.optional_tensor(name, shape)?.ok_or_else(|| self.missing(&self.full_name(name)))
    }

    /// As [`Self::tensor`], for a tensor that may be missing.
    ///
    /// # Errors
    /// `Load` when it is of another shape or stored in a type that is not supported.
    pub fn optional_tensor(&self, name: &str, shape: &[usize]) -> Result<Option<TensorView<'a>>> {
        match self.weights.tensor(&self.full_name(name))? {
            Some(tensor) if tensor.shape != shape => Err(Error::load(format!(
                "{}: config.json predicts the shape {shape:?}, found {:?}; the files do not belong together",
                escape::name(tensor.name),
                tensor.shape
            ))),
            found => Ok(found),
        }
    }

    /// The matrix that is packed of these tensors below this scope.
    ///
    /// # Errors
    /// `Load` when it is missing or of another shape.
    pub fn packed_matrix(&self, parts: &[String], shape: [usize; 3]) -> Result<StoredBytes<'a>> {
        self.weights.packed_matrix(&packed_name(parts), shape)
    }

    #[cold]
    fn missing(&self, name: &str) -> Error {
        let mut similar: Vec<(usize, &str)> =
            self.weights.names().map(|other| (likeness(name, other), other)).collect();
        similar.retain(|(likeness, _)| likeness * 2 > name.len());
        similar.sort_unstable_by_key(|&(likeness, other)| (std::cmp::Reverse(likeness), other.len(), other));
        let similar: Vec<_> =
            similar.into_iter().take(SUGGESTIONS).map(|(_, name)| escape::name(name)).collect();
        let mut message = format!("{name}: the weights have no tensor of this name");
        if self.weights.names().any(|name| name.starts_with("module.")) {
            message +=
                "; they were saved within a DataParallel: save `model.module` by `save_pretrained(folder)`";
        } else if self.weights.names().any(|name| name.starts_with("_orig_mod.")) {
            message += "; they were saved from what `torch.compile` returned: save `model._orig_mod` by `save_pretrained(folder)`";
        } else if name == "lm_head.weight" {
            message += "; they are those of a base model without a head: use the model that was trained with its head";
        }
        if similar.is_empty() {
            return Error::load(message);
        }
        Error::load(format!("{message}; similar names are {}", similar.join(", ")))
    }
}

/// The length of the common prefix and suffix of two names.
fn likeness(left: &str, right: &str) -> usize {
    let shared = |left: &mut dyn Iterator<Item = u8>, right: &mut dyn Iterator<Item = u8>| {
        left.zip(right).take_while(|(left, right)| left == right).count()
    };
    let start = shared(&mut left.bytes(), &mut right.bytes());
    let end = shared(&mut left.bytes().rev(), &mut right.bytes().rev());
    (start + end).min(left.len()).min(right.len())
}

#[cfg(test)]
mod tests {
    use super::super::safetensors::tests::safetensors_file;
    use super::*;

    fn weights() -> Weights {
        Weights::from_bytes(safetensors_file(&[
            ("model.layers.0.self_attn.q_proj.weight", "F32", &[2, 3]),
            ("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", &[1]),
            ("model.layers.10.mlp.up_proj.weight", "BF16", &[4]),
            ("lm_head.weight", "I32", &[1]),
        ]))
        .unwrap()
    }

    #[test]
    fn names_are_walked_and_the_shape_is_checked() {
        let weights = weights();
        let attention = weights.root().child("model").child("layers").index(0).child("self_attn");
        let tensor = attention.child("q_proj").tensor("weight", &[2, 3]).unwrap();
        assert_eq!((tensor.name, tensor.shape), ("model.layers.0.self_attn.q_proj.weight", &[2, 3][..]));
        assert!(attention.child("q_proj").contains("weight"));
        assert!(attention.child("q_proj").optional_tensor("bias", &[2]).unwrap().is_none());
        let error = attention.child("q_proj").optional_tensor("weight", &[3, 2]).unwrap_err().to_string();
        assert!(
            error.contains("q_proj.weight: config.json predicts the shape [3, 2], found [2, 3]"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_tensor_is_named_with_similar_ones() {
        let weights = weights();
        let error = weights.root().child("layers").index(0).child("self_attn").child("q_proj");
        let error = error.tensor("weight", &[2, 3]).unwrap_err().to_string();
        assert!(error.starts_with("layers.0.self_attn.q_proj.weight: the weights have no tensor"), "{error}");
        assert!(error.contains("similar names are model.layers.0.self_attn.q_proj.weight"), "{error}");
        let error = weights.root().tensor("xyz", &[1]).unwrap_err().to_string();
        assert_eq!(error, "xyz: the weights have no tensor of this name");
    }

    #[test]
    fn what_nobody_asked_for_is_left_over() {
        let weights = weights();
        weights
            .root()
            .child("model")
            .child("layers")
            .index(10)
            .child("mlp")
            .child("up_proj")
            .tensor("weight", &[4])
            .unwrap();
        let unused: Vec<&str> = weights.unused().collect();
        assert_eq!(unused.len(), 3);
        assert!(unused.contains(&"model.layers.0.self_attn.rotary_emb.inv_freq"));
    }

    #[test]
    fn a_type_that_is_no_float_is_refused_by_name() {
        let error = weights().root().child("lm_head").tensor("weight", &[1]).unwrap_err().to_string();
        assert!(error.contains("lm_head.weight must be stored as F32, BF16 or F16, found I32"), "{error}");
    }
}
