//! The matrices over the vocabulary: where a checkpoint has the embeddings and the head, and which of them are one.

use serde_json::Value;

use super::encoder_spec::EncoderSpec;
use super::loader::Loader;
use super::spec::{DecoderSpec, Names};
use crate::weights::ModelConfig;
use rsgen_core::error::Result;

/// A matrix of the checkpoint: a scope, and the name of the module in it.
#[derive(Clone)]
pub(super) struct Place<'a> {
    pub(super) scope: Loader<'a>,
    pub(super) name: &'static str,
}

impl<'a> Place<'a> {
    fn new(scope: &Loader<'a>, name: &'static str) -> Self {
        Self { scope: scope.clone(), name }
    }

    fn exists(&self) -> bool {
        self.scope.child(self.name).contains("weight")
    }

    fn full_name(&self) -> String {
        format!("{}.weight", self.scope.full_name(self.name))
    }

    fn equals(&self, other: &Self, num_rows: usize, width: usize) -> Result<bool> {
        if self.full_name() == other.full_name() {
            return Ok(true);
        }
        Loader::equal([(&self.scope, self.name), (&other.scope, other.name)], num_rows, width)
    }
}

/// The matrices of a model.
pub(super) struct Matrices<'a> {
    /// The decoder's embedding; `None` where it is the head.
    pub(super) embedding: Option<Place<'a>>,
    pub(super) head: Place<'a>,
    pub(super) source: SourceMatrix<'a>,
}

/// The encoder's embedding.
pub(super) enum SourceMatrix<'a> {
    /// There is none, or it is the head.
    Head,
    /// It is the decoder's.
    Embedding,
    Own(Place<'a>),
}

impl<'a> Matrices<'a> {
    /// Finds them. `model` is the scope of the decoder, and `root` that of its head.
    pub(super) fn find(
        loader: &Loader<'a>,
        [model, root]: [&Loader<'a>; 2],
        config: &ModelConfig,
        spec: &DecoderSpec,
    ) -> Result<Self> {
        match &spec.encoder {
            None => Self::of_decoder(model, root, config, &spec.names),
            Some(encoder) => Self::of_both(loader, model, root, config, spec, encoder),
        }
    }

    /// As in transformers 5, a checkpoint with two different matrices overrules `tie_word_embeddings`, and one
    /// with a head alone is tied to that.
    fn of_decoder(
        model: &Loader<'a>,
        root: &Loader<'a>,
        config: &ModelConfig,
        names: &Names,
    ) -> Result<Self> {
        // Transformers 5 calls every head alike.
        let is_renamed = !root.child(names.head).contains("weight");
        let head = Place::new(root, if is_renamed { "lm_head" } else { names.head });
        let embedding = Place::new(model, names.embedding);
        let found = |embedding, head| Ok(Self { embedding, head, source: SourceMatrix::Head });
        if !config.tie_word_embeddings {
            return found(Some(embedding), head);
        }
        match (embedding.exists(), head.exists()) {
            (_, false) => found(None, embedding),
            (false, true) => found(None, head),
            (true, true) => {
                let width = names.embedding_width.unwrap_or(config.hidden_size);
                if embedding.equals(&head, config.vocab_size, width)? {
                    return found(None, embedding);
                }
                warn_of_two(root, &embedding, &head);
                found(Some(embedding), head)
            }
        }
    }

    /// Any of the matrices that are tied may be the stored one, and a stored one that differs from the others stays
    /// apart. Without tied ones the embeddings are one all the same, unless the checkpoint has two.
    fn of_both(
        loader: &Loader<'a>,
        model: &Loader<'a>,
        root: &Loader<'a>,
        config: &ModelConfig,
        spec: &DecoderSpec,
        encoder: &EncoderSpec,
    ) -> Result<Self> {
        let base = common_scope(loader, encoder);
        let side = |names: &Names| {
            let (_, side) = names.base.rsplit_once('.').unwrap_or(("", names.base));
            Place::new(&base.child(side), names.embedding)
        };
        let (source, target) = (side(&encoder.stack.names), Place::new(model, spec.names.embedding));
        let (shared, head) = (Place::new(&base, "shared"), Place::new(root, spec.names.head));
        let is_tied = config.tie_word_embeddings;
        let first = |places: &[(&Place<'a>, bool)]| {
            let stored = places.iter().find(|(place, is_one)| *is_one && place.exists());
            stored.map_or(places[0].0, |(place, _)| place).clone()
        };
        let both = encoder.is_shared;
        let of_source = first(&[(&source, true), (&shared, both), (&target, both), (&head, both && is_tied)]);
        let of_target = first(&[(&target, true), (&shared, both), (&source, both), (&head, is_tied)]);
        let of_head = first(&[
            (&head, true),
            (&shared, both && is_tied),
            (&target, is_tied),
            (&source, both && is_tied),
        ]);
        let equal =
            |one: &Place<'a>, other: &Place<'a>| one.equals(other, config.vocab_size, config.hidden_size);
        let is_head = is_tied && equal(&of_target, &of_head)?;
        // Some classes tie matrices whatever the file says, and have files that say they are not.
        if is_tied && !is_head && config.raw.get("tie_word_embeddings") != Some(&Value::Bool(false)) {
            warn_of_two(root, &of_target, &of_head);
        }
        // Without a tie as well: some files have every name of the one embedding.
        let source = if both && is_tied && equal(&of_source, &of_head)? {
            SourceMatrix::Head
        } else if both && equal(&of_source, &of_target)? {
            SourceMatrix::Embedding
        } else {
            SourceMatrix::Own(of_source)
        };
        Ok(Self { embedding: (!is_head).then_some(of_target), head: of_head, source })
    }
}

/// The scope of encoder and decoder, which checkpoints of the bare model lack.
pub(super) fn common_scope<'a>(loader: &Loader<'a>, encoder: &EncoderSpec) -> Loader<'a> {
    let below = loader.child(encoder.base);
    let first = format!("encoder.{}.0.", encoder.stack.names.layers);
    if below.has_any(&first) { below } else { loader.clone() }
}

fn warn_of_two(root: &Loader<'_>, embedding: &Place<'_>, head: &Place<'_>) {
    let [embedding, head] = [embedding, head].map(Place::full_name);
    root.warn(format!(
        "`tie_word_embeddings` is true, but {embedding} and {head} differ, so each is used for itself; set it to false \
         in config.json"
    ));
}
