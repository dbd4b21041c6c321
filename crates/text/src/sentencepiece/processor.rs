//! A loaded SentencePiece model: splits texts into pieces, as Google's library does.

use super::bpe;
use super::model_file::ModelFile;
use super::normalizer::Normalizer;
use super::unigram::Unigram;
use super::vocabulary::Vocabulary;
use crate::budget::{Budget, check_length};
use rsgen_core::error::Result;

/// A loaded model.
#[derive(Debug)]
pub(super) struct Processor {
    pub(super) vocabulary: Vocabulary,
    pub(super) normalizer: Normalizer,
    pub(super) unknown_surface: String,
    /// The unigram model; `None` for BPE.
    unigram: Option<Unigram>,
}

/// A part of a text.
pub(super) enum Found<'t> {
    Piece(u32),
    /// A run of characters without a piece.
    Unknown(&'t str),
}

impl Processor {
    /// Reads a model file.
    pub(super) fn new(bytes: &[u8]) -> Result<Self> {
        let ModelFile { vocabulary, normalizer, is_bpe, unknown_surface } = ModelFile::read(bytes)?;
        let unigram = (!is_bpe).then(|| Unigram::new(&vocabulary));
        Ok(Self { vocabulary, normalizer, unknown_surface, unigram })
    }

    pub(super) fn is_bpe(&self) -> bool {
        self.unigram.is_none()
    }

    /// Splits a text and passes its parts on in order.
    pub(super) fn encode(
        &self,
        text: &str,
        add_dummy_prefix: bool,
        budget: &Budget<'_>,
        mut found: impl FnMut(Found<'_>),
    ) -> Result<()> {
        let vocabulary = &self.vocabulary;
        check_length(text.len())?;
        let text = self.normalizer.normalize(text, &vocabulary.user_defined, add_dummy_prefix, budget)?;
        let pieces = match &self.unigram {
            Some(unigram) => unigram.cut(vocabulary, &text, budget)?,
            None => bpe::cut(vocabulary, &text, budget)?,
        };
        let (mut at, mut unknown_from) = (0, None);
        for (piece, id) in pieces {
            let is_unknown = id == vocabulary.unknown;
            if !is_unknown && let Some(from) = unknown_from.take() {
                found(Found::Unknown(&text[from..at]));
            }
            match &vocabulary.bytes {
                Some(bytes) if is_unknown => {
                    piece.bytes().for_each(|byte| found(Found::Piece(bytes[usize::from(byte)])));
                }
                _ if is_unknown => _ = unknown_from.get_or_insert(at),
                _ => found(Found::Piece(id)),
            }
            at += piece.len();
        }
        if let Some(from) = unknown_from {
            found(Found::Unknown(&text[from..]));
        }
        Ok(())
    }
}
