//! The input of a stack of layers: embeddings of tokens, their factors, positions and norm.

use std::sync::Arc;

use super::batch::{Row, RowInput};
use super::context::sized;
use super::layers::{Embedding, Linear, Norm, Positions};
use super::loader::{Loader, Part};
use super::spec::{DecoderSpec, Scalings};
use crate::weights::ModelConfig;
use rsgen_core::error::{Error, Result};
use rsgen_core::types::TokenId;
use rsgen_kernels::quant::RowOrder;
use rsgen_kernels::{PackedRows, Workers, norm_in_place};

/// Rows whose embeddings a thread looks up at a time.
const EMBEDDING_CHUNK_ROWS: usize = 16;

/// The input of a stack of layers.
pub(super) struct Input {
    embedding: Arc<Embedding>,
    /// From the embedding's width to that of the layers.
    projection: Option<Linear>,
    scalings: Scalings,
    positions: Option<Positions>,
    norm: Option<Norm>,
    vocab_size: usize,
    hidden_size: usize,
}

impl Input {
    /// Loads what there is beside the embedding; `model` is the scope of the stack.
    pub(super) fn load(
        model: &Loader<'_>,
        config: &ModelConfig,
        spec: &DecoderSpec,
        embedding: Arc<Embedding>,
    ) -> Result<Self> {
        let hidden_size = config.hidden_size;
        let positions = spec.positions.map(|positions| Positions::load(model, positions, config));
        let projection = spec.names.embedding_width.map(|width| {
            let part = [Part::new("project_in", hidden_size)];
            Linear::load(model, &part, RowOrder::Stacked, width, false)
        });
        let norm = spec.embedding_norm.map(|name| Norm::load(model, name, hidden_size, spec.norm));
        Ok(Self {
            embedding,
            projection: projection.transpose()?,
            scalings: spec.scalings,
            positions: positions.transpose()?,
            norm: norm.transpose()?,
            vocab_size: config.vocab_size,
            hidden_size,
        })
    }

    /// Computes the input of rows, `[num_rows, hidden_size]`. `places` are their positions, where those are others
    /// than in the cache; `head` is the matrix whose rows a tied embedding has.
    pub(super) fn of_rows(
        &self,
        workers: &Workers,
        rows: &[Row],
        places: Option<&[usize]>,
        embeddings: &[f32],
        head: &Linear,
        hidden: &mut Vec<f32>,
    ) -> Result<()> {
        let (width, num_positions) = (self.hidden_size, self.num_positions());
        let place = |index: usize| places.map_or(rows[index].position, |places| places[index]);
        for (index, row) in rows.iter().enumerate() {
            match row.input {
                RowInput::Token(token) if token.index() >= self.vocab_size => {
                    let message = format!("token {token} of a vocabulary of {}", self.vocab_size);
                    return Err(Error::internal(message));
                }
                RowInput::Embedding(index) if (index + 1) * self.embedding_size() > embeddings.len() => {
                    return Err(Error::internal(format!("the batch has no embedding {index}")));
                }
                _ => {}
            }
            if place(index) >= num_positions {
                let message = format!("position {} of a model with {num_positions}", place(index));
                return Err(Error::internal(message));
            }
        }
        let hidden = sized(hidden, rows.len() * width);
        if let Some(projection) = &self.projection {
            let narrow = |row: &Row, out: &mut [f32]| match row.input {
                RowInput::Token(token) => self.embedding.embed(token, head, out),
                RowInput::Embedding(index) => {
                    out.copy_from_slice(&embeddings[index * out.len()..][..out.len()]);
                }
            };
            project(projection, workers, rows, narrow, hidden);
        }
        workers.for_each_chunk(hidden, EMBEDDING_CHUNK_ROWS * width, |chunk, hidden| {
            let first = chunk * EMBEDDING_CHUNK_ROWS;
            for (index, out) in (first..).zip(hidden.chunks_exact_mut(width)) {
                let input = rows[index].input;
                match input {
                    RowInput::Token(token) => {
                        if self.projection.is_none() {
                            self.embedding.embed(token, head, out);
                        }
                        scale(out, self.scalings.embedding);
                    }
                    RowInput::Embedding(index) if self.projection.is_none() => {
                        out.copy_from_slice(&embeddings[index * width..][..width]);
                    }
                    RowInput::Embedding(_) => {}
                }
                scale(out, self.scalings.input);
                if let Some(positions) = &self.positions {
                    positions.add(place(index), input, out);
                }
                if let Some(norm) = &self.norm {
                    norm_in_place(workers.isa(), out, norm.kernel());
                }
            }
        });
        Ok(())
    }

    /// Writes the embeddings of tokens to `out`, `[tokens, embedding_size]`, scaled and without positions.
    pub(super) fn of_tokens(&self, tokens: &[TokenId], head: &Linear, out: &mut [f32]) {
        for (&token, out) in tokens.iter().zip(out.chunks_exact_mut(self.embedding_size())) {
            self.embedding.embed(token, head, out);
            scale(out, self.scalings.embedding);
        }
    }

    /// The numbers of an embedding.
    pub(super) fn embedding_size(&self) -> usize {
        self.projection.as_ref().map_or(self.hidden_size, Linear::num_inputs)
    }

    /// The positions that there are; `usize::MAX` without embeddings of them, or without an end.
    pub(super) fn num_positions(&self) -> usize {
        self.positions.as_ref().map_or(usize::MAX, Positions::num_positions)
    }

    /// Its embeddings of positions.
    pub(super) fn positions(&self) -> Option<&Positions> {
        self.positions.as_ref()
    }

    /// The tokens that it has.
    pub(super) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The memory that it takes beyond its embedding of tokens, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.positions.as_ref().map_or(0, Positions::bytes)
    }

    /// Its embedding of tokens.
    pub(super) fn embedding(&self) -> &Arc<Embedding> {
        &self.embedding
    }
}

/// Projects the embeddings of rows, which `narrow` writes, to the width of the layers.
fn project(
    projection: &Linear,
    workers: &Workers,
    rows: &[Row],
    narrow: impl Fn(&Row, &mut [f32]),
    out: &mut [f32],
) {
    let width = projection.num_inputs();
    let mut embeddings = vec![0.0; rows.len() * width];
    for (row, embedding) in rows.iter().zip(embeddings.chunks_exact_mut(width)) {
        narrow(row, embedding);
    }
    projection.forward(workers, &embeddings[..], &mut PackedRows::default(), false, out);
}

/// Multiplies with a factor that is 1 in most models.
pub(super) fn scale(values: &mut [f32], factor: f32) {
    if factor != 1.0 {
        for value in values {
            *value *= factor;
        }
    }
}
