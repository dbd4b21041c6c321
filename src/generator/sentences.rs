//! Calls that cut their texts into sentences: each is a request of its own, and what becomes of them is put
//! together again.

use super::{Call, Prompt, Prompts};
use crate::engine::{GeneratedRow, GenerationOutput};
use rsgen_core::{Error, Result, refuse_if};
use rsgen_generation::{GenerationConfig, OneOrMany, OutputRow};
use rsgen_text::{Phrases, Sentences};

impl Call<'_> {
    /// Cuts each text into [`Sentences`], which become requests of their own. The output has the rows of
    /// whole texts: the first row of each sentence makes the first of its text, and so on. A text without words
    /// stays as it is, and no term of a glossary is cut.
    pub fn split_sentences(mut self) -> Self {
        self.splits_sentences = true;
        self
    }
}

/// The texts of a call, and which requests are theirs.
#[derive(Debug, Default)]
pub(super) struct CutTexts {
    texts: Vec<CutText>,
    /// The terms of the glossary, which are not cut.
    terms: Phrases,
    /// The rows of each text.
    num_rows: usize,
}

#[derive(Debug)]
struct CutText {
    text: String,
    /// The outputs of its sentences.
    parts: Vec<Option<GenerationOutput>>,
}

impl CutTexts {
    /// Cuts the texts, whose sentences become the prompts of the call; `merged` is its configuration.
    ///
    /// # Errors
    /// `Input` for prompts that are no texts, and for an empty list.
    pub(super) fn new(prompts: &mut Prompts, merged: &GenerationConfig) -> Result<Self> {
        let entries = merged.glossary.iter().flat_map(rsgen_generation::config::Glossary::entries);
        let terms = Phrases::new(entries.map(|(term, _)| &**term));
        let list = match std::mem::replace(prompts, Prompts::List(Vec::new())) {
            Prompts::One(prompt) => vec![prompt],
            Prompts::List(list) => list,
            Prompts::Batch(_) => return Err(no_text()),
        };
        let (mut texts, mut sentences) = (Vec::with_capacity(list.len()), Vec::new());
        for prompt in list {
            let Prompt::Text(text) = prompt else { return Err(no_text()) };
            let before = sentences.len();
            sentences.extend(Sentences::with_terms(&text, &terms).iter().map(Prompt::from));
            texts.push(CutText { parts: vec![None; sentences.len() - before], text });
        }
        if texts.is_empty() {
            return Err(Error::input("the list of texts is empty; give at least one text"));
        }
        *prompts = Prompts::List(sentences);
        Ok(Self { texts, terms, num_rows: 1 })
    }

    /// Refuses what belongs to whole texts; `merged` is the configuration of the call, and `decoder_prompts` the field
    /// that gives the decoder's prompts.
    pub(super) fn check(
        &mut self,
        merged: &GenerationConfig,
        decoder_prompts: Option<&'static str>,
    ) -> Result<()> {
        let of_steps = [
            ("output_scores", merged.output_scores == Some(true)),
            ("output_logits", merged.output_logits == Some(true)),
            ("output_hidden_states", merged.output_hidden_states == Some(true)),
            ("output_attentions", merged.output_attentions == Some(true)),
            ("output_events", merged.output_events == Some(true)),
            ("top_logprobs", merged.top_logprobs.is_some_and(|count| count > 0)),
        ];
        for (field, is_set) in of_steps {
            refuse_if(
                is_set,
                field,
                || "has no place in the output of a text that is split into sentences; leave it out, or do not split",
            )?;
        }
        refuse_if(
            matches!(merged.seed, Some(OneOrMany::Many(_))),
            "seed",
            || "must be one number where texts are split into sentences, which take consecutive seeds; give one number",
        )?;
        if let Some(field) = decoder_prompts {
            return Err(Error::input(
                "begins a whole text, and not each of its sentences; leave it out, or do not split",
            )
            .about(field));
        }
        self.num_rows = merged.num_return_sequences.unwrap_or(1);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Leaves out the texts of invalid sentences. Returns the index and the error of each text; `keeps` tells
    /// then whether the request of a valid sentence is still wanted.
    pub(super) fn leave_out(
        &mut self,
        invalid: Vec<(usize, Error)>,
        mut keeps: impl FnMut(bool),
    ) -> Vec<(usize, Error)> {
        let (mut invalid, mut left_out) = (invalid.into_iter().peekable(), Vec::new());
        let (mut sentence, mut index) = (0, 0);
        self.texts.retain(|text| {
            let (first, end) = (sentence, sentence + text.parts.len());
            (sentence, index) = (end, index + 1);
            let mut wrong: Vec<_> =
                std::iter::from_fn(|| invalid.next_if(|(sentence, _)| *sentence < end)).collect();
            (first + wrong.len()..end).for_each(|_| keeps(wrong.is_empty()));
            if wrong.is_empty() {
                return true;
            }
            left_out.push((index - 1, wrong.swap_remove(0).1));
            false
        });
        left_out
    }

    /// The outputs of blank texts, with their indices.
    pub(super) fn blank(&self) -> Vec<(usize, GenerationOutput)> {
        let blank = self.texts.iter().enumerate().filter(|(_, text)| text.parts.is_empty());
        blank.map(|(index, text)| (index, text.joined(self.num_rows, &self.terms))).collect()
    }

    /// Adds the output of a request. Returns that of its text, with its index, once it is whole.
    pub(super) fn add(
        &mut self,
        request: usize,
        output: &GenerationOutput,
    ) -> Option<(usize, GenerationOutput)> {
        let mut part = request;
        let at = |(_, text): &(usize, &mut CutText)| {
            let is_it = part < text.parts.len();
            if !is_it {
                part -= text.parts.len();
            }
            is_it
        };
        let (index, text) = { self.texts.iter_mut().enumerate().find(at)? };
        text.parts[part] = Some(output.clone());
        text.is_whole().then(|| (index, text.joined(self.num_rows, &self.terms)))
    }

    /// The output of the texts that are whole.
    pub(super) fn output(self) -> GenerationOutput {
        let whole = |text: &CutText| text.is_whole().then(|| text.joined(self.num_rows, &self.terms));
        GenerationOutput::joined(self.texts.iter().map(whole).collect())
    }
}

impl CutText {
    /// Whether all of its sentences have ended.
    fn is_whole(&self) -> bool {
        self.parts.iter().all(Option::is_some)
    }

    /// Its output, in rows; `terms` were not cut.
    fn joined(&self, num_rows: usize, terms: &Phrases) -> GenerationOutput {
        let sentences = Sentences::with_terms(&self.text, terms);
        let mut whole = GenerationOutput::joined(self.parts.clone());
        let parts = std::mem::take(&mut whole.rows);
        whole.sequences = Vec::new();
        whole.rows = (0..num_rows)
            .map(|row| joined_row(&sentences, &parts.iter().skip(row).step_by(num_rows).collect::<Vec<_>>()))
            .collect();
        whole
    }
}

/// A row of a text, made of those of its sentences.
fn joined_row(sentences: &Sentences<'_>, parts: &[&GeneratedRow]) -> GeneratedRow {
    let texts: Vec<&str> = parts.iter().map(|part| part.text.as_deref().unwrap_or_default()).collect();
    let mut text_ends = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let (start, end) = sentences.place(&texts, index);
        text_ends.extend(part.text_ends.iter().map(|end| start + end));
        if let Some(last) = text_ends.last_mut() {
            // White space belongs to the token before it.
            *last = end;
        }
    }
    GeneratedRow {
        prompt_ids: parts.first().map(|part| part.prompt_ids.clone()).unwrap_or_default(),
        generated: OutputRow::joined(parts.iter().map(|part| &part.generated)),
        text: Some(sentences.join(&texts)),
        text_ends,
        healed: String::new(),
        cache: None,
    }
}

fn no_text() -> Error {
    Error::input("only texts can be split into sentences, but a prompt is none; give texts, or do not split")
}
