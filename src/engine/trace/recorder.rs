//! Records the events of a request while it runs.

use std::collections::HashMap;
use std::time::Duration;

use super::event::{
    Beams, Draft, Finish, FinishedRow, GenerationEvent, Prompt, Shift, Start, TimedEvent, Token, TokenText,
};
use crate::engine::events::RowTexts;
use crate::engine::{GenerationOutput, Timings, Usage};
use rsgen_core::{Result, TokenId, memory};
use rsgen_generation::plan::PlannedPrompt;
use rsgen_generation::search::details::TokenDetails;
use rsgen_generation::{GenerationPlan, OutputRow, SearchStep, TokenEvent, TrieEntry};
use rsgen_text::{Detokenizer, Tokenizer};

/// The longest text of a token that is no part of the output, in characters.
const MAX_TEXT: usize = 64;

/// The events of a request so far.
pub(in crate::engine) struct Recorder {
    tokenizer: Option<Tokenizer>,
    texts: RowTexts,
    events: Vec<TimedEvent>,
    /// The tokens of each row.
    lengths: Vec<usize>,
    /// The draft rounds of each row.
    rounds: Vec<usize>,
    /// The node of each token that was chosen in a beam, by step and beam.
    nodes: HashMap<(usize, u32, TokenId), u32>,
}

impl Recorder {
    /// A recorder with the `start` event; `None` unless the plan asks for events.
    ///
    /// # Errors
    /// `Capacity` when there is no memory.
    pub(in crate::engine) fn new(
        plan: &GenerationPlan,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Option<Self>> {
        if !plan.output_events() {
            return Ok(None);
        }
        let mut recorder = Self {
            tokenizer: tokenizer.cloned(),
            texts: RowTexts::new(None, &[], 0, None),
            events: Vec::new(),
            lengths: vec![0; plan.num_rows()],
            rounds: vec![0; plan.num_rows()],
            nodes: HashMap::new(),
        };
        let start = Start {
            model: plan.model_name().to_owned(),
            strategy: plan.mode().as_str().to_owned(),
            parameters: plan.parameters(),
            seed: plan.seed(),
            first_row: 0,
            request: serde_json::Map::new(),
            num_rows: plan.num_rows(),
        };
        recorder.push(Duration::ZERO, GenerationEvent::Start(start))?;
        if !plan.heals_prompts() {
            recorder.prompts(plan.prompts(), plan.num_return_sequences(), Duration::ZERO)?;
        }
        Ok(Some(recorder))
    }

    /// Records the prompts, which are continued in so many rows each, `elapsed` after the start.
    ///
    /// # Errors
    /// `Capacity` when there is no memory.
    pub(in crate::engine) fn prompts(
        &mut self,
        prompts: &[PlannedPrompt],
        rows_each: usize,
        elapsed: Duration,
    ) -> Result<()> {
        self.texts = RowTexts::new(self.tokenizer.as_ref(), prompts, rows_each, None);
        for (index, prompt) in prompts.iter().enumerate() {
            let ids = memory::copied(prompt.tokens(), "tokens")?;
            let texts = self.pieces(&ids)?;
            let event = GenerationEvent::Prompt(Prompt { prompt: index, ids, texts });
            self.push(elapsed, event)?;
        }
        Ok(())
    }

    /// The events so far.
    pub(in crate::engine) fn events(&self) -> &[TimedEvent] {
        &self.events
    }

    /// Records a step of the search, `elapsed` after the start.
    ///
    /// # Errors
    /// `Capacity` when there is no memory.
    pub(in crate::engine) fn step(&mut self, step: &SearchStep, elapsed: Duration) -> Result<()> {
        for beams in &step.details.beams {
            let event = GenerationEvent::Beam(self.beams(beams));
            self.push(elapsed, event)?;
        }
        for round in &step.details.drafts {
            let event = GenerationEvent::Draft(self.draft(round));
            self.push(elapsed, event)?;
        }
        let mut details = step.details.tokens.iter();
        for event in &step.events {
            let event = GenerationEvent::Token(self.token(event, details.next()));
            self.push(elapsed, event)?;
        }
        Ok(())
    }

    /// Records the end, and returns all events.
    pub(in crate::engine) fn finish(
        mut self,
        rows: &[OutputRow],
        entries: Option<&[Option<TrieEntry>]>,
        usage: Usage,
        timings: Timings,
    ) -> Vec<TimedEvent> {
        let finished = |(index, row): (usize, &OutputRow)| FinishedRow {
            row: index,
            prompt: row.prompt_index,
            finish_reason: row.finish_reason,
            score: row.score,
            path: self.path(row),
            entry: entries.and_then(|entries| entries.get(index)?.clone()),
        };
        let finish =
            Finish { rows: rows.iter().enumerate().map(finished).collect(), usage, timings: timings.into() };
        self.append(timings.total, GenerationEvent::Finish(finish));
        self.events
    }

    fn push(&mut self, elapsed: Duration, event: GenerationEvent) -> Result<()> {
        let len = self.events.len();
        // There is always room for the end, which nothing can refuse.
        if len + 1 >= self.events.capacity() {
            memory::reserve(&mut self.events, len.max(64), "events")?;
        }
        self.append(elapsed, event);
        Ok(())
    }

    fn append(&mut self, elapsed: Duration, event: GenerationEvent) {
        let t_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.events.push(TimedEvent { seq: self.events.len() as u64, t_us, event });
    }

    /// The text that each token of a prompt adds.
    fn pieces(&self, ids: &[TokenId]) -> Result<Vec<String>> {
        let mut texts = Vec::new();
        memory::reserve(&mut texts, ids.len(), "texts")?;
        let Some(tokenizer) = &self.tokenizer else {
            texts.resize(ids.len(), String::new());
            return Ok(texts);
        };
        let mut detokenizer = Detokenizer::new(tokenizer, &[], true);
        texts.extend(ids.iter().map(|&id| detokenizer.push(id)));
        if let Some(last) = texts.last_mut() {
            last.push_str(&detokenizer.flush());
        }
        Ok(texts)
    }

    fn token(&mut self, event: &TokenEvent, details: Option<&TokenDetails>) -> Token {
        let pos = self.lengths[event.row];
        self.lengths[event.row] += 1;
        let streamed = self.texts.token(TokenEvent { top_logprobs: Vec::new(), ..*event });
        let p_final = details.and_then(|details| {
            details.top.iter().find(|top| top.token.id == event.token).map(|top| top.p_final.ln())
        });
        let mut top = details.map(|details| details.top.clone()).unwrap_or_default();
        for top in &mut top {
            self.name(&mut top.token);
            top.cut_by = top.cut_by.as_deref().map(bounded);
        }
        Token {
            row: event.row,
            pos,
            id: event.token,
            text: streamed.text,
            logprob: Some(event.logprob).filter(|logprob| logprob.is_finite()),
            logprob_final: p_final.filter(|logprob| logprob.is_finite()),
            rank: details.map(|details| details.rank),
            entropy: details.map(|details| details.entropy),
            top,
            finish_reason: event.finish,
        }
    }

    fn beams(&mut self, beams: &Beams) -> Beams {
        let mut beams = beams.clone();
        for node in &mut beams.nodes {
            self.nodes.insert((beams.step, node.beam, node.token.id), node.n);
            self.name(&mut node.token);
        }
        beams
    }

    fn draft(&mut self, draft: &Draft) -> Draft {
        let mut draft = Draft { round: self.rounds[draft.row], ..draft.clone() };
        self.rounds[draft.row] += 1;
        let tokens = draft.proposed.iter_mut().map(|drafted| &mut drafted.token).chain(&mut draft.next);
        tokens.for_each(|token| self.name(token));
        draft
    }

    /// Gives a token its own text: special tokens as the vocabulary writes them.
    fn name(&self, token: &mut TokenText) {
        let text = self.tokenizer.as_ref().and_then(|tokenizer| {
            if tokenizer.is_special(token.id) {
                return tokenizer.token(token.id).map(bounded);
            }
            tokenizer.token_bytes(token.id).map(|bytes| bounded(&String::from_utf8_lossy(bytes)))
        });
        token.text = text.unwrap_or_default();
    }

    /// The nodes of a row.
    fn path(&self, row: &OutputRow) -> Vec<u32> {
        let steps = row.beam_indices.iter().zip(&row.token_ids).enumerate();
        steps.map_while(|(step, (&beam, &token))| self.nodes.get(&(step, beam, token)).copied()).collect()
    }
}

/// At most 64 characters.
fn bounded(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// The events of several outputs, numbered as one list; `None` when none holds events.
pub(in crate::engine) fn joined(outputs: &mut [Option<GenerationOutput>]) -> Option<Vec<TimedEvent>> {
    let (mut all, mut shift) = (None, Shift::default());
    for output in outputs {
        let Some(output) = output else {
            shift.prompts += 1;
            continue;
        };
        let mut nodes = 0;
        for mut event in output.events.take().into_iter().flatten() {
            if let GenerationEvent::Beam(beams) = &event.event {
                nodes = beams.nodes.iter().map(|node| node.n + 1).fold(nodes, u32::max);
            }
            event.event.shift(&shift);
            let all: &mut Vec<TimedEvent> = all.get_or_insert_default();
            event.seq = all.len() as u64;
            all.push(event);
        }
        shift.rows += output.rows.len();
        shift.prompts += output.rows.iter().map(|row| row.generated.prompt_index + 1).max().unwrap_or(0);
        shift.nodes += nodes;
        shift.beams += output.sequences.len() as u32;
    }
    all
}
