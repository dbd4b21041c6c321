//! The batch of one pass: requests add their rows to it, and later read their results.

use std::sync::Arc;

use super::pass_logits::LogitsPart;
use super::sequence::RowPosition;
use rsgen_core::{Result, RowOutputs, SeqId, TokenId, memory};
use rsgen_generation::Source;
use rsgen_generation::search::{ModelRole, RowInput as WantedInput, WantedRow};
use rsgen_model::cache::{BLOCK_TOKENS, BlockCopy, BlockShift, BlockTable};
use rsgen_model::{CausalLm, ForwardOutput, Row, RowInput, SourceRow, WeightedAdapters};

/// A copy or a shift that the KV store makes before a pass.
#[derive(Clone)]
pub(super) enum CacheCopy {
    Block(BlockCopy),
    Shift(BlockShift),
}

/// Collects the rows of one pass.
#[derive(Default)]
pub(super) struct BatchBuilder {
    pub(super) rows: Vec<Row>,
    /// The rows of an encoder; `rows` are none then.
    pub(super) source_rows: Vec<SourceRow>,
    pub(super) copies: Vec<CacheCopy>,
    /// The inputs of rows that are given as embeddings, `[num_embeddings, embedding_size]`.
    pub(super) embeddings: Vec<f32>,
    /// The adapters of the rows.
    pub(super) adapters: Vec<WeightedAdapters>,
    /// Whether one of the rows belongs to a prompt.
    pub(super) has_prompt: bool,
    /// The tables of the rows' sequences, or of the sources that are encoded, as they are for this pass.
    tables: Tables,
    /// The tables of the sources that rows see.
    sources: Tables,
    /// The texts of prompts that this pass computes.
    texts: Vec<PromptText>,
    /// What others find the sources by that this pass encodes.
    encoded: Vec<Arc<str>>,
}

impl BatchBuilder {
    /// Empties the lists and keeps their memory.
    pub(super) fn clear(&mut self) {
        let Self {
            rows,
            source_rows,
            copies,
            embeddings,
            adapters,
            has_prompt,
            tables,
            sources,
            texts,
            encoded,
        } = self;
        adapters.clear();
        encoded.clear();
        rows.clear();
        source_rows.clear();
        copies.clear();
        embeddings.clear();
        *has_prompt = false;
        tables.len = 0;
        sources.len = 0;
        texts.clear();
    }

    /// The number of rows, of either kind.
    pub(super) fn num_rows(&self) -> usize {
        self.rows.len() + self.source_rows.len()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.num_rows() == 0
    }

    /// Registers the text of a prompt, of which this pass computes the tokens from `first` on, and whether the prompt
    /// continues after it.
    pub(super) fn push_text(
        &mut self,
        salt: Option<&Arc<str>>,
        tokens: Vec<TokenId>,
        first: usize,
        goes_on: bool,
    ) {
        self.texts.push(PromptText { salt: salt.cloned(), tokens, first, goes_on });
    }

    /// Whether the pass computes a continuation of the first `len` tokens of `text`: at least one block, or a
    /// chunk of a prompt that agrees with `text` so far. A request that waits for the next pass can adopt it. What
    /// the cache has already is not computed, and nobody waits for it.
    pub(super) fn computes(&self, salt: Option<&Arc<str>>, text: &[TokenId], len: usize) -> bool {
        self.texts.iter().filter(|other| other.salt.as_ref() == salt).any(|other| {
            let common = text.iter().zip(&other.tokens).take_while(|(a, b)| a == b).count();
            let len = len.max(other.first);
            common >= len + BLOCK_TOKENS || (common > len && common == other.tokens.len() && other.goes_on)
        })
    }

    /// Adds the table of a sequence; in the order of a request's `used` sequences.
    pub(super) fn push_table(&mut self, table: &BlockTable) {
        self.tables.push(table);
    }

    /// Adds the table of a source that rows see; in the order of a request's used ones.
    pub(super) fn push_source_table(&mut self, table: Option<(&BlockTable, usize)>) {
        self.sources.push_part(table);
    }

    /// Whether the pass encodes that source.
    pub(super) fn encodes(&self, salt: &Arc<str>) -> bool {
        self.encoded.contains(salt)
    }

    /// Adds all rows of a source that a model encodes into this table, with the outputs that each is to have. Others
    /// find it by the salt.
    pub(super) fn push_source(
        &mut self,
        source: &Source,
        model: &dyn CausalLm,
        table: Option<(&BlockTable, usize)>,
        (salt, outputs): (Option<&Arc<str>>, RowOutputs),
    ) {
        self.encoded.extend(salt.cloned());
        let slots = match model.encoder() {
            Some(encoder) if !source.has_embeddings() => encoder.slots(source.input_ids()),
            _ => Vec::new(),
        };
        for index in 0..source.len() {
            let (input, place) = (self.input(&source.input(index)), source.slot(index));
            let slot = slots.get(place).copied().unwrap_or(place);
            let row = SourceRow { input, slot, source: self.tables.len, outputs };
            self.source_rows.push(row);
        }
        self.tables.push_part(table);
    }

    /// The number of sequences in the pass.
    pub(super) fn num_sequences(&self) -> usize {
        self.tables.len
    }

    /// Whether no row belongs to a prompt or exits early.
    pub(super) fn is_whole_step(&self) -> bool {
        !self.has_prompt && self.rows.iter().all(|row| row.last_layer.is_none())
    }

    /// The tables of the rows' sequences.
    pub(super) fn tables(&self) -> &[BlockTable] {
        self.tables.used()
    }

    /// The tables of the sources that rows see.
    pub(super) fn sources(&self) -> &[BlockTable] {
        self.sources.used()
    }

    /// Adds a row of a request with adapters. `used` are the sequences of its rows so far, whose tables follow those
    /// of other requests. The sequence sees the source of a prompt; `used_sources` are those so far.
    pub(super) fn push_row(
        &mut self,
        wanted: &WantedRow,
        position: RowPosition,
        used: &mut Vec<SeqId>,
        (prompt, used_sources): (Option<usize>, &mut Vec<usize>),
        adapters: Option<&WeightedAdapters>,
    ) {
        let known = used.iter().rposition(|&seq| seq == wanted.seq);
        let table = self.tables.len + known.unwrap_or(used.len());
        if known.is_none() {
            used.push(wanted.seq);
        }
        let source = prompt.map_or(0, |prompt| {
            let known = used_sources.iter().rposition(|&used| used == prompt);
            if known.is_none() {
                used_sources.push(prompt);
            }
            self.sources.len + known.unwrap_or(used_sources.len() - 1)
        });
        let input = self.input(&wanted.input);
        self.has_prompt |= wanted.is_prompt;
        let (RowPosition { position, rope_seq_len }, last_layer) = (position, wanted.last_layer);
        let outputs = wanted.outputs;
        // The model of drafts has none.
        let adapters = adapters.filter(|_| wanted.model == ModelRole::Target);
        let adapters = adapters.map(|adapters| self.adapters(adapters));
        self.rows.push(Row { input, table, source, position, rope_seq_len, adapters, last_layer, outputs });
    }

    /// The index of a row's adapters.
    fn adapters(&mut self, adapters: &WeightedAdapters) -> usize {
        let known = self.adapters.iter().position(|known| known == adapters);
        known.unwrap_or_else(|| {
            self.adapters.push(adapters.clone());
            self.adapters.len() - 1
        })
    }

    /// Adds the input of a row.
    fn input(&mut self, wanted: &WantedInput) -> RowInput {
        match wanted {
            WantedInput::Token(token) => RowInput::Token(*token),
            WantedInput::Embedding(embedding) => {
                let index = self.embeddings.len() / embedding.len().max(1);
                self.embeddings.extend_from_slice(embedding);
                RowInput::Embedding(index)
            }
        }
    }
}

/// Tables, whose memory is kept.
#[derive(Default)]
struct Tables {
    all: Vec<BlockTable>,
    /// How many of them are in use.
    len: usize,
}

impl Tables {
    fn push(&mut self, table: &BlockTable) {
        if self.len == self.all.len() {
            self.all.push(BlockTable::default());
        }
        self.all[self.len].clone_from_sequence(table);
        self.len += 1;
    }

    /// Adds the beginning of a table.
    fn push_part(&mut self, part: Option<(&BlockTable, usize)>) {
        let none = BlockTable::default();
        let (table, len) = part.unwrap_or((&none, 0));
        self.push(table);
        self.all[self.len - 1].cut(len);
    }

    fn used(&self) -> &[BlockTable] {
        &self.all[..self.len]
    }
}

/// The text of a prompt up to the end of a pass.
struct PromptText {
    salt: Option<Arc<str>>,
    tokens: Vec<TokenId>,
    /// The first that the pass computes; those before are in the cache.
    first: usize,
    goes_on: bool,
}

/// The results of a pass, which its requests take in the order of their rows.
pub(super) struct PassOutputs<'a> {
    out: &'a mut ForwardOutput,
    /// The logits, if requests take parts of them.
    shared: Option<Arc<Vec<f32>>>,
    /// Whether one request takes all of them.
    is_one: bool,
    /// How many logits, hidden states, logits of layers and attention weights have been taken.
    taken: [usize; 4],
    /// The rows of the pass, how many of them have been taken, and the sources that they see.
    rows: &'a [Row],
    num_rows: usize,
    sources: &'a [BlockTable],
    /// How many weights over sources have been taken.
    cross: usize,
    model: &'a dyn CausalLm,
    /// The attention weights of a row for each token of its context.
    weights_each: usize,
}

impl<'a> PassOutputs<'a> {
    /// The results of a model.
    pub(super) fn new(
        out: &'a mut ForwardOutput,
        model: &'a dyn CausalLm,
        builder: &'a BatchBuilder,
        is_one: bool,
    ) -> Self {
        let (rows, sources) = (&builder.rows[..], builder.sources());
        let weights_each = if out.attentions.is_empty() { 0 } else { model.layer_shape().attention_len(0) };
        Self {
            out,
            shared: None,
            is_one,
            taken: [0; 4],
            rows,
            num_rows: 0,
            sources,
            cross: 0,
            model,
            weights_each,
        }
    }

    /// Of a pass whose logits are shared: the results hold none themselves.
    pub(super) fn sharing(self, shared: Option<Arc<Vec<f32>>>) -> Self {
        Self { shared, ..self }
    }

    /// Appends the results of the next rows, at these positions, to `results`; of a pass for one request it
    /// exchanges the lists. With `takes_part` it returns a part of the logits instead, if they are shared.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for them.
    pub(super) fn take(
        &mut self,
        rows: &[WantedRow],
        positions: &[RowPosition],
        results: &mut ForwardOutput,
        takes_part: bool,
    ) -> Result<Option<LogitsPart>> {
        if self.is_one && results.is_empty() {
            std::mem::swap(results, self.out);
            return Ok(None);
        }
        let ForwardOutput { logits, hidden_states, layer_logits, attentions, cross_attentions } = results;
        let [first, hidden, layers, weights] = &mut self.taken;
        let next = |taken: &mut usize, wanted: &dyn Fn(RowOutputs) -> usize| {
            let start = *taken;
            *taken += rows.iter().map(|row| wanted(row.outputs)).sum::<usize>();
            start..*taken
        };
        let (model, vocab_size) = (self.model, self.model.vocab_size());
        let first = next(first, &|outputs| usize::from(outputs.logits) * vocab_size);
        let hidden = next(hidden, &|outputs| model.hidden_len(outputs.hidden_states));
        let layers = next(layers, &|outputs| outputs.layer_logits.len() * vocab_size);
        let part = match &self.shared {
            Some(shared) if takes_part => Some(LogitsPart::new(shared, first)),
            shared => {
                let all = shared.as_deref().unwrap_or(&self.out.logits);
                memory::extend(logits, &all[first], "logits")?;
                None
            }
        };
        memory::extend(hidden_states, &self.out.hidden_states[hidden], "hidden states")?;
        memory::extend(layer_logits, &self.out.layer_logits[layers], "logits")?;
        let requested = rows.iter().zip(positions).filter(|(row, _)| row.outputs.attentions);
        let count = requested.map(|(_, at)| (at.position + 1) * self.weights_each).sum::<usize>();
        *weights += count;
        let start = self.cross;
        if !self.out.cross_attentions.is_empty() {
            let own = self.rows[self.num_rows..].iter().take(rows.len());
            let seen = own.filter(|row| row.outputs.attentions).map(|row| self.sources[row.source].len());
            self.cross += seen.sum::<usize>() * self.weights_each;
        }
        self.num_rows += rows.len();
        memory::extend(cross_attentions, &self.out.cross_attentions[start..self.cross], "attention weights")?;
        memory::extend(attentions, &self.out.attentions[*weights - count..*weights], "attention weights")?;
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_what_the_pass_computes_and_not_for_what_the_cache_has() {
        let tokens = |len: u32| (0..len).map(TokenId).collect::<Vec<_>>();
        let (context, mut other) = (tokens(100), tokens(100));
        other.extend([TokenId(7); 5]);
        let computes = |first: usize, goes_on: bool, text: &[TokenId], len: usize| {
            let mut builder = BatchBuilder::default();
            builder.push_text(None, [&context[..], &[TokenId(9)]].concat(), first, goes_on);
            builder.computes(None, text, len)
        };
        assert!(computes(0, false, &other, 0), "the pass computes the context");
        assert!(computes(64, false, &other, 0), "it computes a block of the context");
        assert!(!computes(100, false, &other, 0), "it continues a context that is cached");
        assert!(!computes(96, false, &other, 0), "it computes less than a block of it");
        assert!(
            computes(96, true, &[&context[..], &[TokenId(9); 2]].concat(), 0),
            "it agrees so far, and goes on"
        );
        assert!(!computes(0, false, &other, 96), "the request has nearly all of it");
    }
}
