//! A scripted model, and a loop that runs a search on it and checks the search's contract.
//!
//! For tests of searches, custom processors and criteria: no weights, no cache, no engine.

use std::collections::{BTreeMap, BTreeSet};

use rsgen_core::{Error, Result, RowOutputs, SeqId, TokenId};

use super::output::SearchOutput;
use super::search::{
    ModelRole, RowInput, Search, SearchInputs, SearchResults, SearchStep, SequenceOp, StepDetails,
    TokenEvent, WantedRow,
};
use super::step_cost::{PassSeconds, StepCost};
use super::vocabulary::Vocabulary;

/// The steps after which a search that does not end is an error.
const MAX_STEPS: usize = 100_000;

/// From the tokens of a sequence to the logits after them, `[vocab_size]`.
type Script = Box<dyn FnMut(&[TokenId]) -> Vec<f32> + Send>;

/// From the rows of a step to the seconds that it takes.
type Clock = Box<dyn FnMut(&SearchInputs) -> f64 + Send>;

/// A model whose logits are a function of the tokens of a sequence.
pub(crate) struct ScriptedModel {
    vocab_size: usize,
    logits: Script,
    /// The logits of the draft model, and of the first layers of this one.
    draft: Option<Script>,
    /// The most tokens of a sequence of the draft model.
    pub(crate) draft_context_len: usize,
    clock: Option<Clock>,
    seconds: PassSeconds,
    sequences: BTreeMap<SeqId, Vec<TokenId>>,
    models: BTreeMap<SeqId, ModelRole>,
    /// The requests of each step.
    pub(crate) steps: Vec<SearchInputs>,
    /// In each step, the sequences of the model that computes it that were neither extended nor copied:
    /// wasted memory, unless the search uses them later.
    pub(crate) idle: Vec<Vec<SeqId>>,
}

impl ScriptedModel {
    /// A model that gives `logits(tokens)`, `[vocab_size]`, after the tokens of a sequence.
    pub(crate) fn new(
        vocab_size: usize,
        logits: impl FnMut(&[TokenId]) -> Vec<f32> + Send + 'static,
    ) -> Self {
        let logits = Box::new(logits);
        Self {
            vocab_size,
            logits,
            draft: None,
            draft_context_len: usize::MAX,
            clock: None,
            seconds: PassSeconds::default(),
            sequences: BTreeMap::new(),
            models: BTreeMap::new(),
            steps: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// Adds a draft model with other logits. The first layers of this model have the same.
    #[must_use]
    pub(crate) fn with_draft(mut self, logits: impl FnMut(&[TokenId]) -> Vec<f32> + Send + 'static) -> Self {
        self.draft = Some(Box::new(logits));
        self
    }

    /// Adds a clock: `seconds` returns the time that a step takes.
    #[must_use]
    pub(crate) fn with_clock(mut self, seconds: impl FnMut(&SearchInputs) -> f64 + Send + 'static) -> Self {
        self.clock = Some(Box::new(seconds));
        self
    }

    /// A bigram model: its logits are the last token's row of `table`, `[vocab_size, vocab_size]`.
    ///
    /// # Panics
    /// When it is run and the table is not square.
    pub(crate) fn bigram(table: Vec<Vec<f32>>) -> Self {
        Self::new(table.len(), move |tokens| table[tokens[tokens.len() - 1].index()].clone())
    }

    /// The logits after these tokens, `[vocab_size]`.
    pub(crate) fn logits_after(&mut self, tokens: &[TokenId]) -> Vec<f32> {
        (self.logits)(tokens)
    }

    /// The sequences in use and their tokens.
    pub(crate) fn sequences(&self) -> &BTreeMap<SeqId, Vec<TokenId>> {
        &self.sequences
    }

    /// The logits that a step requests, `[rows, vocab_size]`.
    ///
    /// # Errors
    /// When the step breaks the contract of [`Search`].
    pub(crate) fn compute(&mut self, inputs: &SearchInputs) -> Result<Vec<f32>> {
        self.steps.push(inputs.clone());
        let mut used = BTreeSet::new();
        for op in &inputs.ops {
            self.apply(op, &mut used)?;
        }
        let mut computed = Vec::new();
        let model = inputs.rows.first().map_or(ModelRole::Target, |row| row.model);
        if inputs.rows.iter().any(|row| row.model != model) {
            return Err(broken("a step has rows of two models".to_owned()));
        }
        for row in &inputs.rows {
            self.append(row, &mut computed)?;
            used.insert(row.seq);
        }
        let of_model = self.sequences.keys().filter(|seq| self.models[seq] == model);
        self.idle.push(of_model.filter(|seq| !used.contains(seq)).copied().collect());
        Ok(computed)
    }

    /// What a step costs by the clock; nothing is known without one.
    fn cost(&mut self, inputs: &SearchInputs) -> StepCost {
        let Some(clock) = &mut self.clock else { return StepCost::default() };
        let (waited, rows) = (clock(inputs), &inputs.rows);
        let is_step =
            |row: &WantedRow| row.model == ModelRole::Target && row.last_layer.is_none() && !row.is_prompt;
        if rows.iter().all(is_step) {
            self.seconds.add(rows.len(), waited);
        }
        let sequences = rows.iter().map(|row| row.seq).collect::<BTreeSet<_>>().len();
        StepCost { waited, sequences, seconds: self.seconds }
    }

    fn apply(&mut self, op: &SequenceOp, used: &mut BTreeSet<SeqId>) -> Result<()> {
        match op {
            SequenceOp::Create { seq, model, .. } => {
                if *model == ModelRole::Draft && self.draft.is_none() {
                    return Err(Error::internal("this scripted model has no draft model"));
                }
                self.begin(*seq, *model, Vec::new())
            }
            SequenceOp::Fork { parent, child } => {
                used.insert(*parent);
                let tokens = self.live(*parent)?.clone();
                self.begin(*child, self.models[parent], tokens)
            }
            SequenceOp::Truncate { seq, len } => {
                let tokens = self.live(*seq)?;
                if *len > tokens.len() {
                    return Err(broken(format!("sequence {seq} of {} tokens is cut to {len}", tokens.len())));
                }
                tokens.truncate(*len);
                Ok(())
            }
            SequenceOp::Release { seq } => {
                self.live(*seq)?;
                self.sequences.remove(seq);
                Ok(())
            }
            SequenceOp::Reorder { seqs, parents } => {
                if seqs.len() != parents.len() || seqs.iter().collect::<BTreeSet<_>>().len() != seqs.len() {
                    return Err(broken(format!("sequences {seqs:?} cannot become {parents:?}")));
                }
                let copies: Vec<Vec<TokenId>> =
                    parents.iter().map(|parent| self.live(*parent).cloned()).collect::<Result<_>>()?;
                for (seq, tokens) in seqs.iter().zip(copies) {
                    *self.live(*seq)? = tokens;
                }
                Ok(())
            }
        }
    }

    fn append(&mut self, row: &WantedRow, computed: &mut Vec<f32>) -> Result<()> {
        let RowInput::Token(token) = row.input else {
            return Err(Error::internal("a scripted model takes tokens only"));
        };
        if row.outputs != (RowOutputs { logits: row.outputs.logits, ..RowOutputs::NONE }) {
            return Err(Error::internal("a scripted model gives logits only"));
        }
        if token.index() >= self.vocab_size {
            return Err(broken(format!("token {token} is not in the vocabulary of {}", self.vocab_size)));
        }
        self.live(row.seq)?.push(token);
        if self.models[&row.seq] != row.model {
            return Err(broken(format!("sequence {} belongs to another model", row.seq)));
        }
        let drafts = row.model == ModelRole::Draft || row.last_layer.is_some();
        if drafts && self.sequences[&row.seq].len() > self.draft_context_len {
            return Err(broken(format!("sequence {} exceeds the context of the draft model", row.seq)));
        }
        if row.outputs.logits {
            let script = if drafts { self.draft.as_mut() } else { Some(&mut self.logits) };
            let Some(script) = script else {
                return Err(Error::internal("this scripted model has no draft model"));
            };
            let logits = script(&self.sequences[&row.seq]);
            if logits.len() != self.vocab_size {
                return Err(Error::internal(format!("the script gave {} logits", logits.len())));
            }
            computed.extend(logits);
        }
        Ok(())
    }

    fn begin(&mut self, seq: SeqId, model: ModelRole, tokens: Vec<TokenId>) -> Result<()> {
        self.models.insert(seq, model);
        match self.sequences.insert(seq, tokens) {
            None => Ok(()),
            Some(_) => Err(broken(format!("sequence {seq} is begun twice"))),
        }
    }

    fn live(&mut self, seq: SeqId) -> Result<&mut Vec<TokenId>> {
        self.sequences.get_mut(&seq).ok_or_else(|| broken(format!("sequence {seq} is not in use")))
    }
}

fn broken(what: String) -> Error {
    Error::internal(what).context("a search breaks its contract")
}

/// The events and the output of a search.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// All events, in order.
    pub(crate) events: Vec<TokenEvent>,
    /// The details of each step.
    pub(crate) details: Vec<StepDetails>,
    /// The output.
    pub(crate) output: SearchOutput,
    /// Whether the search ended by itself.
    pub(crate) is_finished: bool,
}

/// Runs a search to its end on a scripted model, as an engine would.
///
/// # Errors
/// The search's own; when it breaks its contract; when it does not end.
pub(crate) fn run(search: Box<dyn Search>, model: &mut ScriptedModel) -> Result<Transcript> {
    match run_steps(search, model, MAX_STEPS)? {
        Transcript { is_finished: false, .. } => Err(broken(format!("no end after {MAX_STEPS} steps"))),
        transcript => Ok(transcript),
    }
}

/// [`run`], but cancels the search after `most` steps.
///
/// # Errors
/// The search's own; when it breaks its contract.
pub(crate) fn run_steps(
    mut search: Box<dyn Search>,
    model: &mut ScriptedModel,
    most: usize,
) -> Result<Transcript> {
    let mut events: Vec<TokenEvent> = Vec::new();
    let (mut inputs, mut step, mut details) = (SearchInputs::new(), SearchStep::default(), Vec::new());
    for _ in 0..most {
        inputs.clear();
        search.wants(&mut inputs);
        if inputs.rows.is_empty() {
            return Err(broken("a step without a row".to_owned()));
        }
        let mut logits = model.compute(&inputs)?;
        step.clear();
        let results = SearchResults::of_logits(&mut logits, model.vocab_size);
        search.advance(results.with_cost(model.cost(&inputs)), &mut step)?;
        for event in &step.events {
            if events.iter().any(|earlier| earlier.row == event.row && earlier.finish.is_some()) {
                return Err(broken(format!("row {} has an event after its end", event.row)));
            }
            events.push(event.clone());
        }
        details.push(step.details.clone());
        if step.finished {
            break;
        }
    }
    // The caller releases the sequences that the search still holds.
    model.sequences.clear();
    let output = search.finish();
    for index in 0..output.rows.len() {
        check_events(index, &output, &events, step.finished)?;
    }
    Ok(Transcript { events, details, output, is_finished: step.finished })
}

/// Checks that the events of a row are its first tokens with their alternatives; all of them, the last one
/// with the reason, when it has ended.
fn check_events(index: usize, output: &SearchOutput, events: &[TokenEvent], is_finished: bool) -> Result<()> {
    let row = &output.rows[index];
    let sequences: Vec<usize> = row.sequences(index).collect();
    let top = |at: usize| {
        let scores = output.sequences.get(*sequences.get(at)?)?;
        scores.top_logprobs.as_ref()?.get(at).map(Vec::as_slice)
    };
    let events: Vec<&TokenEvent> = events.iter().filter(|event| event.row == index).collect();
    let reason = |event: usize| (event + 1 == row.token_ids.len()).then_some(row.finish_reason);
    let equal = events.iter().zip(0..).all(|(event, at)| {
        row.token_ids.get(at) == Some(&event.token)
            && row.logprobs[at].to_bits() == event.logprob.to_bits()
            && event.top_logprobs == top(at).unwrap_or_default()
            && (event.finish == reason(at) || !is_finished && event.finish.is_none())
    });
    if equal && (!is_finished || events.len() == row.token_ids.len()) {
        return Ok(());
    }
    Err(broken(format!("row {index} is {:?}, but its events are {events:?}", row.token_ids)))
}

/// A vocabulary of byte strings. It decodes by joining them, and encodes by taking the longest token that
/// fits.
#[derive(Debug, Clone)]
pub(crate) struct WordVocabulary {
    tokens: Vec<Vec<u8>>,
}

impl WordVocabulary {
    /// Token `i` has the bytes `tokens[i]`.
    pub(crate) fn new(tokens: Vec<Vec<u8>>) -> Self {
        Self { tokens }
    }
}

impl Vocabulary for WordVocabulary {
    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn token(&self, token: TokenId) -> Option<&str> {
        std::str::from_utf8(self.token_bytes(token)?).ok()
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.tokens.get(token.index()).map(Vec::as_slice)
    }

    fn decode(&self, tokens: &[TokenId], _skip_special: bool) -> Result<String> {
        let bytes: Vec<u8> =
            tokens.iter().filter_map(|&token| self.token_bytes(token)).flatten().copied().collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn encode(&self, text: &str, _add_special: bool) -> Result<Vec<TokenId>> {
        let mut rest = text.as_bytes();
        let mut ids = Vec::new();
        while !rest.is_empty() {
            let fits = |token: &&(usize, &Vec<u8>)| !token.1.is_empty() && rest.starts_with(token.1);
            let all: Vec<(usize, &Vec<u8>)> = self.tokens.iter().enumerate().collect();
            let (id, bytes) =
                all.iter().filter(fits).max_by_key(|(_, bytes)| bytes.len()).ok_or_else(|| {
                    Error::input(format!("no token begins {:?}", String::from_utf8_lossy(rest)))
                })?;
            ids.push(TokenId(*id as u32));
            rest = &rest[bytes.len()..];
        }
        Ok(ids)
    }
}

mod of_the_scripted_model {
    use super::*;

    fn model() -> ScriptedModel {
        ScriptedModel::new(3, |tokens| vec![tokens.len() as f32; 3])
    }

    fn inputs(ask: impl FnOnce(&mut SearchInputs)) -> SearchInputs {
        let mut inputs = SearchInputs::new();
        ask(&mut inputs);
        inputs
    }

    const A: SeqId = SeqId(0);
    const B: SeqId = SeqId(1);

    #[test]
    fn operations_come_before_rows_and_in_order() {
        let mut model = model();
        let logits = model
            .compute(&inputs(|ask| {
                ask.prompt(A, &[TokenId(1), TokenId(2)], RowOutputs::NONE, RowOutputs::LOGITS);
                ask.create(A);
            }))
            .unwrap();
        assert_eq!(logits, [2.0; 3]);
        model
            .compute(&inputs(|ask| {
                ask.fork(A, B);
                ask.truncate(A, 1);
                ask.token(A, TokenId(0), RowOutputs::NONE);
            }))
            .unwrap();
        assert_eq!(model.sequences()[&A], [TokenId(1), TokenId(0)]);
        assert_eq!(model.sequences()[&B], [TokenId(1), TokenId(2)]);
        model.compute(&inputs(|ask| ask.reorder(vec![A, B], vec![B, A]))).unwrap();
        assert_eq!(model.sequences()[&B], [TokenId(1), TokenId(0)]);
        assert_eq!(model.idle, [vec![], vec![B], vec![A, B]]);
    }

    #[test]
    fn a_broken_contract_is_an_error() {
        let breaks: [fn(&mut SearchInputs); 9] = [
            |ask| ask.create(A),
            |ask| ask.fork(B, SeqId(2)),
            |ask| ask.fork(A, A),
            |ask| ask.truncate(A, 9),
            |ask| ask.release(B),
            |ask| ask.reorder(vec![A, A], vec![A, A]),
            |ask| ask.token(B, TokenId(0), RowOutputs::LOGITS),
            |ask| ask.token(A, TokenId(3), RowOutputs::LOGITS),
            |ask| {
                ask.release(A);
                ask.token(A, TokenId(0), RowOutputs::LOGITS);
            },
        ];
        for (index, ask) in breaks.into_iter().enumerate() {
            let mut model = model();
            model.compute(&inputs(|ask| ask.create(A))).unwrap();
            let error = model.compute(&inputs(ask)).unwrap_err();
            assert!(error.to_string().starts_with("a search breaks its contract"), "{index}: {error}");
        }
    }

    struct Endless;

    impl Search for Endless {
        fn wants(&mut self, _inputs: &mut SearchInputs) {}

        fn advance(&mut self, _results: SearchResults<'_>, _step: &mut SearchStep) -> Result<()> {
            Ok(())
        }

        fn finish(self: Box<Self>) -> SearchOutput {
            SearchOutput::default()
        }
    }

    #[test]
    fn a_search_that_wants_nothing_and_does_not_end_is_an_error() {
        let error = run(Box::new(Endless), &mut model()).unwrap_err();
        assert!(error.to_string().contains("a step without a row"), "{error}");
    }

    #[test]
    fn the_word_vocabulary_encodes_what_it_decodes() {
        let vocabulary = WordVocabulary::new(vec![b"a".to_vec(), b"ab".to_vec(), b"c".to_vec()]);
        let encoded = vocabulary.encode("abac", false).unwrap();
        assert_eq!(encoded, [TokenId(1), TokenId(0), TokenId(2)]);
        assert_eq!(vocabulary.decode(&encoded, false).unwrap(), "abac");
        assert!(vocabulary.encode("x", false).is_err());
    }
}
