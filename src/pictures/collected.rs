//! [`Pictures`]: the events of a call, ordered for drawing.

use std::collections::BTreeMap;

use super::tree::Tree;
use crate::engine::GenerationOutput;
use crate::engine::trace::{Draft, FinishedRow, GenerationEvent, TimedEvent, Token};

/// A kind of picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The probability of each token.
    Probs,
    /// The tree of beams.
    Beams,
    /// Accepted and rejected drafts.
    Drafts,
}

/// The content of pictures, collected event by event.
#[derive(Debug, Clone, Default)]
pub struct Pictures {
    /// The name of the search.
    pub(super) strategy: String,
    /// The text of each prompt.
    pub(super) prompts: Vec<String>,
    /// The tokens of each row.
    pub(super) rows: BTreeMap<usize, Vec<Token>>,
    /// The beams of each prompt.
    pub(super) trees: BTreeMap<usize, Tree>,
    /// The drafts of each row.
    pub(super) drafts: BTreeMap<usize, Vec<Draft>>,
    /// The rows that have ended.
    pub(super) finished: Vec<FinishedRow>,
}

impl Pictures {
    /// Pictures of these events.
    pub fn of(events: &[TimedEvent]) -> Self {
        let mut pictures = Self::default();
        for event in events {
            pictures.add(&event.event);
        }
        pictures
    }

    /// Pictures of an output: of its events, or without them of its log-probabilities.
    pub fn of_output(output: &GenerationOutput) -> Self {
        if let Some(events) = &output.events {
            return Self::of(events);
        }
        let mut pictures = Self::default();
        for (index, row) in output.rows.iter().enumerate() {
            let tokens = row.token_texts().zip(&row.generated.token_ids).zip(&row.generated.logprobs);
            let tokens = tokens.enumerate().map(|(pos, ((text, &id), &logprob))| Token {
                row: index,
                pos,
                id,
                text: text.to_owned(),
                logprob: Some(logprob).filter(|logprob| logprob.is_finite()),
                logprob_final: None,
                rank: None,
                entropy: None,
                top: Vec::new(),
                finish_reason: None,
            });
            pictures.rows.insert(index, tokens.collect());
        }
        pictures
    }

    /// Adds an event.
    pub fn add(&mut self, event: &GenerationEvent) {
        match event {
            GenerationEvent::Start(start) => self.strategy.clone_from(&start.strategy),
            GenerationEvent::Prompt(prompt) => self.prompts.push(prompt.texts.concat()),
            GenerationEvent::Token(token) => {
                self.rows.entry(token.row).or_default().push(token.clone());
            }
            GenerationEvent::Beam(beams) => self.trees.entry(beams.prompt).or_default().add(beams),
            GenerationEvent::Draft(draft) => {
                self.drafts.entry(draft.row).or_default().push(draft.clone());
            }
            GenerationEvent::Finish(finish) => {
                for row in &finish.rows {
                    if let Some(tree) = self.trees.get_mut(&row.prompt) {
                        tree.finish(&row.path);
                    }
                }
                self.finished.extend(finish.rows.iter().cloned());
            }
        }
    }

    /// The views that have content, the most telling one first.
    pub fn views(&self) -> Vec<View> {
        let all = [
            (View::Beams, !self.trees.is_empty()),
            (View::Drafts, !self.drafts.is_empty()),
            (View::Probs, self.rows.values().any(|tokens| !tokens.is_empty())),
        ];
        all.into_iter().filter(|(_, is_there)| *is_there).map(|(view, _)| view).collect()
    }
}
