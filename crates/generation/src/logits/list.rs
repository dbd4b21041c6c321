//! The processors of a request as a list: applies them in order, with each row's states and unconditional
//! sequences.

use std::sync::Arc;

use rsgen_core::{Message, Result, ResultExt, TokenId};

use super::watched::note_removed;
use super::{LogitsProcessor, PROCESSORS, ProcessContext, ProcessorStates, ScoreRows};

/// Processors in their order of application.
#[derive(Clone, Default)]
pub struct LogitsProcessorList {
    pub(super) processors: Vec<Arc<dyn LogitsProcessor>>,
    /// How many of the first stand where fields of the configuration switch processors on.
    pub(super) num_fields: usize,
    /// How many of the last run after the caller's.
    pub(super) num_warpers: usize,
}

impl LogitsProcessorList {
    /// These processors, in this order.
    pub fn new(processors: Vec<Arc<dyn LogitsProcessor>>) -> Self {
        Self::of_request(processors, 0, 0)
    }

    /// The processors of a request: `num_fields` at the places of those that fields switch on, the caller's
    /// others, and `num_warpers` that run last.
    pub(super) fn of_request(
        processors: Vec<Arc<dyn LogitsProcessor>>,
        num_fields: usize,
        num_warpers: usize,
    ) -> Self {
        Self { processors, num_fields, num_warpers }
    }

    /// With the processor of a grammar, after the caller's and before those that run last.
    pub(crate) fn with_grammar(mut self, grammar: Option<Arc<dyn LogitsProcessor>>) -> Self {
        let place = self.processors.len() - self.num_warpers;
        self.processors.splice(place..place, grammar);
        self
    }

    /// The number of processors.
    pub fn len(&self) -> usize {
        self.processors.len()
    }

    /// Whether there is no processor, so that scores are the logits themselves.
    pub fn is_empty(&self) -> bool {
        self.processors.is_empty()
    }

    /// The processors' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.processors.iter().map(|processor| processor.name())
    }

    /// Those that are not the caller's own and need no logits of another sequence.
    pub(crate) fn built_in(&self) -> Self {
        let is_built_in = |name: &str| {
            name != "UnbatchedClassifierFreeGuidanceLogitsProcessor"
                && PROCESSORS.iter().any(|entry| entry.class == name)
        };
        let processors = self.processors.iter().filter(|processor| is_built_in(processor.name()));
        Self::new(processors.cloned().collect())
    }

    /// Those of the caller's that stand in the place of one that a field switches on, with the name of the
    /// field.
    pub(crate) fn replacing<'a>(
        &'a self,
        callers: &'a [Arc<dyn LogitsProcessor>],
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let last = self.processors.len() - self.num_warpers;
        let of_fields = self.processors[..self.num_fields.min(last)].iter().chain(&self.processors[last..]);
        let replacing = of_fields.filter(|own| callers.iter().any(|caller| Arc::ptr_eq(own, caller)));
        replacing.map(|own| (own.name(), switch(own.name())))
    }

    /// Names the sources of unusable scores, for errors: the fields that switch processors on, and custom
    /// processors.
    pub(crate) fn sources(&self) -> Message {
        Message::names(self.names().map(switch))
    }

    /// Whether one of them turns logits that hold NaN or infinity into usable scores.
    pub fn takes_invalid_logits(&self) -> bool {
        self.processors.iter().any(|processor| processor.takes_invalid_logits())
    }

    /// The states of a new sequence.
    pub fn new_states(&self) -> ProcessorStates {
        ProcessorStates { states: self.processors.iter().map(|processor| processor.new_state()).collect() }
    }

    /// The unconditional prompt that each processor requests for the rows of a prompt, without padding.
    pub fn unconditional(&self, prompt_index: usize, prompt: &[TokenId]) -> Vec<Option<Vec<TokenId>>> {
        self.processors.iter().map(|processor| processor.unconditional_prompt(prompt_index, prompt)).collect()
    }

    /// Applies every processor in order to `scores`, `[rows, vocab_size]`, of the rows of `context`.
    ///
    /// # Errors
    /// The first error of a processor, with its name.
    pub fn process(&self, scores: &mut ScoreRows<'_>, context: &mut ProcessContext<'_>) -> Result<()> {
        for (index, processor) in self.processors.iter().enumerate() {
            for row in &mut context.rows {
                row.processor_index = index;
            }
            processor.process(scores, context).context(|| processor.name())?;
            for (row, watched) in context.watched.iter_mut().enumerate() {
                note_removed(watched, scores.row(row), || switch(processor.name()).to_owned());
            }
        }
        Ok(())
    }
}

/// The field that switches a processor on; the name of the caller's own.
fn switch(name: &str) -> &str {
    PROCESSORS.iter().find(|entry| entry.class == name).map_or(name, |entry| entry.switch)
}

impl std::fmt::Debug for LogitsProcessorList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
