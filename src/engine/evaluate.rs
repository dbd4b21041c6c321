//! Evaluation of given tokens: the outputs of rows of texts, several texts together.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::adapters::salted;
use super::blocks::RequestCache;
use super::core::Engine;
use super::kept::KeptCache;
use super::pending::{PendingRows, SharedRows};
use super::queue::{Caller, Interrupt, Ticket};
use rsgen_core::{AdapterWeights, Error, ErrorKind, Result, RowOutputs, SeqId, TokenId, memory, message};
use rsgen_generation::search::ModelRole;
use rsgen_generation::{LayerStates, Source, SourceStates};
use rsgen_kernels::Work;
use rsgen_model::{ForwardOutput, Stage};

/// The most tokens handed in at a time, with logits and without. Bounds the memory for outputs.
const CHUNK: usize = 128;
const CHUNK_WITHOUT_LOGITS: usize = 1024;

/// The most texts that wait for others at a time.
const MOST_WAITING: usize = 256;

/// The sequence of a text.
const SEQUENCE: SeqId = SeqId(0);

/// Tokens to evaluate, and the source that they follow from in a model with an encoder.
#[derive(Debug, Clone)]
pub struct EvaluatedText {
    /// The tokens; in a model with an encoder from the decoder's start token on.
    pub token_ids: Vec<TokenId>,
    /// The source; `None` in a model without an encoder.
    pub source: Option<Arc<Source>>,
    /// The kept cache that it continues: the text begins with its tokens.
    pub kept: Option<KeptCache>,
    /// The adapters that its rows are computed with.
    pub adapters: AdapterWeights,
    /// Cached blocks are shared only with texts and requests of the same salt.
    pub cache_salt: Option<Arc<str>>,
}

impl EvaluatedText {
    fn source_len(&self) -> usize {
        self.source.as_ref().map_or(0, |source| source.len())
    }

    /// How many of its first tokens a kept cache holds.
    pub(super) fn kept_len(&self) -> usize {
        self.kept.as_ref().map_or(0, KeptCache::len)
    }
}

impl From<Vec<TokenId>> for EvaluatedText {
    fn from(token_ids: Vec<TokenId>) -> Self {
        Self { token_ids, source: None, kept: None, adapters: AdapterWeights::default(), cache_salt: None }
    }
}

/// What is evaluated of a text.
pub(super) struct Evaluated {
    pub(super) text: EvaluatedText,
    /// The rows whose outputs are wanted. Those before are computed for their keys and values, unless the cache has
    /// these; those after are not computed.
    pub(super) wanted: Range<usize>,
    /// Whether it shares blocks with other texts.
    pub(super) is_shared: bool,
    /// The text that it waits for.
    pub(super) follows: Option<Follows>,
    /// The outputs of the encoder for each token of the source.
    pub(super) source_outputs: RowOutputs,
}

/// An earlier text that computes the first rows of another one, which adopts them from the cache.
#[derive(Clone, Copy)]
pub(super) struct Follows {
    /// Its index.
    pub(super) index: usize,
    /// How many of its rows must be computed.
    pub(super) rows: usize,
}

/// The outputs of a part of a text.
pub(super) struct TextOutputs<'a> {
    /// The index of the text.
    pub(super) index: usize,
    /// The row where the part begins.
    pub(super) first: usize,
    pub(super) rows: &'a ForwardOutput,
    /// What the encoder computed for the source, if that is wanted.
    pub(super) source: Option<Arc<SourceStates>>,
}

/// A text under evaluation, with its results so far.
struct Evaluation<T> {
    // Dropped first: it takes the rows out of the queue.
    ticket: Option<Ticket>,
    token_ids: Vec<TokenId>,
    rows: SharedRows,
    has_source: bool,
    follows: Option<Follows>,
    /// See [`Evaluated::wanted`].
    wanted: Range<usize>,
    /// The tokens that are computed, and those that have been handed in.
    computed: usize,
    handed_in: usize,
    value: T,
}

impl Engine {
    /// Appends the logits after each token, `[token_ids.len(), vocab_size]`, to `out`.
    ///
    /// # Errors
    /// When the tokens do not fit the vocabulary, the context or the cache, or when interrupted; `Numerical`
    /// when logits are NaN or infinity.
    pub fn logits(
        &self,
        token_ids: &[TokenId],
        interrupted: &mut Interrupt<'_>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let text = EvaluatedText::from(token_ids.to_vec());
        self.logits_and_states(&text, RowOutputs::NONE, interrupted, out).map(|_| ())
    }

    /// [`Engine::logits`], and what the layers compute for each token: the hidden states and attention
    /// weights that `wanted` names. Its hidden states are those of all layers or of none.
    ///
    /// # Errors
    /// As for [`Engine::logits`].
    pub fn logits_and_states(
        &self,
        text: &EvaluatedText,
        wanted: RowOutputs,
        interrupted: &mut Interrupt<'_>,
        out: &mut Vec<f32>,
    ) -> Result<LayerStates> {
        let vocab_size = self.model().vocab_size();
        let len = text.token_ids.len();
        memory::reserve(out, len.saturating_mul(vocab_size), "logits")?;
        let mut states = LayerStates::of_text(self.model().layer_shape(), len);
        let take = |(): &mut (), outputs: TextOutputs<'_>| {
            let rows = outputs.rows;
            for (offset, row) in rows.logits.chunks_exact(vocab_size).enumerate() {
                if let Some(&bad) = row.iter().find(|logit| logit.is_nan() || **logit == f32::INFINITY) {
                    return Err(not_finite(outputs.first + offset, bad));
                }
            }
            out.extend_from_slice(&rows.logits);
            memory::extend(&mut states.hidden_states, &rows.hidden_states, "hidden states")?;
            memory::extend(&mut states.attentions, &rows.attentions, "attention weights")
        };
        let outputs = wanted.and(RowOutputs::LOGITS);
        self.check_text(text, len)?;
        let text = Evaluated {
            text: text.clone(),
            wanted: 0..len,
            is_shared: false,
            follows: None,
            source_outputs: RowOutputs::NONE,
        };
        self.evaluate(std::iter::once(Ok(text)), outputs, interrupted, take, &mut |_, done| done)?;
        Ok(states)
    }

    /// Computes `outputs` of texts, several of them together. `take` receives the outputs of a part of a text, and
    /// adds to the result of the text; `done` receives the results in order.
    pub(super) fn evaluate<T: Default>(
        &self,
        mut texts: impl Iterator<Item = Result<Evaluated>>,
        outputs: RowOutputs,
        interrupted: &mut Interrupt<'_>,
        mut take: impl FnMut(&mut T, TextOutputs<'_>) -> Result<()>,
        done: &mut dyn FnMut(usize, Result<T>) -> Result<()>,
    ) -> Result<()> {
        self.check_process()?;
        let (caller, mut timing) = (self.caller(), self.timing());
        let mut open: VecDeque<Result<Evaluation<T>>> = VecDeque::new();
        let chunk = if outputs.logits { CHUNK } else { CHUNK_WITHOUT_LOGITS };
        let mut index = 0;
        loop {
            timing.start();
            // The first text goes on whatever the others wait for.
            let (mut budget, mut waiting, mut place) = (chunk, 0, 0);
            while place < open.len() || budget > 0 && waiting < MOST_WAITING {
                if place == open.len() {
                    let Some(text) = texts.next() else { break };
                    let opened = text.and_then(|text| self.open_text(text));
                    if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::Cancelled) {
                        return Err(Error::cancelled());
                    }
                    open.push_back(opened);
                }
                let waits = open[place].as_ref().is_ok_and(|evaluation| evaluation.waits(&open, index));
                waiting += usize::from(waits);
                if let Ok(evaluation) = &mut open[place]
                    && !waits
                {
                    let budget_of = if place == 0 { chunk } else { budget };
                    budget = budget.saturating_sub(evaluation.hand_in(&caller, budget_of, outputs));
                }
                place += 1;
            }
            if open.is_empty() {
                break;
            }
            timing.lap(Stage::Prepare, Work::default);
            if open.iter().flatten().any(|evaluation| evaluation.ticket.is_some()) {
                self.wait(&caller, &mut timing, interrupted)?;
            }
            for (place, evaluation) in open.iter_mut().enumerate() {
                if let Ok(open) = evaluation
                    && let Err(error) = open.advance(index + place, &mut take)
                {
                    *evaluation = Err(error);
                }
            }
            timing.lap(Stage::Search, Work::default);
            while let Some(first) = open.pop_front() {
                match first {
                    Ok(evaluation) if evaluation.computed < evaluation.wanted.end => {
                        open.push_front(Ok(evaluation));
                        break;
                    }
                    ended => done(index, ended.map(|evaluation| evaluation.value))?,
                }
                index += 1;
            }
        }
        self.report(&timing);
        Ok(())
    }

    /// Refuses ids outside of the model's vocabulary.
    ///
    /// # Errors
    /// `Input` that names the first of them.
    pub fn check_token_ids(&self, token_ids: &[TokenId]) -> Result<()> {
        Self::check_ids_below(self.model().vocab_size(), token_ids)
    }

    /// Refuses ids outside of a vocabulary of this size.
    ///
    /// # Errors
    /// `Input` that names the first of them.
    pub(crate) fn check_ids_below(vocab_size: usize, token_ids: &[TokenId]) -> Result<()> {
        match token_ids.iter().position(|token| token.index() >= vocab_size) {
            None => Ok(()),
            Some(position) => Err(Error::input(format!(
                "the ids must be in the model's vocabulary, 0 to {}, got {} at position {position}; was the text encoded by \
                 another tokenizer?",
                vocab_size - 1,
                token_ids[position]
            ))),
        }
    }

    /// Checks that a text can be evaluated, and its first `rows` be in the cache.
    ///
    /// # Errors
    /// `Input` for a token outside of the vocabulary; `Capacity` when the cache can never have room.
    pub(super) fn check_text(&self, text: &EvaluatedText, rows: usize) -> Result<()> {
        self.check_token_ids(&text.token_ids)?;
        RequestCache::of_text(self.slots(), rows, text.source_len()).map(|_| ())
    }

    fn open_text<T: Default>(&self, evaluated: Evaluated) -> Result<Evaluation<T>> {
        let Evaluated { text, wanted, is_shared, follows, source_outputs } = evaluated;
        let cache = RequestCache::of_text(self.slots(), wanted.end, text.source_len())?;
        let EvaluatedText { token_ids, source, kept, adapters, cache_salt } = text;
        let has_source = source.is_some();
        // Targets of one source share it.
        let is_shared = is_shared || kept.is_some() || has_source && self.prefix_caching;
        let salt = kept.as_ref().map_or_else(|| salted(&adapters, cache_salt), |kept| kept.salt().cloned());
        let cache = if is_shared { cache.shared(salt) } else { cache };
        let rows = PendingRows::new(cache, self.next_age(), None).of_text(token_ids.len());
        let adapters = self.adapters().get(&adapters)?;
        let rows = rows.with_sources(source, source_outputs).with_adapters(adapters);
        Ok(Evaluation {
            ticket: None,
            token_ids,
            rows: self.admit(rows),
            has_source,
            follows,
            wanted,
            computed: 0,
            handed_in: 0,
            value: T::default(),
        })
    }
}

impl<T> Evaluation<T> {
    /// Whether an open text computes rows that this one is to adopt. `first` is the index of the first open one.
    fn waits(&self, open: &VecDeque<Result<Self>>, first: usize) -> bool {
        let Some(Follows { index, rows }) = self.follows else { return false };
        let followed = index.checked_sub(first).and_then(|place| open[place].as_ref().ok());
        followed.is_some_and(|followed| followed.computed < rows)
    }

    /// Hands in its next tokens, at most `budget` of them with outputs, unless earlier ones still wait. Returns how
    /// many outputs wait now.
    fn hand_in(&mut self, caller: &Caller, budget: usize, outputs: RowOutputs) -> usize {
        let Self { ticket, token_ids, rows, has_source, wanted, computed, handed_in, .. } = self;
        let first = wanted.start.max(*computed);
        if ticket.is_none() && budget > 0 && *computed < wanted.end {
            *handed_in = wanted.end.min(first + budget);
            rows.lock().begin(ForwardOutput::default(), |inputs| {
                if *computed == 0 {
                    inputs.create_for(ModelRole::Target, SEQUENCE, has_source.then_some(0));
                }
                inputs.prompt(SEQUENCE, &token_ids[*computed..first], RowOutputs::NONE, RowOutputs::NONE);
                inputs.prompt(SEQUENCE, &token_ids[first..*handed_in], outputs, outputs);
            });
            *ticket = Some(caller.hand_in(rows));
        }
        handed_in.saturating_sub(first)
    }

    /// Hands the outputs over to `take` if they are there.
    fn advance(
        &mut self,
        index: usize,
        take: &mut impl FnMut(&mut T, TextOutputs<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(computed) = self.ticket.as_ref().and_then(Ticket::result) else { return Ok(()) };
        self.ticket = None;
        computed?;
        // Not reused for the next part: it would be a second copy of the largest list.
        let (rows, source) = {
            let mut rows = self.rows.lock();
            (rows.take_results(), rows.sources.states().pop())
        };
        let first = self.wanted.start.max(self.computed);
        take(&mut self.value, TextOutputs { index, first, rows: &rows, source })?;
        self.computed = self.handed_in;
        Ok(())
    }
}

#[cold]
pub(super) fn not_finite(position: usize, found: f32) -> Error {
    Error::numerical(message!(
        "the model's logits after token {position} hold NaN or infinity (found {found}); its weights may be damaged, or "
        {compute_dtype} " too narrow for them"
    ))
}
